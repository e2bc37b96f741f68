"""Output on stdout: a console that makes text from outside printable, tables, lists of checks, and JSON.

In a table, each value stands above its interval, with an en dash for what is undefined. It loads Rich.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import rich.console
from rich.console import Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from localjudge.cli.commands import in_flags
from localjudge.secret_texts import without_secrets
from localjudge.system.terminal import open_null, printable, unfiltered

if TYPE_CHECKING:
    from localjudge.report.tables import Cell, Findings, Table
    from localjudge.verification import Check, State

_WHOLE_NAME = 40
"""Largest width of a name that is not folded beside words."""


class Console(rich.console.Console):
    """A console on stdout or stderr. Text from outside stays in its cell and cannot add control codes."""

    def __init__(self, *, stderr: bool = False, width: int | None = None, soft_wrap: bool = False) -> None:
        super().__init__(
            file=unfiltered(sys.stderr if stderr else sys.stdout),
            stderr=stderr,
            width=width,
            soft_wrap=soft_wrap,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor as it is, because a program that is killed cannot show it again."""
        return False

    def on_broken_pipe(self) -> None:
        """Go on without messages if this is stderr, as the filter does."""
        if not self.stderr:
            raise
        self.quiet = True
        open_null(self.file.fileno())

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        return super().render(_safe(renderable) if isinstance(renderable, Text) else renderable, options)


def _safe(text: Text) -> Text:
    """Return the text with printable characters only, without secrets, and its styles in place."""
    hidden = without_secrets(text.plain)
    if hidden != text.plain:
        return Text(printable(hidden), style=text.style)
    if (shown := printable(text.plain)) == text.plain:
        return text
    places = [0, *accumulate(len(printable(character)) for character in text.plain)]
    safe = text.copy()
    safe.plain = shown
    safe.spans = [span._replace(start=places[span.start], end=places[span.end]) for span in text.spans]
    return safe


def print_table(table: object) -> None:
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def as_text(table: object) -> str:
    """Return a table as text without colours, for a file."""
    text = "".join(segment.text for segment in Console(width=120).render(table))  # type: ignore[arg-type]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def as_markdown(table: Table) -> str:
    """Return a table as Markdown; the characters of text that could be markup are references to them."""

    def cell(value: Cell) -> str:
        said = " ".join(str(_printed(value)).split())
        if not isinstance(value, str):
            return said
        safe = (each if each.isalnum() or each in " ,.%" else f"&#{ord(each)};" for each in said)
        return "".join(safe).replace("www.", "www&#46;")

    rule = ["---", *(":--" if name in table.words else "--:" for name in table.columns[1:])]
    lines = [[*map(cell, table.columns)], rule, *([*map(cell, row)] for row in table.rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def print_json(document: object, indent: int | None = None) -> None:
    """Print a document as JSON; in ASCII where stdout cannot hold other characters."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(document, ensure_ascii=not is_unicode, indent=indent))


def printed_findings(found: Findings, all_tables: bool = False) -> Group:
    """Return the output of a statistic: notices, the answer, the main tables, the details and notes.

    Without `all_tables`, a line names the details.
    """
    details = [part for parts in found.details.values() for part in parts] if all_tables else []
    last: list[RenderableType] = [Text(note, style="yellow") for note in dict.fromkeys(found.notes)]
    if found.details and not all_tables:
        last.append(Text(f"--all also prints: {', '.join(found.details)}", style="dim"))
    answer = ["\n".join(found.answer)] if found.answer else []
    return Group(printed([*answer, *found.main, *details], found.notices), *last)


def printed(parts: Iterable[Table | str], notices: Sequence[str] = ()) -> Group:
    """Return tables and lines with an empty line after each, and the notices above them."""
    shown = (Text(part) if isinstance(part, str) else printed_table(part, notices) for part in parts)
    return headed(notices, *(line for part in shown for line in (part, "")))


def printed_table(table: Table, notices: Sequence[str] = ()) -> Group:
    """Return a table below its title, which has the kinds of the run's notices."""
    from rich import box
    from rich.table import Table as TerminalTable

    from localjudge.rubrics.score_column import heading
    from localjudge.runs.notices import kinds

    found = TerminalTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    # Words are folded before names are.
    names = [line for row in table.rows for line in str(row[0]).split("\n")]
    longest = max(map(len, names), default=0) if table.words else 0
    found.add_column(
        heading(table.columns[0]),
        overflow="fold",
        min_width=max(8, min(longest, _WHOLE_NAME)),
        no_wrap=0 < longest <= _WHOLE_NAME,
    )
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
    from localjudge.statistics import Estimate, two_decimals

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
        print_json([_check_document(check) for check in checks], indent=2)
    else:
        Console(soft_wrap=True).print(_checklist(checks))


def _check_document(check: Check) -> dict[str, Any]:
    """Return a check as `localjudge doctor --json` and `models verify --json` have it."""
    return {"name": check.name, "state": check.state, "found": check.found, "fix": check.fix}


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
