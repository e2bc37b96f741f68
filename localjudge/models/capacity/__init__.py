"""What a model needs: memory, GPUs, and the known models."""
