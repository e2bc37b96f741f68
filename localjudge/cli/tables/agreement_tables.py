"""Terminal tables of agreement and calibration; they fit a width of 100 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.agreement import Agreement, AspectAgreement
from localjudge.analysis.agreement.alternative_annotator import annotator_lines
from localjudge.analysis.agreement.calibration import Calibration
from localjudge.analysis.agreement.comparison import STATISTICS, Comparison
from localjudge.analysis.agreement.nominal_agreement import NominalAgreement
from localjudge.analysis.agreement.within_instructions import NOT_WITHIN, WITHIN_NOTE
from localjudge.analysis.pairs.pair_agreement import LabelledPairs, PairAgreement, PairComparison
from localjudge.analysis.statistics import UNDEFINED_SIGN, Estimate, two_decimals
from localjudge.cli.tables.table_parts import answered, plain_table, stacked, title_line
from localjudge.system.quantities import counted

_HEADINGS = {
    "within_one": "±1",
    "mae": "MAE",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "kendall": "Kendall",
}
_ROW_NAMES = {
    "length": "length only", "overlap": "word overlap only", "most frequent": "most frequent label",
    "equal": "equal scores",
}  # fmt: skip
_IN_ORDER = "In order: share of the response pairs of one instruction that the scores order as the labels do"
_BASELINES = ("longer wins", "first wins")


def agreement_tables(agreement: Agreement, all_tables: bool = False) -> Group:
    """Return whether the agreement is above chance, and a table with a row for each aspect.

    The details are the tables of each aspect: the scores and trivial baselines, also within instructions.
    """
    scores = {aspect: _scores_of(found) for aspect, found in agreement.aspects.items()}
    spearman = {
        aspect: found.comparisons[scores[aspect]].spearman for aspect, found in agreement.aspects.items()
    }
    kappa = {aspect: found.comparisons["judge"].kappa for aspect, found in agreement.nominal.items()}
    main: list[RenderableType] = []
    if agreement.aspects:
        title = title_line("Agreement with the labels", agreement.notices)
        main += [title, _ordered_aspects(agreement.aspects, scores)]
        main += [Text(_IN_ORDER)] * any(found.within for found in agreement.aspects.values())
    if agreement.nominal:
        title = title_line("Agreement with the labels, aspects without an order", agreement.notices)
        main += [title, _nominal_aspects(agreement.nominal)]
    details: list[RenderableType] = []
    for aspect, found in agreement.aspects.items():
        details.append(title_line(_labelled(aspect, found), agreement.notices))
        table = plain_table("", *(_HEADINGS.get(name, name) for name in STATISTICS))
        for name, comparison in found.comparisons.items():
            table.add_row(_ROW_NAMES.get(name, name), *_statistics(comparison))
        details += [table, *_within(aspect, found, agreement.notices)]
        alpha = ""
        if found.alpha_ordinal.value is not None:
            alpha = f"ordinal {found.alpha_ordinal.in_words()}, interval {found.alpha_interval.in_words()}"
        details += map(Text, annotator_lines(alpha, found.annotator_test))
    for aspect, nominal in agreement.nominal.items():
        details += [title_line(_labelled(aspect, nominal), agreement.notices), *_nominal_agreement(nominal)]
    return answered(
        [*_above_chance("Spearman's correlation", spearman), *_above_chance("kappa", kappa)],
        main,
        {"all statistics of each aspect": details},
        all_tables=all_tables,
        notices=agreement.notices,
        notes=agreement.notes,
    )


def _above_chance(statistic: str, aspects: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield a sentence on the aspects whose agreement differs from 0, by the interval of this statistic."""
    groups: dict[str, list[str]] = {}
    for aspect, found in aspects.items():
        if found.value is None:
            where = "is undefined"
        elif found.low is None and found.high is None:
            where = "has no interval"
        elif found.low is not None and found.low > 0:
            where = "is above 0"
        elif found.high is not None and found.high < 0:
            where = "is below 0"
        else:
            where = "is not shown to differ from 0"
        groups.setdefault(where, []).append(f"{aspect} {found.in_words()}")
    for where, names in groups.items():
        yield f"{statistic} with the labels {where}: {', '.join(names)}"


def _scores_of(found: AspectAgreement) -> str:
    """Return the kind of scores of an aspect: calibrated or expected, if it has such scores, or integer."""
    return next(kind for kind in ("calibrated", "expected", "integer") if kind in found.comparisons)


def _ordered_aspects(aspects: Mapping[str, AspectAgreement], scores: Mapping[str, str]) -> Table:
    """Return the agreement on each aspect, also within instructions, beside the best baseline."""
    table = plain_table(
        "aspect", "scores", "rows", "Spearman", "exact,\nintegers", "in order", "best baseline\nin order"
    )
    for aspect, found in aspects.items():
        within = found.within.comparisons if found.within else {}
        kind = scores[aspect]
        orders = {name: each.in_order for name, each in within.items() if name in _ROW_NAMES}
        table.add_row(
            aspect,
            kind,
            str(found.rows),
            stacked(found.comparisons[kind].spearman),
            stacked(found.comparisons["integer"].exact),
            stacked(within[kind].in_order) if kind in within else UNDEFINED_SIGN,
            _best(orders, _ROW_NAMES),
        )
    return table


def _nominal_aspects(aspects: Mapping[str, NominalAgreement]) -> Table:
    table = plain_table("aspect", "rows", "kappa", "accuracy", "best baseline\naccuracy")
    for aspect, found in aspects.items():
        judge = found.comparisons["judge"]
        baselines = {name: each.accuracy for name, each in found.comparisons.items() if name in _ROW_NAMES}
        cells = (stacked(judge.kappa), stacked(judge.accuracy), _best(baselines, _ROW_NAMES))
        table.add_row(aspect, str(found.rows), *cells)
    return table


def _best(baselines: Mapping[str, Estimate], names: Mapping[str, str]) -> str:
    """Return the largest value and the name of its baseline."""
    known = {name: each.value for name, each in baselines.items() if each.value is not None}
    if not known:
        return UNDEFINED_SIGN
    name = max(known, key=lambda each: known[each])
    return f"{two_decimals(known[name])}\n{names.get(name, name)}"


def _within(aspect: str, found: AspectAgreement, notices: Sequence[str]) -> Iterator[RenderableType]:
    """Yield the table of the agreement within instructions, or why there is none."""
    if found.within is None:
        yield Text(NOT_WITHIN)
        return
    size = [(found.within.instructions, "instruction"), (found.within.pairs, "response pair")]
    text = f"{aspect} within instructions · {', '.join(counted(*each) for each in size)}"
    yield title_line(text, notices)
    table = plain_table("", "Pearson", "in order", "epsilon")
    for name, each in found.within.comparisons.items():
        cells = (stacked(each.pearson), stacked(each.in_order), two_decimals(each.epsilon))
        table.add_row(_ROW_NAMES.get(name, name), *cells)
    yield table
    yield Text(WITHIN_NOTE)


def _nominal_agreement(found: NominalAgreement) -> Iterator[RenderableType]:
    """Yield the comparisons of an aspect without an order, and its confusion matrix."""
    table = plain_table("", "accuracy", "kappa", "Brier")
    for name, each in found.comparisons.items():
        cells = map(stacked, (each.accuracy, each.kappa, each.brier))
        table.add_row(_ROW_NAMES.get(name, name), *cells)
    yield table
    confusion = plain_table("human \\ judge", *found.labels, "recall")
    for label, counts, recall in zip(found.labels, found.confusion, found.recall, strict=True):
        confusion.add_row(label, *map(str, counts), stacked(recall))
    confusion.add_section()
    confusion.add_row("precision", *map(stacked, found.precision))
    yield confusion
    yield from map(
        Text, annotator_lines(f"nominal {found.alpha.in_words()}" if found.alpha else "", found.annotator_test)
    )


def pair_agreement_tables(agreement: PairAgreement, all_tables: bool = False) -> Group:
    """Return whether the agreement is above chance, and a table with a row for each aspect.

    The details are the tables of each aspect, of all pairs and of the subsets. All fit 80 characters.
    """
    main = plain_table("aspect", "pairs", "accuracy", "without ties", "kappa", "best baseline\naccuracy")
    details: list[RenderableType] = []
    for aspect, found in agreement.aspects.items():
        verdicts = next(iter(found.comparisons.values()))
        baselines = {name: found.comparisons[name].accuracy for name in _BASELINES if name in found.comparisons}
        cells = map(stacked, (verdicts.accuracy, verdicts.without_ties, verdicts.kappa))
        main.add_row(aspect, str(found.pairs), *cells, _best(baselines, {}))
        size = [(found.pairs, "pair"), (found.instructions, "instruction"), (found.annotators, "annotator")]
        text = f"{aspect} · {', '.join(counted(*each) for each in size)}"
        details += [title_line(text, agreement.notices), _comparisons(found), *map(Text, _lines(found))]
        if subsets := agreement.subsets[aspect]:
            title = f"Accuracy in {aspect} by {agreement.by}"
            details += [title_line(title, agreement.notices), _subsets(found, subsets)]
    kappa = {name: next(iter(found.comparisons.values())).kappa for name, found in agreement.aspects.items()}
    return answered(
        _above_chance("kappa", kappa),
        [title_line("Agreement with the labels", agreement.notices), main],
        {"each order" + f", accuracy by {agreement.by}" * bool(agreement.by): details},
        all_tables=all_tables,
        notices=agreement.notices,
        notes=agreement.notes,
    )


def _comparisons(found: LabelledPairs) -> Table:
    table = plain_table("", "accuracy", "without ties", "pairs", "kappa", "AUC")
    for name, comparison in found.comparisons.items():
        table.add_row(name, *_cells(comparison))
    return table


def _cells(comparison: PairComparison) -> Iterator[Text | str]:
    yield from map(stacked, (comparison.accuracy, comparison.without_ties))
    yield str(comparison.decided)
    yield from map(stacked, (comparison.kappa, comparison.auc))


def _lines(found: LabelledPairs) -> Iterator[str]:
    labels = ", ".join(f"{result} {count}" for result, count in found.labels.items())
    yield f"Labels: {labels}. If only the label or only the verdict is a tie, the accuracy counts one half."
    if found.consistency.value is not None:
        yield f"Both orders name the same response in {found.consistency.in_words()} of the pairs without a tie"
    if found.gain.value is not None:
        yield f"Gain in accuracy from averaging both orders: {found.gain.in_words()}"
    yield from annotator_lines(f"nominal {found.alpha.in_words()}" if found.alpha else "", found.annotator_test)


def _subsets(all_pairs: LabelledPairs, subsets: Mapping[str, LabelledPairs]) -> Table:
    names = [*all_pairs.comparisons]
    table = plain_table("subset", "pairs", *(name.replace(" ", "\n") for name in names))
    for subset, found in subsets.items():
        known = found.comparisons
        accuracies = (stacked(known[name].accuracy) if name in known else UNDEFINED_SIGN for name in names)
        table.add_row(subset, str(found.pairs), *accuracies)
    return table


def calibration_table(calibration: Calibration, of_labels: Sequence[str] = ()) -> Group:
    """Return a table of the maps and of their gain on unseen instructions, with remarks on the labels."""
    title = title_line(
        f"Map from the {calibration.of} score to the mean label; errors and MSE gains on unseen instructions",
        calibration.notices,
    )
    table = plain_table(
        "aspect", "rows", "RMSE", "calibrated", "constant", "gain", "over constant", "map",
    )  # fmt: skip
    for name, found in calibration.aspects.items():
        points = list(zip(found.x, found.y, strict=True))
        shown = (
            [points[round(step * (len(points) - 1) / 4)] for step in range(5)] if len(points) > 5 else points
        )
        table.add_row(
            name,
            str(found.rows),
            two_decimals(found.before),
            two_decimals(found.after),
            two_decimals(found.constant),
            *(stacked(each) for each in (found.gain, found.over_constant)),
            " ".join(f"{x:.3g}→{y:.2f}" for x, y in dict.fromkeys(shown)),
        )
    names = ", ".join(name for name, found in calibration.aspects.items() if not found.has_gain)
    notes = [*of_labels]
    notes += [
        f"No gain is shown for {names}: the interval over the judge's scores, or over one constant for all "
        "rows, is not above 0 or is undefined."
    ] * bool(names)
    notes.append(
        "A calibrated mean is not a human mean: rank --labels estimates that, from labels of a random sample."
    )
    parts = [title, table, *_intervals(calibration)]
    return answered((), parts, {}, all_tables=True, notices=calibration.notices, notes=notes)


def _intervals(calibration: Calibration) -> Iterator[RenderableType]:
    """Yield the table of the intervals for single responses, and what they promise."""
    if not calibration.intervals:
        return
    table = plain_table("aspect", "labelled rows", "instructions", "mean width", "of a constant interval")
    for name, found in calibration.intervals.items():
        level = found.level
        widths = (f"{width:.2f}" for width in (found.width, found.constant_width))
        table.add_row(name, str(found.rows), str(found.instructions), *widths)
    yield Text(f"Intervals for the label of a single response, {level:.0%}")
    yield table
    yield Text(
        f"They hold at least {level:.0%} of the labels of responses to new instructions like the labelled "
        "ones: of all together, not of each system or score. The labelled rows must be a random sample."
    )


def _labelled(aspect: str, found: AspectAgreement | NominalAgreement) -> str:
    return (
        f"{aspect} · {counted(found.rows, 'row')}, {counted(found.instructions, 'instruction')}, "
        f"{counted(found.annotators, 'annotator')}"
    )


def _statistics(comparison: Comparison) -> Iterator[Text | str]:
    for name in STATISTICS:
        yield stacked(getattr(comparison, name))
