"""The findings of an audit: each check with its share and its shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from localjudge.statistics import Estimate
from localjudge.studies.audit.perturbations import Direction
from localjudge.studies.audit.row_changes import SkipReason

SOUND = 0.8
"""Minimum share of a check without a threshold whose verdict is "sound"."""
DOUBTFUL = 0.5
"""Minimum share of one whose verdict is "doubtful"."""


class AuditVerdict(StrEnum):
    """The verdict on a check, the worst first."""

    BELOW = "below"
    UNSOUND = "unsound"
    AT_CHANCE = "at chance"
    DOUBTFUL = "doubtful"
    UNTESTED = "untested"
    SOUND = "sound"
    PASSED = "passed"


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

    Attributes:
        name: the perturbation.
        description: what it changes.
        rows: number of rows that were judged as they are and with the perturbation.
        failed: number of perturbed rows that could not be judged.
        skipped: number of rows by the reason why the perturbation did not apply to them.
        aspects: the scores of each aspect.
        decisive: the aspects that decide the check.
        share: the share of their tested scores that changed as expected.
        chance: the share of a judge that does not read the text; None if there is nothing to compute it from.
        shift: the mean difference of the scores of all decisive aspects.
        threshold: the minimum share; None for none.
    """

    name: str
    description: str
    rows: int
    failed: int
    skipped: Mapping[SkipReason, int]
    aspects: Mapping[str, AspectReading]
    decisive: Sequence[str]
    share: Estimate
    chance: float | None
    shift: Estimate
    threshold: float | None

    @property
    def decisive_directions(self) -> dict[Direction, list[str]]:
        """The decisive aspects by their expected change."""
        directions: dict[Direction, list[str]] = {}
        for aspect in self.decisive:
            directions.setdefault(self.aspects[aspect].direction, []).append(aspect)
        return directions

    @property
    def no_room(self) -> int:
        """Number of scores of decisive aspects that were too close to the end of the scale."""
        return sum(self.aspects[aspect].no_room for aspect in self.decisive)

    @property
    def passed(self) -> bool | None:
        """Whether the share is defined and reaches the threshold; None if there is no threshold."""
        if self.threshold is None:
            return None
        return self.share.value is not None and self.share.value >= self.threshold

    @property
    def verdict(self) -> AuditVerdict:
        """The verdict on the share, by the threshold or, without one, by chance, `SOUND` and `DOUBTFUL`."""
        share = self.share.value
        if share is None:
            return AuditVerdict.UNTESTED
        if self.threshold is not None:
            return AuditVerdict.PASSED if self.passed else AuditVerdict.BELOW
        if share < DOUBTFUL:
            return AuditVerdict.UNSOUND
        if not self._is_above_chance:
            return AuditVerdict.AT_CHANCE
        return AuditVerdict.SOUND if share >= SOUND else AuditVerdict.DOUBTFUL

    @property
    def _is_above_chance(self) -> bool:
        """Whether the interval of the share is above chance."""
        return self.share.low is not None and self.chance is not None and self.share.low > self.chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The findings of an audit.

    Attributes:
        model: the name of the judge's model.
        rubric: the name of its rubric.
        rows: number of sampled rows.
        instructions: number of their instructions.
        seed: the seed of the sample.
        score_kind: the kind of scores that were compared: "expected" if an aspect has expected scores in every
            row; the others have integers. Of pairs, it is "preference": the judge's probability, over both
            orders, that the changed response is better.
        ranges: the difference between the highest and the lowest score of each aspect.
        checks: the result of each perturbation.
        aspects: the audited aspects.
        notices: the notices of the run.
    """

    model: str
    rubric: str
    rows: int
    instructions: int
    seed: int
    score_kind: str
    ranges: Mapping[str, int]
    checks: Sequence[AuditCheck]
    aspects: Sequence[str]
    notices: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether no check is below its threshold."""
        return all(check.passed is not False for check in self.checks)
