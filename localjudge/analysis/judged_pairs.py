"""The judged pairs of a run as columns: the verdicts of both orders and of each, and the texts' lengths."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis.scores import Floats, Integers
from localjudge.errors import UsageError
from localjudge.pair_outcome import Odds, PairOutcome
from localjudge.records import Judgement
from localjudge.rows.inputs import find_inputs
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.reader import read_notices, read_pairs
from localjudge.runs.reread_texts import rows_again
from localjudge.runs.run_manifest import RunManifest, read_manifest

RESULTS: Mapping[str, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
"""The number of each result of a pair: 1 if the input's first response is better, 1/2 for a tie."""


@dataclass(frozen=True, slots=True)
class PairVerdicts:
    """The judge's verdicts on n pairs in one aspect.

    Attributes:
        preference: the probability that the first response is better, a tie counting half: of both orders
            averaged, and of each order, [n, 1 + orders].
        result: the most probable result by the same columns, a number of `RESULTS`.
        agree: 1 if both orders name the same winner, 0 if not, [n]; NaN with one order.
    """

    preference: Floats
    result: Floats
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
        places: the pairs with certain texts, by their digest, with the first response first.
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
    places: Mapping[bytes, Sequence[int]]
    failed: int
    notices: tuple[str, ...]

    @property
    def orders(self) -> int:
        """The number of orders in which each pair was judged."""
        return self.manifest.orders


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
    found = list(read_pairs(folder))
    pairs = [pair for pair in found if pair.error is None]
    if not pairs:
        raise UsageError(f"{folder}: no pair was judged")
    numbers: dict[str | None, int] = {}
    lengths, places = _texts(pairs, manifest, inputs)
    return JudgedPairs(
        folder=folder,
        manifest=manifest,
        ids=[pair.id for pair in pairs],
        systems=[pair.systems for pair in pairs],
        group=np.array([numbers.setdefault(pair.orders[0].group, len(numbers)) for pair in pairs], np.int32),
        columns=[pair.orders[0].columns for pair in pairs],
        aspects={name: _verdicts(pairs, name, aspect) for name, aspect in manifest.rubric.aspects.items()},
        lengths=lengths,
        places=places,
        failed=len(found) - len(pairs),
        notices=read_notices(folder),
    )


def texts_digest(instruction: str, first: str, second: str) -> bytes:
    """Return the digest of the texts of a pair, 16 bytes."""
    return hashlib.sha256(repr((instruction, first, second)).encode(errors="replace")).digest()[:16]


def _verdicts(pairs: Sequence[PairOutcome], name: str, aspect: Aspect) -> PairVerdicts:
    preference, result = [], []
    for pair in pairs:
        orders = [Odds.of(each, name, aspect) for each in pair.orders if isinstance(each, Judgement)]
        joined = pair.preferences[name]
        preference.append([joined.value, *(each.preference for each in orders)])
        result.append([RESULTS[joined.winner], *(RESULTS[each.winner] for each in orders)])
    agree = [pair.preferences[name].agree for pair in pairs]
    return PairVerdicts(
        np.array(preference),
        np.array(result),
        np.array([np.nan if each is None else float(each) for each in agree]),
    )


def _texts(
    pairs: Sequence[PairOutcome], manifest: RunManifest, inputs: Sequence[str]
) -> tuple[Floats, dict[bytes, list[int]]]:
    """Return the lengths of the pairs' responses, and the pairs by the digests of their texts."""
    lengths = np.full((len(pairs), 2), np.nan)
    places: dict[bytes, list[int]] = defaultdict(list)
    wanted: dict[str | None, list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        wanted[pair.orders[0].digest].append(place)
    for row in rows_again(manifest, inputs, problems=[]):
        for place in wanted.pop(row.digest.hex(), ()):
            first, second = row.texts[::-1] if pairs[place].orders[0].swapped else row.texts
            lengths[place] = len(first), len(second)
            places[texts_digest(row.instruction, first, second)].append(place)
    return lengths, dict(places)
