"""Runs: the pipeline from rows to a run directory, and the reading of run directories."""
