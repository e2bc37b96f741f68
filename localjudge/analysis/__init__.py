"""Measure how reliable a judge is, from its runs: agreement, ranking, juries, calibration.

    scores → labels, texts → agreement, ranking, jury, calibration → tables and JSON

All intervals resample instructions, not rows, because rows with the same instruction are not independent.
A statistic that cannot be computed, because scores are constant, rows too few or labels missing, is undefined:
None, and never a number. The statistics come from SciPy and scikit-learn, which are imported when used.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
