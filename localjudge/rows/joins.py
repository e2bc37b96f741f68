"""Records that are joined with those of another file: answers with questions, outputs with inputs.

A file of questions is known by its shape (`rows.shapes`), which names the column that joins it; any two files
are joined by a column that a person names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from localjudge.errors import RowError, RowProblem, UsageError
from localjudge.rows.columns import COLUMN_NAMES, PAIR, ReadingFlags, folded
from localjudge.rows.paths import ABSENT, is_missing, look_up
from localjudge.rows.record import Record, RecordError, first_records
from localjudge.rows.shapes import recognized


class JoinedRecord(dict[str, Any]):
    """A record with the one of another file that it is joined with, which keeps its own columns.

    Attributes:
        other: the columns of the other record.
    """

    __slots__ = ("other",)

    def __init__(self, columns: dict[str, Any], other: dict[str, Any]) -> None:
        super().__init__(columns)
        self.other = other

    def copy(self) -> JoinedRecord:
        return JoinedRecord(self, other=self.other)


@dataclass(slots=True)
class _Index:
    """The records of a file to join, by the value of a column.

    Attributes:
        name: the file, for messages.
        ours: the column of the rows.
        theirs: the column of the file.
        is_given: whether a flag names the file, so that each row needs a partner.
        records: each record, by the text of its value in the column.
        columns: the columns that a record has.
    """

    name: str
    ours: str
    theirs: str
    is_given: bool
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)

    def add(self, record: dict[str, Any], where: str) -> None:
        """Add a record; one without the column is no partner.

        Raises:
            UsageError: another record has the same value in the column.
        """
        key = look_up(record, self.theirs)
        if key is ABSENT or key is None:
            return
        if self.records.setdefault(str(key), record) != record:
            raise UsageError(f"{where}: another record has the {self.theirs} {key!r}; keep one of them")
        self.columns |= record.keys()

    def partner(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return the record that a row is joined with; None for a row that needs none.

        Raises:
            RecordError: there is none.
        """
        key = look_up(record, self.ours)
        if key is ABSENT:
            if self.is_given:
                reason = f"has no {self.ours}, by which it is joined with {self.name}"
                raise RecordError(reason, RowProblem.JOIN)
            return None
        if str(key) not in self.records:
            raise RecordError(f"no record in {self.name} has the {self.theirs} {key!r}", RowProblem.JOIN)
        return self.records[str(key)]


def _joined_by(records: Sequence[Record]) -> str | None:
    """Return the column that joins the records of a file with others; None if most of them hold rows."""
    columns: Counter[str | None] = Counter()
    for record in records:
        if isinstance(record, RowError):
            continue
        shape = recognized(record)
        if not shape.aside and _has_response(record):
            return None
        columns[shape.joins if shape.aside else None] += 1
    if not columns:
        return None
    return columns.most_common(1)[0][0]


def _has_response(record: Mapping[str, Any]) -> bool:
    """Return whether a record has a column with a usual name of a response."""
    names = {folded(name) for name, value in record.items() if isinstance(name, str) and not is_missing(value)}
    return not names.isdisjoint(_OF_RESPONSES)


_OF_RESPONSES = frozenset(name for field in ("candidate", *PAIR) for name in COLUMN_NAMES[field])
"""The usual names of the columns of responses."""


class Joins:
    """The records of the files that are joined with others, in memory.

    Args:
        flags: what the user says of the files, with the file to join and its column.

    Attributes:
        files: the names of the inputs whose records are not rows.
        given_file: the file that a flag names.
    """

    def __init__(self, flags: ReadingFlags) -> None:
        self.files: list[str] = []
        self.given_file = flags.join
        self._ours, _, theirs = flags.on.partition("=")
        self._theirs = theirs or self._ours
        self._indexes: list[_Index] = []
        if (self.given_file is None) != (not flags.on):
            raise UsageError("`join`: give the file and the column: `join` questions.jsonl `on` question_id")

    @property
    def name(self) -> str:
        """The name of the joined file, for columns that both files have."""
        return "joined" if self.given_file is None else Path(self.given_file).stem

    def read_given(self, name: str, records: Iterable[tuple[int, Record]]) -> None:
        """Read the file that a flag names.

        Raises:
            UsageError: a record cannot be read, or two have the same value in the column.
        """
        index = _Index(str(self.given_file), self._ours, self._theirs, is_given=True)
        self._indexes.append(index)
        for number, record in records:
            where = f"`join` {name}:{number}"
            if isinstance(record, RowError):
                raise UsageError(f"{where}: {record.reason}; correct this file")
            index.add(record, where)

    def read_aside(self, name: str, records: Iterable[tuple[int, Record]]) -> None:
        """Read an input if most of its first records have a shape that is joined; otherwise it holds rows.

        Raises:
            UsageError: a record of such a file cannot be read, or two have the same value in the column.
        """
        rest = iter(records)
        first = first_records(rest)
        joined_by = _joined_by([record for _, record in first])
        if joined_by is None:
            return
        index = self._index_of_shape(name, joined_by)
        for number, record in chain(first, rest):
            where = f"{name}:{number}"
            if isinstance(record, RowError):
                raise UsageError(f"{where}: {record.reason}; correct this file")
            index.add(record, where)

    def _index_of_shape(self, name: str, joined_by: str) -> _Index:
        """Return the index that all files joined by a column share."""
        self.files.append(name)
        for index in self._indexes:
            if not index.is_given and index.theirs == joined_by:
                index.name += f", {name}"
                return index
        index = _Index(name, joined_by, joined_by, is_given=False)
        self._indexes.append(index)
        return index

    def joined(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with the columns of those that it is joined with.

        A column that two files have is read from the first of them, even where that has no value.

        Raises:
            RecordError: there is no such record.
        """
        other: dict[str, Any] = {}
        taken: set[str] = set()
        for index in self._indexes:
            partner = index.partner(record)
            if partner is not None:
                other |= {name: value for name, value in partner.items() if name not in taken}
            taken |= index.columns
        return JoinedRecord(record, other=other) if other else record
