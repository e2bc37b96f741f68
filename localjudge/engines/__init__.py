"""Engines: complete prompts under the constraint of the token table."""
