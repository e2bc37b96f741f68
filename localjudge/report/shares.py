"""Shares of rows as people read them: in percent, with their intervals."""

from __future__ import annotations

from localjudge.statistics import Estimate
from localjudge.system.quantities import UNDEFINED_SIGN, percent


def share_in_words(share: Estimate) -> str:
    """Return a share in percent, with its interval in brackets if it has one; a dash if it is undefined."""
    if share.value is None:
        return UNDEFINED_SIGN
    if share.low is None or share.high is None:
        return percent(share.value)
    return f"{percent(share.value)} ({percent(share.low)} to {percent(share.high)})"
