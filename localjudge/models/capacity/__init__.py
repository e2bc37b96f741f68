"""What a model needs and how fast it will judge: memory, devices, throughput, and the known models."""
