"""The token table: the answers that a rubric allows, as tokens of a model."""
