"""What judgements were about: their instruction, reference and candidate, read again from a run's inputs.

A run's lines name their rows and do not repeat them. A row is known by its key, the digest of everything that
decided its judgement, so what is found is exactly what was judged: a row that has changed since is not found.
The lines of a jury are the one exception: their keys are of its members' lines, and its rows are known by id
and system.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
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
        lines: of the rows that are asked for.
        moved: where the rows are now, if not where they were when they were judged.

    Attributes:
        problems: for each input that could not be read, why.
    """

    def __init__(
        self, manifest: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], moved: Iterable[str] = ()
    ) -> None:
        self._manifest = manifest
        self._settings = settings_digest(manifest["settings"])
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed on exit)
        self._offsets: dict[str, int] = {}
        self.problems: list[str] = []
        wanted = {self._name(line) for line in lines}
        for row in self._rows(list(moved)):
            name = self._name_of(row)
            if name in wanted:
                wanted.remove(name)
                self._offsets[name] = self._file.tell()
                text = [row.instruction, row.reference, row.candidate, group_of(row)]
                self._file.write(json.dumps(text).encode() + b"\n")
                if not wanted:
                    break

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def get(self, line: Mapping[str, Any]) -> Text | None:
        """The text of a line's row, where it was found."""
        offset = self._offsets.get(self._name(line))
        if offset is None:
            return None
        self._file.seek(offset)
        return Text(*json.loads(self._file.readline()))

    def _name(self, line: Mapping[str, Any]) -> str:
        return json.dumps([line["id"], line["system"]]) if "jury" in self._manifest else str(line["key"])

    def _name_of(self, row: Row) -> str:
        return json.dumps([row.id, row.system]) if "jury" in self._manifest else row_key(self._settings, row)

    def _rows(self, moved: list[str]) -> Iterator[Row]:
        """The rows of every input of any start of the run, as far as it is there."""
        inputs = {
            (name, tuple(sorted(start.get("columns", {}).items())))
            for start in self._manifest["starts"]
            for name in (moved or start["inputs"])
        }
        for name, columns in sorted(inputs):
            if name == STDIN:
                self.problems.append("the rows came from stdin")
                continue
            try:
                found = find_inputs([name])
            except UsageError as error:
                self.problems.append(str(error))
                continue
            yield from (row for row in read_rows(found, dict(columns)) if isinstance(row, Row))
