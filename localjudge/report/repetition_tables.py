"""The findings of a run that was judged again: how many values changed, and how far the scores moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localjudge.modes.mode import Mode
from localjudge.report.noise_lines import in_figures, noise_line
from localjudge.report.tables import Cells, Findings, Table
from localjudge.runs.noise import ColumnNoise, Noise
from localjudge.system.quantities import in_digits


def repetition_findings(noise: Noise, mode: Mode[Any], notices: Sequence[str]) -> Findings:
    """Return the noise in a line, the numbers of changed values, and the changes of each column of scores.

    Args:
        noise: the noise of the rows that were judged again.
        mode: the mode of the run's rubric.
        notices: the notices of the run.
    """
    return Findings([noise_line(noise, mode)], [_changed_values(noise), _changes(noise)], notices=notices)


def _changed_values(noise: Noise) -> Table:
    rows: list[Cells] = [(name, count, noise.values) for name, count in noise.changed.items()]
    rows.append(("any value of a row", noise.changed_rows, noise.rows))
    rows.append(("rationale of a row", noise.changed_rationales, noise.rows))
    return Table("", ("written value", "changed", "of"), rows)


def _changes(noise: Noise) -> Table:
    rows: list[Cells] = [_change_of(name, column) for name, column in noise.columns.items()]
    return Table("", ("score", "kind", "mean change", "largest", "rows"), rows)


def _change_of(name: str, column: ColumnNoise) -> Cells:
    kind = "expected" if column.expected else "written"
    change = column.change
    return (name, kind, in_figures(change.mean), in_digits(change.largest), change.rows)
