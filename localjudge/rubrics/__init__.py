"""Rubrics: the prompt template, the aspects and the scale."""
