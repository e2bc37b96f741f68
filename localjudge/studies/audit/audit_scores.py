"""The scores of an audit: those of the sampled rows as they are, and under each perturbation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.matching.run_rows import RunRows, read_judged_rows
from localjudge.modes.pair_preference import ORDER_RESULTS, SHOWN_IN_ORDER, SHOWN_IN_REVERSE
from localjudge.modes.row_outcome import EXPECTED, VALUE, RowOutcome
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.run_manifest import read_manifest
from localjudge.studies.audit.audit_run import RUNS
from localjudge.studies.audit.expected_changes import ScoreChanges
from localjudge.studies.audit.perturbations import ORIGINAL, UNPERTURBED
from localjudge.studies.audit.sample_runs import sampled_row

_KIND = "sampled"
_COLUMN = "row"
"""The kind and the column of the number of the sampled row."""
_DRAWN_PAIRS = 20_000
"""Number of pairs that are drawn for the level of chance; its standard error is below 0.004."""


@dataclass(frozen=True, slots=True)
class AuditedScores:
    """The scores of S sampled rows or pairs under each perturbation, NaN for one that was not judged.

    Attributes:
        columns: the columns of the numbers, [A].
        score_kind: "expected" if some column has expected scores in every row, else "integer", or "preference"
            for pairs.
        numbers: by perturbation, the expected score if the column has one in every row, else the score, [S, A];
            of a pair, the judge's preference for the response that is changed, from 0 to 1, over both
            orders.
        shown_first: of pairs, the probability that the response shown first is better, for each order,
            [S, 2, A].
        named_places: of pairs, 1 if the label of an order names the response shown first, 0 for a tie, and -1
            if it names the other one, [S, 2, A].
        errors: why the other rows of each perturbation could not be judged.
    """

    columns: tuple[ScoreColumn, ...]
    score_kind: str
    numbers: Mapping[str, Floats]
    shown_first: Mapping[str, Floats] = field(default_factory=dict)
    named_places: Mapping[str, Floats] = field(default_factory=dict)
    errors: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, out: Path, rubric: Rubric, size: int) -> Self:
        """Read the runs of `size` sampled rows in the folder that `run_audit` filled."""
        folders = [out / name for name in RUNS if (out / name).is_dir()]
        manifests = [read_manifest(folder) for folder in folders]
        rows, numbers = read_judged_rows(folders, manifests, _numbers_and_sampled_row)
        perturbed = _PerturbedRows.of(rows, numbers.column(_KIND, _COLUMN), size)
        aspects = [column.name for column in rubric.row_columns]

        expected = numbers.table([EXPECTED], aspects)
        is_measured = np.isfinite(expected[rows.judged]).all(axis=0) & (len(rows.judged) > 0)
        score = np.where(is_measured, expected, numbers.table([VALUE], aspects))
        score_kind = "expected" if is_measured.any() else rubric.mode.number_words.kind
        if rubric.mode.pairs is None:
            return cls(rubric.row_columns, score_kind, perturbed.tables(score), errors=perturbed.errors)

        orders = (len(rows), 2, len(aspects))
        shown_first = numbers.table([SHOWN_IN_ORDER, SHOWN_IN_REVERSE], aspects).reshape(orders)
        results = numbers.table(ORDER_RESULTS, aspects).reshape(orders)
        # In the reverse order, the response shown first is the input's second.
        named_places = (2 * results - 1) * np.array([[1], [-1]])
        return cls(
            rubric.row_columns,
            score_kind,
            numbers=perturbed.tables(score),
            shown_first=perturbed.tables(shown_first),
            named_places=perturbed.tables(named_places),
            errors=perturbed.errors,
        )

    @property
    def are_of_pairs(self) -> bool:
        return bool(self.named_places)

    def judged_rows(self, name: str) -> Integers:
        """Return the rows that were judged as they are and with a perturbation."""
        if name not in self.numbers:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.isfinite(self.numbers[ORIGINAL] + self.numbers[name]).all(axis=1))

    def changes(self, name: str, rows: Integers, *, of_place: bool) -> ScoreChanges:
        """Return the changes of some rows by a perturbation.

        Args:
            name: the perturbation.
            rows: the rows, [n], which were judged as they are and with the perturbation.
            of_place: the score is the mean probability that the response shown first is better.
        """
        if not len(rows):
            return _no_changes(len(self.columns))
        if of_place:
            before = self.shown_first[ORIGINAL][rows].mean(axis=1)
            after = self.shown_first[name][rows].mean(axis=1)
        else:
            before = self.numbers[ORIGINAL][rows]
            after = self.numbers[name][rows]
        orders_agree = np.zeros(after.shape, dtype=np.bool_)
        if self.are_of_pairs:
            orders_agree = self.named_places[name][rows].sum(axis=1) == 0
        return ScoreChanges(before, after, orders_agree)

    def changes_between_texts(self) -> ScoreChanges:
        """Return the changes between any two different texts of one row.

        A judge that ignores the text could swap a row's scores freely; permuting them gives the chance level.
        """
        scores = np.stack([table for name, table in self.numbers.items() if name not in UNPERTURBED])
        scores = np.where(np.isfinite(self.numbers[ORIGINAL]), scores, np.nan)  # [texts, S, A]
        two_texts = np.array(list(permutations(range(len(scores)), 2)), dtype=np.int64).reshape(-1, 2)
        before = scores[two_texts[:, 0]].reshape(-1, len(self.columns))
        after = scores[two_texts[:, 1]].reshape(-1, len(self.columns))
        is_judged = np.isfinite(before + after).all(axis=1)
        before = before[is_judged]
        return ScoreChanges(before, after[is_judged], np.zeros(before.shape, dtype=np.bool_))

    def changes_between_drawn_orders(self, seed: int) -> ScoreChanges:
        """Return the changes between pairs whose two orders are drawn at random from all orders of all pairs.

        They give the chance level of a judge that ignores the text, and may prefer a place.
        """
        names = [name for name in self.shown_first if name not in UNPERTURBED]
        shown_first = np.concatenate([self.shown_first[name] for name in names])  # [pairs, 2, A]
        named_places = np.concatenate([self.named_places[name] for name in names])
        is_judged = np.isfinite(shown_first).all(axis=(1, 2))
        shown_first = shown_first[is_judged].reshape(-1, len(self.columns))  # [orders, A]
        named_places = named_places[is_judged].reshape(-1, len(self.columns))

        # The two orders of the pair before the change, and of the pair after it.
        drawn = np.random.default_rng(seed).integers(len(shown_first), size=(2, 2, _DRAWN_PAIRS))
        before = shown_first[drawn[0]].mean(axis=0)
        after = shown_first[drawn[1]].mean(axis=0)
        one_order, other_order = drawn[1]
        return ScoreChanges(before, after, named_places[one_order] == -named_places[other_order])


def _numbers_and_sampled_row(run: int, row: RowOutcome) -> Iterator[tuple[str, str, float]]:
    """Yield the numbers of a row, and the number of its sampled row."""
    yield from row.numbers()
    if row.error is None:  # a row that could not be read does not say which it was
        yield _KIND, _COLUMN, sampled_row(row.first)


def _no_changes(columns: int) -> ScoreChanges:
    """Return the changes of no row."""
    scores = np.zeros((0, columns))
    return ScoreChanges(scores, scores, np.zeros((0, columns), dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class _PerturbedRows:
    """The n rows of the runs, as sampled rows under perturbations.

    Attributes:
        perturbations: the perturbation of each row, [n].
        sampled_rows: the number of its sampled row, [n]; arbitrary for a row that failed.
        judged: the rows that did not fail.
        size: number of sampled rows.
        errors: by perturbation, why rows failed; each perturbation with a row is a key.
    """

    perturbations: Sequence[str]
    sampled_rows: Sequence[int]
    judged: Sequence[int]
    size: int
    errors: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, rows: RunRows, sampled_row_of: Floats, size: int) -> Self:
        """Return the rows of the runs of an audit; `sampled_row_of` is [n], NaN for a row that failed."""
        perturbations: list[str] = []
        errors: dict[str, list[str]] = {}
        for run, identity, error in zip(rows.run.tolist(), rows.identities, rows.errors, strict=True):
            name = str(identity.systems[0]) if run == 0 else rows.folders[run].name
            perturbations.append(name)
            of_perturbation = errors.setdefault(name, [])
            if error:
                of_perturbation.append(error)
        sampled_rows = np.nan_to_num(sampled_row_of).astype(int).tolist()
        return cls(perturbations, sampled_rows, rows.judged.tolist(), size, errors)

    def tables(self, values: Floats) -> dict[str, Floats]:
        """Return the values of the judged rows by perturbation, [S, …].

        Args:
            values: the values of each row of the runs, [n, …].
        """
        tables = {name: np.full((self.size, *values.shape[1:]), np.nan) for name in self.errors}
        for row in self.judged:
            table = tables[self.perturbations[row]]
            table[self.sampled_rows[row]] = values[row]
        return tables
