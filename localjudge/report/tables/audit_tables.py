"""Tables of an audit: its verdicts, its checks, and the correlations of the aspects."""

from __future__ import annotations

from collections import Counter

from localjudge.report.tables import Cell, Findings, Table
from localjudge.statistics import Estimate
from localjudge.studies.audit.audit_findings import Audit
from localjudge.system.quantities import counted

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
