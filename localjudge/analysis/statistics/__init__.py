"""Estimates, their intervals and tests, by resampling instructions."""
