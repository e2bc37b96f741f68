"""A judge's answer: fields in a fixed order, each with its values, and literal text between them.

The text of an answer for the prompt, its token table and its reader follow from one layout of fields: a JSON
object (`JsonLayout`) or another form (`localjudge.rubrics.answer_keys`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from localjudge.secret_texts import without_secrets


def shown(value: Value) -> str:
    """Return a value as text for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def check_characters(text: str, name: str) -> None:
    """Check that a text can be written as UTF-8.

    Raises:
        ValueError: it has half of a surrogate pair, which is not a character.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has half of a surrogate pair (U+{ord(text[error.start]):04X}), which is not a character"
        ) from None


@dataclass(frozen=True, slots=True)
class FreeText:
    """A field: a text of one character or more.

    Attributes:
        name: its name in a judgement.
        raw: whether it is written as it is, up to the literal text after it, which it cannot contain; otherwise
            it is the content of a JSON string.
        lead: literal text before it that a token may hold together with the text's beginning.
    """

    name: str
    raw: bool = False
    lead: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the field, where it is a JSON string."""
        return {"type": "string", "minLength": 1}

    def read(self, value: Any) -> str:
        """Return the value of an answer.

        Raises:
            ValueError: it is not one of this field's.
        """
        if not isinstance(value, str) or not value:
            raise ValueError(f"{self.name} is not a text with characters")
        check_characters(value, self.name)
        return value


Value = bool | int | str
"""The value of an aspect in a judgement: a boolean, a number of a scale, or a label."""


@dataclass(frozen=True, slots=True)
class ValueField:
    """A field: one of a few values.

    Attributes:
        name: its name in a judgement.
        values: the value in a judgement for each text that the judge can write, in their order.
        lead: literal text before it that a token may hold together with the value.
    """

    name: str
    values: Mapping[str, Value]
    lead: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the field. Numbers are listed as strings: decoding would lose a numeric range."""
        return {"enum": list(self.values)}

    def read(self, value: Any) -> Value:
        """Return the value of an answer.

        Raises:
            ValueError: it is not one of this field's.
        """
        if not isinstance(value, str) or value not in self.values:
            raise ValueError(f"{self.name} is not one of its values")
        return self.values[value]


AnswerField = FreeText | ValueField


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of an answer, by the names of their fields and in the answer's order."""

    texts: dict[str, str]
    scores: dict[str, Value]

    @classmethod
    def from_written(cls, written: Iterable[tuple[AnswerField, Any]]) -> Self:
        """Return the values of an answer from what is written in each field.

        Raises:
            ValueError: what is written is not a value of its field.
        """
        answer = cls({}, {})
        for field, value in written:
            if isinstance(field, FreeText):
                answer.texts[field.name] = field.read(value)
            else:
                answer.scores[field.name] = field.read(value)
        return answer


class AnswerLayout(ABC):
    """The fields of an answer, and the literal text between them."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> list[str | AnswerField]:
        """The answer as the judge writes it: literal text and fields in turn, literal text first and last.

        If the last literal text is empty, the token that ends an answer ends its last field.
        """

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
    def opening(self) -> str:
        """The text before the first field, which is the same in every answer."""
        return str(self.parts[0])

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of an answer; None if it is not JSON."""

    @abstractmethod
    def write(self, values: Mapping[str, str]) -> str:
        """Return an answer with these values, by the names of their fields, as the judge writes them."""

    @abstractmethod
    def parse(self, text: str) -> Answer:
        """Return the values in the text of an answer.

        Raises:
            ValueError: it is not an answer of this layout, with the reason.
            RecursionError: it is nested too deeply to be read.
        """


ObjectLayout = Mapping[str, "AnswerField | ObjectLayout"]
"""A JSON object by its keys: fields, and objects of fields."""


@dataclass(frozen=True, slots=True)
class JsonLayout(AnswerLayout):
    """The fields of an answer in the JSON object that holds them, which has no white space."""

    keys: ObjectLayout

    @property
    def parts(self) -> list[str | AnswerField]:
        parts: list[str | AnswerField] = [""]
        for part in _written(self.keys):
            if isinstance(part, str) and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
        return parts

    @property
    def schema(self) -> dict[str, Any]:
        return _schema(self.keys)

    def write(self, values: Mapping[str, str]) -> str:
        written = ""
        for part in self.parts:
            if isinstance(part, str):
                written += part
            else:
                quoted = json.dumps(values[part.name], ensure_ascii=False)
                written += quoted[1:-1]
        return written

    def parse(self, text: str) -> Answer:
        document = json.loads(text, object_pairs_hook=without_duplicates)
        return Answer.from_written(_values(self.keys, document))


def _written(keys: ObjectLayout) -> Iterator[str | AnswerField]:
    """Yield the parts of an object: its text and its fields, each between quotes."""
    before_key = "{"
    for key, content in keys.items():
        yield f'{before_key}"{key}":'
        if isinstance(content, Mapping):
            yield from _written(content)
        else:
            yield '"'
            yield content
            yield '"'
        before_key = ","
    yield "}"


def _schema(keys: ObjectLayout) -> dict[str, Any]:
    """Return the JSON Schema of an object."""
    properties: dict[str, Any] = {}
    for key, content in keys.items():
        if isinstance(content, Mapping):
            properties[key] = _schema(content)
        else:
            properties[key] = content.schema
    return {
        "type": "object",
        "properties": properties,
        "required": list(keys),
        "additionalProperties": False,
    }


class RepeatedKeyError(ValueError):
    """A JSON object has a key twice, so its value is not known."""


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        RepeatedKeyError: it has a key twice.
    """
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        shown = without_secrets(repeated)[:40]
        raise RepeatedKeyError(f"has the key {shown!r} twice")
    return document


def _values(keys: ObjectLayout, document: Any) -> Iterator[tuple[AnswerField, Any]]:
    """Yield each field of an object with the value that the document has for it.

    Raises:
        ValueError: the document has other keys.
    """
    if not isinstance(document, dict) or document.keys() != keys.keys():
        names = ", ".join(repr(key) for key in keys)
        raise ValueError(f"not an object of {names}")
    for key, content in keys.items():
        if isinstance(content, Mapping):
            yield from _values(content, document[key])
        else:
            yield content, document[key]
