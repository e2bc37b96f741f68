"""Terminal tables of a jury; each value has its 95 % interval below it, and an en dash means undefined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.juries import Jury
from localjudge.analysis.juries.jury_aspect import EstimatedErrors, NominalJuryAspect
from localjudge.analysis.juries.jury_errors import JuryErrors
from localjudge.analysis.statistics import two_decimals
from localjudge.cli.tables.table_parts import answered, plain_table, stacked, title_line
from localjudge.rubrics.answer import shown
from localjudge.system.quantities import counted

_INDEPENDENT_ERRORS = (
    "Without labels, this assumes that the jurors' errors are independent (Dawid and Skene's model).\n"
    "If jurors make the same errors, the accuracy is too high; --labels measures the errors."
)


def jury_tables(jury: Jury, all_tables: bool = False) -> Group:
    """Return what the jurors are worth and whether one is an outlier, and a table of the aspects.

    The details are each juror's bias or labels, and the rows with the largest differences.
    """
    title = (
        f"{len(jury.jurors)} jurors · {counted(jury.rows, 'row')}, {counted(jury.instructions, 'instruction')}"
    )
    main: list[RenderableType] = [title_line(title, jury.notices)]
    main += [_aspects(jury)] * bool(jury.aspects) + [_nominal_aspects(jury)] * bool(jury.nominal)
    details: dict[str, list[RenderableType]] = {}
    if jury.errors:
        name = "errors against the labels"
        details[name] = [title_line(name.capitalize(), jury.notices), _errors_by_labels(jury.errors)]
    if jury.aspects:
        bias = plain_table("juror", *jury.aspects)
        for juror in jury.jurors:
            cells = [f"{juror.bias[name]:+.2f}\n{two_decimals(juror.with_rest[name])}" for name in jury.aspects]
            bias.add_row(juror.name, *cells)
        title = "Bias (a juror's mean minus the mean of the others) and Spearman correlation with the others"
        details["bias of the jurors"] = [title_line(title, jury.notices), bias]
    for name, nominal in jury.nominal.items():
        title = f"{name}: shares of the labels"
        details[f"labels of {name}"] = [title_line(title, jury.notices), _juror_labels(jury, name, nominal)]
        if nominal.estimated:
            details[f"estimated errors in {name}"] = [
                title_line(f"{name}: estimated share of each true label that a juror finds", jury.notices),
                _juror_errors(jury, nominal.labels, nominal.estimated),
                Text(_INDEPENDENT_ERRORS),
            ]
    if jury.disagreements:
        name = "rows with the largest differences between jurors"
        details[name] = [title_line(name.capitalize(), jury.notices), _disagreements(jury)]
    left_out = f"Left out: {counted(jury.not_shared, 'judgement')} of rows that some jurors have not judged"
    return answered(
        _jury_lines(jury),
        main,
        details,
        all_tables=all_tables,
        notices=jury.notices,
        notes=[*jury.notes, *[left_out] * bool(jury.not_shared)],
    )


def _jury_lines(jury: Jury) -> Iterator[str]:
    """Yield what the jurors are worth, how far they agree, and the outlier, a line each."""
    for name, found in jury.errors.items():
        yield _worth(name, found, len(jury.jurors))
    ordinal = {name: aspect.alpha_ordinal for name, aspect in jury.aspects.items()}
    nominal = {name: aspect.alpha_nominal for name, aspect in jury.nominal.items()}
    for level, alphas in (("ordinal", ordinal), ("nominal", nominal)):
        known = sorted((each.value, name) for name, each in alphas.items() if each.value is not None)
        if known:
            ends = [f"{alphas[name].in_words()} in {name}" for _, name in dict.fromkeys((known[0], known[-1]))]
            yield f"Agreement among the jurors, Krippendorff's {level} alpha: {' to '.join(ends)}"
    if jury.outlier is not None:
        yield f"Outlier among the jurors: {jury.outlier}, without whom the others agree significantly more"
    elif len(jury.jurors) > 2:
        yield "Outlier among the jurors: none is significant"


def _aspects(jury: Jury) -> Table:
    table = plain_table("aspect", "mean", "median", "SD", "alpha ord.", "alpha int.", "all equal", "split")
    for name, aspect in jury.aspects.items():
        table.add_row(
            name,
            stacked(aspect.mean),
            f"{aspect.median:.2f}",
            f"{aspect.spread:.2f}",
            stacked(aspect.alpha_ordinal),
            stacked(aspect.alpha_interval),
            f"{aspect.unanimous:.0%}",
            f"{aspect.split:.0%}",
        )
    return table


def _nominal_aspects(jury: Jury) -> Table:
    """Return the agreement on labels; two jurors either agree or are tied, so they have no majorities."""
    several = len(jury.jurors) > 2
    table = plain_table("aspect", "alpha nom.", "all equal", *["majority", "tied"] * several)
    for name, nominal in jury.nominal.items():
        shares = (nominal.unanimous, *(nominal.with_majority, nominal.tied) * several)
        table.add_row(name, stacked(nominal.alpha_nominal), *(f"{share:.0%}" for share in shares))
    return table


def _disagreements(jury: Jury) -> Table:
    names = [*jury.aspects, *jury.nominal]
    table = plain_table("row", "system", *names)
    for row in jury.disagreements:
        scores = [(", " if name in jury.nominal else " ").join(map(shown, row.scores[name])) for name in names]
        table.add_row(row.id, row.system, *scores)
    return table


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
    if nominal.majority and len(jury.jurors) > 2:
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
