"""Read rows from files and from Python objects."""
