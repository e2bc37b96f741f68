"""The summary of a run: counts of rows and failures, and the mean scores or the win rate of each system."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.records import Failure, Outcome
from localjudge.rubrics.score_column import heading, is_share
from localjudge.runs.notices import notices
from localjudge.runs.pair_summary import PairSummary
from localjudge.runs.run_manifest import RunManifest
from localjudge.runs.warning_signs import WarningSigns
from localjudge.system.quantities import bars

_MOST_BARS = 10
"""Largest number of bars for one aspect; a scale with more values is divided into this many intervals."""


@dataclass(slots=True)
class _System:
    judged: int = 0
    failed: int = 0
    cut: int = 0
    truncated: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    expected_sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    expected: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)


class Summary:
    """Counts of a run's rows, and the means or the win rate of each system, from the outcomes of a run.

    Args:
        manifest: the manifest of the run.

    Attributes:
        pairs: the counts and win rates of the pairs; None if the rubric judges one response.
        signs: the signs that the judge does not work on these rows.
    """

    def __init__(self, manifest: RunManifest) -> None:
        rubric, orders = manifest.rubric, manifest.orders
        self._columns = rubric.score_columns
        self._systems: dict[str | None, _System] = {}
        self._reasons: Counter[str] = Counter()
        self.pairs = PairSummary(rubric.aspects, orders, manifest.averaged) if rubric.compares else None
        self.signs = WarningSigns(rubric, orders)

    def add(self, outcome: Outcome) -> None:
        self.signs.add(outcome)
        if self.pairs:
            self.pairs.add(outcome)
        system = self._systems.setdefault(outcome.system, _System())
        if isinstance(outcome, Failure):
            system.failed += 1
            self._reasons[outcome.reason] += 1
            return
        system.judged += 1
        system.cut += outcome.rationale_cut
        system.truncated += outcome.candidate_cut > 0
        for column in self._columns:
            number, expected = column.number(outcome), column.expected(outcome)
            system.sums[column.name] += number
            system.counts[column.name, number] += 1
            if expected is not None:
                system.expected[column.name] += 1
                system.expected_sums[column.name] += expected

    @property
    def judged(self) -> int:
        return sum(system.judged for system in self._systems.values())

    @property
    def failed(self) -> int:
        return sum(system.failed for system in self._systems.values())

    @property
    def rows(self) -> int:
        return self.judged + self.failed

    @property
    def reasons(self) -> Counter[str]:
        """Number of failed rows, or of failed pairs, for each reason."""
        return self.pairs.reasons if self.pairs else self._reasons

    @property
    def counted(self) -> str:
        """The numbers of judged and failed rows, or of pairs, in words."""
        return self.pairs.counted if self.pairs else f"{self.judged} judged, {self.failed} failed"

    @property
    def truncated(self) -> int:
        """Number of candidates that were cut to fit the model's context."""
        return sum(system.truncated for system in self._systems.values())

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
        }
        if self.pairs:
            return {**counts, "pairs": self.pairs.as_dict(), "systems": self.pairs.systems()}
        return {
            **counts,
            "systems": [
                {
                    "system": name,
                    "judged": system.judged,
                    "failed": system.failed,
                    "rationales_cut": system.cut,
                    "candidates_cut": system.truncated,
                    "mean": {
                        column.name: _mean(system.sums[column.name], system.judged) for column in self._columns
                    },
                    "mean_expected": {
                        column.name: _mean(system.expected_sums[column.name], system.expected[column.name])
                        for column in self._columns
                    },
                }
                for name, system in self._sorted()
            ],
        }

    def table(self) -> RenderableType:
        """Return the means or win rates as a terminal table, one system in each row.

        The mean of a column is that of the expected scores if all judged rows have them, as in `rank`.
        """
        if self.pairs:
            return self.pairs.table()
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("system", overflow="fold", min_width=8)
        counts = ("n", "failed") if self.failed else ("n",)
        for text in (*(heading(column.name) for column in self._columns), *counts):
            table.add_column(text, justify="right", no_wrap=True)
        measured = {
            column.name
            for column in self._columns
            if all(system.expected[column.name] == system.judged for system in self._systems.values())
        }
        for name, system in self._sorted():
            means = [
                _mean(
                    (system.expected_sums if column.name in measured else system.sums)[column.name],
                    system.judged,
                )
                for column in self._columns
            ]
            cells = ["–" if mean is None else f"{mean:.2f}" for mean in means]  # noqa: RUF001
            rows = (system.judged, system.failed) if self.failed else (system.judged,)
            table.add_row(name or "(none)", *cells, *map(str, rows))
        return Group(Text(self._title(measured), style="bold"), table)

    def _title(self, measured: set[str]) -> str:
        """Return the title of the table of means: of which scores they are."""
        what = "Shares of labels" if all(is_share(column.name) for column in self._columns) else "Mean scores"
        integers = [column.name for column in self._columns if column.name not in measured]
        if not integers:
            return what.replace("scores", "expected scores") + " of the systems"
        if not measured:
            return what.replace("scores", "integer scores") + " of the systems"
        return f"Mean expected scores of the systems (integer scores of {', '.join(integers)})"

    def chart(self) -> Table:
        """Return a terminal table of the frequencies of the scores, lowest first, one system in each row.

        Of pairs, the frequencies are those of the preferences.
        """
        if self.pairs:
            return self.pairs.chart()
        ends = {f"{column.lowest} to {column.highest}" for column in self._columns}
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(ends.pop() if len(ends) == 1 else "low to high", overflow="fold", min_width=8)
        for column in self._columns:
            table.add_column(heading(column.name), justify="right", no_wrap=True)
        for name, system in self._sorted():
            cells = []
            for column in self._columns:
                values = sorted(set(column.numbers.values()))
                most = min(len(values), _MOST_BARS)
                shares = [0.0] * most
                for rank, value in enumerate(values):
                    share = system.counts[column.name, value] / max(1, system.judged)
                    shares[rank * most // len(values)] += share
                cells.append(bars(shares) if system.judged else "–")  # noqa: RUF001
            table.add_row(name or "(none)", *cells)
        return table

    def _sorted(self) -> list[tuple[str | None, _System]]:
        return sorted(self._systems.items(), key=lambda item: (item[0] is None, item[0] or ""))


def _mean(total: float, count: int) -> float | None:
    return round(total / count, 4) if count else None
