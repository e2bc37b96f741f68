"""An estimate and its 95 % interval, each of them a number or undefined."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval; None for each of them that is undefined.

    An interval with one end is open at the other: the data bound the value from one side only.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, value: float, low: float = math.nan, high: float = math.nan) -> Estimate:
        """Return an estimate; an infinite end is open, and with NaN or without a value there is no interval."""
        if not math.isfinite(value):
            return cls()
        if math.isnan(low) or math.isnan(high):
            return cls(float(value))
        return cls(float(value), *(float(end) if math.isfinite(end) else None for end in (low, high)))

    def negative(self) -> Estimate:
        """Return the estimate with the other sign."""
        return Estimate(*(None if end is None else -end for end in (self.value, self.high, self.low)))

    def as_dict(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


UNDEFINED = Estimate()
