"""What the noise of a run says in words: how far scores move when rows are judged again in other batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localjudge.system.quantities import UNDEFINED_SIGN, counted, figure

if TYPE_CHECKING:
    from localjudge.modes.mode import Mode
    from localjudge.runs.noise import Noise
    from localjudge.statistics import Estimate
    from localjudge.statistics.absolute_change import AbsoluteChange

_MOST_COLUMNS = 3
"""The most columns whose noise stands in the line; of more, that with the largest mean change."""


def noise_line(noise: Noise, mode: Mode[Any]) -> str:
    """Return the noise of a run in one line.

    Args:
        noise: the noise.
        mode: the mode of the run's rubric.
    """
    item = mode.item
    failed = f"; {counted(noise.failed, item)} failed then" if noise.failed else ""
    if not noise.rows:
        return f"Noise: no {item} could be judged again{failed}."
    again = f"Noise: {counted(noise.rows, item)} judged again in other batches"
    changed = (
        f"{sum(noise.changed.values()):,} of {counted(noise.values * len(noise.changed), 'written value')}"
    )
    return f"{again}; {_moved(noise, mode)}; {changed} changed{failed}."


def _moved(noise: Noise, mode: Mode[Any]) -> str:
    """Return how far the numbers of the columns moved."""
    what = _numbers(noise, mode)
    moved = {name: each.change for name, each in noise.columns.items() if each.change.largest}
    if not moved:
        return f"no {what} moved"
    by_size = sorted(moved, key=lambda name: moved[name].mean.value or 0.0, reverse=True)
    if len(noise.columns) <= _MOST_COLUMNS:
        each = [f"in {name} by {_size(moved[name])}" for name in by_size]
        return f"{what}s moved {', '.join(each)}"
    largest = by_size[0]
    return f"{what}s moved most in {largest}, of {len(noise.columns)} columns: by {_size(moved[largest])}"


def _numbers(noise: Noise, mode: Mode[Any]) -> str:
    """Return what the numbers of the columns are called."""
    are_expected = all(each.expected for each in noise.columns.values())
    return f"expected {mode.number_word}" if are_expected else mode.number_word


def _size(change: AbsoluteChange) -> str:
    """Return the mean and the largest change."""
    return f"{in_figures(change.mean)} on average and {number(change.largest)} at most"


def in_figures(estimate: Estimate) -> str:
    """Return an estimate that is no less than 0 with three digits, and its interval in brackets."""
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    return f"{number(estimate.value)} ({number(estimate.low)} to {number(estimate.high)})"


def number(value: float | None) -> str:
    """Return a number that is no less than 0 with three digits."""
    if value is None:
        return UNDEFINED_SIGN
    return figure(value).replace("< ", "less than ") if value else "0"
