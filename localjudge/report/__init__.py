"""Reports of runs, each a single file for a browser."""
