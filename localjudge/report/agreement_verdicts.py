"""Whether a judge agrees with people better than trivial baselines, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from localjudge.report.tables import Cell
from localjudge.statistics import Estimate, two_decimals, verdicts_in_words
from localjudge.statistics.within_instructions import WithinInstructions
from localjudge.studies.agree import AspectAgreement
from localjudge.studies.nominal_agreement import NominalAgreement
from localjudge.studies.pair_agreement import LabelledPairs

ROW_NAMES = {
    "length": "length alone", "overlap": "word overlap alone", "equal": "equal scores",
    "random": "random scores", "most frequent": "the most frequent label", "median": "the median label",
    "longer wins": "the longer response", "first wins": "the first response",
}  # fmt: skip
"""The names of the baselines."""
SHORT_NAMES = {"most frequent": "commonest", "longer wins": "longer", "first wins": "first"}
"""Those that are shorter in a cell of a table."""
_PRECISE = 0.05
"""The width of an interval to each side that is enough to know a difference."""
_OF_WITHIN, _OF_ROWS = "within instructions", "over all rows"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a judge agrees with people better than the best baseline, in one aspect and by one statistic.

    Attributes:
        agrees: how far the judge agrees; the beginning of a sentence.
        of_baseline: what is said of the baseline, with the place of its name.
        baseline: the baseline that agrees best; empty if there is none.
        value: how far it agrees.
        over: the judge minus the baseline.
        instructions: number of instructions that are compared.
        scope: what is compared: responses within instructions, or all rows.
    """

    agrees: str
    of_baseline: str
    baseline: str
    value: float | None
    over: Estimate
    instructions: int
    scope: str

    @classmethod
    def of_within(cls, found: WithinInstructions) -> Verdict:
        """Return the verdict on the order of the responses within instructions."""
        kind = "expected" if "expected" in found.comparisons else "integer"
        judge = found.comparisons[kind].in_order
        return cls._with_best(
            agrees=f"This judge orders responses as people do in {judge.in_words()} of the pairs",
            of_baseline="{name} in {value}",
            values={name: found.comparisons[name].in_order.value for name in found.over_baselines},
            over=found.over_baselines,
            instructions=found.instructions,
            scope=_OF_WITHIN,
        )

    @classmethod
    def of_rows(cls, found: AspectAgreement) -> Verdict:
        """Return the verdict on the rank correlation over all rows."""
        judge = found.comparisons[found.kind].spearman
        over = found.over_baselines["spearman"]
        return cls._with_best(
            agrees=f"Over all rows, this judge has a rank correlation with the labels of {judge.in_words()}",
            of_baseline="{name} one of {value}",
            values={name: found.comparisons[name].spearman.value for name in over},
            over=over,
            instructions=found.instructions,
            scope=_OF_ROWS,
        )

    @classmethod
    def of_labels(cls, found: NominalAgreement) -> Verdict:
        """Return the verdict on the kappa of labels without an order."""
        over = found.over_baselines["kappa"]
        return cls._with_best(
            agrees=f"This judge has a kappa with the labels of {found.comparisons['judge'].kappa.in_words()}",
            of_baseline="{name} one of {value}",
            values={name: found.comparisons[name].kappa.value for name in over},
            over=over,
            instructions=found.instructions,
            scope=_OF_ROWS,
        )

    @classmethod
    def of_pairs(cls, found: LabelledPairs) -> Verdict:
        """Return the verdict on the accuracy of verdicts on pairs."""
        judge = next(iter(found.comparisons.values())).accuracy
        return cls._with_best(
            agrees=f"This judge agrees with people in {judge.in_words()} of the pairs",
            of_baseline="{name} in {value}",
            values={name: found.comparisons[name].accuracy.value for name in found.over_baselines},
            over=found.over_baselines,
            instructions=found.instructions,
            scope=_OF_ROWS,
        )

    @classmethod
    def _with_best(
        cls,
        *,
        agrees: str,
        of_baseline: str,
        values: Mapping[str, float | None],
        over: Mapping[str, Estimate],
        instructions: int,
        scope: str,
    ) -> Verdict:
        """Return the verdict against the best of the baselines whose value is known."""
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            nothing = Estimate(why="no baseline is defined on these rows")
            return cls(agrees, of_baseline, "", None, nothing, instructions, scope)
        best = max(known, key=lambda name: known[name])
        return cls(agrees, of_baseline, best, known[best], over[best], instructions, scope)

    def __str__(self) -> str:
        if not self.baseline:
            return f"{self.agrees}; {self.over.why}."
        over, verdict = self.over, self.over.verdict
        end = f"it is {verdict} by {over.size_in_words()}"
        if verdict == "no clear difference":
            end = f"there is no clear difference, {over.in_words()}"
        elif verdict == "unknown":
            end = f"which is better is unknown ({over.in_words()}){over.no_interval}"
        baseline = self.of_baseline.format(name=ROW_NAMES[self.baseline], value=two_decimals(self.value))
        return f"{self.agrees}, {baseline}: {end}."

    @property
    def cells(self) -> tuple[Cell, Cell]:
        """The baseline, and the judge minus it, in a table."""
        if not self.baseline:
            return None, None
        return baseline_cell(self.value, self.baseline), self.over

    @property
    def needed(self) -> float:
        """The number of instructions for an interval of `_PRECISE` to each side; 0 if it is not known."""
        low, high = self.over.low, self.over.high
        return 0 if low is None or high is None else self.instructions * ((high - low) / 2 / _PRECISE) ** 2


def baseline_cell(value: float | None, name: str) -> str:
    """Return the value of a baseline above its name, for a table."""
    return f"{two_decimals(value)}\n{SHORT_NAMES.get(name, name)}"


def verdicts_on(found: AspectAgreement) -> list[Verdict]:
    """Return the verdicts on an aspect, the leading one first.

    The order within instructions leads where its difference from the best baseline has an interval: over all
    rows, a judge can agree only because it sees how hard the instructions are.
    """
    of_rows = Verdict.of_rows(found)
    if found.within is None:
        return [of_rows]
    of_within = Verdict.of_within(found.within)
    if of_within.over.verdict == "unknown" and of_rows.over.verdict != "unknown":
        return [of_rows, of_within]
    return [of_within, of_rows]


def verdict_lines(verdicts: Mapping[str, Sequence[Verdict]]) -> Iterator[str]:
    """Yield whether the judge is better than its baselines, and what is missing to know it.

    Args:
        verdicts: the verdicts on each aspect, the leading one first.
    """
    if len(verdicts) == 1:
        [of_aspect] = verdicts.values()
        yield from map(str, of_aspect)
    else:
        yield from _of_several(verdicts)
    leading = [of_aspect[0] for of_aspect in verdicts.values()]
    unclear = [each for each in leading if each.over.verdict == "no clear difference"]
    most = max(unclear, key=lambda each: each.needed, default=None)
    if most and most.needed > most.instructions:
        yield (
            f"To know each difference to ± {_PRECISE:g}, label about {most.needed:,.0f} instructions; "
            f"{most.instructions:,} have labels now."
        )


def _of_several(verdicts: Mapping[str, Sequence[Verdict]]) -> Iterator[str]:
    """Yield the leading verdicts of several aspects, those within instructions first."""
    for scope in (_OF_WITHIN, _OF_ROWS):
        named = {}
        for aspect, (leading, *_) in verdicts.items():
            if leading.scope == scope:
                is_worse = leading.over.verdict == "worse"
                name = f"{aspect}: {ROW_NAMES[leading.baseline]}" if is_worse else aspect
                named[name] = leading.over
        if named:
            said = verdicts_in_words(named)
            yield f"This judge compared with the best baseline of each aspect, {scope}: {said}."
