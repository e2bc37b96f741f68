"""Tables of agreement and calibration; on a terminal they fit a width of 100 characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localjudge.report.tables import Cell, Cells, Findings, Table
from localjudge.statistics import EQUAL_EVERYWHERE, Estimate, two_decimals, verdicts_in_words
from localjudge.statistics.within_instructions import JUDGED, NOT_WITHIN, WithinInstructions
from localjudge.studies.agree import Agreement, AspectAgreement, LabelledPairs, NominalAgreement, PairAgreement
from localjudge.studies.calibrate import Calibration
from localjudge.system.quantities import counted

_ROW_NAMES = {
    "length": "length alone", "overlap": "word overlap alone", "equal": "equal scores",
    "random": "random scores", "most frequent": "the most frequent label", "longer wins": "the longer response",
    "first wins": "the first response",
}  # fmt: skip
"""The names of the baselines."""
_AGREES = {
    WithinInstructions: ("orders responses as people do in", "pairs", "in_order"),
    NominalAgreement: ("gives the label of people in", "rows", "accuracy"),
    LabelledPairs: ("agrees with people in", "pairs", "accuracy"),
}
"""What the judge does, with what, and the share of it that a verdict compares."""
_BESIDE = "best\nbaseline", "judge minus\nbaseline"
_PRECISE = 0.05
"""The width of an interval to each side that is enough to know a difference."""
_IN_ORDER = (
    "In order: how often scores and labels rank two responses to one instruction the same way, ties included"
)
_OVER_CHANCE = "Over chance: how much larger the share in order is than that of the same scores in random order"
_MAPPED_SCORES = 5
"""Number of scores whose label a calibration prints."""
_OF_PAIRS = {
    "accuracy": "accuracy", "without_ties": "without ties", "decided": "pairs", "kappa": "kappa", "auc": "AUC"
}  # fmt: skip


def agreement_findings(agreement: Agreement) -> Findings:
    """Return whether the judge is better than its baselines, and a table with a row for each aspect.

    The details are the tables of each aspect: the scores and trivial baselines, also within instructions.
    """
    ordered, nominal = agreement.aspects, agreement.nominal
    within = {aspect: found.within for aspect, found in ordered.items() if found.within}
    verdicts = {aspect: _Verdict.of(found) for aspect, found in within.items()}
    verdicts |= {aspect: _Verdict.of(found) for aspect, found in nominal.items()}
    main: list[Table | str] = [_ordered_aspects(ordered, verdicts)] * bool(ordered)
    main += [_IN_ORDER] * bool(within)
    main += [_nominal_aspects(nominal, verdicts)] * bool(nominal)
    details = [part for aspect, found in ordered.items() for part in _ordered_details(aspect, found)]
    details += [_OVER_CHANCE] * bool(within)
    details += [part for aspect, each in nominal.items() for part in _nominal_details(aspect, each)]
    return Findings(
        [*_answers(verdicts), *_not_shown(ordered)],
        main,
        {"details of each aspect": details},
        agreement.notices,
        agreement.notes,
    )


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Whether a judge agrees with people better than the best baseline, in one aspect.

    Attributes:
        agrees: what the judge does, and how often; the beginning of a sentence.
        baseline: the baseline with the largest share.
        share: its share.
        over: the share of the judge minus that of the baseline.
        instructions: number of instructions that are compared.
    """

    agrees: str
    baseline: str
    share: float | None
    over: Estimate
    instructions: int

    @classmethod
    def of(cls, found: WithinInstructions | NominalAgreement | LabelledPairs) -> _Verdict:
        does, of, statistic = _AGREES[type(found)]
        shares = {name: getattr(each, statistic) for name, each in found.comparisons.items()}
        best = max(found.over_baselines, key=lambda name: shares[name].value or 0.0)
        judge = shares.get("expected", next(iter(shares.values())))
        agrees = f"This judge {does} {judge.in_words()} of the {of}"
        return cls(agrees, best, shares[best].value, found.over_baselines[best], found.instructions)

    def __str__(self) -> str:
        verdict, over = self.over.verdict, self.over
        end = f"it is {verdict} by {over.size_in_words()}"
        if verdict == "no clear difference":
            end = f"there is no clear difference, {over.in_words()}"
        elif verdict == "unknown":
            end = f"which is better is unknown ({over.in_words()}){over.no_interval}"
        return f"{self.agrees}, {_ROW_NAMES[self.baseline]} in {two_decimals(self.share)}: {end}."

    @property
    def cells(self) -> tuple[Cell, Cell]:
        """The baseline, and the judge minus it, in a table."""
        return f"{two_decimals(self.share)}\n{_ROW_NAMES[self.baseline]}", self.over

    @property
    def needed(self) -> float:
        """The number of instructions for an interval of `_PRECISE` to each side; 0 if it is not known."""
        low, high = self.over.low, self.over.high
        return 0 if low is None or high is None else self.instructions * ((high - low) / 2 / _PRECISE) ** 2


def _answers(verdicts: Mapping[str, _Verdict]) -> Iterator[str]:
    """Yield whether the judge is better than its baselines, and what is missing to know it."""
    if len(verdicts) == 1:
        yield from map(str, verdicts.values())
    elif verdicts:
        named = {
            name + f": {_ROW_NAMES[each.baseline]}" * (each.over.verdict == "worse"): each.over
            for name, each in verdicts.items()
        }
        yield f"This judge compared with the best baseline of each aspect: {verdicts_in_words(named)}."
    unclear = [each for each in verdicts.values() if each.over.verdict == "no clear difference"]
    most = max(unclear, key=lambda each: each.needed, default=None)
    if most and most.needed > most.instructions:
        yield (
            f"To know each difference to ± {_PRECISE:g}, label about {most.needed:,.0f} instructions; "
            f"{most.instructions:,} have labels now."
        )


def _not_shown(aspects: Mapping[str, AspectAgreement]) -> Iterator[str]:
    """Yield in which aspects nothing shows that the judge reads the responses, or their order is not known."""
    blind, without = [], []
    for aspect, found in aspects.items():
        if found.within is None:
            without.append(f"{aspect} {found.comparisons[_scores_of(found)].spearman.in_words()}")
            continue
        over = found.within.comparisons[_scores_of(found)].over_chance
        is_zero = over.why == EQUAL_EVERYWHERE and (over.value or 0) <= 0
        if is_zero or (over.low is not None and over.low <= 0):
            blind.append(f"{aspect} {over.in_words()}")
    if blind:
        yield (
            "Nothing shows that this judge reads the responses in these aspects: its share in order minus that "
            f"of the same scores in random order is {', '.join(blind)}"
        )
    if without:
        yield (
            f"{NOT_WITHIN} Over all rows, Spearman's correlation with the labels is {', '.join(without)}; it "
            "includes how hard the instructions are."
        )


def _scores_of(found: AspectAgreement) -> str:
    """Return the kind of scores of an aspect: expected, if it has such scores, or integer."""
    return "expected" if "expected" in found.comparisons else "integer"


def _ordered_aspects(aspects: Mapping[str, AspectAgreement], verdicts: Mapping[str, _Verdict]) -> Table:
    """Return the agreement on each aspect, also within instructions, beside the best baseline."""
    rows: list[list[Cell]] = []
    for aspect, found in aspects.items():
        kind = _scores_of(found)
        compared = found.comparisons[kind].spearman, found.comparisons["integer"].exact
        order = found.within and (found.within.comparisons[kind].in_order, *verdicts[aspect].cells)
        rows.append([aspect, kind, found.rows, *compared, *(order or (None,) * 3)])
    columns = "aspect", "scores", "rows", "Spearman", "equal\nintegers", "in order", *_BESIDE
    return Table("Agreement with the labels", columns, rows, apart=_BESIDE)


def _nominal_aspects(aspects: Mapping[str, NominalAgreement], verdicts: Mapping[str, _Verdict]) -> Table:
    rows: list[list[Cell]] = []
    for aspect, found in aspects.items():
        judge = found.comparisons["judge"]
        rows.append([aspect, found.rows, judge.kappa, judge.accuracy, *verdicts[aspect].cells])
    title = "Agreement with the labels, aspects without an order"
    return Table(title, ("aspect", "rows", "kappa", "accuracy", *_BESIDE), rows, apart=_BESIDE)


def _compared(comparisons: Mapping[str, Any], statistics: Mapping[str, str]) -> tuple[list[str], list[Cells]]:
    """Return the headings and a row for each kind of scores and each baseline.

    Args:
        comparisons: what each was compared with, by its name.
        statistics: the heading of each statistic, by its attribute.
    """
    rows: list[Cells] = [
        (_ROW_NAMES.get(name, name), *(getattr(found, statistic) for statistic in statistics))
        for name, found in comparisons.items()
    ]
    return ["", *statistics.values()], rows


def _ordered_details(aspect: str, found: AspectAgreement) -> Iterator[Table | str]:
    """Yield kappa and bias of an aspect, all baselines within instructions, and the alpha of the annotators."""
    of_judge = {name: each for name, each in found.comparisons.items() if name in JUDGED}
    statistics = {"kappa": "kappa", "bias": "bias"}
    yield Table(_labelled(aspect, found), *_compared(of_judge, statistics), apart=["bias"])
    if found.within is None:
        yield NOT_WITHIN
    else:
        pairs = counted(found.within.pairs, "response pair")
        title = f"{aspect} within instructions · {counted(found.within.instructions, 'instruction')}, {pairs}"
        over = found.within.over_baselines
        rows = [
            (_ROW_NAMES.get(name, name), each.in_order, each.over_chance, over.get(name, ""))
            for name, each in found.within.comparisons.items()
        ]
        differences = "over chance", f"{_scores_of(found)} minus\nthis row"
        yield Table(title, ("", "in order", *differences), rows, apart=differences)
        yield str(_Verdict.of(found.within))
    yield from _among_annotators("ordinal", found.alpha)


def _nominal_details(aspect: str, found: NominalAgreement) -> Iterator[Table | str]:
    """Yield the comparisons of an aspect without an order, and the alpha of the annotators."""
    headings = {"accuracy": "accuracy", "kappa": "kappa"}
    yield Table(_labelled(aspect, found), *_compared(found.comparisons, headings))
    yield from _among_annotators("nominal", found.alpha)


def _among_annotators(level: str, alpha: Estimate) -> Iterator[str]:
    """Yield the agreement among the annotators, if it is known."""
    if alpha.value is not None:
        yield (
            "Agreement among the annotators, which does not limit a judge: Krippendorff's "
            f"{level} alpha {alpha.in_words()}"
        )


def pair_agreement_findings(agreement: PairAgreement) -> Findings:
    """Return whether the judge is better than its baselines, and a table with a row for each aspect.

    The details are the tables of each aspect. All fit 80 characters.
    """
    rows: list[list[Cell]] = []
    details: list[Table | str] = []
    answers = {aspect: _Verdict.of(found) for aspect, found in agreement.aspects.items()}
    for aspect, found in agreement.aspects.items():
        judge = next(iter(found.comparisons.values()))
        shares = judge.accuracy, judge.without_ties, judge.kappa
        rows.append([aspect, found.pairs, *shares, *answers[aspect].cells])
        title = _labelled(aspect, found, counted(found.pairs, "pair"))
        details += [Table(title, *_compared(found.comparisons, _OF_PAIRS)), *_lines(found)]
    columns = "aspect", "pairs", "accuracy", "without ties", "kappa", *_BESIDE
    return Findings(
        [*_answers(answers)],
        [Table("Agreement with the labels", columns, rows, apart=_BESIDE)],
        {"each order": details},
        agreement.notices,
        agreement.notes,
    )


def _lines(found: LabelledPairs) -> Iterator[str]:
    labels = ", ".join(f"{result} {count}" for result, count in found.labels.items())
    yield f"Labels: {labels}. If only the label or only the verdict is a tie, the accuracy counts one half."
    if found.consistency.value is not None:
        same = found.consistency.in_words()
        yield f"Both orders name the same response in {same} of the pairs where each names one"
    yield from _among_annotators("nominal", found.alpha)


def calibration_findings(calibration: Calibration, of_labels: Sequence[str] = ()) -> Findings:
    """Return the maps with their gain on unseen instructions, and the intervals for single labels.

    Args:
        calibration: the maps.
        of_labels: remarks on the labels.
    """
    rows: list[list[Cell]] = []
    for name, found in calibration.aspects.items():
        scores = np.linspace(found.x[0], found.x[-1], _MAPPED_SCORES)
        labels = np.interp(scores, found.x, found.y)
        digits = 2 if scores[-1] - scores[0] <= 1 else 1  # of a share, the scores are quarters
        points = dict(zip(scores, labels, strict=True)).items()
        curve = " ".join(f"{x:.{digits}f}→{y:.{digits}f}" for x, y in points)
        errors = (rmse and rmse**2 for rmse in (found.before, found.after, found.constant))
        rows.append([name, found.rows, *errors, found.gain, found.over_constant, curve])
    names = ", ".join(name for name, found in calibration.aspects.items() if not found.has_gain)
    notes = [
        f"No gain is shown for {names}: the gains over the judge's scores and over one constant for all rows "
        "must both have intervals above 0."
    ] * bool(names)
    not_human = "A calibrated mean is not a human mean: rank --labels estimates that, from a random sample."
    title = f"Map from the {calibration.of} score to the mean label; mean squared errors on unseen instructions"
    columns = (
        *("aspect", "rows", "as judged", "calibrated", "constant"),
        *("gain over\nas judged", "gain over\nconstant", "score→label"),
    )
    main = [Table(title, columns, rows), *_intervals(calibration)]
    return Findings((), main, notices=calibration.notices, notes=[*of_labels, *notes, not_human])


def _intervals(calibration: Calibration) -> Iterator[Table | str]:
    """Yield the table of the intervals for single labels, and what they promise."""
    if not calibration.intervals:
        return
    known = calibration.intervals
    level = next(iter(known.values())).level
    rows = [
        (name, found.rows, found.annotators, found.instructions, found.width, found.constant_width)
        for name, found in known.items()
    ]
    columns = "aspect", "labelled rows", "annotators", "instructions", "mean width", "of a constant interval"
    yield Table(f"Intervals for one person's label of a response, {level:.0%}", columns, rows)
    yield (
        "Of the labels that the same annotators will give to responses to new instructions like these, at "
        f"least {level:.0%} lie in these intervals, each instruction with the same weight. That is not said of "
        "a single row, system, score or annotator, nor of others; the labelled rows must be a random sample."
    )
    if other := ", ".join(name for name, found in known.items() if found.lowest is None):
        yield (
            f"Labels of {other} lie outside the judge's scale, so its ends do not cut these intervals; they "
            "are wider than with labels on the judge's scale."
        )


def _labelled(aspect: str, found: AspectAgreement | NominalAgreement | LabelledPairs, rows: str = "") -> str:
    """Return the title of the statistics of an aspect; `rows` says how many were compared."""
    if not isinstance(found, LabelledPairs):
        rows = counted(found.rows, "row")
    others = f"{counted(found.instructions, 'instruction')}, {counted(found.annotators, 'annotator')}"
    return f"{aspect} · {rows}, {others}"
