"""Records that are joined with those of another file: answers with questions, outputs with inputs.

A file of questions is known by its shape (`rows.shapes`), which names the column that joins it; any two files
are joined by a column that a person names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from localjudge.errors import RowError, UsageError
from localjudge.rows.columns import JOIN, ON, Columns
from localjudge.rows.paths import ABSENT, value_at
from localjudge.rows.record import Record, RecordError
from localjudge.rows.shapes import COLUMNS, recognized


class Joins:
    """The records of the files that are joined with others, in memory.

    Args:
        columns: the columns that are given, with the file to join and its column.

    Attributes:
        files: the names of the inputs whose records are not rows.
        given_file: the file that a person gives to join.
    """

    def __init__(self, columns: Columns) -> None:
        self.files: list[str] = []
        self.given_file, on = columns.get(JOIN), columns.get(ON, "")
        ours, _, theirs = on.partition("=")
        self._given_by = (ours, theirs or ours)
        if (self.given_file is None) != (not on):
            raise UsageError("`join`: give the file and the column: `join` questions.jsonl `on` question_id")
        # By the names of the column in the rows and in the other file, and its value.
        self._known: dict[tuple[str, str], dict[str, dict[str, Any]]] = (
            {} if self.given_file is None else {self._given_by: {}}
        )

    def read(self, name: str, records: Iterable[tuple[int, Record]], *, is_given: bool = False) -> None:
        """Read the file that a person gives, or an input whose first record has a shape that is joined.

        Raises:
            UsageError: a record cannot be read, lacks the column or is of another shape than the first one of
                an input, or two different ones have the same value in the column.
        """
        shape, by = COLUMNS, self._given_by
        for number, record in records:
            found = COLUMNS if is_given or isinstance(record, RowError) else recognized(record)
            if not is_given and shape is COLUMNS:
                if not found.aside:
                    return
                self.files.append(name)
                shape, by = found, (str(found.joins), str(found.joins))
            where = f"`join` {name}:{number}" if is_given else f"{name}:{number}"
            if isinstance(record, RowError):
                raise UsageError(f"{where}: {record.reason}; correct this file")
            if found is not shape:
                known = f"is not one of {shape.title}, with {' and '.join(shape.has[0])}"
                raise UsageError(f"{where}: {known}; correct this file")
            key = value_at(record, by[1])
            if key in (ABSENT, None):
                raise UsageError(f"{where}: has no {by[1]}, by which it is joined; name another with `on`")
            if self._known.setdefault(by, {}).setdefault(str(key), record) != record:
                raise UsageError(f"{where}: another record has the {by[1]} {key!r}; keep one of them")

    def join(self, record: dict[str, Any]) -> None:
        """Add to a record the columns of the records that it is joined with.

        Raises:
            RecordError: there is no such record.
        """
        for by, known in self._known.items():
            ours, theirs = by
            is_given = by == self._given_by
            file = str(self.given_file) if is_given else ", ".join(self.files)
            key = value_at(record, ours)
            if key is ABSENT and not is_given:
                continue
            if key is ABSENT:
                raise RecordError(f"has no {ours}, by which it is joined with {file}")
            if str(key) not in known:
                raise RecordError(f"no record in {file} has the {theirs} {key!r}")
            other = Path(file).stem if is_given else "joined"
            for name, value in known[str(key)].items():
                if record.setdefault(name, value) != value:  # a different value gets the name of the file
                    record[f"{other}.{name}"] = value
