"""Rows in a scratch file, found by their place: memory grows by a few numbers for each row."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import TypeAdapter

from localjudge.records import Failure, Row
from localjudge.system.durable import LineStore

_STORED: TypeAdapter[Row | Failure] = TypeAdapter(Row | Failure)


class RowStore(AbstractContextManager["RowStore"]):
    """Rows and failures by their place, from 0.

    Args:
        folder: a folder for the scratch file; None for the system's temporary folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._lines = LineStore.scratch(folder)

    def __exit__(self, *exception: object) -> None:
        self._lines.__exit__(*exception)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: int) -> Row | Failure:
        return _STORED.validate_json(self._lines[place])

    def append(self, row: Row | Failure) -> None:
        self._lines.append(_STORED.dump_json(row))

    @property
    def size(self) -> int:
        """Size of the scratch file in bytes."""
        return self._lines.size
