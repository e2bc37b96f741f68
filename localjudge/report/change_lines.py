"""What a comparison of two runs says in sentences: whether scores changed, by how much, and on what."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from localjudge.matching.system_names import UNNAMED
from localjudge.statistics import two_decimals, untested_in_words
from localjudge.statistics.absolute_change import COVERED
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL
from localjudge.studies.compare import NOTHING_IN_COMMON, Changes, MovedRow
from localjudge.studies.compare.matched_runs import RowWithoutScore
from localjudge.studies.compare.two_judges import Labelled
from localjudge.system.quantities import counted, in_digits

STATISTIC_NAMES = {
    "in_order": "share in order",
    "spearman": "Spearman",
    "mae": "mean absolute error",
    "exact": "exact agreement",
}
"""The names of the statistics of agreement with labels, for people."""
_MOST_SIZES = 4
"""The most columns whose change stands in a sentence; the table has all."""
_MOST_MOVED = 3


def change_lines(changes: Changes) -> Iterator[str]:
    """Yield the answer: whether scores changed, by how much, and on how many instructions.

    Before it stands which rows NEW has lost, and which of two judges agrees better with people.
    """
    yield from _lost(changes)
    if changes.labelled:
        yield _better_judge(changes)
        yield from _orders_of_people(changes)
    if not changes.columns:
        yield f"{_sentence(NOTHING_IN_COMMON)}."
        yield f"{_sentence(changes.how)}{_whose(changes)}."
        return
    yield f"{_common(changes)}{_whether(changes)}."
    if size := _size(changes):
        yield f"{_common(changes)}{size}"
    on = f"{counted(changes.instructions, 'instruction')}, {counted(changes.rows, changes.item)}"
    yield f"{_common(changes)}On {on}{_whose(changes)}: {changes.how}."


def _common(changes: Changes) -> str:
    return "Of the common rows alone: " if changes.only_common else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _whose(changes: Changes) -> str:
    return f" of {changes.whose}" if changes.whose else ""


def _lost(changes: Changes) -> Iterator[str]:
    """Yield which rows of OLD are not in NEW at all, and which failed there."""
    old, new = changes.names
    absent = _counts_by_system(changes, changes.absent_by_system)
    failed = _counts_by_system(changes, changes.lost_by_system)
    if absent:
        advice = "" if changes.only_common else ", or compare the others alone with --common"
        yield f"Missing in {new}: {some(absent)} of {old}. Judge them{advice}."
    if failed:
        yield f"No score in {new}: {some(failed)} of {old}; they failed."


def _counts_by_system(changes: Changes, counts: Mapping[str, int]) -> list[str]:
    """Return how many of the rows of each system are counted."""
    said = []
    for system, count in counts.items():
        of = "" if system == UNNAMED else f" of {system}"
        said.append(f"{count:,} of {counted(changes.rows_by_system[system], changes.item)}{of}")
    return said


def _whether(changes: Changes) -> str:
    """Return which columns changed, and which of them is not known to have changed."""
    columns = changes.columns
    same = [name for name, change in columns.items() if change.equal == changes.instructions]
    if len(same) == len(columns):
        return "Nothing changed: every column is the same"
    by_direction: dict[str, list[str]] = {}
    by_signs = list[str]()
    untested = list[str]()
    calm = list[str]()
    adjusted = f" adjusted for {len(columns)} columns" if len(columns) > 1 else ""
    for name, change in columns.items():
        if change.is_significant:
            by_direction.setdefault(change.direction, []).append(name)
        elif change.p is not None:
            calm.append(name)
        elif name not in same:
            is_first = not by_signs and not untested
            test = f"exact sign test{adjusted}: " if is_first else ""
            moved_by_signs = f"{name} {change.moved} ({test}{change.sign_test})"
            has_changed = (change.sign_p or 1.0) < SIGNIFICANCE_LEVEL
            (by_signs if has_changed else untested).append(moved_by_signs)
    parts = []
    moved = [f"{', '.join(names)} {direction}" for direction, names in by_direction.items()] + by_signs
    if moved:
        parts.append(f"Changed: {'; '.join(moved)}")
    if untested:
        parts.append(f"No interval, and no significant change: {'; '.join(untested)}")
    if calm:
        parts.append("No significant change" + (f" in {', '.join(calm)}" if len(calm) < len(columns) else ""))
    if same:
        parts.append(f"The same on all instructions: {', '.join(same)}")
    return ". ".join(parts)


def _size(changes: Changes) -> str:
    """Return the mean change of the columns that changed, or else of the first ones, with intervals."""
    columns = {name: change for name, change in changes.columns.items() if change.equal < changes.instructions}
    if not columns:
        return ""
    significant = [name for name, change in columns.items() if change.is_significant]
    others = [name for name in reversed(columns) if name not in significant]
    shown = (significant + others)[: max(len(significant), 1) if len(columns) > _MOST_SIZES else None]
    sizes = [f"{name} {columns[name].difference.in_words()}" for name in shown[:_MOST_SIZES]]
    more = len(shown) - _MOST_SIZES
    if more > 0:
        sizes.append(f"{more} more in the table")
    adjusted = f" adjusted for {len(changes.columns)} columns" if len(changes.columns) > 1 else ""
    has_interval = any(columns[name].difference.ends("") for name in shown)
    intervals = f" with 95 % intervals{adjusted}" if has_interval else ""
    return f"Mean change{intervals}: {', '.join(sizes)}.{_detectable(changes)}"


def _detectable(changes: Changes) -> str:
    """Return which change would have been found, for the columns without a significant one."""
    columns = changes.columns
    sizes = {
        name: change.detectable
        for name, change in columns.items()
        if change.detectable is not None and not change.is_significant
    }
    if not sizes:
        return ""
    largest = two_decimals(max(sizes.values()))
    where = "" if len(sizes) == len(columns) else f" in {' or '.join(sizes)}"
    return (
        f" 80 % of such comparisons would have found a change of {largest}{where}; a smaller one can be missed."
    )


def _better_judge(changes: Changes) -> str:
    """Return which of two judges agrees better with people, by all measures of each aspect together."""
    old, new = changes.names
    aspects = [f"{aspect}: {_measures(found)}" for aspect, found in changes.labelled.items()]
    return f"Agreement of {new} with people, compared with that of {old}, in {'; '.join(aspects)}."


def _measures(found: Labelled) -> str:
    """Return in how many measures of an aspect NEW is better, worse, and not clearly different, and which."""
    kinds: dict[str, list[str]] = {"better": [], "worse": [], "no clear difference": [], "unknown": []}
    for statistic, difference in found.difference.items():
        # Of two errors, the smaller one is better.
        gain = difference.negative() if statistic == "mae" else difference
        size = "by" if gain.verdict in ("better", "worse") else "difference"
        why = gain.no_interval if gain.verdict == "unknown" else ""
        kinds[gain.verdict].append(f"{STATISTIC_NAMES[statistic]}, {size} {gain.size_in_words()}{why}")
    total = counted(len(found.difference), "measure")
    said = list[str]()
    for kind, named in kinds.items():
        if named:
            of = f" of {total}" if not said else ""
            said.append(f"{kind} in {len(named)}{of} ({'; '.join(named)})")
    return ", ".join(said)


def _orders_of_people(changes: Changes) -> Iterator[str]:
    """Yield where a judge puts two systems in the opposite order of people."""
    for aspect, found in changes.labelled.items():
        for judge, order in found.order.items():
            contrary = [
                f"{each.first} minus {each.second} {each.old.in_words()} by people, {each.new.in_words()} by it"
                for each in order.contrary
            ]
            if contrary:
                pairs = counted(len(contrary), "pair")
                named = some(contrary, 5, "; ")
                yield f"In {aspect}, {judge} contradicts people in {pairs} of systems: {named}."


def remark_lines(changes: Changes) -> Iterator[str]:
    """Yield what else is to be known: single systems, the order of systems, and columns without an interval."""
    without = {
        name: change.difference
        for name, change in changes.columns.items()
        if change.p is None and change.equal < changes.instructions
    }
    yield from untested_in_words("change", without)
    if changes.differs == "judge" and not changes.labelled:
        yield "Higher scores are leniency, not a better judge: only labels (--labels) show which is better."
    alone: dict[str, list[str]] = {}
    for row in changes.by_system.rows if changes.by_system else ():
        alone.setdefault(", ".join(row.significant), []).append(row.name)
    moved_alone = [f"{some(names, 12)}: {what}" for what, names in alone.items() if what]
    if moved_alone:
        yield f"Of single systems, with intervals and p adjusted for all: {some(moved_alone, 12, '; ')}."
    for name, order in changes.judges.order.items() if changes.judges else ():
        contrary = [
            f"{each.first} minus {each.second} {each.old.in_words()} → {each.new.in_words()}"
            for each in order.contrary
        ]
        if contrary:
            pairs = counted(len(contrary), "pair")
            yield f"In {name}, the judges put {pairs} of systems in opposite order: {some(contrary, 5, '; ')}."


def moved_lines(changes: Changes, asked: Collection[str] = ()) -> Iterator[str]:
    """Yield the rows that decide: those that fell most in each column that a gate asks for, or moved most.

    Args:
        changes: the changes.
        asked: the columns of the conditions; empty without a gate.
    """
    for column in dict.fromkeys(asked):
        fallen = [_moved(changes, row, column, named=False) for row in changes.fallen.get(column, ())]
        if fallen:
            yield f"Rows that fell most in {column}: {'; '.join(fallen)}."
    if not asked:
        rows = [
            _moved(changes, row, max(row.numbers, key=lambda name: _size_of(row, name)))
            for row in changes.moved[:_MOST_MOVED]
        ]
        if rows:
            yield f"Rows that changed most: {'; '.join(rows)}."


def rows_within_noise(changes: Changes) -> Iterator[str]:
    """Yield how many rows moved no further than 95 % of rows do that are only judged again."""
    item = changes.item
    columns = [
        f"{name}: {noise.below:,} of {noise.moved:,} that moved, by {in_digits(noise.bound)} or less "
        f"({counted(noise.repeated, item)} of {noise.run} judged again)"
        for name, noise in changes.noise.items()
        if noise.below
    ]
    if columns:
        yield (
            f"Single {item}s within the noise, the change that {COVERED:.0%} of {item}s do not exceed when "
            f"they are only judged again: {some(columns, 4, '; ')}."
        )


def _size_of(row: MovedRow, column: str) -> float:
    old, new = row.numbers[column]
    return abs(new - old)


def _moved(changes: Changes, row: MovedRow, column: str, named: bool = True) -> str:
    """Return a row and how its number in a column moved."""
    old, new = (f"{number:.2f}".removesuffix(".00") for number in row.numbers[column])
    is_clear = len(changes.rows_by_system) == 1 or row.system in row.id
    whose = "" if is_clear else f" of {row.system}"
    of = f"{column} " if named else ""
    return f"{row.id}{whose} ({of}{old} → {new})"


def lines_without_scores(changes: Changes) -> Iterator[str]:
    """Yield which rows have no score in a run, and why, and which belong to no row of the other run."""
    (old, new), item = changes.names, changes.item
    total = counted(changes.rows + len(changes.missing), item)
    counts = "left out" if changes.only_common else "at their lowest score in a gate"
    lost = {
        f"{len(changes.missing):,} of {total} of {old} have no score in {new} ({counts})": changes.missing,
        f"{counted(len(changes.failed), item)} of {old} failed, so nothing is compared with "
        "them": changes.failed,
        f"{counted(len(changes.unmatched), item)} of {new} failed and belong to no {item} of {old}, so they "
        "count in nothing": changes.unmatched,
    }
    for what, rows in lost.items():
        if rows:
            yield f"{what}: {_reasons(rows, named=changes.by_system is not None)}."
    if changes.only_new:
        yield (
            f"{counted(changes.only_new, item)} of {new} with a score belong to no {item} of {old}, so they "
            "count in nothing."
        )


def _reasons(rows: Sequence[RowWithoutScore], *, named: bool) -> str:
    """Return the rows with each reason."""
    for_reason: dict[str, list[str]] = {}
    for row in rows:
        name = f"{row.id} of {row.system}" if named else row.id
        for_reason.setdefault(row.reason, []).append(name)
    return "; ".join(f"{reason} (id {some(names)})" for reason, names in for_reason.items())


def some(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more
