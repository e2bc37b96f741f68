"""The preferences of judged runs: their pairs as columns, and the lengths of their texts."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.analysis.preferences import Preferences
from localjudge.analysis.scores import Floats, check_one_judge, common_rubric, run_names
from localjudge.errors import UsageError
from localjudge.pair_outcome import PairOutcome
from localjudge.rows.inputs import find_inputs
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices, read_pairs
from localjudge.runs.reread_texts import rows_again
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
    reading = _Reading(tuple(rubric.aspects))
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
    return RunPreferences(reading.preferences(lengths), reading.failed, reading.unnamed, found)


class _Reading:
    """Collects pairs as plain arrays."""

    def __init__(self, aspects: tuple[str, ...]) -> None:
        self._aspects = aspects
        self._first, self._second, self._groups, self._runs = array("i"), array("i"), array("i"), array("i")
        self._names: dict[str, int] = {}
        self._numbers: dict[str | None, int] = {}
        self._values = {aspect: array("d") for aspect in aspects}
        self._shown_first = {aspect: array("d") for aspect in aspects}
        self._agree = {aspect: array("d") for aspect in aspects}
        self.digests: list[tuple[str | None, bool]] = []  # the texts of one order, and whether it is swapped
        self.failed = self.unnamed = 0

    def add(self, pair: PairOutcome, run: int) -> None:
        first, second = pair.systems
        if not pair.preferences:
            self.failed += 1
            return
        if first is None or second is None:
            self.unnamed += 1
            return
        self._first.append(self._names.setdefault(first, len(self._names)))
        self._second.append(self._names.setdefault(second, len(self._names)))
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
        return any(one != other for one, other in zip(self._first, self._second, strict=True))

    def length_differences(self, manifests: Sequence[RunManifest], inputs: Sequence[str]) -> Floats | None:
        """Return log1p(characters) of each pair's first response minus that of its second.

        Returns:
            The differences, [pairs]; NaN for texts that are not found, None if none is found.
        """
        found = np.full(len(self.digests), np.nan)
        runs = np.array(self._runs)
        for number, manifest in enumerate(manifests):
            places: dict[str | None, list[tuple[int, bool]]] = defaultdict(list)
            for place in np.flatnonzero(runs == number).tolist():
                digest, swapped = self.digests[place]
                places[digest].append((place, swapped))
            for row in rows_again(manifest, inputs, problems=[]):
                for place, swapped in places.pop(row.digest.hex(), ()):
                    shown_first, other = (np.log1p(len(text)) for text in row.texts)
                    found[place] = other - shown_first if swapped else shown_first - other
        return found if np.isfinite(found).any() else None

    def preferences(self, length_difference: Floats | None) -> dict[str, Preferences]:
        """Return the preferences in each aspect.

        Args:
            length_difference: the result of `length_differences`.
        """
        order = sorted(self._names)
        place = np.empty(len(order), dtype=np.int32)
        for number, name in enumerate(order):
            place[self._names[name]] = number
        return {
            aspect: Preferences(
                systems=tuple(order),
                first=place[np.array(self._first, dtype=np.int32)],
                second=place[np.array(self._second, dtype=np.int32)],
                group=np.array(self._groups, dtype=np.int32),
                preference=np.array(self._values[aspect], dtype=np.float64),
                shown_first=np.array(self._shown_first[aspect], dtype=np.float64).reshape(-1, 2),
                agree=np.array(self._agree[aspect], dtype=np.float64),
                length_difference=length_difference,
            )
            for aspect in self._aspects
        }
