"""A gate: whether a run passes, so that a change can go on in continuous integration.

A column passes a margin if a one-sided 95 % bound (`localjudge.statistics.paired_test`) excludes that its mean
fell by the margin or more (non-inferiority), so too few rows cannot pass. It has improved if the bound excludes
that it did not rise. A mean can hide that a few rows collapsed: a one-sided 95 % bound excludes that the
share of rows that failed, or collapsed, is as large as asked: those that fell by half the scale or more, and
those that have no score. Every condition must hold for each
system, so none is adjusted for their number. A row of OLD that has a score, but none in NEW, counts as the
lowest score, and so does a further row of NEW that failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching import UNNAMED
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import is_complete
from localjudge.statistics import two_decimals
from localjudge.statistics.jackknife import fewest_to_exclude, kish_number, share_below
from localjudge.statistics.paired_test import chance_to_pass, instructions_to_pass, lower_bound, needed_in_words
from localjudge.statistics.resampling import MIN_INSTRUCTIONS
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import MatchedRuns, by_instruction
from localjudge.system.quantities import counted


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a gate for one system, and whether it holds.

    Attributes:
        asks: what it asks, in a few words.
        column: the column; empty for failures.
        system: the system; of pairs, whose preference it is.
        margin: the largest drop, or the share of rows, that is too much; None if the column must rise.
        change: the mean change, where each row without a score in NEW counts as the lowest score, or the share.
        bound: the end of its one-sided 95 % interval; None for fewer than five instructions.
        room: how far the bound is from failing; None without a bound.
        instructions: number of instructions.
        lowest: number of rows that count as the lowest score.
        reason: what was measured, in words.
        chance: the probability that a margin passes with a true change of 0 and such a variance; None without.
        needed: number of instructions with which that is 80 %; None without a margin, and for more than
            10,000,000.
        fewest: number of instructions, with equal numbers of rows, that pass a share if no row has failed or
            collapsed; fewer cannot pass. None without a share.
    """

    asks: str
    column: str
    system: str
    margin: float | None
    change: float
    bound: float | None
    room: float | None
    instructions: int
    lowest: int
    reason: str
    chance: float | None = None
    needed: int | None = None
    fewest: int | None = None

    @property
    def passes(self) -> bool:
        return self.room is not None and self.room > 0

    @property
    def order(self) -> tuple[bool, float]:
        """The key that sorts conditions: those that fail first, and of these, those that fail by most."""
        return self.passes, -math.inf if self.room is None else self.room

    @property
    def name(self) -> str:
        """The condition with its system, if that has a name."""
        return self.asks if self.system == UNNAMED else f"{self.system}: {self.asks}"

    def as_dict(self) -> dict[str, Any]:
        """Return the condition for programs."""
        return {"condition": self.name, "passes": self.passes, **asdict(self)}


def _of_mean(changes: Floats, width: float, margin: float | None, lowest: int) -> dict[str, Any]:
    """Return what a condition says of the change on each instruction."""
    bound, chance, needed, count = float(lower_bound(changes, width)), None, None, len(changes)
    failures = f", with {counted(lowest, 'row')} at the lowest score" * bool(lowest)
    reason = (
        f"change {two_decimals(changes.mean())}, at least {two_decimals(bound)} with 95 % confidence on "
        f"{counted(count, 'instruction')}{failures}"
    )
    if margin is not None:
        variance = float(changes.var(ddof=1))
        chance = chance_to_pass(margin, variance, width, count)
        needed = instructions_to_pass(margin, variance, width)
        reason += (
            f"; a system that did not change would pass in {chance:.0%} of such comparisons, and with "
            f"{needed_in_words(needed)} instructions in 80%"
        )
    found = {"bound": bound, "room": bound + (margin or 0), "chance": chance, "needed": needed}
    return {"change": float(changes.mean()), **found, "reason": reason}


def _of_share(held: Flags, group: Integers, most: float) -> dict[str, Any]:
    """Return what a condition says of the share of rows where something holds."""
    share, number, instructions = float(held.mean()), kish_number(group), len(np.unique(group))
    bound = share_below(share, number)
    fewest = max(fewest_to_exclude(most), MIN_INSTRUCTIONS)
    on = f"{counted(len(held), 'row')} of {counted(instructions, 'instruction')}"
    if round(number) != instructions:
        on += f", which weigh as {number:.0f} with equal numbers of rows"
    reason = (
        f"{held.sum():,} of {on}: {share:.3f}, at most {bound:.3f} with 95 % confidence; fewer than {fewest:,} "
        f"instructions cannot pass"
    )
    return {"change": share, "bound": bound, "room": most - bound, "fewest": fewest, "reason": reason}


def check_gate(
    matched: MatchedRuns,
    margins: Mapping[str, float],
    improved: Sequence[str] = (),
    fell: Mapping[str, float] | None = None,
    failed: float | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions of a gate, each for every system.

    Args:
        matched: the rows of both runs.
        margins: the margin of each column that must not fall by as much.
        improved: the columns that must rise.
        fell: for each column, the share of rows that must not fall by half the scale or more, or fail.
        failed: the share of rows that must not lack a score.

    Raises:
        UsageError: there is no such column, a margin or a share is not possible, a run is dry or incomplete, or
            nothing tells whose preference counts in pairs.
    """
    rows, shares = matched.rows, {**(fell or {}), **({} if failed is None else {"": failed})}
    for name in (*margins, *improved, *(fell or {})):
        if name not in rows.names:
            raise UsageError(f"{name}: is not a column of these runs; give one of {', '.join(rows.names)}")
    for name, drop in margins.items():
        if not 0 < drop < rows.width[rows.names.index(name)]:
            raise UsageError(f"`margin` {name}={drop:g}: must be above 0 and smaller than the scale")
    for name, share in shares.items():
        if not 0 < share < 1:
            option = f"`max_fell` {name}={share:g}" if name else f"`max_failed` {share:g}"
            raise UsageError(f"{option}: must be a share between 0 and 1, such as 0.05")
    if not margins and not improved and not shares:
        return ()
    for folder, manifest in zip(rows.source.folders, rows.source.manifests, strict=True):
        if is_dry_run(manifest) or not is_complete(folder):
            what = "a dry run" if is_dry_run(manifest) else "not complete; the same score command continues it"
            raise UsageError(f"{folder}: is {what}, and a gate needs every score")
    if rows.problem:
        option = "margin" if margins else "improve" if improved else "max_fell" if fell else "max_failed"
        raise UsageError(f"`{option}`: {rows.problem}")
    asked: list[tuple[str, float | None, float | None, str]] = []
    for name, drop in margins.items():
        asked.append((name, drop, None, f"{name} fell by less than {drop:g}"))
    for name in dict.fromkeys(improved):
        asked.append((name, None, None, f"{name} rose"))
    for name, most in shares.items():
        asked.append((name, None, most, f"less than {most:g} of the rows {_fell(rows, name)}"))
    conditions = []
    group = matched.group[matched.cell]
    for name, most_drop, most_share, asks in asked:
        at = rows.names.index(name) if name else 0
        for place, system in enumerate(matched.systems):
            cells = matched.system == place
            changes = by_instruction(matched.change[cells], matched.group[cells])[:, at]
            lowest, width = int(matched.lowest[cells].sum()), float(rows.width[at])
            held = matched.is_lost
            if name:
                held = held | (matched.row_change[:, at] <= NO_DIFFERENCE - rows.collapse[at])
            chosen = cells[matched.cell]
            if len(changes) < MIN_INSTRUCTIONS:
                few = f"too few ({counted(len(changes), 'instruction')}); a gate needs {MIN_INSTRUCTIONS}"
                measured = float((changes if most_share is None else held[chosen]).mean())
                found: dict[str, Any] = {"change": measured, "bound": None, "room": None, "reason": few}
            elif most_share is None:
                found = _of_mean(changes, width, most_drop, lowest)
            else:
                found = _of_share(held[chosen], group[chosen], most_share)
            found |= {"instructions": len(changes), "lowest": lowest}
            conditions.append(
                Condition(asks, name, system, most_drop if most_share is None else most_share, **found)
            )
    return tuple(conditions)


def _fell(rows: ComparedRows, column: str) -> str:
    """Return in words what a share of the rows must not do; no column stands for failures."""
    if not column:
        return "have no score"
    fall = rows.collapse[rows.names.index(column)]
    return f"fell in {column} by {fall:g} or more, or have no score"


def gate_lines(conditions: Sequence[Condition]) -> Iterator[str]:
    """Yield a line for what is asked of each column: whether it holds for each system, or for which not."""
    for asks in dict.fromkeys(each.asks for each in conditions):
        chosen = [condition for condition in conditions if condition.asks == asks]
        failed = [condition for condition in chosen if not condition.passes]
        lowest, result = min(chosen, key=lambda each: each.order), "FAILED" if failed else "passed"
        if len(chosen) == 1:
            yield f"Gate, {lowest.name}: {result} ({lowest.reason})"
            continue
        result += f" for {', '.join(condition.system for condition in failed)}" * bool(failed)
        yield f"Gate, {asks}, for each of {len(chosen)} systems: {result} ({lowest.system}: {lowest.reason})"
    if any(condition.bound is not None for condition in conditions):
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
        case = ElementTree.SubElement(suite, "testcase", classname="localjudge.compare", name=each.name)
        if each.passes:
            ElementTree.SubElement(case, "system-out").text = each.reason
        else:
            ElementTree.SubElement(case, "failure", message=each.reason).text = answer
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
