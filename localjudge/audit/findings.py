"""What an audit found: each trial with its share and shift, as JSON, as words, and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict
from rich import box
from rich.console import RenderableType
from rich.table import Table

from localjudge.analysis.interval import Estimate
from localjudge.audit.perturbations import Direction
from localjudge.rubrics.rubric import Scale
from localjudge.runs.notices import headed, kinds

NOISE = 1 / 16
"""How far a score may move and still count as not moved, as a share of the scale's range: 0.25 from 1 to 5."""
SOUND, DOUBTFUL = 0.8, 0.5
"""The shares from which a trial without a threshold is called so."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AspectReading(_Record):
    """One aspect under one perturbation.

    Attributes:
        direction: what a sound judge would do.
        tested: rows where the score had room to do it.
        held: how many of them did.
        no_room: rows whose score was too near the end of the scale to tell.
        shift: the score less that of the row as it was, over all rows.
    """

    direction: Direction
    tested: int
    held: int
    no_room: int
    shift: Estimate


class Trial(_Record):
    """One perturbation. `share` and `shift` are over the `decisive` aspects, by which the trial is decided;
    `skipped` says why it could not be made of how many rows, and `failed` counts rows that could then not be
    judged."""

    name: str
    does: str
    rows: int
    failed: int
    skipped: dict[str, int]
    aspects: dict[str, AspectReading]
    decisive: list[str]
    share: float | None
    shift: Estimate
    threshold: float | None

    @property
    def expected(self) -> str:
        """What a sound judge would do, in words."""
        directions: dict[str, list[str]] = {}
        for aspect in self.decisive:
            directions.setdefault(self.aspects[aspect].direction, []).append(aspect)
        if len(self.decisive) == len(self.aspects) and len(directions) == 1:
            return next(iter(directions))
        return "; ".join(f"{', '.join(aspects)} {direction}" for direction, aspects in directions.items())

    @property
    def passed(self) -> bool | None:
        """Whether the share reaches the threshold; None where none is set. What is undefined reaches none."""
        if self.threshold is None:
            return None
        return self.share is not None and self.share >= self.threshold

    @property
    def verdict(self) -> str:
        """In a word; by convention, where no threshold is set."""
        if self.share is None:
            return "untested"
        if self.threshold is not None:
            return "passed" if self.passed else "below"
        return "sound" if self.share >= SOUND else "doubtful" if self.share >= DOUBTFUL else "unsound"

    @property
    def held_text(self) -> str:
        return "–" if self.share is None else f"{self.share:.0%}"  # noqa: RUF001

    @property
    def not_tested(self) -> str:
        """What could not be made or told, and of how many."""
        no_room = sum(self.aspects[aspect].no_room for aspect in self.decisive)
        reasons = [f"{count} {reason}" for reason, count in self.skipped.items()]
        reasons += [f"{self.failed} failed"] * bool(self.failed)
        reasons += [f"{no_room} scores without room"] * bool(no_room)
        return "; ".join(reasons)


class Audit(_Record):
    """What `localjudge audit --json` prints.

    `halo` has for each two aspects, in the rubric's order, Pearson's correlation over the rows as they were;
    None where a score never varies. `of` says which scores were compared.
    """

    format: int = 1
    model: str
    rubric: str
    rows: int
    instructions: int
    seed: int
    of: str
    scale: Scale
    trials: list[Trial]
    aspects: list[str]
    halo: list[list[float | None]]
    notices: list[str]

    @property
    def mean_halo(self) -> float | None:
        """The mean correlation of two aspects."""
        above = [each for row, values in enumerate(self.halo) for each in values[row + 1 :] if each is not None]
        return sum(above) / len(above) if above else None

    @property
    def passed(self) -> bool:
        return all(trial.passed is not False for trial in self.trials)

    def leads(self) -> list[str]:
        """What the tables need said before them."""
        still = NOISE * (self.scale.highest - self.scale.lowest)
        told = [
            *self.notices,
            f"{self.rows} rows on {self.instructions} instructions, perturbed and judged by {self.model}. "
            "Held is the share of the scores that did what a sound judge would; the shift is their mean "
            f"change, with its 95 % interval. A score that moves by {still:.2g} or less has not moved.",
        ]
        if self.mean_halo is not None:
            told.append(
                f"Two aspects correlate by {self.mean_halo:.2f} on average; near 1, a judge gives one "
                "impression under several names."
            )
        return told

    def tables(self) -> Iterator[RenderableType]:
        """For a terminal: the trials, and the halo."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        right = {"held", "shift", "rows"}
        for heading in ("trial", "a sound judge", "held", "verdict", "shift", "rows", "not tested"):
            table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
        for trial in self.trials:
            cells = (trial.held_text, trial.verdict, _shift(trial.shift), str(trial.rows), trial.not_tested)
            table.add_row(trial.name, trial.expected, *cells)
        yield headed(self.notices, table)
        if len(self.aspects) > 1:
            halo = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            halo.add_column("correlation")
            for aspect in self.aspects[1:]:
                halo.add_column(aspect, justify="right")
            for row, aspect in enumerate(self.aspects[:-1]):
                known = [_number(each) for each in self.halo[row][row + 1 :]]
                halo.add_row(aspect, *[""] * row, *known)
            yield headed([kinds(self.notices)] if self.notices else (), halo)


def _shift(shift: Estimate) -> str:
    if shift.value is None:
        return "–"  # noqa: RUF001
    interval = "" if shift.low is None else f" ({shift.low:+.2f} to {shift.high:+.2f})"
    return f"{shift.value:+.2f}{interval}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"  # noqa: RUF001
