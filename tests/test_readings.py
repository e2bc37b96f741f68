"""Readings of records that can mean two things: each is read in the one way that is right, or refused."""

from __future__ import annotations

import bz2
import csv
import io
import json
import lzma
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from conftest import Cli
from one_row import as_row, checked_inputs
from shapes_of_written_files import FOLDER

from localjudge import Failure, Row, Rubric, UsageError, read_rows
from localjudge.rows.columns import parse_columns
from localjudge.rows.inputs import RecordStream, find_inputs, names_of_files
from localjudge.rows.shapes import recognized, shapes

SINGLE = ("instruction", "reference", "candidate")
ANSWERS = ("instruction", "candidate")
PAIRS = ("instruction", "candidate_a", "candidate_b")
WHOLE = tuple(Rubric.load("conversation").fields)


def row_of(record: Mapping[str, Any], used: Sequence[str] = ANSWERS, *columns: str) -> Row:
    row = as_row(record, "a:1", parse_columns(columns, used), used)
    assert isinstance(row, Row), row
    return row


def reason_of(record: Mapping[str, Any], used: Sequence[str] = ANSWERS, *columns: str) -> str:
    row = as_row(record, "a:1", parse_columns(columns, used), used)
    assert isinstance(row, Failure), row
    return row.reason


def rows_in(file: Path, data: bytes | str, used: Sequence[str] = ANSWERS, **reading: Any) -> list[Row]:
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    columns = parse_columns((), used, **reading)
    assert checked_inputs(find_inputs([str(file)]), columns, used).empty == []
    rows = list(read_rows([str(file)], columns, used=used))
    return [row for row in rows if isinstance(row, Row)]


def lines(*records: Mapping[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


GOLD = {"question": "2 + 2?", "answer": "4"}


def test_a_column_that_is_given_to_one_field_is_in_no_other() -> None:
    row = row_of(GOLD | {"response": "5"}, SINGLE, "reference=answer")
    assert (row.reference, row.candidate) == ("4", "5")
    assert reason_of(GOLD | {"said": "5"}, SINGLE, "reference=answer").startswith("no candidate; ")
    with pytest.raises(UsageError, match="'answer' is the column of the reference; give another one"):
        parse_columns(["reference=answer", "candidate=answer"], SINGLE)


@pytest.mark.parametrize("name", ["answer", "output"])
def test_a_name_of_responses_and_of_references_is_taken_where_one_reading_is_possible(name: str) -> None:
    record = {"question": "2 + 2?", name: "4", "model": "m"}
    assert row_of(record).candidate == "4"
    assert row_of(record | {"reference": "four"}, SINGLE).candidate == "4"
    problem = reason_of(record | {"llm_answer": "5"})
    assert f"{name!r} can be the candidate or the reference of 'llm_answer'" in problem
    assert f"reference={name}" in problem
    assert (
        row_of(record | {"llm_answer": "5"}, SINGLE, f"reference={name}", "candidate=llm_answer").candidate
        == "5"
    )


@pytest.mark.parametrize("response", [{"pred": "A"}, {}])
def test_a_list_of_right_answers_is_not_judged(response: Mapping[str, str]) -> None:
    record = {"input": "Q", "outputs": ["gold", "another"], **response}
    assert reason_of(record).startswith("no candidate; its columns are input, outputs")
    assert row_of(record, ANSWERS, "candidate=outputs[*]").candidate == "gold"
    listed = {"input": "Q", "outputs": [{"text": "B"}]}
    assert row_of(listed).candidate == "B"
    assert row_of(listed | {"prediction": "A"}).candidate == "A"


@pytest.mark.parametrize("name", ["responses", "completions", "generations", "predictions"])
@pytest.mark.parametrize("beside", [{"prediction": "4"}, {"pred": ["4", "5"]}, {"model_output": "4"}])
def test_responses_in_a_list_are_judged_beside_the_answer_that_was_read_from_them(
    tmp_path: Path, name: str, beside: Mapping[str, Any]
) -> None:
    record = {"question": "2+2?", "reference": "4", name: ["It is 4.", "It is 5."], **beside}
    rows = rows_in(tmp_path / "a.jsonl", lines(record), SINGLE)
    assert [row.candidate for row in rows] == ["It is 4.", "It is 5."]


def test_an_answer_alone_is_refused_with_both_readings() -> None:
    problem = reason_of(GOLD)
    assert problem.startswith(
        "'answer' can be the candidate or the reference; choose with `columns` candidate="
    )
    assert row_of(GOLD, ANSWERS, "candidate=answer").candidate == "4"
    assert row_of(GOLD | {"@filename": "m"}, ANSWERS, "system=@filename").candidate == "4"
    assert row_of({"question": "2 + 2?", "output": "4"}).candidate == "4"


def test_an_instruction_and_its_input_are_one_text() -> None:
    record = {"instruction": "Shorten.", "input": "A long text.", "output": "Text."}
    assert row_of(record).instruction == "Shorten.\n\nA long text."
    assert row_of(record | {"input": ""}).instruction == "Shorten."
    pair = {"instruction": "Shorten.", "input": "A long text.", "response1": "A", "response2": "B"}
    assert row_of(pair, PAIRS).instruction == "Shorten.\n\nA long text."


@pytest.mark.parametrize("empty", ["", None, [], float("nan")])
def test_an_empty_reference_is_a_missing_one(empty: Any) -> None:
    row = row_of({"question": "Q", "reference": empty, "response": "A"}, SINGLE)
    assert row.reference is None
    assert Rubric.load().refusal(row) is not None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (4, "4"),
        (4.5, "4.5"),
        (True, "true"),
        (0, "0"),
        (["4", "four"], "4\nor\nfour"),
        (["4"], "4"),
        ([4, ""], "4"),
    ],
)
def test_a_reference_is_text_and_a_list_of_them_has_alternatives(given: Any, text: str) -> None:
    assert row_of({"question": "Q", "reference": given, "response": "A"}, SINGLE).reference == text


CHAT = [{"role": "user", "content": "Capital of Peru?"}, {"role": "assistant", "content": "Lima"}]


def test_a_system_that_is_a_prompt_begins_the_conversation() -> None:
    row = row_of({"model": "m", "system": "Answer in one word.", "messages": CHAT}, WHOLE)
    assert row.system == "m"
    assert row.candidate.startswith("System:\n> Answer in one word.\n\nUser:\n> Capital")
    assert row_of({"system": "m", "messages": CHAT}, WHOLE).system == "m"
    problem = reason_of({"model": "m", "system": "pirate", "messages": CHAT}, WHOLE)
    assert "'system' can be a prompt or, like 'model', the name of a system" in problem
    row = row_of({"instruction": "Q", "input": "", "output": "A", "system": "Be a poet.", "history": []}, WHOLE)
    assert (row.system, row.candidate.splitlines()[0]) == (None, "System:")


def test_a_history_is_pairs_or_messages_also_in_a_declared_cell_and_anything_else_fails(tmp_path: Path) -> None:
    record = {"instruction": "And Chile?", "output": "Santiago"}
    as_pairs = [["Capital of Peru?", "Lima"]]
    row = row_of(record | {"history": as_pairs}, WHOLE)
    assert row.candidate.startswith("User:\n> Capital of Peru?\n\nAssistant:\n> Lima\n\nUser:\n> And Chile?")
    assert row_of(record | {"history": CHAT}, WHOLE).candidate == row.candidate
    cell = json.dumps(as_pairs).replace('"', '""')
    table = f'instruction,output,history\nAnd Chile?,Santiago,"{cell}"\n'
    found = rows_in(tmp_path / "a.csv", table, WHOLE, encoded=["history"])
    assert [each.candidate for each in found] == [row.candidate]
    problem = reason_of(record | {"history": [{"q": "Capital of Peru?"}]}, WHOLE)
    assert problem == "its history is not a list of pairs or of messages"


@pytest.mark.parametrize("media", ["image", "images", "videos", "audio"])
def test_images_and_sound_in_a_column_of_their_own_fail_the_row(media: str) -> None:
    problem = reason_of({"messages": CHAT, media: ["1.jpg"]})
    assert problem == f"has an image, sound or a video in {media!r}; only text is judged"
    assert row_of({"messages": CHAT, media: []}).candidate == "Lima"


def test_a_path_leads_to_any_value() -> None:
    record = {"in": {"q": "Q"}, "out": [{"text": "A"}, {"text": "B"}], "json": '{"k": ["R"]}', "a.b": "dotted"}
    columns = parse_columns(
        ["instruction=in.q", "candidate=out[-1].text", "reference=json.k[0]", "id=a.b"],
        SINGLE,
        encoded=["json"],
    )
    row = as_row(record, "a:1", columns, SINGLE)
    assert isinstance(row, Row)
    assert (row.instruction, row.candidate, row.reference, row.id) == ("Q", "B", "R", "dotted")


@pytest.mark.parametrize(
    ("said", "systems"),
    [
        ([{"model": "m", "text": "A"}, {"model": "n", "text": "B"}], "said[*].model"),
        ({"m": {"text": "A"}, "n": {"text": "B"}}, "said[*].@key"),
    ],
)
def test_each_of_several_responses_is_a_row(tmp_path: Path, said: Any, systems: str) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"question": "Q", "id": "q", "said": said}))
    columns = {"candidate": "said[*].text", "system": systems}
    rows = list(read_rows([str(tmp_path / "a.jsonl")], columns, used=ANSWERS))
    assert [(row.candidate, row.system, row.id) for row in rows if isinstance(row, Row)] == [
        ("A", "m", "q"),
        ("B", "n", "q"),
    ]


def test_chat_lists_under_any_column_are_conversations() -> None:
    asked, said = CHAT[:1], CHAT[1:]
    rows = [
        row_of({"prompt": asked, "completion": said}),
        row_of({"prompt": asked, "response": "Lima"}),
        row_of({"prompt": CHAT}),
        row_of({"traj": CHAT}),
        row_of(
            {
                "conversations": [
                    {"from": "human", "value": "Capital of Peru?"},
                    {"from": "gpt", "value": "Lima"},
                ]
            }
        ),
    ]
    assert {(row.instruction, row.candidate) for row in rows} == {("Capital of Peru?", "Lima")}
    other = [{"role": "assistant", "content": "Cusco"}]
    for pair in (
        {"prompt": asked, "chosen": said, "rejected": other},
        {"prompt": "Capital of Peru?", "chosen": said, "rejected": other},
        {"chosen": CHAT, "rejected": [*asked, *other]},
    ):
        row = row_of(pair, PAIRS)
        assert (row.instruction, row.texts) == ("Capital of Peru?", ("Lima", "Cusco"))


def test_a_prompt_of_several_turns_is_shown_as_a_whole_by_a_rubric_without_a_conversation() -> None:
    asked = [*CHAT, {"role": "user", "content": "And of Chile?"}]
    row = row_of({"prompt": asked, "response": "Santiago"})
    assert row.instruction == ("User:\n> Capital of Peru?\n\nAssistant:\n> Lima\n\nUser:\n> And of Chile?")
    assert row.candidate == "Santiago"
    assert reason_of({"prompt": asked}).startswith("no candidate; its columns are prompt; name them with ")
    pair = {"prompt": asked, "chosen": CHAT[1:], "rejected": CHAT[1:]}
    assert reason_of(pair).endswith("or compare the two responses of each record: --rubric pairwise")


@pytest.mark.parametrize("name", ["prompt", "conversation"])
def test_a_prompt_beside_the_whole_conversation_is_a_part_of_it(name: str) -> None:
    used = (*ANSWERS, "conversation") if name == "conversation" else ANSWERS
    row = row_of({name: CHAT[:1], "messages": CHAT}, used)
    assert (row.instruction, row.candidate) == ("Capital of Peru?", "Lima")
    assert row.fields.get("conversation", "User:\n> Capital of Peru?") == "User:\n> Capital of Peru?"


STRUCTURED = '{"text": "A", "response": "B"}'


@pytest.mark.parametrize(
    ("record", "used"),
    [
        ({"prompt": "Q", "responses": [STRUCTURED]}, ANSWERS),
        ({"inputs": {"question": "Q"}, "outputs": STRUCTURED, "expectations": {}}, ANSWERS),
        ({"prompt": "Q", "chosen": '["A", "B"]', "rejected": '["C"]'}, PAIRS),
        ({"inputs": "Q", "outputs": STRUCTURED, "ground_truth": '{"text": "A"}'}, ANSWERS),
        ({"id": "1", "input": "Q", "output": STRUCTURED, "expectedOutput": "A", "metadata": "run 7"}, ANSWERS),
    ],
)
def test_an_answer_that_is_json_is_judged_as_it_was_written(
    record: Mapping[str, Any], used: Sequence[str]
) -> None:
    assert row_of(record, used).texts[0] in (STRUCTURED, '["A", "B"]')


LM_EVAL = {
    "doc_id": 0,
    "doc": {"q": "Q"},
    "target": "A",
    "arguments": {"gen_args_0": {"arg_0": "Q", "arg_1": {}}},
    "resps": [["A"]],
}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize(
    ("values", "responses"),
    [
        ({"inputs": {"question": "Q"}, "outputs": {"response": "A"}, "expectations": {}}, ("A",)),
        ({"question": "Q", "responses": ["A", "B"]}, ("A", "B")),
        (LM_EVAL, ("A",)),
    ],
)
def test_a_text_is_read_as_json_where_its_column_is_declared_in_every_format(
    tmp_path: Path, name: str, values: Mapping[str, Any], responses: Sequence[str]
) -> None:
    encoded = [key for key, value in values.items() if not isinstance(value, str | int)]
    record = {key: json.dumps(value) if key in encoded else value for key, value in values.items()}
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if name == "a.tsv" else ",")
    writer.writerows([record, record.values()])
    (tmp_path / name).write_text(lines(record) if name == "a.jsonl" else text.getvalue())
    (tmp_path / "more.jsonl").write_text(lines({"key": record[next(iter(record))], "note": 1}))
    join = {"@join": str(tmp_path / "more.jsonl"), "@on": f"{next(iter(record))}=key"}
    for columns in ({}, {"system": "@filename"}, join):
        for declared in (encoded, []):
            flags = columns | parse_columns((), ANSWERS, encoded=declared)
            rows = list(read_rows([str(tmp_path / name)], flags, used=ANSWERS))
            read = [(row.instruction, row.candidate) for row in rows if isinstance(row, Row)]
            assert (read == [("Q", response) for response in responses]) == bool(declared)


def test_a_conversation_needs_a_question_and_a_response() -> None:
    asked = [*CHAT, {"role": "user", "content": "And of Chile?"}]
    for record in ({"response": "Lima"}, {"question": "", "response": "Lima"}):
        assert reason_of(record, WHOLE).startswith("'response' has no question before it; name the turns")
    for column in ("messages", "prompt"):
        assert reason_of({column: asked, "response": None}, WHOLE) == "no candidate: no value at 'response'"
    assert row_of({"messages": asked}, WHOLE).candidate.endswith("User:\n> And of Chile?")


def test_items_of_the_responses_api_are_turns() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "dry"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "No."}]},
    ]
    assert row_of({"messages": items}, WHOLE).candidate == (
        "User:\n> Rain?\n\nAssistant, call 1:\n> weather {}\n\n"
        "Tool, result of call 1:\n> dry\n\nAssistant:\n> No."
    )


TURNS = {"prompt": '["One?", "Two?"]', "response_a": '["1", "2"]', "response_b": '["A", "B"]'}


def test_lists_of_turns_are_conversations_of_two_systems() -> None:
    won = {"winner_model_a": "1", "winner_model_b": "0", "winner_tie": "0"}
    row = row_of({"id": "1", "model_a": "m", "model_b": "n", **TURNS, **won}, PAIRS)
    assert row.instruction == "One?\n\nTwo?"
    assert row.texts[1] == "User:\n> One?\n\nAssistant:\n> A\n\nUser:\n> Two?\n\nAssistant:\n> B"


def test_a_tsv_without_quoting_keeps_its_lines_and_one_with_quoting_its_texts(tmp_path: Path) -> None:
    header = "question\treference\tresponse\n"
    rows = rows_in(tmp_path / "a.tsv", header + 'q1\tr1\t"To be or not\nq2\tr2\tto be"\nq3\tr3\ta3\n')
    assert [row.candidate for row in rows] == ['"To be or not', 'to be"', "a3"]
    rows = rows_in(tmp_path / "b.tsv", header + 'q1\tr1\t"say ""hi"""\nq2\tr2\tx\n')
    assert [row.candidate for row in rows] == ['say "hi"', "x"]
    rows = rows_in(tmp_path / "c.tsv", header + 'q1\tr1\t"two\nlines"\n')
    assert [row.candidate for row in rows] == ["two\nlines"]


TWICE = [{"question": "Q", "response": "A"}] * 2
WRAPPED = {"version": 3, "results": {"stats": {"n": 2}, "results": TWICE}}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", "sep=;\nquestion;response\nQ;A\nQ;A\n"),
        ("a.csv", "Question,Response\nQ,A\nQ,A\n"),
        ("a.CSV", "question, response \nQ,A\nQ,A\n"),
        ("a.JSONL", lines(*TWICE)),
        ("a.jsonlines", lines(*TWICE)),
        ("a.txt", lines(*TWICE)),
        ("a.jsonl", json.dumps(TWICE)),
        ("a.jsonl", json.dumps(TWICE[0], indent=2) * 2),
        ("a.json", ",\n".join(map(json.dumps, TWICE))),
        ("a.json", json.dumps(WRAPPED)),
        ("a.json", json.dumps(WRAPPED, indent=1)),
        ("a.json", json.dumps(dict(zip(("one", "two"), TWICE, strict=True)))),
        ("a.json", json.dumps({"columns": ["question", "response"], "data": [["Q", "A"]] * 2})),
        ("a.jsonl.bz2", bz2.compress(lines(*TWICE).encode())),
        ("a.jsonl.xz", lzma.compress(lines(*TWICE).encode())),
        ("a.jsonl.zst", pyarrow.compress(lines(*TWICE).encode(), "zstd", asbytes=True)),
    ],
)  # fmt: skip
def test_rows_are_found_whatever_is_wrapped_around_them(tmp_path: Path, name: str, data: bytes | str) -> None:
    rows = rows_in(tmp_path / name, data)
    assert [(row.instruction, row.candidate) for row in rows] == [("Q", "A")] * 2


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (json.dumps(TWICE), "an array of objects"),
        (json.dumps(TWICE[0], indent=2) * 2, "objects of several lines"),
        (lines(*TWICE), ""),
    ],
)
def test_a_file_of_json_lines_that_is_something_else_is_said_to_be(
    tmp_path: Path, data: str, word: str
) -> None:
    (tmp_path / "a.jsonl").write_text(data)
    checked = checked_inputs(find_inputs([str(tmp_path / "a.jsonl")]), {}, ANSWERS)
    assert (f"read as: {word}" in checked.how) == bool(word)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"input": "Q", "actual_output": "A"},
            "read as: DeepEval's test cases, instruction=input candidate=actual_output",
        ),
        ({"prompt": "Q", "chosen": ["A"], "rejected": ["B"]}, "instruction=prompt candidate=chosen + rejected"),
        ({"prompt": CHAT[:1], "completion": CHAT[1:]}, "instruction=prompt candidate=completion"),
    ],
)
def test_the_first_line_names_the_columns_that_were_taken(
    tmp_path: Path, record: dict[str, Any], said: str
) -> None:
    (tmp_path / "a.jsonl").write_text(lines(record))
    assert checked_inputs(find_inputs([str(tmp_path / "a.jsonl")]), {}, ANSWERS).how.endswith(said)


def test_another_encoding_is_said_once_for_a_file_and_not_of_one_in_utf_8(tmp_path: Path) -> None:
    rows = "question,response\nQ,A\n" + "Où?,Là.\n" * 3
    for encoding, times in (("cp1252", 1), ("utf-8", 0), ("utf-16", 0)):
        (tmp_path / "a.csv").write_text(rows, encoding)
        said = checked_inputs(find_inputs([str(tmp_path / "a.csv")]), {}, ANSWERS).left_out
        assert said.count("is not UTF-8, and its rows with other bytes fail") == times
        assert said.count("iconv -f CP1252 -t UTF-8") == times


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_a_row_with_bytes_of_another_encoding_fails_whatever_its_column_and_its_format(
    tmp_path: Path, name: str
) -> None:
    rows = [
        {"id": "1", "model": "m", "question": "Q", "response": "A", "note": note}
        for note in ("plain", "là", "plain")
    ]
    mark = "," if name == "a.csv" else "\t"
    table = "".join(mark.join(row) + "\n" for row in (rows[0], *(each.values() for each in rows)))
    texts = {"a.json": json.dumps(rows, ensure_ascii=False)}
    texts["a.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / name).write_text(texts.get(name, table), "cp1252")
    first, bad, last = read_rows([str(tmp_path / name)], used=ANSWERS)
    assert (type(first), type(last)) == (Row, Row)
    assert isinstance(bad, Failure)
    assert "not UTF-8" in bad.reason
    assert name.startswith("a.json") or (bad.id, bad.system) == ("1", "m"), "the row counts for its system"


def test_of_two_lists_of_rows_one_is_named(tmp_path: Path) -> None:
    both = {"first": [{"question": "Q", "response": "A"}], "second": [{"question": "Q", "response": "B"}]}
    with pytest.raises(UsageError, match="its rows can be in first or second; name the list: `rows_at` first"):
        rows_in(tmp_path / "a.json", json.dumps(both))
    assert [row.candidate for row in rows_in(tmp_path / "a.json", json.dumps(both), rows="second")] == ["B"]


def test_a_pointer_of_git_lfs_is_named_as_one(tmp_path: Path) -> None:
    pointer = tmp_path / "a.parquet"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(UsageError, match="is a pointer of Git LFS, not the file itself"):
        find_inputs([str(pointer)])


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/x.jsonl", "a/y.jsonl"], ["x", "y"]),
        (["a/x.jsonl", "b/x.jsonl"], ["a/x", "b/x"]),
        (["a/m/x.jsonl", "b/m/x.jsonl.gz"], ["a/m/x", "b/m/x"]),
        (["x.json", "x.jsonl"], ["x.json", "x.jsonl"]),
    ],
)
def test_files_have_the_shortest_names_that_differ(files: list[str], names: list[str]) -> None:
    assert [*names_of_files(files).values()] == names


def test_two_files_are_joined_by_a_column_and_what_has_no_partner_fails(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(
        lines({"idx": 1, "question": "Q", "text": "gold"}, {"idx": 2, "question": "P"})
    )
    answers = tmp_path / "a.jsonl"
    answers.write_text(lines({"n": 1, "text": "A"}, {"n": 3, "text": "B"}))
    columns = parse_columns(
        ["candidate=text", "reference=q.text"], SINGLE, join=str(tmp_path / "q.jsonl"), on="n=idx"
    )
    row, failure = read_rows([str(answers)], columns, used=SINGLE)
    assert isinstance(row, Row)
    assert (row.instruction, row.candidate, row.reference) == ("Q", "A", "gold")
    assert isinstance(failure, Failure)
    assert f"no record in {tmp_path / 'q.jsonl'} has the idx 3" in failure.error


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (
            [{"prompt": "Q", "chosen": [1], "rejected": "B"}] * 3,
            "'chosen', the candidate_a, is an object or a list",
        ),
        (
            [{"prompt": "Q", "question": "P", "chosen": "A", "rejected": "B"}],
            "'prompt' and 'question' are both",
        ),
        (
            [{"prompt": "Q", "response": "A"}],
            "no candidate_a, no candidate_b; its columns are prompt, response",
        ),
    ],
)
def test_what_cannot_be_judged_is_found_before_a_model_is_looked_for(
    cli: Cli, tmp_path: Path, records: list[dict[str, Any]], reason: str
) -> None:
    (tmp_path / "a.jsonl").write_text(lines(*records))
    how = ("--rubric", "pairwise", "--model", tmp_path / "none", "--out", tmp_path / "run")
    end = cli("score", tmp_path / "a.jsonl", *how)
    assert (end.code, reason in end.err) == (2, True), end.err


def test_a_run_and_a_prompt_say_what_the_judge_is_not_shown(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"question": "Q", "response": "A", "context": "C", "empty": ""}))
    said = "not shown to the judge: context; kept as columns"
    how = ("--rubric", "no-reference")
    assert said in cli("prompt", tmp_path / "a.jsonl", *how).err
    (tmp_path / "b.jsonl").write_text(lines({"question": "Q", "response": "A", "gold": "R", "context": "C"}))
    said_of_both = "not shown to the judge: gold, context; kept as columns, except gold"
    assert said_of_both in cli("prompt", tmp_path / "b.jsonl", *how).err
    end = cli("score", tmp_path / "a.jsonl", *how, "--engine", "dry-run", "--out", tmp_path / "run")
    assert said in end.err


LABELLED = [
    ("An apple.", "A chair.", 0),
    ("Blue.", "Running.", 0),
    ("A spoon.", "A robin.", 1),
    ("Iron.", "Tin.", 2),
]


@pytest.mark.parametrize("codes", ["0=a,1=b,2=tie", "0=tie,1=a,2=b"])
def test_labels_with_a_zero_are_read_by_the_codes_that_are_stated(cli: Cli, tmp_path: Path, codes: str) -> None:
    file, run = tmp_path / "a.jsonl", tmp_path / "run"
    file.write_text(
        lines(*({"prompt": a, "response_a": a, "response_b": b, "label": label} for a, b, label in LABELLED))
    )
    assert cli("score", file, "--rubric", "pairwise", "--engine", "dry-run", "--out", run).code == 0
    end = cli("agree", run, "--allow-dry-run")
    assert (end.code, "--map better=label:0=tie,1=a,2=b or --map better=label:0=a,1=b,2=tie" in end.err) == (
        2,
        True,
    )
    end = cli("agree", run, "--allow-dry-run", "--map", f"better=label:{codes}", "--json")
    found = json.loads(end.out)["aspects"]["better"]["labels"]
    meaning = dict(each.split("=") for each in codes.split(","))
    assert found == {
        name: [meaning[str(label)] for *_, label in LABELLED].count(name) for name in ("a", "tie", "b")
    }


def test_judgements_of_pairs_by_mt_bench_label_the_pairs_of_a_run(cli: Cli, tmp_path: Path) -> None:
    rows, labels, run = tmp_path / "rows.jsonl", tmp_path / "gpt-4_pair.jsonl", tmp_path / "run"
    systems = {"model_1": "north", "model_2": "south"}
    texts = [{"response_1": a, "response_2": b} for a, b, _ in LABELLED]
    rows.write_text(
        lines(*({"question_id": n, "prompt": f"Q{n}", **each, **systems} for n, each in enumerate(texts)))
    )
    won = [("model_1", "model_1"), ("model_2", "tie"), ("model_2", "model_2"), ("error", "model_1")]
    judged = {"judge": ["gpt-4", "pair-v2"], "turn": 1}
    labels.write_text(
        lines(
            *(
                {"question_id": n, **systems, **judged, "g1_winner": one, "g2_winner": other}
                for n, (one, other) in enumerate(won)
            )
        )
    )
    assert cli("score", rows, "--rubric", "pairwise", "--engine", "dry-run", "--out", run).code == 0
    end = cli("agree", run, "--allow-dry-run", "--labels", labels, "--json")
    assert end.code == 0, end.err
    (aspect,) = json.loads(end.out)["aspects"].values()
    assert sum(aspect["labels"].values()) == 4
    end = cli("score", labels, "--rubric", "pairwise", "--engine", "dry-run", "--out", tmp_path / "none")
    assert (end.code, "no instruction, no candidate_a, no candidate_b" in end.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "column"),
    [("promptfoo-0.123.1-results.json", "score"), ("lm_eval-0.4.13-plain.jsonl", "exact_match")],
)
def test_the_scores_in_a_file_of_a_tool_are_labels_or_a_run_of_their_own(
    cli: Cli, tmp_path: Path, name: str, column: str
) -> None:
    file, run = FOLDER / name, tmp_path / "run"
    assert cli("score", file, "--rubric", "correctness", "--engine", "dry-run", "--out", run).code == 0
    end = cli("agree", run, "--allow-dry-run", "--labels", file, "--map", f"grade=correct={column}", "--json")
    assert end.code == 0, end.err
    assert json.loads(end.out)["aspects"]["grade=correct"]["rows"] == 3
    how = ("--aspect", "right", "--map", f"right={column}", "--scale", "0-1", "--out", tmp_path / "scores")
    end = cli("import", file, *how)
    assert (end.code, "3 judged, 0 failed" in end.out + end.err) == (0, True), end.err


def test_scores_without_texts_are_not_imported_and_one_line_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "gpt-4_single.jsonl"
    file.write_text(lines({"question_id": 1, "model": "m", "judgment": "[[2]]", "score": 2, "turn": 1}))
    end = cli("import", file, "--aspect", "score", "--scale", "1-10", "--out", tmp_path / "run")
    assert (end.code, "no instruction, no candidate; its columns are question_id" in end.err) == (2, True)
    advice = (
        "or judge the file that has the texts, and compare with these labels: localjudge agree RUN --labels"
    )
    assert advice in end.err


def test_each_shape_is_declared_in_words_and_has_what_a_row_needs() -> None:
    assert len({shape.title for shape in shapes().values()}) == len(shapes()) >= 40
    for shape in shapes().values():
        judged = {"candidate", "messages"} & shape.fields.keys() or {
            "candidate_a",
            "candidate_b",
        } <= shape.fields.keys()
        assert shape.usual or shape.joins or shape.unanswered or judged, shape.name


def test_the_guide_lists_every_shape_from_its_declaration_and_what_it_is_tested_with(cli: Cli) -> None:
    lines = cli("help", "rows").out.splitlines()
    for shape in shapes().values():
        (line,) = [line for line in lines if line.startswith(f"| `{shape.name}` | {shape.title} | ")]
        assert line.endswith(f"` | {shape.writer or 'documentation'} |")


JOINED = {("openai-batch", "openai"), ("openai-batch-responses", "openai"), ("mt-bench", "fastchat")}


def test_a_shape_names_the_program_whose_own_files_the_tests_read() -> None:
    found = set()
    for file in FOLDER.glob("*-*"):
        if not file.name.startswith("inspect_ai"):
            records = (record for _, record in RecordStream(str(file)) if isinstance(record, Mapping))
            shapes_found = {shape.name for shape in map(recognized, records) if shape.has}
            found |= {(name, file.name.partition("-")[0]) for name in shapes_found}
    named = {(each.name, re.split("[- ]", each.writer)[0]) for each in shapes().values() if each.writer}
    assert named == found | JOINED


HISTORY = [{"role": "user", "content": "Capital of Peru?"}, {"role": "assistant", "content": "Lima."}]
BEFORE = "User:\n> Capital of Peru?\n\nAssistant:\n> Lima.\n\nUser:\n> And Chile?"


def test_a_history_in_a_column_of_its_own_is_shown_with_its_question(tmp_path: Path) -> None:
    asked = {"question": "And Chile?", "response": "Santiago."}
    assert row_of(asked | {"chat_history": HISTORY}).instruction == BEFORE
    assert row_of(asked | {"dialog": HISTORY}, ANSWERS, "history=dialog").instruction == BEFORE
    pair = {"question": "And Chile?", "response_a": "Santiago.", "response_b": "Arica."}
    assert row_of(pair | {"history": HISTORY}, PAIRS).instruction == BEFORE
    rows = rows_in(tmp_path / "a.jsonl", lines(*(asked | {"history": each} for each in (HISTORY, [], None))))
    assert [row.instruction for row in rows] == [BEFORE, "And Chile?", "And Chile?"]
    assert row_of(asked | {"history": "User: Hi"}).instruction == "And Chile?"
    assert reason_of({"question": "And Chile?", "history": HISTORY}).startswith("no candidate; ")


def test_two_turns_of_the_assistant_are_refused_with_the_flags_of_both_readings() -> None:
    record = {"messages": HISTORY, "response": "Cusco."}
    problem = reason_of(record)
    first, second = "candidate=messages", "candidate=response `columns` instruction=messages[-2].content"
    assert first in problem
    assert second in problem
    assert row_of(record, ANSWERS, "candidate=messages").candidate == "Lima."
    row = row_of(record, ANSWERS, "candidate=response", "instruction=messages[-2].content")
    assert (row.instruction, row.candidate) == ("Capital of Peru?", "Cusco.")


def test_a_list_makes_rows_only_in_the_path_of_the_response() -> None:
    passages = [{"text": "Peru is a country."}, {"text": "Its capital is Lima."}]
    record = {"question": "Q", "response": "A", "docs": passages, "gold": [{"a": "x"}, {"a": "y"}]}
    used = ("instruction", "reference", "candidate", "context")
    row = row_of(record, used, "context=docs[*].text", "reference=gold[*].a")
    assert row.fields == {"context": "Peru is a country.\n\nIts capital is Lima."}
    assert row.reference == "x\nor\ny"


def test_records_of_another_form_fail_and_a_tie_is_refused(tmp_path: Path) -> None:
    deepeval = {"input": "Q", "actual_output": "A"}
    pandalm = {"instruction": "Q", "input": "", "response1": "A", "response2": "B"}
    (tmp_path / "a.jsonl").write_text(lines(*[deepeval] * 3, pandalm))
    inputs = checked_inputs([str(tmp_path / "a.jsonl")], {}, ANSWERS)
    assert "3 of the first 4 records" in inputs.how
    *rows, failure = inputs.rows()
    assert len(rows) == 3
    assert isinstance(failure, Failure)
    assert "PandaLM" in failure.reason
    (tmp_path / "a.jsonl").write_text(lines(deepeval, pandalm))
    with pytest.raises(UsageError, match="--shape deepeval or --shape pandalm"):
        checked_inputs([str(tmp_path / "a.jsonl")], {}, ANSWERS)


def test_a_flag_may_name_a_column_that_only_later_records_have(tmp_path: Path) -> None:
    records = [{"question": "Q", "response": "A"}] * 100 + [{"question": "Q", "response": "A", "gold": "R"}]
    (tmp_path / "a.jsonl").write_text(lines(*records))
    columns = parse_columns(["reference=gold"], ANSWERS)
    inputs = checked_inputs([str(tmp_path / "a.jsonl")], columns, ANSWERS)
    *_, last = inputs.rows()
    assert isinstance(last, Row)
    assert last.reference == "R"


def test_keys_with_dots_are_quoted_in_a_path() -> None:
    record = {"attributes": {"gen_ai.input": "Q", "gen_ai.output": "A"}}
    row = row_of(
        record, ANSWERS, 'instruction=attributes."gen_ai.input"', 'candidate=attributes."gen_ai.output"'
    )
    assert (row.instruction, row.candidate) == ("Q", "A")
