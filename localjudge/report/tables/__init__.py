"""The tables of every statistic as values: a command prints them on a terminal, and a report shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from localjudge.statistics import Estimate
from localjudge.studies.by_slice import Sliced

Cell = str | int | float | Estimate | None
"""A text, a count, a number with two decimals, an estimate with its interval, or nothing that is known."""
Cells = tuple[Cell, ...]
_MOST_ESTIMATES = 8
"""Largest number of estimates of a slice that fit a line."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column has names.

    Attributes:
        title: what is above it; empty for nothing.
        columns: the headings.
        rows: the cells of each row.
        totals: further rows, apart from the others.
        words: the headings of columns of words; the others have numbers.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    totals: Sequence[Sequence[Cell]] = ()
    words: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The output of a statistic: sentences, and the tables from which they are derived.

    Attributes:
        answer: the sentences that the output begins with.
        main: the main tables, and remarks below them.
        details: the other tables; their keys say what they are.
        notices: what changes how the numbers are to be read.
        notes: remarks on the tables.
        first: the tables that stand above the sentences.
    """

    answer: Sequence[str]
    main: Sequence[Table | str]
    details: Mapping[str, Sequence[Table | str]] = field(default_factory=dict)
    notices: Sequence[str] = ()
    notes: Sequence[str] = ()
    first: Sequence[Table] = ()


def slice_table(sliced: Sliced) -> Table:
    """Return a line for each slice: its instructions, its estimates, and what is significant.

    With many estimates, each has a line of its own. A change without an interval is in the last column, too,
    with its sign test, whatever its p-value.
    """
    last = "significant, or\nno interval" if sliced.statistic == "changes" else "significant"
    if len(sliced.names) > _MOST_ESTIMATES:
        lines: list[Cells] = []
        for row in sliced.rows:
            known = {name: value for name, value in row.estimates.items() if value.value is not None}
            said = ["\n".join(row.significant), *[""] * len(known)]
            lines += [
                (row.name, row.instructions, *each) for each in zip(known, known.values(), said, strict=False)
            ]
        headings = (sliced.column, "instr.", "of", "value", last)
        return Table(sliced.title, headings, lines, words=["of", last])
    rows = [
        (row.name, row.instructions, *map(row.estimates.get, sliced.names), "\n".join(row.significant))
        for row in sliced.rows
    ]
    columns = (sliced.column, "instr.", *sliced.names, last)
    return Table(sliced.title, columns, rows, words=[last])
