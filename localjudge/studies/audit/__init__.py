"""Results of an audit: for each perturbation, the share of scores that moved as expected, and the shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.run_rows import first_seen, read_judged_rows
from localjudge.modes.row_outcome import EXPECTED, VALUE, RowOutcome
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.log_odds import Shares
from localjudge.statistics.resampling import mean_estimate
from localjudge.studies.audit.audit_findings import NOISE, AspectReading, Audit, AuditCheck
from localjudge.studies.audit.audit_run import RUNS, Sample
from localjudge.studies.audit.perturbations import (
    ORIGINAL,
    POSITION,
    UNPERTURBED,
    Direction,
    Perturbation,
    perturbations_of,
)
from localjudge.studies.audit.sample_runs import sampled_row

SMALLEST_CHANGE = 1 / 100
"""Smallest change that counts as lower or higher, as a share of the scale's range: 0.04 from 1 to 5."""
_NEAR_THE_TOP = 1 / 4
_NO_PREFERENCE = 1 / 2
"""The preference between two responses if none is better."""
_OF_ORDERS: tuple[Direction, ...] = ("orders agree", "no place wins")
"""The expectations of one pair by itself: nothing stands before it."""
_DRAWN_PAIRS = 20_000
"""Number of pairs that are drawn for the level of chance; its standard error is below 0.004."""


def read_audit(out: Path, sample: Sample, seed: int, thresholds: Mapping[str, float]) -> Audit:
    """Return the results of an audit's runs.

    Args:
        out: the folder that `run_audit` filled.
        sample: the audited rows.
        seed: the seed of the sample and of the intervals.
        thresholds: the minimum share for each perturbation.

    Raises:
        UsageError: the judge could not judge any unperturbed row.
    """
    manifest = read_manifest(out / RUNS[0])
    scores = AuditedScores.read(out, manifest.rubric, len(sample.rows))
    if not np.isfinite(scores.numbers[ORIGINAL]).all(axis=1).any():
        raise UsageError(f"no row of the sample could be judged: {scores.errors[ORIGINAL][0]}")
    _, of_row = np.unique([row.group for row in sample.rows], return_inverse=True)
    reader = AuditReader(scores, first_seen(of_row), seed)
    return Audit(
        model=manifest.model.name,
        rubric=manifest.rubric.name,
        rows=len(sample.rows),
        instructions=int(reader.groups.max()) + 1,
        seed=seed,
        of=scores.of,
        ranges={column.name: column.highest - column.lowest for column in scores.columns},
        checks=[
            reader.check(each, sample.skipped[each.name], thresholds.get(each.name))
            for each in perturbations_of(manifest.rubric)
        ],
        aspects=[column.name for column in scores.columns],
        notices=list(read_notices(out / RUNS[0])),
    )


@dataclass(frozen=True, slots=True)
class Changes:
    """n changes of the scores in A columns; for pairs, `agree` says whether the orders say the same."""

    before: Floats  # [n, A]
    after: Floats  # [n, A]
    agree: Flags  # [n, A]

    def column(self, place: int) -> tuple[Floats, Floats, Flags]:
        return self.before[:, place], self.after[:, place], self.agree[:, place]


@dataclass(frozen=True, slots=True)
class AuditedScores:
    """The scores of S sampled rows or pairs under each perturbation, NaN for one that was not judged.

    Attributes:
        columns: the columns of the numbers, [A].
        of: the kind of scores: "expected" if some column has expected scores in every row, else "integer", or
            "preference" for pairs.
        numbers: by perturbation, the expected score if the column has one in every row, else the score, [S, A];
            of a pair, the judge's preference for the response that is changed, from 0 to 1, over both
            orders.
        shown_first: of pairs, the probability that the response shown first is better, for each order,
            [S, 2, A].
        places: of pairs, 1 if the label of an order names the response shown first, 0 for a tie, and -1 if it
            names the other one, [S, 2, A].
        errors: why the other rows of each perturbation could not be judged.
    """

    columns: tuple[ScoreColumn, ...]
    of: str
    numbers: Mapping[str, Floats]
    shown_first: Mapping[str, Floats] = field(default_factory=dict)
    places: Mapping[str, Floats] = field(default_factory=dict)
    errors: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, out: Path, rubric: Rubric, size: int) -> Self:
        """Read the runs of `size` sampled rows in the folder that `run_audit` filled."""
        folders = [out / name for name in RUNS if (out / name).is_dir()]

        def numbers_of(run: int, row: RowOutcome) -> Iterator[tuple[str, str, float]]:
            yield from row.numbers()
            if not row.error:  # a row that could not be read says of nothing which it was
                yield "sampled", "row", sampled_row(row.first)

        rows, numbers = read_judged_rows(folders, [read_manifest(folder) for folder in folders], numbers_of)
        aspects, judged = [column.name for column in rubric.row_columns], rows.judged
        is_pair, expected = rubric.mode.pairs is not None, numbers.table([EXPECTED], aspects)
        measured = np.isfinite(expected[judged]).all(axis=0) & bool(len(judged))
        values = numbers.table([VALUE], aspects)
        of = "expected" if measured.any() else rubric.mode.numbers.kind
        names = [
            str(identity.systems[0]) if run == 0 else folders[run].name
            for run, identity in zip(rows.run.tolist(), rows.identities, strict=True)
        ]
        errors: dict[str, list[str]] = {}
        for name, error in zip(names, rows.errors, strict=True):
            errors.setdefault(name, []).extend([error] * bool(error))
        number = np.nan_to_num(numbers.column("sampled", "row")).astype(int)

        def placed(table: Floats) -> dict[str, Floats]:
            by_name = {name: np.full((size, *table.shape[1:]), np.nan) for name in errors}
            for row in judged.tolist():
                by_name[names[row]][number[row]] = table[row]
            return by_name

        scores = cls(rubric.row_columns, of, placed(np.where(measured, expected, values)), errors=errors)
        if not is_pair:
            return scores
        shown_first, results = (
            numbers.table(kinds, aspects).reshape(len(rows), 2, -1)
            for kinds in (["shown first", "shown first in reverse"], ["result 1", "result 2"])
        )
        places = placed((2 * results - 1) * np.array([[1], [-1]]))
        return replace(scores, shown_first=placed(shown_first), places=places)

    def changes(self, name: str, of_place: bool) -> tuple[Integers, Changes]:
        """Return the rows that were judged as they are and with a perturbation, and their changes.

        Args:
            name: the perturbation.
            of_place: the score is the mean probability that the response shown first is better.
        """
        before, after = (self.numbers.get(side, self.numbers[ORIGINAL] * np.nan) for side in (ORIGINAL, name))
        rows = np.flatnonzero(np.isfinite(before + after).all(axis=1))
        if of_place:
            before, after = (self.shown_first[side].mean(axis=1) for side in (ORIGINAL, name))
        agree = np.zeros(after.shape, dtype=np.bool_)
        if name in self.places:
            agree = self.places[name].sum(axis=1) == 0
        return rows, Changes(before[rows], after[rows], agree[rows])

    def permuted_texts(self) -> Changes:
        """Return the changes between any two different texts of one row.

        A judge that ignores the text could swap a row's scores freely; permuting them gives the chance level.
        """
        texts = np.stack([table for name, table in self.numbers.items() if name not in UNPERTURBED])
        texts = np.where(np.isfinite(self.numbers[ORIGINAL]), texts, np.nan)
        pairs = np.array([*permutations(range(len(texts)), 2)], dtype=np.int64).reshape(-1, 2)
        before, after = (texts[side].reshape(-1, len(self.columns)) for side in pairs.T)
        kept = np.isfinite(before + after).all(axis=1)
        return Changes(before[kept], after[kept], np.zeros((kept.sum(), len(self.columns)), dtype=np.bool_))

    def drawn_places(self, seed: int) -> Changes:
        """Return the changes between pairs whose two orders are drawn at random from all orders of all pairs.

        They give the chance level of a judge that ignores the text, and may prefer a place.
        """
        first, named = (
            np.concatenate([table for name, table in side.items() if name not in UNPERTURBED])
            for side in (self.shown_first, self.places)
        )
        judged = np.isfinite(first).all(axis=(1, 2))
        first, named = (side[judged].reshape(-1, len(self.columns)) for side in (first, named))
        drawn = np.random.default_rng(seed).integers(len(first), size=(2, 2, _DRAWN_PAIRS))
        before, after = first[drawn].mean(axis=1)
        return Changes(before, after, named[drawn[1, 0]] == -named[drawn[1, 1]])


class AuditReader:
    """Reads the checks of one judge.

    Args:
        scores: the scores.
        groups: the number of the instruction of each sampled row, [S].
        seed: the seed of the intervals, and of the pairs that give the level of chance.
    """

    def __init__(self, scores: AuditedScores, groups: Integers, seed: int) -> None:
        self.scores, self.groups, self.seed = scores, groups, seed
        # The changes that give the level of chance: of scores, and of the probability of the place.
        self._texts = scores.permuted_texts()
        self._places = scores.drawn_places(seed) if scores.places else self._texts

    def check(self, perturbation: Perturbation, skipped: Counter[str], threshold: float | None) -> AuditCheck:
        """Return the result of one perturbation.

        Args:
            perturbation: the perturbation.
            skipped: why it did not apply to rows, with their numbers.
            threshold: the minimum share; None for none.
        """
        name = ORIGINAL if perturbation.name == POSITION else perturbation.name
        rows, changes = self.scores.changes(name, perturbation.of_place)
        by_chance, columns = self._places if perturbation.of_place else self._texts, self.scores.columns
        decisive, group = perturbation.decisive(columns), self.groups[rows]
        readings, outcomes, chances = {}, [], []
        for place, column in enumerate(columns):
            direction = perturbation.direction(column)
            if direction in _OF_ORDERS:
                changes.before[:, place] = _NO_PREFERENCE
            room, held = _tested(direction, column, *changes.column(place))
            readings[column.name] = AspectReading(
                direction=direction,
                tested=int(room.sum()),
                held=int((room & held).sum()),
                no_room=0 if direction == "any" else int((~room).sum()),
                shift=self._shift([place], changes, group),
            )
            if column.name in decisive:
                outcomes.append((held[room], group[room]))
                before, after, agree = by_chance.column(place)
                if direction == "loses":  # by chance, either response loses
                    _, scores, agree = changes.column(place)
                    before = after = np.concatenate([scores, 1 - scores])
                room, held = _tested(direction, column, before, after, agree)
                chances.append(held[room])
        share, by_chance_held = UNDEFINED, np.concatenate([*chances, np.zeros(0, dtype=np.bool_)])
        if any(len(held) for held, _ in outcomes):
            held, group_of_held = map(np.concatenate, zip(*outcomes, strict=True))
            (share,) = Shares.from_values(
                held.astype(np.float64), np.zeros(len(held), dtype=np.int32), 1, group_of_held
            ).estimates()
        return AuditCheck(
            name=perturbation.name,
            does=perturbation.does,
            rows=len(rows),
            failed=len(self.scores.errors.get(name, ())),
            skipped=dict(skipped.most_common()),
            aspects=readings,
            decisive=decisive,
            share=share,
            chance=float(by_chance_held.mean()) if len(by_chance_held) else None,
            shift=self._shift(
                [at for at, column in enumerate(columns) if column.name in decisive], changes, group
            ),
            threshold=threshold,
        )

    def _shift(self, places: list[int], changes: Changes, group: Integers) -> Estimate:
        """Return the mean change over rows and columns, with an interval from resampling instructions.

        It is a share of the scale if the columns have different scales.
        """
        if not len(group) or not places:
            return UNDEFINED
        columns = [self.scores.columns[place] for place in places]
        widths = np.array([column.highest - column.lowest for column in columns])
        width = widths[0] if len(set(widths.tolist())) == 1 else 1
        change = (changes.after - changes.before)[:, places] * (width / widths)
        return mean_estimate(
            change.mean(axis=1), group, lowest=-width, highest=width, symmetric=True, seed=self.seed
        )


def _tested(
    direction: Direction, column: ScoreColumn, before: Floats, after: Floats, agree: Flags | bool = False
) -> tuple[Flags, Flags]:
    """Return two masks of the rows: the score had room to move as expected, and it did.

    Whether it had room depends in the same way on the score before and after. A choice by one of them would
    count noise as a change: of scores that are low by chance, most are higher when judged again.
    """
    low, high, shift = column.lowest, column.highest, after - before
    width = high - low
    everywhere = np.ones(len(after), dtype=np.bool_)
    if direction == "lower":
        return np.maximum(before, after) > low + NOISE * width, shift < -SMALLEST_CHANGE * width
    if direction == "higher":  # a candidate that is worse than its reference must score higher after the swap
        return np.minimum(before, after) <= (low + high) / 2, shift > SMALLEST_CHANGE * width
    if direction == "not higher":
        return np.minimum(before, after) < high - NOISE * width, shift <= NOISE * width
    if direction == "loses":
        return everywhere, after < _NO_PREFERENCE - SMALLEST_CHANGE
    if direction == "orders agree":
        return everywhere, everywhere & agree
    if direction == "no place wins":
        return everywhere, (np.abs(after - _NO_PREFERENCE) <= NOISE) | agree
    if direction == "same":
        return everywhere, np.abs(shift) <= NOISE * width
    if direction == "near the top":
        return everywhere, after >= high - _NEAR_THE_TOP * width
    return ~everywhere, everywhere
