"""Rows in a scratch file, found by their place: memory grows by a few numbers for each row."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localjudge.records import Criterion, Failure, Response, Row
from localjudge.system.durable import LineStore


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
        row: dict[str, Any] = json.loads(self._lines[place])
        if "failure" in row:
            return Failure(**row["failure"])
        criteria = tuple(Criterion(**each) for each in row["criteria"])
        responses = tuple(Response(**each) for each in row["responses"])
        return Row(**row | {"responses": responses, "criteria": criteria})

    def append(self, row: Row | Failure) -> None:
        document = {"failure": row.model_dump()} if isinstance(row, Failure) else asdict(row)
        self._lines.append(json.dumps(document, default=Criterion.model_dump).encode())

    @property
    def size(self) -> int:
        """Size of the scratch file in bytes."""
        return self._lines.size
