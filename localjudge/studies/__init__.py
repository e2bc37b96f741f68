"""Answer a question about runs: read, match, compute, and return what was found."""
