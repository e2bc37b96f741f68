"""Parts that the terminal tables of all statistics share: a value above its 95 % interval, titles and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.interval import Estimate
from localjudge.runs.notices import kinds

UNDEFINED_SIGN = "–"  # noqa: RUF001


def title_line(text: str, notices: Sequence[str]) -> Text:
    """Return the title of a table, with the kinds of the run's notices."""
    return Text(" · ".join([text, kinds(notices)] if notices else [text]), style="bold")


def plain_table(*names: str) -> Table:
    """Return a table whose first column has names and the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(names[0], overflow="fold", min_width=8)
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def stacked(estimate: Estimate) -> Text | str:
    """Return the value, with its interval below it."""
    if (interval := _interval(estimate, " ")) is None:
        return two_decimals(estimate.value)
    return Text.assemble(f"{two_decimals(estimate.value)}\n", (interval, "dim"))


def inline(estimate: Estimate) -> str:
    """Return the value, with its interval in brackets."""
    interval = _interval(estimate, " to ")
    return two_decimals(estimate.value) + ("" if interval is None else f" ({interval})")


def _interval(estimate: Estimate, between: str) -> str | None:
    """Return the ends of an interval; "≥" or "≤" and the only end of one that is open."""
    if estimate.low is None:
        return None if estimate.high is None else f"≤ {_bare(estimate.high)}"
    if estimate.high is None:
        return f"≥ {_bare(estimate.low)}"
    return f"{_bare(estimate.low)}{between}{_bare(estimate.high)}"


def two_decimals(value: float | None) -> str:
    return UNDEFINED_SIGN if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def _bare(value: float) -> str:
    """Return the value with two decimals and no leading zero, as is usual for statistics from -1 to 1."""
    text = f"{value:.2f}".replace("-0.00", "0.00")
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def spaced(parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    """Yield the parts with an empty line after each that is not a title."""
    for part in parts:
        yield part
        if not (isinstance(part, Text) and part.style == "bold"):
            yield ""


def note_lines(notes: Sequence[str]) -> Iterator[Text]:
    for note in dict.fromkeys(notes):
        yield Text(note, style="yellow")
