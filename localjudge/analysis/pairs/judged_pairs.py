"""The judged pairs of a run as columns: the verdicts of both orders and of each, and the texts' lengths."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis.matching.rows import Identity
from localjudge.analysis.matching.scores import Floats, Integers
from localjudge.errors import UsageError
from localjudge.records import Judgement, Row
from localjudge.records.pair_outcome import Odds, PairOutcome
from localjudge.rows.inputs import find_inputs
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.reader import read_notices, read_pairs
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import RunManifest, read_manifest

RESULTS: Mapping[str, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
"""The number of each result of a pair: 1 if the input's first response is better, 1/2 for a tie."""


@dataclass(frozen=True, slots=True)
class PairVerdicts:
    """The judge's verdicts on n pairs in one aspect.

    Attributes:
        preference: the probability that the first response is better, a tie counting half: of both orders
            averaged, and of each order, [n, 1 + orders].
        result: the verdict by the same columns, a number of `RESULTS`. That of both orders is the pair's, or
            `averaged` if the aspect has no label for a tie.
        averaged: the most probable result of both orders averaged, a number of `RESULTS`, [n].
        agree: 1 if both orders name the same response, 0 if they name different ones, [n]; else NaN.
    """

    preference: Floats
    result: Floats
    averaged: Floats
    agree: Floats


@dataclass(frozen=True, slots=True)
class JudgedPairs:
    """The n judged pairs of a run. No value is NaN, unless it is said here.

    Attributes:
        folder: the run directory.
        manifest: its manifest.
        ids: the id of each pair.
        systems: the systems of its first and its second response.
        group: the number of its instruction, from 0, [n].
        columns: the other columns of its row.
        aspects: the verdicts in each aspect.
        lengths: the characters of both responses, [n, 2]; NaN if its texts were not found.
        shown: for each pair, the digest of the row that has one of its orders, and whether that order is the
            reverse of the input's.
        identities: what identifies each pair.
        failed: number of pairs that could not be judged.
        notices: the notices of the run.
    """

    folder: Path
    manifest: RunManifest
    ids: Sequence[str]
    systems: Sequence[tuple[str | None, str | None]]
    group: Integers
    columns: Sequence[Mapping[str, Any]]
    aspects: Mapping[str, PairVerdicts]
    lengths: Floats
    shown: Sequence[tuple[str | None, bool]]
    identities: Sequence[Identity]
    failed: int
    notices: tuple[str, ...]

    @property
    def orders(self) -> int:
        """The number of orders in which each pair was judged."""
        return self.manifest.orders

    def rows_again(self, inputs: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
        """Yield the number of each pair whose texts are found, and its row in the input's order.

        Args:
            inputs: as for `read_judged_pairs`.
        """
        for place, row in rows_found(self.manifest, [digest for digest, _ in self.shown], inputs):
            yield place, replace(row, responses=row.responses[:: -1 if self.shown[place][1] else 1])


def read_judged_pairs(folder: Path, inputs: Sequence[str] = ()) -> JudgedPairs:
    """Return the judged pairs of a run.

    Args:
        folder: a run directory.
        inputs: the files to read texts from; if there are none, the files that the run names and that still
            exist.

    Raises:
        UsageError: the run compares no responses, no pair was judged, or a file of `inputs` cannot be read.
    """
    find_inputs(inputs)
    manifest = read_manifest(folder)
    reading = _Reading(manifest.rubric.aspects)
    for pair in read_pairs(folder):
        reading.add(pair)
    if not reading.ids:
        raise UsageError(f"{folder}: no pair was judged")
    found = JudgedPairs(
        folder=folder,
        manifest=manifest,
        ids=reading.ids,
        systems=reading.systems,
        group=np.array(reading.groups, dtype=np.int32),
        columns=reading.columns,
        aspects=reading.verdicts(manifest.orders),
        lengths=np.full((len(reading.ids), 2), np.nan),
        shown=reading.shown,
        identities=reading.identities,
        failed=reading.failed,
        notices=read_notices(folder),
    )
    for place, row in found.rows_again(inputs):
        found.lengths[place] = [len(text) for text in row.texts]
    return found


class _Reading:
    """Collects pairs as columns."""

    def __init__(self, aspects: Mapping[str, Aspect]) -> None:
        self._aspects = aspects
        self._numbers: dict[str | None, int] = {}
        self.shown: list[tuple[str | None, bool]] = []
        self.identities: list[Identity] = []
        self._preference = {name: array("d") for name in aspects}
        self._result = {name: array("d") for name in aspects}
        self._averaged = {name: array("d") for name in aspects}
        self._agree = {name: array("d") for name in aspects}
        self.ids: list[str] = []
        self.systems: list[tuple[str | None, str | None]] = []
        self.groups = array("i")
        self.columns: list[Mapping[str, Any]] = []
        self.failed = 0

    def add(self, pair: PairOutcome) -> None:
        if pair.error is not None:
            self.failed += 1
            return
        shown = pair.orders[0]
        self.ids.append(pair.id)
        self.systems.append(pair.systems)
        self.groups.append(self._numbers.setdefault(shown.group, len(self._numbers)))
        self.columns.append(shown.columns)
        self.shown.append((shown.digest, shown.swapped))
        self.identities.append(Identity.of(pair))
        for name, aspect in self._aspects.items():
            joined = pair.preferences[name]
            orders = [Odds.of(each, name, aspect) for each in pair.orders if isinstance(each, Judgement)]
            self._preference[name].extend([joined.value, *(each.preference for each in orders)])
            averaged = RESULTS[Odds.mean(orders).winner]
            self._averaged[name].append(averaged)
            winner = joined.winner if aspect.has_tie else None
            self._result[name].append(averaged if winner is None else RESULTS[winner])
            for order, place in zip(pair.orders, joined.places, strict=True):
                self._result[name].append((1 - place if order.swapped else 1 + place) / 2)
            self._agree[name].append(np.nan if joined.same_response is None else joined.same_response)

    def verdicts(self, orders: int) -> dict[str, PairVerdicts]:
        shape = (len(self.ids), 1 + orders)
        return {
            name: PairVerdicts(
                np.array(self._preference[name]).reshape(shape),
                np.array(self._result[name]).reshape(shape),
                np.array(self._averaged[name]),
                np.array(self._agree[name]),
            )
            for name in self._aspects
        }
