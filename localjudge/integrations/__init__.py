"""The judge inside other programs: Inspect, lm-evaluation-harness, pytest and notebooks."""
