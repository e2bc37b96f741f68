"""What a trial came to: for each perturbation the share that did what a sound judge would, and the shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from rich import box
from rich.table import Table

from localjudge.audit.perturbations import ORIGINAL, PERTURBATIONS, Direction, Perturbation
from localjudge.audit.trial import RUNS, Sample, sampled_row
from localjudge.errors import UsageError
from localjudge.rubric import Scale
from localjudge.run import read_lines, read_manifest
from localjudge.trust.estimate import Estimate
from localjudge.trust.resampling import averages, studentise

Floats = NDArray[np.float64]

NOISE = 1 / 16
"""How far a score may move and still count as not moved, as a share of the scale's range: 0.25 from 1 to 5."""
FELT = 1 / 100
"""How far it must move to count as lower or higher: 0.04 from 1 to 5."""
_NEAR_THE_TOP = 1 / 4
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
    notes: list[str]

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
            f"{self.rows} rows on {self.instructions} instructions, perturbed and judged by {self.model}. "
            "Held is the share of the scores that did what a sound judge would; the shift is their mean "
            f"change, with its 95 % interval. A score that moves by {still:.2g} or less has not moved."
        ]
        if self.mean_halo is not None:
            told.append(
                f"Two aspects correlate by {self.mean_halo:.2f} on average; near 1, a judge gives one "
                "impression under several names."
            )
        return told

    def tables(self) -> Iterator[Table]:
        """For a terminal: the trials, and the halo."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        right = {"held", "shift", "rows"}
        for heading in ("trial", "a sound judge", "held", "verdict", "shift", "rows", "not tested"):
            table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
        for trial in self.trials:
            cells = (trial.held_text, trial.verdict, _shift(trial.shift), str(trial.rows), trial.not_tested)
            table.add_row(trial.name, trial.expected, *cells)
        yield table
        if len(self.aspects) > 1:
            halo = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            halo.add_column("correlation")
            for aspect in self.aspects[1:]:
                halo.add_column(aspect, justify="right")
            for row, aspect in enumerate(self.aspects[:-1]):
                known = [_number(each) for each in self.halo[row][row + 1 :]]
                halo.add_row(aspect, *[""] * row, *known)
            yield halo


def read_audit(out: Path, sample: Sample, seed: int, thresholds: Mapping[str, float]) -> Audit:
    """Read what the runs of a trial came to.

    Args:
        out: the folder that `hold` filled.
        sample: what it judged.
        seed: of the sample, and of the intervals.
        thresholds: the least share of each perturbation.

    Raises:
        UsageError: the judge could not judge a single row as it was.
    """
    manifest = read_manifest(out / RUNS[0])
    aspects, scale = list(manifest["rubric"]["aspects"]), Scale.model_validate(manifest["rubric"]["scale"])
    lines: dict[str, dict[int, Mapping[str, Any]]] = {}
    for run in RUNS:
        if (out / run).is_dir():
            for line in read_lines(out / run):
                name = line["system"] if run == RUNS[0] else run
                lines.setdefault(name, {})[sampled_row(line)] = line
    judged = [line for by_row in lines.values() for line in by_row.values() if line["status"] == "judged"]
    of = "expected" if all(line[f"{aspects[0]}_expected"] is not None for line in judged) else "integer"
    reader = _Reader(aspects, scale, of, _groups(sample), seed)
    original = reader.scores(lines[ORIGINAL])
    if not original:
        raise UsageError(f"no row of the sample could be judged: {lines[ORIGINAL][0]['error']}")
    trials = [
        reader.trial(
            each, original, lines.get(each.name, {}), sample.skipped[each.name], thresholds.get(each.name)
        )
        for each in PERTURBATIONS
    ]
    return Audit(
        model=manifest["model"]["name"],
        rubric=manifest["rubric"]["name"],
        rows=len(sample.rows),
        instructions=len(set(reader.groups.tolist())),
        seed=seed,
        of=of,
        scale=scale,
        trials=trials,
        aspects=aspects,
        halo=_correlations(np.array(list(original.values()))),
        notes=[manifest["notice"]] if manifest.get("notice") else [],
    )


class _Reader:
    """Reads trials of one judge: what they share."""

    def __init__(self, aspects: list[str], scale: Scale, of: str, groups: NDArray[np.int32], seed: int) -> None:
        self._aspects, self._scale, self._of, self._seed = aspects, scale, of, seed
        self._range = scale.highest - scale.lowest
        self.groups = groups

    def scores(self, lines: Mapping[int, Mapping[str, Any]]) -> dict[int, Floats]:
        """For each sampled row that was judged, its scores (A,)."""
        names = [f"{aspect}_expected" if self._of == "expected" else aspect for aspect in self._aspects]
        return {
            row: np.array([line[name] for name in names], dtype=np.float64)
            for row, line in sorted(lines.items())
            if line["status"] == "judged"
        }

    def trial(
        self,
        perturbation: Perturbation,
        original: Mapping[int, Floats],
        lines: Mapping[int, Mapping[str, Any]],
        skipped: Counter[str],
        threshold: float | None,
    ) -> Trial:
        perturbed = self.scores(lines)
        rows = np.array([row for row in perturbed if row in original], dtype=np.int64)
        before = np.array([original[row] for row in rows]).reshape(-1, len(self._aspects))
        after = np.array([perturbed[row] for row in rows]).reshape(-1, len(self._aspects))
        decisive = perturbation.decisive(self._aspects)
        readings = {}
        for place, aspect in enumerate(self._aspects):
            direction = perturbation.direction(aspect)
            room, held = self._tested(direction, before[:, place], after[:, place])
            readings[aspect] = AspectReading(
                direction=direction,
                tested=int(room.sum()),
                held=int((room & held).sum()),
                no_room=0 if direction == "any" else int((~room).sum()),
                shift=self._shift(before[:, [place]], after[:, [place]], rows),
            )
        places = [self._aspects.index(aspect) for aspect in decisive]
        tested = sum(readings[aspect].tested for aspect in decisive)
        return Trial(
            name=perturbation.name,
            does=perturbation.does,
            rows=len(rows),
            failed=len(lines) - len(perturbed),
            skipped=dict(skipped.most_common()),
            aspects=readings,
            decisive=decisive,
            share=sum(readings[aspect].held for aspect in decisive) / tested if tested else None,
            shift=self._shift(before[:, places], after[:, places], rows),
            threshold=threshold,
        )

    def _tested(self, direction: Direction, before: Floats, after: Floats) -> tuple[Any, Any]:
        """Where there was room to do what is expected, and where it was done; two masks of the rows."""
        low, high, shift = self._scale.lowest, self._scale.highest, after - before
        everywhere = np.ones(len(before), dtype=np.bool_)
        if direction == "lower":
            return before > low + NOISE * self._range, shift < -FELT * self._range
        if (
            direction == "higher"
        ):  # judged worse than what it was held against, it is better than that the other way
            return before <= (low + high) / 2, shift > FELT * self._range
        if direction == "not higher":
            return before < high - NOISE * self._range, shift <= NOISE * self._range
        if direction == "same":
            return everywhere, np.abs(shift) <= NOISE * self._range
        if direction == "near the top":
            return everywhere, after >= high - _NEAR_THE_TOP * self._range
        return ~everywhere, everywhere

    def _shift(self, before: Floats, after: Floats, rows: NDArray[np.int64]) -> Estimate:
        """The mean change over rows and aspects, its interval by resampling instructions."""
        if not before.size:
            return Estimate()
        change = (after - before).mean(axis=1, keepdims=True)
        of_instructions = averages(change, self.groups[rows], int(self.groups.max()) + 1)
        return studentise(of_instructions, -self._range, self._range, seed=self._seed).estimates()[0]


def _groups(sample: Sample) -> NDArray[np.int32]:
    """For each sampled row the number of its instruction and reference."""
    numbers: dict[tuple[str, str | None], int] = {}
    return np.array(
        [numbers.setdefault((row.instruction, row.reference), len(numbers)) for row in sample.rows],
        dtype=np.int32,
    )


def _correlations(scores: Floats) -> list[list[float | None]]:
    """Pearson's correlation of each two columns, (A, A); None where one of them is constant."""
    aspects = scores.shape[1]
    if len(scores) < 2:
        return [[None] * aspects for _ in range(aspects)]
    constant = [np.ptp(scores[:, place]) < 1e-9 for place in range(aspects)]
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.corrcoef(scores, rowvar=False).reshape(aspects, aspects)
    return [
        [None if constant[one] or constant[two] else round(float(table[one, two]), 4) for two in range(aspects)]
        for one in range(aspects)
    ]


def _shift(shift: Estimate) -> str:
    if shift.value is None:
        return "–"  # noqa: RUF001
    interval = "" if shift.low is None else f" ({shift.low:+.2f} to {shift.high:+.2f})"
    return f"{shift.value:+.2f}{interval}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"  # noqa: RUF001
