"""Tables of an audit: the share of scores that moved as expected under each perturbation, and the shifts."""

from __future__ import annotations

from collections import Counter

from localjudge.report.shares import share_in_words
from localjudge.report.tables import Findings, Table
from localjudge.studies.audit.audit_findings import VERDICTS, Audit, AuditCheck
from localjudge.system.quantities import UNDEFINED_SIGN, counted, percent

_NAMED = ("below", "unsound")
"""The verdicts whose checks are named."""


def audit_findings(audit: Audit) -> Findings:
    """Return the number of checks with each verdict, what the verdicts mean, and the checks.

    The details are the shift of each check, and the rows that were not tested.
    """
    checks = [
        (check.name, check.expected, share_in_words(check.share), _chance(check), check.verdict, check.rows)
        for check in audit.checks
    ]
    columns = "check", "scores of a sound judge", "held", "chance", "verdict", "rows"
    shifts = [(check.name, check.shift, check.does, check.not_tested) for check in audit.checks]
    title, words = "Shift of the scores, and rows that were not tested", ("what it does", "not tested")
    details = [Table(title, ("check", "shift", *words), shifts, words=words)]
    main = Table("", columns, checks, words=["scores of a sound judge", "verdict"])
    answer = [_verdicts(audit), _meanings(audit)]
    return Findings(answer, [main], {"shifts and rows that were not tested": details}, audit.notices)


def _verdicts(audit: Audit) -> str:
    """Return how many checks have each verdict; those that failed are named."""
    counts = Counter(check.verdict for check in audit.checks)
    parts = []
    for verdict in VERDICTS:
        if not counts[verdict]:
            continue
        part = f"{counts[verdict]} {verdict}"
        if verdict in _NAMED:
            names = ", ".join(check.name for check in audit.checks if check.verdict == verdict)
            part += f" ({names})"
        parts.append(part)
    return f"{counted(len(audit.checks), 'check')}: {', '.join(parts)}"


def _meanings(audit: Audit) -> str:
    """Return what each verdict that a check has means, the worst first."""
    verdicts = {check.verdict for check in audit.checks}
    meanings = [f"{verdict}: {VERDICTS[verdict]}" for verdict in VERDICTS if verdict in verdicts]
    return f"The share held is that of the rows whose score changed as expected. {'; '.join(meanings)}"


def _chance(check: AuditCheck) -> str:
    """Return the share that holds by chance, where the check has a share."""
    if check.share.value is None or check.chance is None:
        return UNDEFINED_SIGN
    return percent(check.chance)
