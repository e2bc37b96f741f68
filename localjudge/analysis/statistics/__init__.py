"""An estimate and its 95 % interval, each of them a number or undefined."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval; None for each of them that is undefined.

    An interval with one end is open at the other: the data bound the value from one side only.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        value, low, high = map(two_decimals, astuple(self))
        return f"{value} [{low}, {high}]"

    @classmethod
    def from_floats(cls, value: float, low: float = math.nan, high: float = math.nan) -> Estimate:
        """Return an estimate; an infinite end is open, and with NaN or without a value there is no interval."""
        if not math.isfinite(value):
            return cls()
        if math.isnan(low) or math.isnan(high):
            return cls(float(value))
        return cls(float(value), *(float(end) if math.isfinite(end) else None for end in (low, high)))

    def negative(self) -> Estimate:
        """Return the estimate with the other sign."""
        return Estimate(*(None if end is None else -end for end in (self.value, self.high, self.low)))

    def complement(self) -> Estimate:
        """Return the estimate of the rest of a share."""
        return Estimate(*(None if end is None else 1 - end for end in (self.value, self.high, self.low)))

    def in_words(self) -> str:
        """Return the value, with its interval in brackets."""
        ends = self.ends(" to ")
        return two_decimals(self.value) + ("" if ends is None else f" ({ends})")

    def ends(self, between: str) -> str | None:
        """Return the ends of the interval, or "≥" or "≤" and the only end; None without an interval."""
        if self.low is None:
            return None if self.high is None else f"≤ {_bare(self.high)}"
        if self.high is None:
            return f"≥ {_bare(self.low)}"
        return f"{_bare(self.low)}{between}{_bare(self.high)}"

    def as_dict(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


UNDEFINED = Estimate()
UNDEFINED_SIGN = "–"  # noqa: RUF001


def two_decimals(value: float | None) -> str:
    return UNDEFINED_SIGN if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def _bare(value: float) -> str:
    """Return the value with two decimals and no leading zero, as is usual for statistics from -1 to 1."""
    text = f"{value:.2f}".replace("-0.00", "0.00")
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text
