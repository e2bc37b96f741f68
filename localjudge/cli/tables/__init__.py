"""What the commands print of statistics, runs and models: rich tables."""
