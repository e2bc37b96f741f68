"""Notes on a comparison of systems by preferences: what it leaves out, and what cannot be computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from localjudge.statistics import Estimate
from localjudge.statistics.bradley_terry import Strengths
from localjudge.statistics.preferences import PositionEffect, Preferences
from localjudge.statistics.resampling import MIN_INSTRUCTIONS

_MOST_NAMED = 12
"""Largest number of systems that a note names."""
_MOST_CYCLES = 5
"""Largest number of significant cycles that are named."""


def preference_notes(
    preferences: Preferences, strengths: Strengths, held: Strengths | None, position: PositionEffect
) -> Iterator[str]:
    """Yield the notes on the order of the systems in one aspect.

    Args:
        preferences: the preferences.
        strengths: the strengths.
        held: the strengths with length held equal; None if they are not known.
        position: the effect of the place in the prompt.
    """
    between = preferences.between
    if own := len(preferences.first) - len(between.first):
        yield f"{own} pairs have two responses of one system; they count for the position only"
    component = strengths.design.component
    if component.any():
        sets = [
            ", ".join(name for name, number in zip(between.systems, component, strict=True) if number == one)
            for one in range(component.max() + 1)
        ]
        yield f"strengths are comparable only within each of these sets of systems: {'; '.join(sets)}"
    if strengths.unlimited:
        yield (
            "some systems always win or always lose, so the strengths have no most likely values: the fit "
            "counts one more instruction of ties, and an interval is open where the pairs set no bound"
        )
    elif held is not None and held.unlimited:
        yield (
            "at equal length the strengths have no most likely values, because length decides almost always: "
            "the fit counts one more instruction of ties"
        )
    if len(np.unique(between.group)) < MIN_INSTRUCTIONS:
        yield f"there are no intervals below {MIN_INSTRUCTIONS} instructions"
    if not position.has_both_orders:
        yield (
            "each pair was judged in one order only: the wins of the response shown first include the systems' "
            "difference"
        )
    if held is None:
        yield "the effect of length cannot be told from that of the systems"


def notes_on_intervals(
    between: Preferences,
    by_system: Mapping[str, Mapping[str, Estimate | None]],
    of_all: Mapping[str, Estimate | None],
) -> Iterator[str]:
    """Yield notes on the estimates that have no interval although there are enough instructions.

    Args:
        between: the pairs of different systems.
        by_system: the estimates of each system, or of two systems, by what they are.
        of_all: the estimates of all pairs, by what they are.
    """
    if len(np.unique(between.group)) < MIN_INSTRUCTIONS:
        return
    lacking: dict[tuple[str, str], list[str]] = {}
    for statistic, estimates in by_system.items():
        for why, of in _by_reason(estimates).items():
            more = [f"{len(of) - _MOST_NAMED} more"] * (len(of) > _MOST_NAMED)
            lacking.setdefault((f" of {', '.join(of[:_MOST_NAMED] + more)}", why), []).append(statistic)
    lacking |= {("", why): statistics for why, statistics in _by_reason(of_all).items()}
    for (whose, why), statistics in lacking.items():
        yield f"no interval can be computed for {', '.join(statistics)}{whose}: {why}"


def cycles_in_words(
    cycles: Sequence[tuple[str, str, str]], significant: Sequence[tuple[str, str, str]]
) -> Iterator[str]:
    """Yield a line on the number of cycles, if there are any, and one on each significant cycle.

    Args:
        cycles: three systems each, of which each beats the next one and the third the first.
        significant: those of them in which each of the three win rates is significant.
    """
    if cycles:
        number = f"{len(cycles)} cycle{'s' * (len(cycles) != 1)}"
        yield f"{number} of three systems, {len(significant) or 'none'} of them significant"
    for one, two, three in significant[:_MOST_CYCLES]:
        yield f"{one} beats {two}, {two} beats {three}, {three} beats {one}"


def _by_reason(estimates: Mapping[str, Estimate | None]) -> dict[str, list[str]]:
    """Return the names of the estimates without an interval, by the reason."""
    found: dict[str, list[str]] = {}
    for name, each in estimates.items():
        if each is not None and each.value is not None and each.low is None and each.high is None:
            found.setdefault(each.why or "the pairs set no bound", []).append(name)
    return found
