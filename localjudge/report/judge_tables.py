"""Tables on a jury: what several judges say of the same rows."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.report.tables import Cells, Findings, Table
from localjudge.statistics import two_decimals, verdicts_in_words
from localjudge.statistics.jury_agreement import SPLIT
from localjudge.studies.jury import Jury
from localjudge.system.quantities import counted


def jury_findings(jury: Jury) -> Findings:
    """Return sentences on the jurors' agreement and on an outlier, and a table of the aspects.

    The details are each juror's bias, and the errors against labels.
    """
    details = {"errors against the labels": [_errors_by_labels(jury)]} if jury.errors else {}
    details["bias of the jurors"] = [_bias(jury)]
    left_out = f"Left out: {counted(jury.not_shared, 'score')} of rows that some jurors have not scored"
    notes = list(jury.label_notes)
    if jury.not_shared:
        notes.append(left_out)
    return Findings([*_jury_lines(jury)], [_aspects(jury)], details, jury.notices, notes)


def _jury_lines(jury: Jury) -> Iterator[str]:
    """Yield lines on the jury beside its best juror, the agreement, the outlier, and the rows of these."""
    if jury.errors:
        yield _beside_best(jury)
        yield _labelled_rows(jury)
    for level in dict.fromkeys(aspect.level for aspect in jury.aspects.values()):
        alphas = {name: aspect.alpha for name, aspect in jury.aspects.items() if aspect.level == level}
        known = sorted((each.value, name) for name, each in alphas.items() if each.value is not None)
        if known:
            ends = [f"{alphas[name].in_words()} in {name}" for _, name in dict.fromkeys((known[0], known[-1]))]
            yield f"Agreement among the jurors (Krippendorff's {level} alpha, 0 is chance): {' to '.join(ends)}"
    if jury.outlier is not None:
        yield f"Outlier among the jurors: {jury.outlier}, without whom the others agree significantly more"
    elif len(jury.jurors) > 2:
        why = f"not tested, because the gain in agreement has no interval: {jury.outlier_untested}"
        yield f"Outlier among the jurors: {why if jury.outlier_untested else 'none is significant'}"
    yield _scored_rows(jury)


def _labelled_rows(jury: Jury) -> str:
    """Return of which rows the errors are."""
    of_aspects = [
        f"{name} {each.compared:,} of {counted(each.rows, 'row')} "
        f"({each.compared_instructions:,} of {counted(each.instructions, 'instruction')})"
        for name, each in jury.errors.items()
    ]
    return (
        "These errors are of labelled rows that all jurors scored and that did not choose the best juror: "
        f"{', '.join(of_aspects)}"
    )


def _scored_rows(jury: Jury) -> str:
    """Return how many rows all jurors scored, and how many each."""
    of_jurors = [f"{juror.name} {juror.scored:,} of {counted(juror.rows, 'row')}" for juror in jury.jurors]
    shared = f"{counted(jury.rows, 'row')} of {counted(jury.instructions, 'instruction')}"
    return (
        f"Scored by all {len(jury.jurors)} jurors, and compared here: {shared}; scored by each: "
        f"{', '.join(of_jurors)}"
    )


def _aspects(jury: Jury) -> Table:
    title = (
        f"{len(jury.jurors)} jurors · {counted(jury.rows, 'row')} that all scored, "
        f"{counted(jury.instructions, 'instruction')}"
    )
    rows = [
        (name, each.alpha, f"{each.unanimous:.0%}", "" if each.split is None else f"{each.split:.0%}")
        for name, each in jury.aspects.items()
    ]
    return Table(title, ("aspect", "alpha", "all equal", f"{SPLIT} or more\napart"), rows)


def _bias(jury: Jury) -> Table:
    rows: list[Cells] = [
        (juror.name, *(f"{bias:+.2f}" for bias in juror.bias.values()), juror.scored, juror.lost)
        for juror in jury.jurors
    ]
    title = "Bias: a juror's mean score minus that of the other jurors, on the rows that all scored"
    columns = ("juror", *jury.jurors[0].bias, "rows\nscored", "rows without\na score")
    return Table(title, columns, rows)


def _errors_by_labels(jury: Jury) -> Table:
    """Return the errors of the jury and of its best juror."""
    rows = [
        (name, each.rows, each.compared, each.jury, each.best_juror, each.difference)
        for name, each in jury.errors.items()
    ]
    columns = "aspect", "labelled\nrows", "compared\nrows", "jury", "best juror", "difference"
    return Table("Errors against the labels", columns, rows)


def _beside_best(jury: Jury) -> str:
    """Return whether the jury is better than its best juror."""
    named = {}
    for name, each in jury.errors.items():
        jurys, best = two_decimals(each.jury.value), two_decimals(each.best_juror.value)
        numbers = f": error {jurys}, {each.best} {best}, difference {each.difference.in_words()}"
        named[name + numbers * (each.best is not None)] = each.difference.negative()
    return f"The jury compared with its best juror (a smaller error is better): {verdicts_in_words(named)}"
