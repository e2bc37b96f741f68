"""The document of `localjudge audit --check options --json`, and of `--check aspects`.

`localjudge help audit` describes the numbers.
"""

from __future__ import annotations

from typing import Any

from localjudge.report.estimate_document import estimate_documents
from localjudge.report.order_tables import order_description
from localjudge.studies.audit.order_effects import OrderAudit, OrderEffect


def order_audit_document(audit: OrderAudit) -> dict[str, Any]:
    """Return the document of what another order of a prompt's lists changes."""
    return {
        "model": audit.model,
        "rubric": audit.rubric,
        "check": audit.check,
        "item": audit.item,
        "rows": audit.rows,
        "instructions": audit.instructions,
        "seed": audit.seed,
        "of": dict(audit.score_kinds),
        "sampled": audit.sampled,
        "orders": [_order(effect, audit) for effect in audit.orders],
        "notices": list(audit.notices),
    }


def _order(effect: OrderEffect, audit: OrderAudit) -> dict[str, Any]:
    """Return what one order changes, compared with the rubric's own."""
    return {
        "name": effect.name,
        "does": order_description(effect.name, audit.check),
        "given": list(effect.lists),
        "rows": effect.rows,
        "instructions": effect.instructions,
        "failed": effect.failed,
        "changed": estimate_documents(effect.changed),
        "shift": estimate_documents(effect.shift),
        "kept": dict(effect.kept),
        "threshold": effect.threshold,
    }
