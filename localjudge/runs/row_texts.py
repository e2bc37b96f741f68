"""What judgements were about: their instruction, reference and candidate, read again from a run's inputs.

A run's lines name their rows and do not repeat them. A row is known by the digest of its texts, so what is
found is exactly what was judged: a row that has changed since is not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Row
from localjudge.rows.formats import MAX_ROW_BYTES
from localjudge.rows.inputs import EXAMPLES, STDIN, find_inputs, read_rows
from localjudge.system.line_store import LineStore


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one row."""

    instruction: str
    reference: str | None
    candidate: str


class Texts(AbstractContextManager["Texts"]):
    """The texts of a run's rows, laid out in a scratch file: memory grows by a few numbers a row.

    Args:
        manifest: the run's `run.json`.
        lines: of the rows that are asked for.
        moved: where the rows are now, if not where they were when they were judged.

    Attributes:
        problems: for each input that could not be read, why.
    """

    def __init__(
        self, manifest: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], moved: Iterable[str] = ()
    ) -> None:
        self._stored = LineStore.scratch()
        self._places: dict[str, int] = {}
        self.problems: list[str] = []
        wanted = {line["digest"] for line in lines} - {None}
        for row in rows_again(manifest, moved, self.problems):
            digest = row.digest.hex()
            if digest in wanted:
                wanted.remove(digest)
                self._places[digest] = len(self._stored)
                self._stored.append(json.dumps([row.instruction, row.reference, row.candidate]).encode())
            if not wanted:
                break

    def __exit__(self, *exception: object) -> None:
        self._stored.__exit__(*exception)

    def get(self, line: Mapping[str, Any]) -> Text | None:
        """The text of a line's row, where it was found."""
        place = self._places.get(line["digest"])
        return None if place is None else Text(*json.loads(self._stored[place]))


def rows_again(manifest: Mapping[str, Any], moved: Iterable[str], problems: list[str]) -> Iterator[Row]:
    """The rows of every input of any start of a run, as far as it is there.

    Args:
        manifest: the run's `run.json`.
        moved: where the rows are now, if not where they were when they were judged.
        problems: gets a line for each input that cannot be read.
    """
    moved = list(moved)
    inputs = {
        (name, tuple(sorted(start["columns"].items())), start.get("max_row_bytes", MAX_ROW_BYTES))
        for start in manifest["starts"]
        for name in (moved or start["inputs"])
    }
    for name, columns, max_row_bytes in sorted(inputs):
        if name == STDIN:
            problems.append("the rows came from stdin")
            continue
        if name != EXAMPLES and not moved and not Path(name).is_file():
            problems.append(f"{name}: No such file, or none that can be read twice")
            continue
        try:
            found = find_inputs([name])
        except UsageError as error:
            problems.append(str(error))
            continue
        yield from (row for row in read_rows(found, dict(columns), max_row_bytes) if isinstance(row, Row))
