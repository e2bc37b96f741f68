"""The terminal table of a statistic by slices."""

from __future__ import annotations

from rich.console import Group

from localjudge.analysis.by_slice import Sliced
from localjudge.cli.tables.table_parts import plain_table, stacked, title_line
from localjudge.rubrics.score_column import heading


def slice_table(sliced: Sliced) -> Group:
    """Return a line for each slice: its instructions, its estimates, and what is significant."""
    names, has_tests = sliced.names, any(row.significant for row in sliced.rows)
    table = plain_table(sliced.column, "instr.", *map(heading, names), *["significant"] * has_tests)
    for row in sliced.rows:
        estimates = [stacked(row.estimates[name]) if name in row.estimates else "" for name in names]
        table.add_row(row.name, f"{row.instructions:,}", *estimates, *["\n".join(row.significant)] * has_tests)
    return Group("", title_line(sliced.title, ()), table, sliced.note)
