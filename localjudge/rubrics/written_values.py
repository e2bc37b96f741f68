"""Answers as text, for a server that enforces their form itself: schema, pattern, length, places of values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from localjudge.rubrics.answer import AnswerField, AnswerLayout, FreeText, JsonLayout, ValueField

CHARACTERS_PER_TOKEN = 4
"""Characters that a text of an answer may have for each token of its limit, as English has."""
_STRING = r'(?:[^"\\]|\\.)+'


def bounded_schema(layout: AnswerLayout, characters: int) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer whose texts are bounded; None if it is not JSON.

    Args:
        layout: the answer.
        characters: the most characters of each of its texts.
    """
    return None if layout.schema is None else _bounded(layout.schema, characters)


def longest_answer(layout: AnswerLayout, characters: int) -> int:
    """Return how many characters, and tokens of usual text, suffice for an answer with its white space.

    Args:
        layout: the answer.
        characters: the most characters of each of its texts.
    """
    literal = sum(len(part) for part in layout.parts if isinstance(part, str))
    values = sum(max(map(len, field.values)) for field in layout.values)
    return 2 * literal + values + characters * len(layout.texts) + 16


def answer_pattern(layout: AnswerLayout, characters: int | None = None) -> str:
    """Return a regular expression of the answers of a layout, with any white space between the parts of JSON.

    Each field is a group, in the order of `AnswerLayout.fields`.

    Args:
        layout: the answer.
        characters: the most characters of each text of a form; None for any number.
    """
    if not isinstance(layout, JsonLayout):
        text = "(.+?)" if characters is None else f"(.{{1,{characters}}})"
        return "".join(_literal(part) if isinstance(part, str) else _field(part, text) for part in layout.parts)
    first, *others = layout.parts
    rest = (_json_text(part, inside=True) if isinstance(part, str) else _json_field(part) for part in others)
    return _json_text(str(first), inside=False) + "".join(rest)


def value_places(layout: AnswerLayout, text: str) -> dict[str, tuple[int, int]]:
    """Return where each value stands in the text of an answer: its start and its end, in characters.

    Returns:
        the places by the names of the fields; none if the keys of a JSON answer stand in another order.
    """
    found = re.fullmatch(answer_pattern(layout), text, re.DOTALL)
    if found is None:
        return {}
    return {
        field.name: found.span(number)
        for number, field in enumerate(layout.fields, 1)
        if isinstance(field, ValueField)
    }


def _literal(text: str) -> str:
    """Return the pattern of a text; servers know no escaped space."""
    return re.escape(text).replace("\\ ", " ").replace("\\\n", "\\n").replace("\\\t", "\\t")


def _field(field: AnswerField, text: str) -> str:
    values = text if isinstance(field, FreeText) else f"({_alternatives(map(_literal, field.values))})"
    return _literal(field.lead) + values


def _json_field(field: AnswerField) -> str:
    if isinstance(field, FreeText):
        return f"({_STRING})"
    written = (json.dumps(value, ensure_ascii=False)[1:-1] for value in field.values)
    return f"({_alternatives(map(re.escape, written))})"


def _alternatives(patterns: Iterator[str]) -> str:
    """Return alternatives; the longest come first, because one may begin as another one."""
    return "|".join(sorted(patterns, key=len, reverse=True))


def _json_text(text: str, *, inside: bool) -> str:
    """Return the pattern of literal text of a JSON object; `inside` says whether it begins in a string."""
    pattern = ""
    for character in text:
        if inside:
            pattern += re.escape(character)
        else:
            pattern += rf"\s*{re.escape(character)}" + r"\s*" * (character != '"')
        inside ^= character == '"'
    return pattern


def _bounded(schema: Mapping[str, Any], characters: int) -> dict[str, Any]:
    if schema.get("type") == "string":
        return {**schema, "maxLength": characters}
    properties = schema.get("properties", {})
    if not properties:
        return dict(schema)
    return {**schema, "properties": {key: _bounded(each, characters) for key, each in properties.items()}}
