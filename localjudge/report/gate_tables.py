"""What a gate says: a table of its conditions, a sentence for each, and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from localjudge.matching.system_names import UNNAMED
from localjudge.report.tables import Cell, Table
from localjudge.statistics import two_decimals
from localjudge.statistics.paired_test import needed_in_words
from localjudge.statistics.resampling import MIN_INSTRUCTIONS
from localjudge.studies.conditions import RISE_LEVEL, Condition, Kind
from localjudge.system.quantities import counted, p_in_words

RISE_BY_MISTAKE = 0.23
"""How often a rise is found where one in twenty of 20 instructions falls by 3 and the mean does not change:
`false_rises` in the results of `benchmarks/gate.py`."""


def asks(condition: Condition) -> str:
    """Return what a condition asks, in a few words."""
    column, limit = condition.column, condition.limit or 0.0
    match condition.kind:
        case Kind.MARGIN:
            return f"{column} fell by less than {limit:g}"
        case Kind.IMPROVE:
            return f"{column} rose"
        case Kind.MAX_FELL:
            fall = condition.fall or 0.0
            return f"less than {limit:g} of the rows fell in {column} by {fall:g} or more, or have no score"
        case Kind.MAX_FAILED:
            return f"less than {limit:g} of the rows have no score"
        case Kind.MIN:
            return f"{column} is at least {limit:g}"
        case Kind.MAX_MEAN_DROP:
            return f"{column} fell by {limit:g} at most"


def condition_name(condition: Condition) -> str:
    """Return what a condition asks, with its system if that has a name."""
    if condition.system == UNNAMED:
        return asks(condition)
    return f"{condition.system}: {asks(condition)}"


def reason(condition: Condition) -> str:
    """Return what was measured for a condition, in a sentence."""
    if condition.kind.is_plain:
        return _plain_reason(condition)
    if condition.kind.is_share:
        return _share_reason(condition)
    if condition.instructions < MIN_INSTRUCTIONS:
        return _too_few(condition)
    on = counted(condition.instructions, "instruction")
    change = f"change {_with_lost(condition)}"
    if condition.kind is Kind.MARGIN:
        bound = f"at least {two_decimals(condition.bound)} with 95 % confidence on {on}"
        return f"{change}, {bound}{_chance(condition)}"
    p = p_in_words(condition.p or 0.0)
    return f"{change}, one-sided sign-flip test on {on}: {p}, where at most {RISE_LEVEL:g} passes"


def _with_lost(condition: Condition) -> str:
    """Return what decides, and before it what was measured if lost rows change that."""
    if not condition.lost:
        return two_decimals(condition.change)
    lost = f"with {counted(condition.lost, 'lost row')} at the lowest score"
    if condition.measured is None:
        return f"{two_decimals(condition.change)} {lost}"
    return f"{two_decimals(condition.measured)}, {two_decimals(condition.change)} {lost}"


def _too_few(condition: Condition) -> str:
    return f"too few ({counted(condition.instructions, 'instruction')}); a gate needs {MIN_INSTRUCTIONS}"


def _chance(condition: Condition) -> str:
    if condition.chance is None:
        return ""
    return (
        f"; a system with the same mean and this much scatter would pass in {condition.chance:.0%} of such "
        f"comparisons, and with {needed_in_words(condition.needed)} instructions in 80%"
    )


def _share_reason(condition: Condition) -> str:
    if condition.bound is None:
        return _too_few(condition)
    on = f"{counted(condition.rows, 'row')} of {counted(condition.instructions, 'instruction')}"
    if round(condition.weight or 0) != condition.instructions:
        on += f", which weigh as {condition.weight:.0f} with equal numbers of rows"
    return (
        f"{condition.held:,} of {on}: {condition.change:.3f}, at most {condition.bound:.3f} with 95 % "
        f"confidence; fewer than {condition.fewest:,} instructions cannot pass"
    )


def _plain_reason(condition: Condition) -> str:
    what = "mean" if condition.kind is Kind.MIN else "change"
    if condition.change is None:
        lost = f"{condition.lost:,} of {counted(condition.rows, 'row')} have no score"
        measured = f"{what} of the others {two_decimals(condition.measured)}"
        return f"{lost}; {measured}; --max-failed says how many may be lost"
    width = "± not known" if condition.half_width is None else f"± {two_decimals(condition.half_width)}"
    on = counted(condition.instructions, "instruction")
    return f"{what} {_with_lost(condition)}; without confidence: {on}, {width}"


def gate_table(conditions: Sequence[Condition], each_system: bool = True) -> Table:
    """Return the conditions, those that fail first.

    Args:
        conditions: the conditions.
        each_system: whether each system has a row; otherwise what is asked has one, of the worst system.
    """
    failed = sum(not each.passes for each in conditions)
    result = f"FAILED, {failed} of {counted(len(conditions), 'condition')}" if failed else "passed"
    of_asked: dict[str, list[Condition]] = {}
    for each in sorted(conditions, key=lambda each: each.order):
        of_asked.setdefault(short_name(each), []).append(each)
    systems = {each.system for each in conditions}
    has_systems = len(systems) > 1 or (each_system and systems != {UNNAMED})
    shown = [each for group in of_asked.values() for each in (group if each_system else group[:1])]
    if each_system:
        shown.sort(key=lambda each: each.order)
    has_lost = any(each.lost for each in shown)
    has_sizes = len({each.instructions for each in conditions}) > 1
    rows = []
    for each in shown:
        cells: list[Cell] = [short_name(each)]
        if has_systems:
            cells.append(each.system)
        cells.append(_rounded(each.change if each.kind.is_share else each.measured, each.kind))
        if has_lost:
            cells.append(_with_lost_rows(each))
        cells.append(_limit(each))
        if has_sizes:
            cells.append(each.instructions)
        cells.append(each.fewest)
        group = of_asked[short_name(each)]
        cells.append(_result(each) if each_system or len(group) == 1 else _result_of_several(group))
        rows.append(tuple(cells))
    columns = ["condition"]
    if has_systems:
        columns.append("system" if each_system else "worst system")
    columns.append("measured")
    if has_lost:
        columns.append("lost at\nlowest")
    columns.append("bound,\np or ±")
    if has_sizes:
        columns.append("instructions")
    columns += ["instr.\nneeded", "result"]
    return Table(f"Gate: {result}", columns, rows, words=["system", "worst system", "result"])


def short_name(condition: Condition) -> str:
    """Return what a condition asks, for a table: the column, and below it what it must be."""
    column, limit = condition.column, f"{condition.limit or 0.0:g}"
    match condition.kind:
        case Kind.MARGIN:
            return f"{column}\ndrop < {limit}"
        case Kind.IMPROVE:
            return f"{column}\nrise"
        case Kind.MAX_FELL:
            return f"{column}\nfell ≥ {condition.fall or 0.0:g} or lost < {limit}"
        case Kind.MAX_FAILED:
            return f"lost rows < {limit}"
        case Kind.MIN:
            return f"{column}\n≥ {limit}"
        case Kind.MAX_MEAN_DROP:
            return f"{column}\ndrop ≤ {limit}"


def _result(condition: Condition) -> str:
    return "passed" if condition.passes else "FAILED"


def _result_of_several(conditions: Sequence[Condition]) -> str:
    """Return for how many systems a condition holds."""
    failed = sum(not each.passes for each in conditions)
    return f"FAILED\n{failed} of {len(conditions)}" if failed else f"passed\nall {len(conditions)}"


def _with_lost_rows(condition: Condition) -> Cell:
    """Return what decides where rows are lost, and how many are."""
    if not condition.lost:
        return None
    lost = f"{condition.lost:,} lost"
    if condition.kind.is_share or condition.change is None:
        return lost
    return f"{_rounded(condition.change, condition.kind)}\n{lost}"


def _limit(condition: Condition) -> Cell:
    """Return the number that is compared with the limit, or of a plain threshold, half its interval."""
    if condition.kind.is_plain:
        return None if condition.half_width is None else f"± {condition.half_width:.2f}"
    if condition.kind is Kind.IMPROVE:
        return None if condition.p is None else f"p {condition.p:.3f}"
    return _rounded(condition.bound, condition.kind)


def _rounded(number: float | None, kind: Kind) -> str | None:
    digits = 3 if kind.is_share else 2
    return None if number is None else f"{number:.{digits}f}".replace("-0.00", "0.00")


def gate_parts(conditions: Sequence[Condition]) -> list[Table | str]:
    """Return the table of the conditions, and below it what else is to be known; nothing without conditions."""
    if not conditions:
        return []
    lines = [*gate_lines(conditions)]
    table = gate_table(conditions, each_system=False)
    return [table, "\n".join(lines)] if lines else [table]


def gate_details(conditions: Sequence[Condition]) -> dict[str, list[Table | str]]:
    """Return the tables and the reasons of all conditions, by what they are; nothing without conditions."""
    if not conditions:
        return {}
    reasons = "\n".join(gate_lines(conditions, every=True))
    return {"the gate of each system": [gate_table(conditions)], "the reasons of all conditions": [reasons]}


def gate_lines(conditions: Sequence[Condition], every: bool = False) -> Iterator[str]:
    """Yield the reasons of what is asked, for the system that is worst, and what the conditions assume.

    Args:
        conditions: the conditions.
        every: yield also the reasons of tested conditions that hold for all systems.
    """
    for asked in dict.fromkeys(map(asks, conditions)):
        of_asked = [each for each in conditions if asks(each) == asked]
        worst = min(of_asked, key=lambda each: each.order)
        if every or not worst.passes or worst.kind.is_plain:
            of = worst.system if len(of_asked) > 1 else ""
            yield f"{': '.join(filter(None, [of, asked]))}: {reason(worst)}."
    if any(each.kind is Kind.IMPROVE for each in conditions):
        yield (
            "The test of a rise assumes that large drops are not rare. If one in twenty of 20 instructions "
            f"falls by 3, it finds a rise by mistake in {RISE_BY_MISTAKE:.0%} of comparisons. Add --max-fell."
        )
    if every and any(each.kind is Kind.MARGIN for each in conditions):
        yield (
            "A bound is the worst value that 95 % confidence leaves, for one condition alone. For a mean it "
            "allows for rare large drops, so it is not an end of the interval in the table."
        )


def as_junit(conditions: Sequence[Condition], name: str, answer: str) -> str:
    """Return a test case for each condition, as JUnit XML.

    Args:
        conditions: the conditions.
        name: the name of the suite.
        answer: what the comparison says, for the conditions that fail.
    """
    failed = sum(not each.passes for each in conditions)
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(conditions)), failures=str(failed))
    for each in conditions:
        attributes = {"classname": "localjudge.compare", "name": condition_name(each)}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if each.passes:
            ElementTree.SubElement(case, "system-out").text = reason(each)
        else:
            ElementTree.SubElement(case, "failure", message=reason(each)).text = answer
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
