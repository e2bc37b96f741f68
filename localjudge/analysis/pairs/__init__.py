"""The judged pairs of runs as columns: the verdicts of both orders and of each, and the texts' lengths."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis.matching.rows import Identity
from localjudge.analysis.matching.scores import Floats, Integers, common_rubric, run_names
from localjudge.analysis.matching.system_names import SystemNames
from localjudge.errors import UsageError
from localjudge.records import Row
from localjudge.rows.inputs import find_inputs
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.runs.notices import together
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
            averaged, and of each order, [n, 3]; NaN for an order that was not judged.
        result: the verdict by the same columns, a number of `RESULTS`. That of both orders is the pair's, or
            `averaged` if the aspect has no label for a tie.
        averaged: the most probable result of both orders averaged, a number of `RESULTS`, [n].
        shown_first: the probability that the response shown first is better, in the input's order and in the
            reverse, [n, 2]; NaN for an order that was not judged.
        agree: 1 if both orders name the same response, 0 if they name different ones, [n]; else NaN.
    """

    preference: Floats
    result: Floats
    averaged: Floats
    shown_first: Floats
    agree: Floats


@dataclass(frozen=True, slots=True)
class JudgedPairs:
    """The n judged pairs of one or more runs. No value is NaN, unless it is said here.

    Attributes:
        folders: the run directories.
        manifests: their manifests.
        run: the index of each pair's run, [n].
        names: the systems of all runs.
        ids: the id of each pair.
        systems: the systems of its first and its second response, as its run calls them.
        group: the number of its instruction, from 0, [n].
        columns: the other columns of its row.
        aspects: the verdicts in each aspect.
        lengths: the characters of both responses, [n, 2]; NaN if its texts were not found.
        shown: for each pair, the digest of the row that has one of its orders, and whether that order is the
            reverse of the input's.
        identities: what identifies each pair.
        failed: number of pairs that could not be judged.
        notices: the notices of the runs.
    """

    folders: tuple[Path, ...]
    manifests: tuple[RunManifest, ...]
    run: Integers
    names: SystemNames
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
    def folder(self) -> Path:
        """The directory of the first run."""
        return self.folders[0]

    @property
    def manifest(self) -> RunManifest:
        """The manifest of the first run."""
        return self.manifests[0]

    @property
    def orders(self) -> int:
        """The number of orders in which each pair was judged."""
        return self.manifest.orders

    def rows_again(self, inputs: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
        """Yield the number of each pair whose texts are found, and its row in the input's order.

        Args:
            inputs: as for `read_judged_pairs`.
        """
        for run, manifest in enumerate(self.manifests):
            own = np.flatnonzero(self.run == run).tolist()
            for place, row in rows_found(manifest, [self.shown[each][0] for each in own], inputs):
                pair = own[place]
                yield pair, replace(row, responses=row.responses[::-1]) if self.shown[pair][1] else row


def read_judged_pairs(folders: Sequence[Path], inputs: Sequence[str] = ()) -> JudgedPairs:
    """Return the judged pairs of runs.

    Args:
        folders: run directories with the same aspects.
        inputs: the files to read texts from; if there are none, the files that the runs name and that still
            exist.

    Raises:
        UsageError: a run compares no responses, the aspects differ, no pair was judged, or a file of `inputs`
            cannot be read.
    """
    find_inputs(inputs)
    manifests = [read_manifest(folder) for folder in folders]
    aspects = common_rubric(folders, manifests).aspects
    names = SystemNames(run_names(folders), [manifest.judge for manifest in manifests])
    reading = _Reading(aspects)
    for run, folder in enumerate(folders):
        for pair in read_pairs(folder):
            names.add_pair(run, pair)
            reading.add(run, pair)
    if not reading.ids:
        raise UsageError(f"{', '.join(map(str, folders))}: no pair was judged")
    found = JudgedPairs(
        folders=tuple(folders),
        manifests=tuple(manifests),
        run=np.array(reading.runs, dtype=np.int32),
        names=names,
        ids=reading.ids,
        systems=reading.systems,
        group=np.array(reading.groups, dtype=np.int32),
        columns=reading.columns,
        aspects={name: reading.verdicts(name) for name in aspects},
        lengths=np.full((len(reading.ids), 2), np.nan),
        shown=reading.shown,
        identities=reading.identities,
        failed=reading.failed,
        notices=tuple(together(run_names(folders), [read_notices(folder) for folder in folders])),
    )
    for place, row in found.rows_again(inputs):
        found.lengths[place] = [len(text) for text in row.texts]
    return found


class _Reading:
    """Collects pairs as columns."""

    def __init__(self, aspects: Mapping[str, Aspect]) -> None:
        self._aspects = aspects
        self._numbers: dict[str | None, int] = {}
        self._values = {name: [array("d") for _ in fields(PairVerdicts)] for name in aspects}
        self.shown: list[tuple[str | None, bool]] = []
        self.identities: list[Identity] = []
        self.ids: list[str] = []
        self.systems: list[tuple[str | None, str | None]] = []
        self.runs, self.groups = array("i"), array("i")
        self.columns: list[Mapping[str, Any]] = []
        self.failed = 0

    def add(self, run: int, pair: PairOutcome) -> None:
        if pair.error is not None:
            self.failed += 1
            return
        shown = pair.orders[0]
        self.runs.append(run)
        self.ids.append(pair.id)
        self.systems.append(pair.systems)
        self.groups.append(self._numbers.setdefault(shown.group, len(self._numbers)))
        self.columns.append(shown.columns)
        self.shown.append((shown.digest, shown.swapped))
        self.identities.append(Identity.from_outcome(pair))
        reverse = [order.swapped for order in pair.orders]
        unknown = [np.nan] * (2 - len(reverse))
        for name, aspect in self._aspects.items():
            joined = pair.preferences[name]
            preference, result, averaged, shown_first, agree = self._values[name]
            preference.extend([joined.value, *(each.preference for each in joined.odds), *unknown])
            averaged.append(RESULTS[joined.mean.winner])
            winner = joined.winner if aspect.has_tie else None
            result.append(averaged[-1] if winner is None else RESULTS[winner])
            result.extend(
                (1 - place if turned else 1 + place) / 2
                for turned, place in zip(reverse, joined.places, strict=True)
            )
            result.extend(unknown)
            by_order = dict(zip(reverse, joined.shown_first, strict=True))
            shown_first.extend(by_order.get(turned, np.nan) for turned in (False, True))
            agree.append(np.nan if joined.same_response is None else joined.same_response)

    def verdicts(self, aspect: str) -> PairVerdicts:
        preference, result, averaged, shown_first, agree = map(np.array, self._values[aspect])
        return PairVerdicts(
            preference.reshape(-1, 3), result.reshape(-1, 3), averaged, shown_first.reshape(-1, 2), agree
        )
