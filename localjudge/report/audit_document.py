"""The document of `localjudge audit --json`; `localjudge help audit` describes the numbers."""

from __future__ import annotations

from typing import Any

from localjudge.report.estimate_document import estimate_document
from localjudge.studies.audit.audit_findings import AspectReading, Audit, AuditCheck


def audit_document(audit: Audit) -> dict[str, Any]:
    """Return the document of what the judge did with rows that were changed in known ways."""
    return {
        "model": audit.model,
        "rubric": audit.rubric,
        "rows": audit.rows,
        "instructions": audit.instructions,
        "seed": audit.seed,
        "of": audit.score_kind,
        "ranges": dict(audit.ranges),
        "checks": [_check(check) for check in audit.checks],
        "aspects": list(audit.aspects),
        "notices": list(audit.notices),
    }


def _check(check: AuditCheck) -> dict[str, Any]:
    """Return the result of one perturbation."""
    return {
        "name": check.name,
        "does": check.description,
        "rows": check.rows,
        "failed": check.failed,
        "skipped": {reason.value: rows for reason, rows in check.skipped.items()},
        "aspects": {aspect: _aspect_reading(reading) for aspect, reading in check.aspects.items()},
        "decisive": list(check.decisive),
        "share": estimate_document(check.share),
        "chance": check.chance,
        "shift": estimate_document(check.shift),
        "threshold": check.threshold,
    }


def _aspect_reading(reading: AspectReading) -> dict[str, Any]:
    """Return one aspect under one perturbation."""
    return {
        "direction": reading.direction,
        "tested": reading.tested,
        "held": reading.held,
        "no_room": reading.no_room,
        "shift": estimate_document(reading.shift),
    }
