"""An aspect of a rubric: its values, and what they mean.

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
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from localjudge.rubrics.answer import Value, shown

# Text that a JSON string can hold without an escape.
PLAIN_TEXT = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f]+')

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
    boolean: bool = False
    ordered: bool = False
    best: str | None = None
    levels: dict[str, str] = Field(default_factory=dict)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, strict=False)

    @field_validator("choices", mode="before")
    @classmethod
    def _name_codes(cls, choices: Any) -> Any:
        """A list of labels: the judge writes the labels."""
        return {label: label for label in choices} if isinstance(choices, list) else choices

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.scale is not None) + (self.choices is not None) + self.boolean != 1:
            raise ValueError("give one of scale, choices and boolean")
        if self.ordered and self.choices is None:
            raise ValueError("ordered: belongs to choices; a scale is always ordered")
        if self.best is not None and (self.ordered or self.best not in (self.choices or {}).values()):
            raise ValueError(f"best: {self.best!r} is no label of choices without an order")
        for code, label in (self.choices or {}).items():
            for text in (code, label):
                if not PLAIN_TEXT.fullmatch(text) or text != text.strip() or len(text) > _LONGEST_CODE:
                    raise ValueError(
                        f"choices: {text!r} must be text of 1 to {_LONGEST_CODE} characters, without quotes, "
                        "backslashes and surrounding spaces"
                    )
        if self.choices is not None:
            labels = Counter(label.casefold() for label in self.choices.values())
            if twice := [label for label, count in labels.items() if count > 1]:
                raise ValueError(f"choices: the label {twice[0]!r} occurs twice; remove one")
            if len(labels) < 2:
                raise ValueError("choices: give two or more labels")
        for text in self.levels:
            if text not in self.values:
                raise ValueError(f"levels: {text!r} is none of the values {', '.join(list(self.values)[:12])}")
        return self

    @property
    def values(self) -> Mapping[str, Value]:
        """The value in a judgement for each text that the judge can write, in their order."""
        if self.scale is not None:
            return {str(value): value for value in range(self.scale.lowest, self.scale.highest + 1)}
        return self.choices or {"no": False, "yes": True}

    @property
    def numbers(self) -> Mapping[Value, int] | None:
        """The number of each value: its own, 0 and 1 for no and yes, or from 1 for ordered choices; None if the
        choices have no order."""
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
