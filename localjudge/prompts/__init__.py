"""From a row to the token ids that the model reads."""
