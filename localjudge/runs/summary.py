"""The summary of a run: counts of rows and failures, and the mean scores or the win rate of each system."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.mode import CHECKLIST, PAIRWISE
from localjudge.runs.checklist_summary import ChecklistSummary
from localjudge.runs.notices import notices
from localjudge.runs.pair_summary import PairSummary
from localjudge.runs.reader import count_lines, own_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.system_column import system_value
from localjudge.runs.warning_signs import WarningSigns
from localjudge.system.steps import Report, no_progress, with_progress


@dataclass(slots=True)
class SystemCounts:
    """The counts of one system's rows, and the sums of their scores in each column."""

    judged: int = 0
    failed: int = 0
    cut: int = 0
    truncated: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    expected_sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    expected: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)

    def mean(self, column: str) -> float | None:
        """The mean score; None without judged rows."""
        return _mean(self.sums[column], self.judged)

    def mean_expected(self, column: str) -> float | None:
        """The mean of the expected scores of the rows that have one; None if no row has one."""
        return _mean(self.expected_sums[column], self.expected[column])


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
    """Counts of a run's rows, and the means or the win rate of each system, from the outcomes of a run.

    Args:
        manifest: the manifest of the run.

    Attributes:
        columns: the score columns of the rubric.
        systems: the counts of each system; None is the name of rows without one.
        pairs: the counts and win rates of the pairs; None if the rubric judges one response.
        lists: the counts and mean scores of the rows with criteria; None for another rubric.
        signs: the signs that the judge does not work on these rows.
        spread: how far apart the samples of a row are.
    """

    def __init__(self, manifest: RunManifest) -> None:
        rubric, orders = manifest.rubric, manifest.orders
        self.columns = rubric.score_columns
        self.systems: dict[str | None, SystemCounts] = {}
        self._reasons: Counter[str] = Counter()
        self._join = manifest.join()
        self.pairs = PairSummary(rubric.aspects, orders) if rubric.mode is PAIRWISE else None
        self.lists = ChecklistSummary() if rubric.mode is CHECKLIST else None
        self.signs = WarningSigns(rubric)
        self.spread = SampleSpread(manifest.settings.samples)

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of a prompt, and its row if it was the last missing prompt of it."""
        if row := self._join.add(outcome):
            self.signs.add(row)
            if self._joined:
                self._joined.add(row)
        system = self.systems.setdefault(outcome.system, SystemCounts())
        if isinstance(outcome, Failure):
            system.failed += 1
            self._reasons[outcome.reason] += 1
            return
        system.judged += 1
        system.cut += outcome.rationale_cut
        system.truncated += outcome.candidate_cut > 0
        for each in outcome.of_prompts:
            self._add_values(system, each)

    def _add_values(self, system: SystemCounts, outcome: Judgement) -> None:
        """Count the values of a judgement, or of one of its criteria."""
        self.spread.add(outcome)
        for column in self.columns:
            number, expected = column.number(outcome), column.expected(outcome)
            system.sums[column.name] += number
            system.counts[column.name, number] += 1
            if expected is not None:
                system.expected[column.name] += 1
                system.expected_sums[column.name] += expected

    @property
    def _joined(self) -> PairSummary | ChecklistSummary | None:
        return self.pairs or self.lists

    @property
    def judged(self) -> int:
        return sum(system.judged for system in self.systems.values())

    @property
    def failed(self) -> int:
        return sum(system.failed for system in self.systems.values())

    @property
    def rows(self) -> int:
        return self.judged + self.failed

    @property
    def reasons(self) -> Counter[str]:
        """Number of failed rows, of failed pairs, or of failed criteria, for each reason."""
        return self._joined.reasons if self._joined else self._reasons

    @property
    def counted(self) -> str:
        """The numbers of judged and failed rows, or of pairs, in words."""
        return self._joined.counted if self._joined else f"{self.judged} judged, {self.failed} failed"

    @property
    def truncated(self) -> int:
        """Number of candidates that were cut to fit the model's context."""
        return sum(system.truncated for system in self.systems.values())

    def as_dict(self, manifest: RunManifest, *, complete: bool, planned: int | None) -> dict[str, Any]:
        """Return the counts, and the means or win rates, for `summary.json`; the mean of nothing is None.

        Args:
            manifest: the manifest of the run.
            complete: whether every row has its line.
            planned: number of rows of the complete run.
        """
        counts = {
            "complete": complete,
            "notices": notices(manifest, complete, self.rows, self.truncated),
            "warning_signs": self.signs.lines,
            "planned": planned,
            "rows": self.rows,
            "judged": self.judged,
            "failed": self.failed,
            "failures": dict(self._reasons.most_common()),
            "mean_mass": self.signs.mass.means,
        }
        if self.pairs:
            counts["pairs"] = self.pairs.as_dict()
        if self._joined:
            return {**counts, "systems": self._joined.systems()}
        return {
            **counts,
            "systems": [
                {
                    "system": name,
                    "judged": system.judged,
                    "failed": system.failed,
                    "rationales_cut": system.cut,
                    "candidates_cut": system.truncated,
                    "mean": {column.name: system.mean(column.name) for column in self.columns},
                    "mean_expected": {
                        column.name: system.mean_expected(column.name) for column in self.columns
                    },
                }
                for name, system in self.by_system()
            ],
        }

    def by_system(self) -> list[tuple[str | None, SystemCounts]]:
        """Return the systems by name, rows without a system last."""
        return sorted(self.systems.items(), key=lambda item: (item[0] is None, item[0] or ""))


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
    of_systems = system_value(manifest, column)
    found: dict[str, Summary] = {}
    for outcome in own_outcomes(folder, manifest):
        value = outcome.columns.get(column)
        seen |= dict.fromkeys(outcome.columns)
        if value is None:
            pair = (outcome.system, outcome.opponent)[:: -1 if outcome.swapped else 1]
            value = of_systems(pair if manifest.rubric.mode is PAIRWISE else outcome.systems)
            seen |= {} if value is None else {column: None}
        name = "(none)" if value is None else value if isinstance(value, str) else json.dumps(value)
        found.setdefault(name, Summary(manifest)).add(outcome)
    if column not in seen:
        there = ", ".join(seen) or "none"
        raise UsageError(f"`by_column` {column}: no row of {folder} has this column; its columns are {there}")
    return dict(sorted(found.items()))


def _mean(total: float, count: int) -> float | None:
    return round(total / count, 4) if count else None
