"""The findings of one statistic on several runs, joined to one for the page of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localjudge.report.tables import Findings, Table


@dataclass(frozen=True, slots=True)
class RunFindings:
    """The findings on one or more runs.

    Attributes:
        runs: the names of the runs.
        findings: the findings.
    """

    runs: str
    findings: Findings

    def with_names(self) -> Findings:
        """Return the findings with the names of the runs before each sentence and in each title of a table.

        A sentence that names its runs among its systems does not repeat them there.
        """
        answer = []
        for sentence in self.findings.answer:
            answer.append(f"{self.runs}: {sentence.replace(f' · {self.runs}', '')}")
        details = {name: self._named_tables(parts) for name, parts in self.findings.details.items()}
        return replace(
            self.findings, answer=answer, main=self._named_tables(self.findings.main), details=details
        )

    def _named_tables(self, parts: Sequence[Table | str]) -> list[Table | str]:
        """Return tables with the names of the runs in their titles; the remarks below them are unchanged."""
        named: list[Table | str] = []
        for part in parts:
            if isinstance(part, Table):
                title = f"{part.title} · {self.runs}"
                named.append(replace(part, title=title.removeprefix(" · ")))
            else:
                named.append(part)
        return named


def join_findings(findings_of_runs: Sequence[RunFindings]) -> Findings | None:
    """Return the findings on several runs as one; None if there are none.

    If they are on different runs, the sentences and the titles of the tables have the names of these.
    """
    if not findings_of_runs:
        return None
    if len(findings_of_runs) == 1:
        return findings_of_runs[0].findings
    names = {findings.runs for findings in findings_of_runs}
    answer: list[str] = []
    main: list[Table | str] = []
    details: dict[str, list[Table | str]] = {}
    notices: list[str] = []
    notes: list[str] = []
    for of_runs in findings_of_runs:
        findings = of_runs.findings
        if len(names) > 1:
            findings = of_runs.with_names()
        answer += findings.answer
        main += findings.main
        for name, parts in findings.details.items():
            details.setdefault(name, []).extend(parts)
        notices += findings.notices
        notes += findings.notes
    return Findings(list(dict.fromkeys(answer)), main, details=details, notices=notices, notes=notes)
