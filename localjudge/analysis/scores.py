"""Runs as columns: for each judged row its system, its instruction, and each aspect's score as numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localjudge.errors import UsageError
from localjudge.records import Failure, Outcome
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Of = Literal["integer", "expected"]
"""Which score: the integer that the judge gave, or the mean of the scale under its own probabilities."""

UNNAMED = "(none)"
"""System of rows without a system."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The judged rows of one run or several, n of them, on A aspects. There is no NaN in here.

    `group` numbers the rows' instructions from 0: equal instructions (and references) share a number, across
    systems and runs. It is the unit that intervals resample. `expected` is None unless every row has it.
    `failed` counts the rows without scores. `notices` are those of the runs; `calibrated` says whether
    `expected` went through a calibration.
    """

    aspects: tuple[str, ...]
    lowest: int
    highest: int
    folders: tuple[Path, ...]
    manifests: tuple[RunManifest, ...]
    ids: list[str]
    digests: list[str | None]  # of the rows' texts
    run: Integers  # [n]: the place of its run in `folders`
    systems: tuple[str, ...]
    system: Integers  # [n]: the place of its system in `systems`
    group: Integers  # [n]
    integer: Integers  # [n, A]
    expected: Floats | None  # [n, A]
    failed: int
    notices: tuple[str, ...] = ()
    calibrated: bool = False

    @property
    def groups(self) -> int:
        """Number of instructions."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def best(self) -> Of:
        """The kind of score to prefer: expected scores if all rows have them, otherwise integers."""
        return "integer" if self.expected is None else "expected"

    def column(self, aspect: str, of: Of) -> Floats:
        """Return the scores of an aspect, one per row.

        Raises:
            UsageError: expected scores are asked for and not every row has one.
        """
        place = self.aspects.index(aspect)
        if of == "integer":
            return self.integer[:, place].astype(np.float64)
        if self.expected is None:
            raise UsageError(f"{self.where}: not every judgement has expected scores; take the integers")
        return self.expected[:, place]

    @property
    def where(self) -> str:
        """The runs, for a message."""
        return ", ".join(map(str, self.folders))

    @property
    def uneven(self) -> str | None:
        """What to know of comparisons where systems have answered different instructions; else None."""
        answered = np.zeros((self.groups, len(self.systems)), dtype=np.bool_)
        answered[self.group, self.system] = True
        answered = answered[answered.any(axis=1)]
        if answered.all():
            return None
        each = answered.sum(axis=0)
        return (
            f"the systems have judgements on different instructions ({each.min()} to {each.max()} of "
            f"{len(answered)}, {int(answered.all(axis=1).sum())} in common): a mean is over a system's own; "
            "wins, and the judge's differences, are over those that both systems of a pair have"
        )

    def take(self, rows: NDArray[Any]) -> Scores:
        """Return only these rows, given by number or mask. Instructions keep their numbers."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return replace(
            self,
            ids=[self.ids[row] for row in chosen],
            digests=[self.digests[row] for row in chosen],
            run=self.run[chosen],
            system=self.system[chosen],
            group=self.group[chosen],
            integer=self.integer[chosen],
            expected=None if self.expected is None else self.expected[chosen],
        )


def read_scores(folders: Sequence[Path], by_run: bool = True) -> Scores:
    """Return the scores of these runs in one `Scores`.

    Args:
        folders: run directories with the same aspects and scale.
        by_run: of several runs, rows that name no system go by the name of their run.

    Raises:
        UsageError: a folder is no run, holds no judgement, or the runs' aspects or scales differ.
    """
    manifests = [read_manifest(folder) for folder in folders]
    rubric = common_rubric(folders, manifests)
    reading = _Reading(rubric.aspects)
    names = run_names(folders)
    for number, (folder, name) in enumerate(zip(folders, names, strict=True)):
        for outcome in read_outcomes(folder):
            reading.add(outcome, number, name if by_run and len(folders) > 1 else UNNAMED)
    if not reading.ids:
        raise UsageError(f"{', '.join(map(str, folders))}: no row was judged")
    found = together(names, [read_notices(folder) for folder in folders])
    return replace(reading.scores(folders, manifests, rubric), notices=found)


def common_rubric(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> Rubric:
    """Return the rubric of the first run.

    Raises:
        UsageError: another run's has other aspects or another scale.
    """
    rubrics = [manifest.rubric for manifest in manifests]
    first = rubrics[0]
    for folder, rubric in zip(folders, rubrics, strict=True):
        if (rubric.aspects, rubric.scale) != (first.aspects, first.scale):
            raise UsageError(
                f"{folder}: judged on {_described(rubric)}, and {folders[0]} on {_described(first)}; "
                "runs are read together where these agree"
            )
    return first


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

    def __init__(self, aspects: tuple[str, ...]) -> None:
        self._aspects = aspects
        self.ids: list[str] = []
        self._digests: list[str | None] = []
        self._runs, self._systems, self._groups = array("i"), array("i"), array("i")
        self._names: dict[str, int] = {}
        self._numbers: dict[str | None, int] = {}
        self._integer, self._expected = array("i"), array("d")
        self._all_expected = True
        self._failed = 0

    def add(self, outcome: Outcome, run: int, unnamed: str) -> None:
        if isinstance(outcome, Failure):
            self._failed += 1
            return
        self.ids.append(outcome.id)
        self._digests.append(outcome.digest)
        self._runs.append(run)
        self._systems.append(self._names.setdefault(outcome.system or unnamed, len(self._names)))
        self._groups.append(self._numbers.setdefault(outcome.group, len(self._numbers)))
        self._integer.extend(outcome.scores.values())
        self._all_expected = self._all_expected and outcome.expected is not None
        if self._all_expected and outcome.expected is not None:
            self._expected.extend(outcome.expected.values())

    def scores(self, folders: Sequence[Path], manifests: Sequence[RunManifest], rubric: Rubric) -> Scores:
        shape = (len(self.ids), len(self._aspects))
        order = sorted(self._names, key=lambda name: (name == UNNAMED, name))
        place = np.empty(len(order), dtype=np.int32)
        for number, name in enumerate(order):
            place[self._names[name]] = number
        expected = np.array(self._expected, dtype=np.float64).reshape(shape) if self._all_expected else None
        return Scores(
            aspects=self._aspects,
            lowest=rubric.scale.lowest,
            highest=rubric.scale.highest,
            folders=tuple(folders),
            manifests=tuple(manifests),
            ids=self.ids,
            digests=self._digests,
            run=np.array(self._runs, dtype=np.int32),
            systems=tuple(order),
            system=place[np.array(self._systems, dtype=np.int32)],
            group=np.array(self._groups, dtype=np.int32),
            integer=np.array(self._integer, dtype=np.int32).reshape(shape),
            expected=expected,
            failed=self._failed,
        )


def _described(rubric: Rubric) -> str:
    return f"{', '.join(rubric.aspects)} from {rubric.scale.lowest} to {rubric.scale.highest}"
