"""What is judged depends on the columns alone: a missing key is missing, and no value feeds two fields."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from reading_files import (
    JSON_BY_ITS_WRITER,
    SAME_KIND,
    TURNS,
    USES,
    Outcome,
    Record,
    all_of,
    by_record,
    for_rubric,
    keys_in,
    rows_in,
    rows_of_objects,
    rows_or_refusal,
    with_json,
    without,
    write_lines,
)
from shape_checks import quoted
from shape_records import Made, Shape, Texts, Uses
from shapes import SHAPES

from localjudge import Row, UsageError

# --- Removal: a key is removed from one of five records

CHANGED = 1
RECORDS = 5


def is_shortened(text: str, whole: str) -> bool:
    """Return whether the lines of a text are lines of the whole in their order, or the beginnings of some."""
    if whole and not text:
        return False
    rest = whole.split("\n")
    for line in text.split("\n"):
        while rest and not rest[0].startswith(line):
            rest.pop(0)
        if not rest:
            return False
        rest.pop(0)
    return True


def last_block(text: str) -> str:
    """Return the last turn of a conversation, or what is after the last empty line of another text."""
    return text.rpartition("\n\n")[2]


def has_nothing_else(row: Row, whole: Row) -> bool:
    """Return whether a row has the response of the whole row, and otherwise nothing but a part of its texts."""
    for said, response in zip(row.responses, whole.responses, strict=True):
        if last_block(said.text) != last_block(response.text) or not is_shortened(said.text, response.text):
            return False
        if said.system not in (None, response.system):
            return False
    fields_are_parts = row.fields.keys() == whole.fields.keys() and all(
        is_shortened(text, whole.fields[name]) for name, text in row.fields.items()
    )
    return (
        fields_are_parts
        and (is_shortened(row.instruction, whole.instruction) or quoted(row.instruction) in whole.instruction)
        and row.reference in (None, whole.reference)
        and row.criteria == whole.criteria
        and row.id.startswith((whole.id, row.source))
    )


def check_removal(found: Sequence[Outcome], whole: Sequence[Outcome], what: object) -> None:
    """Check that no other text is judged in the changed record, and that all others are unchanged."""
    groups = by_record(found)
    whole_groups = by_record(whole)
    assert len(groups) == len(whole_groups), what
    for place, (group, before) in enumerate(zip(groups, whole_groups, strict=True)):
        if place != CHANGED:
            assert [all_of(row) for row in group] == [all_of(row) for row in before], what
            continue
        rows = [row for row in group if isinstance(row, Row)]
        assert len(rows) <= len(before), what
        whole_rows = [row for row in before if isinstance(row, Row)]
        for row in rows:
            assert any(has_nothing_else(row, each) for each in whole_rows), (what, row, before)


def read_shapes(*, of_two_files: bool = False) -> list[Any]:
    """Return each shape whose records are made, with the fields of each rubric that reads it."""
    found = []
    for shape in SHAPES:
        if shape.name.startswith("written ") or (of_two_files and made_of(shape)[0].beside is None):
            continue
        for used in shape.read:
            found.append(pytest.param(shape, used, id=f"{shape.name}: {'-'.join(used)}"))
    return found


def made_of(shape: Shape) -> list[Made]:
    """Return records of one kind."""
    return [shape.make(Texts(Random(place)), 1 + SAME_KIND * place) for place in range(RECORDS)]


def written(shape: Shape, folder: Path, made: Sequence[Made]) -> list[Path]:
    """Return a file of JSON lines with records, or the two files of the tool."""
    if made[0].beside is not None:
        return shape.write(folder, made)
    texts = JSON_BY_ITS_WRITER.get(shape.name, ())
    return [write_lines(folder / "rows.jsonl", [with_json(each.record, texts) for each in made]).path]


def check_without(folder: Path, shape: Shape, used: Uses, others: Iterable[Made]) -> None:
    """Check what is judged where one of the records is another one, which lacks a key."""
    made = made_of(shape)
    whole = rows_in(written(shape, folder, made), used)
    assert all(isinstance(row, Row) for row in whole)
    for other in others:
        all_files = written(shape, folder, made[:CHANGED] + [other] + made[CHANGED + 1 :])
        check_removal(rows_in(all_files, used), whole, other)


@pytest.mark.parametrize(("shape", "used"), read_shapes())
def test_a_key_that_a_tool_left_out_is_missing(tmp_path: Path, shape: Shape, used: Uses) -> None:
    changed = made_of(shape)[CHANGED]
    others = []
    for path in keys_in(changed.record):
        others += [replace(changed, record=record) for record in without(changed.record, path)]
    check_without(tmp_path, shape, used, others)


@pytest.mark.parametrize(("shape", "used"), read_shapes(of_two_files=True))
def test_a_key_that_a_tool_left_out_of_the_other_file_is_missing(
    tmp_path: Path, shape: Shape, used: Uses
) -> None:
    changed = made_of(shape)[CHANGED]
    others = []
    for path in keys_in(changed.beside):
        others += [replace(changed, beside=beside) for beside in without(changed.beside or {}, path)]
    check_without(tmp_path, shape, used, others)


BESIDE: Record = {
    "few_shot": TURNS,
    "candidates": ["Quito.", "Bogota."],
    "right_answers": ["Lima.", "Lima, Peru."],
    "llm_output": "Santiago.",
    "error": '{"response": "timeout"}',
}
"""Columns that no field is in, though they hold turns, texts and JSON."""


def usual_record(number: int, used: Sequence[str]) -> Record:
    """Return a record with the columns of the fields, by their usual names."""
    columns: Record = {
        "id": f"row {number}",
        "instruction": f"Question {number}?",
        "reference": f"Gold {number}.",
        "candidate": f"Answer {number}.",
        "candidate_a": f"First {number}.",
        "candidate_b": f"Second {number}.",
        "prompt": f"Request {number}?",
        "response": f"Reply {number}.",
        "criteria": [f"Criterion {number}", {"criterion": f"Other criterion {number}", "points": 2}],
        "tools": {"search": f"tool {number}"},
        "system": f"system {number}",
    }
    return for_rubric(columns, (*used, "system"))


@pytest.mark.parametrize("used", USES.values(), ids=USES)
@pytest.mark.parametrize("beside", [(), *((name,) for name in BESIDE), tuple(BESIDE)], ids="-".join)
def test_a_column_that_a_record_lacks_is_missing(tmp_path: Path, used: Uses, beside: Sequence[str]) -> None:
    others = {name: BESIDE[name] for name in beside}
    records = [usual_record(number, used) | others for number in range(RECORDS)]
    whole = write_lines(tmp_path / "rows.jsonl", records).rows(used)
    whole_objects = rows_of_objects(records, used)
    assert all(isinstance(row, Row) for row in (*whole, *whole_objects))
    for path in keys_in(records[CHANGED]):
        for changed in without(records[CHANGED], path):
            others_too = records[:CHANGED] + [changed] + records[CHANGED + 1 :]
            check_removal(write_lines(tmp_path / "rows.jsonl", others_too).rows(used), whole, changed)
            check_removal(rows_of_objects(others_too, used), whole_objects, changed)


SAID = ("candidate", "candidate_a", "candidate_b", "response", "system")
"""Columns that both of two joined files have."""


def joined_records(used: Uses) -> tuple[list[Record], list[Record]]:
    """Return what systems said, and what they were asked beside what others said."""
    records = [usual_record(number, used) for number in range(RECORDS)]
    said = [{name: record[name] for name in record if name in ("id", *SAID)} for record in records]
    asked = [record | {name: f"asked {record[name]}" for name in record if name in SAID} for record in records]
    return said, asked


def joined_rows(folder: Path, said: Sequence[Record], asked: Sequence[Record], used: Uses) -> list[Outcome]:
    """Return the rows of what systems said, joined with what they were asked."""
    join = write_lines(folder / "asked.jsonl", asked).path
    return rows_in([write_lines(folder / "said.jsonl", said).path], used, join=str(join), on="id")


@pytest.mark.parametrize("used", USES.values(), ids=USES)
def test_a_join_fills_no_gap(tmp_path: Path, used: Uses) -> None:
    said, asked = joined_records(used)
    whole = joined_rows(tmp_path, said, asked, used)
    assert all(isinstance(row, Row) and "asked" not in str(row.texts) for row in whole)
    for name in said[CHANGED]:
        for changed in without(said[CHANGED], (name,)):
            others = said[:CHANGED] + [changed] + said[CHANGED + 1 :]
            check_removal(joined_rows(tmp_path, others, asked, used), whole, changed)
    for name in asked[CHANGED].keys() - {"id"}:
        for changed in without(asked[CHANGED], (name,)):
            others = asked[:CHANGED] + [changed] + asked[CHANGED + 1 :]
            check_removal(joined_rows(tmp_path, said, others, used), whole, changed)


@pytest.mark.parametrize("used", USES.values(), ids=USES)
def test_a_record_without_the_key_of_a_join_is_nobodys_partner(tmp_path: Path, used: Uses) -> None:
    said, asked = joined_records(used)
    whole = joined_rows(tmp_path, said, asked, used)
    for changed in without(asked[CHANGED], ("id",)):
        others = asked[:CHANGED] + [changed] + asked[CHANGED + 1 :]
        check_removal(joined_rows(tmp_path, said, others, used), whole, changed)


# --- Exclusion: a value is in one field

NAMES_FILE = files("localjudge") / "rows" / "columns.toml"
NAMES: dict[str, list[str]] = tomllib.loads(NAMES_FILE.read_text("utf-8"))["columns"]
OTHER_NAMES = ["messages", "history", "context", "system_prompt", "criteria"]
RUBRICS = {
    "single": ("instruction", "reference", "candidate", "criterion", "context", "tools"),
    "pair": ("instruction", "reference", "candidate_a", "candidate_b", "context", "tools"),
    "talk": ("conversation", "context", "tools"),
}
SYSTEMS = {"single": ("system",), "pair": ("system_a", "system_b"), "talk": ("system",)}
JUDGED = ("instruction", "candidate", "candidate_a", "candidate_b")
KINDS = ("text", "texts", "turns")
OF_A_SHAPE = {"user_input", "actual_output"}
"""Names that ragas and DeepEval use, whose records have no column for each field here."""


def fields_of(rubric: str) -> list[str]:
    """Return the fields of a row under a rubric; a conversation is of a question and a response."""
    used = [field for field in RUBRICS[rubric] if field != "conversation"]
    question = ["instruction", "candidate"] if rubric == "talk" else []
    return [*question, *used, "id", *SYSTEMS[rubric]]


def names_of(field: str) -> list[str]:
    """Return the names of columns that can mean a field."""
    return NAMES.get(field, [field])


def all_names(rubric: str) -> list[str]:
    names: dict[str, None] = {}
    for field in fields_of(rubric):
        names |= dict.fromkeys(names_of(field))
    return list(names | dict.fromkeys(OTHER_NAMES))


def value_of(kind: str, word: str) -> Any:
    """Return a text, a list of texts or turns, each with a word that is nowhere else."""
    if kind == "text":
        return f"{word} 1"
    if kind == "texts":
        return [f"{word} 1", f"{word} 2"]
    return [{"role": "user", "content": f"{word} 1"}, {"role": "assistant", "content": f"{word} 2"}]


def filled(columns: Record, rubric: str, given: Sequence[str] = ()) -> Record:
    """Return a record with these columns, and one for each other field that none of them means."""
    record = dict(columns)
    for field in fields_of(rubric):
        if field not in given and columns.keys().isdisjoint([field, *names_of(field)]):
            value = f"the {field}"
            if field == "criterion":
                record["criteria"] = [value]
            elif rubric == "talk" and field == "candidate":
                record["response"] = value
            else:
                record[field] = value
    return record


def fields_with(word: str, row: Row) -> set[str]:
    """Return the fields of a row in which a word stands."""
    texts: dict[str, object] = {
        "instruction": row.instruction,
        "reference": row.reference,
        "criterion": [each.text for each in row.criteria],
        "id": row.id,
        **row.fields,
    }
    for place, response in enumerate(row.responses):
        texts[f"response {place}"] = response.text
        texts[f"system {place}"] = response.system
    return {name for name, text in texts.items() if word in str(text)}


def check_fed_once(row: Row, word: str, *, is_conversation: bool) -> None:
    """Check that a value is in at most one field, but for those that a conversation derives from its turns."""
    found = fields_with(word, row)
    derived = found & {"instruction", "response 0", "response 1"}
    if is_conversation and derived:
        found = (found - derived) | {"conversation"}
    assert len(found) < 2, (found, row)


@pytest.mark.parametrize("rubric", RUBRICS)
def test_no_value_feeds_two_fields(rubric: str) -> None:
    for first, second in combinations(all_names(rubric), 2):
        for kind, other in product(KINDS, KINDS):
            columns = {first: value_of(kind, "alpha"), second: value_of(other, "omega")}
            for record in (filled(columns, rubric), filled(columns, rubric, given=JUDGED)):
                for row in rows_or_refusal([record], RUBRICS[rubric]):
                    if isinstance(row, Row):
                        check_fed_once(row, "alpha", is_conversation=rubric == "talk" or kind == "turns")
                        check_fed_once(row, "omega", is_conversation=rubric == "talk" or other == "turns")


@pytest.mark.parametrize("rubric", RUBRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_is_given_to_a_field_feeds_no_other(tmp_path: Path, rubric: str, kind: str) -> None:
    judged = 0
    for field, name in product(fields_of(rubric), all_names(rubric)):
        record = filled({name: value_of(kind, "alpha")}, rubric, given=(field,))
        file = write_lines(tmp_path / "rows.jsonl", [record]).path
        try:
            rows = rows_in([file], RUBRICS[rubric], columns=[f"{field}={name}"])
        except UsageError:
            continue
        for row in rows:
            if isinstance(row, Row):
                judged += 1
                check_fed_once(row, "alpha", is_conversation=rubric == "talk" or kind == "turns")
    assert judged > 0


def shown_in(field: str, rubric: str) -> set[str]:
    """Return where the text of a field stands in a row."""
    if rubric == "talk" and field in ("instruction", "candidate"):
        return {"response 0"}
    places = {"candidate": "response 0", "candidate_a": "response 0", "candidate_b": "response 1"}
    systems = {"system": "system 0", "system_a": "system 0", "system_b": "system 1"}
    return {(places | systems).get(field, field)}


@pytest.mark.parametrize("rubric", RUBRICS)
def test_two_texts_under_usual_names_are_each_in_their_field(rubric: str) -> None:
    for field, other in combinations(fields_of(rubric), 2):
        for name, other_name in product(names_of(field), names_of(other)):
            if OF_A_SHAPE.isdisjoint([name, other_name]) and (rubric, other_name) != ("talk", "candidate"):
                texts = {name: text_for(field, "alpha"), other_name: text_for(other, "omega")}
                record = filled(texts, rubric)
                (row,) = rows_of_objects([record], RUBRICS[rubric])
                assert isinstance(row, Row), (record, row)
                assert shown_in(field, rubric) <= fields_with("alpha", row), (record, row)
                assert shown_in(other, rubric) <= fields_with("omega", row), (record, row)


def text_for(field: str, word: str) -> Any:
    """Return a text, or a list of one as a list of criteria."""
    return value_of("text", word) if field != "criterion" else [f"{word} 1"]
