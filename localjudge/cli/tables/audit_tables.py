"""Terminal tables of an audit: its verdicts, its checks, and the correlations of the aspects."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from localjudge.analysis.audit.findings import Audit
from localjudge.analysis.statistics import Estimate, two_decimals
from localjudge.cli.tables.table_parts import answered, plain_table, title_line
from localjudge.rubrics.score_column import heading
from localjudge.system.quantities import counted

_VERDICTS = ("below", "unsound", "at chance", "doubtful", "untested", "sound", "passed")
"""The verdicts, the worst first."""
_NAMED = ("below", "unsound")
"""The verdicts whose checks are named."""


def audit_tables(audit: Audit, all_tables: bool = False) -> Group:
    """Return the number of checks with each verdict, and the checks.

    The details are the shift of each check, the rows that were not tested, and the halo.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    right = {"held", "chance", "rows"}
    for name in ("check", "a sound judge", "held", "chance", "verdict", "rows"):
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    shifts = plain_table("check", "shift")
    shifts.add_column("not tested", overflow="fold")
    for check in audit.checks:
        cells = (check.held_text, check.chance_text, check.verdict, str(check.rows))
        table.add_row(check.name, check.expected, *cells)
        shifts.add_row(check.name, _shift(check.shift), check.not_tested)
    title = "Shift of the scores, and rows that were not tested"
    details: dict[str, list[RenderableType]] = {
        "shifts and rows that were not tested": [title_line(title, audit.notices), shifts]
    }
    if audit.mean_halo is not None:
        halo = plain_table("aspect", *map(heading, audit.aspects[1:]))
        for row, aspect in enumerate(audit.aspects[:-1]):
            known = [two_decimals(each) for each in audit.halo[row][row + 1 :]]
            halo.add_row(aspect, *[""] * row, *known)
        title = "Correlation of the aspects"
        details["correlation of the aspects"] = [title_line(title, audit.notices), halo]
    return answered([_verdicts(audit)], [table], details, all_tables=all_tables, notices=audit.notices)


def _verdicts(audit: Audit) -> str:
    """Return how many checks have each verdict; those that failed are named."""
    counts = Counter(check.verdict for check in audit.checks)
    parts = []
    for verdict in filter(counts.__getitem__, _VERDICTS):
        names = ", ".join(check.name for check in audit.checks if check.verdict == verdict)
        parts.append(f"{counts[verdict]} {verdict}" + f" ({names})" * (verdict in _NAMED))
    return f"{counted(len(audit.checks), 'check')}: {', '.join(parts)}"


def _shift(shift: Estimate) -> str:
    if shift.value is None:
        return "–"  # noqa: RUF001
    interval = "" if shift.low is None else f" ({shift.low:+.2f} to {shift.high:+.2f})"
    return f"{shift.value:+.2f}{interval}"
