"""Tables on a terminal, each value above its interval, an en dash for what is undefined; lists of checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from localjudge.cli.console import Console
from localjudge.cli.messages import in_flags
from localjudge.cli.options import print_json
from localjudge.report.tables import Cell, Findings, Table
from localjudge.rubrics.score_column import heading
from localjudge.runs.notices import kinds
from localjudge.statistics import Estimate, two_decimals
from localjudge.verification import Check, State

_WHOLE_NAME = 40
"""Largest width of a name that is not folded beside words."""


def printed_findings(found: Findings, all_tables: bool = False) -> Group:
    """Return the output of a statistic: notices, tables above the answer, the answer, the main tables, the
    details, and notes.

    Without `all_tables`, a line names the details.
    """
    parts = [*found.main]
    if all_tables:
        parts += [part for parts in found.details.values() for part in parts]
    last = [Text(note, style="yellow") for note in dict.fromkeys(found.notes)]
    if found.details and not all_tables:
        last.append(Text(f"--all also prints: {', '.join(found.details)}", style="dim"))
    first = ["\n".join(found.answer)] if found.answer else []
    return Group(printed([*found.first, *first, *parts], found.notices), *last)


def printed(parts: Iterable[Table | str], notices: Sequence[str] = ()) -> Group:
    """Return tables and lines with an empty line after each, and the notices above them."""
    shown = (Text(part) if isinstance(part, str) else printed_table(part, notices) for part in parts)
    return headed(notices, *(line for part in shown for line in (part, "")))


def printed_table(table: Table, notices: Sequence[str] = ()) -> Group:
    """Return a table below its title, which has the kinds of the run's notices."""
    found = TerminalTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    # Words are folded before names are.
    longest = max((len(str(row[0])) for row in table.rows), default=0) if table.words else 0
    found.add_column(heading(table.columns[0]), overflow="fold", min_width=max(8, min(longest, _WHOLE_NAME)))
    for name in table.columns[1:]:
        if name in table.words:
            found.add_column(name, overflow="fold")
        else:
            found.add_column(heading(name), justify="right", no_wrap=True)
    for row in table.rows:
        found.add_row(*map(_printed, row))
    if table.totals:
        found.add_section()
    for row in table.totals:
        found.add_row(*map(_printed, row))
    title = " · ".join([table.title, kinds(notices)] if notices else [table.title])
    return Group(*[Text(title, style="bold")] * bool(table.title), found)


def headed(found: Iterable[str], *tables: RenderableType) -> Group:
    """Return the tables with the notices above them, one in each line, so that a copied table keeps them."""
    return Group(*(Text(notice, style="yellow") for notice in found), *tables)


def _printed(cell: Cell) -> Text | str:
    if isinstance(cell, Estimate) and (ends := cell.ends(" ")) is not None:
        return Text.assemble(f"{two_decimals(cell.value)}\n", (ends, "dim"))
    if isinstance(cell, str | int):
        return cell if isinstance(cell, str) else f"{cell:,}"
    return two_decimals(cell.value if isinstance(cell, Estimate) else cell)


_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "note": ("!", "yellow"),
    "wrong": ("✗", "red"),
}


def print_checks(checks: Sequence[Check], as_json: bool) -> None:
    """Print the results of checks as a list or as JSON."""
    checks = [replace(each, found=in_flags(each.found), fix=in_flags(each.fix)) for each in checks]
    if as_json:
        print_json(checks, indent=2)
    else:
        Console(soft_wrap=True).print(_checklist(checks))


def _checklist(checks: Sequence[Check]) -> Text:
    """Return one terminal line per check: a mark, its state, its name, what was found, and the fix."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        mark, colour = _MARKS[check.state]
        said = f"{check.found} → {check.fix}" if check.fix else check.found
        lines.append(
            Text.assemble(
                (f"{mark} {check.state:<5}", colour),
                f" {check.name:<{width}}  {' '.join(said.split())}",
            )
        )
    return Text("\n").join(lines)
