"""The judge for other programs: behind HTTP, and inside Inspect, lm-evaluation-harness and pytest."""
