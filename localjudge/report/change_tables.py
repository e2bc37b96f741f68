"""Tables of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.report.change_lines import change_lines, change_notes, compared_systems, remark_lines
from localjudge.report.changed_row_lines import (
    lines_without_scores,
    moved_lines,
    rows_within_noise,
    why_without_score,
)
from localjudge.report.gate_tables import gate_details, gate_parts
from localjudge.report.tables import Cells, Findings, Table
from localjudge.report.two_judge_lines import MEASURE_NAMES
from localjudge.studies.compare import Changes
from localjudge.studies.compare.moved_rows import MovedRow
from localjudge.studies.compare.two_judges import TwoJudges
from localjudge.studies.conditions import Condition
from localjudge.system.quantities import counted, p_value

_MOST_ESTIMATES = 8
"""Largest number of changes of a system that fit a line."""


def change_findings(changes: Changes, conditions: Sequence[Condition] = ()) -> Findings:
    """Return whether scores changed, in three sentences, and then the gate or, without one, the changes.

    Which rows have no score, and which moved most, stands below. The details are all other tables.
    """
    columns = _column_parts(changes)
    asked = [condition.threshold.column for condition in conditions if condition.threshold.column]
    below = list(lines_without_scores(changes))
    below += moved_lines(changes, asked)
    below += rows_within_noise(changes)
    details: dict[str, list[Table | str]] = {}
    if conditions:
        main = gate_parts(conditions)
        details |= gate_details(conditions)
        details["the changes of the columns"] = columns
    else:
        main = columns
    if below:
        main = main + ["\n".join(below)]
    if changes.by_system:
        details["the changes of each system"] = [_systems(changes)]
    if changes.moved:
        details["the rows that changed most"] = [_moved_rows(changes)]
    without_score = _rows_without_score(changes)
    if without_score.rows:
        details["rows without a score"] = [without_score]
    return Findings(
        list(change_lines(changes)),
        main,
        details=details,
        notices=changes.runs.notices,
        notes=change_notes(changes.runs),
    )


def _column_parts(changes: Changes) -> list[Table | str]:
    """Return the tables of the changes of the columns and of two judges, and remarks below them."""
    parts: list[Table | str] = []
    if changes.columns:
        parts.append(_columns(changes))
    if changes.judges is not None:
        parts.append(_judges(changes.judges))
    if changes.labelled:
        parts.append(_labelled(changes))
    if any(labelled.order for labelled in changes.labelled.values()):
        parts.append(_orders_by_people(changes))
    remarks = list(remark_lines(changes))
    if remarks:
        parts.append("\n".join(remarks))
    return parts


def _columns(changes: Changes) -> Table:
    """Return the change of each column of the common rows, and beside it with lost rows at the lowest score."""
    old, new = changes.runs.names
    columns = ["column", old, new, "change"]
    apart = ["change"]
    if changes.imputed:
        columns.append("lost at\nlowest")
        apart.append("lost at\nlowest")
    columns += ["p", f"equal\nof {changes.runs.instructions:,}", "detectable\nchange"]
    rows: list[Cells] = []
    for name, change in changes.columns.items():
        cells: Cells = (name, change.old, change.new, change.difference)
        if changes.imputed:
            cells += (changes.imputed[name],)
        cells += (p_value(change.p), change.equal, change.detectable)
        rows.append(cells)
    title = [f"{old} → {new}"]
    systems = compared_systems(changes.runs)
    if systems:
        title.append(systems)
    title.append(counted(changes.runs.rows, changes.runs.item))
    if changes.runs.only_common:
        title.append("the common rows alone")
    return Table(" · ".join(title), columns, rows=rows, apart=apart)


def _judges(judges: TwoJudges) -> Table:
    """Return kappa, and the order of the systems by the two judges if there are several systems."""
    columns = ["aspect", "kappa"]
    if judges.order:
        columns += ["pairs of systems\nin the same order", "in opposite\norder", "not decided"]
    rows: list[Cells] = []
    for name in dict.fromkeys(list(judges.kappa) + list(judges.order)):
        cells: Cells = (name, judges.kappa.get(name, ""))
        if name in judges.order:
            order = judges.order[name]
            cells += (order.alike, len(order.contrary), order.undecided)
        elif judges.order:
            cells += ("", "", "")
        rows.append(cells)
    return Table("Agreement of the two judges", columns, rows=rows)


def _labelled(changes: Changes) -> Table:
    """Return the agreement of both judges with the labels in each measure."""
    rows: list[Cells] = []
    for aspect, labelled in changes.labelled.items():
        for measure, agreement in labelled.measures.items():
            name = MEASURE_NAMES[measure]
            rows.append((aspect, name, agreement.old, agreement.new, agreement.difference, labelled.rows))
    old, new = changes.runs.names
    columns = ("aspect", "statistic", old, new, "difference", "rows")
    return Table("Agreement with the labels", columns, rows=rows, apart=["difference"])


def _orders_by_people(changes: Changes) -> Table:
    """Return how many pairs of systems each judge puts in the order of people."""
    rows: list[Cells] = []
    for aspect, labelled in changes.labelled.items():
        for judge, order in labelled.order.items():
            rows.append((aspect, judge, order.alike, len(order.contrary), order.undecided))
    columns = (
        "aspect",
        "judge",
        "pairs of systems\nin the order of people",
        "in opposite\norder",
        "not decided",
    )
    return Table("Order of the systems by each judge and by people", columns, rows=rows, words=["judge"])


def _systems(changes: Changes) -> Table:
    """Return the changes of each system; with many columns, each change has a line of its own."""
    title = "By system: changes, with 95 % intervals"
    rows: list[Cells] = []
    if len(changes.columns) <= _MOST_ESTIMATES:
        for system in changes.by_system:
            differences = tuple(change.difference for change in system.columns.values())
            rows.append((system.system, system.instructions) + differences)
        return Table(title, ["system", "instructions"] + list(changes.columns), rows=rows)
    for system in changes.by_system:
        for name, change in system.columns.items():
            if change.difference.value is not None:
                rows.append((system.system, system.instructions, name, change.difference))
    return Table(title, ["system", "instructions", "of", "value"], rows=rows, words=["of"])


def _rows_without_score(changes: Changes) -> Table:
    """Return the rows of each run without a score."""
    old, new = changes.runs.names
    uncompared = changes.runs.uncompared
    rows: list[Cells] = []
    for row in uncompared.missing + uncompared.failed:
        rows.append((row.id, row.system, old, why_without_score(row, new)))
    for row in uncompared.unmatched:
        rows.append((row.id, row.system, new, why_without_score(row, new)))
    return Table("Rows without a score", ("row", "system", "row of", "why"), rows=rows, words=["why"])


def _moved_rows(changes: Changes) -> Table:
    """Return the rows that changed most, with what they are sorted by: the numbers that are compared."""
    first = changes.moved[0]
    names = list(first.verdicts)
    for name in first.numbers:
        aspect, _, _ = name.partition("=")
        if aspect not in first.verdicts:  # the share of a label stands beside the verdict of its aspect
            names.append(name)
    rows: list[Cells] = []
    for row in changes.moved:
        numbers = tuple(_from_to(row, name) for name in names)
        rows.append((row.id, row.system, row.moved) + numbers)
    title = "Rows that changed most: the mean change of their columns, where 1 is the whole scale"
    return Table(title, ["row", "system", "change"] + names, rows=rows)


def _from_to(row: MovedRow, name: str) -> str:
    """Return the numbers of a column in both runs, and the verdicts if they are no numbers."""
    verdicts = ""
    has_number = False
    if name in row.verdicts:
        old_verdict, new_verdict = row.verdicts[name]
        verdicts = _unless_equal(old_verdict, new_verdict)
        has_number = old_verdict.lstrip("-").isdigit()
    if name not in row.numbers:
        return verdicts
    old, new = row.numbers[name]
    decimals = "g" if old == round(old) and new == round(new) else ".2f"
    numbers = _unless_equal(f"{old:{decimals}}", f"{new:{decimals}}")
    if has_number or verdicts in ("", numbers):
        return numbers
    return f"{numbers} ({verdicts})"


def _unless_equal(old: str, new: str) -> str:
    """Return what changed to what; one text if it did not change."""
    if old == new:
        return old
    return f"{old} → {new}"
