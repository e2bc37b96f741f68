"""The texts of judged rows, read again from the inputs of a run.

The lines of a run do not contain the texts of their rows. A row is identified by the digest of its texts, so
the texts that are found are exactly those that were judged; a row that has changed is not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from localjudge.errors import UsageError
from localjudge.records import Outcome, Row
from localjudge.rows.inputs import STDIN, can_be_read_twice, find_inputs, read_rows
from localjudge.runs.run_manifest import RunManifest
from localjudge.system.line_store import LineStore


@dataclass(frozen=True, slots=True)
class Text:
    """The texts of one row; `fields` has those of further columns that the rubric uses."""

    instruction: str
    reference: str | None
    candidate: str
    fields: Mapping[str, str]


class Texts(AbstractContextManager["Texts"]):
    """The texts of a run's rows, in a scratch file; memory grows by a few numbers for each row.

    Args:
        manifest: the manifest of the run.
        outcomes: the outcomes whose texts are needed.
        moved: the files to read, if the inputs were moved or renamed after the run.

    Attributes:
        problems: a message for each input that could not be read.
    """

    def __init__(self, manifest: RunManifest, outcomes: Iterable[Outcome], moved: Iterable[str] = ()) -> None:
        self._stored = LineStore.scratch()
        self._places: dict[str, int] = {}
        self.problems: list[str] = []
        wanted = {outcome.digest for outcome in outcomes} - {None}
        for row in rows_again(manifest, moved, self.problems):
            digest = row.digest.hex()
            if digest in wanted:
                wanted.remove(digest)
                self._places[digest] = len(self._stored)
                texts = [row.instruction, row.reference, row.candidate, dict(row.fields)]
                self._stored.append(json.dumps(texts).encode())
            if not wanted:
                break

    def __exit__(self, *exception: object) -> None:
        self._stored.__exit__(*exception)

    def get(self, outcome: Outcome) -> Text | None:
        """Return the texts of an outcome's row; None if they were not found."""
        place = None if outcome.digest is None else self._places.get(outcome.digest)
        return None if place is None else Text(*json.loads(self._stored[place]))


def rows_again(manifest: RunManifest, moved: Iterable[str], problems: list[str]) -> Iterator[Row]:
    """Yield the rows of all inputs of all starts of a run; inputs that cannot be read are skipped.

    Args:
        manifest: the manifest of the run.
        moved: the files to read, if the inputs were moved or renamed after the run.
        problems: receives a message for each input that cannot be read.
    """
    moved = list(moved)
    inputs = {
        (name, tuple(sorted(start.columns.items())), start.max_row_bytes)
        for start in manifest.starts
        for name in (moved or start.inputs)
    }
    for name, columns, max_row_bytes in sorted(inputs):
        if name == STDIN:
            problems.append("the rows came from stdin")
            continue
        if not moved and not can_be_read_twice(name):
            problems.append(f"{name}: No such file, or none that can be read twice")
            continue
        try:
            found = find_inputs([name])
        except UsageError as error:
            problems.append(str(error))
            continue
        rows = read_rows(found, dict(columns), max_row_bytes, manifest.rubric.fields)
        yield from (row for row in rows if isinstance(row, Row))
