"""Answers as text, for a server that enforces their form itself: schema, pattern, length, places of values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
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
    if layout.schema is None:
        return None
    return _bounded(layout.schema, characters)


def longest_answer(layout: AnswerLayout, characters: int) -> int:
    """Return how many characters, and tokens of usual text, suffice for an answer with its white space.

    Args:
        layout: the answer.
        characters: the most characters of each of its texts.
    """
    literal = sum(len(part) for part in layout.parts if isinstance(part, str))
    values = 0
    for field in layout.values:
        values += max(len(value) for value in field.values)
    return 2 * literal + values + characters * len(layout.texts) + 16


def answer_pattern(layout: AnswerLayout, characters: int | None = None) -> str:
    """Return a regular expression of the answers of a layout, with any white space between the parts of JSON.

    Each field is a group, in the order of `AnswerLayout.fields`.

    Args:
        layout: the answer.
        characters: the most characters of each text of a form; None for any number.
    """
    if isinstance(layout, JsonLayout):
        return _json_pattern(layout)
    text = "(.+?)" if characters is None else f"(.{{1,{characters}}})"
    pattern = ""
    for part in layout.parts:
        pattern += _literal(part) if isinstance(part, str) else _field(part, text)
    return pattern


def _json_pattern(layout: JsonLayout) -> str:
    """Return the regular expression of an answer in JSON. Each part after the first begins inside a string."""
    first, *others = layout.parts
    pattern = _json_text(str(first), inside=False)
    for part in others:
        pattern += _json_text(part, inside=True) if isinstance(part, str) else _json_field(part)
    return pattern


def value_places(layout: AnswerLayout, text: str) -> dict[str, tuple[int, int]]:
    """Return where each value stands in the text of an answer: its start and its end, in characters.

    Returns:
        the places by the names of the fields; none if the keys of a JSON answer stand in another order.
    """
    answer = re.fullmatch(answer_pattern(layout), text, re.DOTALL)
    if answer is None:
        return {}
    spans: dict[str, tuple[int, int]] = {}
    for group, field in enumerate(layout.fields, 1):
        if isinstance(field, ValueField):
            spans[field.name] = answer.span(group)
    return spans


def _literal(text: str) -> str:
    """Return the pattern of a text; servers know no escaped space."""
    return re.escape(text).replace("\\ ", " ").replace("\\\n", "\\n").replace("\\\t", "\\t")


def _field(field: AnswerField, text: str) -> str:
    """Return the pattern of a field of a form; `text` is that of a free text."""
    if isinstance(field, FreeText):
        return _literal(field.lead) + text
    values = _alternatives([_literal(value) for value in field.values])
    return f"{_literal(field.lead)}({values})"


def _json_field(field: AnswerField) -> str:
    if isinstance(field, FreeText):
        return f"({_STRING})"
    quoted = [json.dumps(value, ensure_ascii=False) for value in field.values]
    values = _alternatives([re.escape(value[1:-1]) for value in quoted])
    return f"({values})"


def _alternatives(patterns: Iterable[str]) -> str:
    """Return alternatives; the longest come first, because one may begin as another one."""
    return "|".join(sorted(patterns, key=len, reverse=True))


def _json_text(text: str, *, inside: bool) -> str:
    """Return the pattern of literal text of a JSON object; `inside` says whether it begins in a string."""
    pattern = ""
    for character in text:
        is_quote = character == '"'
        if inside:
            pattern += re.escape(character)
        elif is_quote:
            pattern += rf"\s*{re.escape(character)}"
        else:
            pattern += rf"\s*{re.escape(character)}\s*"
        if is_quote:
            inside = not inside
    return pattern


def _bounded(schema: Mapping[str, Any], characters: int) -> dict[str, Any]:
    """Return a schema with a limit on the length of each of its texts."""
    bounded = dict(schema)
    if schema.get("type") == "string":
        bounded["maxLength"] = characters
    if "properties" in schema:
        properties = schema["properties"]
        bounded["properties"] = {key: _bounded(value, characters) for key, value in properties.items()}
    return bounded
