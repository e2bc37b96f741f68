"""Tables of agreement and calibration; on a terminal they fit a width of 100 characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from localjudge.report.agreement_verdicts import (
    ROW_NAMES,
    Verdict,
    baseline_cell,
    verdict_lines,
    verdicts_on,
)
from localjudge.report.tables import Cell, Cells, Findings, Table
from localjudge.statistics import EQUAL_EVERYWHERE, Estimate
from localjudge.statistics.within_instructions import JUDGED, NOT_WITHIN
from localjudge.studies.agree import Agreement, AspectAgreement
from localjudge.studies.calibration import Calibration
from localjudge.studies.nominal_agreement import NominalAgreement
from localjudge.studies.pair_agreement import LabelledPairs, PairAgreement
from localjudge.system.quantities import counted

_BESIDE = "best\nbaseline", "judge minus\nbaseline"
_IN_ORDER = (
    "In order: how often scores and labels rank two responses to one instruction the same way, ties included"
)
_OVER_CHANCE = "Over chance: how much larger the share in order is than that of the same scores in random order"
_MOST_LABELS = 6
"""The most labels whose confusion matrix stands on the first screen."""
_MAPPED_SCORES = 5
"""Number of scores whose label a calibration prints."""
_OF_PAIRS = {
    "accuracy": "accuracy", "without_ties": "without ties", "decided": "pairs", "kappa": "kappa", "auc": "AUC"
}  # fmt: skip


def agreement_findings(agreement: Agreement) -> Findings:
    """Return whether the judge is better than its baselines, and a table with a row for each aspect.

    One aspect alone has a row for each statistic. The details are the tables of each aspect: the scores and
    trivial baselines, also within instructions, and how often each score was given to each label.
    """
    ordered, nominal = agreement.aspects, agreement.nominal
    within = {aspect: found.within for aspect, found in ordered.items() if found.within}
    verdicts = {aspect: verdicts_on(found) for aspect, found in ordered.items()}
    verdicts |= {aspect: [Verdict.of_labels(found)] for aspect, found in nominal.items()}
    main: list[Table | str] = []
    if len(ordered) == 1:
        [(aspect, found)] = ordered.items()
        main.append(_one_aspect(aspect, found))
    elif ordered:
        main.append(_ordered_aspects(ordered))
    if within:
        main.append(_IN_ORDER)
    if nominal:
        main.append(_nominal_aspects(nominal, verdicts))
    for aspect, each in nominal.items():
        if len(nominal) == 1 and len(each.labels) <= _MOST_LABELS:
            main.append(_confusion(aspect, each))
    details = [part for aspect, found in ordered.items() for part in _ordered_details(aspect, found)]
    if within:
        details.append(_OVER_CHANCE)
    details += [part for aspect, each in nominal.items() for part in _nominal_details(aspect, each)]
    return Findings(
        [*verdict_lines(verdicts), *_not_shown(ordered)],
        main,
        {"details of each aspect": details},
        agreement.notices,
        agreement_notes(agreement),
    )


def agreement_notes(agreement: Agreement) -> list[str]:
    """Return the remarks on the labels and the scores, and the aspects with labels outside the scale."""
    notes = list(agreement.input_notes)
    for aspect, of_aspect in agreement.aspects.items():
        outside = of_aspect.outside
        if outside is not None:
            lowest, highest = outside.scale
            notes.append(
                f"{aspect}: labels from {outside.lowest:g} to {outside.highest:g} are outside the scale "
                f"{lowest} to {highest}; only Spearman's correlation is defined"
            )
    return notes


def _not_shown(aspects: Mapping[str, AspectAgreement]) -> Iterator[str]:
    """Yield in which aspects nothing shows that the judge reads the responses."""
    blind = []
    for aspect, found in aspects.items():
        if found.within is None:
            continue
        over = found.within.comparisons[found.kind].over_chance
        is_zero = over.why == EQUAL_EVERYWHERE and (over.value or 0) <= 0
        if is_zero or (over.low is not None and over.low <= 0):
            blind.append(f"{aspect} {over.in_words()}")
    if blind:
        yield (
            "Nothing shows that this judge reads the responses: its scores order pairs no better than the same "
            f"scores in random order do, in {', '.join(blind)}."
        )


def _ordered_aspects(aspects: Mapping[str, AspectAgreement]) -> Table:
    """Return the agreement on each aspect, beside the best baseline: within instructions, or over all rows."""
    rows: list[list[Cell]] = []
    for aspect, found in aspects.items():
        judge = found.comparisons[found.kind]
        in_order = found.within.comparisons[found.kind].in_order if found.within else None
        leading = verdicts_on(found)[0]
        rows.append([aspect, found.rows, in_order, judge.spearman, judge.mae, *leading.cells])
    columns = "aspect", "rows", "in order", "Spearman", "mean abs.\nerror", *_BESIDE
    return Table("Agreement with the labels", columns, rows, apart=_BESIDE)


_STATISTICS = {
    "spearman": "Spearman's rank correlation",
    "mae": "mean absolute error\n(less is better)",
    "kappa": "kappa, quadratic weights",
    "exact": "exact agreement",
    "within_one": "within one",
    "bias": "bias (judge minus label)",
}
"""The statistics over all rows of an aspect."""


def _one_aspect(aspect: str, found: AspectAgreement) -> Table:
    """Return a row for each statistic of an aspect: of the judge's scores and of the best baseline."""
    kinds = [kind for kind in JUDGED if kind in found.comparisons]
    rows: list[list[Cell]] = []
    if found.within:
        of_kinds = [found.within.comparisons[kind].in_order for kind in kinds]
        rows.append(["in order", *of_kinds, *Verdict.of_within(found.within).cells])
    for statistic, name in _STATISTICS.items():
        of_judge = [_if_known(getattr(found.comparisons[kind], statistic)) for kind in kinds]
        if any(of_judge):
            rows.append([name, *of_judge, *_beside(found, statistic)])
    columns = ["statistic", *kinds, *_BESIDE]
    return Table(_labelled(aspect, found), columns, rows)


def _if_known(estimate: Estimate) -> Estimate | None:
    return None if estimate.value is None else estimate


def _beside(found: AspectAgreement, statistic: str) -> tuple[Cell, Cell]:
    """Return the best baseline of a statistic over all rows, and the judge minus it; nothing without one."""
    if statistic == "kappa":
        judge = found.comparisons["integer"].kappa
        return (baseline_cell(0.0, "any label"), judge) if judge.value is not None else (None, None)
    over = found.over_baselines.get(statistic, {})
    values = {name: getattr(found.comparisons[name], statistic).value for name in over}
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return None, None
    best = (min if statistic == "mae" else max)(known, key=lambda name: known[name])
    return baseline_cell(known[best], best), over[best]


def _nominal_aspects(
    aspects: Mapping[str, NominalAgreement], verdicts: Mapping[str, Sequence[Verdict]]
) -> Table:
    rows: list[list[Cell]] = []
    for aspect, found in aspects.items():
        judge, frequent = found.comparisons["judge"], found.comparisons["most frequent"]
        [verdict] = verdicts[aspect]
        rows.append([aspect, found.rows, judge.kappa, *verdict.cells, judge.accuracy, frequent.accuracy])
    title = "Agreement with the labels, aspects without an order"
    best, minus = _BESIDE
    accuracies = "accuracy", "of the most\nfrequent label"
    return Table(title, ("aspect", "rows", "kappa", best, minus, *accuracies), rows, apart=[minus])


def _confusion(aspect: str, found: NominalAgreement) -> Table:
    """Return for each label how often the judge gives it, and what it gives instead."""
    rows: list[list[Cell]] = [
        [name, each.labels, each.recall, each.precision, *found.counts[name].values()]
        for name, each in found.by_label.items()
    ]
    said = [f"judge says\n{name}" for name in found.labels]
    title = f"{aspect}: each label of people"
    return Table(title, ("label", "labels", "recall", "precision", *said), rows)


def _compared(comparisons: Mapping[str, Any], statistics: Mapping[str, str]) -> tuple[list[str], list[Cells]]:
    """Return the headings and a row for each kind of scores and each baseline.

    Args:
        comparisons: what each was compared with, by its name.
        statistics: the heading of each statistic, by its attribute.
    """
    rows: list[Cells] = [
        (ROW_NAMES.get(name, name), *(getattr(found, statistic) for statistic in statistics))
        for name, found in comparisons.items()
    ]
    return ["", *statistics.values()], rows


_ALL_STATISTICS = {
    "spearman": "Spearman", "pearson": "Pearson", "mae": "mean abs.\nerror", "kappa": "kappa\n(quadratic)",
    "exact": "exact", "within_one": "within\none", "bias": "bias",
}  # fmt: skip
"""All statistics over all rows, by their headings."""


def _ordered_details(aspect: str, found: AspectAgreement) -> Iterator[Table | str]:
    """Yield all statistics of an aspect and its baselines, and how often each label had each score."""
    yield Table(_labelled(aspect, found), *_compared(found.comparisons, _ALL_STATISTICS))
    if found.counts:
        integers = next(iter(found.counts.values()))
        said = [f"judge says\n{number}" for number in integers]
        counts: list[Cells] = [(label, *by_integer.values()) for label, by_integer in found.counts.items()]
        yield Table(f"{aspect}: how often the judge gives each integer to each label", ("label", *said), counts)
    if found.within is None:
        yield NOT_WITHIN
    else:
        pairs = counted(found.within.pairs, "response pair")
        title = f"{aspect} within instructions · {counted(found.within.instructions, 'instruction')}, {pairs}"
        over = found.within.over_baselines
        rows = [
            (ROW_NAMES.get(name, name), each.in_order, each.over_chance, over.get(name, ""))
            for name, each in found.within.comparisons.items()
        ]
        differences = "over chance", f"{found.kind} minus\nthis row"
        yield Table(title, ("", "in order", *differences), rows, apart=differences)
    yield from _among_annotators("ordinal", found.alpha)


def _nominal_details(aspect: str, found: NominalAgreement) -> Iterator[Table | str]:
    """Yield the comparisons of an aspect without an order, and the alpha of the annotators."""
    headings = {"accuracy": "accuracy", "kappa": "kappa"}
    yield Table(_labelled(aspect, found), *_compared(found.comparisons, headings))
    yield _confusion(aspect, found)
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
    verdicts = {aspect: Verdict.of_pairs(found) for aspect, found in agreement.aspects.items()}
    for aspect, found in agreement.aspects.items():
        judge = next(iter(found.comparisons.values()))
        shares = judge.accuracy, judge.without_ties, judge.kappa
        rows.append([aspect, found.pairs, *shares, *verdicts[aspect].cells])
        title = _labelled(aspect, found, counted(found.pairs, "pair"))
        details += [Table(title, *_compared(found.comparisons, _OF_PAIRS)), *_lines(found)]
    columns = "aspect", "pairs", "accuracy", "without ties", "kappa", *_BESIDE
    return Findings(
        [*verdict_lines({aspect: [each] for aspect, each in verdicts.items()})],
        [Table("Agreement with the labels", columns, rows, apart=_BESIDE)],
        {"each order": details},
        agreement.notices,
        pair_agreement_notes(agreement),
    )


def pair_agreement_notes(agreement: PairAgreement) -> list[str]:
    """Return the remarks on the labels of pairs, on verdicts without a tie, and on pairs that failed."""
    notes = list(agreement.label_notes)
    if agreement.without_tie:
        notes.append(
            f"no label for a tie in {', '.join(agreement.without_tie)}: the verdict of both orders is the "
            "response with the higher averaged preference"
        )
    if agreement.failed:
        notes.append(f"pairs that could not be judged, and are left out: {agreement.failed:,}")
    return notes


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
        errors = (found.mse_as_judged, found.mse_calibrated, found.mse_constant)
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
    maps: list[Table | str] = [Table(title, columns, rows)] if rows else []
    remarks = [*notes, not_human] if rows else []
    main = [*maps, *_intervals(calibration)]
    return Findings((), main, notices=calibration.notices, notes=[*of_labels, *remarks])


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
