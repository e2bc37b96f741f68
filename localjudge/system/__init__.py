"""What the machine offers: the terminal, durable files, a cache, installed packages, its memory."""
