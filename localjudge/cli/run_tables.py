"""Terminal tables of a run: the means or win rates, how often each score occurs, and a repetition."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.statistics import UNDEFINED_SIGN, two_decimals
from localjudge.cli.printed_tables import headed
from localjudge.rubrics.score_column import heading, is_share
from localjudge.runs.pair_summary import CLASSES, PairSummary
from localjudge.runs.repeat import Repetition
from localjudge.runs.summary import Summary
from localjudge.system.quantities import bars

_MOST_BARS = 10
"""Largest number of bars for one aspect; a scale with more values is divided into this many intervals."""
_FIRST = "first response"
"""Name of the first responses of pairs whose systems are not known."""


def summary_table(summary: Summary) -> RenderableType:
    """Return the means or win rates as a terminal table, one system in each row.

    The mean of a column is that of the expected scores if all judged rows have them, as in `rank`.
    """
    if summary.pairs:
        return _pairs_table(summary.pairs)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("system", overflow="fold", min_width=8)
    counts = ("n", "failed") if summary.failed else ("n",)
    for text in (*(heading(column.name) for column in summary.columns), *counts):
        table.add_column(text, justify="right", no_wrap=True)
    measured = {
        column.name
        for column in summary.columns
        if all(system.expected[column.name] == system.judged for system in summary.systems.values())
    }
    for name, system in summary.by_system():
        cells = [
            two_decimals((system.mean_expected if column.name in measured else system.mean)(column.name))
            for column in summary.columns
        ]
        rows = (system.judged, system.failed) if summary.failed else (system.judged,)
        table.add_row(name or "(none)", *cells, *map(str, rows))
    return Group(Text(_title(summary, measured), style="bold"), table)


def summary_chart(summary: Summary) -> Table:
    """Return a terminal table of the frequencies of the scores, lowest first, one system in each row.

    For pairs, these are the frequencies of the preferences.
    """
    if summary.pairs:
        return _pairs_chart(summary.pairs)
    ends = {f"{column.lowest} to {column.highest}" for column in summary.columns}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(ends.pop() if len(ends) == 1 else "low to high", overflow="fold", min_width=8)
    for column in summary.columns:
        table.add_column(heading(column.name), justify="right", no_wrap=True)
    for name, system in summary.by_system():
        cells = []
        for column in summary.columns:
            values = sorted(set(column.numbers.values()))
            most = min(len(values), _MOST_BARS)
            shares = [0.0] * most
            for rank, value in enumerate(values):
                share = system.counts[column.name, value] / max(1, system.judged)
                shares[rank * most // len(values)] += share
            cells.append(bars(shares) if system.judged else "–")  # noqa: RUF001
        table.add_row(name or "(none)", *cells)
    return table


def _title(summary: Summary, measured: set[str]) -> str:
    """Return the title of the table of means: of which scores they are."""
    what = "Shares of labels" if all(is_share(column.name) for column in summary.columns) else "Mean scores"
    integers = [column.name for column in summary.columns if column.name not in measured]
    if not integers:
        return what.replace("scores", "expected scores") + " of the systems"
    if not measured:
        return what.replace("scores", "integer scores") + " of the systems"
    return f"Mean expected scores of the systems (integer scores of {', '.join(integers)})"


def _pairs_table(pairs: PairSummary) -> RenderableType:
    """Return the win rates as a terminal table, one system in each row, and a line on each aspect."""
    lines = [pairs.line(name) for name in pairs.aspects]
    if not pairs.sides:
        return Group(*lines)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("win rate of", overflow="fold", min_width=11)
    counts = ("pairs", "failed") if pairs.failed else ("pairs",)
    for text in (*pairs.aspects, *counts):
        table.add_column(text, justify="right", no_wrap=True)
    for name, side in sorted(pairs.sides.items()):
        rates = [two_decimals(side.win_rate(aspect)) for aspect in pairs.aspects]
        numbers = (side.judged, side.failed) if pairs.failed else (side.judged,)
        table.add_row(name, *rates, *map(str, numbers))
    return Group(table, *lines)


def _pairs_chart(pairs: PairSummary) -> Table:
    """Return a terminal table of the frequencies of the preferences, one system in each row."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("preference 0 to 1", overflow="fold", min_width=17)
    for aspect in pairs.aspects:
        table.add_column(aspect, justify="right", no_wrap=True)
    for name, side in sorted(pairs.sides.items()) or [(_FIRST, pairs.first)]:
        cells = [
            bars([side.counts[aspect, rank] / side.judged for rank in range(CLASSES)])
            if side.judged
            else UNDEFINED_SIGN
            for aspect in pairs.aspects
        ]
        table.add_row(name, *cells)
    return table


def repetition_table(repetition: Repetition) -> Group:
    """Return how many scores of each aspect changed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("aspect", "changed", f"of {repetition.rows}"):
        table.add_column(title, justify="left" if title == "aspect" else "right")
    totals = {"any score": repetition.changed_rows, "rationale": repetition.changed_rationales}
    counts = {**repetition.changed, **totals}
    for name, count in counts.items():
        table.add_row(name, str(count), f"{count / repetition.rows:.1%}")
    return headed(repetition.notices, table)
