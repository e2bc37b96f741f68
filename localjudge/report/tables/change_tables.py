"""Tables of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.analysis.changes import Changes, change_lines
from localjudge.analysis.changes.gate import Condition
from localjudge.analysis.changes.two_judges import TwoJudges
from localjudge.analysis.ranking import p_value
from localjudge.report.tables import Findings, Table
from localjudge.system.quantities import counted

_MOST_VERDICTS = 3


def change_findings(changes: Changes, conditions: Sequence[Condition] = ()) -> Findings:
    """Return sentences on the changes and on the gate, and a table of the columns.

    The details are the judge's texts on the rows that changed most.
    """
    gate = [
        f"Gate, {each.name}: {'passed' if each.passes else 'FAILED'} ({each.reason})" for each in conditions
    ]
    main = [_columns(changes), _verdicts(changes)]
    main += [_judges(changes.judges)] if changes.judges else []
    main += [_labelled(changes)] * bool(changes.labelled)
    details: dict[str, list[Table | str]] = {}
    if changes.moved:
        main.append(_moved(changes))
        name = "the judge's texts on the rows that changed most"
        headings = [f"the judge in {run}" for run in changes.names]
        texts = [(row.id, row.system, *row.texts) for row in changes.moved]
        table = Table(name[0].upper() + name[1:], ("row", "system", *headings), texts, words=headings)
        details[name] = [table]
    return Findings([*change_lines(changes), *gate], main, details, changes.notices, changes.notes)


def _columns(changes: Changes) -> Table:
    rows = [
        (name, each.old, each.new, each.difference, p_value(each.p), each.equal, each.detectable)
        for name, each in changes.columns.items()
    ]
    equal = f"equal of {counted(changes.instructions, 'instruction')}".replace(" of ", "\nof ")
    columns = ("column", *changes.names, "change", "p", equal, "found in\n80 %")
    return Table(f"{' → '.join(changes.names)} · {counted(changes.rows, 'row')}", columns, rows)


def _verdicts(changes: Changes) -> Table:
    rows = [
        (
            name,
            each.changed,
            each.rows,
            ", ".join(f"{was} → {now}: {count:,}" for was, now, count in each.most[:_MOST_VERDICTS]),
        )
        for name, each in changes.verdicts.items()
    ]
    return Table("", ("verdict", "changed", "rows", "most often"), rows, words=["most often"])


def _judges(judges: TwoJudges) -> Table:
    kappa, orders = judges.kappa, judges.order
    rows = [(name, kappa.get(name, ""), orders.get(name, "")) for name in dict.fromkeys([*kappa, *orders])]
    columns = "aspect", "kappa", f"order of {judges.systems} systems (tau)"
    return Table("Agreement of the two judges", columns, rows)


def _labelled(changes: Changes) -> Table:
    rows = [
        (name, statistic, found.old[statistic], found.new[statistic], difference, found.rows)
        for name, found in changes.labelled.items()
        for statistic, difference in found.difference.items()
    ]
    columns = ("aspect", "statistic", *changes.names, "difference", "rows")
    return Table("Agreement with the labels", columns, rows)


def _moved(changes: Changes) -> Table:
    rows = [
        (row.id, row.system, *(was if was == now else f"{was} → {now}" for was, now in row.verdicts.values()))
        for row in changes.moved
    ]
    return Table("Rows that changed most", ("row", "system", *changes.verdicts), rows)
