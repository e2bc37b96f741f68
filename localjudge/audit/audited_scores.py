"""The numbers that an audit reads from its runs: of each row or pair, a score for each column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.scores import Floats
from localjudge.audit.audit_run import RUNS, sampled_row
from localjudge.pair_outcome import PairOutcome
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_outcomes, read_pairs

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AuditedScores:
    """The numbers of one row or pair, each [A] for A columns.

    Attributes:
        scores: the expected score if the column has one in every row, and the score otherwise; of a pair, the
            judge's preference for the response that is changed, from 0 to 1, over both orders.
        shown_first: of a pair, the mean probability that the response shown first is better.
        agree: of a pair, whether both orders name the same winner.
    """

    scores: Floats
    shown_first: Floats = field(default_factory=lambda: np.empty(0))
    agree: Bools = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    @classmethod
    def of_row(cls, row: Judgement, columns: Sequence[ScoreColumn], measured: Collection[str]) -> Self:
        """Return the scores of a row.

        Args:
            row: a row.
            columns: the columns.
            measured: the names of the columns with an expected score in every row.
        """
        expected = [column.expected(row) if column.name in measured else None for column in columns]
        return cls(
            np.array(
                [
                    column.number(row) if mean is None else mean
                    for column, mean in zip(columns, expected, strict=True)
                ],
                dtype=np.float64,
            )
        )

    @classmethod
    def of_pair(cls, pair: PairOutcome, columns: Sequence[ScoreColumn]) -> Self:
        """Return the preferences of a pair that was judged in both orders."""
        preferences = [pair.preferences[column.aspect] for column in columns]
        return cls(
            np.array([each.value for each in preferences]),
            np.array([sum(each.shown_first) / len(each.shown_first) for each in preferences]),
            np.array([each.agree is True for each in preferences]),
        )


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
        found = list(_outcomes(out, rubric))
        scores: dict[str, dict[int, AuditedScores]] = defaultdict(dict)
        columns, of = rubric.score_columns, "preference"
        if rubric.compares:
            columns = tuple(
                ScoreColumn(name, name, {False: 0, True: 1}, each.weight)
                for name, each in rubric.aspects.items()
            )
            for name, pair in found:
                if isinstance(pair, PairOutcome) and pair.error is None:
                    scores[name][sampled_row(pair.orders[0])] = AuditedScores.of_pair(pair, columns)
        else:
            rows = [(name, row) for name, row in found if isinstance(row, Judgement)]
            measured = {
                column.name for column in columns if all(column.expected(row) is not None for _, row in rows)
            }
            of = "expected" if measured else "integer"
            for name, row in rows:
                scores[name][sampled_row(row)] = AuditedScores.of_row(row, columns, measured)
        errors: dict[str, list[str]] = defaultdict(list)
        for name, each in found:
            if not isinstance(each, Judgement) and each.error is not None:
                errors[name].append(each.error)
        return cls(columns, of, {name: dict(sorted(each.items())) for name, each in scores.items()}, errors)


def _outcomes(out: Path, rubric: Rubric) -> Iterator[tuple[str, Outcome | PairOutcome]]:
    """Yield the name of the perturbation of each row or pair, and its outcome."""
    for run in RUNS:
        if not (out / run).is_dir():
            continue
        if rubric.compares:
            yield from (
                (str(pair.systems[0]) if run == RUNS[0] else run, pair) for pair in read_pairs(out / run)
            )
        else:
            yield from ((str(row.system) if run == RUNS[0] else run, row) for row in read_outcomes(out / run))
