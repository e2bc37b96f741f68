"""Findings in the form that the page of a report reads: sentences, and tables with typed columns."""

from __future__ import annotations

from typing import Any

from localjudge.report.estimate_document import estimate_document
from localjudge.report.tables import Cell, Findings, Table
from localjudge.statistics import Estimate, two_decimals


def findings_document(findings: Findings, opened: int = 0) -> dict[str, Any]:
    """Return findings in the form that the page of a report reads.

    Args:
        findings: the findings.
        opened: the number of tables after the first that are not folded.
    """
    parts = list(findings.main)
    for details in findings.details.values():
        parts += details
    tables: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            tables[-1]["notes"].append(part)
            continue
        table = _table_document(part)
        table["folded"] = len(tables) > opened
        tables.append(table)
    return {"leads": findings.answer, "tables": tables, "notes": list(dict.fromkeys(findings.notes))}


def _table_document(table: Table) -> dict[str, Any]:
    """Return a table; the remarks below it are added to its `notes`."""
    columns = []
    for index, name in enumerate(table.columns):
        column = {
            "name": name.replace("\n", " "),
            "kind": _column_kind(table, index),
            "apart": name in table.apart,
        }
        columns.append(column)
    rows = []
    for row in list(table.rows) + list(table.totals):
        rows.append([_cell_document(cell) for cell in row])
    return {"caption": table.title, "columns": columns, "rows": rows, "notes": []}


def _column_kind(table: Table, index: int) -> str:
    """Return the kind of a column, by its index: the names of the rows, words, or numbers."""
    if index == 0:
        return "text"
    if table.columns[index] in table.words:
        return "word"
    return "number"


def _cell_document(cell: Cell) -> Any:
    """Return a cell; None if it has no value."""
    if isinstance(cell, Estimate):
        if cell.value is None:
            return None
        return estimate_document(cell)
    if isinstance(cell, str):
        return cell.replace("\n", ", ")
    if isinstance(cell, float):
        return two_decimals(cell)
    return cell
