"""A judge's answer: fields in a fixed order, each with its values, and literal text between them.

The schema of an answer, its text for the prompt and the token table, and its reader follow from one layout of
fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

AnswerSpelling = Literal["compact", "spaced", "indented"]
"""The white space of an answer: none; single spaces after colons and commas; or, inside a Markdown fence, a
line for each key, indented by two spaces a level."""

_FENCE = "```json\n"


def shown(value: Value) -> str:
    """Return a value as text for people."""
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


@dataclass(frozen=True, slots=True)
class FreeText:
    """A field: a text of one character or more. `name` is its name in a judgement."""

    name: str

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}

    def read(self, value: Any) -> str:
        """Return the value of an answer.

        Raises:
            ValueError: it is none of this field.
        """
        if not isinstance(value, str) or not value:
            raise ValueError(f"{self.name} is not a text with characters")
        return value


Value = bool | int | str
"""The value of an aspect in a judgement: a boolean, a number of a scale, or a label."""


@dataclass(frozen=True, slots=True)
class ValueField:
    """A field: one of a few values.

    Attributes:
        name: its name in a judgement.
        values: the value in a judgement for each text that the judge can write, in their order.
    """

    name: str
    values: Mapping[str, Value]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the field. Numbers are listed as strings: decoding would lose a numeric range."""
        return {"enum": list(self.values)}

    def read(self, value: Any) -> Value:
        """Return the value of an answer.

        Raises:
            ValueError: it is none of this field.
        """
        if not isinstance(value, str) or value not in self.values:
            raise ValueError(f"{self.name} is not one of its values")
        return self.values[value]


AnswerField = FreeText | ValueField

ObjectLayout = Mapping[str, "AnswerField | ObjectLayout"]
"""A JSON object by its keys: fields, and objects of fields."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of an answer, by the names of their fields and in the answer's order."""

    texts: dict[str, str]
    scores: dict[str, Value]


@dataclass(frozen=True, slots=True)
class AnswerLayout:
    """The fields of an answer in the JSON object that holds them, and how the object is spelled."""

    keys: ObjectLayout
    spelling: AnswerSpelling = "compact"

    @property
    def fields(self) -> list[AnswerField]:
        return [part for part in self.parts if not isinstance(part, str)]

    @property
    def texts(self) -> list[FreeText]:
        return [field for field in self.fields if isinstance(field, FreeText)]

    @property
    def values(self) -> list[ValueField]:
        return [field for field in self.fields if isinstance(field, ValueField)]

    @property
    def parts(self) -> list[str | AnswerField]:
        """The answer as the judge writes it: literal text and fields in turn, literal text first and last."""
        parts: list[str | AnswerField] = [_FENCE if self.spelling == "indented" else ""]
        for part in _written(self.keys, self.spelling, 1):
            if isinstance(part, str) and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
        return parts

    @property
    def opening(self) -> str:
        """The text before the first field, which is the same in every answer."""
        return str(self.parts[0])

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of an answer."""
        return _schema(self.keys)

    def write(self, values: Mapping[str, str]) -> str:
        """Return an answer with these values, by the names of their fields, as the judge writes them."""
        return "".join(
            part if isinstance(part, str) else json.dumps(values[part.name], ensure_ascii=False)[1:-1]
            for part in self.parts
        )

    def parse(self, text: str) -> Answer:
        """Return the values in the text of an answer, of this or another spelling.

        Raises:
            ValueError: it is no answer of this layout, with the reason.
            RecursionError: it is nested too deeply to be read.
        """
        return self.read(json.loads(text.removeprefix(_FENCE)))

    def read(self, document: Any) -> Answer:
        """Return the values in a parsed answer.

        Raises:
            ValueError: it is no answer of this layout, with the reason.
        """
        answer = Answer({}, {})
        for field, value in _values(self.keys, document):
            if isinstance(field, FreeText):
                answer.texts[field.name] = field.read(value)
            else:
                answer.scores[field.name] = field.read(value)
        return answer


def _written(keys: ObjectLayout, spelling: AnswerSpelling, level: int) -> Iterator[str | AnswerField]:
    colon, comma, begin, end = {
        "compact": (":", ",", "", ""),
        "spaced": (": ", ", ", "", ""),
        "indented": (": ", ",\n" + "  " * level, "\n" + "  " * level, "\n" + "  " * (level - 1)),
    }[spelling]
    for number, (key, each) in enumerate(keys.items()):
        yield f'{comma if number else "{" + begin}"{key}"{colon}'
        yield from _written(each, spelling, level + 1) if isinstance(each, Mapping) else ('"', each, '"')
    yield end + "}"


def _schema(keys: ObjectLayout) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            key: _schema(each) if isinstance(each, Mapping) else each.schema for key, each in keys.items()
        },
        "required": list(keys),
        "additionalProperties": False,
    }


def _values(keys: ObjectLayout, document: Any) -> Iterator[tuple[AnswerField, Any]]:
    if not isinstance(document, dict) or document.keys() != keys.keys():
        raise ValueError(f"not an object of {', '.join(map(repr, keys))}")
    for key, each in keys.items():
        if isinstance(each, Mapping):
            yield from _values(each, document[key])
        else:
            yield each, document[key]
