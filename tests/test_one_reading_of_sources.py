"""Every source gives the same rows, and the records after the first hundred change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reading_files import (
    HOSTILE,
    TALK,
    TURNS,
    USES,
    Outcome,
    Record,
    all_of,
    by_record,
    for_rubric,
    keys_in,
    rows_of_objects,
    rows_or_refusal,
    sources_of,
    texts_in,
    without,
    write_lines,
)
from shape_checks import transcript
from shape_records import ASSISTANT, USER, Said, Texts, Uses
from shapes import SHAPES

from localjudge import Row

# --- Sources: a frame, its dicts and its files give the same rows

TEXT = st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12)
TEXTS = st.lists(TEXT, max_size=3)
ROUND = st.tuples(TEXT, TEXT)
OBJECT: st.SearchStrategy[Record] = st.builds(dict, title=TEXTS, facts=st.lists(TEXTS, max_size=2))
MANY = st.just({"facts": [f"fact {number}" for number in range(1200)]})
DATA_COLUMNS = (
    TEXT,
    TEXTS,
    st.lists(TEXTS, max_size=2),
    st.lists(st.floats(-9, 9)),
    OBJECT,
    MANY,
    st.floats(-9, 9),
)
REFERENCE_COLUMNS = (TEXT, st.none() | TEXT, TEXTS, st.integers(-9, 9), st.booleans())


def as_turns(rounds: Sequence[tuple[str, str]]) -> list[Record]:
    """Return the messages of rounds of a question and an answer."""
    turns: list[Record] = []
    for asked, said in rounds:
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    return turns


@st.composite
def tables(draw: st.DrawFn, used: Sequence[str]) -> list[Record]:
    """Return records whose columns have one type each, as those of a table."""
    columns = {
        "instruction": TEXT,
        "reference": draw(st.sampled_from(REFERENCE_COLUMNS)),
        "candidate": draw(st.sampled_from([TEXT, st.lists(TEXT, min_size=1, max_size=3)])),
        "candidate_a": TEXT,
        "candidate_b": TEXT,
        "criteria": st.lists(TEXT, min_size=1, max_size=3),
        "tools": draw(st.sampled_from(DATA_COLUMNS)),
    }
    if used == TALK:
        columns["messages"] = st.lists(ROUND, min_size=1, max_size=2).map(as_turns)
    return draw(st.lists(st.fixed_dictionaries(for_rubric(columns, used)), min_size=1, max_size=4))


@pytest.mark.parametrize("used", USES.values(), ids=USES)
@settings(max_examples=60, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_every_source_gives_the_same_rows_and_digests(used: Uses, data: st.DataObject) -> None:
    records = data.draw(tables(used))
    with TemporaryDirectory() as folder:
        found = {}
        for name, source in sources_of(Path(folder), records):
            rows = rows_or_refusal(source, used)
            found[name] = [texts_in(row) for row in rows if isinstance(row, Row)]
    for name, texts in found.items():
        assert texts == found["rows.jsonl"], name


# --- Prefix: what comes after the first hundred records

FIRST = 100


def head_record(number: int, rubric: str) -> Record:
    """Return a record in columns with usual names that are not those of the fields."""
    record = {
        "id": f"row {number}",
        "question": f"Question {number}?",
        "gold": f"Gold {number}.",
        "response": f"Answer {number}.",
        "output_1": f"First {number}.",
        "output_2": f"Second {number}.",
        "rubric": [f"Criterion {number}"],
        "tools": f"tool {number}",
    }
    names = {
        "single": ("id", "question", "gold", "response", "tools"),
        "criteria": ("id", "question", "response", "rubric", "tools"),
        "pair": ("id", "question", "gold", "output_1", "output_2", "tools"),
        "talk": ("id", "question", "response", "tools"),
    }
    return {name: record[name] for name in names[rubric]}


def first_hundred(rubric: str) -> list[Record]:
    """Return a hundred records, of which some lack a column."""
    records = [head_record(number, rubric) for number in range(FIRST)]
    for number in range(5, FIRST, 10):
        del records[number][list(records[number])[number // 10 % 3 + 1]]
    return records


def late_records(rubric: str) -> list[Record]:
    """Return records that could be read in another way: of other tools, with other columns and other values."""
    plain = head_record(FIRST, rubric)
    others: Record = {
        "reference": "Another gold.",
        "answer": ["Another answer."],
        "candidates": ["Quito.", "Bogota."],
        "messages": TURNS,
        "history": [["Hello?", "Good day."]],
        "system_prompt": "Be rude.",
        "prompt": TURNS[:1],
        "output": "Another output.",
        "criteria": ["Another criterion"],
    }
    records = [plain, others, others | {"tools": "t"}]
    records += [plain | {name: value} for name, value in others.items()]
    for path in keys_in(plain):
        renamed = {f"{path[0]}_text": plain[str(path[0])]}
        for changed in without(plain, path):
            records += [changed, changed | others, changed | renamed]
        records += [
            plain | {str(path[0]): value} for value in (*HOSTILE, 3, ["Lima."], TURNS, {"text": "Lima."})
        ]
    for shape in SHAPES:
        if not shape.name.startswith("written "):
            made = shape.make(Texts(Random(1)), 1)
            records += [made.record, (made.beside or {}) | made.record | {"tools": "t"}]
    return records


def as_text(value: Any) -> str | None:
    """Return data as the text of a field."""
    return value if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False)


def as_reference(value: Any) -> str | None:
    """Return the text of a reference: a text, a number or a list of texts; no row has another value."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\nor\n".join(value)
    if isinstance(value, list | dict):
        return "not a reference"
    return as_text(value)


def is_read_alike(row: Row, record: Record, rubric: str) -> bool:
    """Return whether a row has the texts of the columns that the first hundred records have."""
    if row.fields["tools"] != as_text(record.get("tools")):
        return False
    responses = ("output_1", "output_2") if rubric == "pair" else ("response",)
    question = record.get("question")
    said = [record.get(name) for name in responses]
    if not isinstance(question, str) or not all(isinstance(text, str) for text in said):
        return False
    if rubric == "talk":
        return row.candidate == transcript((Said(USER, question), Said(ASSISTANT, said[0])))
    if rubric == "criteria":
        given = record.get("rubric")
        texts = given if isinstance(given, list) else [given]
        is_right = [each.text for each in row.criteria] == texts
    else:
        is_right = row.reference == as_reference(record.get("gold"))
    return is_right and row.instruction == question and row.texts == tuple(said)


def check_late(
    outcomes: Sequence[Outcome], alone: Sequence[Outcome], late: Sequence[Record], rubric: str
) -> None:
    """Check that the first hundred are as they are alone, and that the reading of the late ones is theirs."""
    found = by_record(outcomes)
    assert len(found) == FIRST + len(late)
    for group, before in zip(found[:FIRST], by_record(alone), strict=True):
        assert [all_of(row) for row in group] == [all_of(row) for row in before]
    for group, record in zip(found[FIRST:], late, strict=True):
        for row in group:
            if isinstance(row, Row):
                assert is_read_alike(row, record, rubric), (row, record)
    assert isinstance(found[-1][0], Row), "the last record is like the first ones"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rubric", USES)
def test_late_records_change_no_reading(tmp_path: Path, rubric: str, seed: int) -> None:
    used = USES[rubric]
    first = first_hundred(rubric)
    late = late_records(rubric)
    Random(seed).shuffle(late)
    late.append(head_record(FIRST, rubric))
    alone = write_lines(tmp_path / "rows.jsonl", first).rows(used)
    assert sum(isinstance(row, Row) for row in alone) >= FIRST * 0.9
    check_late(write_lines(tmp_path / "rows.jsonl", first + late).rows(used), alone, late, rubric)
    check_late(rows_of_objects(first + late, used), rows_of_objects(first, used), late, rubric)
