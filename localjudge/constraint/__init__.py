"""The token table: what an answer may be, as a model's tokens, and how many are needed to finish it."""
