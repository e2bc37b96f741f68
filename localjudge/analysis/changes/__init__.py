"""Compare two runs: what a new model, prompt or judge changed, on the same instructions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.analysis.changes.matched_runs import Differs, MatchedRuns, by_instruction
from localjudge.analysis.changes.two_judges import Labelled, TwoJudges, compare_labels, compare_two_judges
from localjudge.analysis.matching.human_labels import Labels
from localjudge.analysis.matching.system_names import UNNAMED
from localjudge.analysis.ranking.system_means import column_means
from localjudge.analysis.ranking.system_order import SIGNIFICANCE_LEVEL
from localjudge.analysis.statistics import Estimate, two_decimals
from localjudge.analysis.statistics.resampling import RESAMPLES, studentise
from localjudge.analysis.statistics.resampling import Contributions as Contributions
from localjudge.records.outcome_columns import OVERALL
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.system.quantities import counted


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one column, on the instructions that both runs have.

    Attributes:
        old: the mean of OLD; all instructions have the same weight.
        new: the mean of NEW.
        difference: NEW minus OLD. The interval and `p` are adjusted for all columns: the interval excludes 0
            exactly if `p` is below 0.05.
        p: its p-value; None if the differences hardly vary.
        detectable: the change that runs like these find in 80 % of cases; None without an interval.
        equal: number of instructions with the same mean in both runs.
    """

    old: float
    new: float
    difference: Estimate
    p: float | None
    detectable: float | None
    equal: int

    @property
    def is_significant(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANCE_LEVEL


@dataclass(frozen=True, slots=True)
class Verdicts:
    """How often the judge's written verdicts of an aspect changed: by the verdict in OLD and in NEW."""

    rows: int
    changed: int
    most: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A row that changed by much: its verdicts and the judge's texts in OLD and in NEW.

    `moved` is the mean change of its columns, as a share of their scales.
    """

    id: str
    system: str
    moved: float
    verdicts: Mapping[str, tuple[str, str]]
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed from one run to another.

    Attributes:
        names: the names of OLD and NEW.
        differs: what differs between the runs: the responses, the judge, or nothing.
        how: what differs, in words.
        instructions: number of instructions that both runs have.
        rows: number of matched rows or, of several samples of a response, their groups.
        columns: the change of each column.
        verdicts: the changes of written verdicts in each aspect, of rows that are alone in their group.
        moved: the rows that changed most.
        missing: the rows of OLD that failed in NEW, or are missing there.
        judges: the agreement of two judges; None for one judge.
        labelled: for each aspect with labels, which judge agrees better with them.
        notes: remarks for the reader.
        notices: the notices of the runs.
    """

    names: tuple[str, ...]
    differs: Differs
    how: str
    instructions: int
    rows: int
    columns: Mapping[str, Change]
    verdicts: Mapping[str, Verdicts]
    moved: tuple[MovedRow, ...]
    missing: tuple[str, ...]
    judges: TwoJudges | None
    labelled: Mapping[str, Labelled]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def compare_runs(
    matched: MatchedRuns,
    labels: Labels | None = None,
    moved: int = 10,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Changes:
    """Compare two runs.

    Args:
        matched: the rows of both runs.
        labels: labels of the rows of both; only for two judges.
        moved: number of rows to return, those that changed most.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    rows, both = matched.rows, matched.in_both
    old, new = (by_instruction(cells[both], matched.group[both]) for cells in (matched.old, matched.new))
    width = rows.width
    tested = studentise(column_means(new - old), -width, width, True, resamples, seed)
    p, detectable = tested.adjusted(), tested.detectable()
    differences = tested.simultaneous(-width, width).estimates()
    notes = [rows.note, *filter(None, [rows.source.mass_note]), *matched.notes]
    missing = tuple(rows.identities[row].id or "" for row in matched.places[~both, 0].tolist())
    if missing:
        notes.append(
            f"{counted(len(missing), 'row')} of {matched.names[0]} failed or are missing in {matched.names[1]} "
            f"and are left out here: {_some(missing)}"
        )
    if matched.only_new:
        notes.append(f"{counted(matched.only_new, 'row')} of {matched.names[1]} are not in {matched.names[0]}")
    is_two = matched.differs == "judge"
    return Changes(
        names=matched.names,
        differs=matched.differs,
        how=matched.how,
        instructions=len(old),
        rows=int(both.sum()),
        columns={
            name: Change(
                old=float(old[:, at].mean()),
                new=float(new[:, at].mean()),
                difference=differences[at],
                p=_known(p[at]),
                detectable=_known(detectable[at]),
                equal=int((np.abs(new[:, at] - old[:, at]) < 1e-9).sum()),
            )
            for at, name in enumerate(rows.names)
        },
        verdicts=_verdicts(matched),
        moved=_moved(matched, moved),
        missing=missing,
        judges=compare_two_judges(matched, resamples, seed) if is_two else None,
        labelled=compare_labels(matched, labels, resamples, seed) if labels else {},
        notes=(*notes, *(labels.notes if labels else ())),
        notices=together(matched.names, [read_notices(folder) for folder in rows.source.folders]),
    )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _some(names: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(names[:most]) + f" and {len(names) - most:,} more" * (len(names) > most)


def _verdicts(matched: MatchedRuns) -> dict[str, Verdicts]:
    """Return the changes of the verdicts of each aspect, on the first row of each cell."""
    found, rows = {}, matched.rows
    for aspect in rows.written:
        pairs = Counter(
            (rows.verdict(aspect, old), rows.verdict(aspect, new))
            for old, new in matched.places[matched.in_both].tolist()
        )
        changed = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
        most = sorted(changed.items(), key=lambda each: (-each[1], each[0]))
        found[aspect] = Verdicts(
            pairs.total(), sum(changed.values()), tuple((*pair, count) for pair, count in most)
        )
    return found


def _moved(matched: MatchedRuns, most: int) -> tuple[MovedRow, ...]:
    rows = matched.rows
    used = [at for at, name in enumerate(rows.names) if name != OVERALL]
    size = np.abs(matched.new - matched.old)[:, used] / rows.width[used]
    size = np.nan_to_num(size.mean(axis=1))
    chosen = [cell for cell in np.argsort(-size, kind="stable")[:most].tolist() if size[cell] > 0]
    places = [matched.places[cell].tolist() for cell in chosen]
    texts = [
        {
            outcome.source: "\n".join(getattr(outcome, "texts", {}).values())
            for outcome in read_outcomes(folder)
            if outcome.source in wanted
        }
        for run, folder in enumerate(rows.source.folders)
        for wanted in ({rows.identities[pair[run]].where for pair in places},)
    ]
    return tuple(
        MovedRow(
            id=rows.identities[pair[0]].id or "",
            system=" / ".join(name or UNNAMED for name in rows.identities[pair[0]].systems),
            moved=float(size[cell]),
            verdicts={
                name: (rows.verdict(name, pair[0]), rows.verdict(name, pair[1])) for name in rows.written
            },
            texts=(
                texts[0].get(rows.identities[pair[0]].where, ""),
                texts[1].get(rows.identities[pair[1]].where, ""),
            ),
        )
        for cell, pair in zip(chosen, places, strict=True)
    )


def change_lines(changes: Changes) -> Iterator[str]:
    """Yield the answer: what changed and by how much, and what this comparison could not have found."""
    columns, on = changes.columns, f"on {counted(changes.instructions, 'instruction')}"
    said = []
    for name, change in columns.items():
        if change.is_significant and change.difference.value is not None:
            moved = "rose" if change.difference.value > 0 else "fell"
            size = change.difference if change.difference.value > 0 else change.difference.negative()
            said.append(f"{name} {moved} by {size.in_words()}")
    rest = {name: change for name, change in columns.items() if not change.is_significant}
    first = f"{'; '.join(said)} {on}" if said else f"no significant change {on}"
    if all(change.equal == changes.instructions for change in columns.values()):
        yield f"{changes.how[0].upper()}{changes.how[1:]}: every column is the same {on}."
        return
    if same := [name for name, change in rest.items() if change.equal == changes.instructions]:
        first += f"; {', '.join(same)} {'is' if len(same) == 1 else 'are'} the same on all"
    ends = {
        name: max(abs(change.difference.low), abs(change.difference.high))
        for name, change in rest.items()
        if change.difference.low is not None and change.difference.high is not None
    }
    if ends:
        limit = two_decimals(math.ceil(100 * max(ends.values())) / 100)
        those = "the others" if said else "none of them" if len(ends) > 1 else next(iter(ends))
        first += f"; {those} did not change by more than {limit}".replace("none of them did not", "none did")
    yield f"{changes.how[0].upper()}{changes.how[1:]}: {first}."
    found = {name: columns[name].detectable for name in ends}
    if known := {name: size for name, size in found.items() if size is not None}:
        largest = max(known, key=lambda name: known[name])
        of = "" if len(known) == 1 else f" (most in {largest})"
        yield (
            f"A change of {two_decimals(known[largest])} in a column would have been found in 80 % of such "
            f"comparisons{of}; a smaller one can have been missed."
        )
    for name in rest:
        if name not in ends and name not in same:
            moved_on = changes.instructions - columns[name].equal
            yield (
                f"{name} changed on {moved_on:,} of {changes.instructions:,} instructions, by "
                f"{two_decimals(columns[name].difference.value)} on average over all; the changes vary too "
                "little for an interval."
            )
