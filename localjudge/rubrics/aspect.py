"""An aspect of a rubric: its values, what they mean, and the text of a template about them.

[aspects.depth]
description = "How detailed the response is."
scale = { lowest = 0, highest = 10 }            # whole numbers
levels = { 0 = "no detail", 10 = "every detail" }

[aspects.grade]
choices = { A = "correct", B = "incorrect", C = "not attempted" }
ordered = false                                 # or true: from the worst to the best
best = "correct"                                # without an order: the best label, for audits

[aspects.polite]
boolean = true                                  # the judge writes yes or no

[aspects.better]                                # of two responses, A is the one that the judge reads first
preference = { A = "A", C = "tie", B = "B" }    # from A is better to B is better

A template with `{$aspects}` and `{$answer_format}` cannot disagree with the answer that the judge must give.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from localjudge.rubrics.answer import AnswerLayout, Value, shown

# Text that a JSON string can hold without an escape.
PLAIN_TEXT = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f]+')

_KINDS = {"scale", "choices", "preference", "boolean"}
_LONGEST_CODE = 40
"""The most characters of a label, and of the text that the judge writes for it."""
_MOST_VALUES = 1001
"""The most values of a scale."""
_LARGEST = 10_000
"""The largest absolute number of a scale."""


class RubricPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Scale(RubricPart):
    """Whole numbers from `lowest` to `highest`, both included."""

    lowest: int
    highest: int

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.lowest < self.highest:
            raise ValueError(
                f"{self.lowest} to {self.highest} has fewer than two values; highest must be above lowest"
            )
        if max(-self.lowest, self.highest) > _LARGEST or self.highest - self.lowest >= _MOST_VALUES:
            raise ValueError(f"use at most {_MOST_VALUES} whole numbers, none beyond {_LARGEST}")
        return self

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


class Aspect(RubricPart):
    """One of several kinds of values, with their meaning.

    Attributes:
        description: what the aspect is, for the prompt.
        scale: whole numbers.
        choices: labels by the text that the judge writes for each, in their order.
        preference: labels by the text that the judge writes for each, from "A is better" to "B is better"; A is
            the response that the judge reads first. Labels at the same distance from both ends are each other's
            mirror image; with an odd number of labels, the middle one is a tie.
        boolean: whether the values are no and yes; a judgement has False and True.
        ordered: whether choices are ordered, from the worst to the best.
        best: the best label of choices without an order; None if none is best. An audit expects that a worse
            response does not get it more often.
        levels: what a value means, for the prompt, by the text that the judge writes.
        weight: the weight of the aspect in the mean of all aspects.
    """

    description: str = ""
    scale: Scale | None = None
    choices: dict[str, str] | None = None
    preference: dict[str, str] | None = None
    boolean: bool = False
    ordered: bool = False
    best: str | None = None
    levels: dict[str, str] = Field(default_factory=dict)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, strict=False)

    @field_validator("choices", "preference", mode="before")
    @classmethod
    def _name_codes(cls, labels: Any) -> Any:
        """A list of labels: the judge writes the labels."""
        if isinstance(labels, list):
            return {label: label for label in labels}
        return labels

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = [self.scale is not None, self.choices is not None, self.preference is not None, self.boolean]
        if kinds.count(True) != 1:
            raise ValueError("give one of scale, choices, preference and boolean")
        if self.ordered and self.choices is None:
            raise ValueError("ordered: belongs to choices; other aspects are always ordered")
        if self.best is not None and not self._is_unordered_label(self.best):
            raise ValueError(f"best: {self.best!r} is not a label of choices without an order")
        if self.choices is not None:
            _check_labels("choices", self.choices)
        if self.preference is not None:
            _check_labels("preference", self.preference)
        for text in self.levels:
            if text not in self.values:
                values = ", ".join(list(self.values)[:12])
                raise ValueError(f"levels: {text!r} is not one of the values {values}")
        return self

    def _is_unordered_label(self, label: str) -> bool:
        """Return whether this is a label of choices without an order."""
        if self.choices is None or self.ordered:
            return False
        return label in self.choices.values()

    @property
    def values(self) -> Mapping[str, Value]:
        """The value in a judgement for each text that the judge can write, in their order."""
        if self.scale is not None:
            return {str(value): value for value in range(self.scale.lowest, self.scale.highest + 1)}
        if self.labels is not None:
            return self.labels
        return {"no": False, "yes": True}

    @property
    def labels(self) -> Mapping[str, str] | None:
        """The labels of choices or of a preference, by the text that the judge writes; None for the others."""
        if self.choices is not None:
            return self.choices
        return self.preference

    @property
    def has_tie(self) -> bool:
        """Whether a label of a preference says that neither response is better."""
        return self.preference is not None and len(self.preference) % 2 == 1

    @property
    def numbers(self) -> Mapping[Value, int] | None:
        """The number of each value: its own, 0 and 1 for no and yes, or from 1 for ordered choices; None if the
        choices have no order. The numbers of a preference are above 0 where A is better, 0 for a tie, and below
        0 where B is better."""
        if self.preference is not None:
            return self._numbers_of_preference(list(self.preference.values()))
        if self.choices is None:
            return {value: int(value) for value in self.values.values()}
        if not self.ordered:
            return None
        return {label: number for number, label in enumerate(self.choices.values(), 1)}

    @property
    def numbers_or_indices(self) -> Mapping[Value, int]:
        """The number of each value; of labels without an order, the index in the rubric, from 0."""
        if self.numbers is not None:
            return self.numbers
        return {value: index for index, value in enumerate(self.values.values())}

    def _numbers_of_preference(self, labels: Sequence[str]) -> dict[Value, int]:
        """Return the numbers of the labels: 2, 1, -1, -2 of four, and 2, 1, 0, -1, -2 of five."""
        half = len(labels) // 2
        numbers = list(range(half, -half - 1, -1))
        if not self.has_tie:
            numbers.remove(0)
        return dict(zip(labels, numbers, strict=True))

    @property
    def kind(self) -> type[bool] | type[int] | type[str]:
        """The type of the values in a judgement."""
        if self.boolean:
            return bool
        if self.scale is not None:
            return int
        return str

    def __str__(self) -> str:
        if self.scale is not None:
            return str(self.scale)
        return " / ".join(shown(value) for value in self.values.values())


def _check_labels(kind: str, labels: Mapping[str, str]) -> None:
    """Check the labels of an aspect, and the texts that the judge writes for them.

    Raises:
        ValueError: one of them cannot be used, or there are too few.
    """
    for text in list(labels) + list(labels.values()):
        if not PLAIN_TEXT.fullmatch(text) or text != text.strip() or len(text) > _LONGEST_CODE:
            raise ValueError(
                f"{kind}: {text!r} must be text of 1 to {_LONGEST_CODE} characters, without quotes, "
                "backslashes and surrounding spaces"
            )
    folded = Counter(label.casefold() for label in labels.values())
    for label, count in folded.items():
        if count > 1:
            raise ValueError(f"{kind}: the label {label!r} occurs twice; remove one")
    if len(labels) < 2:
        raise ValueError(f"{kind}: give two or more labels")


def with_aspects(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a table for each aspect.

    Names of aspects are short for tables, and `scale` is for the aspects without values of their own.

    Raises:
        ValueError: an aspect has no name, no values, or the name of another.
    """
    document = dict(document)
    scale = document.pop("scale", None)
    aspects = document.get("aspects")
    if isinstance(aspects, list | tuple):
        aspects = _tables_of_list(aspects)
    if isinstance(aspects, dict):
        document["aspects"] = _with_scale(aspects, scale)
    return document


def _tables_of_list(aspects: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the table of each aspect in a list of names and of tables with a name.

    Raises:
        ValueError: an aspect has no name, or that of another.
    """
    tables: dict[str, dict[str, Any]] = {}
    names: list[str] = []
    for aspect in aspects:
        table = {"name": aspect} if isinstance(aspect, str) else aspect
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            raise ValueError("aspects: give names, or a table with a name for each")
        name = table["name"]
        names.append(name)
        tables[name] = {key: value for key, value in table.items() if key != "name"}
    refuse_duplicates("aspects", names)
    return tables


def _with_scale(aspects: Mapping[str, Any], scale: Any) -> dict[str, Any]:
    """Return the tables of the aspects, with the scale of the rubric in those without values of their own.

    Raises:
        ValueError: an aspect has no values, and the rubric has no scale.
    """
    tables: dict[str, Any] = {}
    for name, table in aspects.items():
        tables[name] = table
        if isinstance(table, dict) and table.keys().isdisjoint(_KINDS):
            if scale is None:
                raise ValueError(
                    f"aspects.{name}: has no values; give it a scale, choices, a preference or boolean = true, "
                    "or give a scale for all aspects"
                )
            tables[name] = table | {"scale": scale}
    return tables


def refuse_duplicates(table: str, names: Iterable[str]) -> None:
    """Check that no name occurs twice.

    Raises:
        ValueError: a name occurs twice; the message begins with the table of the file.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{table}: {name!r} occurs twice; remove one")
        seen.add(name)


ASPECTS = "aspects"
"""The placeholder of the list of aspects, which a rubric fills by itself."""
ANSWER_FORMAT = "answer_format"
"""The placeholder of the form of the answer, which a rubric fills by itself."""


ValueOrders = Mapping[str, Sequence[str]]
"""The order in which a prompt gives the values of an aspect, as the judge writes them, by the aspect's name."""
NO_ORDERS: ValueOrders = {}


def aspects_text(aspects: Mapping[str, Aspect], orders: ValueOrders = NO_ORDERS) -> str:
    """Return a list of the aspects for the prompt: values, description, and the meaning of each value.

    Args:
        aspects: the aspects.
        orders: another order of the values of some aspects.
    """
    lines: list[str] = []
    for name, aspect in aspects.items():
        lines += _described(name, aspect, _texts_in_order(name, aspect, orders))
    return "\n".join(lines)


def _texts_in_order(name: str, aspect: Aspect, orders: ValueOrders) -> Sequence[str]:
    """Return the values of an aspect, as the judge writes them, in the order of the prompt."""
    if name in orders:
        return orders[name]
    return list(aspect.values)


def _described(name: str, aspect: Aspect, texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines on an aspect, whose values stand in the order of these texts."""
    heading = f"- {name} ({values_in_words(aspect, texts)})"
    if aspect.description:
        heading += f": {aspect.description}"
    yield heading
    for text in texts:
        meanings: list[str] = []
        if aspect.labels is not None and aspect.labels[text] != text:
            meanings.append(aspect.labels[text])
        if text in aspect.levels:
            meanings.append(aspect.levels[text])
        if meanings:
            yield f"  - {text}: {': '.join(meanings)}"


def values_in_words(aspect: Aspect, texts: Sequence[str]) -> str:
    """Return the values in the order of these texts: "1 to 5", "yes or no"."""
    if aspect.scale is not None:
        return f"{texts[0]} to {texts[-1]}"
    return " or ".join(texts)


def answer_format(layout: AnswerLayout, aspects: Mapping[str, Aspect], orders: ValueOrders = NO_ORDERS) -> str:
    """Return the form of the answer with a placeholder in brackets for each field.

    Args:
        layout: the fields of the answer.
        aspects: the aspects.
        orders: another order of the values of some aspects.
    """
    written: dict[str, str] = {}
    for text in layout.texts:
        what = text.name.replace("_", " ") if text.raw else "rationale"
        written[text.name] = f"[your {what}]"
    for field in layout.values:
        aspect = aspects[field.name]
        values = values_in_short(aspect, _texts_in_order(field.name, aspect, orders))
        written[field.name] = f"[{values}]"
    return layout.write(written)


def values_in_short(aspect: Aspect, texts: Sequence[str]) -> str:
    """Return the values in the order of these texts: "1-5", "-2 to 2", "A/B/C"."""
    if aspect.scale is None:
        return "/".join(texts)
    between = " to " if aspect.scale.lowest < 0 else "-"
    return f"{texts[0]}{between}{texts[-1]}"


def _values_to_name(aspect: Aspect) -> list[str]:
    """Return the values that a prompt must name: the ends of a scale, or each text and label of the others."""
    texts = list(aspect.values)
    if aspect.scale is not None:
        return [texts[0], texts[-1]]
    if aspect.labels is not None:
        texts.extend(aspect.labels.values())
    return texts


def unmentioned(template: str, aspects: Mapping[str, Aspect], keys: Mapping[str, str]) -> list[str]:
    """Return the names, values and descriptions of aspects that a template never mentions.

    Args:
        template: the template, with the text about the aspects.
        aspects: the aspects.
        keys: the key of each aspect in the answer.
    """
    words = _words(template)

    def mentions(text: str) -> bool:
        return f" {_words(text)} " in f" {words} "

    missing = [name for name in aspects if not mentions(name) and not mentions(keys[name])]
    for name, aspect in aspects.items():
        for text in _values_to_name(aspect):
            if not mentions(text):
                missing.append(text)
        if aspect.description and not mentions(aspect.description):
            missing.append(f"the description of {name}")
        for text, meaning in aspect.levels.items():
            if not mentions(meaning):
                missing.append(f"the level {text} of {name}")
    return list(dict.fromkeys(missing))


def _words(text: str) -> str:
    """Return the words of a text in lower case, with a space between them."""
    return " ".join(re.findall(r"\w+", text.casefold().replace("_", " ")))
