"""Whether a judge agrees with people better than trivial baselines, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from localjudge.report.best_baseline import BASELINE_NAMES, BestBaseline, best_baseline
from localjudge.statistics import Estimate, two_decimals, verdicts_in_words
from localjudge.statistics.within_instructions import WithinInstructions
from localjudge.studies.agree import AspectAgreement
from localjudge.studies.nominal_agreement import NominalAgreement
from localjudge.studies.pair_agreement import LabelledPairs

_HALF_WIDTH = 0.05
"""Half the width of an interval that is enough to know a difference."""
_WITHIN_INSTRUCTIONS = "within instructions"
_OVER_ALL_ROWS = "over all rows"
_NO_BASELINE = Estimate(why="no baseline is defined on these rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a judge agrees with people better than the best baseline, in one aspect and by one statistic.

    Attributes:
        agreement: how far the judge agrees; the beginning of a sentence.
        baseline_template: how far the baseline agrees; a template with its `name` and its `value`.
        baseline: the baseline that agrees best; None if none is defined.
        instructions: number of instructions that are compared.
        scope: what is compared: responses within instructions, or all rows.
    """

    agreement: str
    baseline_template: str
    baseline: BestBaseline | None
    instructions: int
    scope: str

    @classmethod
    def of_within(cls, within: WithinInstructions) -> Verdict:
        """Return the verdict on the order of the responses within instructions."""
        kind = "expected" if "expected" in within.comparisons else "integer"
        in_order = within.comparisons[kind].in_order
        differences = within.over_baselines
        values = {name: within.comparisons[name].in_order.value for name in differences}
        return cls(
            agreement=f"This judge orders responses as people do in {in_order.in_words()} of the pairs",
            baseline_template="{name} in {value}",
            baseline=best_baseline(values, differences),
            instructions=within.instructions,
            scope=_WITHIN_INSTRUCTIONS,
        )

    @classmethod
    def of_rows(cls, agreement: AspectAgreement) -> Verdict:
        """Return the verdict on the rank correlation over all rows."""
        spearman = agreement.comparisons[agreement.kind].spearman.in_words()
        differences = agreement.over_baselines["spearman"]
        values = {name: agreement.comparisons[name].spearman.value for name in differences}
        return cls(
            agreement=f"Over all rows, this judge has a rank correlation with the labels of {spearman}",
            baseline_template="{name} one of {value}",
            baseline=best_baseline(values, differences),
            instructions=agreement.instructions,
            scope=_OVER_ALL_ROWS,
        )

    @classmethod
    def of_labels(cls, agreement: NominalAgreement) -> Verdict:
        """Return the verdict on the kappa of labels without an order."""
        kappa = agreement.comparisons["judge"].kappa
        differences = agreement.over_baselines["kappa"]
        values = {name: agreement.comparisons[name].kappa.value for name in differences}
        return cls(
            agreement=f"This judge has a kappa with the labels of {kappa.in_words()}",
            baseline_template="{name} one of {value}",
            baseline=best_baseline(values, differences),
            instructions=agreement.instructions,
            scope=_OVER_ALL_ROWS,
        )

    @classmethod
    def of_pairs(cls, pairs: LabelledPairs) -> Verdict:
        """Return the verdict on the accuracy of verdicts on pairs."""
        judge = next(iter(pairs.comparisons.values()))
        differences = pairs.over_baselines
        values = {name: pairs.comparisons[name].accuracy.value for name in differences}
        return cls(
            agreement=f"This judge agrees with people in {judge.accuracy.in_words()} of the pairs",
            baseline_template="{name} in {value}",
            baseline=best_baseline(values, differences),
            instructions=pairs.instructions,
            scope=_OVER_ALL_ROWS,
        )

    @property
    def difference(self) -> Estimate:
        """The judge minus the best baseline; undefined, with the reason, if there is none."""
        if self.baseline is None:
            return _NO_BASELINE
        return self.baseline.difference

    @property
    def sentence(self) -> str:
        """How far the judge and the best baseline agree, and which is better."""
        if self.baseline is None:
            return f"{self.agreement}; {self.difference.why}."
        name = BASELINE_NAMES[self.baseline.name]
        baseline = self.baseline_template.format(name=name, value=two_decimals(self.baseline.value))
        return f"{self.agreement}, {baseline}: {_difference_in_words(self.difference)}."

    @property
    def instructions_needed(self) -> float:
        """The number of instructions for an interval of `_HALF_WIDTH` to each side; 0 if it is not known."""
        low = self.difference.low
        high = self.difference.high
        if low is None or high is None:
            return 0
        half_width = (high - low) / 2
        return self.instructions * (half_width / _HALF_WIDTH) ** 2


def _difference_in_words(difference: Estimate) -> str:
    """Return whether the judge is better than a baseline; the end of a sentence."""
    verdict = difference.verdict
    if verdict == "no clear difference":
        return f"there is no clear difference, {difference.in_words()}"
    if verdict == "unknown":
        return f"which is better is unknown ({difference.in_words()}){difference.no_interval}"
    return f"it is {verdict} by {difference.size_in_words()}"


def verdicts_on(agreement: AspectAgreement) -> list[Verdict]:
    """Return the verdicts on an aspect with an order, the leading one first.

    The order within instructions leads where its difference from the best baseline has an interval: over all
    rows, a judge can agree only because it sees how hard the instructions are.
    """
    of_rows = Verdict.of_rows(agreement)
    if agreement.within is None:
        return [of_rows]
    of_within = Verdict.of_within(agreement.within)
    if of_within.difference.verdict == "unknown" and of_rows.difference.verdict != "unknown":
        return [of_rows, of_within]
    return [of_within, of_rows]


def verdict_lines(verdicts: Mapping[str, Sequence[Verdict]]) -> Iterator[str]:
    """Yield whether the judge is better than its baselines, and what is missing to know it.

    Args:
        verdicts: the verdicts on each aspect, the leading one first.
    """
    leading = {aspect: of_aspect[0] for aspect, of_aspect in verdicts.items()}
    if len(verdicts) == 1:
        [of_aspect] = verdicts.values()
        for verdict in of_aspect:
            yield verdict.sentence
    else:
        yield from _lines_of_aspects(leading)
    yield from _needed_line(leading)


def _lines_of_aspects(leading: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield the leading verdicts of several aspects, those within instructions first."""
    for scope in (_WITHIN_INSTRUCTIONS, _OVER_ALL_ROWS):
        differences: dict[str, Estimate] = {}
        for aspect, verdict in leading.items():
            if verdict.scope == scope:
                differences[_name_in_verdicts(aspect, verdict)] = verdict.difference
        if differences:
            verdicts = verdicts_in_words(differences)
            yield f"This judge compared with the best baseline of each aspect, {scope}: {verdicts}."


def _name_in_verdicts(aspect: str, verdict: Verdict) -> str:
    """Return the name of an aspect; with the best baseline if the judge is worse than it."""
    if verdict.baseline is not None and verdict.difference.verdict == "worse":
        return f"{aspect}: {BASELINE_NAMES[verdict.baseline.name]}"
    return aspect


def _needed_line(leading: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield the number of instructions to label, if a difference is not clear and more labels would help."""
    unclear: list[Verdict] = []
    for verdict in leading.values():
        if verdict.difference.verdict == "no clear difference":
            unclear.append(verdict)
    if not unclear:
        return
    widest = max(unclear, key=_instructions_needed)
    if widest.instructions_needed > widest.instructions:
        yield (
            f"To know each difference to ± {_HALF_WIDTH:g}, label about "
            f"{widest.instructions_needed:,.0f} instructions; {widest.instructions:,} have labels now."
        )


def _instructions_needed(verdict: Verdict) -> float:
    return verdict.instructions_needed
