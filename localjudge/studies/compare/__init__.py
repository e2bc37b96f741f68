"""Compare two runs: what a new model, prompt or judge changed, on the same instructions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.matching.labels import Labels
from localjudge.records.outcome_columns import OVERALL
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.statistics import Estimate, sign_test, two_decimals
from localjudge.statistics.resampling import RESAMPLES, studentise
from localjudge.statistics.resampling import Contributions as Contributions
from localjudge.statistics.system_means import column_means
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL
from localjudge.studies.by_slice import Sliced
from localjudge.studies.compare.matched_runs import Differs, MatchedRuns, RowWithoutScore, by_instruction
from localjudge.studies.compare.sliced_changes import change_by_system, moved_in_words, signs
from localjudge.studies.compare.two_judges import Labelled, TwoJudges, compare_labels, compare_two_judges
from localjudge.studies.rank import p_in_words
from localjudge.system.quantities import counted

_MOST_LISTED = 10
"""The most rows that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one column, on the instructions where both runs have a score.

    Attributes:
        old: the mean of OLD; all instructions have the same weight.
        new: the mean of NEW.
        difference: NEW minus OLD. The interval and `p` are adjusted for all columns: the interval excludes 0
            exactly if `p` is below 0.05.
        p: its p-value; None without an interval.
        sign_p: without an interval, the p-value of the exact sign test over instructions, times the number of
            columns (Bonferroni); None with one.
        detectable: the change that runs like these find in 80 % of cases; None without an interval.
        rose: number of instructions with a higher mean in NEW.
        fell: number of instructions with a lower mean in NEW.
        equal: number of instructions with the same mean in both runs.
    """

    old: float
    new: float
    difference: Estimate
    p: float | None
    sign_p: float | None
    detectable: float | None
    rose: int
    fell: int
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
    """A row that changed by much: its numbers, its verdicts and the judge's texts in OLD and in NEW.

    `moved` is the mean change of its columns, as a share of their scales.
    """

    id: str
    system: str
    moved: float
    numbers: Mapping[str, tuple[float, float]]
    verdicts: Mapping[str, tuple[str, str]]
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed from one run to another.

    Attributes:
        names: the names of OLD and NEW.
        differs: what differs between the runs: the responses, the judge, or nothing.
        how: what differs, in words.
        whose: the system whose columns are compared, or how many; empty for one without a name.
        item: what a row is called.
        instructions: number of instructions where both runs have a score.
        rows: number of rows of OLD with a score in both runs.
        columns: the change of each column.
        by_system: the change of each column for each system; None for one system.
        verdicts: the changes of written verdicts in each aspect.
        moved: the rows that changed most.
        missing: the rows of OLD that have a score, but none in NEW.
        failed: the rows of OLD that failed, which are compared with nothing.
        unmatched: the rows of NEW that failed and belong to no row of OLD.
        judges: the agreement of two judges; None for one judge.
        labelled: for each aspect with labels, which judge agrees better with them.
        notes: remarks for the reader.
        notices: the notices of the runs.
    """

    names: tuple[str, ...]
    differs: Differs
    how: str
    whose: str
    item: str
    instructions: int
    rows: int
    columns: Mapping[str, Change]
    by_system: Sliced | None
    verdicts: Mapping[str, Verdicts]
    moved: tuple[MovedRow, ...]
    missing: tuple[RowWithoutScore, ...]
    failed: tuple[RowWithoutScore, ...]
    unmatched: tuple[RowWithoutScore, ...]
    judges: TwoJudges | None
    labelled: Mapping[str, Labelled]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def compare_runs(
    matched: MatchedRuns,
    labels: Labels | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Changes:
    """Compare two runs.

    Args:
        matched: the rows of both runs.
        labels: labels of the rows of both; only for two judges.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    rows, both = matched.rows, matched.in_both
    old, new = (by_instruction(cells[both], matched.group[both]) for cells in (matched.old, matched.new))
    width = rows.width
    tested = studentise(column_means(new - old), -width, width, True, resamples, seed)
    differences = tested.simultaneous(-width, width).estimates()
    notes = [rows.note, *filter(None, [rows.source.mass_note]), *matched.notes]
    if matched.only_new:
        notes.append(f"{counted(matched.only_new, 'row')} of {matched.names[1]} are not in {matched.names[0]}")
    each = zip(differences, tested.adjusted(), tested.detectable(), (new - old).T, strict=True)
    return Changes(
        names=matched.names,
        differs=matched.differs,
        how=matched.how,
        whose=matched.whose,
        item=rows.source.manifests[0].rubric.mode.item,
        instructions=len(old),
        rows=len(matched.row_pairs),
        columns={
            name: Change(
                old=float(old[:, at].mean()),
                new=float(new[:, at].mean()),
                difference=difference,
                p=_known(p),
                sign_p=None if np.isfinite(p) else min(1.0, len(rows.names) * sign_test(*signs(moved)[:2])),
                detectable=_known(detectable),
                rose=signs(moved)[0],
                fell=signs(moved)[1],
                equal=signs(moved)[2],
            )
            for at, (name, (difference, p, detectable, moved)) in enumerate(zip(rows.names, each, strict=True))
        },
        by_system=change_by_system(matched, resamples, seed) if len(matched.systems) > 1 else None,
        verdicts=_verdicts(matched),
        moved=_moved(matched),
        missing=matched.missing,
        failed=matched.failed,
        unmatched=matched.unmatched,
        judges=compare_two_judges(matched, resamples, seed) if matched.differs == "judge" else None,
        labelled=compare_labels(matched, labels, resamples, seed) if labels else {},
        notes=(*notes, *(labels.notes if labels else ())),
        notices=together(matched.names, [read_notices(folder) for folder in rows.source.folders]),
    )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _verdicts(matched: MatchedRuns) -> dict[str, Verdicts]:
    """Return the changes of the verdicts of each aspect."""
    found, rows = {}, matched.rows
    for aspect in rows.written:
        pairs = Counter(
            (rows.verdict(aspect, old), rows.verdict(aspect, new)) for old, new in matched.row_pairs.tolist()
        )
        changed = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
        most = sorted(changed.items(), key=lambda each: (-each[1], each[0]))
        found[aspect] = Verdicts(
            pairs.total(), sum(changed.values()), tuple((*pair, count) for pair, count in most)
        )
    return found


def _moved(matched: MatchedRuns) -> tuple[MovedRow, ...]:
    rows, table = matched.rows, matched.rows.values
    used = [at for at, name in enumerate(rows.names) if name != OVERALL]
    old, new = (table[matched.row_pairs[:, run]] for run in (0, 1))
    size = (np.abs(new - old)[:, used] / rows.width[used]).mean(axis=1)
    chosen = [at for at in np.argsort(-size, kind="stable")[:_MOST_LISTED].tolist() if size[at] > 0]
    places = [matched.row_pairs[at].tolist() for at in chosen]
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
            system=rows.systems[pair[0]],
            moved=float(size[at]),
            numbers={rows.names[place]: (float(old[at, place]), float(new[at, place])) for place in used},
            verdicts={
                name: (rows.verdict(name, pair[0]), rows.verdict(name, pair[1])) for name in rows.written
            },
            texts=(
                texts[0].get(rows.identities[pair[0]].where, ""),
                texts[1].get(rows.identities[pair[1]].where, ""),
            ),
        )
        for at, pair in zip(chosen, places, strict=True)
    )


def change_lines(changes: Changes) -> Iterator[str]:
    """Yield the answer: what changed and by how much, and what this comparison could not have found."""
    yield from _lines_without_scores(changes)
    columns, on = changes.columns, f"on {counted(changes.instructions, 'instruction')}"
    how = f"{changes.how[0].upper()}{changes.how[1:]}" + f". {changes.whose}" * bool(changes.whose)
    same = [name for name, change in columns.items() if change.equal == changes.instructions]
    if len(same) == len(columns):
        yield f"{how}: every column is the same {on}."
        return
    said, calm = list[str](), dict[str, Change]()
    for name, change in columns.items():
        if change.is_significant and change.difference.value is not None:
            moved = "rose" if change.difference.value > 0 else "fell"
            by = change.difference if change.difference.value > 0 else change.difference.negative()
            said.append(f"{name} {moved} by {by.in_words()}")
        elif change.p is not None:
            calm[name] = change
        elif name not in same:
            said.append(f"{name} {_untested(change, changes.instructions)}")
    if calm:
        said.append("no significant change" + f" in {', '.join(calm)}" * bool(said))
    if same:
        said.append(f"{', '.join(same)} {'is' if len(same) == 1 else 'are'} the same on all")
    ends = {
        name: max(abs(change.difference.low), abs(change.difference.high))
        for name, change in calm.items()
        if change.difference.low is not None and change.difference.high is not None
    }
    if ends:
        limit = two_decimals(math.ceil(100 * max(ends.values())) / 100)
        none = "none of these changed" if len(ends) > 1 else f"{next(iter(ends))} did not change"
        said.append(f"{none} by more than {limit}")
    yield f"{how}: {on}, {'; '.join(said)}."
    alone = changes.by_system.rows if changes.by_system else ()
    if moved_alone := [f"{row.name}: {', '.join(row.significant)}" for row in alone if row.significant]:
        yield f"Of single systems, with intervals and p adjusted for all: {_some(moved_alone, 12, '; ')}."
    found = {name: columns[name].detectable for name in ends}
    if known := {name: size for name, size in found.items() if size is not None}:
        largest = max(known, key=lambda name: known[name])
        of = "" if len(known) == 1 else f" (most in {largest})"
        yield (
            f"A change of {two_decimals(known[largest])} in a column would have been found in 80 % of such "
            f"comparisons{of}; a smaller one can have been missed."
        )


def _untested(change: Change, instructions: int) -> str:
    """Return what moved on how many instructions, where the change has no interval."""
    assert change.sign_p is not None
    return (
        f"{moved_in_words(change.rose, change.fell, instructions)} (mean change "
        f"{two_decimals(change.difference.value)}, exact sign test over instructions "
        f"{p_in_words(change.sign_p)}; it has no interval, because {change.difference.why})"
    )


def _lines_without_scores(changes: Changes) -> Iterator[str]:
    """Yield which rows have no score in a run, and why."""
    (old, new), item = changes.names, changes.item
    total = counted(changes.rows + len(changes.missing), item)
    said = {
        f"{len(changes.missing):,} of {total} of {old} have no score in {new}; they are left out of the "
        "changes, and a gate counts each as the lowest score": changes.missing,
        f"{counted(len(changes.failed), item)} of {old} failed, so nothing is compared with "
        "them": changes.failed,
        f"{counted(len(changes.unmatched), item)} of {new} failed and belong to no {item} of {old} with a "
        f"score; on an instruction of {old}, a gate counts each as the lowest score": changes.unmatched,
    }
    for what, rows in said.items():
        for_reason: dict[str, list[str]] = {}
        for row in rows:
            whose = f" of {row.system}" * (changes.by_system is not None)
            for_reason.setdefault(row.reason, []).append(f"{row.id}{whose}")
        if rows:
            reasons = (f"{reason} (id {_some(names)})" for reason, names in for_reason.items())
            yield f"{what}: {'; '.join(reasons)}."


def _some(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    return between.join(names[:most]) + f" and {len(names) - most:,} more" * (len(names) > most)
