"""The tables of every statistic as values: a command prints them on a terminal, and a report shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localjudge.statistics import Estimate

if TYPE_CHECKING:
    from localjudge.studies.by_system_or_tag import EstimateRow, EstimateTable

Cell = str | int | float | Estimate | None
"""A text, a count, a number with two decimals, an estimate with its interval, or nothing that is known."""
Cells = tuple[Cell, ...]
_MOST_ESTIMATES = 8
"""Largest number of estimates of a system or tag that fit a line."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column has names.

    Attributes:
        title: what is above it; empty for nothing.
        columns: the headings.
        rows: the cells of each row.
        totals: further rows, apart from the others.
        words: the headings of columns of words; the others have numbers.
        apart: the headings of columns whose numbers are in another unit than those of the others, such as
            differences beside scores; the bars of a page compare the numbers of one unit.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    totals: Sequence[Sequence[Cell]] = ()
    words: Collection[str] = ()
    apart: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The output of a statistic: sentences, and the tables from which they are derived.

    Attributes:
        answer: the sentences that the output begins with.
        main: the main tables, and remarks below them.
        details: the other tables; their keys say what they are.
        notices: what changes how the numbers are to be read.
        notes: remarks on the tables.
    """

    answer: Sequence[str]
    main: Sequence[Table | str]
    details: Mapping[str, Sequence[Table | str]] = field(default_factory=dict)
    notices: Sequence[str] = ()
    notes: Sequence[str] = ()


def estimates_by_name(estimates: EstimateTable) -> Table:
    """Return a row for each system or tag: its instructions, its estimates, and what is significant.

    With many estimates, each has a row of its own. What is significant of changes is in their answer, so that
    a wide table fits a terminal.
    """
    with_significant = estimates.statistic != "changes"
    names = _names_of_estimates(estimates)
    rows: list[Cells] = []
    if len(names) > _MOST_ESTIMATES:
        columns = [estimates.column, "instructions", "of", "value"]
        for row in estimates.rows:
            rows += _rows_by_estimate(row, with_significant)
    else:
        columns = [estimates.column, "instructions"] + names
        for row in estimates.rows:
            rows.append(_row_of_estimates(row, with_significant))
    if with_significant:
        columns.append("significant")
    title = f"By {estimates.column}: {estimates.statistic}, with 95 % intervals"
    return Table(title, columns, rows, words=["of", "significant"])


def _names_of_estimates(estimates: EstimateTable) -> list[str]:
    """Return the names of the estimates of all systems or tags."""
    names: list[str] = []
    for row in estimates.rows:
        names += row.estimates
    return list(dict.fromkeys(names))


def _rows_by_estimate(row: EstimateRow, with_significant: bool) -> list[Cells]:
    """Return a row for each estimate of a system or tag; what is significant is in the first."""
    rows: list[Cells] = []
    significant = "\n".join(row.significant)
    for name, estimate in row.estimates.items():
        if estimate.value is None:
            continue
        cells: Cells = (row.name, row.instructions, name, estimate)
        if with_significant:
            cells += (significant,)
        rows.append(cells)
        significant = ""
    return rows


def _row_of_estimates(row: EstimateRow, with_significant: bool) -> Cells:
    """Return one row with all estimates of a system or tag."""
    cells: Cells = (row.name, row.instructions)
    cells += tuple(row.estimates.values())
    if with_significant:
        cells += ("\n".join(row.significant),)
    return cells
