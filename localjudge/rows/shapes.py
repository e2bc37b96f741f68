"""Shapes of records: declarations that say how a tool's records are recognized, and where their fields are.

A shape is a table in a file of the folder `shapes`. Its keys:

    title   what it is, for people
    writer  the program and its version whose files the tests read; the other shapes are from documentation
    has     the paths that a record has (`rows.record`), or lists of paths; then it has all paths of one list
    lacks   paths that it must not have
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
    label   which response a label names, for records of two responses

Every other key is a field of a row. Its value is

    "a.b | c"                             a path, or else another one
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

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

from localjudge.errors import UsageError
from localjudge.rows.messages import as_chat, event_messages
from localjudge.rows.paths import ABSENT, FIRST, Element, column, is_missing, unpacked, value_at
from localjudge.rows.record import Cells, RecordError

_SPEAKER = re.compile(r"(?:^|\s)(USER|ASSISTANT|SYSTEM|FUNCTION RESPONSE):")
_CALL = re.compile(r'<functioncall>\s*\{"name":\s*"([^"]+)"(?:,\s*"arguments":\s*(.*?))?\}', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A declaration; this module describes its attributes."""

    name: str
    title: str
    has: Sequence[Sequence[str]] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    writer: str | None = None
    lacks: Sequence[str] = ()
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
    label: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, name: str, table: Mapping[str, Any]) -> Shape:
        own = {key: table[key] for key in table if key in {each.name for each in fields(cls)}}
        own["has"] = own["has"] if isinstance(own["has"][0], list) else [own["has"]]
        return cls(name=name, fields={key: table[key] for key in table if key not in own}, **own)

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the shape."""
        return any(all(_has(record, path) for path in way) for way in self.has) and all(
            is_missing(value_at(record, path)) for path in self.lacks
        )

    def result(self, record: Mapping[str, Any], element: Element = FIRST) -> list[str | None]:
        """Return the results that the labels of a record name: a, b, tie, or None for none.

        Raises:
            RecordError: a label is none of those that the shape knows.
        """
        label = self.label or {}
        if "always" in label:
            return [label["always"]]
        if "one" in label:
            said = {result: value_at(record, path, element) for result, path in label["one"].items()}
            named = [result for result, value in said.items() if str(value).casefold() in ("1", "1.0", "true")]
            if len(named) > 1:
                raise RecordError(f"its label names {' and '.join(named)}; it must name one")
            return [*named] or [None]
        found = [value_at(record, path, element) for path in _listed(label.get("at", []))]
        values = (each for value in found for each in _listed(value) if each is not ABSENT)
        return [self._result(each, label["codes"]) for each in values]

    def _result(self, value: Any, codes: Mapping[str, str]) -> str | None:
        text = f"{value:g}" if isinstance(value, float) else str(value).strip()
        if text.casefold() in ("", "nan", "none"):
            return None
        if text not in codes:
            known = ", ".join(codes)
            raise RecordError(f"holds the label {text[:40]!r}; a label of {self.title} is one of {known}")
        return None if codes[text] == "none" else codes[text]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _has(record: Mapping[str, Any], path: str) -> bool:
    """Return whether a record has a path; a text in a text shows nothing, for an answer may be JSON."""
    found = value_at(record, path)
    is_inside = path not in record and _is_text(record.get(column(path)), record)
    return found is not ABSENT and not (is_inside and isinstance(found, str))


@lru_cache
def shapes() -> Mapping[str, Shape]:
    """Return the shapes by their names, the most particular first."""
    folder = files("localjudge") / "rows" / "shapes"
    texts = [each.read_text("utf-8") for each in sorted(folder.iterdir(), key=lambda each: each.name)]
    found = [Shape.parse(name, table) for text in texts for name, table in tomllib.loads(text).items()]
    return {shape.name: shape for shape in sorted(found, key=lambda shape: -max(map(len, shape.has)))}


COLUMNS = Shape(name="columns", title="", usual=True)
"""The shape of all other records: their columns have the usual names."""


def shape_named(name: str) -> Shape:
    """Return the shape with a name.

    Raises:
        UsageError: there is no such shape.
    """
    known = {COLUMNS.name: COLUMNS, **shapes()}
    if name not in known:
        raise UsageError(f"`shape` {name}: give one of {', '.join(known)}")
    return known[name]


@lru_cache(maxsize=1024)
def _possible(columns: tuple[str, ...]) -> tuple[Shape, ...]:
    def may_have(way: Sequence[str]) -> bool:
        return all(path in columns or column(path) in columns for path in way)

    return tuple(shape for shape in shapes().values() if any(map(may_have, shape.has)))


def recognized(record: Mapping[str, Any]) -> Shape:
    """Return the most particular shape that fits a record; `COLUMNS` if none does."""
    return next((shape for shape in _possible(tuple(record)) if shape.fits(record)), COLUMNS)


def paths_in(source: Any) -> Iterator[str]:
    """Yield the paths of a field's declaration."""
    if isinstance(source, str):
        yield from source.split(" | ")
    else:
        for each in source.values() if isinstance(source, Mapping) else source:
            yield from paths_in(each)


def value_of(source: Any, record: Mapping[str, Any], element: Element = FIRST) -> Any:
    """Return the value of a field by its declaration; `ABSENT` if the record has none."""
    return found_in(source, record, element)[0]


def found_in(source: Any, record: Mapping[str, Any], element: Element = FIRST) -> tuple[Any, str]:
    """Return the value of a field by its declaration, `ABSENT` if the record has none; and where it is.

    Args:
        source: the declaration.
        record: columns by name.
        element: the element that `[*]` stands for.

    Raises:
        RecordError: its turns do not alternate.
    """
    if isinstance(source, str):
        if source in record:
            return record[source], source
        value, there = ABSENT, source
        for path, outer in _alternatives(source):
            if outer is not None and _is_text(value_at(record, outer, element), record):
                continue
            found = value_at(record, path, element)
            if found is not ABSENT:
                value, there = found, path
            if not is_missing(found):
                break
        return value, there
    parts = [path for path in paths_in(source) if not is_missing(value_at(record, path, element))]
    there = " + ".join(dict.fromkeys(parts or paths_in(source)))
    if isinstance(source[0], Mapping):
        return [turn for part in source for turn in _turns(part, record, element)] or ABSENT, there
    first, *others = [value_of(each, record, element) for each in source]
    texts = [each for each in (first, *others) if not is_missing(each)]
    return "\n\n".join(texts) if all(isinstance(each, str) for each in (first, *texts)) else first, there


@lru_cache
def _alternatives(source: str) -> tuple[tuple[str, str | None], ...]:
    """Return the paths of a field, each with the other one whose value it goes into."""
    paths = source.split(" | ")
    return tuple((path, next((each for each in paths if path.startswith(f"{each}.")), None)) for path in paths)


def _is_text(value: Any, record: Mapping[str, Any]) -> bool:
    """Return whether a value is a text, and not a cell, which may hold an object or a list as JSON."""
    return isinstance(value, str) and not isinstance(record, Cells)


def _turns(part: Mapping[str, Any], record: Mapping[str, Any], element: Element) -> Iterator[Any]:
    """Yield the turns of a part of a conversation."""
    if len(part) > 1:
        yield from _alternating({role: value_of(source, record, element) for role, source in part.items()})
        return
    ((role, source),) = part.items()
    value = value_of(source, record, element)
    if is_missing(value) and not (value == "" and role == "assistant"):
        return
    yield from _TURNS_OF[role](value) if role in _TURNS_OF else [{"role": role, "content": value}]


def _alternating(given: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the turns in a list of each role, one after the other; none without one of the lists."""
    if any(map(is_missing, given.values())):
        return
    lists = [_listed(unpacked(each)) for each in given.values()]
    if len({*map(len, lists)}) > 1:
        raise RecordError(f"has {len(lists[1])} of the {len(lists[0])} turns of its question")
    for turns in zip(*lists, strict=True):
        for role, text in zip(given, turns, strict=True):
            yield {"role": role, "content": text.get("content") if isinstance(text, Mapping) else text}


def _of_pairs(given: Any) -> Iterator[Any]:
    """Yield the turns of a list of pairs: what the user says, and the answer."""
    pairs = [unpacked(pair) for pair in found] if isinstance(found := unpacked(given), list) else [given]
    if as_chat(pairs) is not None:
        yield from pairs
    elif not all(isinstance(pair, list) for pair in pairs):
        raise RecordError("its history is not a list of pairs or of messages")
    else:
        for pair in pairs:
            yield from _alternating({"user": pair[:1], "assistant": pair[1:]})


def _marked(text: str) -> Iterator[Any]:
    """Yield the turns of a text in which a word in capitals stands before each, as Glaive writes it."""
    parts = _SPEAKER.split(text.replace("<|endoftext|>", ""))[1:]
    for word, said in zip(parts[::2], map(str.strip, parts[1::2]), strict=True):
        if word == "FUNCTION RESPONSE":
            yield {"role": "tool", "content": said}
        elif call := _CALL.fullmatch(said):
            arguments = (call[2] or "").strip("'")
            yield {"role": "assistant", "tool_calls": [{"name": call[1], "arguments": arguments}]}
        else:
            yield {"role": word.lower(), "content": said}


_TURNS_OF: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "messages": lambda value: as_chat(value) or [{"role": "user", "content": value}],
    "events": event_messages,
    "marked": _marked,
    "pairs": _of_pairs,
}
"""The turns in a value that is more than the text of one turn."""
