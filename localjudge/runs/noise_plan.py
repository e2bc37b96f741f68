"""Which rows of a run are judged again to measure its noise, and whether this was done already."""

from __future__ import annotations

from pathlib import Path

from localjudge.errors import RunMismatchError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.runs.notices import DRY_RUN, SERVER
from localjudge.runs.repeated_rows import RepeatedRow, read_noise_lines
from localjudge.runs.row_sample import RowSample

LEAST_ROWS = 800
"""Number of rows of a run from which some are judged again by default."""
SHARE_IN_PERCENT = 2
"""The share of the rows that are judged again by default."""
MOST_ROWS = 200
"""The largest number of rows that are judged again by default."""


class NoisePlan:
    """The rows to judge again. It receives every row of a complete run, and then says which of them they are.

    Rows that were judged again by an earlier start stay, if all of them have the outcome in the run that was
    compared, and no other row is asked for.

    Args:
        folder: the run directory.
        asked: the number of rows to judge again; None for the default.
        engine: the name of the engine. A dry run has no noise. A server batches requests by itself, also those
            of others, so that its rows are judged again only if that is asked for.
        seed: the seed of the sample.
    """

    def __init__(self, folder: Path, asked: int | None, *, engine: str, seed: int) -> None:
        if engine == DRY_RUN or (engine == SERVER and asked is None):
            asked = 0
        self._asked = asked
        self._sample = RowSample(most=MOST_ROWS if asked is None else asked, seed=seed)
        try:
            earlier = read_noise_lines(folder)
        except RunMismatchError:  # a damaged file is measured again
            earlier = []
        self._earlier = {row.keys: row for row in earlier}
        self._confirmed: set[tuple[str, ...]] = set()

    def add(self, row: RowOutcome) -> None:
        """Receive a row of the run."""
        self._sample.add(row)
        keys = _keys(row)
        earlier = self._earlier.get(keys)
        if earlier is not None and row.error is None and earlier.belongs_to(row):
            self._confirmed.add(keys)

    @property
    def chosen(self) -> list[RowOutcome]:
        """The rows that are to be judged again, in this order."""
        if self._asked is not None:
            return self._sample.first(self._asked)
        if self._sample.rows < LEAST_ROWS:
            return []
        size = min(MOST_ROWS, self._sample.rows * SHARE_IN_PERCENT // 100)
        return self._sample.first(size)

    @property
    def measured(self) -> list[RepeatedRow]:
        """The rows that an earlier start judged again, if these are the rows of the run still; else none."""
        are_confirmed = self._confirmed == self._earlier.keys()
        are_enough = all(_keys(row) in self._earlier for row in self.chosen)
        if not are_confirmed or not are_enough:
            return []
        return list(self._earlier.values())


def _keys(row: RowOutcome) -> tuple[str, ...]:
    """Return the keys of the judgements of a row's prompts."""
    return tuple(prompt.key for prompt in row.prompts)
