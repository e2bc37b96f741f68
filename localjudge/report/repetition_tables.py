"""Tables of a run that was judged again: how many values changed, and how far the scores moved."""

from __future__ import annotations

from localjudge.report.noise_lines import in_figures, number
from localjudge.report.tables import Cells, Table
from localjudge.runs.noise import Noise


def repetition_tables(noise: Noise) -> list[Table]:
    """Return the numbers of changed values, and the changes of each column of scores."""
    changed: list[Cells] = [(name, count, noise.values) for name, count in noise.changed.items()]
    changed.append(("any value of a row", noise.changed_rows, noise.rows))
    changed.append(("rationale of a row", noise.changed_rationales, noise.rows))
    moved: list[Cells] = [
        (name, in_figures(each.change.mean), number(each.change.largest), each.change.rows)
        for name, each in noise.columns.items()
    ]
    return [
        Table("", ("written value", "changed", "of"), changed),
        Table("", ("score", "mean change", "largest", "rows"), moved),
    ]
