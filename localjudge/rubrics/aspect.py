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
_LONGEST_CODE, _MOST_VALUES, _LARGEST = 40, 1001, 10_000


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
        return {label: label for label in labels} if isinstance(labels, list) else labels

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = (self.scale, self.choices, self.preference)
        if sum(kind is not None for kind in kinds) + self.boolean != 1:
            raise ValueError("give one of scale, choices, preference and boolean")
        if self.ordered and self.choices is None:
            raise ValueError("ordered: belongs to choices; other aspects are always ordered")
        if self.best is not None and (self.ordered or self.best not in (self.choices or {}).values()):
            raise ValueError(f"best: {self.best!r} is not a label of choices without an order")
        if self.labels is not None:
            _check_labels("choices" if self.preference is None else "preference", self.labels)
        for text in self.levels:
            if text not in self.values:
                values = ", ".join(list(self.values)[:12])
                raise ValueError(f"levels: {text!r} is not one of the values {values}")
        return self

    @property
    def values(self) -> Mapping[str, Value]:
        """The value in a judgement for each text that the judge can write, in their order."""
        if self.scale is not None:
            return {str(value): value for value in range(self.scale.lowest, self.scale.highest + 1)}
        return self.labels or {"no": False, "yes": True}

    @property
    def labels(self) -> Mapping[str, str] | None:
        """The labels of choices or of a preference, by the text that the judge writes; None for the others."""
        return self.preference if self.choices is None else self.choices

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
            labels, half = [*self.preference.values()], len(self.preference) // 2
            steps = [step for step in range(half, -half - 1, -1) if step or len(labels) % 2]
            return dict(zip(labels, steps, strict=True))
        if self.choices is None:
            return {value: int(value) for value in self.values.values()}
        return (
            {label: number for number, label in enumerate(self.choices.values(), 1)} if self.ordered else None
        )

    @property
    def kind(self) -> type[bool] | type[int] | type[str]:
        """The type of the values in a judgement."""
        return bool if self.boolean else int if self.scale is not None else str

    def __str__(self) -> str:
        return str(self.scale) if self.scale is not None else " / ".join(map(shown, self.values.values()))


def _check_labels(kind: str, labels: Mapping[str, str]) -> None:
    for text in (text for pair in labels.items() for text in pair):
        if not PLAIN_TEXT.fullmatch(text) or text != text.strip() or len(text) > _LONGEST_CODE:
            raise ValueError(
                f"{kind}: {text!r} must be text of 1 to {_LONGEST_CODE} characters, without quotes, "
                "backslashes and surrounding spaces"
            )
    counts = Counter(label.casefold() for label in labels.values())
    if twice := [label for label, count in counts.items() if count > 1]:
        raise ValueError(f"{kind}: the label {twice[0]!r} occurs twice; remove one")
    if len(labels) < 2:
        raise ValueError(f"{kind}: give two or more labels")


def with_aspects(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a table for each aspect.

    Names of aspects are short for tables, and `scale` is for the aspects without values of their own.

    Raises:
        ValueError: an aspect has no name, no values, or the name of another.
    """
    document, aspects = dict(document), document.get("aspects")
    scale = document.pop("scale", None)
    if isinstance(aspects, list | tuple):
        pairs = [
            (each, {}) if isinstance(each, str) else (each["name"], each)
            for each in aspects
            if isinstance(each, str) or (isinstance(each, dict) and isinstance(each.get("name"), str))
        ]
        if len(pairs) < len(aspects):
            raise ValueError("aspects: give names, or a table with a name for each")
        refuse_duplicates("aspects", (name for name, _ in pairs))
        aspects = {name: {key: value for key, value in each.items() if key != "name"} for name, each in pairs}
    if isinstance(aspects, dict):
        without = [
            name for name, each in aspects.items() if isinstance(each, dict) and not each.keys() & _KINDS
        ]
        if without and scale is None:
            raise ValueError(
                f"aspects.{without[0]}: has no values; give it a scale, choices, a preference or "
                "boolean = true, or give a scale for all aspects"
            )
        own = {name: each | {"scale": scale} for name, each in aspects.items() if name in without}
        document["aspects"] = aspects | own
    return document


def refuse_duplicates(place: str, names: Iterable[str]) -> None:
    """Check that no name occurs twice.

    Raises:
        ValueError: a name occurs twice; the message begins with the place.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{place}: {name!r} occurs twice; remove one")
        seen.add(name)


ASPECTS, ANSWER_FORMAT = "aspects", "answer_format"
"""The placeholders that a rubric fills by itself."""


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
        lines += _described(name, aspect, orders.get(name, [*aspect.values]))
    return "\n".join(lines)


def _described(name: str, aspect: Aspect, texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines on an aspect, whose values stand in the order of these texts."""
    description = f": {aspect.description}" if aspect.description else ""
    yield f"- {name} ({values_in_words(aspect, texts)}){description}"
    for text in texts:
        value = aspect.values[text]
        meanings = [str(value)] * (aspect.labels is not None and text != value)
        meanings += [aspect.levels[text]] if text in aspect.levels else []
        if meanings:
            yield f"  - {text}: {': '.join(meanings)}"


def values_in_words(aspect: Aspect, texts: Sequence[str]) -> str:
    """Return the values in the order of these texts: "1 to 5", "yes or no"."""
    return f"{texts[0]} to {texts[-1]}" if aspect.scale is not None else " or ".join(texts)


def answer_format(layout: AnswerLayout, aspects: Mapping[str, Aspect], orders: ValueOrders = NO_ORDERS) -> str:
    """Return the form of the answer with a placeholder in brackets for each field.

    Args:
        layout: the fields of the answer.
        aspects: the aspects.
        orders: another order of the values of some aspects.
    """
    written = {
        text.name: f"[your {text.name.replace('_', ' ') if text.raw else 'rationale'}]" for text in layout.texts
    }
    for field in layout.values:
        aspect = aspects[field.name]
        written[field.name] = f"[{values_in_short(aspect, orders.get(field.name, [*aspect.values]))}]"
    return layout.write(written)


def values_in_short(aspect: Aspect, texts: Sequence[str]) -> str:
    """Return the values in the order of these texts: "1-5", "-2 to 2", "A/B/C"."""
    if aspect.scale is None:
        return "/".join(texts)
    between = " to " if aspect.scale.lowest < 0 else "-"
    return f"{texts[0]}{between}{texts[-1]}"


def _ends(aspect: Aspect) -> list[str]:
    """Return the values that a prompt must name: the ends of a scale, and each choice."""
    texts = [*aspect.values]
    return texts if aspect.scale is None else [texts[0], texts[-1]]


def unmentioned(template: str, aspects: Mapping[str, Aspect], keys: Mapping[str, str]) -> list[str]:
    """Return the names, values and descriptions of aspects that a template never mentions.

    Args:
        template: the template, with the text about the aspects.
        aspects: the aspects.
        keys: the key of each aspect in the answer.
    """
    written = re.findall(r"\w+", template.casefold().replace("_", " "))
    known = " ".join(written)

    def says(text: str) -> bool:
        words = " ".join(re.findall(r"\w+", text.casefold().replace("_", " ")))
        return f" {words} " in f" {known} "

    missing = [name for name in aspects if not (says(name) or says(keys[name]))]
    for name, aspect in aspects.items():
        missing += [text for text in (*_ends(aspect), *(aspect.labels or {}).values()) if not says(text)]
        missing += [f"the description of {name}"] if aspect.description and not says(aspect.description) else []
        missing += [f"the level {text} of {name}" for text, said in aspect.levels.items() if not says(said)]
    return list(dict.fromkeys(missing))
