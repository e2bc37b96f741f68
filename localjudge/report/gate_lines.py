"""What the conditions of a gate say in sentences: what each asks, what was measured, and what it assumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localjudge.matching.system_names import UNNAMED
from localjudge.statistics import two_decimals
from localjudge.statistics.paired_test import needed_in_words
from localjudge.statistics.resampling import MIN_INSTRUCTIONS
from localjudge.studies.conditions import (
    RISE_LEVEL,
    Condition,
    Kind,
    MarginEvidence,
    PlainEvidence,
    RiseEvidence,
    ShareEvidence,
)
from localjudge.system.quantities import counted, p_in_words

RISE_BY_MISTAKE = 0.23
"""How often a rise is found where one in twenty of 20 instructions falls by 3 and the mean does not change:
`false_rises` in the results of `benchmarks/gate.py`."""


def requirement(condition: Condition) -> str:
    """Return what a condition asks, in a few words."""
    column = condition.threshold.column
    limit = f"{condition.threshold.limit or 0.0:g}"
    match condition.threshold.kind:
        case Kind.MARGIN:
            return f"{column} fell by less than {limit}"
        case Kind.IMPROVE:
            return f"{column} rose"
        case Kind.MAX_FELL:
            fall = fall_that_counts(condition)
            return f"less than {limit} of the rows fell in {column} by {fall} or more, or have no score"
        case Kind.MAX_FAILED:
            return f"less than {limit} of the rows have no score"
        case Kind.MIN:
            return f"{column} is at least {limit}"
        case Kind.MAX_MEAN_DROP:
            return f"{column} fell by {limit} at most"


def fall_that_counts(condition: Condition) -> str:
    """Return the fall of a row that counts for a share of fallen rows."""
    assert isinstance(condition.evidence, ShareEvidence)  # it is of the kind `max_fell`
    return f"{condition.evidence.fall:g}"


def condition_name(condition: Condition) -> str:
    """Return what a condition asks, with its system if that has a name."""
    if condition.system == UNNAMED:
        return requirement(condition)
    return f"{condition.system}: {requirement(condition)}"


def reason(condition: Condition) -> str:
    """Return what was measured for a condition, in a sentence."""
    match condition.evidence:
        case PlainEvidence() as plain:
            return _plain_reason(condition, plain)
        case ShareEvidence(bound=float()) as share:
            return _share_reason(condition, share)
        case MarginEvidence() as margin:
            return _margin_reason(condition, margin)
        case RiseEvidence(p=p):
            on = counted(condition.instructions, "instruction")
            test = f"one-sided sign-flip test on {on}: {p_in_words(p)}, where at most {RISE_LEVEL:g} passes"
            return f"change {_change_with_lost_rows(condition)}, {test}"
        case _:
            instructions = counted(condition.instructions, "instruction")
            return f"too few ({instructions}); a gate needs {MIN_INSTRUCTIONS}"


def _margin_reason(condition: Condition, margin: MarginEvidence) -> str:
    on = counted(condition.instructions, "instruction")
    bound = f"at least {two_decimals(margin.bound)} with 95 % confidence on {on}"
    sentence = f"change {_change_with_lost_rows(condition)}, {bound}"
    if margin.chance is None:
        return sentence
    return (
        f"{sentence}; a system with the same mean and this much scatter would pass in {margin.chance:.0%} of "
        f"such comparisons, and with {needed_in_words(margin.needed)} instructions in 80%"
    )


def _share_reason(condition: Condition, share: ShareEvidence) -> str:
    on = f"{counted(condition.rows, 'row')} of {counted(condition.instructions, 'instruction')}"
    if round(share.weight) != condition.instructions:
        on += f", which weigh as {share.weight:.0f} with equal numbers of rows"
    return (
        f"{share.rows:,} of {on}: {condition.change:.3f}, at most {share.bound:.3f} with 95 % confidence; "
        f"fewer than {condition.fewest:,} instructions cannot pass"
    )


def _plain_reason(condition: Condition, plain: PlainEvidence) -> str:
    what = "mean" if condition.threshold.kind is Kind.MIN else "change"
    if condition.change is None:
        lost = f"{condition.lost:,} of {counted(condition.rows, 'row')} have no score"
        measured = f"{what} of the others {two_decimals(condition.measured)}"
        return f"{lost}; {measured}; --max-failed says how many may be lost"
    on = counted(condition.instructions, "instruction")
    width = "not known" if plain.half_width is None else two_decimals(plain.half_width)
    return f"{what} {_change_with_lost_rows(condition)}; without confidence: {on}, ± {width}"


def _change_with_lost_rows(condition: Condition) -> str:
    """Return what decides, and before it what was measured if lost rows change that."""
    change = two_decimals(condition.change)
    if not condition.lost:
        return change
    with_lost = f"{change} with {counted(condition.lost, 'lost row')} at the lowest score"
    if condition.measured is None:
        return with_lost
    return f"{two_decimals(condition.measured)}, {with_lost}"


def gate_lines(conditions: Sequence[Condition], *, every: bool = False) -> Iterator[str]:
    """Yield the reasons of what is asked, for the system that is worst, and what the conditions assume.

    Args:
        conditions: the conditions.
        every: yield also the reasons of tested conditions that hold for all systems.
    """
    by_requirement: dict[str, list[Condition]] = {}
    for condition in conditions:
        by_requirement.setdefault(requirement(condition), []).append(condition)
    for asked, of_systems in by_requirement.items():
        worst = min(of_systems, key=lambda condition: condition.order)
        if not every and worst.passes and not worst.threshold.kind.is_plain:
            continue
        if len(of_systems) > 1 and worst.system:
            yield f"{worst.system}: {asked}: {reason(worst)}."
        else:
            yield f"{asked}: {reason(worst)}."
    kinds = {condition.threshold.kind for condition in conditions}
    if Kind.IMPROVE in kinds:
        yield (
            "The test of a rise assumes that large drops are not rare. If one in twenty of 20 instructions "
            f"falls by 3, it finds a rise by mistake in {RISE_BY_MISTAKE:.0%} of comparisons. Add --max-fell."
        )
    if every and Kind.MARGIN in kinds:
        yield (
            "A bound is the worst value that 95 % confidence leaves, for one condition alone. For a mean it "
            "allows for rare large drops, so it is not an end of the interval in the table."
        )
