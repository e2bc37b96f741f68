"""The preferences of judged runs: their pairs as columns, and the lengths of their texts."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.analysis.matching.scores import Floats, check_one_judge, common_rubric, run_names
from localjudge.analysis.matching.system_names import SystemNames
from localjudge.analysis.pairs.preferences import Preferences
from localjudge.errors import UsageError
from localjudge.records.pair_outcome import PairOutcome
from localjudge.rows.inputs import find_inputs
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices, read_pairs
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import RunManifest, read_manifest


@dataclass(frozen=True, slots=True)
class RunPreferences:
    """The preferences of the judged pairs of one or more runs of one judge, in each aspect.

    `failed` is the number of pairs without preferences, and `unnamed` the number of judged pairs that are left
    out because they do not name both systems. `notices` has the notices of the runs.
    """

    aspects: Mapping[str, Preferences]
    failed: int
    unnamed: int
    notices: tuple[str, ...]


def read_preferences(folders: Sequence[Path], inputs: Sequence[str] = ()) -> RunPreferences:
    """Return the preferences of runs that compare two responses.

    Args:
        folders: run directories with the same aspects.
        inputs: the files to read lengths from; if there are none, the files that the runs name and that still
            exist.

    Raises:
        UsageError: a folder is not a run, or compares no responses; the runs' aspects or judges differ; no pair
            names two systems; or a file of `inputs` cannot be read.
    """
    find_inputs(inputs)
    manifests = [read_manifest(folder) for folder in folders]
    rubric = common_rubric(folders, manifests)
    check_one_judge(folders, manifests)
    systems = SystemNames(run_names(folders), [manifest.judge for manifest in manifests])
    reading = _Reading(tuple(rubric.aspects), systems)
    for number, folder in enumerate(folders):
        for pair in read_pairs(folder):
            reading.add(pair, number)
    found = together(run_names(folders), [read_notices(folder) for folder in folders])
    where = ", ".join(map(str, folders))
    if not reading.digests and not reading.unnamed:
        raise UsageError(f"{where}: no pair was judged")
    if not reading.compares_systems:
        raise UsageError(
            f"{where}: no pair names two systems, which rank compares; name their columns with --column "
            "system_a=COLUMN and --column system_b=COLUMN when you judge"
        )
    lengths = reading.length_differences(manifests, inputs)
    _, notes = systems.names()
    return RunPreferences(reading.preferences(lengths), reading.failed, reading.unnamed, (*found, *notes))


class _Reading:
    """Collects pairs as plain arrays."""

    def __init__(self, aspects: tuple[str, ...], systems: SystemNames) -> None:
        self._aspects, self._systems = aspects, systems
        self._groups, self._runs = array("i"), array("i")
        self._compared: list[tuple[str, str]] = []
        self._numbers: dict[str | None, int] = {}
        self._values = {aspect: array("d") for aspect in aspects}
        self._shown_first = {aspect: array("d") for aspect in aspects}
        self._agree = {aspect: array("d") for aspect in aspects}
        self.digests: list[tuple[str | None, bool]] = []  # the texts of one order, and whether it is swapped
        self.failed = self.unnamed = 0

    def add(self, pair: PairOutcome, run: int) -> None:
        first, second = pair.systems
        self._systems.add_pair(run, pair)
        if not pair.preferences:
            self.failed += 1
            return
        if first is None or second is None:
            self.unnamed += 1
            return
        self._compared.append((first, second))
        shown = pair.orders[0]
        self._groups.append(self._numbers.setdefault(shown.group, len(self._numbers)))
        self._runs.append(run)
        self.digests.append((shown.digest, shown.swapped))
        for aspect in self._aspects:
            found = pair.preferences[aspect]
            in_order = [np.nan, np.nan]
            for order, value in zip(pair.orders, found.shown_first, strict=True):
                in_order[order.swapped] = value
            self._values[aspect].append(found.value)
            self._shown_first[aspect].extend(in_order)
            self._agree[aspect].append(np.nan if found.same_response is None else found.same_response)

    @property
    def compares_systems(self) -> bool:
        """Whether a pair has responses of two different systems."""
        return any(one != other for one, other in self._compared)

    def length_differences(self, manifests: Sequence[RunManifest], inputs: Sequence[str]) -> Floats | None:
        """Return log1p(characters) of each pair's first response minus that of its second.

        Returns:
            The differences, [pairs]; NaN for texts that are not found, None if none is found.
        """
        found = np.full(len(self.digests), np.nan)
        runs = np.array(self._runs)
        for number, manifest in enumerate(manifests):
            places = np.flatnonzero(runs == number).tolist()
            for place, row in rows_found(manifest, [self.digests[place][0] for place in places], inputs):
                shown_first, other = (np.log1p(len(text)) for text in row.texts)
                swapped = self.digests[places[place]][1]
                found[places[place]] = other - shown_first if swapped else shown_first - other
        return found if np.isfinite(found).any() else None

    def preferences(self, length_difference: Floats | None) -> dict[str, Preferences]:
        """Return the preferences in each aspect.

        Args:
            length_difference: the result of `length_differences`.
        """
        names, _ = self._systems.names()
        named = [
            [names[run, system] for system in pair]
            for run, pair in zip(self._runs, self._compared, strict=True)
        ]
        order, places = np.unique(np.array(named), return_inverse=True)
        first, second = places.reshape(-1, 2).astype(np.int32).T
        return {
            aspect: Preferences(
                systems=tuple(order.tolist()),
                first=first,
                second=second,
                group=np.array(self._groups, dtype=np.int32),
                preference=np.array(self._values[aspect], dtype=np.float64),
                shown_first=np.array(self._shown_first[aspect], dtype=np.float64).reshape(-1, 2),
                agree=np.array(self._agree[aspect], dtype=np.float64),
                length_difference=length_difference,
            )
            for aspect in self._aspects
        }
