"""The judge behind HTTP, for training loops and notebooks."""
