"""Terminal tables of agreement, jury and calibration; they fit a width of 100 characters.

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
from localjudge.analysis.juries import Jury
from localjudge.analysis.juries.jury_aspect import EstimatedErrors, NominalJuryAspect
from localjudge.analysis.juries.jury_errors import JuryErrors
from localjudge.analysis.statistics import two_decimals
from localjudge.cli.tables.table_parts import (
    headed,
    note_lines,
    plain_table,
    spaced,
    stacked,
    title_line,
)
from localjudge.rubrics.answer import shown
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
_INDEPENDENT_ERRORS = (
    "Without labels, this assumes that the jurors' errors are independent (Dawid and Skene's model).\n"
    "If jurors make the same errors, the accuracy is too high; --labels measures the errors."
)


def agreement_tables(agreement: Agreement) -> Group:
    """Return the tables of each aspect: the scores and trivial baselines, also within instructions."""
    parts: list[RenderableType] = []
    for aspect, found in agreement.aspects.items():
        parts.append(title_line(_labelled(aspect, found), agreement.notices))
        table = plain_table("", *(_HEADINGS.get(name, name) for name in STATISTICS))
        for name, comparison in found.comparisons.items():
            table.add_row(_ROW_NAMES.get(name, name), *_statistics(comparison))
        parts += [table, *_within(aspect, found, agreement.notices)]
        alpha = ""
        if found.alpha_ordinal.value is not None:
            alpha = f"ordinal {found.alpha_ordinal.in_words()}, interval {found.alpha_interval.in_words()}"
        parts += map(Text, annotator_lines(alpha, found.annotator_test))
    for aspect, nominal in agreement.nominal.items():
        parts += [title_line(_labelled(aspect, nominal), agreement.notices), *_nominal_agreement(nominal)]
    return headed(agreement.notices, *spaced(parts), *note_lines(agreement.notes))


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


def jury_tables(jury: Jury) -> Group:
    """Return tables of the aspects, of the jurors, and of the rows with the largest differences."""
    title = (
        f"{len(jury.jurors)} jurors · {counted(jury.rows, 'row')}, {counted(jury.instructions, 'instruction')}"
    )
    parts: list[RenderableType] = [title_line(title, jury.notices)]
    aspects = plain_table("aspect", "mean", "median", "SD", "alpha ord.", "alpha int.", "all equal", "split")
    for name, aspect in jury.aspects.items():
        aspects.add_row(
            name,
            stacked(aspect.mean),
            f"{aspect.median:.2f}",
            f"{aspect.spread:.2f}",
            stacked(aspect.alpha_ordinal),
            stacked(aspect.alpha_interval),
            f"{aspect.unanimous:.0%}",
            f"{aspect.split:.0%}",
        )
    labels = plain_table("aspect", "alpha nom.", "all equal", "majority", "tied")
    for name, nominal in jury.nominal.items():
        shares = (nominal.unanimous, nominal.with_majority, nominal.tied)
        labels.add_row(name, stacked(nominal.alpha_nominal), *(f"{share:.0%}" for share in shares))
    parts += [aspects] * bool(jury.aspects) + [labels] * bool(jury.nominal)
    bias = plain_table("juror", *jury.aspects)
    for juror in jury.jurors:
        cells = [f"{juror.bias[name]:+.2f}\n{two_decimals(juror.with_rest[name])}" for name in jury.aspects]
        bias.add_row(juror.name, *cells)
    bias_title = "Bias (a juror's mean minus the mean of the others) and Spearman correlation with the others"
    if jury.aspects:
        parts += [title_line(bias_title, jury.notices), bias]
    for name, nominal in jury.nominal.items():
        parts += [title_line(f"{name}: shares of the labels", jury.notices), _juror_labels(jury, name, nominal)]
        if nominal.estimated:
            parts += [
                title_line(f"{name}: estimated share of each true label that a juror finds", jury.notices),
                _juror_errors(jury, nominal.labels, nominal.estimated),
                Text(_INDEPENDENT_ERRORS),
            ]
    if jury.errors:
        parts += [title_line("Errors against the labels", jury.notices), _errors_by_labels(jury.errors)]
        parts += [Text(_worth(name, each, len(jury.jurors))) for name, each in jury.errors.items()]
    parts.append(Text(f"Outlier among the jurors: {jury.outlier or 'none'}"))
    if jury.disagreements:
        parts.append(title_line("Rows with the largest differences between jurors", jury.notices))
        names = [*jury.aspects, *jury.nominal]
        disagreements = plain_table("row", "system", *names)
        for row in jury.disagreements:
            scores = [
                (", " if name in jury.nominal else " ").join(map(shown, row.scores[name])) for name in names
            ]
            disagreements.add_row(row.id, row.system, *scores)
        parts.append(disagreements)
    if jury.not_shared:
        left_out = counted(jury.not_shared, "judgement")
        parts.append(Text(f"Left out: {left_out} of rows that some jurors have not judged"))
    return headed(jury.notices, *spaced(parts), *note_lines(jury.notes))


def _errors_by_labels(errors: Mapping[str, JuryErrors]) -> Table:
    """Return the errors of the jury and of its best juror, and how far the jurors' errors are independent."""
    table = plain_table("aspect", "rows", "correlation", "votes", "jury", "best juror", "difference")
    for name, found in errors.items():
        each = (found.correlation, found.votes, found.jury, found.best_juror, found.difference)
        table.add_row(name, str(found.rows), *map(stacked, each))
    return table


def _worth(aspect: str, found: JuryErrors, jurors: int) -> str:
    """Return sentences on how many votes the jury is worth, and on the test against its best juror."""
    worth = f"{aspect}: the correlation of the jurors' errors is undefined"
    if found.votes.value is not None:
        worth = (
            f"{aspect}: the {jurors} jurors are worth {found.votes.in_words()} jurors with independent errors"
        )
    low, high = found.difference.low, found.difference.high
    if low is None or high is None:
        return f"{worth}.\nThe jury and its best juror are not compared: the difference has no interval."
    tested = f"difference of the errors {found.difference.in_words()}, {counted(found.compared, 'row')}"
    is_better = (
        "significantly better" if high < 0 else "significantly worse" if low > 0 else "not significantly better"
    )
    return f"{worth}.\nThe jury is {is_better} than its best juror, {found.best} ({tested})."


def _juror_labels(jury: Jury, aspect: str, nominal: NominalJuryAspect) -> Table:
    """Return the share of each label by each juror and by the majorities, and the alpha without each juror."""
    table = plain_table("juror", *nominal.labels, "alpha without")
    for juror in jury.jurors:
        shares = [two_decimals(juror.mean[f"{aspect}={label}"]) for label in nominal.labels]
        table.add_row(juror.name, *shares, two_decimals(juror.alpha_without[aspect]))
    if nominal.majority:
        table.add_section()
        table.add_row("majority", *map(two_decimals, nominal.majority))
    return table


def _juror_errors(jury: Jury, labels: Sequence[str], estimated: EstimatedErrors) -> Table:
    """Return the estimates of Dawid and Skene: recall of each label, and accuracy."""
    table = plain_table("juror", *labels, "accuracy")
    for juror, rates, accuracy in zip(jury.jurors, estimated.rates, estimated.accuracy, strict=True):
        table.add_row(
            juror.name,
            *(two_decimals(given[place]) for place, given in enumerate(rates)),
            stacked(accuracy),
        )
    table.add_section()
    table.add_row("true share", *map(two_decimals, estimated.shares))
    return table


def calibration_table(calibration: Calibration) -> Group:
    """Return a table of the maps and of their gain on unseen instructions."""
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
    notes = [
        f"No gain is shown for {names}: the interval over the judge's scores, or over one constant for all "
        "rows, is not above 0 or is undefined."
    ] * bool(names)
    notes.append(
        "A calibrated mean is not a human mean: rank --labels estimates that, from labels of a random sample."
    )
    return headed(calibration.notices, *spaced([title, table]), *note_lines(notes))


def _labelled(aspect: str, found: AspectAgreement | NominalAgreement) -> str:
    return (
        f"{aspect} · {counted(found.rows, 'row')}, {counted(found.instructions, 'instruction')}, "
        f"{counted(found.annotators, 'annotator')}"
    )


def _statistics(comparison: Comparison) -> Iterator[Text | str]:
    for name in STATISTICS:
        yield stacked(getattr(comparison, name))
