"""Compare systems on the same instructions: means with intervals, and systems that cannot be distinguished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.analysis.labels import Labels
from localjudge.analysis.length import held_equal
from localjudge.analysis.measured_texts import Measures
from localjudge.analysis.ppi import prediction_powered
from localjudge.analysis.resampling import RESAMPLES, Contributions, averages, studentise
from localjudge.analysis.scores import Floats, Integers, Of, Scores
from localjudge.errors import UsageError

OVERALL = "overall"
"""The column of the mean over the aspects."""

SURE = 0.05
"""Two systems differ if the adjusted p is below this level."""


@dataclass(frozen=True, slots=True)
class SystemRank:
    """One system; its figures go by column, the aspects and then "overall".

    `ranks` are the best and the worst rank that the paired comparisons do not rule out. `win_rate` is the share
    of instructions on which it beats another system, ties as a half, over all other systems. `length` is its
    mean in characters, `length_held` the means at the mean length of all, `human` the prediction-powered means
    of the human score.
    """

    name: str
    rows: int
    instructions: int
    length: float | None
    means: Mapping[str, Estimate]
    ranks: Mapping[str, tuple[int, int]]
    win_rate: Mapping[str, float | None]
    length_held: Mapping[str, Estimate] | None
    human: Mapping[str, Estimate] | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems on the instructions that both answered: `first` less `second`.

    `p` is adjusted for all pairs of its column. Wins, losses and ties count instructions, by the judge. With
    labels, `difference` and `p` are those of the prediction-powered means.
    """

    first: str
    second: str
    column: str
    instructions: int
    difference: Estimate
    p: float | None
    wins: int
    losses: int
    ties: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Systems from the best overall to the worst.

    `of` says which scores; of "calibrated" ones, `columns` and "overall" cover the calibrated aspects alone.
    `basis` says whose differences decide the ranks, the pairs and the groups of systems that cannot be told
    apart in the last column: the judge's, or with labels the human score's (in a column without labels, always
    the judge's). `length_explains` is the share of a column's variance within instructions that the length
    explains.
    """

    columns: tuple[str, ...]
    of: str
    basis: str
    systems: tuple[SystemRank, ...]
    pairs: tuple[Pair, ...]
    groups: Mapping[str, tuple[tuple[str, ...], ...]]
    length_explains: Mapping[str, float | None]
    notes: tuple[str, ...]
    notices: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rank(
    scores: Scores,
    measures: Measures | None = None,
    labels: Labels | None = None,
    of: Of | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ranking:
    """Compare the systems of a judge's runs.

    Args:
        scores: of all systems.
        measures: of their rows, for the part that length plays.
        labels: of some rows, picked at random, for prediction-powered means.
        of: which scores; the expected ones where there are such.
        resamples: for the intervals.
        seed: of the resamples.

    Raises:
        UsageError: expected scores are asked for and not every row has one; or the runs are of several judges.
    """
    _one_judge(scores)
    of = of or scores.best
    table = np.column_stack([scores.column(aspect, of) for aspect in scores.aspects])
    columns = scores.aspects if len(scores.aspects) == 1 else (*scores.aspects, OVERALL)
    values = table if len(scores.aspects) == 1 else np.column_stack([table, table.mean(axis=1)])
    human = _labelled(labels, scores, columns) if labels else None
    found = [
        _Column(scores, name, values[:, place], measures, human.get(name) if human else None, resamples, seed)
        for place, name in enumerate(columns)
    ]
    last = found[-1]
    order = sorted(
        range(len(scores.systems)),
        key=lambda s: (-np.nan_to_num(last.deciding.value[s], nan=-np.inf), scores.systems[s]),
    )
    lengths = _mean_lengths(scores, measures)
    systems = tuple(
        SystemRank(
            name=scores.systems[s],
            rows=int((scores.system == s).sum()),
            instructions=len(np.unique(scores.group[scores.system == s])),
            length=lengths[s],
            means={column.name: column.means[s] for column in found},
            ranks={column.name: column.ranks[s] for column in found},
            win_rate={column.name: column.win_rates[s] for column in found},
            length_held=None if measures is None else {column.name: column.length_held[s] for column in found},
            human=None if human is None else {column.name: column.human[s] for column in found},
        )
        for s in order
    )
    notes = list(labels.notes) if labels else []
    if scores.failed:
        notes.append(f"{scores.failed} failed rows are left out")
    if scores.uneven:
        notes.append(scores.uneven)
    if measures is None:
        notes.append(
            "the inputs are not where they were, so nothing is said about length (--inputs names them)"
        )
    elif not measures.known.all():
        notes.append(f"length is known of {int(measures.known.sum())} of {len(measures.known)} rows")
    if human is not None:
        notes.append(
            "human: prediction-powered means; they hold if the labelled rows are a random sample of all rows"
        )
        if lacking := [name for name in columns if not human.get(name)]:
            notes.append(f"no labels of {', '.join(lacking)}: there the judge's scores decide")
    return Ranking(
        columns=columns,
        of="calibrated" if scores.calibrated and of == "expected" else of,
        basis="human" if human and human.get(columns[-1]) else "judge",
        systems=systems,
        pairs=tuple(pair for column in found for pair in column.pairs),
        groups={column.name: column.groups(order) for column in found},
        length_explains={column.name: column.length_explains for column in found},
        notes=tuple(notes),
        notices=scores.notices,
    )


class _Column:
    """One aspect, or all together, of all systems."""

    def __init__(
        self,
        scores: Scores,
        name: str,
        values: Floats,
        measures: Measures | None,
        human: tuple[Integers, Floats] | None,
        resamples: int,
        seed: int,
    ) -> None:
        self.name, self._scores = name, scores
        count = len(scores.systems)
        ends = (scores.lowest, scores.highest)
        judged = _means(scores, values)
        self.means = studentise(judged, *ends, resamples=resamples, seed=seed).estimates()
        self.deciding = judged
        self.human = [UNDEFINED] * count
        if human is not None:
            self.deciding = _human_means(scores, values, *human)
            self.human = studentise(self.deciding, *ends, resamples=resamples, seed=seed).estimates()
        self.length_held, self.length_explains = held_equal(scores, values, measures, resamples, seed)
        first, second = np.array(list(combinations(range(count), 2)), dtype=np.int32).reshape(-1, 2).T
        cells = _by_instruction(scores, values)
        reach = scores.highest - scores.lowest
        paired = _paired(cells, first, second) if human is None else self.deciding.contrast(first, second)
        tested = studentise(paired, -reach, reach, symmetric=True, resamples=resamples, seed=seed)
        p = tested.adjusted()
        self.pairs: list[Pair] = []
        self._told_apart = np.zeros((count, count), dtype=np.bool_)
        wins = np.zeros((count, 2))
        better = np.zeros((count, count), dtype=np.bool_)
        for place, (a, b, difference) in enumerate(zip(first, second, tested.estimates(), strict=True)):
            between = cells[:, a] - cells[:, b]
            between = between[np.isfinite(between)]
            won, lost = int((between > 0).sum()), int((between < 0).sum())
            tied = len(between) - won - lost
            wins[a] += won + tied / 2, len(between)
            wins[b] += lost + tied / 2, len(between)
            sure = p[place] < SURE
            self._told_apart[a, b] = self._told_apart[b, a] = sure
            better[a, b], better[b, a] = sure and paired.value[place] > 0, sure and paired.value[place] < 0
            self.pairs.append(
                Pair(
                    first=scores.systems[a],
                    second=scores.systems[b],
                    column=name,
                    instructions=len(between),
                    difference=difference,
                    p=float(p[place]) if np.isfinite(p[place]) else None,
                    wins=won,
                    losses=lost,
                    ties=tied,
                )
            )
        self.win_rates = [float(won / of) if of else None for won, of in wins]
        self.ranks = [
            (1 + int(better[:, system].sum()), count - int(better[system].sum())) for system in range(count)
        ]

    def groups(self, order: Sequence[int]) -> tuple[tuple[str, ...], ...]:
        """Return the largest sets of systems that cannot be distinguished, best first."""
        place = {system: number for number, system in enumerate(order)}
        sets = [sorted(members, key=place.__getitem__) for members in _cliques(~self._told_apart)]
        sets.sort(key=lambda members: [place[member] for member in members])
        return tuple(tuple(self._scores.systems[member] for member in members) for members in sets)


def _means(scores: Scores, values: Floats) -> Contributions:
    """Return each system's mean."""
    each = []
    for system in range(len(scores.systems)):
        rows = scores.system == system
        each.append(averages(values[rows, None], scores.group[rows], scores.groups))
    return _together(each)


def _human_means(scores: Scores, values: Floats, labelled: Integers, labels: Floats) -> Contributions:
    """Return each system's prediction-powered mean."""
    label = np.full(len(values), np.nan)
    label[labelled] = labels
    each = []
    for system in range(len(scores.systems)):
        rows = scores.system == system
        known = np.isfinite(label[rows])
        each.append(
            prediction_powered(values[rows], known, label[rows][known], scores.group[rows], scores.groups)
        )
    return _together(each)


def _together(each: list[Contributions]) -> Contributions:
    return Contributions(
        np.concatenate([one.value for one in each]),
        np.concatenate([one.shares for one in each], axis=1),
        np.concatenate([one.units for one in each]),
    )


def _by_instruction(scores: Scores, values: Floats) -> Floats:
    """Each system's mean on each instruction, [groups, systems]; NaN where it has no row."""
    systems = len(scores.systems)
    cell = scores.group.astype(np.int64) * systems + scores.system
    size = scores.groups * systems
    rows = np.bincount(cell, minlength=size)
    with np.errstate(invalid="ignore"):
        return (np.bincount(cell, values, minlength=size) / rows).reshape(scores.groups, systems)


def _paired(cells: Floats, first: Integers, second: Integers) -> Contributions:
    """The mean differences on the instructions that both systems of a pair answered."""
    between = cells[:, first] - cells[:, second]
    common = np.isfinite(between)
    units = common.sum(axis=0).astype(np.float64)
    between = np.where(common, between, 0)
    with np.errstate(invalid="ignore"):
        value = between.sum(axis=0) / units
    shares = np.where(common, between - value, 0) / np.maximum(units, 1)
    return Contributions(value, shares, units)


def _labelled(
    labels: Labels, scores: Scores, columns: Sequence[str]
) -> dict[str, tuple[Integers, Floats] | None]:
    """The labelled rows and their labels for each column; overall, the rows with a label of every aspect."""
    found: dict[str, tuple[Integers, Floats] | None] = {name: labels.means(name) for name in labels.aspects}
    if OVERALL in columns:
        found[OVERALL] = None
        if set(labels.aspects) >= set(scores.aspects):
            total, count = np.zeros(len(scores.ids)), np.zeros(len(scores.ids))
            for aspect in scores.aspects:
                rows, label = labels.means(aspect)
                total[rows] += label
                count[rows] += 1
            whole = np.flatnonzero(count == len(scores.aspects)).astype(np.int32)
            found[OVERALL] = whole, total[whole] / len(scores.aspects)
    return found


def _mean_lengths(scores: Scores, measures: Measures | None) -> list[float | None]:
    if measures is None:
        return [None] * len(scores.systems)
    of = [measures.length[measures.known & (scores.system == system)] for system in range(len(scores.systems))]
    return [float(lengths.mean()) if len(lengths) else None for lengths in of]


def _cliques(joined: NDArray[np.bool_]) -> list[set[int]]:
    """The maximal sets in which all are joined (Bron & Kerbosch 1973, with pivots)."""
    near = [set(np.flatnonzero(row).tolist()) - {place} for place, row in enumerate(joined)]
    found: list[set[int]] = []

    def grow(chosen: set[int], open_: set[int], shut: set[int]) -> None:
        if not open_ and not shut:
            found.append(chosen)
            return
        pivot = max(open_ | shut, key=lambda node: len(near[node] & open_))
        for node in sorted(open_ - near[pivot]):
            grow(chosen | {node}, open_ & near[node], shut & near[node])
            open_ = open_ - {node}
            shut = shut | {node}

    grow(set(), set(range(len(near))), set())
    return found


def _one_judge(scores: Scores) -> None:
    """Check that all scores are by one judge; otherwise the judges would be compared, too."""
    first = scores.manifests[0].settings
    for folder, manifest in zip(scores.folders[1:], scores.manifests[1:], strict=True):
        for name in ("model", "rubric"):
            if getattr(manifest.settings, name) != getattr(first, name):
                raise UsageError(
                    f"{folder}: judged by another {name} than {scores.folders[0]}; rank the runs of one judge, "
                    "or let localjudge jury put several judges together first"
                )
