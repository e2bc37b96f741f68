"""The summary of a run: counts of rows and failures, and the means or win rates of each system."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from localjudge.errors import UsageError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.modes.system_counts import SystemCounts
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rows.columns import names_of, responses_of
from localjudge.runs.notices import notices
from localjudge.runs.reader import count_lines, own_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.warning_signs import WarningSigns
from localjudge.system.steps import Report, no_progress, with_progress


class SampleSpread:
    """The spread of expected scores between the samples of a row, and between instructions.

    Args:
        samples: number of answers for each row.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._squares: defaultdict[str, list[float]] = defaultdict(list)
        self._means: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a prompt."""
        if isinstance(outcome, Judgement):
            for aspect, spread in outcome.spread.items():
                self._squares[aspect].append(spread**2)
                self._means[aspect][str(outcome.group)].append(outcome.expected[aspect])

    @property
    def lines(self) -> list[str]:
        """A line for each aspect, with standard deviations of one expected score."""
        found = []
        for aspect, squares in self._squares.items():
            within, means = sqrt(fmean(squares)), [fmean(each) for each in self._means[aspect].values()]
            between = f", {stdev(means):.2f} between instructions" if len(means) > 1 else ""
            found.append(
                f"spread of {aspect}: {within:.2f} between samples{between}; the mean of {self._samples} "
                f"samples is off by {within / sqrt(self._samples):.2f}"
            )
        return found


class Summary:
    """Counts of a run's rows, and the numbers of each system, from the outcomes of a run.

    Args:
        manifest: the manifest of the run.

    Attributes:
        rubric: the rubric of the run.
        signs: the signs that the judge does not work on these rows.
        spread: how far apart the samples of a row are.
        judged, failed: number of prompts, each of which has a line.
        truncated: number of prompts with a response that was cut to fit the model's context.
        reasons: number of failed rows, or of failed criteria, for each reason.
    """

    def __init__(self, manifest: RunManifest) -> None:
        self.rubric, self._orders = manifest.rubric, manifest.orders
        self.judged = self.failed = self.truncated = 0
        self.reasons: Counter[str] = Counter()
        self.signs = WarningSigns(self.rubric)
        self.spread = SampleSpread(manifest.settings.samples)
        self._systems: defaultdict[str | None, SystemCounts] = defaultdict(SystemCounts)
        self._failures: Counter[str] = Counter()
        self._judged_rows = self._failed_rows = 0
        self._join = manifest.join()

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of a prompt, and its row if it was the last missing prompt of it."""
        if row := self._join.add(outcome):
            self._add_row(row)
        if isinstance(outcome, Failure):
            self.failed += 1
            self._failures[outcome.reason] += 1
            return
        self.judged += 1
        self.truncated += outcome.candidate_cut > 0
        for each in outcome.of_prompts:
            self.spread.add(each)

    def _add_row(self, row: RowOutcome) -> None:
        self.signs.add(row)
        if row.error is None:
            self._judged_rows += 1
        else:
            self._failed_rows += 1
            self.reasons.update(row.reasons)
        for side in row.sides:
            self._systems[side.system].add(row, side)
        for system, column, number in row.frequencies():
            self._systems[system].answers[column, number] += 1

    @property
    def rows(self) -> int:
        return self.judged + self.failed

    @property
    def counted(self) -> str:
        """The numbers of judged and failed rows in words."""
        return self.signs.details.counted(self._judged_rows, self._failed_rows, self._orders)

    def as_dict(self, manifest: RunManifest, *, complete: bool, planned: int | None) -> dict[str, Any]:
        """Return the counts, and the means or win rates, for `summary.json`; the mean of nothing is None.

        Args:
            manifest: the manifest of the run.
            complete: whether every row has its line.
            planned: number of rows of the complete run.
        """
        return {
            "complete": complete,
            "notices": notices(manifest, complete, self.rows, self.truncated),
            "warning_signs": self.signs.lines,
            "planned": planned,
            "rows": self.rows,
            "judged": self.judged,
            "failed": self.failed,
            "failures": dict(self._failures.most_common()),
            "mean_mass": self.signs.mass.means,
            **self.signs.details.as_dict(self._orders),
            "systems": [
                {
                    "system": name,
                    "judged": counts.judged,
                    "failed": counts.failed,
                    "rationales_cut": counts.cut,
                    "candidates_cut": counts.truncated,
                    **self.rubric.mode.means(counts, self.rubric.row_columns),
                }
                for name, counts in self.by_system().items()
            ],
        }

    def by_system(self) -> dict[str | None, SystemCounts]:
        """Return the counts of the systems by name, rows without a system last."""
        return dict(sorted(self._systems.items(), key=lambda item: (item[0] is None, item[0] or "")))


def read_summary(folder: Path, report: Report = no_progress) -> Summary:
    """Return the summary of a run directory, from its lines.

    Args:
        folder: the run directory.
        report: receives the number of lines that were read.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    manifest = read_manifest(folder)
    summary = Summary(manifest)
    for outcome in with_progress(own_outcomes(folder, manifest), report, count_lines(folder)):
        summary.add(outcome)
    return summary


def summaries_by_column(folder: Path, column: str) -> dict[str, Summary]:
    """Return a summary for each value of a column of the input; "(none)" has the rows without a value.

    Args:
        folder: the run directory.
        column: the column.

    Raises:
        UsageError: no row has the column.
    """
    manifest, seen = read_manifest(folder), dict[str, None]()
    of_systems, responses = system_value(manifest, column), len(manifest.rubric.mode.responses)
    found: dict[str, Summary] = {}
    for outcome in own_outcomes(folder, manifest):
        value = outcome.columns.get(column)
        seen |= dict.fromkeys(outcome.columns)
        if value is None:
            systems = (outcome.system, outcome.opponent)[:responses]
            value = of_systems(systems[::-1] if outcome.swapped else systems)
            seen |= {} if value is None else {column: None}
        name = "(none)" if value is None else value if isinstance(value, str) else json.dumps(value)
        found.setdefault(name, Summary(manifest)).add(outcome)
    if column not in seen:
        there = ", ".join(seen) or "none"
        raise UsageError(f"`by_column` {column}: no row of {folder} has this column; its columns are {there}")
    return dict(sorted(found.items()))


def system_value(manifest: RunManifest, column: str) -> Callable[[Sequence[str | None]], str | None]:
    """Return a function that gives a row's value in a column from its systems; None if they are not in it.

    The column of both systems of a pair, "system", has the value "first vs second".

    Args:
        manifest: the manifest of the run.
        column: the column.
    """
    used, columns = manifest.rubric.fields, manifest.last_start.columns
    of_responses = [column in (field, *names_of(field, columns, used)) for field in responses_of(used).values()]
    is_of_all = column in ("system", *names_of("system", columns, used))

    def value(systems: Sequence[str | None]) -> str | None:
        if True in of_responses:
            return systems[of_responses.index(True)]
        named = [name for name in systems if name is not None]
        return " vs ".join(named) if is_of_all and len(named) == len(systems) else None

    return value
