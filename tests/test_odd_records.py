"""Records that invite a wrong reading: each is refused, or fails alone; no other text is judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from one_row import as_row

from localjudge import Failure, Row, UsageError, read_rows
from localjudge.rows.columns import ReadingFlags, parse_columns
from localjudge.rows.inputs import Inputs
from localjudge.rows.joins import JoinedRecord, Joins
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


def test_the_rows_own_column_comes_before_the_one_of_the_joined_file(tmp_path: Path) -> None:
    used = ("instruction", "candidate", "context")
    records = [{"id": n, "prompt": "q", "context": None} for n in range(9)]
    records += [{"id": 9, "prompt": "q", "context": "own"}]
    rows = write(tmp_path / "a.jsonl", [record | {"response": None} for record in records])
    gold = [{"id": n, "context": "other", "response": "gold"} for n in range(10)]
    joined = write(tmp_path / "gold.jsonl", gold)
    named = parse_columns(["candidate=response"], used, join=str(joined), on="id")
    assert not [row for row in Inputs([str(rows)], named, used).rows() if isinstance(row, Row)]
    other = parse_columns(["candidate=gold.response"], used, join=str(joined), on="id")
    found = [row for row in Inputs([str(rows)], other, used).rows() if isinstance(row, Row)]
    assert [row.fields["context"] for row in found] == ["own"]


def test_messages_that_are_missing_in_the_first_records_are_not_replaced(tmp_path: Path) -> None:
    gold, real = ([{"role": "user", "content": "q"}, {"role": "assistant", "content": text}] for text in "gr")
    records: list[dict[str, Any]] = [{"messages": None, "best_messages": gold}] * 100
    records.append({"messages": real, "best_messages": gold})
    assert judged(tmp_path, records) == [None] * 100 + [("r",)]


def test_examples_that_repeat_the_question_are_not_its_response(tmp_path: Path) -> None:
    shots = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "shot"}]
    assert judged(tmp_path, [{"question": "q", "few_shot": shots}] * 3) == [None] * 3
    assert judged(tmp_path, [{"few_shot": shots}] * 3, ANSWERS, "messages=few_shot") == [("shot",)] * 3


@pytest.mark.parametrize("name", ["response", "output", "model_output"])
def test_a_declared_response_of_another_kind_is_not_replaced(tmp_path: Path, name: str) -> None:
    record = {"instruction": "q", "input": "i", "reference": "gold", name: {"text": "a"}}
    assert judged(tmp_path, [record] * 3) == [None] * 3


def test_one_bad_element_of_a_list_of_responses_fails_alone(tmp_path: Path) -> None:
    record = {"id": "x", "prompt": "q", "samples": [{"text": "a"}, {"text": 5}, {"text": "c"}]}
    inputs = inputs_of(tmp_path, [record], ANSWERS, "candidate=samples[*].text")
    first, second, third = inputs.rows()
    assert isinstance(first, Row)
    assert isinstance(second, Failure)
    assert isinstance(third, Row)
    assert [row.id for row in (first, second, third)] == ["x-1", "x-2", "x-3"]
    assert "is a number or a boolean" in second.reason


def test_a_history_that_appears_in_later_records_is_said(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    record: dict[str, Any] = {"question": "q", "response": "r", "history": []}
    inputs = inputs_of(tmp_path, [record] * 100 + [record | {"history": turns}])
    assert len(list(inputs.rows())) == 101
    (line,) = inputs.late.lines
    assert line.startswith("'history' has values in 1 record from ")
    assert line.endswith("--column history=history")


def test_two_histories_are_refused_with_the_flags_of_both(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    record = {"question": "q", "history": turns, "chat_history": turns[:1] + [turns[1] | {"content": "Ho"}]}
    for used, responses in ((ANSWERS, {"response": "r"}), (PAIRS, {"response_a": "a", "response_b": "b"})):
        inputs = inputs_of(tmp_path, [record | responses], used)
        with pytest.raises(UsageError, match="`columns` history=history or `columns` history=chat_history"):
            inputs.check()
    both = inputs_of(
        tmp_path, [record | {"response": "r"}], ANSWERS, "history=history", "messages=chat_history"
    )
    with pytest.raises(UsageError, match="history and messages"):
        both.check()


def test_two_joined_files_do_not_fill_the_gaps_of_each_other(tmp_path: Path) -> None:
    joins = Joins(ReadingFlags(join="first.jsonl", on="id"))
    joins.read_given("first.jsonl", [(1, {"id": 1, "context": "c"}), (2, {"id": 2})])
    joins.read_aside("b.jsonl", [(1, {"question_id": 2, "category": "math", "turns": ["t"], "context": "d"})])
    assert joins.files == ["b.jsonl"]
    joined = joins.joined({"id": 2, "question_id": 2})
    assert isinstance(joined, JoinedRecord)
    assert "context" not in joined.other
    assert joined.other["category"] == "math"


def test_a_record_without_the_messages_of_its_file_fails(tmp_path: Path) -> None:
    used = ("instruction", "candidate", "conversation")
    before = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    turns = [*before, {"role": "user", "content": "q"}]
    record: dict[str, Any] = {"question": "q", "response": "r", "messages": turns}
    found = judged(tmp_path, [record] * 3 + [record | {"messages": None}], used)
    assert found == [("r",)] * 3 + [None]


def test_an_object_beside_a_text_is_written_as_json(tmp_path: Path) -> None:
    record: dict[str, Any] = {"instruction": "Sum it", "input": {"a": True, "b": None}, "output": "r"}
    text = [row.instruction for row in inputs_of(tmp_path, [record] * 3).rows() if isinstance(row, Row)]
    assert text == ['Sum it\n\n{"a": true, "b": null}'] * 3


def test_a_text_that_speaks_of_a_data_address_is_no_image(tmp_path: Path) -> None:
    record = {"prompt": "q", "response": "r", "note": "data:image/png is how an address begins"}
    assert judged(tmp_path, [record]) == [("r",)]
    assert judged(tmp_path, [record | {"note": "data:image/png;base64,iVBORw0KGgo="}]) == [None]
