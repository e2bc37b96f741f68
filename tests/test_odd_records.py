"""Records that invite a wrong reading: each is refused, or fails alone; no other text is judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from one_row import as_row

from localjudge import Failure, Row, UsageError, read_rows
from localjudge.rows.columns import parse_columns
from localjudge.rows.inputs import Inputs
from localjudge.rows.program_rows import rows_of_program

ANSWERS = ("instruction", "candidate")
PAIRS = ("instruction", "candidate_a", "candidate_b")


def write(file: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def inputs_of(
    folder: Path, records: Iterable[Mapping[str, Any]], used: Sequence[str] = ANSWERS, *columns: str
) -> Inputs:
    file = write(folder / "a.jsonl", records)
    return Inputs([str(file)], parse_columns(columns, used), used)


def judged(
    folder: Path, records: Iterable[Mapping[str, Any]], used: Sequence[str] = ANSWERS, *columns: str
) -> list[tuple[str, ...] | None]:
    """Return the texts of the responses of each row; None for a failure."""
    rows = inputs_of(folder, records, used, *columns).rows()
    return [row.texts if isinstance(row, Row) else None for row in rows]


@pytest.mark.parametrize(
    "record",
    [
        {"question": "2+2?", "model": "north", "prediction": 4, "answer": "4 because"},
        {"question": "q", "model": "north", "response": {"content": "five"}, "answer": "four"},
        {"question": "q", "response": None, "answer": "gold", "model": "north"},
        {"question": "q", "response": [], "answer": "gold", "model": "north"},
        {"question": "q", "candidate": 5, "output": "other"},
        {"question": "q", "candidate": {"a": 1}, "output": "other"},
        {"prompt": ["a", "b"], "input": "ctx", "response": "r"},
        {"question": {"text": "a"}, "input": "ctx", "response": "r"},
        {"question": "q", "Response": "a", "RESPONSE": "b"},
    ],
)
def test_a_column_of_another_kind_gives_its_field_to_no_other(tmp_path: Path, record: dict[str, Any]) -> None:
    inputs = inputs_of(tmp_path, [record] * 3)
    with pytest.raises(UsageError):
        inputs.check()
    assert all(isinstance(row, Failure) for row in inputs.rows())


def test_a_response_that_is_missing_in_the_first_records_is_not_replaced(tmp_path: Path) -> None:
    late = {"question": "q", "response": "real", "answer": "gold", "model": "north"}
    records = [late | {"response": None}] * 100 + [late]
    assert judged(tmp_path, records) == [None] * 101
    assert judged(tmp_path, records, ANSWERS, "candidate=response") == [None] * 100 + [("real",)]


def test_a_file_with_responses_is_not_joined_with_others(tmp_path: Path) -> None:
    problem = {"prompt": "p", "entry_point": "f", "canonical_solution": "s"}
    answers: list[dict[str, Any]] = [
        problem | {"task_id": f"t{n}", "completion": "c" if n < 2 else None} for n in range(5)
    ]
    files = [
        write(tmp_path / "a.jsonl", answers),
        write(tmp_path / "b.jsonl", [{"task_id": f"t{n}", "completion": "other"} for n in range(5)]),
    ]
    inputs = Inputs([str(file) for file in files], {}, ANSWERS)
    assert [file.name for file in inputs.files] == [str(file) for file in files]
    with pytest.raises(UsageError):
        inputs.check()


def test_a_list_of_responses_in_a_joined_file_is_a_row_for_each(tmp_path: Path) -> None:
    rows = write(tmp_path / "a.jsonl", [{"id": 1, "prompt": "q"}])
    other = write(tmp_path / "b.jsonl", [{"id": 1, "response": ["bad", "good"]}])
    columns = parse_columns((), ANSWERS, join=str(other), on="id")
    assert [row.candidate for row in read_rows([str(rows)], columns, used=ANSWERS)] == ["bad", "good"]


def test_one_record_with_decoded_values_changes_no_other(tmp_path: Path) -> None:
    base = {"state": "OK", "request": json.dumps("Capital of Peru?"), "response": json.dumps("Lima")}
    traces: list[dict[str, Any]] = [base | {"trace_id": f"t{n}"} for n in range(9)]
    traces.append(base | {"trace_id": "t9", "response": {"a": 1}})
    assert judged(tmp_path, traces) == [("Lima",)] * 9 + [None]


def test_an_object_is_no_list_of_responses(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [{"prompt": "q", "response": ["x", "y"]}] * 2
    records.append({"prompt": "q", "response": {"error": "timeout", "code": "z"}})
    assert judged(tmp_path, records) == [("x",), ("y",)] * 2 + [None]


def test_objects_that_are_read_side_by_side_are_matched_by_their_keys(tmp_path: Path) -> None:
    record = {
        "prompt": "q",
        "items": {"k1": {"a": "x1"}, "k2": {"a": "x2"}},
        "others": {"k2": {"b": "y2"}, "k1": {"b": "y1"}},
    }
    columns = ("candidate_a=items[*].a", "candidate_b=others[*].b")
    assert judged(tmp_path, [record], PAIRS, *columns) == [("x1", "y1"), ("x2", "y2")]
    record["others"] = {"k3": {"b": "y3"}, "k1": {"b": "y1"}}
    assert judged(tmp_path, [record], PAIRS, *columns) == [None]


@pytest.mark.parametrize(
    ("record", "flag"),
    [
        ({"prompt": "q", "output": "resp"}, 'reference="output"'),
        ({"prompt": "q", "responses": ["a", "b"]}, "reference=responses[0]"),
    ],
)
def test_a_value_feeds_one_field_however_its_path_is_written(record: dict[str, Any], flag: str) -> None:
    used = ("instruction", "reference", "candidate")
    row = as_row(record, "a:1", parse_columns([flag], used), used)
    assert isinstance(row, Failure)


def test_a_system_of_names_is_no_prompt_of_a_system(tmp_path: Path) -> None:
    records = [{"instruction": "q", "input": "", "output": "a", "system": "north"}] * 3
    for row in inputs_of(tmp_path, records).rows():
        assert isinstance(row, Row)
        assert (row.instruction, row.system) == ("q", "north")


def test_a_pair_without_a_turn_of_the_user_has_no_instruction(tmp_path: Path) -> None:
    def talk(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]

    records = [{"chosen": talk("c"), "rejected": talk("d")}] * 3
    records.append({"chosen": talk("c")[1:], "rejected": talk("d")[1:]})
    assert judged(tmp_path, records, PAIRS) == [("c", "d")] * 3 + [None]


def test_one_record_of_another_form_does_not_decide_the_form(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [{"input": "q", "output": "a", "id": n} for n in range(99)]
    records.append({"instruction": "do", "input": "it", "output": "x"})
    found = judged(tmp_path, records)
    assert found == [("a",)] * 99 + [None]


def test_a_flag_takes_one_column_of_a_later_record_and_nothing_else(tmp_path: Path) -> None:
    used = ("instruction", "candidate")
    records: list[dict[str, Any]] = [{"prompt": "q", "response": "r"}] * 100
    records.append({"prompt": "q", "output": "other", "response": "r", "gold": "g", "model": "m"})
    inputs = inputs_of(tmp_path, records, used, "system=model")
    inputs.check()
    (reading,) = inputs.readings.values()
    assert set(reading.fields) == {"instruction", "candidate", "system"}


def test_an_empty_response_does_not_change_the_form_of_its_record(tmp_path: Path) -> None:
    problem = {"prompt": "p", "entry_point": "f", "canonical_solution": "s"}
    records = [problem | {"task_id": f"t{n}", "completion": "c" * (n % 2)} for n in range(4)]
    assert judged(tmp_path, records) == [("",), ("c",), ("",), ("c",)]


def test_a_turn_of_another_kind_fails_its_record(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    record: dict[str, Any] = {"question": "q", "response": "r", "history": history}
    assert judged(tmp_path, [record] * 3 + [record | {"history": "text"}]) == [("r",)] * 3 + [None]


def test_a_prompt_that_ends_with_the_assistant_is_not_answered_by_another_response(tmp_path: Path) -> None:
    gold = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "gold"}]
    assert judged(tmp_path, [{"prompt": gold, "response": "r"}] * 3) == [None] * 3
    pair = {"prompt": gold, "response_a": "a", "response_b": "b"}
    assert judged(tmp_path, [pair] * 3, PAIRS) == [None] * 3
    asked: dict[str, Any] = {"messages": gold[:1], "response": "r"}
    assert judged(tmp_path, [asked] * 3 + [asked | {"messages": gold}]) == [("r",)] * 3 + [None]


def test_deep_values_many_columns_and_quotes_in_names_are_no_obstacle(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    assert judged(
        tmp_path, [{"prompt": "q", "response": "r", "x": deep}, {"prompt": "q", "response": "r"}]
    ) == [
        None,
        ("r",),
    ]
    wide = [{"prompt": "q", "response": "r"} | {f"c{n}-{place}": 1 for place in range(500)} for n in range(20)]
    assert judged(tmp_path, wide) == [("r",)] * 20
    named = {"prompt": "q", 'my "resp"': "r"}
    assert judged(tmp_path, [named], ANSWERS, 'candidate=my "resp"') == [("r",)]


@pytest.mark.parametrize("flags", [{"encoded": ["typo"]}, {"encoded": ["a[*].b"]}])
def test_an_encoded_column_that_is_not_there_is_refused(tmp_path: Path, flags: dict[str, Any]) -> None:
    file = write(tmp_path / "a.jsonl", [{"prompt": "q", "response": "r", "a": [{"b": "{}"}]}])
    with pytest.raises(UsageError, match="encoded"):
        Inputs([str(file)], parse_columns((), ANSWERS, **flags), ANSWERS).check()


def test_the_own_names_of_fields_come_before_a_shape(tmp_path: Path) -> None:
    record = {"instruction": "q", "candidate": "mine", "user_input": "i", "response": "evil"}
    assert judged(tmp_path, [record]) == [("mine",)]


def test_a_missing_number_in_a_list_is_null_in_every_source(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"question": ["q"], "response": ["r"], "context": [[1.0, float("nan")]]})
    frame.to_parquet(tmp_path / "a.parquet")
    used = ("instruction", "candidate", "context")
    (of_frame,) = rows_of_program(frame, used)
    (of_file,) = read_rows([str(tmp_path / "a.parquet")], used=used)
    assert isinstance(of_frame, Row)
    assert isinstance(of_file, Row)
    assert of_frame.fields == of_file.fields == {"context": "[1.0, null]"}
    assert of_frame.digest == of_file.digest
