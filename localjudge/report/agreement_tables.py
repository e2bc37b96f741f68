"""Tables of agreement and calibration; on a terminal they fit a width of 100 characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from localjudge.report.tables import Cell, Cells, Findings, Table
from localjudge.statistics import EQUAL_EVERYWHERE, UNDEFINED_SIGN, Estimate, two_decimals
from localjudge.statistics.annotators import annotator_lines
from localjudge.statistics.within_instructions import JUDGED, NOT_WITHIN, WITHIN_NOTE
from localjudge.studies.agree import Agreement, AspectAgreement, LabelledPairs, NominalAgreement, PairAgreement
from localjudge.studies.calibrate import Calibration
from localjudge.system.quantities import counted

_ROW_NAMES = {
    "length": "length only", "overlap": "word overlap only", "most frequent": "most frequent label",
    "equal": "equal scores", "random": "random scores",
}  # fmt: skip
_IN_ORDER = (
    "In order: how often scores and labels rank two responses to one instruction the same way, ties included"
)
_BASELINES = ("longer wins", "first wins")
_OF_PAIRS = {
    "accuracy": "accuracy", "without_ties": "without ties", "decided": "pairs", "kappa": "kappa", "auc": "AUC"
}  # fmt: skip


def agreement_findings(agreement: Agreement) -> Findings:
    """Return whether the agreement is above chance, and a table with a row for each aspect.

    The details are the tables of each aspect: the scores and trivial baselines, also within instructions.
    """
    ordered, nominal = agreement.aspects, agreement.nominal
    spearman = {aspect: found.comparisons[_scores_of(found)].spearman for aspect, found in ordered.items()}
    kappa = {aspect: each.comparisons["judge"].kappa for aspect, each in nominal.items()}
    main: list[Table | str] = [_ordered_aspects(ordered)] * bool(ordered)
    main += [_IN_ORDER] * any(found.within for found in ordered.values())
    main += [_nominal_aspects(nominal)] * bool(nominal)
    details = [part for aspect, found in ordered.items() for part in _ordered_details(aspect, found)]
    details += [part for aspect, each in nominal.items() for part in _nominal_details(aspect, each)]
    answers = [*_above_chance("Spearman's correlation", spearman), *_above_chance("kappa", kappa)]
    return Findings(
        [*answers, *_in_order_answers(ordered)],
        main,
        {"all statistics of each aspect": details},
        agreement.notices,
        agreement.notes,
    )


def _above_chance(statistic: str, aspects: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield a sentence on the aspects whose agreement differs from 0, by the interval of this statistic.

    Args:
        statistic: its name.
        aspects: the statistic of each aspect.
    """
    groups: dict[str, list[str]] = {}
    for aspect, found in aspects.items():
        if found.value is None:
            where = f"is undefined, because {found.why}"
        elif found.low is None and found.high is None:
            where = f"has no interval, because {found.why}"
        elif found.low is not None and found.low > 0:
            where = "is above 0"
        elif found.high is not None and found.high < 0:
            where = "is below 0"
        else:
            where = "is not shown to differ from 0"
        groups.setdefault(where, []).append(f"{aspect} {found.in_words()}")
    for where, names in groups.items():
        yield f"{statistic} with the labels {where}: {', '.join(names)}"


def _in_order_answers(aspects: Mapping[str, AspectAgreement]) -> Iterator[str]:
    """Yield a sentence on the aspects whose order within instructions is better than chance, and one on the
    others."""
    groups: dict[str, list[str]] = {}
    for aspect, found in aspects.items():
        if found.within is None:
            continue
        over = found.within.comparisons[_scores_of(found)].over_chance
        if over.low is not None and over.low > 0:
            how = "is better than chance"
        elif over.low is None and over.why != EQUAL_EVERYWHERE:
            how = f"has no interval, because {over.why}; so nobody knows if it is better than chance"
        else:
            how = "is not better than chance, as that of a judge that does not read the responses"
        groups.setdefault(how, []).append(f"{aspect} {over.in_words()}")
    for how, names in groups.items():
        yield f"The order within instructions {how}: share in order minus chance, {', '.join(names)}"


def _scores_of(found: AspectAgreement) -> str:
    """Return the kind of scores of an aspect: expected, if it has such scores, or integer."""
    return "expected" if "expected" in found.comparisons else "integer"


def _ordered_aspects(aspects: Mapping[str, AspectAgreement]) -> Table:
    """Return the agreement on each aspect, also within instructions, beside the best baseline."""
    rows: list[list[Cell]] = []
    for aspect, found in aspects.items():
        within = {
            name: each.in_order for name, each in (found.within.comparisons if found.within else {}).items()
        }
        kind = _scores_of(found)
        compared = found.comparisons[kind].spearman, found.comparisons["integer"].exact
        rows.append([aspect, kind, found.rows, *compared, within.get(kind), _best(within)])
    columns = "aspect", "scores", "rows", "Spearman", "exact,\nintegers", "in order", "best baseline\nin order"
    return Table("Agreement with the labels", columns, rows)


def _nominal_aspects(aspects: Mapping[str, NominalAgreement]) -> Table:
    rows: list[list[Cell]] = []
    for aspect, found in aspects.items():
        judge = found.comparisons["judge"]
        best = _best({name: each.accuracy for name, each in found.comparisons.items()})
        rows.append([aspect, found.rows, judge.kappa, judge.accuracy, best])
    title = "Agreement with the labels, aspects without an order"
    return Table(title, ("aspect", "rows", "kappa", "accuracy", "best baseline\naccuracy"), rows)


def _best(found: Mapping[str, Estimate]) -> str:
    """Return the largest value of a baseline, and its name."""
    values = {name: each.value for name, each in found.items() if name in (*_ROW_NAMES, *_BASELINES)}
    known = {name: value for name, value in values.items() if value is not None}
    name = max(known, key=lambda each: known[each], default="")
    return f"{two_decimals(known[name])}\n{_ROW_NAMES.get(name, name)}" if known else UNDEFINED_SIGN


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
    """Yield all statistics of an aspect, those within instructions, and the test of the annotators."""
    of_judge = {name: each for name, each in found.comparisons.items() if name in JUDGED}
    yield Table(_labelled(aspect, found), *_compared(of_judge, {"kappa": "kappa", "bias": "bias"}))
    if found.within is None:
        yield NOT_WITHIN
    else:
        pairs = counted(found.within.pairs, "response pair")
        title = f"{aspect} within instructions · {counted(found.within.instructions, 'instruction')}, {pairs}"
        over = found.within.over_baselines
        rows = [
            (_ROW_NAMES.get(name, name), each.in_order, over.get(name, ""))
            for name, each in found.within.comparisons.items()
        ]
        yield Table(title, ("", "in order", f"{_scores_of(found)} minus it"), rows)
        yield WITHIN_NOTE
    alpha = ""
    if found.alpha_ordinal.value is not None:
        alpha = f"ordinal {found.alpha_ordinal.in_words()}, interval {found.alpha_interval.in_words()}"
    yield from annotator_lines(alpha, found.annotator_test)


def _nominal_details(aspect: str, found: NominalAgreement) -> Iterator[Table | str]:
    """Yield the comparisons of an aspect without an order, and its confusion matrix."""
    headings = {"accuracy": "accuracy", "kappa": "kappa", "brier": "Brier"}
    yield Table(_labelled(aspect, found), *_compared(found.comparisons, headings))
    counts: list[Cells] = [
        (label, *given, recall)
        for label, given, recall in zip(found.labels, found.confusion, found.recall, strict=True)
    ]
    columns = ("human \\ judge", *found.labels, "recall")
    totals: list[Cells] = [("precision", *found.precision, "")]
    yield Table(f"{aspect}: human and judge", columns, counts, totals)
    yield from annotator_lines(f"nominal {found.alpha.in_words()}" if found.alpha else "", found.annotator_test)


def pair_agreement_findings(agreement: PairAgreement) -> Findings:
    """Return whether the agreement is above chance, and a table with a row for each aspect.

    The details are the tables of each aspect, of all pairs and of the subsets. All fit 80 characters.
    """
    rows: list[list[Cell]] = []
    details: list[Table | str] = []
    kappa = {}
    for aspect, found in agreement.aspects.items():
        verdicts = next(iter(found.comparisons.values()))
        kappa[aspect] = verdicts.kappa
        best = _best({name: each.accuracy for name, each in found.comparisons.items()})
        rows.append([aspect, found.pairs, verdicts.accuracy, verdicts.without_ties, verdicts.kappa, best])
        title = _labelled(aspect, found, counted(found.pairs, "pair"))
        details += [Table(title, *_compared(found.comparisons, _OF_PAIRS)), *_lines(found)]
        if subsets := agreement.subsets[aspect]:
            details.append(_subsets(f"Accuracy in {aspect} by {agreement.by}", found, subsets))
    columns = "aspect", "pairs", "accuracy", "without ties", "kappa", "best baseline\naccuracy"
    return Findings(
        [*_above_chance("kappa", kappa)],
        [Table("Agreement with the labels", columns, rows)],
        {"each order" + f", accuracy by {agreement.by}" * bool(agreement.by): details},
        agreement.notices,
        agreement.notes,
    )


def _lines(found: LabelledPairs) -> Iterator[str]:
    labels = ", ".join(f"{result} {count}" for result, count in found.labels.items())
    yield f"Labels: {labels}. If only the label or only the verdict is a tie, the accuracy counts one half."
    if found.consistency.value is not None:
        yield f"Both orders name the same response in {found.consistency.in_words()} of the pairs without a tie"
    if found.gain.value is not None:
        yield f"Gain in accuracy from averaging both orders: {found.gain.in_words()}"
    yield from annotator_lines(f"nominal {found.alpha.in_words()}" if found.alpha else "", found.annotator_test)


def _subsets(title: str, all_pairs: LabelledPairs, subsets: Mapping[str, LabelledPairs]) -> Table:
    names = [*all_pairs.comparisons]
    rows: list[Cells] = []
    for subset, found in subsets.items():
        compared = map(found.comparisons.get, names)
        rows.append((subset, found.pairs, *(None if each is None else each.accuracy for each in compared)))
    return Table(title, ("subset", "pairs", *(name.replace(" ", "\n") for name in names)), rows)


def calibration_findings(calibration: Calibration, of_labels: Sequence[str] = ()) -> Findings:
    """Return the maps with their gain on unseen instructions, and the intervals for single labels.

    Args:
        calibration: the maps.
        of_labels: remarks on the labels.
    """
    rows: list[list[Cell]] = []
    for name, found in calibration.aspects.items():
        points = list(zip(found.x, found.y, strict=True))
        last = len(points) - 1
        shown = [points[round(step * last / 4)] for step in range(5)] if last > 4 else points
        curve = " ".join(f"{x:.3g}→{y:.2f}" for x, y in dict.fromkeys(shown))
        errors = found.before, found.after, found.constant
        rows.append([name, found.rows, *errors, found.gain, found.over_constant, curve])
    names = ", ".join(name for name, found in calibration.aspects.items() if not found.has_gain)
    notes = [*of_labels]
    notes += [
        f"No gain is shown for {names}: the interval over the judge's scores, or over one constant for all "
        "rows, is not above 0 or is undefined."
    ] * bool(names)
    notes.append(
        "A calibrated mean is not a human mean: rank --labels estimates that, from labels of a random sample."
    )
    title = (
        f"Map from the {calibration.of} score to the mean label; errors and MSE gains on unseen instructions"
    )
    columns = "aspect", "rows", "RMSE", "calibrated", "constant", "gain", "over constant", "map"
    main = [Table(title, columns, rows), *_intervals(calibration)]
    return Findings((), main, notices=calibration.notices, notes=notes)


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
        f"They hold at least {level:.0%} of the single labels that the same annotators give to responses to "
        "new instructions like the labelled ones: in the mean over instructions, each with the same weight, "
        "and not for each system, score or annotator, nor for other annotators. The labelled rows must be a "
        "random sample."
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
