"""Tables of an audit: the share of scores that moved as expected under each perturbation, and the shifts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from localjudge.report.shares import share_in_words
from localjudge.report.tables import Cell, Findings, Table
from localjudge.studies.audit.audit_findings import DOUBTFUL, SOUND, Audit, AuditCheck, AuditVerdict
from localjudge.system.quantities import UNDEFINED_SIGN, counted, percent

VERDICT_MEANINGS: Mapping[AuditVerdict, str] = {
    AuditVerdict.BELOW: "less than its --threshold",
    AuditVerdict.UNSOUND: f"less than {DOUBTFUL:.0%}",
    AuditVerdict.AT_CHANCE: (
        "the interval is not above chance, so these rows do not show that the judge reads the text"
    ),
    AuditVerdict.DOUBTFUL: f"{DOUBTFUL:.0%} to {SOUND:.0%}, and the interval is above chance",
    AuditVerdict.UNTESTED: "no row could be tested",
    AuditVerdict.SOUND: f"at least {SOUND:.0%}, and the interval is above chance",
    AuditVerdict.PASSED: "at least its --threshold",
}
"""What each verdict says of the share that held, the worst first."""
_NAMED = (AuditVerdict.BELOW, AuditVerdict.UNSOUND)
"""The verdicts whose checks are named."""


def audit_findings(audit: Audit) -> Findings:
    """Return the number of checks with each verdict, what the verdicts mean, and the checks.

    The details are the shift of each check, and the rows that were not tested.
    """
    answer = [_verdicts(audit), _meanings(audit)]
    details = {"shifts and rows that were not tested": [_shifts_table(audit)]}
    return Findings(answer, [_checks_table(audit)], details, notices=audit.notices)


def _checks_table(audit: Audit) -> Table:
    """Return the expected change of each check, the share that held, and the verdict."""
    columns = ["check", "scores of a sound judge", "held", "chance", "verdict", "rows"]
    rows: list[list[Cell]] = []
    for check in audit.checks:
        rows.append(
            [
                check.name,
                _expected_change(check),
                share_in_words(check.share),
                _chance(check),
                check.verdict,
                check.rows,
            ]
        )
    return Table("", columns, rows, words=["scores of a sound judge", "verdict"])


def _shifts_table(audit: Audit) -> Table:
    """Return the shift of the scores of each check, and the rows that were not tested."""
    columns = ["check", "shift", "what it does", "not tested"]
    rows: list[list[Cell]] = []
    for check in audit.checks:
        rows.append([check.name, check.shift, check.description, _not_tested(check)])
    title = "Shift of the scores, and rows that were not tested"
    return Table(title, columns, rows, words=["what it does", "not tested"])


def _verdicts(audit: Audit) -> str:
    """Return how many checks have each verdict; those that failed are named."""
    counts = Counter(check.verdict for check in audit.checks)
    parts = []
    for verdict in AuditVerdict:
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
    meanings = [f"{verdict}: {meaning}" for verdict, meaning in VERDICT_MEANINGS.items() if verdict in verdicts]
    return f"The share held is that of the rows whose score changed as expected. {'; '.join(meanings)}"


def _expected_change(check: AuditCheck) -> str:
    """Return the expected change of the decisive aspects; without their names if it is that of all aspects."""
    directions = check.decisive_directions
    if len(check.decisive) == len(check.aspects) and len(directions) == 1:
        return next(iter(directions))
    return "; ".join(f"{', '.join(aspects)} {direction}" for direction, aspects in directions.items())


def _not_tested(check: AuditCheck) -> str:
    """Return why rows were not tested, each reason with the number of rows."""
    if not check.decisive:
        return "no expected change is known for these aspects"
    reasons = [f"{reason}: {rows:,}" for reason, rows in check.skipped.items()]
    if check.failed:
        reasons.append(f"failed: {check.failed:,}")
    if check.no_room:
        reasons.append(f"scores near the end of the scale: {check.no_room:,}")
    return "; ".join(reasons)


def _chance(check: AuditCheck) -> str:
    """Return the share that holds by chance, where the check has a share."""
    if check.share.value is None or check.chance is None:
        return UNDEFINED_SIGN
    return percent(check.chance)
