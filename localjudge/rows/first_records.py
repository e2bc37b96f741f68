"""The first records of a file, and what their columns and paths hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localjudge.rows.field_values import GATHERED, columns_of
from localjudge.rows.joins import JoinedRecord
from localjudge.rows.messages import as_turns, role_of, roles_of
from localjudge.rows.paths import (
    ABSENT,
    EACH,
    is_missing,
    list_of,
    path_of_column,
    value_at,
    values_of_each,
)
from localjudge.rows.reading import FileOf, Kind, Source, kind_of
from localjudge.rows.record import RecordError


@dataclass(slots=True)
class Column:
    """A column of the first records.

    Attributes:
        name: its name. If both files have it, the name of the joined file stands before that file's column.
        path: its path.
        file: the file that has it.
        kinds: the number of records that have a value of each kind.
    """

    name: str
    path: str
    file: FileOf
    kinds: Counter[Kind] = field(default_factory=Counter)

    @property
    def kind(self) -> Kind | None:
        """The kind of most of its values; None without any."""
        return self.kinds.most_common(1)[0][0] if self.kinds else None

    @property
    def source(self) -> Source:
        """The source of its values."""
        return Source(path=self.path, kind=self.kind or "text", file=self.file)

    def count(self, value: Any) -> None:
        """Count the kind of a value."""
        kind = kind_of(value)
        if kind is not None:
            self.kinds[kind] += 1


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, its path, and the file that has it."""

    value: Any
    path: str
    file: FileOf


class FirstRecords:
    """The first records of a file.

    Args:
        records: the records of the file's form, with decoded values.
        joined_name: the name of the file that they are joined with.
        label_columns: columns with labels, which are in no field.

    Attributes:
        columns: the columns by their names, those of the rows first.
        shared: the names of the columns that both files have.
    """

    def __init__(
        self, records: Sequence[dict[str, Any]], joined_name: str, label_columns: frozenset[str]
    ) -> None:
        self._records, self._joined_name = records, joined_name
        own = dict.fromkeys(name for record in records for name in record)
        others = dict.fromkeys(name for record in records for name in _joined_columns(record))
        self.shared = [name for name in own if name in others]
        self._shared = frozenset(self.shared)
        self.columns: dict[str, Column] = {}
        for name in own:
            if isinstance(name, str) and name not in label_columns and name != GATHERED:
                self.columns[name] = Column(name, path_of_column(name), "rows")
        for name in others:
            shown = f"{joined_name}.{name}" if name in own else name
            if isinstance(name, str) and name not in label_columns:
                self.columns[shown] = Column(shown, path_of_column(name), "joined")
        self._count_kinds()

    def _count_kinds(self) -> None:
        for record in self._records:
            for name, value in record.items():
                if name in self.columns:
                    self.columns[name].count(value)
            for name, value in _joined_columns(record).items():
                shown = f"{self._joined_name}.{name}" if name in self._shared else name
                if shown in self.columns:
                    self.columns[shown].count(value)

    @property
    def is_joined(self) -> bool:
        """Whether a record is joined with one of another file."""
        return any(isinstance(record, JoinedRecord) for record in self._records)

    @property
    def has_turns(self) -> bool:
        """Whether a column has messages."""
        return any(each.kinds["turns"] for each in self.columns.values())

    def name_of(self, source: Source, column: str) -> str:
        """Return the name of a column of a source among `columns`."""
        if source.file == "joined" and column in self.shared:
            return f"{self._joined_name}.{column}"
        return column

    def values(self, source: Source) -> list[Any]:
        """Return the values of a source in the records that have one, each element of a list by itself."""
        found = []
        for record in self._records:
            columns = columns_of(record, source)
            if EACH in source.path:
                values = _values_of_each(columns, source.path)
            else:
                values = [value_at(columns, source.path)]
            found += [value for value in values if not is_missing(value)]
        return found

    def locate(self, path: str) -> Source | None:
        """Return the source of a path, with the kind of most of its values; None if no record has it.

        The rows' own columns come before those of the joined file, even where they have no value. The column
        that has the whole path as its name comes before a path that goes into a column.
        """
        places = self._places(path)
        kinds: Counter[tuple[str, Kind]] = Counter()
        for place in places:
            kind = kind_of(place.value)
            if kind is not None:
                kinds[place.path, kind] += 1
        if kinds:
            (found, kind), _ = kinds.most_common(1)[0]
            return Source(path=found, kind=kind, file=places[0].file)
        # A column without a value in the first records may have one later.
        return Source(path=places[0].path, kind="text", file=places[0].file) if places else None

    def _places(self, path: str) -> list[_Place]:
        """Return where the records have a path: all in the rows' own columns, or all in the joined file."""
        places = [place for record in self._records for place in _places_in(record, path, "rows")]
        others = [_joined_columns(record) for record in self._records]
        prefix = f"{self._joined_name}."
        if not places and path.startswith(prefix):
            inside = path.removeprefix(prefix)
            places = [place for other in others for place in _places_in(other, inside, "joined")]
        if not places:
            places = [place for other in others for place in _places_in(other, path, "joined")]
        return places

    def holds_object_list(self, source: Source) -> bool:
        """Return whether most values before the `[*]` of a source are objects, and not lists."""
        name = list_of(source.path)
        values = [value_at(columns_of(record, source), name) for record in self._records]
        objects = [value for value in values if isinstance(value, Mapping)]
        known = [value for value in values if not is_missing(value)]
        return len(objects) * 2 > len(known)

    def holds_objects(self, path: str) -> bool:
        """Return whether most values of a path are objects or lists that are neither texts nor messages."""
        source = self.locate(path)
        return source is not None and source.kind == "data"

    def stand_apart(self, one: Source, other: Source) -> bool:
        """Return whether some records have only the second of two sources, and no record has both."""
        has_only_other = False
        for record in self._records:
            has_one = not is_missing(value_at(columns_of(record, one), one.path))
            has_other = not is_missing(value_at(columns_of(record, other), other.path))
            if has_one and has_other:
                return False
            has_only_other = has_only_other or has_other
        return has_only_other

    def last_role(self, source: Source) -> str | None:
        """Return the role of the last turn in most records; None without turns."""
        roles: Counter[str] = Counter()
        for value in self.values(source):
            turns = roles_of(value)
            if turns:
                roles[str(turns[-1])] += 1
        return roles.most_common(1)[0][0] if roles else None

    def begin_with_prompt(self, source: Source) -> bool:
        """Return whether most messages of a source begin with a turn of the user or the system."""
        count, with_prompt = 0, 0
        for value in self.values(source):
            turns = as_turns(value)
            if turns is not None:
                count += 1
                with_prompt += role_of(turns[0]) in ("user", "system", "developer")
        return with_prompt * 2 > count

    def are_said(self, questions: Source, messages: Source) -> bool:
        """Return whether, in most records, the question is a turn of the user in the messages."""
        count, said = 0, 0
        for record in self._records:
            question = value_at(columns_of(record, questions), questions.path)
            turns = as_turns(value_at(columns_of(record, messages), messages.path))
            if turns is not None and isinstance(question, str):
                count += 1
                said += any(_is_said(question, turn) for turn in turns)
        return said * 2 > count


def _joined_columns(record: dict[str, Any]) -> Mapping[str, Any]:
    return record.other if isinstance(record, JoinedRecord) else {}


def _places_in(columns: Mapping[str, Any], path: str, file: FileOf) -> Iterator[_Place]:
    """Yield the value of a path in columns: the column of this name, or else a value inside a column."""
    if path in columns:
        yield _Place(columns[path], path_of_column(path), file)
        return
    values = _values_of_each(columns, path) if EACH in path else [value_at(columns, path)]
    for value in values:
        if value is not ABSENT:
            yield _Place(value, path, file)
            return


def _values_of_each(columns: Mapping[str, Any], path: str) -> list[Any]:
    """Return the values of a path for all elements of its list; none without a list."""
    if not isinstance(value_at(columns, list_of(path)), list | Mapping):
        return []
    try:
        return list(values_of_each(columns, path))
    except RecordError:
        return []


def _is_said(question: str, turn: Any) -> bool:
    """Return whether a turn of the user has a text as its content, alone or as its only part."""
    if role_of(turn) != "user":
        return False
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        content = content[0].get("text")
    return isinstance(content, str) and content.strip() == question.strip()
