"""An estimate and its 95 % interval, each of them a number or undefined."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from localjudge.system.quantities import UNDEFINED_SIGN, counted

Verdict = Literal["better", "worse", "no clear difference", "unknown"]
"""What the interval of a difference says of the first of two."""

_VERDICT_WORDS: dict[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "no clear difference": "no clear difference (0 is in the interval)",
    "unknown": "unknown",
}

EQUAL_EVERYWHERE = "it is the same on all instructions"
VARIES_TOO_LITTLE = (
    "it varies on so few instructions that one more, at the end of the scale, could move it out of an interval"
)
NOT_DEFINED = "it is not defined"


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
        return cls(float(value), low=_closed_end(low), high=_closed_end(high))

    def decreasing(self, function: Callable[[float], float]) -> Estimate:
        """Return the estimate of a decreasing function of the value, which swaps the ends."""

        def image(number: float | None) -> float | None:
            return None if number is None else function(number)

        return replace(self, value=image(self.value), low=image(self.high), high=image(self.low))

    def negative(self) -> Estimate:
        """Return the estimate with the other sign."""
        return self.decreasing(lambda number: -number)

    def complement(self) -> Estimate:
        """Return the estimate of the rest of a share."""
        return self.decreasing(lambda share: 1 - share)

    @property
    def verdict(self) -> Verdict:
        """What a difference says of the first of two: what its interval excludes; "unknown" without one."""
        if self.low is None and self.high is None:
            return "unknown"
        if self.low is not None and self.low > 0:
            return "better"
        if self.high is not None and self.high < 0:
            return "worse"
        return "no clear difference"

    @property
    def no_interval(self) -> str:
        """The reason of a difference to be "unknown", for the end of a sentence; empty with an interval."""
        if not self.why:
            return ""
        return f", because the difference has no interval: {self.why}"

    def size_in_words(self) -> str:
        """Return by how much the first of two is better, or worse if its interval says so."""
        if self.verdict == "worse":
            return self.negative().in_words()
        return self.in_words()

    def in_words(self) -> str:
        """Return the value, with its interval in brackets."""
        value = two_decimals(self.value)
        ends = self.ends(" to ")
        if ends is None:
            return value
        return f"{value} ({ends})"

    def ends(self, between: str) -> str | None:
        """Return the ends of the interval, or "≥" or "≤" and the only end; None without an interval."""
        if self.low is not None and self.high is not None:
            return f"{_bare(self.low)}{between}{_bare(self.high)}"
        if self.low is not None:
            return f"≥ {_bare(self.low)}"
        if self.high is not None:
            return f"≤ {_bare(self.high)}"
        return None


def _closed_end(end: float) -> float | None:
    """Return an end of an interval; None for an infinite one, which is open."""
    return float(end) if math.isfinite(end) else None


UNDEFINED = Estimate()


def verdicts_in_words(differences: Mapping[str, Estimate]) -> str:
    """Return the names of aspects with each verdict: "better on 1 of 3 aspects (depth); worse on …"."""
    names_by_verdict: dict[tuple[str, str], list[str]] = {(words, ""): [] for words in _VERDICT_WORDS.values()}
    for name, difference in differences.items():
        words = _VERDICT_WORDS[difference.verdict]
        names_by_verdict.setdefault((words, difference.no_interval), []).append(name)
    aspects = counted(len(differences), "aspect")
    has_comma = any("," in name for name in differences)
    separator = "; " if has_comma else ", "
    clauses = []
    for (words, no_interval), names in names_by_verdict.items():
        if names:
            clauses.append(f"{words} on {len(names)} of {aspects} ({separator.join(names)}){no_interval}")
    return "; ".join(clauses)


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

    unequal = rose + fell
    if unequal == 0:
        return 1.0
    one_sided = float(bdtr(min(rose, fell), unequal, 0.5))
    return min(1.0, 2 * one_sided)


def two_decimals(value: float | None) -> str:
    """Return a value with two decimals, and no sign of a negative zero."""
    if value is None:
        return UNDEFINED_SIGN
    return f"{value:.2f}".replace("-0.00", "0.00")


def _bare(value: float) -> str:
    """Return the value with two decimals and no leading zero, as is usual for statistics from -1 to 1."""
    text = two_decimals(value)
    if text.lstrip("-").startswith("0."):
        return text.replace("0.", ".", 1)
    return text
