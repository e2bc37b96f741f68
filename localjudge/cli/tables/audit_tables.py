"""Terminal tables of an audit: its checks, and the correlations of the aspects."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table

from localjudge.analysis.audit.findings import Audit
from localjudge.analysis.statistics import Estimate, two_decimals
from localjudge.cli.tables.table_parts import headed
from localjudge.rubrics.score_column import heading
from localjudge.runs.notices import kinds


def audit_tables(audit: Audit) -> Iterator[RenderableType]:
    """Yield the tables for a terminal: the checks, and the halo."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    right = {"held", "chance", "shift", "rows"}
    for name in ("check", "a sound judge", "held", "chance", "verdict", "shift", "rows", "not tested"):
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for check in audit.checks:
        cells = (check.held_text, check.chance_text, check.verdict, _shift(check.shift), str(check.rows))
        table.add_row(check.name, check.expected, *cells, check.not_tested)
    yield headed(audit.notices, table)
    if audit.mean_halo is not None:
        halo = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        halo.add_column("correlation")
        for aspect in audit.aspects[1:]:
            halo.add_column(heading(aspect), justify="right")
        for row, aspect in enumerate(audit.aspects[:-1]):
            known = [two_decimals(each) for each in audit.halo[row][row + 1 :]]
            halo.add_row(aspect, *[""] * row, *known)
        yield headed([kinds(audit.notices)] if audit.notices else (), halo)


def _shift(shift: Estimate) -> str:
    if shift.value is None:
        return "–"  # noqa: RUF001
    interval = "" if shift.low is None else f" ({shift.low:+.2f} to {shift.high:+.2f})"
    return f"{shift.value:+.2f}{interval}"
