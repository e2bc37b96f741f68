"""Tables of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localjudge.report.change_lines import (
    STATISTIC_NAMES,
    change_lines,
    lines_without_scores,
    moved_lines,
    remark_lines,
    rows_within_noise,
)
from localjudge.report.gate_tables import gate_details, gate_parts
from localjudge.report.tables import Cells, Findings, Table, estimates_by_name
from localjudge.studies.compare import Changes, MovedRow
from localjudge.studies.compare.two_judges import TwoJudges
from localjudge.studies.conditions import Condition
from localjudge.system.quantities import counted, p_value


def change_findings(changes: Changes, conditions: Sequence[Condition] = ()) -> Findings:
    """Return whether scores changed, in three sentences, and then the gate or, without one, the changes.

    Which rows have no score, and which moved most, stands below. The details are all other tables.
    """
    changed: list[Table | str] = []
    changed += [_columns(changes)] if changes.columns else []
    changed += [_judges(changes.judges)] if changes.judges else []
    if changes.labelled:
        changed.append(_labelled(changes))
    if any(found.order for found in changes.labelled.values()):
        changed.append(_orders_by_people(changes))
    remarks = [*remark_lines(changes)]
    changed += ["\n".join(remarks)] if remarks else []
    asked = [each.column for each in conditions if each.column]
    below = [*lines_without_scores(changes), *moved_lines(changes, asked), *rows_within_noise(changes)]
    last: list[Table | str] = ["\n".join(below)] if below else []
    details: dict[str, list[Table | str]] = {}
    main: list[Table | str] = []
    if conditions:
        main = gate_parts(conditions) + last
        details |= gate_details(conditions)
        details["the changes of the columns"] = changed
    else:
        main = changed + last
    if changes.by_system:
        details["the changes of each system"] = [estimates_by_name(changes.by_system)]
    if changes.moved:
        details["the rows that changed most"] = [_moved(changes)]
    lost = zip(changes.names, (changes.missing + changes.failed, changes.unmatched), strict=True)
    if rows := [(row.id, row.system, name, row.reason) for name, of_run in lost for row in of_run]:
        table = Table("Rows without a score", ("row", "system", "row of", "why"), rows, words=["why"])
        details["rows without a score"] = [table]
    return Findings([*change_lines(changes)], main, details, changes.notices, changes.notes)


def _columns(changes: Changes) -> Table:
    """Return the change of each column of the common rows, and beside it with lost rows at the lowest score."""
    equal = f"equal\nof {changes.instructions:,}"
    columns = ["column", *changes.names, "change", "p", equal, "detectable\nchange"]
    apart = ["change"]
    rows: list[list[Any]] = [
        [name, each.old, each.new, each.difference, p_value(each.p), each.equal, each.detectable]
        for name, each in changes.columns.items()
    ]
    if changes.imputed:
        heading = "lost at\nlowest"
        columns.insert(4, heading)
        apart.append(heading)
        for row, imputed in zip(rows, changes.imputed.values(), strict=True):
            row.insert(4, imputed)
    common = "the common rows alone" if changes.only_common else ""
    said = (" → ".join(changes.names), changes.whose, counted(changes.rows, changes.item), common)
    return Table(" · ".join(filter(None, said)), columns, rows, apart=apart)


def _judges(judges: TwoJudges) -> Table:
    kappa, orders = judges.kappa, judges.order
    pairs = {name: (each.alike, len(each.contrary), each.undecided) for name, each in orders.items()}
    rows = [
        (name, kappa.get(name, ""), *pairs.get(name, ("",) * 3 * bool(orders)))
        for name in dict.fromkeys([*kappa, *orders])
    ]
    columns = ["pairs of systems\nin the same order", "in opposite\norder", "not decided"] * bool(orders)
    return Table("Agreement of the two judges", ("aspect", "kappa", *columns), rows)


def _labelled(changes: Changes) -> Table:
    rows = [
        (name, STATISTIC_NAMES[statistic], found.old[statistic], found.new[statistic], difference, found.rows)
        for name, found in changes.labelled.items()
        for statistic, difference in found.difference.items()
    ]
    columns = ("aspect", "statistic", *changes.names, "difference", "rows")
    return Table("Agreement with the labels", columns, rows, apart=["difference"])


def _orders_by_people(changes: Changes) -> Table:
    """Return how many pairs of systems each judge puts in the order of people."""
    rows = [
        (aspect, judge, order.alike, len(order.contrary), order.undecided)
        for aspect, found in changes.labelled.items()
        for judge, order in found.order.items()
    ]
    columns = (
        "aspect",
        "judge",
        "pairs of systems\nin the order of people",
        "in opposite\norder",
        "not decided",
    )
    return Table("Order of the systems by each judge and by people", columns, rows, words=["judge"])


def _moved(changes: Changes) -> Table:
    """Return the rows that changed most, with what they are sorted by: the numbers that are compared."""
    verdicts = changes.moved[0].verdicts
    names = dict.fromkeys([*verdicts, *changes.moved[0].numbers])
    shown = [name for name in names if name.partition("=")[0] not in verdicts or name in verdicts]
    rows: list[Cells] = [
        (row.id, row.system, row.moved, *(_from_to(row, name) for name in shown)) for row in changes.moved
    ]
    title = "Rows that changed most: the mean change of their columns, where 1 is the whole scale"
    return Table(title, ("row", "system", "change", *shown), rows)


def _from_to(row: MovedRow, name: str) -> str:
    """Return the numbers of a column in both runs, and the verdicts if they are no numbers."""
    was, now = row.verdicts.get(name, ("", ""))
    said = was if was == now else f"{was} → {now}"
    if name not in row.numbers:
        return said
    form = "g" if all(number == round(number) for number in row.numbers[name]) else ".2f"
    old, new = (f"{number:{form}}" for number in row.numbers[name])
    numbers = old if old == new else f"{old} → {new}"
    return numbers if said in ("", numbers) or was.lstrip("-").isdigit() else f"{numbers} ({said})"
