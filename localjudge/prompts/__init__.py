"""Prompts: the token ids that the model reads for each row."""
