"""The findings of an audit: each check with its share and shift, as JSON, text and terminal tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from localjudge.statistics import UNDEFINED_SIGN, Estimate
from localjudge.studies.audit.perturbations import POSITION, Direction

NOISE = 1 / 16
"""Largest change that counts as no change, as a share of the scale's range: 0.25 on a scale from 1 to 5."""
_EVEN = 1 / 2
SOUND, DOUBTFUL = 0.8, 0.5
"""Minimum shares for these verdicts of a check without a threshold."""


_CHANCE = (
    '"Chance" is the share that would hold if a judge ignored the text and gave the same scores. A check whose '
    "interval is not above it is at chance: these rows do not show that the judge reads the text."
)


class _AuditRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AspectReading(_AuditRecord):
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


class AuditCheck(_AuditRecord):
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
        """The result in one word or two; the limits are `SOUND` and `DOUBTFUL` if there is no threshold.

        A check is at chance unless the whole interval of its share is above the level of chance.
        """
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
    def held_text(self) -> str:
        if self.share.value is None:
            return UNDEFINED_SIGN
        interval = "" if self.share.low is None else f" ({self.share.low:.0%} to {self.share.high:.0%})"
        return f"{self.share.value:.0%}{interval}"

    @property
    def chance_text(self) -> str:
        return UNDEFINED_SIGN if self.share.value is None or self.chance is None else f"{self.chance:.0%}"

    @property
    def not_tested(self) -> str:
        """The reasons why rows were not tested, each with the number of rows."""
        if not self.decisive:
            return "no expected change is known for these aspects"
        no_room = sum(self.aspects[aspect].no_room for aspect in self.decisive)
        reasons = [f"{count} {reason}" for reason, count in self.skipped.items()]
        reasons += [f"{self.failed} failed"] * bool(self.failed)
        reasons += [f"{no_room} scores near the end of the scale"] * bool(no_room)
        return "; ".join(reasons)


class Audit(_AuditRecord):
    """The output of `localjudge audit --json`.

    `ranges` has the difference between the highest and the lowest score of each aspect, and `halo` Pearson's
    correlation over the original rows for each pair of aspects, in the rubric's order; None if one of the
    scores is constant, and for shares of labels of one aspect. `of` is the kind of scores that were compared:
    "expected" if an aspect has expected scores in every row; the others have integers. Of pairs, it is
    "preference": the judge's probability, over both orders, that the changed response is better.
    """

    format: Literal[4] = 4
    model: str
    rubric: str
    rows: int
    instructions: int
    seed: int
    of: str
    ranges: dict[str, int]
    checks: list[AuditCheck]
    aspects: list[str]
    halo: list[list[float | None]]
    notices: list[str]

    @property
    def mean_halo(self) -> float | None:
        """The mean correlation over all pairs of aspects; None if no correlation is defined."""
        defined = [one for row, values in enumerate(self.halo) for one in values[row + 1 :] if one is not None]
        return sum(defined) / len(defined) if defined else None

    @property
    def passed(self) -> bool:
        return all(check.passed is not False for check in self.checks)

    def leads(self) -> list[str]:
        """Return the paragraphs above the tables."""
        if self.of == "preference":
            return [*self.notices, *self._leads_of_pairs(), *self._lead_of_halo()]
        ranges = set(self.ranges.values())
        smallest = f"{NOISE * max(ranges):.2g}" if len(ranges) == 1 else f"{NOISE:.1%} of a scale's range"
        paragraphs = [
            *self.notices,
            f"{self.rows} rows with {self.instructions} instructions were perturbed, and {self.model} judged "
            'them. "Held" is the share of scores that changed as expected of a sound judge; "shift" is the '
            f"mean change of the scores, with its 95 % interval. A change of {smallest} or less counts as "
            "no change.",
            _CHANCE,
        ]
        if len(ranges) > 1:
            paragraphs.append(
                "The shift of a check over aspects with different scales is a share of the scale's range."
            )
        return [*paragraphs, *self._lead_of_halo()]

    def _leads_of_pairs(self) -> Iterator[str]:
        yield (
            f"One response of each of {self.rows} pairs with {self.instructions} instructions was perturbed, "
            f'and {self.model} judged the pairs in both orders. "Held" is the share of pairs that were judged '
            'as expected of a sound judge; "shift" is the mean change of the preference for the perturbed '
            f"response, with its 95 % interval. A change of {NOISE:.2g} or less counts as no change."
        )
        first = next((check.shift.value for check in self.checks if check.name == POSITION), None)
        if first is not None:
            yield (
                "In these pairs as they are, the response shown first wins with a mean probability of "
                f"{100 * (_EVEN + first):.0f} %; without a preference for a place, it is 50 %."
            )
        yield _CHANCE
        yield (
            "The shift of position and identical is this probability minus one half, and that of planted the "
            "change of this probability."
        )

    def _lead_of_halo(self) -> Iterator[str]:
        if self.mean_halo is not None:
            yield (
                f"The mean correlation between two aspects is {self.mean_halo:.2f}. Near 1, the scores "
                "of the aspects do not measure different things (halo effect)."
            )
