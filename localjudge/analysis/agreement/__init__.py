"""Compare a judge with people: agreement, annotators, calibration."""
