"""A rubric whose prompt gives its aspects, or the values of its aspects, in another order.

Only text that the rubric writes by itself, for `{$aspects}` and `{$answer_format}`, has another order. A rubric
whose template writes a list of its own is refused: the prompt would give two orders, and change only one.

The order of values is a matter of text alone: an aspect keeps its values, what they mean and their numbers, and
an answer has the same token table. The order of aspects is also that of the answer's fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localjudge.errors import UsageError
from localjudge.rubrics.aspect import (
    ANSWER_FORMAT,
    ASPECTS,
    Aspect,
    ValueOrders,
    values_in_words,
)
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.template import PLACEHOLDER

_BEFORE_A_VALUE = "[ \t>*•`'\"([{-]*"
"""What can stand before a value that begins a line: an indent, a bullet, a quotation mark."""
_NAMED_BY_A_LETTER = (
    "answer",
    "assistant",
    "candidate",
    "completion",
    "conversation",
    "model",
    "output",
    "reply",
    "response",
    "solution",
    "summary",
    "text",
    "translation",
)
"""Things that a prompt tells apart by a letter: "Response A" is a name, and A is no value there."""


def with_values_in(rubric: Rubric, orders: ValueOrders, name: str) -> Rubric:
    """Return a rubric with another order of the values in its prompt.

    Args:
        rubric: the rubric.
        orders: the order of the values of some aspects.
        name: the name of the new rubric.

    Raises:
        UsageError: its template has no placeholder for them, or lists the values of such an aspect itself.
    """
    what = f"`check` options: the template of the rubric {rubric.name}"
    instead = "; use {$aspects} and {$answer_format} instead, or a rubric that does, such as safety"
    placeholders = set(PLACEHOLDER.findall(rubric.prompt.text))
    if not placeholders & {ASPECTS, ANSWER_FORMAT}:
        raise UsageError(f"{what} writes its own list of values, whose order cannot be changed{instead}")
    words = _own_words(rubric)
    for aspect_name in orders:
        aspect = rubric.aspects[aspect_name]
        if _lists_values(words, aspect):
            values = values_in_words(aspect, list(aspect.values))
            raise UsageError(
                f"{what} writes its own list of the values of {aspect_name} ({values}), whose order cannot be "
                f"changed{instead}"
            )
    document = rubric.model_dump()
    document["name"] = name
    document["prompt"]["template"] = rubric.filled(rubric.prompt.template, orders)
    document["prompt"]["system"] = rubric.filled(rubric.prompt.system, orders)
    return Rubric.model_validate(document)


def with_aspects_in(rubric: Rubric, order: Sequence[str], name: str) -> Rubric:
    """Return a rubric with another order of the aspects, in its prompt and in the answer.

    Args:
        rubric: the rubric.
        order: the names of all its aspects.
        name: the name of the new rubric.

    Raises:
        UsageError: its template or the form of its answer names the aspects itself.
    """
    what = f"`check` aspects: the rubric {rubric.name}"
    instead = "; use {$aspects} and {$answer_format} instead, or a rubric that does, such as six-aspects"
    if rubric.answer.form is not None:
        raise UsageError(
            f"{what} has a form of its answer (answer.form), which says the order of its aspects; use an "
            "answer in JSON"
        )
    if ANSWER_FORMAT not in PLACEHOLDER.findall(rubric.prompt.text):
        raise UsageError(f"{what} writes the form of the answer in words of its own{instead}")
    if _names_aspects(_own_words(rubric), rubric):
        raise UsageError(f"{what} writes its own list of aspects, whose order cannot be changed{instead}")
    document = rubric.model_dump()
    document["name"] = name
    by_name = {table["name"]: table for table in document["aspects"]}
    document["aspects"] = [by_name[aspect] for aspect in order]
    return Rubric.model_validate(document)


def _own_words(rubric: Rubric) -> str:
    """Return the prompt without what the rubric writes by itself and without the fields of a row."""
    return PLACEHOLDER.sub("", rubric.prompt.text)


def _names_aspects(words: str, rubric: Rubric) -> bool:
    """Return whether the words name every aspect, or its key in the answer."""
    keys = rubric.answer.keys_of(rubric.aspects)
    text = words.casefold().replace("_", " ")
    return all(_has_word(text, name) or _has_word(text, keys[name]) for name in rubric.aspects)


def _has_word(text: str, name: str) -> bool:
    """Return whether a folded text has a name as a whole word."""
    word = name.casefold().replace("_", " ")
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _lists_values(words: str, aspect: Aspect) -> bool:
    """Return whether the words list the values of an aspect.

    They list a scale if a line begins with each end of it, or if they say "1 to 5"; other values if they have
    each of them, as the judge writes it, and not only in names such as "Response A".
    """
    texts = list(aspect.values)
    if aspect.scale is None:
        names = rf"\b(?i:{'|'.join(_NAMED_BY_A_LETTER)})s?\s+(?:{'|'.join(map(re.escape, texts))})(?!\w)"
        outside_names = re.sub(names, "", words)
        return all(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", outside_names) for text in texts)
    lowest, highest = re.escape(texts[0]), re.escape(texts[-1])
    if _begins_a_line(words, lowest) and _begins_a_line(words, highest):
        return True
    between = r"\s*(?:to|and|through|or|\.\.\.?|\u2026|-|\u2013|\u2014)\s*"
    ranges = rf"(?<![\w.])(?:{lowest}{between}{highest}|{highest}{between}{lowest})(?![\w]|\.\d)"
    return re.search(ranges, words) is not None


def _begins_a_line(words: str, value: str) -> bool:
    return re.search(rf"^{_BEFORE_A_VALUE}{value}(?!\w|\.\d)", words, re.MULTILINE) is not None
