"""A gate: whether a run passes, so that a change can go on in continuous integration.

A column passes a margin if a one-sided 95 % bound (`localjudge.statistics.paired_test`) excludes that its mean
fell by the margin or more (non-inferiority), so too few rows cannot pass. It has improved if the bound excludes
that it did not rise. Every condition must hold for each system, so none is adjusted for their number. A row of
OLD that has a score, but none in NEW, counts as the lowest score, and so does a further row of NEW that failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from localjudge.errors import UsageError
from localjudge.matching import UNNAMED
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import is_complete
from localjudge.statistics import two_decimals
from localjudge.statistics.paired_test import WORST_INSTRUCTIONS, lower_bound
from localjudge.statistics.resampling import MIN_INSTRUCTIONS
from localjudge.studies.compare.matched_runs import MatchedRuns, by_instruction
from localjudge.system.quantities import counted


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a gate for one system, and whether it holds.

    Attributes:
        column: the column.
        system: the system; of pairs, whose preference it is.
        margin: the largest drop that passes; None if the column must rise.
        change: the mean change, where each row without a score in NEW counts as the lowest score.
        bound: the lower end of its one-sided 95 % interval; None for fewer than five instructions.
        instructions: number of instructions.
        lowest: number of rows that count as the lowest score.
    """

    column: str
    system: str
    margin: float | None
    change: float
    bound: float | None
    instructions: int
    lowest: int

    @property
    def passes(self) -> bool:
        return self.bound is not None and (self.bound > 0 if self.margin is None else self.bound > -self.margin)

    @property
    def asks(self) -> str:
        """What it asks of the column, in a few words."""
        return (
            f"{self.column} rose" if self.margin is None else f"{self.column} fell by less than {self.margin:g}"
        )

    @property
    def name(self) -> str:
        """The condition with its system, if that has a name."""
        return self.asks if self.system == UNNAMED else f"{self.system}: {self.asks}"

    @property
    def reason(self) -> str:
        """What was measured, in words, and how its bound differs from the interval of a table."""
        on = counted(self.instructions, "instruction")
        if self.bound is None:
            return f"{on} are too few; a gate needs {MIN_INSTRUCTIONS}"
        counts = f", with {counted(self.lowest, 'row')} at the lowest score" * bool(self.lowest)
        return (
            f"change {two_decimals(self.change)}, at least {two_decimals(self.bound)} with 95 % confidence on "
            f"{on}{counts}; this bound is one-sided, for one column of one system, and counts "
            f"{WORST_INSTRUCTIONS:g} more instructions with the largest drop, so it differs from an interval"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the condition for programs."""
        return {"condition": self.name, "passes": self.passes, "reason": self.reason, **asdict(self)}


def check_gate(
    matched: MatchedRuns, margins: Mapping[str, float], improved: Sequence[str] = ()
) -> tuple[Condition, ...]:
    """Return the conditions of a gate, each for every system.

    Args:
        matched: the rows of both runs.
        margins: the margin of each column that must not fall by as much.
        improved: the columns that must rise.

    Raises:
        UsageError: there is no such column, a margin is not positive, a run is dry or incomplete, or nothing
            tells whose preference counts in pairs.
    """
    rows = matched.rows
    for name in (*margins, *improved):
        if name not in rows.names:
            raise UsageError(f"{name}: is not a column of these runs; give one of {', '.join(rows.names)}")
    for name, drop in margins.items():
        if not 0 < drop < rows.width[rows.names.index(name)]:
            raise UsageError(f"`margin` {name}={drop:g}: must be above 0 and smaller than the scale")
    if not margins and not improved:
        return ()
    for folder, manifest in zip(rows.source.folders, rows.source.manifests, strict=True):
        if is_dry_run(manifest) or not is_complete(folder):
            what = "a dry run" if is_dry_run(manifest) else "not complete; the same score command continues it"
            raise UsageError(f"{folder}: is {what}, and a gate needs every score")
    if rows.problem:
        option = "margin" if margins else "improve"
        raise UsageError(f"`{option}`: {rows.problem}")
    asked: list[tuple[str, float | None]] = [*margins.items(), *dict.fromkeys(improved).items()]
    of_system = [matched.system == place for place in range(len(matched.systems))]
    means = [by_instruction(matched.change[cells], matched.group[cells]) for cells in of_system]
    return tuple(
        Condition(
            column=name,
            system=system,
            margin=margin,
            change=float(changes.mean()),
            bound=float(lower_bound(changes, rows.width[at])) if len(changes) >= MIN_INSTRUCTIONS else None,
            instructions=len(changes),
            lowest=int(matched.lowest[cells].sum()),
        )
        for name, margin in asked
        for at in (rows.names.index(name),)
        for system, cells, table in zip(matched.systems, of_system, means, strict=True)
        for changes in (table[:, at],)
    )


def gate_lines(conditions: Sequence[Condition]) -> Iterator[str]:
    """Yield a line for what is asked of each column: whether it holds for each system, or for which not."""
    for asks in dict.fromkeys(each.asks for each in conditions):
        chosen = [condition for condition in conditions if condition.asks == asks]
        failed = [condition for condition in chosen if not condition.passes]
        lowest, result = min(failed or chosen, key=bound_order), "FAILED" if failed else "passed"
        if len(chosen) == 1:
            yield f"Gate, {lowest.name}: {result} ({lowest.reason})"
            continue
        result += f" for {', '.join(condition.system for condition in failed)}" * bool(failed)
        yield f"Gate, {asks}, for each of {len(chosen)} systems: {result} ({lowest.system}: {lowest.reason})"
    if len(conditions) > 1:
        yield (
            "A gate passes only if every condition holds for every system, so none is adjusted for their "
            "number: a change at the margin passes by mistake in at most 5 % of cases."
        )


def bound_order(condition: Condition) -> float:
    """Return the key that sorts the conditions of a column, the worst first."""
    return -math.inf if condition.bound is None else condition.bound


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
