"""Compare two runs: what a new model, prompt or judge changed, on the same instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.matching.labels import Labels
from localjudge.records.outcome_columns import OVERALL
from localjudge.statistics import Estimate, two_decimals, untested_in_words, verdicts_in_words
from localjudge.statistics.paired_test import Change, tested_changes
from localjudge.statistics.resampling import RESAMPLES, cell_means
from localjudge.studies.by_system_or_tag import EstimateRow, EstimateTable
from localjudge.studies.compare.matched_runs import Differs, MatchedRuns, RowWithoutScore, by_instruction
from localjudge.studies.compare.two_judges import Labelled, TwoJudges, compare_labels, compare_two_judges
from localjudge.system.quantities import counted

_MOST_LISTED = 10
"""The most rows that are listed one by one."""
STATISTIC_NAMES = {
    "in_order": "share in order",
    "spearman": "Spearman",
    "mae": "mean absolute error",
    "exact": "exact agreement",
}
"""The names of the statistics of agreement with labels, for people."""
_NOTHING = "no row has a score in both runs"


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A row that changed by much: its numbers and its verdicts in OLD and in NEW.

    `moved` is the mean change of its columns, as a share of their scales.
    """

    id: str
    system: str
    moved: float
    numbers: Mapping[str, tuple[float, float]]
    verdicts: Mapping[str, tuple[str, str]]


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
        columns: the change of each column; empty if no row has a score in both runs.
        by_system: the change of each column for each system; None for one system, and without changes.
        moved: the rows that changed most.
        missing: the rows of OLD that have a score, but none in NEW.
        failed: the rows of OLD that failed, which are compared with nothing.
        unmatched: the rows of NEW that failed and belong to no row of OLD.
        judges: the agreement of two judges; None for one judge, and without changes.
        labelled: for each aspect with labels, how much better NEW agrees with them than OLD.
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
    by_system: EstimateTable | None
    moved: tuple[MovedRow, ...]
    missing: tuple[RowWithoutScore, ...]
    failed: tuple[RowWithoutScore, ...]
    unmatched: tuple[RowWithoutScore, ...]
    judges: TwoJudges | None
    labelled: Mapping[str, Labelled]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def compare_runs(
    matched: MatchedRuns, labels: Labels | None = None, resamples: int = RESAMPLES, seed: int = 0
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
    # A gate can read a run that has lost the score of every row; then nothing is left to compare.
    tested = tested_changes(old, new, rows.width, resamples, seed) if len(old) else []
    by_system = _by_system(matched, resamples, seed) if len(old) and len(matched.systems) > 1 else None
    two_judges = len(old) and matched.differs == "judge"
    notes = [rows.note, *matched.notes]
    if matched.only_new:
        notes.append(f"not in {matched.names[0]}: {counted(matched.only_new, 'row')} of {matched.names[1]}")
    return Changes(
        names=matched.names,
        differs=matched.differs,
        how=matched.how,
        whose=matched.whose,
        item=rows.source.manifests[0].rubric.mode.item,
        instructions=len(old),
        rows=len(matched.row_pairs),
        columns=dict(zip(rows.names, tested, strict=False)),
        by_system=by_system,
        moved=_moved(matched),
        missing=matched.missing,
        failed=matched.failed,
        unmatched=matched.unmatched,
        judges=compare_two_judges(matched, resamples, seed) if two_judges else None,
        labelled=compare_labels(matched, labels, seed) if labels else {},
        notes=(*notes, *(labels.notes if labels else ())),
        notices=rows.source.notices,
    )


def _by_system(matched: MatchedRuns, resamples: int, seed: int) -> EstimateTable:
    """Return the changes of each system."""
    rows, names, chosen = matched.rows, matched.systems, matched.in_both
    group, place = matched.group[chosen], matched.system[chosen]
    groups = int(matched.group.max()) + 1
    old, new = (
        cell_means(cells[chosen], group * len(names) + place, groups * len(names)).reshape(groups, -1)
        for cells in (matched.old, matched.new)
    )
    changes = iter(tested_changes(old, new, np.tile(rows.width, len(names)), resamples, seed))
    lines = []
    for number, name in enumerate(names):
        columns = {column: next(changes) for column in rows.names}
        instructions = len(np.unique(group[place == number]))
        moved = tuple(
            f"{name} {change.direction}"
            if change.is_significant
            else f"{name} {change.moved} (sign test {change.sign_test})"
            for name, change in columns.items()
            if change.is_significant or (change.p is None and change.rose + change.fell)
        )
        estimates = {name: change.difference for name, change in columns.items()}
        lines.append(EstimateRow(name, instructions, estimates, moved if instructions else (_NOTHING,)))
    return EstimateTable("system", "changes", tuple(lines))


def _moved(matched: MatchedRuns) -> tuple[MovedRow, ...]:
    """Return the rows that changed most."""
    rows, table = matched.rows, matched.rows.values
    used = [at for at, name in enumerate(rows.names) if name != OVERALL]
    old, new = (table[matched.row_pairs[:, run]] for run in (0, 1))
    size = (np.abs(new - old)[:, used] / rows.width[used]).mean(axis=1)
    chosen = [at for at in np.argsort(-size, kind="stable")[:_MOST_LISTED].tolist() if size[at] > 0]
    pairs = [matched.row_pairs[at].tolist() for at in chosen]
    return tuple(
        MovedRow(
            id=rows.identities[pair[0]].id or "",
            system=rows.systems[pair[0]],
            moved=float(size[at]),
            numbers={rows.names[place]: (float(old[at, place]), float(new[at, place])) for place in used},
            verdicts={
                name: (rows.verdict(name, pair[0]), rows.verdict(name, pair[1])) for name in rows.written
            },
        )
        for at, pair in zip(chosen, pairs, strict=True)
    )


def change_lines(changes: Changes) -> Iterator[str]:
    """Yield the answer: what changed and by how much, and what this comparison could not have found."""
    if changes.labelled:
        yield from _better_judge(changes)
    yield from _lines_without_scores(changes)
    columns, on = changes.columns, f"on {counted(changes.instructions, 'instruction')}"
    how = f"{changes.how[0].upper()}{changes.how[1:]}" + f". {changes.whose}" * bool(changes.whose)
    if not columns:
        yield f"{how}: {_NOTHING}."
        return
    same = [name for name, change in columns.items() if change.equal == changes.instructions]
    if len(same) == len(columns):
        yield f"{how}: every column is the same {on}."
        return
    parts, calm, without = list[str](), dict[str, Change](), dict[str, Estimate]()
    adjusted = f" adjusted for {len(columns)} columns" * (len(columns) > 1)
    for name, change in columns.items():
        if change.is_significant:
            by = change.difference if change.direction == "rose" else change.difference.negative()
            parts.append(f"{name} {change.direction} by {by.in_words()}")
        elif change.p is not None:
            calm[name] = change
        elif name not in same:
            mean, test = ("", "") if without else ("mean change ", f"exact sign test{adjusted}: ")
            mean += two_decimals(change.difference.value)
            parts.append(f"{name} {change.moved} ({mean}, {test}{change.sign_test})")
            without[name] = change.difference
    if calm:
        parts.append("no significant change" + f" in {', '.join(calm)}" * bool(parts))
    if same:
        parts.append(f"{', '.join(same)} {'is' if len(same) == 1 else 'are'} the same on all")
    yield f"{how}: {on}, {'; '.join(parts)}."
    yield from untested_in_words("change", without)
    if changes.differs == "judge" and not changes.labelled:
        yield "Higher scores are leniency, not a better judge: only labels (--labels) show which is better."
    alone: dict[str, list[str]] = {}
    for row in changes.by_system.rows if changes.by_system else ():
        alone.setdefault(", ".join(row.significant), []).append(row.name)
    if moved_alone := [f"{_some(names, 12)}: {what}" for what, names in alone.items() if what]:
        yield f"Of single systems, with intervals and p adjusted for all: {_some(moved_alone, 12, '; ')}."
    for name, order in changes.judges.order.items() if changes.judges else ():
        contrary = [
            f"{each.first} minus {each.second} {each.old.in_words()} → {each.new.in_words()}"
            for each in order.contrary
        ]
        if contrary:
            pairs = counted(len(contrary), "pair")
            yield f"In {name}, the judges put {pairs} of systems in opposite order: {_some(contrary, 5, '; ')}."
    sizes = {name: change.detectable for name, change in calm.items() if change.detectable is not None}
    if sizes:
        where = " or ".join(sizes) if len(sizes) < len(columns) else "any column"
        yield (
            f"A change of {two_decimals(max(sizes.values()))} in {where} would have been found in 80 % of such "
            "comparisons; a smaller one can have been missed."
        )


def _better_judge(changes: Changes) -> Iterator[str]:
    """Yield which of two judges agrees better with people, by a statistic of each aspect: the first that has an
    interval, or else a value."""
    named, (old, new) = dict[str, Estimate](), changes.names
    for aspect, found in changes.labelled.items():
        known = {name: (by.ends("") is not None, by.value is not None) for name, by in found.difference.items()}
        statistic = max(known, key=lambda name: known[name])
        by = found.difference[statistic]
        by = by.negative() if statistic == "mae" else by
        size = "by" if by.verdict in ("better", "worse") else "difference"
        named[f"{aspect}: {STATISTIC_NAMES[statistic]}, {size} {by.size_in_words()}"] = by
    yield f"Agreement of {new} with people, compared with that of {old}: {verdicts_in_words(named)}."


def _lines_without_scores(changes: Changes) -> Iterator[str]:
    """Yield which rows have no score in a run, and why."""
    (old, new), item = changes.names, changes.item
    total = counted(changes.rows + len(changes.missing), item)
    lost = {
        f"{len(changes.missing):,} of {total} of {old} have no score in {new} (a gate counts each as the "
        "lowest score, the changes leave them out)": changes.missing,
        f"{counted(len(changes.failed), item)} of {old} failed, so nothing is compared with "
        "them": changes.failed,
        f"{counted(len(changes.unmatched), item)} of {new} failed and belong to no {item} of {old} with a "
        f"score; on an instruction of {old}, a gate counts each as the lowest score": changes.unmatched,
    }
    for what, rows in lost.items():
        for_reason: dict[str, list[str]] = {}
        for row in rows:
            whose = f" of {row.system}" * (changes.by_system is not None)
            for_reason.setdefault(row.reason, []).append(f"{row.id}{whose}")
        if rows:
            reasons = (f"{reason} (id {_some(names)})" for reason, names in for_reason.items())
            yield f"{what}: {'; '.join(reasons)}."


def _some(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    return between.join(names[:most]) + f" and {len(names) - most:,} more" * (len(names) > most)
