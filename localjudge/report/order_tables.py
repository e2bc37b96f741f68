"""Tables on the order of a prompt's lists: the verdicts that another order changes, and how scores shift."""

from __future__ import annotations

from localjudge.report.tables import Cells, Findings, Table
from localjudge.statistics import Estimate
from localjudge.studies.audit.order_effects import OrderAudit, OrderEffect
from localjudge.system.quantities import UNDEFINED_SIGN, counted


def order_findings(audit: OrderAudit) -> Findings:
    """Return sentences on the verdicts that each order changes, what each order is, and a table of aspects."""
    answer = [_changes(effect, audit) for effect in audit.orders]
    answer.append(
        "Where the own order is judged again, the prompt is the same, in other batches: these changes are not "
        "due to the order"
    )
    notes = [f"{effect.name}: {'; '.join(effect.given)}" for effect in audit.orders if effect.given]
    written = [name for name, kind in audit.of.items() if kind == "integer"]
    if written:
        notes.append(f"Shifts of written values, as some rows have no probabilities: {', '.join(written)}")
    if audit.sampled:
        notes.append(
            "The temperature is above 0: each order draws answers anew, so changed verdicts include those by "
            "chance. The own order is judged again with the same draws"
        )
    return Findings(answer, [_table(audit)], {}, audit.notices, notes)


def _changes(effect: OrderEffect, audit: OrderAudit) -> str:
    """Return the range of the shares of changed verdicts, of which rows they are, and which are left out."""
    said = f"{effect.does[0].upper()}{effect.does[1:]}: {_range(effect)}"
    of = f"{counted(effect.rows, audit.item)} of {counted(audit.instructions, 'instruction')}"
    lost = f"; {counted(effect.failed, f'further {audit.item}')} not judged in both" if effect.failed else ""
    return f"{said} ({of}{lost})"


def _range(effect: OrderEffect) -> str:
    known = [(share.value, aspect) for aspect, share in effect.changed.items() if share.value is not None]
    if not known:
        return "nothing was judged in both orders"
    known.sort()
    lowest, least = known[0]
    highest, most = known[-1]
    if len(known) == 1:
        return f"{_percent(effect.changed[least])} of the verdicts on {least} changed"
    if lowest == highest:
        return f"{highest:.0%} of the verdicts on each aspect changed"
    smallest, largest = _percent(effect.changed[least]), _percent(effect.changed[most])
    return f"{smallest} of the verdicts on {least} to {largest} of those on {most} changed"


def _table(audit: OrderAudit) -> Table:
    rows: list[Cells] = []
    for effect in audit.orders:
        for aspect, share in effect.changed.items():
            # An aspect without an order has no mean; each of its labels has a share.
            rows.append((effect.name, aspect, _percent(share), effect.shift.get(aspect), effect.rows))
            for name, shift in effect.shift.items():
                if name.startswith(f"{aspect}="):
                    rows.append((effect.name, name, "", shift, effect.rows))
    columns = "order", "aspect", "verdicts changed", "shift of the mean", f"{audit.item}s"
    return Table("Compared with the rubric's own order", columns, rows, words=["aspect"])


def _percent(share: Estimate) -> str:
    """Return a share with its interval in percent."""
    if share.value is None:
        return UNDEFINED_SIGN
    if share.low is None or share.high is None:
        return f"{share.value:.0%}"
    return f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})"
