"""Terminal tables of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.changes import Changes, MovedRow, change_lines
from localjudge.analysis.changes.gate import Condition
from localjudge.analysis.ranking import p_value
from localjudge.analysis.statistics import two_decimals
from localjudge.cli.tables.table_parts import answered, plain_table, stacked, title_line
from localjudge.system.quantities import counted
from localjudge.system.terminal import printable

_MOST_VERDICTS = 3


def change_tables(changes: Changes, conditions: Sequence[Condition], all_tables: bool = False) -> Group:
    """Return what changed and what the gate says, and a table of the columns.

    The details are the agreement of two judges, and the rows that changed most with the judge's texts.
    """
    title = f"{' → '.join(changes.names)} · {counted(changes.rows, 'row')}"
    main: list[RenderableType] = [title_line(title, changes.notices), _columns(changes), _verdicts(changes)]
    if changes.judges:
        main += [title_line("Agreement of the two judges", changes.notices), _judges(changes)]
    if changes.labelled:
        main += [title_line("Agreement with the labels", changes.notices), _labelled(changes)]
    name = "the judge's texts on the rows that changed most"
    details = {name: [part for row in changes.moved for part in _texts(row)]} if changes.moved else {}
    if changes.moved:
        main += [title_line("Rows that changed most", changes.notices), _moved(changes)]
    return answered(
        [*change_lines(changes), *_gate_lines(conditions)],
        main,
        details,
        all_tables=all_tables,
        notices=changes.notices,
        notes=changes.notes,
    )


def _gate_lines(conditions: Sequence[Condition]) -> Iterator[str]:
    for each in conditions:
        yield f"Gate, {each.name}: {'passed' if each.passes else 'FAILED'} ({each.reason})"


def _columns(changes: Changes) -> Table:
    table = plain_table("column", *changes.names, "change", "p", "equal", "found in 80 %")
    for name, each in changes.columns.items():
        table.add_row(
            name,
            two_decimals(each.old),
            two_decimals(each.new),
            stacked(each.difference),
            p_value(each.p),
            f"{each.equal:,} of {changes.instructions:,}",
            two_decimals(each.detectable),
        )
    return table


def _verdicts(changes: Changes) -> Table:
    table = plain_table("verdict", "changed", "most often")
    for name, each in changes.verdicts.items():
        most = ", ".join(f"{was} → {now}: {count:,}" for was, now, count in each.most[:_MOST_VERDICTS])
        table.add_row(name, f"{each.changed:,} of {each.rows:,}", most)
    return table


def _judges(changes: Changes) -> Table:
    assert changes.judges is not None
    orders = changes.judges.order
    table = plain_table("aspect", "kappa", *[f"order of {changes.judges.systems} systems (tau)"] * bool(orders))
    for name in dict.fromkeys([*changes.judges.kappa, *orders]):
        found = [source[name] for source in (changes.judges.kappa, orders) if name in source]
        cells = [stacked(each) for each in found]
        table.add_row(name, *([""] * (name not in changes.judges.kappa)), *cells)
    return table


def _labelled(changes: Changes) -> Table:
    table = plain_table("aspect", "statistic", *changes.names, "difference", "rows")
    for name, found in changes.labelled.items():
        for statistic, difference in found.difference.items():
            each = two_decimals(found.old[statistic]), two_decimals(found.new[statistic])
            table.add_row(name, statistic, *each, stacked(difference), f"{found.rows:,}")
    return table


def _moved(changes: Changes) -> Table:
    table = plain_table("row", "system", *changes.verdicts)
    for row in changes.moved:
        cells = [was if was == now else f"{was} → {now}" for was, now in row.verdicts.values()]
        table.add_row(printable(row.id), printable(row.system), *cells)
    return table


def _texts(row: MovedRow) -> Iterator[RenderableType]:
    yield Text(printable(f"{row.id} · {row.system}"), style="bold")
    for name, text in zip(("OLD", "NEW"), row.texts, strict=True):
        yield Text(f"{name}: {printable(text)}")
