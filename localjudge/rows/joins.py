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
from localjudge.rows.paths import ABSENT, value_at
from localjudge.rows.record import Record, RecordError
from localjudge.rows.shapes import Shape, recognized


class Joins:
    """The records of the files that are joined with others, in memory.

    Args:
        columns: the columns that are given, with the file to join and its column.

    Attributes:
        files: the names of the inputs whose records are not rows.
    """

    def __init__(self, columns: Columns) -> None:
        self.files: list[str] = []
        self._file, on = columns.get(JOIN), columns.get(ON, "")
        self._ours, _, theirs = on.partition("=")
        self._theirs = theirs or self._ours
        if (self._file is None) != (not on):
            raise UsageError("`join`: give the file and the column: `join` questions.jsonl `on` question_id")
        self._given: dict[str, Mapping[str, Any]] = {}
        self._known: dict[str, dict[str, Mapping[str, Any]]] = {}  # by the name of the column

    @property
    def given_file(self) -> str | None:
        """The file that a person gives to join."""
        return self._file

    def read_given(self, name: str, records: Iterable[tuple[int, Record]]) -> None:
        """Read the file that a person gives.

        Raises:
            UsageError: a record cannot be read or lacks the column, or two have the same value in it.
        """
        for number, record in records:
            where = f"`join` {name}:{number}"
            if isinstance(record, RowError):
                raise UsageError(f"{where}: {record.reason}")
            key = value_at(record, self._theirs)
            if key is ABSENT or key is None:
                raise UsageError(
                    f"{where}: has no {self._theirs}, by which it is joined; name another with `on`"
                )
            if self._given.setdefault(str(key), record) != record:
                raise UsageError(f"{where}: another record has the {self._theirs} {key!r}; keep one of them")

    def read(self, name: str, records: Iterator[tuple[int, Record]]) -> None:
        """Read an input if its records are joined with others, which the shape of the first one shows.

        Raises:
            UsageError: another record does not have the shape, or two different ones have the same key.
        """
        shape: Shape | None = None
        for number, record in records:
            found = None if isinstance(record, RowError) else recognized(record)
            if shape is None and (found is None or not found.aside):
                return
            if isinstance(record, RowError) or found is None or found is not (shape or found):
                assert shape is not None
                problem = (
                    record.reason
                    if isinstance(record, RowError)
                    else f"is not one of {shape.title}, with {' and '.join(shape.has[0])}"
                )
                raise UsageError(f"{name}:{number}: {problem}; correct this file")
            shape = found
            key = value_at(record, str(shape.joins))
            known = self._known.setdefault(str(shape.joins), {}).setdefault(str(key), record)
            if known != record:
                raise UsageError(
                    f"{name}:{number}: another record has the {shape.joins} {key!r}; keep one of them"
                )
        if shape is not None:
            self.files.append(name)

    def joined(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a record with the columns of the records that it is joined with.

        Raises:
            RecordError: there is no such record.
        """
        if self._file is not None:
            key = value_at(record, self._ours)
            if str(key) not in self._given:
                has = f"no {self._ours}" if key is ABSENT else f"the {self._ours} {key!r}"
                raise RecordError(f"has {has}, and no record of {self._file} has it in {self._theirs}")
            record = _merged(record, self._given[str(key)], Path(self._file).stem)
        for column, known in self._known.items():
            key = value_at(record, column)
            if key is ABSENT:
                continue
            if str(key) not in known:
                raise RecordError(f"no record in {', '.join(self.files)} has the {column} {key!r}")
            record = _merged(record, known[str(key)], "joined")
        if not self._known and (shape := recognized(record)) and shape.joins is not None and not shape.aside:
            raise RecordError(
                f"is {shape.title}; give the file with the rest, too: its {shape.joins} joins the two"
            )
        return record


def _merged(record: Mapping[str, Any], other: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a record with the columns of another; a different value of a column gets the file's name."""
    own = {
        f"{name}.{column}": value
        for column, value in other.items()
        if column in record and value != record[column]
    }
    return {**other, **record, **own}
