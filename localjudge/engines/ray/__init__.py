"""A Ray cluster as an engine; each worker has an engine of its own."""
