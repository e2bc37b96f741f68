"""The conditions of a gate as `localjudge compare --json` and `rank --json` have them: the key `gate`.

`localjudge help compare` describes the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localjudge.report.gate_lines import condition_name, reason
from localjudge.studies.conditions import (
    Condition,
    Evidence,
    MarginEvidence,
    PlainEvidence,
    RiseEvidence,
    ShareEvidence,
)


def gate_document(conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """Return the conditions, each with its name and its reason in words."""
    return [_condition(condition) for condition in conditions]


def _condition(condition: Condition) -> dict[str, Any]:
    document = {
        "condition": condition_name(condition),
        "kind": condition.threshold.kind.value,
        "column": condition.threshold.column,
        "system": condition.system,
        "limit": condition.threshold.limit,
        "passes": condition.passes,
        "change": condition.change,
        "measured": condition.measured,
        "instructions": condition.instructions,
        "rows": condition.rows,
        "lost": condition.lost,
        # Conditions of other kinds than the one that has a number have None.
        "bound": None,
        "p": None,
        "half_width": None,
        "room": condition.room,
        "fall": None,
        "held": None,
        "weight": None,
        "fewest": condition.fewest,
        "chance": None,
        "needed": None,
        "reason": reason(condition),
    }
    document.update(_evidence(condition.evidence))
    return document


def _evidence(evidence: Evidence | None) -> dict[str, Any]:
    """Return the numbers that only conditions of one kind have."""
    match evidence:
        case MarginEvidence():
            return {"bound": evidence.bound, "chance": evidence.chance, "needed": evidence.needed}
        case RiseEvidence():
            return {"p": evidence.p}
        case ShareEvidence():
            return {
                "bound": evidence.bound,
                "fall": evidence.fall,
                "held": evidence.rows,
                "weight": evidence.weight,
            }
        case PlainEvidence():
            return {"half_width": evidence.half_width}
        case None:
            return {}
