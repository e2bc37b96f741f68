"""Check whether a run can start on this machine, and whether a model directory is complete."""
