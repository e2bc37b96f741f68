"""Scores of runs as columns: the system, the instruction and the score of each aspect for each judged row."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.matching.rows import Identity
from localjudge.analysis.matching.system_names import UNNAMED, SystemNames
from localjudge.errors import UsageError
from localjudge.records import Failure, Outcome
from localjudge.rubrics.answer import Value
from localjudge.rubrics.mode import POINTWISE
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn, is_share
from localjudge.runs.notices import together
from localjudge.runs.reader import count_lines, read_notices, read_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.steps import Report, no_progress, with_progress

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
ScoreKind = Literal["integer", "expected"]
"""Kind of score: the judge's integer, or the mean of the scale weighted by the judge's probabilities."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of n judged rows of one or more runs, for A aspects. No value is NaN.

    `group` is the number of the row's instruction, from 0; equal instructions (with equal references) share a
    number across systems and runs. Intervals resample these groups. `expected` is None unless every row has
    expected scores of some column; the other columns, which are named in `unmeasured`, have the integers there.
    `failed` is the number of rows without scores. `notices` has the notices of the runs.
    `calibrated` is True if `expected` has calibrated scores.
    """

    columns: tuple[ScoreColumn, ...]
    folders: tuple[Path, ...]
    manifests: tuple[RunManifest, ...]
    ids: list[str]
    digests: list[str | None]  # digests of the rows' texts
    run: Integers  # [n]: the index of its run in `folders`
    systems: tuple[str, ...]
    system: Integers  # [n]: the index of its system in `systems`
    group: Integers  # [n]
    integer: Integers  # [n, A]
    expected: Floats | None  # [n, A]
    failed: int
    unmeasured: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()
    calibrated: bool = False
    identities: list[Identity] = field(default_factory=list)  # of the rows, as their runs have them

    @property
    def aspects(self) -> tuple[str, ...]:
        """The names of the columns: aspects, and labels of the aspects without an order."""
        return tuple(column.name for column in self.columns)

    @property
    def rubric(self) -> Rubric:
        """The rubric of the first run; the other runs have the same score columns."""
        return self.manifests[0].rubric

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that a column of labels can have: the aspects, and the shares of labels."""
        return tuple(dict.fromkeys([*self.rubric.aspects, *self.aspects]))

    @property
    def nominal(self) -> dict[str, tuple[Value, ...]]:
        """The labels of each aspect without an order."""
        return {column.aspect: tuple(column.numbers) for column in self.columns if is_share(column.name)}

    def shares(self, aspect: str, of: ScoreKind) -> Floats:
        """Return 1 for the label of each row and 0 for the others, or the labels' probabilities, [n, labels].

        Args:
            aspect: an aspect without an order.
            of: as for `column`.
        """
        return np.column_stack([self.column(f"{aspect}={label}", of) for label in self.nominal[aspect]])

    @property
    def groups(self) -> int:
        """Number of instructions."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def best(self) -> ScoreKind:
        """The kind of score to prefer: expected scores if all rows have them in some column, else integers."""
        return "integer" if self.expected is None else "expected"

    def column(self, aspect: str, of: ScoreKind) -> Floats:
        """Return the scores of an aspect, one per row.

        Raises:
            UsageError: expected scores are requested, but some row has none.
        """
        place = self.aspects.index(aspect)
        if of == "integer":
            return self.integer[:, place].astype(np.float64)
        if self.expected is None:
            raise UsageError(f"{self.where}: some judgements have no expected scores; use the integers")
        return self.expected[:, place]

    def ends(self, aspect: str) -> tuple[int, int]:
        """Return the lowest and the highest number of a column."""
        column = self.columns[self.aspects.index(aspect)]
        return column.lowest, column.highest

    @property
    def where(self) -> str:
        """Paths of the runs, for a message."""
        return ", ".join(map(str, self.folders))

    @property
    def uneven(self) -> str | None:
        """Note on comparisons of systems that answered different instructions; None if they did not."""
        answered = np.zeros((self.groups, len(self.systems)), dtype=np.bool_)
        answered[self.group, self.system] = True
        answered = answered[answered.any(axis=1)]
        if answered.all():
            return None
        each = answered.sum(axis=0)
        return (
            f"the systems have judgements on different instructions ({each.min()} to {each.max()} of "
            f"{len(answered)}, {int(answered.all(axis=1).sum())} in common): each mean uses the system's own "
            "instructions; the order, that of the means on the same instructions, uses the additive model of "
            "instructions and systems; wins and differences use those that both systems of a pair answered"
        )

    def take(self, rows: NDArray[Any]) -> Scores:
        """Return only these rows, given by number or mask. Instructions keep their numbers."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return replace(
            self,
            ids=[self.ids[row] for row in chosen],
            identities=[self.identities[row] for row in chosen] if self.identities else [],
            digests=[self.digests[row] for row in chosen],
            run=self.run[chosen],
            system=self.system[chosen],
            group=self.group[chosen],
            integer=self.integer[chosen],
            expected=None if self.expected is None else self.expected[chosen],
        )


def read_scores(folders: Sequence[Path], by_run: bool = True, report: Report = no_progress) -> Scores:
    """Return the scores of these runs in one `Scores`.

    Args:
        folders: run directories with the same aspects and scale.
        by_run: name the systems of several runs by `SystemNames`; otherwise, a name is one system in all runs.
        report: receives the number of rows that were read, and of all.

    Raises:
        UsageError: a folder is not a run, compares responses or has no judgement, or the runs' aspects or
            scales differ.
    """
    manifests = [read_manifest(folder) for folder in folders]
    refuse_pairs(folders, manifests)
    rubric = common_rubric(folders, manifests)
    names = run_names(folders)
    systems = SystemNames(names, [manifest.judge for manifest in manifests]) if by_run else None
    reading = _Reading(rubric.score_columns, systems)
    outcomes = ((run, outcome) for run, folder in enumerate(folders) for outcome in read_outcomes(folder))
    for run, outcome in with_progress(outcomes, report, sum(map(count_lines, folders))):
        reading.add(outcome, run)
    if not reading.ids:
        raise UsageError(f"{', '.join(map(str, folders))}: no row was judged")
    found = together(names, [read_notices(folder) for folder in folders])
    scores = reading.scores(folders, manifests, rubric)
    return replace(scores, notices=(*found, *scores.notices))


def common_rubric(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> Rubric:
    """Return the rubric of the first run.

    Raises:
        UsageError: another run has other aspects or another scale.
    """
    rubrics = [manifest.rubric for manifest in manifests]
    first = rubrics[0]
    for folder, rubric in zip(folders, rubrics, strict=True):
        if rubric.score_columns != first.score_columns:
            raise UsageError(
                f"{folder}: judged on {_described(rubric)}, but {folders[0]} on {_described(first)}; "
                "give runs with the same aspects and scale"
            )
    return first


def refuse_pairs(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that all runs judge one response: the lines of a pair's two orders are not scores of a system.

    Raises:
        UsageError: a run compares two responses.
    """
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.rubric.mode is not POINTWISE:
            raise UsageError(
                f"{folder}: {manifest.rubric.mode.judges}; jury and calibrate take runs that judge one "
                "(agree and rank take both)"
            )


def check_one_judge(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that all runs have one judge; otherwise differences between judges would count as well.

    Raises:
        UsageError: a run has another judge than the first.
    """
    first = manifests[0].judge
    for folder, manifest in zip(folders[1:], manifests[1:], strict=True):
        if different := [name for name, value in manifest.judge.items() if value != first[name]]:
            raise UsageError(
                f"{folder}: judged with another {' and another '.join(different)} than {folders[0]}; rank runs "
                "of one judge, or combine the judges first with localjudge jury"
            )


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return names for the runs: the shortest path endings that differ."""
    paths = [folder.resolve() for folder in folders]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise UsageError(f"{', '.join(map(str, folders))}: the same run twice")


class _Reading:
    """Collects outcomes as plain arrays."""

    def __init__(self, columns: tuple[ScoreColumn, ...], systems: SystemNames | None) -> None:
        self._columns, self._systems = columns, systems
        self.ids: list[str] = []
        self._identities: list[Identity] = []
        self._digests: list[str | None] = []
        self._runs, self._groups = array("i"), array("i")
        self._numbers: dict[str | None, int] = {}
        self._integer, self._expected = array("i"), array("d")
        self._failed = 0

    def add(self, outcome: Outcome, run: int) -> None:
        if self._systems is not None:
            self._systems.add_outcome(run, outcome)
        if isinstance(outcome, Failure):
            self._failed += 1
            return
        self.ids.append(outcome.id)
        self._digests.append(outcome.digest)
        self._runs.append(run)
        self._identities.append(Identity.from_outcome(outcome))
        self._groups.append(self._numbers.setdefault(outcome.group, len(self._numbers)))
        self._integer.extend(column.number(outcome) for column in self._columns)
        for column in self._columns:
            expected = column.expected(outcome)
            self._expected.append(np.nan if expected is None else expected)

    def scores(self, folders: Sequence[Path], manifests: Sequence[RunManifest], rubric: Rubric) -> Scores:
        shape = (len(self.ids), len(self._columns))
        names, notes = self._systems.names() if self._systems else ({}, ())
        written = [each.systems[0] for each in self._identities]
        named = [
            names.get((run, system)) or system or UNNAMED
            for run, system in zip(self._runs, written, strict=True)
        ]
        order = sorted(set(named), key=lambda name: (name == UNNAMED, name))
        place = {name: number for number, name in enumerate(order)}
        integer = np.array(self._integer, dtype=np.int32).reshape(shape)
        expected = np.array(self._expected, dtype=np.float64).reshape(shape)
        measured = np.logical_and.reduce(np.isfinite(expected), axis=0)
        return Scores(
            columns=self._columns,
            folders=tuple(folders),
            manifests=tuple(manifests),
            ids=self.ids,
            digests=self._digests,
            run=np.array(self._runs, dtype=np.int32),
            systems=tuple(order),
            system=np.array([place[name] for name in named], dtype=np.int32),
            group=np.array(self._groups, dtype=np.int32),
            integer=integer,
            expected=np.where(measured, expected, integer) if measured.any() else None,
            unmeasured=frozenset(
                column.name for column, known in zip(self._columns, measured.tolist(), strict=True) if not known
            ),
            failed=self._failed,
            notices=notes,
            identities=self._identities,
        )


def _described(rubric: Rubric) -> str:
    return ", ".join(f"{name} ({aspect})" for name, aspect in rubric.aspects.items())
