"""Records that are joined with those of another file: answers with questions, outputs with inputs.

A file of questions is known by its shape (`rows.shapes`), which names the column that joins it; any two files
are joined by a column that a person names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import RowError, UsageError
from localjudge.rows.columns import JOIN, ON, Columns
from localjudge.rows.record import ABSENT, Record, RecordError, like, value_at
from localjudge.rows.shapes import COLUMNS, Shape, recognized


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
        self._ours, _, theirs = on.partition("=")
        self._theirs = theirs or self._ours
        if (self.given_file is None) != (not on):
            raise UsageError("`join`: give the file and the column: `join` questions.jsonl `on` question_id")
        # By the name of the column in the rows, and its value.
        self._known: dict[str, dict[str, Mapping[str, Any]]] = {self._ours: {}} if self.given_file else {}

    def read_given(self, name: str, records: Iterable[tuple[int, Record]]) -> None:
        """Read the file that a person gives.

        Raises:
            UsageError: a record cannot be read or lacks the column, or two have the same value in it.
        """
        for number, record in records:
            where = f"`join` {name}:{number}"
            if isinstance(record, RowError):
                raise UsageError(f"{where}: {record.reason}")
            if value_at(record, self._theirs) in (ABSENT, None):
                raise UsageError(
                    f"{where}: has no {self._theirs}, by which it is joined; name another with `on`"
                )
            self._add(self._ours, self._theirs, record, where)

    def read(self, name: str, records: Iterator[tuple[int, Record]]) -> None:
        """Read an input if its records are joined with others, which the shape of the first one shows.

        Raises:
            UsageError: another record does not have the shape, or two different ones have the same key.
        """
        shape: Shape | None = None
        for number, record in records:
            found = COLUMNS if isinstance(record, RowError) else recognized(record)
            if shape is None and not found.aside:
                return
            shape = shape or found
            if isinstance(record, RowError) or found is not shape:
                known = f"is not one of {shape.title}, with {' and '.join(shape.has[0])}"
                problem = record.reason if isinstance(record, RowError) else known
                raise UsageError(f"{name}:{number}: {problem}; correct this file")
            self._add(str(shape.joins), str(shape.joins), record, f"{name}:{number}")
        self.files += [name] * (shape is not None)

    def _add(self, ours: str, theirs: str, record: Mapping[str, Any], where: str) -> None:
        key = value_at(record, theirs)
        if self._known.setdefault(ours, {}).setdefault(str(key), record) != record:
            raise UsageError(f"{where}: another record has the {theirs} {key!r}; keep one of them")

    def joined(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a record with the columns of the records that it is joined with.

        Raises:
            RecordError: there is no such record.
        """
        for column, known in self._known.items():
            is_given = column == self._ours
            file = str(self.given_file) if is_given else ", ".join(self.files)
            key = value_at(record, column)
            if key is ABSENT and not is_given:
                continue
            if key is ABSENT:
                raise RecordError(f"has no {column}, by which it is joined with {file}")
            if str(key) not in known:
                raise RecordError(f"no record in {file} has the {self._theirs if is_given else column} {key!r}")
            other, name = known[str(key)], Path(file).stem if is_given else "joined"
            # A different value of a column gets the name of the file.
            apart = {f"{name}.{key}": value for key, value in other.items() if record.get(key, value) != value}
            record = like(record, {**other, **record, **apart})
        return record
