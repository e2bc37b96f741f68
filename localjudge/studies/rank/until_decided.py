"""Stop a shuffled run when its best system is known."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import read_scores
from localjudge.runs import StopRequest
from localjudge.runs.reader import JUDGEMENTS
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL
from localjudge.studies.rank import random_sample, rank

_GROWTH = 1.05
"""How much longer the lines of a run are at the next look: so all looks read 20 times its lines."""


class UntilDecided(StopRequest):
    """Requests a stop of a shuffled run when its best system is known.

    Args:
        folder: the run directory.
        column: the column that decides.
        stopping: another context that can request a stop.

    Attributes:
        answer: what is known at that moment, in words; empty before it.
    """

    def __init__(self, folder: Path, column: str, stopping: StopRequest) -> None:
        self.answer = ""
        self._folder, self._column, self._stopping, self._next_size = folder, column, stopping, 0.0

    def __enter__(self) -> Self:
        self._stopping.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.__exit__(*exception)

    def asked(self) -> bool:
        """Return whether to stop; the lines are read again when there are 5 % more of them."""
        if self._stopping.asked():
            return True
        if not self.answer:
            file = self._folder / JUDGEMENTS
            size = file.stat().st_size if file.exists() else 0
            if size > self._next_size:
                self._next_size = size * _GROWTH
                self.answer = self._look()
        return bool(self.answer)

    def _look(self) -> str:
        try:
            scores = random_sample(read_scores([self._folder]))
        except UsageError:  # no row was judged yet
            return ""
        if scores.planned is None:
            return ""
        ranking = rank(scores, by=self._column)
        best = ranking.systems[0].name
        pairs = (pair for pair in ranking.pairs if pair.column == self._column)
        tests = [pair.p for pair in pairs if best in (pair.first, pair.second)]
        if not tests or any(p is None or p >= SIGNIFICANCE_LEVEL for p in tests):
            return ""
        first = f"{scores.groups} of {scores.planned} instructions"
        return f"decided: {best} is the highest in {self._column}, by the first {first}"
