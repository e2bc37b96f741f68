"""The tables of every statistic as values: a command prints them on a terminal, and a report shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from localjudge.report.noise_lines import noise_line
from localjudge.statistics import Estimate, two_decimals

if TYPE_CHECKING:
    from localjudge.runs.summary import Summary
    from localjudge.studies.by_system_or_tag import EstimateTable

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

    def for_page(self, opened: int = 0) -> dict[str, Any]:
        """Return the findings in the form that the page of a report reads.

        Args:
            opened: the number of tables after the first that are not folded.
        """
        tables: list[dict[str, Any]] = []
        for part in (*self.main, *(part for parts in self.details.values() for part in parts)):
            if isinstance(part, str):
                tables[-1]["notes"].append(part)
                continue
            kinds = ["text", *("word" if name in part.words else "number" for name in part.columns[1:])]
            columns = [
                {"name": name.replace("\n", " "), "kind": kind, "apart": name in part.apart}
                for name, kind in zip(part.columns, kinds, strict=True)
            ]
            rows = [[*map(_on_page, row)] for row in (*part.rows, *part.totals)]
            shown = {"caption": part.title, "columns": columns, "rows": rows, "notes": []}
            tables.append({**shown, "folded": len(tables) > opened})
        return {"leads": self.answer, "tables": tables, "notes": [*dict.fromkeys(self.notes)]}


def joined(findings: Sequence[tuple[str, Findings]]) -> Findings | None:
    """Return the findings on several runs as one; the sentences and titles of each have the name of its runs,
    if these differ, and the systems of a sentence do not repeat it.

    Args:
        findings: each after the name of its runs; for none, the result is None.
    """
    if len(findings) < 2:
        return findings[0][1] if findings else None

    differ = len({name for name, _ in findings}) > 1

    def said(name: str, line: str) -> str:
        return f"{name}: {line.replace(f' · {name}', '')}" if differ else line

    def named(name: str, parts: Sequence[Any]) -> list[Any]:
        return [
            replace(part, title=f"{part.title} · {name}".removeprefix(" · "))
            if isinstance(part, Table) and differ
            else part
            for part in parts
        ]

    details = [(key, named(name, parts)) for name, found in findings for key, parts in found.details.items()]
    return Findings(
        [*dict.fromkeys(said(name, line) for name, found in findings for line in found.answer)],
        [part for name, found in findings for part in named(name, found.main)],
        {key: [part for other, parts in details if other == key for part in parts] for key, _ in details},
        [notice for _, found in findings for notice in found.notices],
        [note for _, found in findings for note in found.notes],
    )


def estimates_by_name(found: EstimateTable) -> Table:
    """Return a line for each system or tag: its instructions, its estimates, and what is significant.

    With many estimates, each has a line of its own. What is significant of changes is in their answer, so that
    a wide table fits a terminal.
    """
    rows, names = list[Cells](), dict.fromkeys(name for row in found.rows for name in row.estimates)
    if len(names) > _MOST_ESTIMATES:
        columns = [found.column, "instructions", "of", "value", "significant"]
        for row in found.rows:
            known = {name: value for name, value in row.estimates.items() if value.value is not None}
            said = ["\n".join(row.significant), *[""] * len(known)]
            each = zip(known, known.values(), said, strict=False)
            rows += [(row.name, row.instructions, *cells) for cells in each]
    else:
        columns = [found.column, "instructions", *names, "significant"]
        for row in found.rows:
            rows.append((row.name, row.instructions, *row.estimates.values(), "\n".join(row.significant)))
    shown = len(columns) - (found.statistic == "changes")
    title = f"By {found.column}: {found.statistic}, with 95 % intervals"
    return Table(title, columns[:shown], [row[:shown] for row in rows], words=["of", "significant"])


def summary_tables(summary: Summary) -> Iterator[Table | str]:
    """Yield the numbers of the systems, one system in each row, and what only rows of their mode have."""
    systems = {name or "(none)": counts for name, counts in summary.by_system().items()}
    found = summary.rubric.mode.mean_table(systems, summary.rubric.row_columns)
    counts = {found.rows: [each.judged for each in systems.values()]}
    if any(each.failed for each in systems.values()):
        counts["failed"] = [each.failed for each in systems.values()]
    if found.unscored and any(each.unscored(found.unscored) for each in systems.values()):
        counts["without score"] = [each.unscored(found.unscored) for each in systems.values()]
    columns: dict[str, Sequence[float | None]] = {**found.columns, **counts}
    if systems:
        rows: list[Cells] = [*zip(systems, *columns.values(), strict=True)]
        yield Table(found.title, (found.systems, *columns), rows)
    if found.tags is not None and found.tags.means:
        of_tags = [(tag, *means) for tag, means in found.tags.means.items()]
        yield Table("The same, of the criteria with each tag", (found.tags.heading, *systems), of_tags)
    lines = [*summary.signs.details.lines()]
    if summary.noise is not None:
        lines.append(noise_line(summary.noise, summary.rubric.mode))
    if lines:
        yield "\n".join(lines)


def _on_page(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        return None if cell.value is None else cell.as_dict() | ({"why": cell.why} if cell.why else {})
    if isinstance(cell, str):
        return cell.replace("\n", ", ")
    return two_decimals(cell) if isinstance(cell, float) else cell
