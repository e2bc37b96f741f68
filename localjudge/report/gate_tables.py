"""The tables of a gate: its conditions, those that fail first."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.matching.system_names import UNNAMED
from localjudge.report.gate_lines import fall_that_counts, gate_lines
from localjudge.report.tables import Cell, Table
from localjudge.studies.conditions import (
    Condition,
    Kind,
    MarginEvidence,
    PlainEvidence,
    RiseEvidence,
    ShareEvidence,
)
from localjudge.system.quantities import counted


def gate_parts(conditions: Sequence[Condition]) -> list[Table | str]:
    """Return the table of the conditions, and below it what else is to be known; nothing without conditions."""
    if not conditions:
        return []
    parts: list[Table | str] = [gate_table(conditions, each_system=False)]
    lines = list(gate_lines(conditions))
    if lines:
        parts.append("\n".join(lines))
    return parts


def gate_details(conditions: Sequence[Condition]) -> dict[str, list[Table | str]]:
    """Return the tables and the reasons of all conditions, by what they are; nothing without conditions."""
    if not conditions:
        return {}
    reasons = "\n".join(gate_lines(conditions, every=True))
    return {
        "the gate of each system": [gate_table(conditions, each_system=True)],
        "the reasons of all conditions": [reasons],
    }


def gate_table(conditions: Sequence[Condition], *, each_system: bool) -> Table:
    """Return the conditions, those that fail first.

    Args:
        conditions: the conditions.
        each_system: whether each system has a row; otherwise what is asked has one, of the worst system.
    """
    by_requirement: dict[str, list[Condition]] = {}
    for condition in sorted(conditions, key=_order):
        by_requirement.setdefault(_requirement_cell(condition), []).append(condition)
    shown: list[Condition] = []
    for of_systems in by_requirement.values():
        shown += of_systems if each_system else of_systems[:1]
    if each_system:
        shown.sort(key=_order)

    columns: dict[str, Sequence[Cell]] = {"condition": [_requirement_cell(condition) for condition in shown]}
    systems = {condition.system for condition in conditions}
    if each_system and systems != {UNNAMED}:
        columns["system"] = [condition.system for condition in shown]
    elif len(systems) > 1:
        columns["worst system"] = [condition.system for condition in shown]
    columns["measured"] = [_measured(condition) for condition in shown]
    if any(condition.lost for condition in shown):
        columns["lost at\nlowest"] = [_with_lost_rows(condition) for condition in shown]
    columns["bound,\np or ±"] = [_bound(condition) for condition in shown]
    if len({condition.instructions for condition in conditions}) > 1:
        columns["instructions"] = [condition.instructions for condition in shown]
    columns["instr.\nneeded"] = [condition.fewest for condition in shown]
    if each_system:
        columns["result"] = [_result(condition) for condition in shown]
    else:
        columns["result"] = [_result_of_systems(of_systems) for of_systems in by_requirement.values()]
    rows = list(zip(*columns.values(), strict=True))
    return Table(
        f"Gate: {_result_of_gate(conditions)}",
        list(columns),
        rows=rows,
        words=["system", "worst system", "result"],
    )


def _order(condition: Condition) -> tuple[bool, float]:
    return condition.order


def _result_of_gate(conditions: Sequence[Condition]) -> str:
    failed = sum(not condition.passes for condition in conditions)
    if failed:
        return f"FAILED, {failed} of {counted(len(conditions), 'condition')}"
    return "passed"


def _requirement_cell(condition: Condition) -> str:
    """Return what a condition asks, for a table: the column, and below it what it must be."""
    column = condition.threshold.column
    limit = f"{condition.threshold.limit or 0.0:g}"
    match condition.threshold.kind:
        case Kind.MARGIN:
            return f"{column}\ndrop < {limit}"
        case Kind.IMPROVE:
            return f"{column}\nrise"
        case Kind.MAX_FELL:
            return f"{column}\nfell ≥ {fall_that_counts(condition)} or lost < {limit}"
        case Kind.MAX_FAILED:
            return f"lost rows < {limit}"
        case Kind.MIN:
            return f"{column}\n≥ {limit}"
        case Kind.MAX_MEAN_DROP:
            return f"{column}\ndrop ≤ {limit}"


def _measured(condition: Condition) -> Cell:
    """Return the share of rows, or the mean without lost rows."""
    kind = condition.threshold.kind
    if kind.is_share:
        return _rounded(condition.change, kind)
    return _rounded(condition.measured, kind)


def _with_lost_rows(condition: Condition) -> Cell:
    """Return what decides where rows are lost, and how many are."""
    if not condition.lost:
        return None
    kind = condition.threshold.kind
    lost = f"{condition.lost:,} lost"
    if kind.is_share or condition.change is None:
        return lost
    return f"{_rounded(condition.change, kind)}\n{lost}"


def _bound(condition: Condition) -> Cell:
    """Return the number that is compared with the limit, or of a plain threshold, half its interval."""
    match condition.evidence:
        case PlainEvidence(half_width=float() as half_width):
            return f"± {half_width:.2f}"
        case RiseEvidence(p=p):
            return f"p {p:.3f}"
        case MarginEvidence(bound=bound) | ShareEvidence(bound=bound):
            return _rounded(bound, condition.threshold.kind)
        case _:
            return None


def _rounded(number: float | None, kind: Kind) -> str | None:
    """Return a share with three decimals, and another number with two."""
    if number is None:
        return None
    digits = 3 if kind.is_share else 2
    return f"{number:.{digits}f}".replace("-0.00", "0.00")


def _result(condition: Condition) -> str:
    return "passed" if condition.passes else "FAILED"


def _result_of_systems(conditions: Sequence[Condition]) -> str:
    """Return for how many systems a condition holds."""
    if len(conditions) == 1:
        return _result(conditions[0])
    failed = sum(not condition.passes for condition in conditions)
    if failed:
        return f"FAILED\n{failed} of {len(conditions)}"
    return f"passed\nall {len(conditions)}"
