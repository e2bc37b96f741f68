"""Sentences on the noise of a run: how far scores move when rows are judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localjudge.system.quantities import counted, in_digits

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
    failed = ""
    if noise.failed:
        failed = f"; {counted(noise.failed, mode.item)} failed then"
    if not noise.rows:
        return f"Noise: no {mode.item} could be judged again{failed}."
    rows = counted(noise.rows, mode.item)
    changed = sum(noise.changed.values())
    values = counted(noise.values * len(noise.changed), "written value")
    return f"Noise: {rows} judged again; {_moved(noise, mode)}; {changed:,} of {values} changed{failed}."


def _moved(noise: Noise, mode: Mode[Any]) -> str:
    """Return how far the numbers of the columns moved; the columns are in order of the share of their scale."""
    noun = _noun(noise, mode)
    if not any(column.change.rows for column in noise.columns.values()):
        return f"no {mode.item} has a {mode.number_words.word}"
    moved = {name: column for name, column in noise.columns.items() if column.change.largest}
    if not moved:
        return f"no {noun} moved"
    names = sorted(moved, key=lambda name: moved[name].mean_share, reverse=True)
    sizes = {name: _size(moved[name].change, noise, mode=mode) for name in names}
    if len(noise.columns) <= _MOST_COLUMNS:
        in_columns = ", ".join(f"in {name} by {size}" for name, size in sizes.items())
        return f"{noun}s moved {in_columns}"
    largest = names[0]
    return f"{noun}s moved most in {largest}, of {len(noise.columns)} columns: by {sizes[largest]}"


def _noun(noise: Noise, mode: Mode[Any]) -> str:
    """Return what one of the numbers of the columns is called."""
    if all(column.expected for column in noise.columns.values()):
        return f"expected {mode.number_words.word}"
    return mode.number_words.word


def _size(change: AbsoluteChange, noise: Noise, mode: Mode[Any]) -> str:
    """Return the mean and the largest change, and of how many rows they are if some have no number."""
    mean = in_figures(change.mean)
    largest = in_digits(change.largest)
    size = f"{mean} on average and {largest} at most"
    if change.rows < noise.rows:
        return f"{size} (of {counted(change.rows, mode.item)})"
    return size


def in_figures(estimate: Estimate) -> str:
    """Return an estimate that is no less than 0 with three digits, and its interval in brackets."""
    if estimate.low is None or estimate.high is None:
        return in_digits(estimate.value)
    return f"{in_digits(estimate.value)} ({in_digits(estimate.low)} to {in_digits(estimate.high)})"
