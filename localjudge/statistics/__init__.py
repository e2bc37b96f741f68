"""An estimate and its 95 % interval, each of them a number or undefined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from localjudge.system.quantities import UNDEFINED_SIGN, counted


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval; None for each of them that is undefined.

    An interval with one end is open at the other: the data bound the value from one side only. `why` says why
    there is no interval, where that is known: a clause whose subject is the estimate. It is empty with one.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = field(default="", compare=False)

    @classmethod
    def from_floats(
        cls, value: float, low: float = math.nan, high: float = math.nan, why: str = ""
    ) -> Estimate:
        """Return an estimate; an infinite end is open, and with NaN or without a value there is no interval."""
        if not math.isfinite(value):
            return cls(why=why)
        if math.isnan(low) or math.isnan(high):
            return cls(float(value), why=why)
        ends = [float(end) if math.isfinite(end) else None for end in (low, high)]
        return cls(float(value), ends[0], ends[1])

    def negative(self) -> Estimate:
        """Return the estimate with the other sign."""
        value, low, high = (None if end is None else -end for end in (self.value, self.high, self.low))
        return replace(self, value=value, low=low, high=high)

    def complement(self) -> Estimate:
        """Return the estimate of the rest of a share."""
        value, low, high = (None if end is None else 1 - end for end in (self.value, self.high, self.low))
        return replace(self, value=value, low=low, high=high)

    @property
    def verdict(self) -> Literal["better", "worse", "no clear difference", "unknown"]:
        """What a difference says of the first of two: what its interval excludes; "unknown" without one."""
        if self.low is None and self.high is None:
            return "unknown"
        return "better" if (self.low or 0) > 0 else "worse" if (self.high or 0) < 0 else "no clear difference"

    @property
    def no_interval(self) -> str:
        """The reason of a difference to be "unknown", for the end of a sentence; empty with an interval."""
        return f", because the difference has no interval: {self.why}" if self.why else ""

    def size_in_words(self) -> str:
        """Return by how much the first of two is better, or worse if its interval says so."""
        return (self.negative() if self.verdict == "worse" else self).in_words()

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


def verdicts_in_words(differences: Mapping[str, Estimate]) -> str:
    """Return the names of aspects with each verdict: "better on 1 of 3 aspects (depth); worse on …"."""
    said = ("better", "worse", "no clear difference (0 is in the interval)", "unknown")
    kinds = {(kind, ""): list[str]() for kind in said}
    for name, each in differences.items():
        kind = next(kind for kind in said if kind.startswith(each.verdict))
        kinds.setdefault((kind, each.no_interval), []).append(name)
    of, between = counted(len(differences), "aspect"), "; " if "," in "".join(differences) else ", "
    found = ((*kind, names) for kind, names in kinds.items() if names)
    return "; ".join(f"{kind} on {len(own)} of {of} ({between.join(own)}){why}" for kind, why, own in found)


def untested_in_words(what: str, estimates: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield for each reason the names whose estimate has no interval; `what` is the estimate."""
    reasons: dict[str, list[str]] = {}
    for name, estimate in estimates.items():
        if estimate.why:
            reasons.setdefault(estimate.why, []).append(name)
    for why, names in reasons.items():
        yield f"The {what} has no interval in {', '.join(names)}, because {why}."


def why_undefined(value: float | None, instructions: float, least: int, varies: bool) -> str:
    """Return why an estimate has no interval: a clause whose subject is the estimate.

    Args:
        value: the estimate; None or NaN if it is undefined, too.
        instructions: number of instructions that it depends on; an effective number can have a fraction.
        least: number of instructions that its interval requires.
        varies: whether it varies between instructions.
    """
    if value is None or not math.isfinite(value):
        return NOT_DEFINED
    if instructions < least - 1e-3:
        return f"it depends on fewer than {least} instructions"
    if not varies:
        return EQUAL_EVERYWHERE
    return VARIES_TOO_LITTLE


def sign_test(rose: int, fell: int) -> float:
    """Return the two-sided p-value of the exact sign test (Dixon & Mood 1946), which leaves out equal pairs.

    Args:
        rose: number of instructions where the first is higher.
        fell: number of those where it is lower.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(rose, fell), rose + fell, 0.5))) if rose + fell else 1.0


EQUAL_EVERYWHERE = "it is the same on all instructions"
VARIES_TOO_LITTLE = (
    "it varies on so few instructions that one more, at the end of the scale, could move it out of an interval"
)
NOT_DEFINED = "it is not defined"
UNDEFINED = Estimate()


def two_decimals(value: float | None) -> str:
    return UNDEFINED_SIGN if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def _bare(value: float) -> str:
    """Return the value with two decimals and no leading zero, as is usual for statistics from -1 to 1."""
    text = f"{value:.2f}".replace("-0.00", "0.00")
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text
