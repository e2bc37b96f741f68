"""An answer as a JSON object, and its white space."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from localjudge.rubrics.answer import Answer, AnswerField, AnswerLayout, AnswerSpelling

_FENCE = "```json\n"

ObjectLayout = Mapping[str, "AnswerField | ObjectLayout"]
"""A JSON object by its keys: fields, and objects of fields."""


@dataclass(frozen=True, slots=True)
class JsonLayout(AnswerLayout):
    """The fields of an answer in the JSON object that holds them, and how the object is spelled."""

    keys: ObjectLayout
    spelling: AnswerSpelling = "compact"

    @property
    def parts(self) -> list[str | AnswerField]:
        parts: list[str | AnswerField] = [_FENCE if self.spelling == "indented" else ""]
        for part in _written(self.keys, self.spelling, 1):
            if isinstance(part, str) and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
        return parts

    @property
    def schema(self) -> dict[str, Any]:
        return _schema(self.keys)

    def spelled(self, spelling: AnswerSpelling) -> Self:
        return replace(self, spelling=spelling)

    def write(self, values: Mapping[str, str]) -> str:
        return "".join(
            part if isinstance(part, str) else json.dumps(values[part.name], ensure_ascii=False)[1:-1]
            for part in self.parts
        )

    def parse(self, text: str) -> Answer:
        return self.read(json.loads(text.removeprefix(_FENCE), object_pairs_hook=without_duplicates))

    def read(self, document: Any) -> Answer:
        """Return the values in a parsed answer.

        Raises:
            ValueError: it is not an answer of this layout, with the reason.
        """
        return Answer.from_written(_values(self.keys, document))


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


class RepeatedKeyError(ValueError):
    """A JSON object has a key twice, so its value is not known."""


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        RepeatedKeyError: it has a key twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise RepeatedKeyError(f"has the key {repeated[:40]!r} twice")
    return found


def _values(keys: ObjectLayout, document: Any) -> Iterator[tuple[AnswerField, Any]]:
    if not isinstance(document, dict) or document.keys() != keys.keys():
        raise ValueError(f"not an object of {', '.join(map(repr, keys))}")
    for key, each in keys.items():
        if isinstance(each, Mapping):
            yield from _values(each, document[key])
        else:
            yield each, document[key]
