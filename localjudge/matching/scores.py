"""Scores of runs as columns, and the rows of the criteria with each tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.run_rows import RunRows
from localjudge.records.outcome_columns import OVERALL
from localjudge.rubrics.answer import Value
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn, averaged, is_share
from localjudge.runs.run_manifest import RunManifest

ScoreKind = Literal["integer", "expected"]
"""Kind of score: the judge's integer, or the mean of the scale weighted by the judge's probabilities."""


@dataclass(frozen=True, slots=True)
class Scores(RunRows):
    """The scores of the n judged rows of one or more runs, for A aspects. No score is NaN.

    Intervals resample the instructions, whose numbers in `group` are without gaps.

    Attributes:
        columns: the aspects, and the labels of the aspects without an order.
        systems: the names of the systems.
        system: the index of each row's system in `systems`, [n].
        integer: the judge's integers, [n, A].
        expected: the expected scores, [n, A]; None unless all rows have one in some column.
        failed: the number of rows that failed, which are in `unscored`.
        unscored: the rows without scores.
        without_expected: the columns in which a row has no expected score; `expected` has integers there.
        notices: the notices of the runs, and those on the names of their systems.
        calibrated: whether `expected` has calibrated scores.
        untested: the reason why the scores have no intervals; empty if they have.
        notes: remarks on rows without a score.
        by_tag: the scores of the criteria with each of the most frequent tags, and the tag of each row; None
            without tags.
        lowest: the lowest possible score of each row of a checklist, which depends on its points, [n]; None
            for other rows.
    """

    columns: tuple[ScoreColumn, ...]
    systems: tuple[str, ...]
    system: Integers
    integer: Floats
    expected: Floats | None
    failed: int
    unscored: RunRows | None = None
    without_expected: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()
    calibrated: bool = False
    untested: str = ""
    notes: tuple[str, ...] = ()
    by_tag: tuple[Scores, RowTags] | None = None
    lowest: Floats | None = None

    @property
    def aspects(self) -> tuple[str, ...]:
        """The names of the columns: aspects, and labels of the aspects without an order."""
        return tuple(column.name for column in self.columns)

    @property
    def rubric(self) -> Rubric:
        """The rubric of the first run; the other runs have the same score columns."""
        return self.manifests[0].rubric

    @property
    def nominal(self) -> dict[str, tuple[Value, ...]]:
        """The labels of each aspect without an order."""
        return {column.aspect: tuple(column.numbers) for column in self.columns if is_share(column.name)}

    @property
    def response(self) -> Integers:
        """The first row with the same texts as each row, [n]."""
        first_row: dict[str, int] = {}
        rows = []
        for row, (digest, _) in enumerate(self.shown):
            texts = digest or f"row {row}"
            rows.append(first_row.setdefault(texts, row))
        return np.array(rows)

    @property
    def by_digest(self) -> Integers:
        """The number of each row's instruction, in the order of the digests instead of the rows, [n]."""
        digests = [identity.group or identity.where for identity in self.identities]
        _, numbers = np.unique(digests, return_inverse=True)
        return numbers.astype(np.int32)

    @property
    def baselines(self) -> dict[str, Floats]:
        """What trivial judges know of each row, as far as it is known: the length, the overlap, [n]."""
        baselines = {}
        length = self.length
        if length is not None:
            baselines["length"] = length
        if np.isfinite(self.overlap).all():
            baselines["overlap"] = self.overlap
        return baselines

    @property
    def length(self) -> Floats | None:
        """The characters of each response, [n]; None if no length is known."""
        return None if np.isnan(self.lengths).all() else self.lengths[:, 0]

    def verdicts(self, aspect: str) -> Floats:
        """Return the number of each row's label in an aspect without an order, [n]."""
        shares = [self.column(f"{aspect}={label}", "integer") for label in self.nominal[aspect]]
        numbers: Floats = np.argmax(shares, axis=0).astype(np.float64)
        return numbers

    @property
    def groups(self) -> int:
        """Number of instructions."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def best(self) -> ScoreKind:
        """The kind of score to prefer: expected scores if all rows have them in some column, else integers."""
        return "integer" if self.expected is None else "expected"

    def column(self, aspect: str, kind: ScoreKind) -> Floats:
        """Return the scores of an aspect, one per row.

        Raises:
            UsageError: expected scores are requested, but some row has none.
        """
        index = self.aspects.index(aspect)
        if kind == "integer":
            return self.integer[:, index]
        if self.expected is None:
            raise UsageError(f"{self.where}: some judgements have no expected scores; use the integers")
        return self.expected[:, index]

    def ends(self, aspect: str) -> tuple[int, int]:
        """Return the lowest and the highest number of a column."""
        column = self.columns[self.aspects.index(aspect)]
        return column.lowest, column.highest

    def table(self, kind: ScoreKind) -> dict[str, tuple[Floats, tuple[int, int]]]:
        """Return the numbers and the ends of each column, and of their mean if they have one.

        Raises:
            UsageError: as for `column`.
        """
        columns = {name: (self.column(name, kind), self.ends(name)) for name in self.aspects}
        in_mean = averaged(self.columns)
        if len(in_mean) > 1:
            table = np.column_stack([values for values, _ in columns.values()])
            columns[OVERALL] = (self.overall(table), (in_mean[0].lowest, in_mean[0].highest))
        return columns

    def overall(self, table: Floats) -> Floats:
        """Return the weighted mean over the ordered aspects of each row.

        Args:
            table: the columns, [n, A].
        """
        weights = np.array([column.weight for column in self.columns])
        mean: Floats = table @ weights / weights.sum()
        return mean

    @property
    def uneven(self) -> str | None:
        """Note on comparisons of systems that answered different instructions; None if they did not."""
        answered = np.zeros((self.groups, len(self.systems)), dtype=np.bool_)
        answered[self.group, self.system] = True
        answered = answered[answered.any(axis=1)]
        if answered.all():
            return None
        counts = answered.sum(axis=0)
        in_common = int(answered.all(axis=1).sum())
        return (
            f"the systems have judgements on different instructions ({counts.min()} to {counts.max()} of "
            f"{len(answered):,}, {in_common:,} in common): each mean uses the system's "
            "instructions; the order, that of the means on the same instructions, uses the additive model of "
            "instructions and systems; wins and differences use those that both systems of a pair answered"
        )


def check_one_judge(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that all runs have one judge; otherwise differences between judges would count as well.

    Raises:
        UsageError: a run has another judge than the first.
    """
    first = manifests[0].judge
    for folder, manifest in zip(folders[1:], manifests[1:], strict=True):
        different = [name for name, value in manifest.judge.items() if value != first[name]]
        if different:
            raise UsageError(
                f"{folder}: judged with another {' and another '.join(different)} than {folders[0]}; give runs "
                "of one judge, or combine the judges first with localjudge jury"
            )


def check_parts(judged: RunRows) -> None:
    """Check that several runs are parts of one, such as shards: a row in two of them would count twice.

    Raises:
        UsageError: a run has another judge than the first, or a row is in several runs.
    """
    check_one_judge(judged.folders, judged.manifests)
    run_of = dict[object, int]()
    for run, row in zip(judged.run.tolist(), judged.identities, strict=True):
        key = (row.id, row.systems, row.content)
        first = run_of.setdefault(key, run)
        if first != run:
            raise UsageError(
                f"row {row.id} is in {judged.folders[first]} and in {judged.folders[run]}; give runs of "
                "different rows, or combine the runs first with localjudge jury"
            )


@dataclass(frozen=True, slots=True)
class RowTags:
    """The tags of n judged rows.

    Attributes:
        column: the heading of the tags in a table.
        names: the names of the tags.
        of_row: the index of each row's tag in `names`, [n].
    """

    column: str
    names: tuple[str, ...]
    of_row: Integers
