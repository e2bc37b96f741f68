"""Tables on judges: what several say of the same rows, and what an audit finds of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from localjudge.report.tables import Cell, Cells, Findings, Table
from localjudge.rubrics.answer import shown
from localjudge.statistics import Estimate, two_decimals, untested_in_words, verdicts_in_words
from localjudge.statistics.jury_agreement import SPLIT, NominalJuryAspect
from localjudge.studies.audit.audit_findings import Audit
from localjudge.studies.jury import Jury
from localjudge.system.quantities import counted


def jury_findings(jury: Jury) -> Findings:
    """Return sentences on the jurors' agreement and on an outlier, and a table of the aspects.

    The details are each juror's bias or labels, and the rows with the largest differences.
    """
    details: dict[str, list[Table | str]] = {}
    if jury.errors:
        details["errors against the labels"] = [_errors_by_labels(jury)]
    if jury.aspects:
        details["bias of the jurors"] = [_bias(jury)]
    for name, nominal in jury.nominal.items():
        details[f"labels of {name}"] = [_juror_labels(jury, name, nominal)]
    if jury.disagreements:
        title = "rows with the largest differences between jurors"
        names = [*jury.aspects, *jury.nominal]
        rows = [
            (
                row.id,
                row.system,
                *((", " if name in jury.nominal else " ").join(map(shown, row.scores[name])) for name in names),
            )
            for row in jury.disagreements
        ]
        details[title] = [Table(title.capitalize(), ("row", "system", *names), rows)]
    left_out = f"Left out: {counted(jury.not_shared, 'judgement')} of rows that some jurors have not judged"
    notes = [*jury.notes, *[left_out] * bool(jury.not_shared)]
    return Findings([*_jury_lines(jury)], [*_aspects(jury)], details, jury.notices, notes)


def _jury_lines(jury: Jury) -> Iterator[str]:
    """Yield a line each on how many independent jurors the jury is worth, their agreement, and the outlier."""
    if jury.errors:
        yield from _worth(jury)
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
        why = f"not tested, because the gain in agreement has no interval: {jury.outlier_untested}"
        yield f"Outlier among the jurors: {why if jury.outlier_untested else 'none is significant'}"


def _aspects(jury: Jury) -> Iterator[Table]:
    """Yield the agreement on each aspect; two jurors agree on a label or are tied, so have no majorities."""
    title = (
        f"{len(jury.jurors)} jurors · {counted(jury.rows, 'row')}, {counted(jury.instructions, 'instruction')}"
    )
    if jury.aspects:
        rows: list[Cells] = [
            (
                name,
                *(each.mean, each.median, each.spread, each.alpha_ordinal, each.alpha_interval),
                *(f"{share:.0%}" for share in (each.unanimous, each.split)),
            )
            for name, each in jury.aspects.items()
        ]
        alpha = "alpha,\nordinal", "alpha,\ninterval"
        columns = (
            "aspect",
            "mean",
            "median",
            "SD of the\njurors",
            *alpha,
            "all equal",
            f"{SPLIT} or more\napart",
        )
        yield Table(title, columns, rows)
        title = ""
    if jury.nominal:
        several = len(jury.jurors) > 2
        labels: list[Cells] = []
        for name, nominal in jury.nominal.items():
            shares = (nominal.unanimous, *(nominal.with_majority, nominal.tied) * several)
            labels.append((name, nominal.alpha_nominal, *(f"{share:.0%}" for share in shares)))
        yield Table(title, ("aspect", "alpha nom.", "all equal", *["majority", "tied"] * several), labels)


def _bias(jury: Jury) -> Table:
    rows = [
        (
            juror.name,
            *(f"{juror.bias[name]:+.2f}\n{two_decimals(juror.with_rest[name])}" for name in jury.aspects),
        )
        for juror in jury.jurors
    ]
    title = "Bias (a juror's mean minus the mean of the others) and Spearman correlation with the others"
    return Table(title, ("juror", *jury.aspects), rows)


def _errors_by_labels(jury: Jury) -> Table:
    """Return the errors of the jury and of its best juror, and how far the jurors' errors are independent."""
    rows = [
        (name, each.rows, each.correlation, each.votes, each.jury, each.best_juror, each.difference)
        for name, each in jury.errors.items()
    ]
    columns = "aspect", "rows", "correlation", "votes", "jury", "best juror", "difference"
    return Table("Errors against the labels", columns, rows)


def _worth(jury: Jury) -> Iterator[str]:
    """Yield how many independent jurors the jury is worth, and whether it is better than its best juror."""
    votes = {name: found.votes.low or found.votes.value for name, found in jury.errors.items()}
    least = ", ".join(f"{name} {two_decimals(each)}" for name, each in votes.items())
    worth = "are worth at least this many independent jurors, with 95 % confidence"
    yield f"The {len(jury.jurors)} jurors {worth}: {least}"
    correlations = {name: found.correlation for name, found in jury.errors.items()}
    yield from untested_in_words("correlation of the errors", correlations)
    differences = {name: found.difference.negative() for name, found in jury.errors.items()}
    beside = {
        name: f", beside {each.best} on {counted(each.compared, 'row')}" * (each.best is not None)
        for name, each in jury.errors.items()
    }
    named = {f"{name}: {each.size_in_words()}{beside[name]}": each for name, each in differences.items()}
    how = "by how much smaller (if worse: larger) its error is"
    yield f"The jury compared with its best juror, {how}: {verdicts_in_words(named)}"
    yield from untested_in_words("difference", differences)


def _juror_labels(jury: Jury, aspect: str, nominal: NominalJuryAspect) -> Table:
    """Return the share of each label by each juror and by the majorities, and the alpha without each juror."""
    rows = [
        (
            juror.name,
            *(juror.mean[f"{aspect}={label}"] for label in nominal.labels),
            juror.alpha_without[aspect],
        )
        for juror in jury.jurors
    ]
    majority: list[Cells] = []
    if nominal.majority and len(jury.jurors) > 2:
        majority.append(("majority", *nominal.majority, ""))
    columns = ("juror", *nominal.labels, "alpha without")
    return Table(f"{aspect}: shares of the labels", columns, rows, majority)


_VERDICTS = ("below", "unsound", "at chance", "doubtful", "untested", "sound", "passed")
"""The verdicts, the worst first."""
_NAMED = ("below", "unsound")
"""The verdicts whose checks are named."""


def audit_findings(audit: Audit) -> Findings:
    """Return the number of checks with each verdict, and the checks.

    The details are the shift of each check, the rows that were not tested, and the halo.
    """
    checks = [
        (each.name, each.expected, each.held_text, each.chance_text, each.verdict, each.rows)
        for each in audit.checks
    ]
    columns = "check", "a sound judge", "held", "chance", "verdict", "rows"
    shifts = [(check.name, _shift(check.shift), check.does, check.not_tested) for check in audit.checks]
    title, words = "Shift of the scores, and rows that were not tested", ("what it does", "not tested")
    details: dict[str, list[Table | str]] = {
        "shifts and rows that were not tested": [Table(title, ("check", "shift", *words), shifts, words=words)]
    }
    if audit.mean_halo is not None:
        halo: list[list[Cell]] = [
            [aspect, *[""] * row, *audit.halo[row][row + 1 :]] for row, aspect in enumerate(audit.aspects[:-1])
        ]
        title = "Correlation of the aspects"
        details["correlation of the aspects"] = [Table(title, ("aspect", *audit.aspects[1:]), halo)]
    main = Table("", columns, checks, words=["a sound judge", "verdict"])
    return Findings([_verdicts(audit)], [main], details, audit.notices)


def _verdicts(audit: Audit) -> str:
    """Return how many checks have each verdict; those that failed are named."""
    counts = Counter(check.verdict for check in audit.checks)
    parts = []
    for verdict in filter(counts.__getitem__, _VERDICTS):
        names = ", ".join(check.name for check in audit.checks if check.verdict == verdict)
        parts.append(f"{counts[verdict]} {verdict}" + f" ({names})" * (verdict in _NAMED))
    return f"{counted(len(audit.checks), 'check')}: {', '.join(parts)}"


def _shift(shift: Estimate) -> str:
    if shift.value is None:
        return "–"  # noqa: RUF001
    interval = "" if shift.low is None else f" ({shift.low:+.2f} to {shift.high:+.2f})"
    return f"{shift.value:+.2f}{interval}"
