"""The findings of an audit: each check with its share and its shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.statistics import Estimate
from localjudge.studies.audit.perturbations import Direction

NOISE = 1 / 16
"""Largest change that counts as no change, as a share of the scale's range: 0.25 on a scale from 1 to 5."""
SOUND, DOUBTFUL = 0.8, 0.5
"""Minimum shares for these verdicts of a check without a threshold."""
VERDICTS: Mapping[str, str] = {
    "below": "less than its --threshold",
    "unsound": f"less than {DOUBTFUL:.0%}",
    "at chance": "the interval is not above chance, so these rows do not show that the judge reads the text",
    "doubtful": f"{DOUBTFUL:.0%} to {SOUND:.0%}, and the interval is above chance",
    "untested": "no row could be tested",
    "sound": f"at least {SOUND:.0%}, and the interval is above chance",
    "passed": "at least its --threshold",
}
"""What each verdict says of the share that held, the worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectReading:
    """One aspect under one perturbation.

    Attributes:
        direction: the expected change of the score.
        tested: number of rows whose score could change in this way.
        held: number of tested rows whose score changed in this way.
        no_room: number of rows whose score was too close to the end of the scale.
        shift: mean difference between the scores of the perturbed and of the original row, over all rows; where
            the orders must agree or no place may win, between the probability that the response shown first is
            better and one half.
    """

    direction: Direction
    tested: int
    held: int
    no_room: int
    shift: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """The result of one perturbation.

    `share` and `shift` are averages over the `decisive` aspects, which decide the check. `chance` is the share
    that would hold if the judge ignored the text: each of its scores of a row could then belong to any text of
    the row, and each answer about a pair to any pair. It is None if every row has scores of only one text.
    `skipped` has the number of rows for each reason why the perturbation did not apply; `failed` is the number
    of perturbed rows that could not be judged.
    """

    name: str
    does: str
    rows: int
    failed: int
    skipped: dict[str, int]
    aspects: dict[str, AspectReading]
    decisive: list[str]
    share: Estimate
    chance: float | None
    shift: Estimate
    threshold: float | None

    @property
    def expected(self) -> str:
        """The expected change of the decisive aspects, in words."""
        directions: dict[str, list[str]] = {}
        for aspect in self.decisive:
            directions.setdefault(self.aspects[aspect].direction, []).append(aspect)
        if len(self.decisive) == len(self.aspects) and len(directions) == 1:
            return next(iter(directions))
        return "; ".join(f"{', '.join(aspects)} {direction}" for direction, aspects in directions.items())

    @property
    def passed(self) -> bool | None:
        """True if the share is defined and reaches the threshold; None if there is no threshold."""
        if self.threshold is None:
            return None
        return self.share.value is not None and self.share.value >= self.threshold

    @property
    def verdict(self) -> str:
        """The result in one word or two, as `VERDICTS` defines them."""
        share, low = self.share.value, self.share.low
        if share is None:
            return "untested"
        if self.threshold is not None:
            return "passed" if self.passed else "below"
        if share < DOUBTFUL:
            return "unsound"
        if low is None or self.chance is None or low <= self.chance:
            return "at chance"
        return "sound" if share >= SOUND else "doubtful"

    @property
    def not_tested(self) -> str:
        """The reasons why rows were not tested, each with the number of rows."""
        if not self.decisive:
            return "no expected change is known for these aspects"
        no_room = sum(self.aspects[aspect].no_room for aspect in self.decisive)
        reasons = [f"{reason}: {count:,}" for reason, count in self.skipped.items()]
        reasons += [f"failed: {self.failed:,}"] * bool(self.failed)
        reasons += [f"scores near the end of the scale: {no_room:,}"] * bool(no_room)
        return "; ".join(reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The findings of an audit.

    `ranges` has the difference between the highest and the lowest score of each aspect. `of` is the kind of
    scores that were compared:
    "expected" if an aspect has expected scores in every row; the others have integers. Of pairs, it is
    "preference": the judge's probability, over both orders, that the changed response is better.
    """

    model: str
    rubric: str
    rows: int
    instructions: int
    seed: int
    of: str
    ranges: dict[str, int]
    checks: list[AuditCheck]
    aspects: list[str]
    notices: list[str]

    @property
    def passed(self) -> bool:
        return all(check.passed is not False for check in self.checks)
