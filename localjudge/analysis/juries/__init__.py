"""Several judges of the same rows."""
