"""The run directory: what a run is, its lines as rows finish, and what it came to."""
