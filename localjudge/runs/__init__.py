"""A run, from rows to a run directory, and its reader."""
