"""Models on this machine: finding one, its files and digests, what it needs."""
