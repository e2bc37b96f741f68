"""Sentences on a ranking by preferences: what its tests say, the effects of position and length, and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from localjudge.report.ranking_lines import BY_CHOOSES_ANOTHER, component_notes
from localjudge.statistics import Estimate
from localjudge.statistics.resampling import MIN_INSTRUCTIONS
from localjudge.statistics.system_order import differences_in_words
from localjudge.studies.rank.preference_ranking import PreferenceOrder, PreferenceRanking
from localjudge.system.quantities import counted, p_in_words

_MOST_LINES = 5
"""Largest number of significant contradictions, and of sign tests, that are printed."""
_LARGEST_LOG_FACTOR = 6 * math.log(10)
"""Log of the largest factor of odds that is printed, 10^6; a larger one is only known to be large."""


def preference_lines(order: PreferenceOrder, aspect: str) -> Iterator[str]:
    """Yield the results of the tests of strengths and win rates, a line each."""
    yield from differences_in_words(
        f"in strength ({aspect})", order.groups, untested=order.untested, detectable=order.detectable
    )
    yield from _sign_test_lines(order)
    contradictions = [pair for pair in order.pairs if pair.contradiction_significant]
    for pair in contradictions[:_MOST_LINES]:
        win_rate = pair.win_rate.complement().in_words()
        yield (
            f"Against the order of strengths: {pair.second} wins {win_rate} of its comparisons with "
            f"{pair.first}"
        )


def _sign_test_lines(order: PreferenceOrder) -> Iterator[str]:
    """Yield the exact sign tests of the pairs of systems whose difference has no interval, or an open one."""
    untested_otherwise = []
    tested_otherwise = []
    for pair in order.pairs:
        if pair.sign_p is None:
            continue
        if pair.p is None:
            untested_otherwise.append(pair)
        else:
            tested_otherwise.append(pair)
    pairs = untested_otherwise + tested_otherwise
    adjusted = f" adjusted for {len(order.pairs)} pairs" if len(order.pairs) > 1 else ""
    for pair in pairs[:_MOST_LINES]:
        instructions = counted(pair.wins + pair.ties + pair.losses, "instruction")
        p = 0.0 if pair.sign_p is None else pair.sign_p
        yield (
            f"Of {instructions}, {pair.first} wins {pair.wins:,} and loses {pair.losses:,} against "
            f"{pair.second} (exact sign test{adjusted}: {p_in_words(p)})"
        )
    unprinted = len(pairs) - _MOST_LINES
    if unprinted > 0:
        yield f"--json has the exact sign tests of {counted(unprinted, 'more pair')}"


def position_line(order: PreferenceOrder) -> str:
    """Return the effect of the position in the prompt."""
    line = f"Position: the first place has a win rate of {_with_reason(order.position)}"
    if order.consistency.value is not None:
        share = order.consistency.in_words()
        line += f"; both orders name the same response in {share} of the pairs where each names one"
    return line


def length_line(coefficient: Estimate) -> str:
    """Return the effect of length, by the change of the log-odds per unit of log length."""
    factor = replace(
        coefficient,
        value=_factor_of_twice_the_length(coefficient.value),
        low=_factor_of_twice_the_length(coefficient.low),
        high=_factor_of_twice_the_length(coefficient.high),
    )
    return f"A response twice as long has its odds of winning multiplied by {_with_reason(factor)}"


def _factor_of_twice_the_length(coefficient: float | None) -> float | None:
    """Return the factor of the odds for a response of twice the length."""
    if coefficient is None:
        return None
    log_factor = coefficient * math.log(2)
    return math.exp(min(log_factor, _LARGEST_LOG_FACTOR))


def _with_reason(estimate: Estimate) -> str:
    """Return an estimate in words, with the reason if it has no interval."""
    text = estimate.in_words()
    if estimate.low is None and estimate.high is None and estimate.why:
        text += f", no interval: {estimate.why}"
    return text


def preference_notes(ranking: PreferenceRanking) -> list[str]:
    """Return the remarks on a ranking by preferences, with those on the aspect that decides."""
    notes = []
    if ranking.is_default and len(ranking.aspects) > 1:
        notes.append(f"{ranking.by}, the first aspect, decides the order of the systems{BY_CHOOSES_ANOTHER}")
    if ranking.unnamed_pairs:
        notes.append(f"{ranking.unnamed_pairs} pairs that do not name both systems are excluded")
    return notes + order_notes(ranking.aspects[ranking.by])


def order_notes(order: PreferenceOrder) -> list[str]:
    """Return the remarks on the order of the systems in one aspect."""
    notes = []
    if order.pairs_of_one_system:
        notes.append(
            f"{order.pairs_of_one_system} pairs have two responses of one system; they count for the position "
            "only"
        )
    notes += component_notes("strengths", order.components)
    if order.unlimited:
        notes.append(
            "some systems always win or always lose, so the strengths have no most likely values: the fit "
            "counts one more instruction of ties, and an interval is open where the pairs set no bound"
        )
    elif order.unlimited_at_equal_length:
        notes.append(
            "at equal length the strengths have no most likely values, because length decides almost always: "
            "the fit counts one more instruction of ties"
        )
    if order.instructions < MIN_INSTRUCTIONS:
        notes.append(f"there are no intervals below {MIN_INSTRUCTIONS} instructions")
    if not order.has_both_orders:
        notes.append(
            "each pair was judged in one order only: the wins of the response shown first include the systems' "
            "difference"
        )
    if order.length is None:
        notes.append("the effect of length cannot be told from that of the systems")
    return notes
