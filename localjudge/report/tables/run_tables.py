"""Tables of a run: the means or win rates, how often each score occurs, and a repetition."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.report.tables import Cells, Table
from localjudge.rubrics.score_column import is_share
from localjudge.runs.checklist_summary import MOST_TAGS, ChecklistSummary
from localjudge.runs.pair_summary import CLASSES, PairSummary
from localjudge.runs.repeat import Repetition
from localjudge.runs.summary import Summary
from localjudge.system.quantities import bars

_MOST_BARS = 10
"""Largest number of bars for one aspect; a scale with more values is divided into this many intervals."""
_FIRST = "first response"
"""Name of the first responses of pairs whose systems are not known."""


def summary_tables(summary: Summary) -> Iterator[Table | str]:
    """Yield the means or win rates, one system in each row, and a line on each aspect of pairs.

    The mean of a column is that of the expected scores if all judged rows have them, as in `rank`.
    """
    if summary.pairs:
        yield from _win_rates(summary.pairs)
        return
    if summary.lists:
        yield from _points(summary.lists)
        return
    columns = [column.name for column in summary.columns]
    measured = {
        name
        for name in columns
        if all(system.expected[name] == system.judged for system in summary.systems.values())
    }
    rows: list[Cells] = []
    for system, counts in summary.by_system():
        means = ((counts.mean_expected if name in measured else counts.mean)(name) for name in columns)
        rows.append((system or "(none)", *means, counts.judged, *[counts.failed] * bool(summary.failed)))
    headings = ("system", *columns, "n", *["failed"] * bool(summary.failed))
    yield Table(_title(summary, measured), headings, rows)


def frequency_table(summary: Summary) -> Table:
    """Return the frequencies of the scores, lowest first, or of preferences, one system in each row."""
    if summary.pairs:
        return _preferences(summary.pairs)
    ends = {f"{column.lowest} to {column.highest}" for column in summary.columns}
    rows: list[Cells] = []
    for name, system in summary.by_system():
        cells = []
        for column in summary.columns:
            values = sorted(set(column.numbers.values()))
            most = min(len(values), _MOST_BARS)
            shares = [0.0] * most
            for rank, value in enumerate(values):
                share = system.counts[column.name, value] / max(1, system.judged)
                shares[rank * most // len(values)] += share
            cells.append(bars(shares) if system.judged else None)
        rows.append((name or "(none)", *cells))
    first = ends.pop() if len(ends) == 1 else "low to high"
    return Table("", (first, *(column.name for column in summary.columns)), rows)


def _title(summary: Summary, measured: set[str]) -> str:
    """Return the title of the table of means: of which scores they are."""
    what = "Shares of labels" if all(is_share(column.name) for column in summary.columns) else "Mean scores"
    integers = [column.name for column in summary.columns if column.name not in measured]
    if not integers:
        return what.replace("scores", "expected scores") + " of the systems"
    if not measured:
        return what.replace("scores", "integer scores") + " of the systems"
    return f"Mean expected scores of the systems (integer scores of {', '.join(integers)})"


def _points(lists: ChecklistSummary) -> Iterator[Table]:
    """Yield the mean scores, one system in each row, and those of the criteria with each tag."""
    sides = lists.by_system()
    failed, unscored = any(side.failed for _, side in sides), any(side.unscored for _, side in sides)
    rows: list[Cells] = []
    for name, side in sides:
        counts = (side.judged, *[side.failed] * failed, *[side.unscored] * unscored)
        rows.append((name or "(none)", side.score.clipped, side.score.expected, *counts))
    headings = ("system", "score", "expected", "n", *["failed"] * failed, *["without score"] * unscored)
    yield Table(
        "Mean scores of the systems: points met of the positive points, clipped to 0 to 1", headings, rows
    )
    if tags := lists.tags[:MOST_TAGS]:
        more = len(lists.tags) - len(tags)
        names = (f"tag ({more} more)" if more else "tag", *(name or "(none)" for name, _ in sides))
        of_tags = [(tag, *(side.tags[tag].clipped for _, side in sides)) for tag in tags]
        yield Table("The same, of the criteria with each tag", names, of_tags)


def _win_rates(pairs: PairSummary) -> Iterator[Table | str]:
    if pairs.sides:
        failed = bool(pairs.failed)
        rows = [
            (name, *map(side.win_rate, pairs.aspects), side.judged, *[side.failed] * failed)
            for name, side in sorted(pairs.sides.items())
        ]
        yield Table("", ("win rate of", *pairs.aspects, "pairs", *["failed"] * failed), rows)
    yield "\n".join(map(pairs.line, pairs.aspects))


def _preferences(pairs: PairSummary) -> Table:
    rows: list[Cells] = []
    for name, side in sorted(pairs.sides.items()) or [(_FIRST, pairs.first)]:
        shares = (
            [side.counts[aspect, rank] / max(1, side.judged) for rank in range(CLASSES)]
            for aspect in pairs.aspects
        )
        rows.append((name, *(bars(each) if side.judged else None for each in shares)))
    return Table("", ("preference 0 to 1", *pairs.aspects), rows)


def repetition_table(repetition: Repetition) -> Table:
    """Return how many scores of each aspect changed."""
    totals = {"any score": repetition.changed_rows, "rationale": repetition.changed_rationales}
    rows = [
        (name, count, f"{count / repetition.rows:.1%}")
        for name, count in {**repetition.changed, **totals}.items()
    ]
    return Table("", ("aspect", "changed", f"of {repetition.rows}"), rows)
