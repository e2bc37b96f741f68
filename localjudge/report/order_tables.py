"""Tables on the order of a prompt's lists: the verdicts that another order changes, and how scores shift."""

from __future__ import annotations

from localjudge.report.shares import share_in_words
from localjudge.report.tables import Cells, Findings, Table
from localjudge.studies.audit.order_effects import OrderAudit, OrderEffect
from localjudge.studies.audit.order_runs import OrderCheck, OrderName
from localjudge.system.quantities import counted


def order_findings(audit: OrderAudit) -> Findings:
    """Return sentences on the verdicts that each order changes, what each order is, and a table of aspects."""
    answer = [_changes(effect, audit) for effect in audit.orders]
    answer.append(
        "The first line is the control: the same prompts judged again; no change there is due to an order"
    )
    notes = [f"{effect.name}: {'; '.join(effect.lists)}" for effect in audit.orders if effect.lists]
    written = [name for name, kind in audit.score_kinds.items() if kind == "integer"]
    if written:
        notes.append(f"Shifts of written values, as some rows have no probabilities: {', '.join(written)}")
    if audit.sampled:
        notes.append(
            "The temperature is above 0: each order draws answers anew, so changed verdicts include those by "
            "chance. The own order is judged again with the same draws"
        )
    return Findings(answer, [_table(audit)], {}, audit.notices, notes)


def order_description(name: OrderName, check: OrderCheck) -> str:
    """Return what stands in which order."""
    if name == "again":
        return "the rubric's own order, judged again"
    lists = "the aspects" if check == "aspects" else "the values of each aspect"
    order = "in reverse" if name == "reversed" else "in random order"
    return f"{lists} {order}"


def _changes(effect: OrderEffect, audit: OrderAudit) -> str:
    """Return the range of the shares of changed verdicts, of which rows they are, and which are left out."""
    description = order_description(effect.name, audit.check)
    order = f"{description[0].upper()}{description[1:]}"
    rows = f"{counted(effect.rows, audit.item)} of {counted(effect.instructions, 'instruction')}"
    if effect.failed:
        rows += f"; {counted(effect.failed, f'further {audit.item}')} not judged in both"
    return f"{order}: {_range(effect)} ({rows})"


def _range(effect: OrderEffect) -> str:
    """Return the smallest and the largest share of changed verdicts, with their aspects."""
    values = {aspect: share.value for aspect, share in effect.changed.items() if share.value is not None}
    if not values:
        return "nothing was judged in both orders"
    least = min(values, key=lambda aspect: values[aspect])
    most = max(values, key=lambda aspect: values[aspect])
    smallest = share_in_words(effect.changed[least])
    largest = share_in_words(effect.changed[most])
    if len(values) == 1:
        return f"{smallest} of the verdicts on {least} changed"
    if values[least] == values[most]:
        return f"{smallest} of the verdicts on each aspect changed"
    return f"{smallest} of the verdicts on {least} to {largest} of those on {most} changed"


def _table(audit: OrderAudit) -> Table:
    rows: list[Cells] = []
    for effect in audit.orders:
        for aspect, share in effect.changed.items():
            # An aspect without an order has no mean; each of its labels has a share.
            rows.append((effect.name, aspect, share_in_words(share), effect.shift.get(aspect), effect.rows))
            for name, shift in effect.shift.items():
                if name.startswith(f"{aspect}="):
                    rows.append((effect.name, name, "", shift, effect.rows))
    columns = "order", "aspect", "verdicts changed", "shift of the mean", f"{audit.item}s"
    return Table("Compared with the rubric's own order", columns, rows, words=["aspect"])
