"""What is known about the systems of a run that is not complete: a random sample of its instructions, or
nothing but the means of the rows that are done."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.run_rows import first_seen
from localjudge.matching.scores import Scores, read_scores
from localjudge.runs.pipeline import Stopping
from localjudge.runs.reader import JUDGEMENTS, is_complete
from localjudge.runs.shuffled_order import finished_instructions
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL

_GROWTH = 1.05
"""How much longer the lines of a run are at the next look: so all looks read 20 times its lines."""


def random_sample(scores: Scores) -> Scores:
    """Return the scores of the first finished instructions of an incomplete run, in their random order.

    The scores of complete runs stay as they are. Those of other incomplete runs get no intervals.
    """
    incomplete = [folder for folder in scores.folders if not is_complete(folder)]
    if not incomplete or scores.calibrated:
        return scores
    where = ", ".join(map(str, incomplete))
    finished = finished_instructions(incomplete[0]) if len(scores.folders) == 1 else None
    if len(scores.folders) > 1:
        why = f"{where}: not complete, and several runs are compared"
    elif finished is None:
        why = (
            f"{where}: not complete, and the rows that finish first are not a random sample; `score --shuffle` "
            "judges in random order"
        )
    else:
        place = np.array([finished.places.get(digest or "", -1) for digest in scores.digests], dtype=np.int64)
        rows = np.argsort(place, kind="stable")[int((place < 0).sum()) :]
        if len(rows):
            return replace(scores.take(rows), group=first_seen(place[rows]), planned=finished.planned)
        why = f"{where}: not complete, and its first instruction in random order is not done"
    return replace(scores, untested=why)


class UntilDecided(AbstractContextManager["UntilDecided"]):
    """Requests a stop of a shuffled run when its best system is known.

    Args:
        folder: the run directory.
        column: the column that decides.
        stopping: another context that can request a stop.

    Attributes:
        answer: what is known at that moment, in words; empty before it.
    """

    def __init__(self, folder: Path, column: str, stopping: Stopping) -> None:
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
        from localjudge.studies.rank import rank

        try:
            scores = random_sample(read_scores([self._folder]))
        except UsageError:  # no row was judged yet
            return ""
        if scores.planned is None:
            return ""
        found = rank(scores, by=self._column)
        best = found.systems[0].name
        others = [
            pair for pair in found.pairs if pair.column == self._column and best in (pair.first, pair.second)
        ]
        known = [pair.p is not None and pair.p < SIGNIFICANCE_LEVEL for pair in others]
        if not known or not all(known):
            return ""
        first = f"{scores.groups} of {scores.planned} instructions"
        return f"decided: {best} is the highest in {self._column}, by the first {first}"
