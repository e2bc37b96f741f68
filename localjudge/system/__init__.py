"""The machine: terminal, durable files, cache, installed packages, memory."""
