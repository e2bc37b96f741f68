"""The document of `localjudge audit --check repeat --json`; `localjudge help runs` describes the numbers.

`noise` in `summary.json` has the same keys, but is another document: a file of a run (`runs/noise`).
"""

from __future__ import annotations

from typing import Any

from localjudge.report.estimate_document import estimate_document
from localjudge.runs.noise import ColumnNoise, Noise
from localjudge.runs.repeat import Repetition
from localjudge.statistics.absolute_change import AbsoluteChange


def repetition_document(repetition: Repetition) -> dict[str, Any]:
    """Return the document of how far the scores of a sample moved when it was judged again."""
    return {"notices": list(repetition.notices), "noise": _noise(repetition.noise)}


def _noise(noise: Noise) -> dict[str, Any]:
    return {
        "rows": noise.rows,
        "failed": noise.failed,
        "instructions": noise.instructions,
        "columns": {name: _column_noise(column) for name, column in noise.columns.items()},
        "values": noise.values,
        "changed": dict(noise.changed),
        "changed_rows": noise.changed_rows,
        "changed_rationales": noise.changed_rationales,
    }


def _column_noise(column: ColumnNoise) -> dict[str, Any]:
    return {
        "expected": column.expected,
        "width": column.width,
        "change": _absolute_change(column.change),
    }


def _absolute_change(change: AbsoluteChange) -> dict[str, Any]:
    return {
        "mean": estimate_document(change.mean),
        "largest": change.largest,
        "bound": change.bound,
        "rows": change.rows,
        "within": change.within,
    }
