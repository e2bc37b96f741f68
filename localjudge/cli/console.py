"""Output on stdout: a console that makes text from outside printable, tables, and JSON.

In a table, each value stands above its interval, with an en dash for what is undefined. It loads Rich.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import rich.console
from rich.console import Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from localjudge.secret_texts import without_secrets
from localjudge.system.terminal import open_null, printable, unfiltered

if TYPE_CHECKING:
    from localjudge.report.tables import Cell, Findings, Table

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
        if isinstance(renderable, Text):
            renderable = _safe(renderable)
        return super().render(renderable, options)


def _safe(text: Text) -> Text:
    """Return the text with printable characters only, without secrets, and its styles in place."""
    without_secret = without_secrets(text.plain)
    if without_secret != text.plain:
        return Text(printable(without_secret), style=text.style)
    shown = printable(text.plain)
    if shown == text.plain:
        return text
    shown_lengths = (len(printable(character)) for character in text.plain)
    shown_offsets = list(accumulate(shown_lengths, initial=0))
    safe = text.copy()
    safe.plain = shown
    safe.spans = [
        span._replace(start=shown_offsets[span.start], end=shown_offsets[span.end]) for span in text.spans
    ]
    return safe


def print_table(table: object) -> None:
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def as_text(table: object) -> str:
    """Return a table as text without colours, for a file."""
    segments = Console(width=120).render(table)  # type: ignore[arg-type]
    text = "".join(segment.text for segment in segments)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def as_markdown(table: Table) -> str:
    """Return a table as Markdown; the characters of text that could be markup are references to them."""
    alignments = ["---"]
    for name in table.columns[1:]:
        alignments.append(":--" if name in table.words else "--:")
    lines = [_markdown_line([_markdown_cell(name) for name in table.columns]), _markdown_line(alignments)]
    lines += [_markdown_line([_markdown_cell(cell) for cell in row]) for row in table.rows]
    return "".join(lines)


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _markdown_cell(cell: Cell) -> str:
    """Return a cell as one line of Markdown; a text as characters that are no markup."""
    words = str(_printed(cell)).split()
    line = " ".join(words)
    if not isinstance(cell, str):
        return line
    characters = [_without_markup(character) for character in line]
    return "".join(characters).replace("www.", "www&#46;")


def _without_markup(character: str) -> str:
    """Return a character that could be markup as a reference to it."""
    if character.isalnum() or character in " ,.%":
        return character
    return f"&#{ord(character)};"


def print_json(document: object, indent: int | None = None) -> None:
    """Print a document as JSON; in ASCII where stdout cannot hold other characters."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(document, ensure_ascii=not is_unicode, indent=indent))


def printed_findings(findings: Findings, *, all_tables: bool) -> Group:
    """Return the output of a statistic: notices, the answer, the main tables, the details and notes.

    Without `all_tables`, a line names the details.
    """
    parts: list[Table | str] = []
    if findings.answer:
        parts.append("\n".join(findings.answer))
    parts.extend(findings.main)
    if all_tables:
        for detail in findings.details.values():
            parts.extend(detail)
    notes = [Text(note, style="yellow") for note in dict.fromkeys(findings.notes)]
    if findings.details and not all_tables:
        notes.append(Text(f"--all also prints: {', '.join(findings.details)}", style="dim"))
    return Group(printed(parts, findings.notices), *notes)


def printed(parts: Iterable[Table | str], notices: Sequence[str] = ()) -> Group:
    """Return tables and lines with an empty line after each, and the notices above them."""
    shown: list[RenderableType] = []
    for part in parts:
        shown.append(Text(part) if isinstance(part, str) else printed_table(part, notices))
        shown.append("")
    return headed(notices, *shown)


def printed_table(table: Table, notices: Sequence[str] = ()) -> Group:
    """Return a table below its title, which has the kinds of the run's notices."""
    from rich import box
    from rich.table import Table as TerminalTable

    from localjudge.rubrics.score_column import heading
    from localjudge.runs.notices import kinds

    grid = TerminalTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    name_width = _name_width(table)
    grid.add_column(
        heading(table.columns[0]),
        overflow="fold",
        min_width=max(8, min(name_width, _WHOLE_NAME)),
        no_wrap=0 < name_width <= _WHOLE_NAME,
    )
    for name in table.columns[1:]:
        if name in table.words:
            grid.add_column(name, overflow="fold")
        else:
            grid.add_column(heading(name), justify="right", no_wrap=True)
    for row in table.rows:
        grid.add_row(*map(_printed, row))
    if table.totals:
        grid.add_section()
    for row in table.totals:
        grid.add_row(*map(_printed, row))
    if not table.title:
        return Group(grid)
    title = table.title
    if notices:
        title = f"{title} · {kinds(notices)}"
    return Group(Text(title, style="bold"), grid)


def _name_width(table: Table) -> int:
    """Return the width of the widest name beside words, which are folded first; 0 without words."""
    if not table.words:
        return 0
    widths = [len(line) for row in table.rows for line in str(row[0]).split("\n")]
    return max(widths, default=0)


def headed(notices: Iterable[str], *tables: RenderableType) -> Group:
    """Return the tables with the notices above them, one in each line, so that a copied table keeps them."""
    lines = [Text(notice, style="yellow") for notice in notices]
    return Group(*lines, *tables)


def _printed(cell: Cell) -> Text | str:
    """Return a cell as it is printed: an estimate above its interval, a dash for None."""
    from localjudge.statistics import Estimate, two_decimals

    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if not isinstance(cell, Estimate):
        return two_decimals(cell)
    value = two_decimals(cell.value)
    ends = cell.ends(" ")
    if ends is None:
        return value
    return Text.assemble(f"{value}\n", (ends, "dim"))
