"""The document of `localjudge compare --json`; `localjudge help compare` describes the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge.report.change_lines import (
    change_notes,
    compared_systems,
    difference_in_words,
    moved_columns,
)
from localjudge.report.changed_row_lines import why_without_score
from localjudge.report.estimate_document import estimate_document, estimate_documents
from localjudge.report.gate_document import gate_document
from localjudge.statistics.paired_test import Change
from localjudge.studies.compare import Changes, SystemChanges
from localjudge.studies.compare.label_agreement import Labelled
from localjudge.studies.compare.moved_rows import MovedRow
from localjudge.studies.compare.row_noise import RowNoise
from localjudge.studies.compare.rows_without_score import RowWithoutScore
from localjudge.studies.compare.system_orders import ContraryPair, OrderOfSystems
from localjudge.studies.compare.two_judges import TwoJudges
from localjudge.studies.conditions import Condition


def changes_document(changes: Changes, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Return the document of what changed between two runs, with the conditions of its gate."""
    runs = changes.runs
    _, new = runs.names
    uncompared = runs.uncompared
    return {
        "names": list(runs.names),
        "differs": runs.difference.differs.value,
        "how": difference_in_words(runs),
        "whose": compared_systems(runs),
        "item": runs.item,
        "instructions": runs.instructions,
        "rows": runs.rows,
        "rows_by_system": dict(runs.counts.scored),
        "absent_by_system": dict(runs.counts.absent),
        "lost_by_system": dict(runs.counts.failed),
        "only_common": runs.only_common,
        "columns": {column: _change(change) for column, change in changes.columns.items()},
        "imputed": dict(changes.imputed),
        "by_system": _by_system(changes.by_system),
        "moved": _moved_rows(changes.moved),
        "fallen": {column: _moved_rows(rows) for column, rows in changes.fallen.items()},
        "missing": _rows_without_score(uncompared.missing, new),
        "failed": _rows_without_score(uncompared.failed, new),
        "unmatched": _rows_without_score(uncompared.unmatched, new),
        "only_new": uncompared.only_new,
        "judges": _judges(changes.judges),
        "labelled": {aspect: _labelled(labelled) for aspect, labelled in changes.labelled.items()},
        "noise": {column: _row_noise(noise) for column, noise in changes.noise.items()},
        "notes": change_notes(runs),
        "notices": list(runs.notices),
        "gate": gate_document(conditions),
    }


def _by_system(systems: Sequence[SystemChanges]) -> dict[str, Any] | None:
    """Return the changes of each system; None for one system, and without changes."""
    if not systems:
        return None
    return {"column": "system", "statistic": "changes", "rows": [_system(system) for system in systems]}


def _system(system: SystemChanges) -> dict[str, Any]:
    differences = {column: change.difference for column, change in system.columns.items()}
    return {
        "name": system.system,
        "instructions": system.instructions,
        "estimates": estimate_documents(differences),
        "significant": moved_columns(system),
    }


def _change(change: Change) -> dict[str, Any]:
    """Return the change of one column."""
    return {
        "old": change.old,
        "new": change.new,
        "difference": estimate_document(change.difference),
        "p": change.p,
        "sign_p": change.sign_p,
        "detectable": change.detectable,
        "rose": change.rose,
        "fell": change.fell,
        "equal": change.equal,
    }


def _moved_rows(rows: Sequence[MovedRow]) -> list[dict[str, Any]]:
    return [_moved_row(row) for row in rows]


def _moved_row(row: MovedRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "system": row.system,
        "moved": row.moved,
        "numbers": {column: list(old_and_new) for column, old_and_new in row.numbers.items()},
        "verdicts": {aspect: list(old_and_new) for aspect, old_and_new in row.verdicts.items()},
    }


def _rows_without_score(rows: Sequence[RowWithoutScore], new: str) -> list[dict[str, Any]]:
    return [_row_without_score(row, new) for row in rows]


def _row_without_score(row: RowWithoutScore, new: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "system": row.system,
        "reason": why_without_score(row, new),
        "is_absent": row.is_absent,
    }


def _judges(judges: TwoJudges | None) -> dict[str, Any] | None:
    """Return the agreement of two judges; None for one judge."""
    if judges is None:
        return None
    return {
        "kappa": estimate_documents(judges.kappa),
        "systems": judges.systems,
        "order": _orders(judges.order),
    }


def _orders(orders: Mapping[str, OrderOfSystems]) -> dict[str, Any]:
    """Return the orders of the systems by the names of what is ordered."""
    return {name: _order_of_systems(order) for name, order in orders.items()}


def _order_of_systems(order: OrderOfSystems) -> dict[str, Any]:
    return {
        "alike": order.alike,
        "undecided": order.undecided,
        "contrary": [_contrary_pair(pair) for pair in order.contrary],
    }


def _contrary_pair(pair: ContraryPair) -> dict[str, Any]:
    return {
        "first": pair.first,
        "second": pair.second,
        "old": estimate_document(pair.old),
        "new": estimate_document(pair.new),
    }


def _labelled(labelled: Labelled) -> dict[str, Any]:
    """Return the agreement of both judges with the labels of one aspect."""
    measures = labelled.measures.items()
    return {
        "rows": labelled.rows,
        "old": {measure.value: agreement.old for measure, agreement in measures},
        "new": {measure.value: agreement.new for measure, agreement in measures},
        "difference": {
            measure.value: estimate_document(agreement.difference) for measure, agreement in measures
        },
        "order": _orders(labelled.order),
    }


def _row_noise(noise: RowNoise) -> dict[str, Any]:
    """Return the rows that move no further than the noise, in one column."""
    return {
        "run": noise.run,
        "repeated": noise.repeated,
        "bound": noise.bound,
        "within": noise.within,
        "compared": noise.compared,
        "moved": noise.moved,
        "below": noise.below,
    }
