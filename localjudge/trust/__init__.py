"""How far a judge can be trusted: agreement with people, systems compared, juries, calibration. Reads runs.

    scores → labels, texts → agreement, ranking, jury, calibration → tables and JSON

Everything here resamples instructions, not rows: rows that answer the same instruction are not independent.
What cannot be computed, because the scores are constant, the rows too few or the labels missing, is undefined:
None, and never a number. The statistics come from SciPy and scikit-learn, loaded when used.
"""

from __future__ import annotations

from importlib.util import find_spec

from localjudge.errors import UsageError

_LIBRARIES = ("scipy", "sklearn")


def require_libraries() -> None:
    """Make sure that the statistics can be computed here.

    Raises:
        UsageError: a library of the extra `trust` is not installed.
    """
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise UsageError(f"no {' and no '.join(missing)} here: pip install 'localjudge[trust]'")
