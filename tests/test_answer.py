"""Tests of the fields of an answer: schema, text and parser agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from localjudge import Rubric
from localjudge.rubrics.answer import FreeText, JsonLayout, ValueField

LAYOUT = JsonLayout(
    {
        "why": FreeText("rationale"),
        "marks": {"Wärme": ValueField("warmth", {"9": 9, "10": 10, "11": 11})},
        "more": FreeText("more"),
    }
)


VALUES = {"rationale": "Kind.", "warmth": "10", "more": "No."}
DOCUMENT = {"why": "Kind.", "marks": {"Wärme": "10"}, "more": "No."}


def test_the_parts_of_an_answer_spell_what_its_schema_accepts_and_its_reader_reads() -> None:
    layout, text = LAYOUT, json.dumps(DOCUMENT, ensure_ascii=False, separators=(",", ":"))
    assert "".join(part if isinstance(part, str) else VALUES[part.name] for part in layout.parts) == text
    assert text.startswith(layout.opening + "Kind.")
    Draft202012Validator(layout.schema).validate(DOCUMENT)
    answer = layout.parse(text)
    assert answer.texts == {"rationale": "Kind.", "more": "No."}
    assert answer.scores == {"warmth": 10}


def test_fields_come_in_the_order_in_which_they_are_written() -> None:
    assert [field.name for field in LAYOUT.fields] == ["rationale", "warmth", "more"]
    names = [field.name for field in Rubric.load().answer_layout.fields]
    assert names == ["rationale", "safety", "engagement", "clarity", "factuality", "depth", "helpfulness"]


@pytest.mark.parametrize("score", ["8", "12", "010", "\u0661\u0660", "10.0", "", " 10", 10, None])
def test_a_value_off_its_scale_is_refused_by_name(score: Any) -> None:
    document = {"why": "a", "marks": {"Wärme": score}, "more": "b"}
    assert not Draft202012Validator(LAYOUT.schema).is_valid(document)
    with pytest.raises(ValueError, match="warmth is not one of its values"):
        LAYOUT.parse(json.dumps(document))
