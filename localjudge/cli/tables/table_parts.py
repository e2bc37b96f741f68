"""Parts of the terminal tables of all statistics: their order, titles, and values above their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.statistics import Estimate, two_decimals
from localjudge.runs.notices import kinds


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
    if (ends := estimate.ends(" ")) is None:
        return two_decimals(estimate.value)
    return Text.assemble(f"{two_decimals(estimate.value)}\n", (ends, "dim"))


def spaced(parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    """Yield the parts with an empty line after each that is not a title."""
    for part in parts:
        yield part
        if not (isinstance(part, Text) and part.style == "bold"):
            yield ""


def answered(
    answer: Iterable[str],
    main: Sequence[RenderableType],
    details: Mapping[str, Sequence[RenderableType]],
    *,
    all_tables: bool,
    notices: Iterable[str],
    notes: Iterable[str] = (),
) -> Group:
    """Return the output of a statistic: notices, the answer, the main table, the details, and notes.

    Args:
        answer: the sentences that the output begins with.
        main: the main table, below its title.
        details: the other tables and lines; their keys say what they are, in the line that replaces them.
        all_tables: whether to include the details.
        notices: what changes how the numbers are to be read; they come before the answer.
        notes: remarks on the tables.
    """
    first = "\n".join(answer)
    shown = [*[Text(first)] * bool(first), *main]
    if all_tables:
        shown += [part for parts in details.values() for part in parts]
    last = [Text(note, style="yellow") for note in dict.fromkeys(notes)]
    if details and not all_tables:
        last.append(Text(f"--all also prints: {', '.join(details)}", style="dim"))
    return headed(notices, *spaced(shown), *last)


def headed(found: Iterable[str], *tables: RenderableType) -> Group:
    """Return the tables with the notices above them, one in each line, so that a copied table keeps them."""
    return Group(*(Text(notice, style="yellow") for notice in found), *tables)
