"""A text stays a text: whatever a text looks like, it is judged whole, as it was written, or its row fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_files import (
    CRITERIA,
    FORMATS,
    HOSTILE,
    JSON_BY_ITS_WRITER,
    PAIR,
    SAME_KIND,
    SINGLE,
    TALK,
    USES,
    CannotHoldError,
    Outcome,
    Record,
    by_record,
    for_rubric,
    rows_in,
    rows_of_objects,
    rows_or_refusal,
    sources_of,
    with_json,
    write_lines,
)
from shape_checks import allowed, quoted, transcript
from shape_records import (
    ANSWER,
    ASSISTANT,
    CHECKED,
    DIALOGUE,
    USER,
    Made,
    Reading,
    Said,
    Shape,
    Texts,
    Uses,
    json_lines,
)
from shape_records import PAIR as TWO_RESPONSES
from shapes import SHAPES

from localjudge import Row

# --- Records of tools, of which one text is replaced


def anthropic(texts: Texts, number: int) -> Made:
    asked = texts.text()
    said = texts.text()
    prompt = texts.text()
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    record = {"model": "c", "max_tokens": 9, "system": prompt, "messages": messages}
    return Made(record, (Reading((said,), turns=(Said("system", prompt), Said(USER, asked))),))


def preference_bench(texts: Texts, number: int) -> Made:
    asked = texts.text()
    first = texts.text()
    second = texts.text()
    record = {"orig_instruction": asked, "orig_response_A": first, "orig_response_B": second}
    return Made(record, (Reading((first, second), instruction=asked),))


def outputs_in_a_list(texts: Texts, number: int) -> Made:
    asked = texts.text()
    said = texts.text()
    return Made({"question": asked, "outputs": [{"text": said}]}, (Reading((said,), instruction=asked),))


UNTESTED_ELSEWHERE = (
    Shape("Anthropic messages", anthropic, json_lines("a.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape("Preference Bench", preference_bench, json_lines("p.jsonl"), read=(TWO_RESPONSES,)),
    Shape("responses in a list of outputs", outputs_in_a_list, json_lines("o.jsonl")),
)
FIRST_NUMBERS = {"promptfoo results": (1, 2), "promptfoo results, lines": (1, 2)}
"""Numbers of the kinds of records; every third prompt of promptfoo is the JSON of messages, which is a text."""
PLAIN = 8
"""The records of each file in which nothing is replaced."""
NOT_READ = {("OpenAI response items", "rows.parquet"), ("OpenAI response items", "rows.arrow")}
NOT_READ |= {("OpenAI response with input", "rows.parquet"), ("OpenAI response with input", "rows.arrow")}
NOT_READ |= {("MT-Bench human judgments", "rows.csv"), ("MT-Bench human judgments", "rows.tsv")}
"""Shapes that may fail in a format: in a table each item has the keys of all, in a sheet a number is a text."""


class OneReplaced(Texts):
    """The texts that a seed makes, of which one is replaced."""

    def __init__(self, seed: str, replaced: str | None = None, by: str = "") -> None:
        super().__init__(Random(seed))
        self.said: list[str] = []
        self._replaced = replaced
        self._by = by

    def text(self, words: int = 6) -> str:
        return self._kept(super().text(words))

    def line(self) -> str:
        return self._kept(super().line())

    def _kept(self, text: str) -> str:
        self.said.append(text)
        return self._by if text == self._replaced else text


def texts_of(part: str, made: Made, said: Sequence[str]) -> list[str]:
    """Return the texts of a part of the first row of a record."""
    reading = made.readings[0]
    talks = reading.trajectories or (reading.turns,)
    if part == "response":
        return list(reading.responses) or [talk[-1].text or "" for talk in talks]
    if part == "criterion":
        return [text for text, _ in reading.criteria]
    asked = [turn.text or "" for turn in talks[0] if turn.role == USER] or list(allowed(reading.instruction))
    written = [text for text in said if text in asked[-1]]
    return [max(written, key=len)]


def records_with(part: str, shape: Shape, first: int) -> list[Made]:
    """Return plain records of one kind, and for each hostile text a record with it in one part."""
    made = [shape.make(OneReplaced(f"plain {place}"), first + SAME_KIND * place) for place in range(PLAIN)]
    for place, text in enumerate(HOSTILE, PLAIN):
        number = first + SAME_KIND * place
        texts = OneReplaced(f"seed {place}")
        replaceable = texts_of(part, shape.make(texts, number), texts.said)
        replaced = replaceable[place % len(replaceable)]
        made.append(shape.make(OneReplaced(f"seed {place}", replaced, text), number))
    return made


def is_right(row: Row, reading: Reading, used: Uses) -> bool:
    """Return whether a row has the texts of a reading, and nothing else."""
    if used == CHECKED and [each.text for each in row.criteria] != [text for text, _ in reading.criteria]:
        return False
    if used == DIALOGUE and reading.ordered:
        asked = quoted(str(reading.instruction))
        return asked in row.candidate and row.candidate.endswith(quoted(reading.responses[0]))
    if used == DIALOGUE:
        return row.candidate in [transcript(turns) for turns in reading.conversations]
    if reading.trajectories:
        return row.texts == tuple(transcript(turns) for turns in reading.trajectories)
    asked_texts = list(allowed(reading.instruction))
    if reading.turns:
        asked_texts += [turn.text for turn in reading.turns if turn.role == USER][-1:]
        asked_texts.append(transcript(reading.turns))
    return row.texts == reading.responses and row.instruction in asked_texts


def check_records(made: Sequence[Made], outcomes: Sequence[Outcome], used: Uses, *, are_read: bool) -> None:
    """Check that each row has the right texts, and that the plain records are rows."""
    found = by_record(outcomes)
    assert len(found) == len(made)
    for place, (each, rows) in enumerate(zip(made, found, strict=True)):
        for row in rows:
            if isinstance(row, Row):
                assert any(is_right(row, reading, used) for reading in each.readings), (row, each.record)
            else:
                assert row.reason
        if are_read and place < PLAIN:
            assert len(rows) == len(each.readings)
            assert all(isinstance(row, Row) for row in rows), rows


def cases() -> list[Any]:
    """Return each shape with its fields, and each part of its records that is a text."""
    found = []
    for shape in (*SHAPES, *UNTESTED_ELSEWHERE):
        if shape.name.startswith("written "):
            continue  # the files are there, and their texts are not made
        for used in shape.read:
            parts = ("response", "instruction", "criterion") if used == CHECKED else ("response", "instruction")
            for part in parts:
                found.append(pytest.param(shape, used, part, id=f"{shape.name}: {part} of {'-'.join(used)}"))
    return found


@pytest.mark.parametrize(("shape", "used", "part"), cases())
def test_a_text_of_a_tool_is_judged_whole_whatever_it_looks_like(
    tmp_path: Path, shape: Shape, used: Uses, part: str
) -> None:
    for first in FIRST_NUMBERS.get(shape.name, (0, 1)):
        made = records_with(part, shape, first)
        check_records(made, rows_in(shape.write(tmp_path, made), used), used, are_read=True)
        if made[0].beside is not None:
            continue  # the records of two files
        columns = JSON_BY_ITS_WRITER.get(shape.name, ())
        records = [with_json(each.record, columns) for each in made]
        for name, write in FORMATS.items():
            try:
                file = write(tmp_path / name, records)
            except CannotHoldError:
                continue
            check_records(made, file.rows(used), used, are_read=(shape.name, name) not in NOT_READ)


# --- Records with the usual columns


def hostile_record(place: int) -> Record:
    """Return a record whose fields are hostile texts, each another one."""
    texts = [HOSTILE[(place + step) % len(HOSTILE)] for step in range(6)]
    return {
        "id": f"row {place}",
        "instruction": texts[0],
        "reference": texts[1],
        "candidate": texts[2],
        "prompt": texts[0],
        "response": texts[2],
        "candidate_a": texts[2],
        "candidate_b": texts[3],
        "tools": texts[4],
        "criteria": [texts[5], texts[1]],
    }


def as_messages(record: Record) -> Record:
    """Return a record whose question and answer are messages."""
    asked = {"role": "user", "content": record["instruction"]}
    said = {"role": "assistant", "content": record["candidate"]}
    others = {name: record[name] for name in ("id", "reference", "tools", "criteria")}
    return others | {"messages": [asked, said]}


def check_whole(row: Outcome, record: Record, used: Sequence[str]) -> None:
    """Check that a row has each text of a record as it stands there."""
    assert isinstance(row, Row), row
    assert row.fields["tools"] == record["tools"]
    if used == TALK:
        turns = (Said(USER, record["instruction"]), Said(ASSISTANT, record["candidate"]))
        assert row.candidate == transcript(turns)
        return
    assert row.instruction == record["instruction"]
    if used == PAIR:
        assert row.texts == (record["candidate_a"], record["candidate_b"])
    else:
        assert row.texts == (record["candidate"],)
    if "reference" in used:
        assert row.reference == record["reference"]
    if used == CRITERIA:
        assert [each.text for each in row.criteria] == record["criteria"]


@pytest.mark.parametrize("are_messages", [False, True], ids=["columns", "messages"])
@pytest.mark.parametrize("used", USES.values(), ids=USES)
def test_a_text_is_read_whole_from_every_source(tmp_path: Path, used: Uses, are_messages: bool) -> None:
    if used == PAIR and are_messages:
        pytest.skip("messages hold one response")
    texts = [hostile_record(place) for place in range(len(HOSTILE))]
    given = [as_messages(record) for record in texts] if are_messages else texts
    for name, source in sources_of(tmp_path, [for_rubric(record, used) for record in given]):
        rows = rows_or_refusal(source, used)
        assert len(rows) == len(texts), name
        for row, record in zip(rows, texts, strict=True):
            check_whole(row, record, used)


KEYS = ("role", "content", "type", "from", "value", "text", "answer", "response", "output", "messages")
LEAF = st.sampled_from([None, 1, "user", "assistant", "Lima."])
OBJECT = st.dictionaries(st.sampled_from(KEYS), LEAF | st.lists(LEAF, max_size=2), max_size=3)
ROLE = st.sampled_from(["user", "assistant", "tool", "critic"])
MESSAGE = st.fixed_dictionaries({"role": ROLE, "content": LEAF | st.lists(OBJECT, max_size=2)})
JSON = LEAF | OBJECT | st.lists(LEAF | OBJECT, max_size=3) | st.lists(MESSAGE, min_size=1, max_size=3)
JSON_TEXTS = JSON.map(json.dumps)


@pytest.mark.parametrize("used", USES.values(), ids=USES)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(JSON_TEXTS, min_size=6, max_size=6))
def test_no_text_is_decoded(used: Uses, texts: list[str]) -> None:
    names = ("instruction", "reference", "candidate", "candidate_a", "candidate_b", "tools")
    record = {
        **dict(zip(names, texts, strict=True)),
        "prompt": texts[0],
        "response": texts[2],
        "criteria": [texts[0]],
    }
    row = for_rubric(record, used)
    check_whole(rows_of_objects([row], used)[0], record, used)
    with TemporaryDirectory() as folder:
        file = write_lines(Path(folder, "rows.jsonl"), [row])
        check_whole(file.rows(used)[0], record, used)


@pytest.mark.parametrize("text", HOSTILE)
def test_the_texts_of_a_row_are_not_decoded(text: str) -> None:
    given = Row.from_response(instruction=text, candidate=text, reference=text, fields={"tools": text})
    (row,) = rows_of_objects([given], SINGLE)
    check_whole(row, {"instruction": text, "candidate": text, "reference": text, "tools": text}, SINGLE)


@pytest.mark.parametrize("text", HOSTILE)
def test_criteria_that_are_a_text_are_not_read_out_of_it(tmp_path: Path, text: str) -> None:
    """A criterion gives points, so a text that someone else wrote must not become several of them."""
    record = {"instruction": "Capital of Peru?", "candidate": "Lima.", "tools": "none", "criteria": text}
    for row in rows_or_refusal(write_lines(tmp_path / "rows.jsonl", [record]), CRITERIA):
        if isinstance(row, Row):
            assert [each.text for each in row.criteria] == [text]
