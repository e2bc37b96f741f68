"""What judgements were about: their instruction, reference and candidate, read again from a run's inputs.

A run's lines name their rows and do not repeat them. A row is known by the digest of its texts, so what is
found is exactly what was judged: a row that has changed since is not found.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.records import Outcome, Row
from localjudge.rows.inputs import EXAMPLES, STDIN, find_inputs, read_rows
from localjudge.runs.run_manifest import RunManifest


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one row."""

    instruction: str
    reference: str | None
    candidate: str


class Texts(AbstractContextManager["Texts"]):
    """The texts of a run's rows, laid out in a scratch file: memory grows by a few numbers a row.

    Args:
        manifest: that of the run.
        outcomes: of the rows that are asked for.
        moved: where the rows are now, if not where they were when they were judged.

    Attributes:
        problems: for each input that could not be read, why.
    """

    def __init__(self, manifest: RunManifest, outcomes: Iterable[Outcome], moved: Iterable[str] = ()) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed on exit)
        self._offsets: dict[str, int] = {}
        self.problems: list[str] = []
        wanted = {outcome.digest for outcome in outcomes} - {None}
        for row in rows_again(manifest, moved, self.problems):
            digest = row.digest.hex()
            if digest in wanted:
                wanted.remove(digest)
                self._offsets[digest] = self._file.tell()
                self._file.write(json.dumps([row.instruction, row.reference, row.candidate]).encode() + b"\n")
            if not wanted:
                break

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def get(self, outcome: Outcome) -> Text | None:
        """The text of an outcome's row, where it was found."""
        offset = None if outcome.digest is None else self._offsets.get(outcome.digest)
        if offset is None:
            return None
        self._file.seek(offset)
        return Text(*json.loads(self._file.readline()))


def rows_again(manifest: RunManifest, moved: Iterable[str], problems: list[str]) -> Iterator[Row]:
    """The rows of every input of any start of a run, as far as it is there.

    Args:
        manifest: that of the run.
        moved: where the rows are now, if not where they were when they were judged.
        problems: gets a line for each input that cannot be read.
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
        if name != EXAMPLES and not moved and not Path(name).is_file():
            problems.append(f"{name}: No such file, or none that can be read twice")
            continue
        try:
            found = find_inputs([name])
        except UsageError as error:
            problems.append(str(error))
            continue
        yield from (row for row in read_rows(found, dict(columns), max_row_bytes) if isinstance(row, Row))
