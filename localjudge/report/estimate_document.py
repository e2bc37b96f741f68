"""An estimate as `--json` has it, alone or by the name of what is estimated: a part of every document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localjudge.statistics import Estimate
from localjudge.studies.by_system_or_tag import EstimateRow, EstimateTable


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """Return a value and the ends of its interval, None where they are undefined.

    `why` is the reason why there is no interval; the key is missing where there is one, or no reason is known.
    """
    document: dict[str, Any] = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    if estimate.why:
        document["why"] = estimate.why
    return document


def optional_estimate_document(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate; None for one that is not computed of such a run."""
    if estimate is None:
        return None
    return estimate_document(estimate)


def estimate_documents(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return estimates by their names."""
    return {name: estimate_document(estimate) for name, estimate in estimates.items()}


def optional_estimate_documents(estimates: Mapping[str, Estimate] | None) -> dict[str, Any] | None:
    """Return estimates by their names; None if they are not computed of such a run."""
    if estimates is None:
        return None
    return estimate_documents(estimates)


def optional_table_document(table: EstimateTable | None) -> dict[str, Any] | None:
    """Return a statistic of each system or of each tag; None if there is none, or only one."""
    if table is None:
        return None
    return {
        "column": table.column,
        "statistic": table.statistic,
        "rows": [_row_document(row) for row in table.rows],
    }


def _row_document(row: EstimateRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "instructions": row.instructions,
        "estimates": estimate_documents(row.estimates),
        "significant": list(row.significant),
    }
