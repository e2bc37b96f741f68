"""The numbers that an audit reads from its runs: of each row or pair, a score for each column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, Integers
from localjudge.modes.row_outcome import RowOutcome
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_row_outcomes
from localjudge.studies.audit.audit_run import RUNS, sampled_row
from localjudge.studies.audit.perturbations import ORIGINAL, UNPERTURBED

Bools = NDArray[np.bool_]
_DEALT = 20_000
"""Number of pairs that are drawn for the level of chance; its standard error is below 0.004."""


@dataclass(frozen=True, slots=True)
class AuditedScores:
    """The numbers of one row or pair, each [A] for A columns.

    Attributes:
        scores: the expected score if the column has one in every row, and the score otherwise; of a pair, the
            judge's preference for the response that is changed, from 0 to 1, over both orders.
        shown_first: of a pair, the probability that the response shown first is better, for each order, [2, A].
        place: of a pair, 1 if the label of an order names the response shown first, 0 for a tie, and -1 if
            it names the other one, [2, A].
    """

    scores: Floats
    shown_first: Floats = field(default_factory=lambda: np.empty((2, 0)))
    place: Integers = field(default_factory=lambda: np.empty((2, 0), dtype=np.int32))

    @classmethod
    def from_row(cls, row: RowOutcome, columns: Sequence[ScoreColumn], measured: Collection[str]) -> Self:
        """Return the scores of a row that was judged in every order.

        Args:
            row: a row.
            columns: the columns.
            measured: the names of the columns with an expected score in every row.
        """
        found = [(row.expected if column.name in measured else row.values)[column.name] for column in columns]
        known = [row.preference(column.aspect) for column in columns]
        return cls(
            np.array(found, dtype=np.float64),
            np.array([each.shown_first if each else () for each in known]).T,
            np.array([each.places if each else () for each in known], dtype=np.int32).T,
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """n changes of the scores in A columns; for pairs, `agree` says whether the orders say the same."""

    before: Floats  # [n, A]
    after: Floats  # [n, A]
    agree: Bools  # [n, A]

    def column(self, place: int) -> tuple[Floats, Floats, Bools]:
        return self.before[:, place], self.after[:, place], self.agree[:, place]


@dataclass(frozen=True, slots=True)
class AuditedRuns:
    """The numbers of the runs of an audit.

    Attributes:
        columns: the columns of the numbers, [A].
        of: the kind of scores: "expected" if some column has expected scores in every row, else "integer", or
            "preference" for pairs.
        scores: the numbers of each perturbation by the number of the sampled row, in the order of these.
        errors: why the other rows of each perturbation could not be judged.
    """

    columns: tuple[ScoreColumn, ...]
    of: str
    scores: Mapping[str, Mapping[int, AuditedScores]]
    errors: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, out: Path, rubric: Rubric) -> Self:
        """Read the runs in the folder that `run_audit` filled."""
        found = list(_outcomes(out))
        scores: dict[str, dict[int, AuditedScores]] = defaultdict(dict)
        errors: dict[str, list[str]] = defaultdict(list)
        columns, judged = rubric.row_columns, [(name, row) for name, row in found if row.error is None]
        measured = {
            column.name
            for column in columns
            if all(column.name in row.expected for _, row in judged) and judged
        }
        for name, row in found:
            if row.error is None:
                scores[name][sampled_row(row.first)] = AuditedScores.from_row(row, columns, measured)
            else:
                errors[name].append(row.error)
        of = "expected" if measured else rubric.mode.number_kind
        return cls(columns, of, {name: dict(sorted(each.items())) for name, each in scores.items()}, errors)

    def changes(self, name: str, rows: Sequence[int], of_place: bool) -> Changes:
        """Return the changes of these rows from the original to a perturbation.

        Args:
            name: the perturbation.
            rows: the numbers of rows that have both.
            of_place: the score is the mean probability that the response shown first is better.
        """
        shape = (len(rows), len(self.columns))
        original, perturbed = ([self.scores[each][row] for row in rows] for each in (ORIGINAL, name))
        before, after = (
            np.array([each.shown_first.mean(axis=0) if of_place else each.scores for each in side]).reshape(
                shape
            )
            for side in (original, perturbed)
        )
        agree = [each.place[0] == -each.place[1] for each in perturbed if each.place.size]
        return Changes(before, after, np.array(agree or np.zeros(shape), dtype=np.bool_).reshape(shape))

    def dealt_texts(self) -> Changes:
        """Return the changes between any two different texts of one row.

        A judge that ignores the text could swap a row's scores freely; permuting them gives the chance level.
        """
        texts = [each for name, each in self.scores.items() if name not in UNPERTURBED]
        sides: list[Floats] = []
        for row in self.scores[ORIGINAL]:
            scores = np.array([each[row].scores for each in texts if row in each])
            place = np.array([*permutations(range(len(scores)), 2)], dtype=np.int64).reshape(-1, 2)
            sides.append(scores[place])
        before, after = np.concatenate(sides).swapaxes(0, 1)
        return Changes(before, after, np.zeros(before.shape, dtype=np.bool_))

    def dealt_places(self, seed: int) -> Changes:
        """Return the changes between pairs whose two orders are drawn at random from all orders of all pairs.

        They give the chance level of a judge that ignores the text, and may prefer a place.
        """
        pairs = [
            pair for name, each in self.scores.items() if name not in UNPERTURBED for pair in each.values()
        ]
        first, named = (
            np.concatenate([getattr(pair, of) for pair in pairs]) for of in ("shown_first", "place")
        )
        drawn = np.random.default_rng(seed).integers(len(first), size=(2, 2, _DEALT))
        before, after = first[drawn].mean(axis=1)
        return Changes(before, after, named[drawn[1, 0]] == -named[drawn[1, 1]])


def _outcomes(out: Path) -> Iterator[tuple[str, RowOutcome]]:
    """Yield the name of the perturbation of each row or pair, and its outcome."""
    for run in RUNS:
        if not (out / run).is_dir():
            continue
        for row in read_row_outcomes(out / run):
            yield str(row.systems[0]) if run == RUNS[0] else run, row
