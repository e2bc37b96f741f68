"""The rows of two runs side by side: what differs between the runs, and which row belongs to which.

Either the responses differ, as last week's and this week's, and the same judge has judged both; or the judge
differs, and has judged the same responses. If both differ, nothing tells which of them changed a score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from localjudge.analysis import Flags, Floats, Integers
from localjudge.analysis.matching.identity import Identity
from localjudge.analysis.matching.rows import align_runs, with_digests
from localjudge.analysis.matching.run_rows import run_names
from localjudge.analysis.matching.scores import ScoreKind, Scores
from localjudge.analysis.pairs import RESULTS, JudgedPairs
from localjudge.analysis.statistics.resampling import cell_means
from localjudge.errors import UsageError
from localjudge.rubrics.answer import shown
from localjudge.runs.run_manifest import RunManifest
from localjudge.system.quantities import counted

Differs = Literal["nothing", "responses", "judge"]


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """The n judged rows of both runs, in numbers.

    Attributes:
        source: the scores or the pairs of both runs, OLD first.
        identities: what identifies each row.
        digests: the digest of the texts of its first prompt.
        columns: the numbers [n] and the ends of each column: the score columns and their mean, or the
            preference for a response.
        written: the number of the judge's verdict in each aspect, [n]: that of its value or, without an order,
            the place of its label; of a pair, as in `localjudge.analysis.pairs.RESULTS`.
        texts: the text of each such number.
        ordered: the aspects with an order.
        turned: whether a pair has its responses in the reverse of its input's order, [n].
        note: what the numbers are, in words.
    """

    source: Scores | JudgedPairs
    identities: Sequence[Identity]
    digests: Sequence[str | None]
    columns: Mapping[str, tuple[Floats, tuple[int, int]]]
    written: Mapping[str, Floats]
    texts: Mapping[str, Mapping[float, str]]
    ordered: frozenset[str]
    turned: Flags
    note: str

    @classmethod
    def from_scores(cls, scores: Scores, of: ScoreKind | None = None) -> JudgedRows:
        """Return the scores of two runs.

        Args:
            scores: the scores of both, OLD first.
            of: the kind of scores; by default the expected scores if both runs have them.
        """
        of = of or scores.best
        written, texts = {}, {}
        for aspect, place in {column.aspect: place for place, column in enumerate(scores.columns)}.items():
            written[aspect] = scores.integer[:, place].astype(np.float64)
            texts[aspect] = {
                float(number): shown(value) for value, number in scores.columns[place].numbers.items()
            }
            if labels := scores.nominal.get(aspect):
                written[aspect] = scores.shares(aspect, "integer").argmax(axis=1).astype(np.float64)
                texts[aspect] = {float(place): shown(label) for place, label in enumerate(labels)}
        ordered = frozenset(written.keys() - scores.nominal.keys())
        turned, note = np.zeros(len(scores.ids), dtype=np.bool_), f"the {of} scores are compared"
        return cls(
            scores, scores.identities, scores.digests, scores.table(of), written, texts, ordered, turned, note
        )

    @classmethod
    def from_pairs(cls, pairs: JudgedPairs) -> JudgedRows:
        """Return the preferences of two runs of pairs: the probability that a response is better, 0 to 1.

        If each run compares two systems and the runs have one in common, it is the preference over this system.
        Otherwise it is the preference for the first response of the pair in OLD, or in NEW if OLD lacks it.
        """
        subject, turned = _turned(pairs)

        def own(values: Floats) -> Floats:
            return np.where(turned, 1 - values, values)

        texts = {number: name for name, number in RESULTS.items()}
        return cls(
            pairs,
            [each.reversed() if turn else each for each, turn in zip(pairs.identities, turned, strict=True)],
            [digest for digest, _ in pairs.shown],
            {name: (own(each.preference[:, 0]), (0, 1)) for name, each in pairs.aspects.items()},
            {name: own(each.result[:, 0]) for name, each in pairs.aspects.items()},
            dict.fromkeys(pairs.aspects, texts),
            frozenset(),
            turned,
            f"each number is the preference for {subject}, from 0 to 1",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the C columns."""
        return tuple(self.columns)

    @property
    def values(self) -> Floats:
        """The numbers of all columns, [n, C]."""
        return np.column_stack([values for values, _ in self.columns.values()])

    @property
    def low(self) -> Floats:
        """The lowest number of each column, [C]."""
        return np.array([low for _, (low, _) in self.columns.values()], dtype=np.float64)

    @property
    def width(self) -> Floats:
        """The width of the scale of each column, [C]."""
        return np.array([high - low for _, (low, high) in self.columns.values()], dtype=np.float64)

    def verdict(self, aspect: str, row: int) -> str:
        """Return what the judge wrote."""
        return self.texts[aspect][float(self.written[aspect][row])]


def _turned(pairs: JudgedPairs) -> tuple[str, Flags]:
    """Return whose preference counts, in words, and which pairs to turn so that it is the first one, [n]."""
    sets = [
        {frozenset(pairs.systems[row]) for row in np.flatnonzero(pairs.run == run).tolist()} for run in (0, 1)
    ]
    if all(len(each) == 1 and len(next(iter(each))) == 2 and None not in next(iter(each)) for each in sets):
        old, new = (next(iter(each)) for each in sets)
        common = sorted(old & new, key=str)
        if common:
            other = common[-1]
            subject = " and ".join(dict.fromkeys(str(next(iter(each - {other}))) for each in (old, new)))
            return f"{subject} over {other}", np.array([first == other for first, _ in pairs.systems])
    # By texts: a pair of NEW is turned to the order of the same pair in OLD.
    digests = [each.digests for each in pairs.identities]
    known = {digests[row] for row in np.flatnonzero(pairs.run == 0).tolist()}
    turned = [
        run == 1 and own not in known and own[::-1] in known
        for run, own in zip(pairs.run.tolist(), digests, strict=True)
    ]
    return "the first response of a pair", np.array(turned)


@dataclass(frozen=True, slots=True)
class MatchedRuns:
    """The n cells that OLD has judged: the rows of one system on one instruction, or one response.

    Attributes:
        rows: the rows of both runs.
        names: the names of the runs.
        differs: what differs between the runs.
        how: what differs, in words.
        group: the number of each cell's instruction, from 0 without gaps, [n].
        old: the mean of each column in OLD, [n, C].
        new: the same in NEW, [n, C]; NaN where NEW has judged no row of the cell.
        places: the first row of each cell in OLD and in NEW, [n, 2]; -1 without one.
        only_new: number of rows of NEW that belong to no cell.
        notes: remarks on the matching.
    """

    rows: JudgedRows
    names: tuple[str, ...]
    differs: Differs
    how: str
    group: Integers
    old: Floats
    new: Floats
    places: Integers
    only_new: int
    notes: tuple[str, ...]

    @property
    def in_both(self) -> Flags:
        """The cells that both runs have judged, [n]."""
        found: Flags = self.places[:, 1] >= 0
        return found


def by_instruction(cells: Floats, group: Integers) -> Floats:
    """Return the mean of each column on each instruction, [instructions, C].

    Args:
        cells: the columns, [n, C].
        group: the instruction of each cell, [n].
    """
    return cell_means(cells, np.unique(group, return_inverse=True)[1], len(np.unique(group)))


def match_runs(rows: JudgedRows) -> MatchedRuns:
    """Match the rows of two runs.

    Raises:
        UsageError: the judge and the responses differ; the runs have no row in common; or their systems cannot
            be told apart.
    """
    names = tuple(run_names(rows.source.folders))
    own = [np.flatnonzero(rows.source.run == run).tolist() for run in (0, 1)]
    judges = [manifest.judge for manifest in rows.source.manifests]
    if different := [name for name, value in judges[0].items() if value != judges[1][name]]:
        how = _how_judges_differ(rows.source.manifests, different)
        keys, notes = _by_response(rows, own, names, how)
    else:
        how, notes = "", ()
        keys = _by_instruction(rows, own, names)
    place: dict[Hashable, int] = {}
    old = np.array([place.setdefault(keys[row], len(place)) for row in own[0]])
    new = np.array([place.get(keys[row], -1) for row in own[1]])
    first = np.full((len(place), 2), -1)
    digests: list[list[set[Hashable]]] = [[set(), set()] for _ in place]
    for run, cells in enumerate((old, new)):
        for row, cell in zip(own[run][::-1], cells[::-1].tolist(), strict=True):
            if cell >= 0:
                first[cell, run] = row
                digests[cell][run].add(rows.identities[row].digests)
    in_both = first[:, 1] >= 0
    if not in_both.any():
        raise UsageError(f"{names[1]}: has no row of {names[0]}; compare runs on the same instructions")
    changed = sum(before != after for before, after in digests if after)
    differs: Differs = "judge" if different else "responses" if changed else "nothing"
    if not different:
        of = counted(int(in_both.sum()), rows.source.manifests[0].rubric.mode.item)
        how = f"the judge is the same, and the responses changed in {changed:,} of {of}"
        how = how if changed else "the judge and all responses are the same"
    return MatchedRuns(
        rows=rows,
        names=names,
        differs=differs,
        how=how,
        group=np.unique(rows.source.group[first[:, 0]], return_inverse=True)[1].astype(np.int32),
        old=cell_means(rows.values[own[0]], old, len(place)),
        new=cell_means(rows.values[own[1]], new, len(place)),
        places=first,
        only_new=int((new < 0).sum()),
        notes=notes,
    )


def _by_instruction(rows: JudgedRows, own: Sequence[Sequence[int]], names: Sequence[str]) -> list[Hashable]:
    """Return the cell of each row: its instruction, and its system if a run has several.

    Raises:
        UsageError: a run has several systems, and none of them is in both.
    """
    systems = [{rows.identities[row].systems for row in each} for each in own]
    is_one = all(len(each) == 1 for each in systems)
    if not is_one and not systems[0] & systems[1]:
        raise UsageError(
            f"{names[1]}: has no system of {names[0]}; compare runs of the same systems, or of one system each"
        )
    return [
        (group, None if is_one else identity.systems)
        for group, identity in zip(rows.source.group.tolist(), rows.identities, strict=True)
    ]


def _by_response(
    rows: JudgedRows, own: Sequence[Sequence[int]], names: Sequence[str], how: str
) -> tuple[list[Hashable], tuple[str, ...]]:
    """Return the cell of each row, of equal texts in both runs, and remarks.

    Raises:
        UsageError: NEW has another response in the place of one of OLD.
    """
    identities = [
        with_digests([rows.identities[row] for row in each], [rows.digests[row] for row in each], manifest)
        for each, manifest in zip(own, rows.source.manifests, strict=True)
    ]
    common, notes = align_runs(identities, rows.source.manifests)
    keys: list[Hashable] = [(row,) for row in range(len(rows.source.run))]
    for cell, pair in enumerate(common):
        for each, place in zip(own, pair, strict=True):
            keys[each[place]] = cell
    left: list[dict[Hashable, str]] = [defaultdict(str) for _ in own]
    for found, each in zip(left, own, strict=True):
        for row in each:
            if isinstance(keys[row], tuple):
                found[rows.identities[row].id, rows.identities[row].systems] = rows.identities[row].where
    if both := left[0].keys() & left[1].keys():
        raise UsageError(
            f"{names[1]}: {how}, and so did {counted(len(both), 'response')} of {len(own[0]):,} (such as "
            f"{left[0][next(iter(both))]}), so nothing tells which of them changed a score; judge the same "
            "responses with both judges, or all of them with one"
        )
    return keys, notes


def _how_judges_differ(manifests: Sequence[RunManifest], different: Sequence[str]) -> str:
    found = []
    for name in different:
        known = [
            {"model": manifest.model.name, "rubric": manifest.rubric.name}.get(name, manifest.judge[name])
            for manifest in manifests
        ]
        found.append(
            f"{name} {known[0]} → {known[1]}" if known[0] != known[1] else f"{name} {known[0]}, edited"
        )
    return f"the judge changed ({', '.join(found)})"
