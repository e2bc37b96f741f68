"""Which field reads which column: a column feeds at most one field."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.rows.columns import folded
from localjudge.rows.first_records import Column, FirstRecords
from localjudge.rows.paths import EACH, column, path_of_column, steps
from localjudge.rows.reading import FieldSource, Kind, Source


class Claims:
    """The sources of fields, while a reading is decided.

    Args:
        first: the first records.
        dropped: the columns that no row keeps.

    Attributes:
        fields: the source of each field that has one.
        columns: the columns of which a field reads all that is kept.
    """

    def __init__(self, first: FirstRecords, dropped: Sequence[str]) -> None:
        self._first = first
        self.fields: dict[str, FieldSource] = {}
        self.columns: dict[str, None] = dict.fromkeys(dropped)

    def add(self, name: str, source: FieldSource, *, keeps_column: bool = False) -> None:
        """Give a field its source.

        Args:
            name: the field.
            source: its source.
            keeps_column: whether a path into a column leaves the rest of it among the columns of the row.
        """
        self.fields[name] = source
        for each in source.sources:
            top = column(each.path)
            is_whole = path_of_column(top) == each.path or EACH in each.path
            if is_whole or not keeps_column:
                self.columns[self._first.name_of(each, top)] = None

    def add_column(self, name: str, each: Column, *, kind: Kind | None = None) -> None:
        """Give a field a whole column; one without values has the kind that is given."""
        source = each.source if kind is None else each.source.model_copy(update={"kind": kind})
        self.add(name, FieldSource(kind=source.kind, texts=(source,)))

    def release(self, name: str) -> None:
        """Take the source of a field away, and leave its columns to others."""
        taken = self.fields.pop(name, None)
        if taken is not None:
            for each in taken.sources:
                self.columns.pop(self._first.name_of(each, column(each.path)), None)

    def field_of(self, source: Source) -> str | None:
        """Return the field that reads a value of a source; None if none does."""
        for name, taken in self.fields.items():
            if any(each.file == source.file and overlap(each.path, source.path) for each in taken.sources):
                return name
        return None

    def is_free(self, each: Column) -> bool:
        """Return whether no field reads a value of a column."""
        return each.name not in self.columns and self.field_of(each.source) is None

    def free_columns(self) -> list[Column]:
        """Return the columns of which no field reads a value."""
        return [each for each in self._first.columns.values() if self.is_free(each)]

    def usual_columns(self, names: Sequence[str]) -> list[Column]:
        """Return the free columns with one of these names, in the order of the names.

        A column with exactly the name comes before one that differs in case, spaces or hyphens.
        """
        free = self.free_columns()
        found: dict[str, Column] = {}
        for name in names:
            exact = [each for each in free if each.name == name]
            alike = [each for each in free if folded(each.name) == name]
            for each in exact + alike:
                found[each.name] = each
        return list(found.values())


def overlap(one: str, other: str) -> bool:
    """Return whether one path is the other, or inside it; a key or a number of elements is no value."""
    shorter, longer = sorted((steps(one), steps(other)), key=len)
    if longer[-1:] in (("@key",), ("@count",)):
        return shorter == longer
    return all(_may_be_equal(step, beside) for step, beside in zip(shorter, longer, strict=False))


def _may_be_equal(one: str, other: str) -> bool:
    """Return whether two steps can lead to the same value: `[*]` stands for each element."""
    return one == other or EACH in (one, other)
