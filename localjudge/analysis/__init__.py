"""Measure how far a judge can be trusted, from its runs: agreement, ranking, juries, calibration.

    scores → labels, texts → agreement, ranking, jury, calibration → tables and JSON

Everything here resamples instructions, not rows: rows that answer the same instruction are not independent.
What cannot be computed, because the scores are constant, the rows too few or the labels missing, is undefined:
None, and never a number. The statistics come from SciPy and scikit-learn, loaded when used.
"""
