"""The summary of a run: counts of rows and failures, the numbers of each system, and warning signs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localjudge.modes.mode import SystemCounts
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Outcome
from localjudge.runs.named_models import NamedModels
from localjudge.runs.noise import Noise
from localjudge.runs.notices import SERVER, notices
from localjudge.runs.reader import count_lines, read_noise, read_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.warning_signs import WarningSigns
from localjudge.system.steps import Report, no_progress, with_progress


class Summary:
    """Counts of a run's rows, and the numbers of each system, from the outcomes of a run.

    Args:
        manifest: the manifest of the run.
        report_row: receives each row.

    Attributes:
        manifest: the manifest of the run.
        rubric: its rubric.
        signs: the signs that the judge does not work on these rows.
        judged, failed: number of prompts, each of which has a line.
        candidates_cut: number of prompts with a response that was cut to fit the model's context.
        reasons: number of failed rows, or of failed criteria, for each reason.
        noise: how far scores move when rows are judged again; None if that was not measured.
    """

    def __init__(
        self, manifest: RunManifest, report_row: Callable[[RowOutcome], None] = lambda row: None
    ) -> None:
        self.manifest = manifest
        self.rubric = manifest.rubric
        self.judged = 0
        self.failed = 0
        self.candidates_cut = 0
        self.reasons: Counter[str] = Counter()
        self.noise: Noise | None = None
        self._report_row = report_row
        self.signs = WarningSigns(self.rubric, mass_is_lower_bound=manifest.mass_is_lower_bound)
        self._systems: defaultdict[str | None, SystemCounts] = defaultdict(SystemCounts)
        self._failures: Counter[str] = Counter()
        self._judged_rows = 0
        self._failed_rows = 0
        self._join = manifest.join()

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of a prompt, and its row if it was the last missing prompt of it."""
        row = self._join.add(outcome)
        if row is not None:
            self._add_row(row)
        if isinstance(outcome, Failure):
            self.failed += 1
            self._failures[outcome.reason] += 1
            return
        self.judged += 1
        if outcome.candidate_cut > 0:
            self.candidates_cut += 1

    def _add_row(self, row: RowOutcome) -> None:
        """Count a row, all of whose prompts have an outcome."""
        self._report_row(row)
        self.signs.add(row)
        if row.error is None:
            self._judged_rows += 1
        else:
            self._failed_rows += 1
            self.reasons.update(row.reasons)
        for side in row.sides:
            self._systems[side.system].add(row, side)

    @property
    def rows(self) -> int:
        return self.judged + self.failed

    @property
    def counted(self) -> str:
        """The numbers of judged and failed rows in words."""
        return self.signs.details.counted(self._judged_rows, self._failed_rows, orders=self.manifest.orders)

    def as_dict(self, *, complete: bool, planned: int | None) -> dict[str, Any]:
        """Return the counts and the means for `summary.json`.

        Args:
            complete: whether every row has its line.
            planned: number of rows of the complete run.
        """
        column_names = [column.name for column in self.rubric.row_columns]
        systems = []
        for name, counts in self.by_system().items():
            systems.append({"system": name} | counts.as_dict(column_names))
        return {
            "complete": complete,
            "notices": notices(
                self.manifest, complete=complete, rows=self.rows, candidates_cut=self.candidates_cut
            ),
            "warning_signs": self.signs.lines,
            "planned": planned,
            "rows": self.rows,
            "judged": self.judged,
            "failed": self.failed,
            "failures": dict(self._failures.most_common()),
            "mean_mass": self.signs.mass.means,
            "systems": systems,
            "named_models": self._named_models(),
            "details": list(self.signs.details.lines()),
            "noise": None if self.noise is None else self.noise.as_dict(),
        }

    def _named_models(self) -> dict[str, Any] | None:
        """Return what the replies of a server say of the models; None for any other engine."""
        if self.manifest.settings.engine != SERVER:
            return None
        return NamedModels.of_run(self.manifest).as_dict()

    def by_system(self) -> dict[str | None, SystemCounts]:
        """Return the counts of the systems by name, rows without a system last."""
        names = sorted(name for name in self._systems if name is not None)
        by_name: dict[str | None, SystemCounts] = {name: self._systems[name] for name in names}
        if None in self._systems:
            by_name[None] = self._systems[None]
        return by_name


def read_summary(
    folder: Path,
    report: Report = no_progress,
    manifest: RunManifest | None = None,
    report_row: Callable[[RowOutcome], None] = lambda row: None,
) -> Summary:
    """Return the summary of a run directory, from its lines.

    Args:
        folder: the run directory.
        report: receives the number of lines that were read.
        manifest: its manifest; None to read it, too.
        report_row: receives each row.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    if manifest is None:
        manifest = read_manifest(folder)
    summary = Summary(manifest, report_row)
    summary.noise = read_noise(folder, manifest)
    outcomes = with_progress(read_outcomes(folder, manifest), report, total=count_lines(folder))
    for outcome in outcomes:
        summary.add(outcome)
    return summary
