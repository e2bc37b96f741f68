"""A gate: whether a run passes, so that a change can go on in continuous integration.

A column passes a margin if a one-sided 95 % bound excludes that its mean fell by the margin or more
(non-inferiority), so a small run cannot pass by being small. It has improved if the bound excludes that it did
not rise. Every condition must hold, so none is adjusted for their number.

The mean of a few instructions says little about rare and large drops: a third of the samples of 20 instructions
contain no drop if one instruction in twenty has a drop. The bound is therefore computed as if there were more
instructions, with the lowest possible change (`WORST_INSTRUCTIONS`), and with a slightly larger quantile of
Student's t (`QUANTILE`). If all instructions changed equally (mostly not at all), it is the betting bound of
Waudby-Smith & Ramdas (arXiv:2010.09686) with the largest bet: 59 equal instructions exclude a drop of 0.2 on a
scale from 1 to 5. `benchmarks/gate.py` measures how often a gate passes by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np

from localjudge.analysis import Floats
from localjudge.analysis.changes.matched_runs import MatchedRuns, by_instruction
from localjudge.analysis.statistics import two_decimals
from localjudge.analysis.statistics.resampling import MIN_INSTRUCTIONS
from localjudge.errors import UsageError
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import is_complete
from localjudge.system.quantities import counted

LEVEL = 0.95
WORST_INSTRUCTIONS = 1.25
QUANTILE = 0.96
"""`benchmarks/gate.py` derives both: the smallest of its grid with false passes of at most 5 %."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a gate, and whether it holds.

    Attributes:
        column: the column.
        margin: the largest drop that passes; None if the column must rise.
        change: the mean change, where a row that is missing in NEW has the lowest score.
        bound: the lower end of its one-sided 95 % interval; None for fewer than five instructions.
        instructions: number of instructions.
        missing: number of rows that are missing in NEW.
    """

    column: str
    margin: float | None
    change: float
    bound: float | None
    instructions: int
    missing: int

    @property
    def passes(self) -> bool:
        return self.bound is not None and (self.bound > 0 if self.margin is None else self.bound > -self.margin)

    @property
    def name(self) -> str:
        """The condition in a few words."""
        return (
            f"{self.column} rose" if self.margin is None else f"{self.column} fell by less than {self.margin:g}"
        )

    @property
    def reason(self) -> str:
        """What was measured, in words."""
        if self.bound is None:
            return f"{counted(self.instructions, 'instruction')} are too few; a gate needs {MIN_INSTRUCTIONS}"
        counts = f", with {counted(self.missing, 'missing row')} at the lowest score" * bool(self.missing)
        return (
            f"change {two_decimals(self.change)}, at least {two_decimals(self.bound)} with 95 % confidence on "
            f"{counted(self.instructions, 'instruction')}{counts}"
        )


def check_gate(
    matched: MatchedRuns, margins: Mapping[str, float], improved: Sequence[str] = ()
) -> tuple[Condition, ...]:
    """Return the conditions of a gate.

    Args:
        matched: the rows of both runs.
        margins: the margin of each column that must not fall by as much.
        improved: the columns that must rise.

    Raises:
        UsageError: there is no such column, a margin is not positive, or a run is dry or incomplete.
    """
    rows = matched.rows
    for name in (*margins, *improved):
        if name not in rows.names:
            raise UsageError(f"{name}: is not a column of these runs; give one of {', '.join(rows.names)}")
    for name, drop in margins.items():
        if not 0 < drop < rows.width[rows.names.index(name)]:
            raise UsageError(f"`margin` {name}={drop:g}: must be above 0 and smaller than the scale")
    given = zip(rows.source.folders, rows.source.manifests, strict=True) if margins or improved else ()
    for folder, manifest in given:
        if is_dry_run(manifest) or not is_complete(folder):
            what = "a dry run" if is_dry_run(manifest) else "not complete; the same score command continues it"
            raise UsageError(f"{folder}: is {what}, and a gate needs every score")
    missing = ~matched.in_both
    changes = np.where(missing[:, None], rows.low, matched.new) - matched.old
    means = by_instruction(changes, matched.group)
    found = []
    for name in dict.fromkeys((*margins, *improved)):
        at = rows.names.index(name)
        bound = float(lower_bound(means[:, at], rows.width[at]))
        asked: list[float | None] = [margins[name]] if name in margins else []
        for margin in [*asked, *[None] * (name in improved)]:
            found.append(
                Condition(
                    column=name,
                    margin=margin,
                    change=float(means[:, at].mean()),
                    bound=bound if len(means) >= MIN_INSTRUCTIONS else None,
                    instructions=len(means),
                    missing=int(missing.sum()),
                )
            )
    return tuple(found)


def lower_bound(
    changes: Floats, width: float, worst: float = WORST_INSTRUCTIONS, quantile: float = QUANTILE
) -> Floats:
    """Return the lower ends of the one-sided 95 % intervals of mean changes.

    Args:
        changes: the change on each instruction, from -width to width, [..., n].
        width: the width of the scale.
        worst: number of further instructions at the lowest possible change.
        quantile: the quantile of Student's t.
    """
    from scipy.stats import t

    count = changes.shape[-1]
    total = count + worst
    mean = (changes.sum(axis=-1) - worst * width) / total
    squares = ((changes - mean[..., None]) ** 2).sum(axis=-1) + worst * (width + mean) ** 2
    studentised = mean - t.ppf(quantile, total - 1) * np.sqrt(squares / (total - 1) / total)
    # All wealth of the largest bet that the mean is below m: ((width + change) / (width + m)) ** count.
    betting = (width + changes[..., 0]) * (1 - LEVEL) ** (1 / count) - width
    bound: Floats = np.where(np.ptp(changes, axis=-1) < 1e-9, betting, np.maximum(studentised, -width))
    return bound


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
