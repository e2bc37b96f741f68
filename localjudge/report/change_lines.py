"""What a comparison of two runs says in sentences: whether scores changed, by how much, and on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from localjudge.matching.system_names import UNNAMED
from localjudge.report.changed_row_lines import first_few
from localjudge.report.two_judge_lines import better_judge, contrary_to_each_other, contrary_to_people
from localjudge.statistics import two_decimals, untested_in_words
from localjudge.statistics.paired_test import Change
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL
from localjudge.studies.compare import Changes, SystemChanges
from localjudge.studies.compare.compared_runs import ComparedRuns
from localjudge.studies.compare.run_difference import Differs
from localjudge.system.quantities import counted

NOTHING_IN_COMMON = "no row has a score in both runs"
_MOST_SIZES = 4
"""The most columns whose change stands in a sentence; the table has all."""
_MOST_SYSTEMS = 12
"""The most systems, and the most kinds of their changes, that a sentence names."""
_MOST_PREFERENCES = 3
"""The most preferences that a note names."""


def change_lines(changes: Changes) -> Iterator[str]:
    """Yield the answer: whether scores changed, by how much, and on how many instructions.

    Before it stands which rows NEW has lost, and which of two judges agrees better with people.
    """
    runs = changes.runs
    yield from _lost_rows(runs)
    if changes.labelled:
        yield better_judge(changes)
        yield from contrary_to_people(changes)
    difference = difference_in_words(runs)
    systems = compared_systems(runs)
    of_systems = f" of {systems}" if systems else ""
    if not changes.columns:
        yield f"{_capitalized(NOTHING_IN_COMMON)}."
        yield f"{_capitalized(difference)}{of_systems}."
        return
    start = "Of the common rows alone: " if runs.only_common else ""
    yield f"{start}{_whether_changed(changes)}."
    size = _mean_changes(changes)
    if size:
        yield f"{start}{size}"
    on = f"{counted(runs.instructions, 'instruction')}, {counted(runs.rows, runs.item)}"
    yield f"{start}On {on}{of_systems}: {difference}."


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def compared_systems(runs: ComparedRuns) -> str:
    """Return whose columns are compared; empty for one system without a name."""
    if len(runs.systems) > 1:
        return f"{len(runs.systems)} systems together"
    if runs.systems[0] == UNNAMED:
        return ""
    return runs.systems[0]


def difference_in_words(runs: ComparedRuns) -> str:
    """Return what differs between the runs."""
    difference = runs.difference
    if difference.differs is Differs.JUDGE:
        return f"the judge changed ({', '.join(map(str, difference.settings))})"
    if not runs.rows:
        return "the judge is the same"
    if difference.differs is Differs.RESPONSES:
        rows = counted(runs.rows, runs.item)
        return f"the judge is the same, and the responses changed in {difference.changed_responses:,} of {rows}"
    if runs.uncompared.missing:
        return "the judge and all responses with a score in both runs are the same"
    return "the judge and all responses are the same"


def change_notes(runs: ComparedRuns) -> list[str]:
    """Return what the numbers are, and remarks on how rows and labels were matched."""
    if runs.score_kind is None:
        notes = [f"each number is {_preferences(runs.preferences)}, from 0 to 1"]
    else:
        notes = [f"the {runs.score_kind} scores are compared"]
    notes += runs.alignment_notes
    if runs.ignores_ids:
        old, new = runs.names
        notes.append(
            f"no row of {new} has the id of a row of {old} on the same instruction: rows are matched by their "
            "order"
        )
    notes += runs.label_notes
    return notes


def _preferences(names: tuple[str, ...]) -> str:
    """Return which preferences are compared."""
    text = f"the preference for {' and for '.join(names[:_MOST_PREFERENCES])}"
    if len(names) > _MOST_PREFERENCES:
        text += f" and for {len(names) - _MOST_PREFERENCES} more"
    return text


def _lost_rows(runs: ComparedRuns) -> Iterator[str]:
    """Yield which rows of OLD are not in NEW at all, and which failed there."""
    old, new = runs.names
    absent = _counts_by_system(runs, runs.counts.absent)
    failed = _counts_by_system(runs, runs.counts.failed)
    if absent:
        advice = "" if runs.only_common else ", or compare the others alone with --common"
        yield f"Missing in {new}: {first_few(absent)} of {old}. Judge them{advice}."
    if failed:
        yield f"No score in {new}: {first_few(failed)} of {old}; they failed."


def _counts_by_system(runs: ComparedRuns, counts: Mapping[str, int]) -> list[str]:
    """Return how many of the rows of each system are counted."""
    texts = []
    for system, count in counts.items():
        text = f"{count:,} of {counted(runs.counts.scored[system], runs.item)}"
        if system != UNNAMED:
            text += f" of {system}"
        texts.append(text)
    return texts


@dataclass(slots=True)
class _ColumnsByTest:
    """The columns by what their tests say of the change.

    Attributes:
        same: those that are the same on all instructions.
        significant: those that changed significantly, by the direction of their change.
        by_signs: those without an interval that changed significantly by the sign test, in words.
        undecided: those without an interval that did not, in words.
        not_significant: those with an interval that did not change significantly.
    """

    same: list[str] = field(default_factory=list)
    significant: dict[str, list[str]] = field(default_factory=dict)
    by_signs: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    not_significant: list[str] = field(default_factory=list)


def _columns_by_test(changes: Changes) -> _ColumnsByTest:
    """Return the columns by what their tests say of the change."""
    columns = _ColumnsByTest()
    for name, change in changes.columns.items():
        if change.equal == changes.runs.instructions:
            columns.same.append(name)
        if change.is_significant:
            columns.significant.setdefault(change.direction, []).append(name)
        elif change.p is not None:
            columns.not_significant.append(name)
        elif change.equal != changes.runs.instructions:
            is_first = not columns.by_signs and not columns.undecided
            test = f"exact sign test{_adjusted(changes)}: " if is_first else ""
            moved = f"{name} {change.moved} ({test}{change.sign_test})"
            if change.sign_p is not None and change.sign_p < SIGNIFICANCE_LEVEL:
                columns.by_signs.append(moved)
            else:
                columns.undecided.append(moved)
    return columns


def _adjusted(changes: Changes) -> str:
    """Return for how many columns tests and intervals are adjusted; empty for one column."""
    if len(changes.columns) > 1:
        return f" adjusted for {len(changes.columns)} columns"
    return ""


def _whether_changed(changes: Changes) -> str:
    """Return which columns changed, and which of them is not known to have changed."""
    columns = _columns_by_test(changes)
    if len(columns.same) == len(changes.columns):
        return "Nothing changed: every column is the same"
    parts = []
    moved = [f"{', '.join(names)} {direction}" for direction, names in columns.significant.items()]
    moved += columns.by_signs
    if moved:
        parts.append(f"Changed: {'; '.join(moved)}")
    if columns.undecided:
        parts.append(f"No interval, and no significant change: {'; '.join(columns.undecided)}")
    if len(columns.not_significant) == len(changes.columns):
        parts.append("No significant change")
    elif columns.not_significant:
        parts.append(f"No significant change in {', '.join(columns.not_significant)}")
    if columns.same:
        parts.append(f"The same on all instructions: {', '.join(columns.same)}")
    return ". ".join(parts)


def _mean_changes(changes: Changes) -> str:
    """Return the mean change of the columns that changed, or else of the first ones, with intervals."""
    instructions = changes.runs.instructions
    columns = {name: change for name, change in changes.columns.items() if change.equal < instructions}
    if not columns:
        return ""
    shown = _shown_columns(columns)
    sizes = [f"{name} {columns[name].difference.in_words()}" for name in shown[:_MOST_SIZES]]
    if len(shown) > _MOST_SIZES:
        sizes.append(f"{len(shown) - _MOST_SIZES} more in the table")
    intervals = ""
    if any(columns[name].difference.ends("") for name in shown):
        intervals = f" with 95 % intervals{_adjusted(changes)}"
    return f"Mean change{intervals}: {', '.join(sizes)}.{_detectable_change(changes)}"


def _shown_columns(columns: Mapping[str, Change]) -> list[str]:
    """Return the columns whose mean change is of interest, the significant ones first.

    Of many columns, it is the significant ones, or else the last one, which is the mean of the others.
    """
    significant = [name for name, change in columns.items() if change.is_significant]
    not_significant = [name for name in reversed(list(columns)) if name not in significant]
    if len(columns) <= _MOST_SIZES:
        return significant + not_significant
    if significant:
        return significant
    return not_significant[:1]


def _detectable_change(changes: Changes) -> str:
    """Return which change would have been found, for the columns without a significant one."""
    sizes: dict[str, float] = {}
    for name, change in changes.columns.items():
        if change.detectable is not None and not change.is_significant:
            sizes[name] = change.detectable
    if not sizes:
        return ""
    size = two_decimals(max(sizes.values()))
    if len(sizes) < len(changes.columns):
        size += f" in {' or '.join(sizes)}"
    return f" 80 % of such comparisons would have found a change of {size}; a smaller one can be missed."


def remark_lines(changes: Changes) -> Iterator[str]:
    """Yield what else is to be known: single systems, the order of systems, and columns without an interval."""
    without_interval = {}
    for name, change in changes.columns.items():
        if change.p is None and change.equal < changes.runs.instructions:
            without_interval[name] = change.difference
    yield from untested_in_words("change", without_interval)
    if changes.runs.difference.differs is Differs.JUDGE and not changes.labelled:
        yield "Higher scores are leniency, not a better judge: only labels (--labels) show which is better."
    systems_by_change: dict[str, list[str]] = {}
    for system in changes.by_system:
        moved = ", ".join(moved_columns(system))
        if moved:
            systems_by_change.setdefault(moved, []).append(system.system)
    texts = [f"{first_few(systems, _MOST_SYSTEMS)}: {moved}" for moved, systems in systems_by_change.items()]
    if texts:
        listed = first_few(texts, _MOST_SYSTEMS, between="; ")
        yield f"Of single systems, with intervals and p adjusted for all: {listed}."
    if changes.judges is not None:
        yield from contrary_to_each_other(changes.judges)


def moved_columns(system: SystemChanges) -> list[str]:
    """Return which columns of a system changed significantly, or changed and have no interval."""
    if not system.instructions:
        return [NOTHING_IN_COMMON]
    texts = []
    for name, change in system.columns.items():
        if change.is_significant:
            texts.append(f"{name} {change.direction}")
        elif change.p is None and change.rose + change.fell:
            texts.append(f"{name} {change.moved} (sign test {change.sign_test})")
    return texts
