"""What judgements were about: their instruction, reference and candidate, read again from a run's inputs.

A run's lines name their rows and do not repeat them. A row is known by its key, the digest of everything that
decided its judgement, so what is found is exactly what was judged: a row that has changed since is not found.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Row
from localjudge.rows import STDIN, find_inputs, read_rows
from localjudge.trust.texts import group_of, row_key, settings_digest


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one row. `group` is equal for rows of equal instruction and reference."""

    instruction: str
    reference: str | None
    candidate: str
    group: str


class Texts(AbstractContextManager["Texts"]):
    """The texts of a run's rows, laid out in a scratch file: memory grows by a few numbers a row.

    Args:
        manifest: the run's `run.json`.
        keys: of the rows that are asked for.
        moved: where the rows are now, if not where they were when they were judged.

    Attributes:
        problems: for each input that could not be read, why.
    """

    def __init__(self, manifest: Mapping[str, Any], keys: Set[str], moved: Iterable[str] | None = None) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed on exit)
        self._offsets: dict[str, int] = {}
        self.problems: list[str] = []
        digest = settings_digest(manifest["settings"])
        for row in self._rows(manifest, list(moved or ())):
            key = row_key(digest, row)
            if key in keys and key not in self._offsets:
                self._offsets[key] = self._file.tell()
                text = [row.instruction, row.reference, row.candidate, group_of(row)]
                self._file.write(json.dumps(text).encode() + b"\n")
                if len(self._offsets) == len(keys):
                    return

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, key: str) -> Text | None:
        """The text of the row with this key, where it was found."""
        if key not in self._offsets:
            return None
        self._file.seek(self._offsets[key])
        return Text(*json.loads(self._file.readline()))

    def _rows(self, manifest: Mapping[str, Any], moved: list[str]) -> Iterator[Row]:
        for name, columns in _inputs(manifest, moved):
            if name == STDIN:
                self.problems.append("its rows came from stdin")
                continue
            try:
                found = find_inputs([name])
            except UsageError as error:
                self.problems.append(str(error))
                continue
            yield from (row for row in read_rows(found, columns) if isinstance(row, Row))


def _inputs(manifest: Mapping[str, Any], moved: list[str]) -> list[tuple[str, dict[str, str]]]:
    """Every input of any start of the run, once, with its columns."""
    inputs = {
        (name, tuple(sorted(start["columns"].items())))
        for start in manifest["starts"]
        for name in (moved or start["inputs"])
    }
    return [(name, dict(columns)) for name, columns in sorted(inputs)]
