"""Tables on a jury: what several judges say of the same rows."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.report.tables import Cell, Findings, Table
from localjudge.statistics import Estimate, two_decimals, verdicts_in_words
from localjudge.statistics.jury_agreement import SPLIT
from localjudge.studies.jury import Jury
from localjudge.system.quantities import counted


def jury_findings(jury: Jury) -> Findings:
    """Return sentences on the jurors' agreement and on an outlier, and a table of the aspects.

    The details are each juror's bias, and the errors against labels.
    """
    details: dict[str, list[Table]] = {}
    if jury.errors:
        details["errors against the labels"] = [_errors_table(jury)]
    details["bias of the jurors"] = [_bias_table(jury)]
    notes = list(jury.label_notes)
    if jury.not_shared:
        scores = counted(jury.not_shared, "score")
        notes.append(f"Left out: {scores} of rows that some jurors have not scored")
    answer = list(_jury_lines(jury))
    return Findings(answer, [_aspects_table(jury)], details, notices=jury.notices, notes=notes)


def _jury_lines(jury: Jury) -> Iterator[str]:
    """Yield lines on the jury beside its best juror, the agreement, the outlier, and the rows of these."""
    if jury.errors:
        yield _comparison_with_best_juror(jury)
        yield _labelled_rows(jury)
    levels = dict.fromkeys(aspect.level for aspect in jury.aspects.values())
    for level in levels:
        alphas = _alphas_in_words(jury, level)
        if alphas:
            yield f"Agreement among the jurors (Krippendorff's {level} alpha, 0 is chance): {alphas}"
    if jury.outlier is not None:
        yield f"Outlier among the jurors: {jury.outlier}, without whom the others agree significantly more"
    elif len(jury.jurors) > 2 and jury.outlier_untested:
        yield (
            "Outlier among the jurors: not tested, because the gain in agreement has no interval: "
            f"{jury.outlier_untested}"
        )
    elif len(jury.jurors) > 2:
        yield "Outlier among the jurors: none is significant"
    yield _scored_rows(jury)


def _comparison_with_best_juror(jury: Jury) -> str:
    """Return whether the jury is better than its best juror."""
    improvements: dict[str, Estimate] = {}
    for name, errors in jury.errors.items():
        aspect = name
        if errors.best is not None:
            error_of_jury = two_decimals(errors.jury.value)
            error_of_best = two_decimals(errors.best_juror.value)
            difference = errors.difference.in_words()
            aspect += f": error {error_of_jury}, {errors.best} {error_of_best}, difference {difference}"
        improvements[aspect] = errors.difference.negative()
    verdicts = verdicts_in_words(improvements)
    return f"The jury compared with its best juror (a smaller error is better): {verdicts}"


def _labelled_rows(jury: Jury) -> str:
    """Return of which rows the errors are."""
    aspects = []
    for name, errors in jury.errors.items():
        rows = f"{errors.compared:,} of {counted(errors.rows, 'row')}"
        instructions = f"{errors.compared_instructions:,} of {counted(errors.instructions, 'instruction')}"
        aspects.append(f"{name} {rows} ({instructions})")
    return (
        "These errors are of labelled rows that all jurors scored and that did not choose the best juror: "
        f"{', '.join(aspects)}"
    )


def _alphas_in_words(jury: Jury, level: str) -> str:
    """Return the lowest and the highest alpha of the aspects of a level; empty if none is defined."""
    values: list[tuple[float, str]] = []
    for name, aspect in jury.aspects.items():
        if aspect.level == level and aspect.alpha.value is not None:
            values.append((aspect.alpha.value, name))
    if not values:
        return ""
    _, lowest = min(values)
    _, highest = max(values)
    alphas = f"{jury.aspects[lowest].alpha.in_words()} in {lowest}"
    if highest != lowest:
        alphas += f" to {jury.aspects[highest].alpha.in_words()} in {highest}"
    return alphas


def _scored_rows(jury: Jury) -> str:
    """Return how many rows all jurors scored, and how many each."""
    jurors = [f"{juror.name} {juror.scored:,} of {counted(juror.rows, 'row')}" for juror in jury.jurors]
    shared = f"{counted(jury.rows, 'row')} of {counted(jury.instructions, 'instruction')}"
    return (
        f"Scored by all {len(jury.jurors)} jurors, and compared here: {shared}; scored by each: "
        f"{', '.join(jurors)}"
    )


def _aspects_table(jury: Jury) -> Table:
    """Return the agreement of the jurors on each aspect."""
    rows: list[list[Cell]] = []
    for name, aspect in jury.aspects.items():
        split = "" if aspect.split is None else f"{aspect.split:.0%}"
        rows.append([name, aspect.alpha, f"{aspect.unanimous:.0%}", split])
    title = (
        f"{len(jury.jurors)} jurors · {counted(jury.rows, 'row')} that all scored, "
        f"{counted(jury.instructions, 'instruction')}"
    )
    return Table(title, ["aspect", "alpha", "all equal", f"{SPLIT} or more\napart"], rows)


def _bias_table(jury: Jury) -> Table:
    """Return the bias of each juror on each aspect, and its rows."""
    columns = ["juror"] + list(jury.jurors[0].bias)
    columns += ["rows\nscored", "rows without\na score"]
    rows: list[list[Cell]] = []
    for juror in jury.jurors:
        row: list[Cell] = [juror.name]
        row += [f"{bias:+.2f}" for bias in juror.bias.values()]
        row += [juror.scored, juror.lost]
        rows.append(row)
    title = "Bias: a juror's mean score minus that of the other jurors, on the rows that all scored"
    return Table(title, columns, rows)


def _errors_table(jury: Jury) -> Table:
    """Return the errors of the jury and of its best juror."""
    columns = ["aspect", "labelled\nrows", "compared\nrows", "jury", "best juror", "difference"]
    rows: list[list[Cell]] = []
    for name, errors in jury.errors.items():
        rows.append([name, errors.rows, errors.compared, errors.jury, errors.best_juror, errors.difference])
    return Table("Errors against the labels", columns, rows)
