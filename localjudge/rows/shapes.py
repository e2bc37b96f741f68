"""Shapes of records: declarations that say how a tool's records are recognized, and where their fields are.

A shape is a table in a file of the folder `shapes`. Its keys:

    title   what it is, for people
    writer  the program and its version whose files the tests read; the other shapes are from documentation
    has     the paths that a record has (`rows.paths`), or lists of paths; then it has all paths of one list
    lacks   paths that it must not have
    extends a form whose records are read as well: this one only adds fields that these lack
    usual   true if the fields that the shape does not name are in columns with the usual names
    joins   the column by which a record is joined with that of another file, without which it is not a row
    aside   true if a file of such records is joined with others, and holds no rows
    whole   true if a conversation of several turns is judged only by a rubric that shows it
    unanswered  true if the records have no response
    turns   the path of the number of turns that the record is of; later turns are left out
    reference_of_turns  true if the reference is a list with a text for each turn
    product true if each element of one list is a row with each of another; otherwise they are side by side
    gather  columns with lists of responses, which are together the column @responses
    drop    columns that are not kept
    encoding  paths whose writer encodes every value: { request = "json" }; a file in which most
            values of one of them are no texts was written with decoded values
    label   which response a label names, for records of two responses

Every other key is a field of a row. Its value is

    "a.b | c"                             a path, or else another one: the same in all records of a file
    { value = "a", inside = "a.b | a.c" } a path; where its values are objects, a path inside them
    ["instruction", "input"]              texts with an empty line between them
    [{ system = "s" }, { user = "q" }]    the turns of a conversation, each with its role; `messages` adds the
                                          messages of a list, `pairs` the turns of a list of pairs, `marked`
                                          those of a text with a word in capitals before each turn,
                                          `events` those of OpenHands
    [{ user = "q", assistant = "a" }]     lists of the turns of each role, which alternate

and of a label

    { at = "label", codes = { 0 = "a" } } the result that each value names: a, b, tie, or none
    { one = { a = "first", tie = "t" } }  the result whose column is 1 or true
    { always = "a" }                      the same result for each record

A label of several annotators has a list in `at`, of paths or at its path.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

from localjudge.errors import UsageError
from localjudge.rows.columns import PAIR
from localjudge.rows.paths import ABSENT, FIRST, Element, column, is_missing, look_up, value_at
from localjudge.rows.record import RecordError


@dataclass(frozen=True, slots=True)
class Place:
    """The declared place of a value.

    Attributes:
        paths: the possible paths, the preferred one first.
        inside: the possible paths where the value at the first of `paths` is an object.
    """

    paths: tuple[str, ...]
    inside: tuple[str, ...] = ()

    @classmethod
    def parse(cls, declaration: str | Mapping[str, str]) -> Place:
        if isinstance(declaration, str):
            return cls(tuple(declaration.split(" | ")))
        return cls(tuple(declaration["value"].split(" | ")), tuple(declaration["inside"].split(" | ")))


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a field.

    Attributes:
        texts: the place of its value, or of each of several texts.
        turns: for a conversation, the places of the texts of each role of its parts; then `texts` is empty.
    """

    texts: tuple[Place, ...] = ()
    turns: tuple[Mapping[str, tuple[Place, ...]], ...] = ()

    @classmethod
    def parse(cls, declaration: Any) -> Declaration:
        is_conversation = isinstance(declaration, list) and isinstance(declaration[0], dict)
        if not is_conversation:
            return cls(texts=_places(declaration))
        turns = [{role: _places(each) for role, each in part.items()} for part in declaration]
        return cls(turns=tuple(turns))

    @property
    def places(self) -> Iterator[Place]:
        """All places, in their order."""
        yield from self.texts
        for part in self.turns:
            for places in part.values():
                yield from places


def _places(declaration: Any) -> tuple[Place, ...]:
    """Return the place of a text, or those of several texts."""
    if isinstance(declaration, list):
        return tuple(Place.parse(each) for each in declaration)
    return (Place.parse(declaration),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A declaration of records; this module describes its attributes."""

    name: str
    title: str
    has: Sequence[Sequence[str]] = ()
    fields: Mapping[str, Declaration] = field(default_factory=dict)
    writer: str | None = None
    lacks: Sequence[str] = ()
    extends: str | None = None
    usual: bool = False
    joins: str | None = None
    aside: bool = False
    whole: bool = False
    unanswered: bool = False
    turns: str | None = None
    reference_of_turns: bool = False
    product: bool = False
    gather: Sequence[str] = ()
    drop: Sequence[str] = ()
    encoding: Mapping[str, str] = field(default_factory=dict)
    label: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, name: str, table: Mapping[str, Any]) -> Shape:
        attributes = {each.name for each in fields(cls)}
        own = {key: value for key, value in table.items() if key in attributes}
        if not isinstance(own["has"][0], list):
            own["has"] = [own["has"]]
        declared = {key: Declaration.parse(value) for key, value in table.items() if key not in own}
        return cls(name=name, fields=declared, **own)

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the shape."""
        if any(not is_missing(look_up(record, path)) for path in self.lacks):
            return False
        return any(all(look_up(record, path) is not ABSENT for path in way) for way in self.has)

    def reads(self, other: Shape) -> bool:
        """Return whether records of another shape are read as well as those of this one."""
        if other.name == self.name:
            return True
        return self.extends is not None and shape_named(self.extends).reads(other)

    def result(self, record: Mapping[str, Any], element: Element = FIRST) -> list[str | None]:
        """Return the results that the labels of a record name: a, b, tie, or None for none.

        Raises:
            RecordError: a label is none of those that the shape knows.
        """
        label = self.label or {}
        if "always" in label:
            return [label["always"]]
        if "one" in label:
            return [self._marked_result(record, label["one"], element)]
        paths = label.get("at", [])
        found = [value_at(record, path, element) for path in (paths if isinstance(paths, list) else [paths])]
        values = []
        for value in found:
            if value is not ABSENT:
                values += value if isinstance(value, list) else [value]
        return [self._result(value, label["codes"]) for value in values]

    def _marked_result(
        self, record: Mapping[str, Any], columns: Mapping[str, str], element: Element
    ) -> str | None:
        """Return the result whose column is 1 or true; None without one."""
        marks = {result: str(value_at(record, path, element)).casefold() for result, path in columns.items()}
        named = [result for result, mark in marks.items() if mark in ("1", "1.0", "true")]
        if len(named) > 1:
            raise RecordError(f"its label names {' and '.join(named)}; it must name one")
        return named[0] if named else None

    def _result(self, value: Any, codes: Mapping[str, str]) -> str | None:
        text = f"{value:g}" if isinstance(value, float) else str(value).strip()
        if text.casefold() in ("", "nan", "none"):
            return None
        if text not in codes:
            known = ", ".join(codes)
            raise RecordError(f"holds the label {text[:40]!r}; a label of {self.title} is one of {known}")
        return None if codes[text] == "none" else codes[text]


@lru_cache
def shapes() -> Mapping[str, Shape]:
    """Return the shapes by their names, the most particular first."""
    folder = files("localjudge") / "rows" / "shapes"
    found = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        tables = tomllib.loads(file.read_text("utf-8"))
        found += [Shape.parse(name, table) for name, table in tables.items()]
    found.sort(key=lambda shape: -max(len(way) for way in shape.has))
    return {shape.name: shape for shape in found}


COLUMNS = Shape(name="columns", title="", usual=True)
"""The shape of all other records: their columns have the usual names."""


def shape_named(name: str) -> Shape:
    """Return the shape with a name.

    Raises:
        UsageError: there is no such shape.
    """
    if name == COLUMNS.name:
        return COLUMNS
    known = shapes()
    if name not in known:
        raise UsageError(f"`shape` {name}: give one of {', '.join([COLUMNS.name, *known])}")
    return known[name]


@lru_cache(maxsize=1024)
def _possible(columns: tuple[str, ...]) -> tuple[Shape, ...]:
    """Return the shapes that a record with these columns may have."""

    def may_have(way: Sequence[str]) -> bool:
        return all(path in columns or column(path) in columns for path in way)

    return tuple(shape for shape in shapes().values() if any(may_have(way) for way in shape.has))


def recognized(record: Mapping[str, Any]) -> Shape:
    """Return the most particular shape that fits a record; `COLUMNS` if none does."""
    for shape in _possible(tuple(record)):
        if shape.fits(record) and not _names_other_response(record, shape):
            return shape
    return COLUMNS


def _names_other_response(record: Mapping[str, Any], shape: Shape) -> bool:
    """Return whether a record has a response under the name of its field, which a shape does not read."""
    if shape.usual:
        return False
    own = [name for name in ("candidate", *PAIR) if not is_missing(record.get(name))]
    if not own:
        return False
    declared: set[str] = set()
    for declaration in shape.fields.values():
        for place in declaration.places:
            declared.update(place.paths)
    return any(name not in declared for name in own)
