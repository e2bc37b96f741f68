"""Tables of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.report.tables import Cells, Findings, Table, estimates_by_name
from localjudge.studies.compare import STATISTIC_NAMES, Changes, MovedRow, change_lines
from localjudge.studies.compare.gate import Condition, gate_lines
from localjudge.studies.compare.two_judges import TwoJudges
from localjudge.system.quantities import counted, p_value

_RESULT = {True: "passed", False: "FAILED"}


def change_findings(changes: Changes, conditions: Sequence[Condition] = ()) -> Findings:
    """Return tables of the systems, if there are several, sentences on the changes and on the gate, and a table
    of the columns.

    The details are the rows without a score.
    """
    first = [_gate(conditions)] * bool(conditions)
    main = [estimates_by_name(changes.by_system)] if changes.by_system else []
    main += [_columns(changes)] if changes.columns else []
    main += [_judges(changes.judges)] if changes.judges else []
    main += [_labelled(changes)] * bool(changes.labelled)
    details: dict[str, list[Table | str]] = {}
    lost = zip(changes.names, (changes.missing + changes.failed, changes.unmatched), strict=True)
    if rows := [(row.id, row.system, name, row.reason) for name, of_run in lost for row in of_run]:
        table = Table("Rows without a score", ("row", "system", "row of", "why"), rows, words=["why"])
        details["rows without a score"] = [table]
    main += [_moved(changes)] if changes.moved else []
    answer = [*change_lines(changes), *gate_lines(conditions)]
    return Findings(answer, main, details, changes.notices, changes.notes, first)


def _gate(conditions: Sequence[Condition]) -> Table:
    """Return the conditions of each system, those that fail first."""
    rows = [
        (
            *(each.asks, each.system, f"{each.change:.3f}"),
            None if each.bound is None else f"{each.bound:.3f}",
            *(each.instructions, each.lowest, _RESULT[each.passes]),
        )
        for each in sorted(conditions, key=lambda each: each.order)
    ]
    columns = ("gate", "system", "measured", "95 %\nbound", "instructions", "rows without\na score", "result")
    return Table("Gate, for each system", columns, rows, words=["system", "result"])


def _columns(changes: Changes) -> Table:
    rows = [
        (name, each.old, each.new, each.difference, p_value(each.p), each.equal, each.detectable)
        for name, each in changes.columns.items()
    ]
    equal = f"equal of {counted(changes.instructions, 'instruction')}".replace(" of ", "\nof ")
    columns = ("column", *changes.names, "change", "p", equal, "detectable\nchange")
    said = (" → ".join(changes.names), changes.whose, counted(changes.rows, changes.item))
    return Table(" · ".join(filter(None, said)), columns, rows, apart=["change"])


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
