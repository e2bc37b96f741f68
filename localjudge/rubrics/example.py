"""An example in a prompt: a row, and the answer that the judge should give to it.

[[prompt.examples]]
instruction = "What is the capital of France?"      # the fields of a row
candidate = "Paris."
answer = { rationale = "It is right.", correct = true }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import model_validator

from localjudge.records import Failure, Row
from localjudge.records.outcome_columns import RATIONALE, rationale_of
from localjudge.rows.row import as_row
from localjudge.rubrics.answer import AnswerLayout, FreeText
from localjudge.rubrics.aspect import Aspect, RubricPart


class Example(RubricPart):
    """A row by its columns, and the values and texts of its answer by their names in a judgement."""

    row: dict[str, Any]
    answer: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _split(cls, document: Any) -> Any:
        """In a file, the columns stand beside the answer."""
        if not isinstance(document, dict) or isinstance(document.get("row"), dict):
            return document
        return {
            "row": {name: value for name, value in document.items() if name != "answer"},
            **{name: value for name, value in document.items() if name == "answer"},
        }

    def as_row(self, used: Sequence[str]) -> Row:
        """Return the row.

        Args:
            used: the fields that the template uses.

        Raises:
            ValueError: it lacks a field, or has one that is not used.
        """
        row = as_row(self.row, "", used=used)
        if isinstance(row, Failure):
            raise ValueError(row.reason)
        if row.columns:
            raise ValueError(
                f"{next(iter(row.columns))!r} is not a field of the template; its fields are {', '.join(used)}"
            )
        return row

    def written(self, layout: AnswerLayout, aspects: Mapping[str, Aspect]) -> str:
        """Return the answer as the judge writes it. A rationale that this layout does not have is left out.

        Raises:
            ValueError: a value or a text is missing, or is none that the judge can write.
        """
        names = [field.name for field in layout.fields]
        rationales = [RATIONALE, *map(rationale_of, aspects)]
        if unknown := [name for name in self.answer if name not in (*names, *rationales)]:
            raise ValueError(f"answer: {unknown[0]!r} is neither an aspect nor a text; give {', '.join(names)}")
        if missing := [name for name in names if name not in self.answer]:
            raise ValueError(f"answer: {missing[0]} is missing; give {', '.join(names)}")
        values = {
            field.name: _text(self.answer[field.name], field.name)
            if isinstance(field, FreeText)
            else _value(self.answer[field.name], field.name, aspects[field.name])
            for field in layout.fields
        }
        written = layout.write(values)
        if layout.parse(written).texts != {field.name: values[field.name] for field in layout.texts}:
            raise ValueError("answer: a text changes when the answer is read back; write it in other words")
        return written


def _text(given: Any, name: str) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"answer: {name} must be a text with characters")
    return given


def _value(given: Any, name: str, aspect: Aspect) -> str:
    """Return what the judge writes for a value in a judgement, or for this text itself."""
    for text, value in aspect.values.items():
        if type(value) is type(given) and value == given:
            return text
    if isinstance(given, str) and given in aspect.values:
        return given
    raise ValueError(f"answer: {name} is {given!r}; give one of {aspect}")
