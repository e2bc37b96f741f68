"""Whether a run would start here, and whether a model directory is whole."""
