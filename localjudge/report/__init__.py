"""A report of runs as one file that people look at."""
