"""The transformers engine: in this process, on any machine."""
