"""Compare systems by the scores of a judge."""
