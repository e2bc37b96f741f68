"""Shapes of records: declarations that say how a tool's records are recognized, and where their fields are.

A shape is a table in a file of the folder `shapes`. Its keys:

    title   what it is, for people
    has     the paths that a record has (`rows.paths`), or lists of paths; then it has all paths of one list
    lacks   paths that it must not have
    is      the value of a path, or the values that it can have
    usual   true if the fields that the shape does not name are in columns with the usual names
    joins   the column by which a record is joined with that of another file, without which it is not a row
    aside   true if a file of such records is joined with others, and holds no rows
    whole   true if a conversation of several turns is judged only by a rubric that shows it
    answered  true if a conversation that ends with a turn of the user has no response
    unanswered  true if the records have no response
    turns   the path of the number of turns that the record is of; later turns are left out
    product true if each element of one list is a row with each of another; otherwise they are side by side
    gather  columns with lists of responses; a rubric of one response judges each of them
    drop    columns that are not kept
    label   which response a label names, for records of two responses

Every other key is a field of a row. Its value is

    "a.b | c"                             a path, or else another one
    ["instruction", "input"]              texts with an empty line between them
    [{ system = "s" }, { user = "q" }]    the turns of a conversation, each with its role; `messages` adds the
                                          messages of a list, `pairs` the turns of a list of pairs, `marked`
                                          those of a text with a word in capitals before each turn,
                                          `events` those of OpenHands
    { user = "prompt", assistant = "a" }  lists of the turns of each role, which alternate
    { count = "turns" }                   the number of elements of a list
    { text = ["a.b", "a"] }               a path, or else another one; a string in JSON is its text
    { turns = "reference" }               a text for each turn: that of the turn that is judged

and of a label

    { at = "label", codes = { 0 = "a" } } the result that each value names: a, b, tie, or none
    { at = "score", above = "b" }         a number: 0 is a tie, and above 0 this response is better
    { one = { a = "first", tie = "t" } }  the result whose column is 1 or true
    { always = "a" }                      the same result for each record

A label of several annotators has a list in `at`, of paths or at its path.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from localjudge.errors import UsageError
from localjudge.rows.conversation import as_chat
from localjudge.rows.events import event_messages
from localjudge.rows.paths import ABSENT, FIRST, Places, column, unpacked, value_at
from localjudge.rows.record import RecordError

USUAL = "columns"
"""The name of the reading without a shape: columns with the usual names."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A declaration; this module describes its attributes."""

    name: str
    title: str
    has: tuple[tuple[str, ...], ...]
    lacks: tuple[str, ...]
    values: Mapping[str, Any]
    fields: Mapping[str, Any]
    usual: bool
    joins: str | None
    aside: bool
    whole: bool
    answered: bool
    unanswered: bool
    turns: str | None
    product: bool
    gather: tuple[str, ...]
    drop: tuple[str, ...]
    label: Mapping[str, Any] | None

    @classmethod
    def parse(cls, name: str, table: Mapping[str, Any]) -> Shape:
        fields = dict(table)
        has, lacks, drop = fields.pop("has"), fields.pop("lacks", []), fields.pop("drop", [])
        return cls(
            name=name,
            title=fields.pop("title"),
            has=tuple(map(tuple, has if isinstance(has[0], list) else [has])),
            lacks=tuple(lacks),
            values=fields.pop("is", {}),
            usual=fields.pop("usual", False),
            joins=fields.pop("joins", None),
            aside=fields.pop("aside", False),
            whole=fields.pop("whole", False),
            answered=fields.pop("answered", False),
            unanswered=fields.pop("unanswered", False),
            turns=fields.pop("turns", None),
            product=fields.pop("product", False),
            gather=tuple(fields.pop("gather", ())),
            drop=tuple(drop),
            label=fields.pop("label", None),
            fields=fields,
        )

    @property
    def weight(self) -> int:
        """How much a record must have for the shape; the most particular shape that fits is taken."""
        return max(map(len, self.has)) + len(self.values)

    def may_fit(self, columns: Iterable[str]) -> bool:
        """Return whether a record with these columns can have the shape."""
        there = {*columns}
        return any(all(path in there or column(path) in there for path in way) for way in self.has)

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the shape."""
        if not any(all(value_at(record, path) is not ABSENT for path in way) for way in self.has):
            return False
        if any(value_at(record, path) not in (ABSENT, None) for path in self.lacks):
            return False
        known = ((value_at(record, path), given) for path, given in self.values.items())
        return all(value in given if isinstance(given, list) else value == given for value, given in known)

    def result(self, record: Mapping[str, Any], element: Places = FIRST) -> list[str | None]:
        """Return the results that the labels of a record name: a, b, tie, or None for none.

        Raises:
            RecordError: a label is none of those that the shape knows.
        """
        if self.label is None:
            return []
        if "one" in self.label:
            said = {result: value_at(record, path, element) for result, path in self.label["one"].items()}
            named = [result for result, value in said.items() if str(value).casefold() in ("1", "1.0", "true")]
            if len(named) > 1:
                raise RecordError(f"its label names {' and '.join(named)}; it must name one")
            return [*named[:1]] or [None]
        if "always" in self.label:
            return [self.label["always"]]
        paths = self.label["at"]
        if isinstance(paths, list):
            found: Any = [value for path in paths if (value := value_at(record, path, element)) is not ABSENT]
        else:
            found = value_at(record, paths, element)
        return [self._result(each) for each in (found if isinstance(found, list) else [found])]

    def _result(self, value: Any) -> str | None:
        assert self.label is not None
        text = f"{value:g}" if isinstance(value, float) else str(value).strip()
        if value in (ABSENT, None) or text.casefold() in ("", "nan", "none"):
            return None
        codes: Mapping[str, str] = self.label.get("codes", {})
        if text in codes:
            return None if codes[text] == "none" else codes[text]
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if "above" not in self.label or number != number:
            known = ", ".join(codes) or "numbers"
            raise RecordError(f"holds the label {text[:40]!r}; a label of {self.title} is one of {known}")
        above = self.label["above"]
        return "tie" if number == 0 else above if number > 0 else "ab".replace(above, "")


@lru_cache
def shapes() -> Mapping[str, Shape]:
    """Return the shapes by their names, the most particular first."""
    folder = files("localjudge") / "rows" / "shapes"
    names = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name
    )
    tables = [pair for each in names for pair in tomllib.loads(each.read_text("utf-8")).items()]
    found = [Shape.parse(name, table) for name, table in tables]
    return {shape.name: shape for shape in sorted(found, key=lambda shape: -shape.weight)}


def shape_named(name: str) -> Shape | None:
    """Return the shape with a name; None for the reading by the usual names.

    Raises:
        UsageError: there is no such shape.
    """
    if name not in (USUAL, *shapes()):
        raise UsageError(
            f"`shape` {name}: give {USUAL}, for the usual names of columns, or {', '.join(shapes())}"
        )
    return shapes().get(name)


@lru_cache(maxsize=1024)
def _possible(columns: tuple[str, ...]) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes().values() if shape.may_fit(columns))


def recognized(record: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a record; None if no shape fits."""
    return next((shape for shape in _possible(tuple(record)) if shape.fits(record)), None)


def paths_in(source: Any) -> Iterator[str]:
    """Yield the paths of a field's declaration."""
    if isinstance(source, str):
        yield from source.split(" | ")
    else:
        for each in source.values() if isinstance(source, Mapping) else source:
            yield from paths_in(each)


def value_of(source: Any, record: Mapping[str, Any], element: Places = FIRST) -> Any:
    """Return the value of a field by its declaration; `ABSENT` if the record has none.

    Args:
        source: the declaration.
        record: columns by name.
        element: the place of the element that `[*]` stands for.

    Raises:
        RecordError: its turns do not alternate.
    """
    if isinstance(source, str):
        value = ABSENT
        for path in source.split(" | "):
            found = value_at(record, path, element)
            value = found if value is ABSENT or found is not ABSENT else value
            if found not in (ABSENT, None, ""):
                return found
        return value
    if isinstance(source, Mapping) and "count" in source:
        counted = unpacked(value_of(source["count"], record, element))
        return len(counted) if isinstance(counted, list) else ABSENT
    if isinstance(source, Mapping) and "text" in source:
        found = value_of(" | ".join(source["text"]), record, element)
        if isinstance(found, str) and found[:1] == '"':
            with suppress(ValueError):
                return json.loads(found)
        return found
    if isinstance(source, Mapping) and "turns" in source:
        return unpacked(value_of(source["turns"], record, element))
    if isinstance(source, Mapping):
        return _alternating(source, record, element)
    if isinstance(source[0], Mapping):
        turns = [turn for part in source for turn in _turns(part, record, element)]
        return turns or ABSENT
    texts = [value_of(each, record, element) for each in source]
    if not isinstance(texts[0], str) or not all(
        isinstance(each, str) for each in texts if each not in (ABSENT, None)
    ):
        return texts[0]
    return "\n\n".join(each for each in texts if each not in (ABSENT, None, ""))


def _turns(part: Mapping[str, Any], record: Mapping[str, Any], element: Places) -> Iterator[Any]:
    if len(part) > 1:
        yield from _alternating(part, record, element) or ()
        return
    ((role, source),) = part.items()
    value = value_of(source, record, element)
    if value is ABSENT or value is None or (value == "" and role != "assistant"):
        return
    if role == "messages":
        chat = as_chat(value)
        yield from [{"role": "user", "content": value}] if chat is None else chat
    elif role == "events":
        yield from event_messages(value)
    elif role == "marked":
        yield from _marked(value)
    elif role == "pairs":
        for user, assistant in value:
            yield {"role": "user", "content": user}
            yield {"role": "assistant", "content": assistant}
    else:
        yield {"role": role, "content": value}


def _marked(text: str) -> Iterator[Any]:
    """Yield the turns of a text in which a word in capitals stands before each, as Glaive writes it."""
    for word, said, _ in _TURN.findall(text.replace("<|endoftext|>", "")):
        said = said.strip()
        call = said.removeprefix("<functioncall>").strip() if said.startswith("<functioncall>") else ""
        found = _CALL.fullmatch(call)
        if word == "FUNCTION RESPONSE":
            yield {"role": "tool", "content": said}
        elif found:
            yield {"role": "assistant", "tool_calls": [{"name": found[1], "arguments": found[2].strip("'")}]}
        else:
            yield {"role": word.lower(), "content": said}


_SPEAKER = "(USER|ASSISTANT|SYSTEM|FUNCTION RESPONSE):"
_TURN = re.compile(rf"{_SPEAKER}(.*?)(?=\s{_SPEAKER}|\Z)", re.DOTALL)
_CALL = re.compile(r'\{"name":\s*"([^"]+)"(?:,\s*"arguments":\s*(.*?))?\}', re.DOTALL)


def _alternating(source: Mapping[str, Any], record: Mapping[str, Any], element: Places) -> Any:
    """Return the turns of lists of each role, one after the other; `ABSENT` without one of the lists."""
    lists = [unpacked(value_of(each, record, element)) for each in source.values()]
    if any(given is ABSENT or given is None for given in lists):
        return ABSENT
    lists = [[each.get("content") if isinstance(each, Mapping) else each for each in given] for given in lists]
    if len({*map(len, lists)}) > 1:
        raise RecordError(f"has {len(lists[1])} of the {len(lists[0])} turns of its question")
    return [
        {"role": role, "content": text}
        for turns in zip(*lists, strict=True)
        for role, text in zip(source, turns, strict=True)
    ]
