"""The judged pairs of runs as columns: the verdicts of both orders and of each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.arrays import Floats, RowArrays
from localjudge.arrays import Integers as Integers
from localjudge.errors import UsageError
from localjudge.matching.run_rows import RunRows, common_rubric, first_seen, read_rows
from localjudge.modes.pair import PairOutcome
from localjudge.modes.pair_preference import RESULTS, WINNERS, Preference
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.reader import refuse_single
from localjudge.runs.run_manifest import RunManifest, read_manifest


@dataclass(frozen=True, slots=True)
class PairVerdicts(RowArrays):
    """The judge's verdicts on n pairs in one aspect. All values of a pair that failed are NaN.

    Attributes:
        preference: the probability that the first response is better, a tie counting half: of both orders
            averaged, and of each order, [n, 3]; NaN for an order that was not judged.
        result: the verdict by the same columns, a number of `RESULTS`. That of both orders is the pair's, or
            `averaged` if the aspect has no label for a tie.
        averaged: the most probable result of both orders averaged, a number of `RESULTS`, [n].
        shown_first: the probability that the response shown first is better, in the input's order and in the
            reverse, [n, 2]; NaN for an order that was not judged.
        same_response: 1 if both orders name the same response, 0 if they name different ones, [n]; NaN if an
            order says a tie or was not judged.
        agree: 1 if both orders say the same, a tie or a response, 0 if not, [n]; NaN for one order.
        winner: the place of the pair's verdict in `WINNERS`, [n].
    """

    preference: Floats
    result: Floats
    averaged: Floats
    shown_first: Floats
    same_response: Floats
    agree: Floats
    winner: Floats


class PairValues:
    """The values of pairs, judged or failed.

    Attributes:
        columns: the other columns of each pair's row.
    """

    def __init__(self, aspects: Mapping[str, Aspect]) -> None:
        self._aspects = aspects
        self._values = {name: array("d") for name in aspects}
        self.columns: list[Mapping[str, Any]] = []

    def add(self, pair: PairOutcome) -> None:
        self.columns.append(pair.first.columns)
        reverse = [order.swapped for order in pair.of_prompts]
        for name, aspect in self._aspects.items():
            known = pair.preferences.get(name)
            self._values[name].extend([np.nan] * 12 if known is None else _values(known, aspect, reverse))

    def verdicts(self, aspect: str) -> PairVerdicts:
        """Return the verdicts on all pairs in an aspect."""
        values = np.array(self._values[aspect]).reshape(-1, 12)
        preference, result, shown_first, others = np.split(values, [3, 6, 8], axis=1)
        averaged, same_response, agree, winner = others.T
        return PairVerdicts(preference, result, averaged, shown_first, same_response, agree, winner)


def _values(known: Preference, aspect: Aspect, reverse: Sequence[bool]) -> Iterator[float]:
    """Yield the twelve values of a pair in one aspect; `reverse` tells which orders are the reverse."""
    unknown = [np.nan] * (2 - len(reverse))
    averaged = RESULTS[known.mean.winner]
    yield from (known.value, *(each.preference for each in known.odds), *unknown)
    yield averaged if known.winner is None or not aspect.has_tie else RESULTS[known.winner]
    yield from (
        (1 - place if turned else 1 + place) / 2 for turned, place in zip(reverse, known.places, strict=True)
    )
    yield from unknown
    by_order = dict(zip(reverse, known.shown_first, strict=True))
    yield from (by_order.get(turned, np.nan) for turned in (False, True))
    yield averaged
    yield from (np.nan if each is None else float(each) for each in (known.same_response, known.agree))
    yield WINNERS.index(known.winner or "undecided")


@dataclass(frozen=True, slots=True)
class JudgedPairs(RunRows):
    """The n judged pairs of one or more runs. No value is NaN, unless it is said here.

    Attributes:
        columns: the other columns of the row of each pair.
        aspects: the verdicts in each aspect.
        failed: number of pairs that could not be judged, which are in `unscored`.
    """

    columns: Sequence[Mapping[str, Any]]
    aspects: Mapping[str, PairVerdicts]
    failed: int
    unscored: RunRows

    @property
    def systems(self) -> list[tuple[str | None, ...]]:
        """The systems of the first and the second response of each pair, as its run calls them."""
        return [each.systems for each in self.identities]

    @property
    def manifest(self) -> RunManifest:
        """The manifest of the first run."""
        return self.manifests[0]

    @property
    def orders(self) -> int:
        """The number of orders in which each pair was judged."""
        return self.manifest.orders


def read_judged_pairs(folders: Sequence[Path]) -> JudgedPairs:
    """Return the judged pairs of runs.

    Args:
        folders: run directories with the same aspects.

    Raises:
        UsageError: a run compares no responses, the aspects differ, or no pair was judged.
    """
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        refuse_single(folder, manifest.rubric)
    aspects = common_rubric(folders, manifests).aspects
    values = PairValues(aspects)
    rows = read_rows(folders, manifests, values)
    judged = rows.judged
    if not len(judged):
        raise UsageError(f"{rows.where}: no pair was judged")
    kept = rows.take(judged)
    own = {each.name: getattr(kept, each.name) for each in fields(kept)} | {"group": first_seen(kept.group)}
    return JudgedPairs(
        **own,
        columns=[values.columns[row] for row in judged.tolist()],
        aspects={name: values.verdicts(name).take(judged) for name in aspects},
        failed=len(rows) - len(judged),
        unscored=rows.without_score(judged),
    )
