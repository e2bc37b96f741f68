"""The trivial baseline that agrees best with people: which it is, and its cells in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.report.tables import Cell
from localjudge.statistics import Estimate, two_decimals

BASELINE_NAMES = {
    "length": "length alone",
    "overlap": "word overlap alone",
    "equal": "equal scores",
    "random": "random scores",
    "most frequent": "the most frequent label",
    "median": "the median label",
    "longer wins": "the longer response",
    "first wins": "the first response",
}
"""The names of the baselines in a sentence and in the first column of a table."""
_SHORT_NAMES = {"most frequent": "commonest", "longer wins": "longer", "first wins": "first"}
"""The shorter names of baselines in a cell below their value."""

DIFFERENCE_COLUMN = "judge minus\nbaseline"
BASELINE_COLUMNS = ("best\nbaseline", DIFFERENCE_COLUMN)
"""The headings of the cells of the best baseline."""


@dataclass(frozen=True, slots=True)
class BestBaseline:
    """The baseline that agrees best by one statistic.

    Attributes:
        name: the baseline.
        value: its statistic.
        difference: the statistic of the judge minus that of the baseline.
    """

    name: str
    value: float
    difference: Estimate


def best_baseline(
    values: Mapping[str, float | None], differences: Mapping[str, Estimate], *, least: bool = False
) -> BestBaseline | None:
    """Return the best of the baselines whose value is known; None if there is none.

    Args:
        values: the statistic of each baseline.
        differences: the statistic of the judge minus that of each baseline.
        least: whether less is better, as of an error.
    """
    baselines: list[BestBaseline] = []
    for name, difference in differences.items():
        value = values[name]
        if value is not None:
            baselines.append(BestBaseline(name, value, difference))
    if not baselines:
        return None
    if least:
        return min(baselines, key=_value)
    return max(baselines, key=_value)


def _value(baseline: BestBaseline) -> float:
    return baseline.value


def baseline_cells(baseline: BestBaseline | None) -> tuple[Cell, Cell]:
    """Return the value of a baseline above its name, and the judge minus it; two empty cells without one."""
    if baseline is None:
        return (None, None)
    short_name = _SHORT_NAMES.get(baseline.name, baseline.name)
    return (f"{two_decimals(baseline.value)}\n{short_name}", baseline.difference)


def comparison_name(name: str) -> str:
    """Return the name of a kind of scores or a baseline in the first column of a table."""
    return BASELINE_NAMES.get(name, name)
