"""Models on this machine: find one, read its files and digests, and compute what it needs."""
