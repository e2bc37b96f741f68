"""The conditions of a gate as `localjudge compare --json` and `rank --json` have them: the key `gate`.

`localjudge help compare` describes the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localjudge.report.gate_tables import condition_name, reason
from localjudge.studies.conditions import Condition


def gate_document(conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """Return the conditions, each with its name and its reason in words."""
    return [_condition(condition) for condition in conditions]


def _condition(condition: Condition) -> dict[str, Any]:
    return {
        "condition": condition_name(condition),
        "kind": condition.kind.value,
        "column": condition.column,
        "system": condition.system,
        "limit": condition.limit,
        "passes": condition.passes,
        "change": condition.change,
        "measured": condition.measured,
        "instructions": condition.instructions,
        "rows": condition.rows,
        "lost": condition.lost,
        "bound": condition.bound,
        "p": condition.p,
        "half_width": condition.half_width,
        "room": condition.room,
        "fall": condition.fall,
        "held": condition.held,
        "weight": condition.weight,
        "fewest": condition.fewest,
        "chance": condition.chance,
        "needed": condition.needed,
        "reason": reason(condition),
    }
