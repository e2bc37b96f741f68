"""The terminal table of a statistic by slices."""

from __future__ import annotations

from rich.console import Group

from localjudge.analysis.by_slice import Sliced
from localjudge.cli.tables.table_parts import plain_table, stacked, title_line
from localjudge.rubrics.score_column import heading
from localjudge.system.quantities import counted


def slice_table(sliced: Sliced) -> Group:
    """Return a line for each slice: its instructions, its estimates, and what is significant."""
    title = f"By {sliced.column}: {sliced.statistic}, with 95 % intervals"
    names = dict.fromkeys(name for row in sliced.rows for name in row.estimates)
    has_tests = any(row.significant for row in sliced.rows)
    table = plain_table(sliced.column, "instr.", *map(heading, names), *["significant"] * has_tests)
    for row in sliced.rows:
        estimates = [stacked(row.estimates[name]) if name in row.estimates else "" for name in names]
        table.add_row(row.name, f"{row.instructions:,}", *estimates, *["\n".join(row.significant)] * has_tests)
    adjusted = f"Differences and agreement are adjusted for {counted(len(sliced.rows), 'slice')}."
    return Group("", title_line(title, ()), table, adjusted)
