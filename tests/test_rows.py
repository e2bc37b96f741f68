"""Tests of rows: every kind of file, every column name, and every kind of invalid line."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import json
import math
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from one_row import as_row, checked_inputs

from localjudge import Failure, Response, Row, Rubric, UsageError, read_rows
from localjudge.rows.columns import parse_columns
from localjudge.rows.inputs import FILENAME, find_inputs
from localjudge.rows.program_rows import rows_of_program
from localjudge.rows.row_store import RowStore

ROW = {"instruction": "Why?", "reference": "So.", "candidate": "Because\nof “it”, 是的 🙂"}


def read(file: Path, data: bytes, *columns: str) -> list[Row | Failure]:
    file.write_bytes(data)
    return list(read_rows(find_inputs([str(file)]), parse_columns(columns)))


def read_or_refusal(file: Path, data: bytes) -> list[Row | Failure] | str:
    """Return the rows, or the one line that refuses the file."""
    try:
        return read(file, data)
    except UsageError as refusal:
        return str(refusal)


def lines(*records: Any) -> bytes:
    return b"".join(
        (record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n" for record in records
    )


def sheet(delimiter: str) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, [*ROW, "id", "extra"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows([{**ROW, "id": "7", "extra": "kept"}] * 2)
    return stream.getvalue().encode()


def parquet(*records: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(records)), sink)
    return sink.getvalue()


KINDS: dict[str, Callable[[], bytes]] = {
    "rows.jsonl": lambda: lines({**ROW, "id": 7, "extra": "kept"}, {**ROW, "id": "7", "extra": "kept"}),
    "rows.ndjson": lambda: KINDS["rows.jsonl"](),
    "rows.jsonl.gz": lambda: gzip.compress(KINDS["rows.jsonl"]()),
    "rows.csv": lambda: sheet(","),
    "rows.csv.gz": lambda: gzip.compress(sheet(",")),
    "rows.tsv": lambda: sheet("\t"),
    "rows.parquet": lambda: parquet(*[{**ROW, "id": 7, "extra": "kept"}] * 2),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = read(tmp_path / name, KINDS[name]())
    assert [(type(row), row.id, row.columns) for row in rows] == [(Row, "7", {"extra": "kept"})] * 2
    assert [{field: getattr(row, field) for field in ROW} for row in rows] == [ROW] * 2


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.tsv"])
@pytest.mark.parametrize("change", ["bom", "crlf", "no last newline", "blank lines"])
def test_the_habits_of_editors_change_nothing(tmp_path: Path, name: str, change: str) -> None:
    whole = {**ROW, "candidate": "plain"}
    delimiter = "\t" if name.endswith("tsv") else ","
    data = lines(whole, whole)
    if not name.endswith("jsonl"):
        data = b"".join(delimiter.join(row).encode() + b"\n" for row in [whole, whole.values(), whole.values()])
    data = {
        "bom": b"\xef\xbb\xbf" + data,
        "crlf": data.replace(b"\n", b"\r\n"),
        "no last newline": data.rstrip(b"\n"),
        "blank lines": data.replace(b"\n", b"\n\n"),
    }[change]
    rows = read(tmp_path / name, data)
    assert [{field: getattr(row, field) for field in ROW} for row in rows] == [whole] * 2


def test_a_place_is_the_line_on_which_the_row_begins(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    rows = read(file, b'instruction,candidate\r\n\r\na,"one\r\ntwo"\r\nb\r\nc,d\r\n')
    assert [row.source for row in rows] == [f"{file}:{line}" for line in (3, 5, 6)]
    assert isinstance(rows[0], Row)
    assert rows[0].candidate == "one\r\ntwo"
    assert isinstance(rows[1], Failure)


def test_standard_input_is_jsonl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines(ROW, b"{"))))
    row, failure = read_rows(find_inputs(["-"]))
    assert (row.source, failure.source) == ("stdin:1", "stdin:2")
    assert isinstance(failure, Failure)


def test_the_examples_are_rows_by_three_systems_of_every_sort() -> None:
    rows = [row for row in read_rows(find_inputs(["examples"])) if isinstance(row, Row)]
    assert len(rows) == len({row.id for row in rows}) >= 20
    assert len({row.system for row in rows}) == 3
    assert all(row.reference for row in rows)
    assert any(not row.candidate for row in rows)


def test_files_and_globs_are_read_in_order_and_a_file_named_like_a_glob_is_a_file(tmp_path: Path) -> None:
    for name in ("b1.jsonl", "b0.jsonl", "a.jsonl", "x[1].jsonl"):
        (tmp_path / name).write_bytes(lines(ROW))
    names = [str(tmp_path / name) for name in ("b*.jsonl", "a.jsonl", "x[1].jsonl", "a.jsonl")]
    found = [Path(name).name for name in find_inputs(names)]
    assert found == ["b0.jsonl", "b1.jsonl", "a.jsonl", "x[1].jsonl", "a.jsonl"]
    assert len(list(read_rows(find_inputs(names)))) == 5


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["none.jsonl"], "none.jsonl: No such file"),
        (["*.jsonl"], r"\*.jsonl: No such file"),
        (["."], r"is a folder; name its files, such as ./\*.jsonl"),
        (["rows.xlsx"], "unknown format; use .jsonl"),
        (["-", "-"], "stdin can be read only once"),
    ],
)
def test_an_input_that_cannot_be_opened_stops_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.xlsx").touch()
    with pytest.raises(UsageError, match=message):
        find_inputs(names)


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"prompt": "I", "output": "C", "gold": "R", "generator": "S", "uid": "N"}, ()),
        ({"question": "I", "response": "C", "reference_answer": "R", "model": "S", "question_id": "N"}, ()),
        ({"instruction": "I", "candidate": "C", "output": "x", "reference": "R", "system": "S", "id": "N"}, ()),
        ({"q": "I", "a": "C", "r": "R", "who": "S", "n": "N"},
         ("instruction=q", "candidate=a", "reference=r", "system=who", "id=n")),
        ({"instruction": "x", "q": "I", "candidate": "C", "target": "R", "model": "S", "id": "N"},
         ("instruction=q",)),
        ({"prompt": "I", "output": "C", "response": "x", "gold": "R", "model": "S", "id": "N"},
         ("candidate=output",)),
    ],
)  # fmt: skip
def test_a_field_is_found_by_its_usual_names_or_the_one_that_is_given(
    record: dict[str, str], columns: tuple[str, ...]
) -> None:
    row = as_row(record, "here", parse_columns(columns))
    assert isinstance(row, Row)
    assert (row.instruction, row.candidate, row.reference, row.system, row.id) == ("I", "C", "R", "S", "N")
    assert set(row.columns.values()) <= {"x"}, "what is no field is kept, what is one is not repeated"
    assert len(row.columns) == len(record) - 5


@pytest.mark.parametrize("assignment", ["candidate", "candidate=", "=x", "score=x", ""])
def test_a_column_that_is_assigned_to_no_field_is_refused(assignment: str) -> None:
    with pytest.raises(UsageError, match=r"write FIELD=COLUMN, where FIELD is one of instruction, reference"):
        parse_columns([assignment])


BAD_LINES: dict[str, tuple[Any, str]] = {
    "no candidate": ({"instruction": "a", "x": 1}, "no candidate: no value at 'candidate'"),
    "no instruction": ({"candidate": "a"}, "no instruction"),
    "null candidate": ({**ROW, "candidate": None}, "no candidate: no value at 'candidate'"),
    "candidate of a number": ({**ROW, "candidate": 5}, "'candidate', the candidate, is a number"),
    "instruction of a list": ({**ROW, "instruction": ["a"]}, "the instruction, is a list of texts"),
    "reference of an object": ({**ROW, "reference": {"a": 0}}, "the reference, is of type dict"),
    "id of a list": ({**ROW, "id": [1]}, "the id, is of type list"),
    "system of an object": ({**ROW, "system": {}}, "the system, is of type dict"),
    "lone surrogate": ({**ROW, "candidate": "ab\ud800"}, "a lone surrogate (U+D800) at character 3"),
    "lone surrogate in the id": ({**ROW, "id": "\udfff"}, "a lone surrogate (U+DFFF) at character 1"),
    "lone surrogate in a name": ({"\ud800": "a"}, "no instruction"),
    "bad JSON": (b'{"instruction": "a",}', "not JSON: "),
    "not UTF-8": (b'{"a": "\xff"}', "not UTF-8 at byte 8 of the line"),
    "list": (["a"], "not a JSON object with named fields"),
    "bare number": (5, "not a JSON object"),
    "huge integer": (b'{"id": ' + b"9" * 5000 + b"}", "JSON that Python cannot parse"),
    "nested too deep": (b'{"x": ' + b"[" * 300 + b"]" * 300 + b"}", "nested more than 100 deep"),
    "nested beyond parsing": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "Python cannot parse"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_line_that_is_no_row_becomes_a_failure_naming_file_and_line_and_the_rest_is_read(
    tmp_path: Path, bad: str
) -> None:
    line, message = BAD_LINES[bad]
    file = tmp_path / "a.jsonl"
    before, failure, after = read(file, lines(ROW, line, ROW))
    assert isinstance(failure, Failure)
    assert failure.error.startswith(f"{file}:2: ")
    assert message in failure.error
    assert failure.id == failure.source == f"{file}:2"
    assert (type(before), type(after)) == (Row, Row)
    failure.model_dump_json()  # the failure can be written as JSON


def test_a_failure_keeps_the_id_and_the_system_that_its_row_has() -> None:
    failure = as_row({"instruction": "a", "candidate": None, "id": 7, "system": "s"}, "here")
    assert isinstance(failure, Failure)
    assert (failure.id, failure.system) == ("7", "s")


def test_a_row_of_a_program_whose_place_cannot_be_written_is_a_failure_that_can_be() -> None:
    row = Row.from_response(instruction="Q", reference="R", candidate="A", source="a\ud800")
    bad, good = rows_of_program([row, replace(row, source="a")])
    assert isinstance(bad, Failure)
    assert bad.error == "a?: the source has a lone surrogate (U+D800) at character 2; remove it"
    with RowStore() as stored:
        stored.append(bad)
        stored.append(good)
        assert [stored[0], stored[1]] == [bad, good]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b"\xff", "a byte that is not UTF-8 (0xFF) at character 1; save the file as UTF-8"),
        (b'x"y"', None),
        (b"a,b", "3 fields"),
        (b'"a"b', "not CSV"),
    ],
)
def test_a_bad_line_of_csv_is_a_failure_and_the_next_line_is_read(
    tmp_path: Path, record: bytes, expected: str | None
) -> None:
    bad, good = read(tmp_path / "a.csv", b"instruction,candidate\na," + record + b"\nc,d\n")
    assert bad.source == f"{tmp_path}/a.csv:2"
    assert isinstance(bad, Failure) == (expected is not None)
    assert not isinstance(bad, Failure) or str(expected) in bad.error
    assert isinstance(good, Row)


@pytest.mark.parametrize("header", [b'"instruction"x,candidate', b"instruction,candidate,candidate", b"a,b"])
def test_below_a_header_that_is_wrong_every_line_is_a_failure(tmp_path: Path, header: bytes) -> None:
    failures = read(tmp_path / "a.csv", header + b"\na,b\na,b,c\n")
    assert [row.source[-2:] for row in failures if isinstance(row, Failure)][-2:] == [":2", ":3"]
    assert not [row for row in failures if isinstance(row, Row)]


def test_a_quote_that_never_closes_is_a_failure_at_the_line_it_opens_and_every_line_after(
    tmp_path: Path,
) -> None:
    first, *failures = read(tmp_path / "a.csv", b'instruction,candidate\na,b\nc,"d\ne,f\n')
    assert isinstance(first, Row)
    assert [row.source[-2:] for row in failures if isinstance(row, Failure)] == [":3", ":4"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv"])
def test_an_empty_file_holds_no_rows(tmp_path: Path, name: str) -> None:
    assert read(tmp_path / name, b"") == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.parquet"])
@pytest.mark.parametrize("damage", ["cut", "foreign", "blotted"])
def test_a_damaged_file_gives_what_can_be_read_and_then_a_failure(
    tmp_path: Path, name: str, damage: str
) -> None:
    many = [{"instruction": f"{n * 7919}", "candidate": f"{n**3}"} for n in range(5000)]
    if name.endswith("parquet"):
        whole = parquet(*many)
    elif name == "a.csv.gz":
        text = "instruction,candidate\n" + "".join(",".join(row.values()) + "\n" for row in many)
        whole = gzip.compress(text.encode())
    else:
        whole = gzip.compress(lines(*many))
    half = len(whole) // 2
    data = {"cut": whole[:half], "foreign": b"junk", "blotted": whole[:half] + bytes(99) + whole[half + 99 :]}[
        damage
    ]
    *_, last = outcomes = read(tmp_path / name, data)
    assert isinstance(last, Failure)
    assert len(outcomes) <= len(many) + 1


def test_columns_that_json_cannot_hold_are_kept_as_it_can(tmp_path: Path) -> None:
    (row,) = read(
        tmp_path / "a.parquet",
        parquet({
            **ROW, "when": datetime.date(2026, 1, 2), "cost": decimal.Decimal("1.5"), "raw": b"\xff",
            "nan": math.nan, "list": [1.5, math.inf], "map": {"k": None},
        }),
    )  # fmt: skip
    assert row.columns["when"] == "2026-01-02"
    assert (row.columns["cost"], row.columns["nan"], row.columns["list"]) == ("1.5", None, [1.5, None])
    json.dumps(dict(row.columns), allow_nan=False)


@pytest.mark.parametrize("column", [b'"\\ud800"', b"NaN", b'{"\\udfff": [NaN]}', b"1" + b"0" * 4000])
def test_any_json_value_in_another_column_can_be_written_down_again(tmp_path: Path, column: bytes) -> None:
    (row,) = read(tmp_path / "a.jsonl", b'{"instruction": "a", "candidate": "b", "x": ' + column + b"}")
    assert isinstance(row, Row)
    json.dumps(dict(row.columns), ensure_ascii=False, allow_nan=False).encode()


def test_of_a_key_that_stands_twice_the_last_counts_as_everywhere_in_python(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.jsonl", b'{"instruction": "a", "candidate": "b", "candidate": "c"}')
    assert isinstance(row, Row)
    assert row.candidate == "c"


@pytest.mark.parametrize(
    ("given_id", "kept"), [(0, "0"), (7, "7"), (1.5, "1.5"), ("", "here"), (None, "here"), ("a", "a")]
)
def test_an_id_may_be_a_number_and_a_row_without_one_goes_by_its_place(given_id: Any, kept: str) -> None:
    assert as_row({**ROW, "id": given_id}, "here").id == kept


def test_a_file_whose_name_is_no_utf8_can_be_read_and_its_place_written(tmp_path: Path) -> None:
    try:
        file = tmp_path / os.fsdecode(b"\xff.jsonl")
        (row,) = read(file, lines(ROW))
    except OSError:
        pytest.skip("this file system takes no such name")
    assert row.source.encode().endswith(b"?.jsonl:1")


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("rows.csv", ("candidate=respons",), "no column 'respons' for the candidate; its columns are "
         "instruction, reference, candidate, id, extra; name them with --column candidate=COLUMN"),
        ("rows.tsv", ("id=n", "system=who"), "no column 'n' for the id, no column 'who' for the system; its"),
        ("rows.parquet", ("reference=gold",), "no column 'gold' for the reference"),
        ("rows.jsonl", ("instruction=q", "candidate=a"), "no column 'q' for the instruction, no column 'a'"),
        ("rows.jsonl.gz", ("candidate=a",), "no column 'a' for the candidate"),
    ],
)  # fmt: skip
def test_all_columns_that_a_file_lacks_are_named_at_once(
    tmp_path: Path, name: str, columns: tuple[str, ...], message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(KINDS[name]())
    assert checked_inputs([str(file)], {}, ("instruction", "reference", "candidate")).empty == []
    with pytest.raises(UsageError) as refused:
        checked_inputs([str(file)], parse_columns(columns), ("instruction", "reference", "candidate"))
    assert str(refused.value).startswith(f"{file}: {message}")


def test_a_reference_is_a_column_that_only_some_rubrics_need(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines({"instruction": "a", "x": 1}))
    with pytest.raises(
        UsageError, match="no candidate; its columns are instruction, x; name them with --column"
    ):
        checked_inputs([str(file)], {}, ("instruction", "candidate"))
    with pytest.raises(UsageError, match="no reference, no candidate; its columns are instruction, x"):
        checked_inputs([str(file)], {}, ("instruction", "reference", "candidate"))


@pytest.mark.parametrize(
    "first",
    [b"{", {"instruction": "a"}],
    ids=["bad", "lacks"],
)
def test_records_that_are_no_rows_do_not_keep_the_others_from_being_read(tmp_path: Path, first: Any) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(*[first] * 99, ROW))
    assert (
        checked_inputs([str(file)], {"system": FILENAME}, ("instruction", "reference", "candidate")).empty == []
    )
    file.write_bytes(lines(*[{"instruction": "a"}] * 100, ROW))
    with pytest.raises(UsageError, match="no reference, no candidate"):
        checked_inputs([str(file)], {}, ("instruction", "reference", "candidate"))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.jsonl", b'{"a"\n{"a"\n', "none of its first records is a row: not JSON: "),
        ("a.csv", b"instruction,candidate,candidate\na,b,c\n", "two columns have the name 'candidate'"),
        ("a.jsonl", lines({**ROW, "candidate": 5}), "'candidate', the candidate, is a number"),
        ("a.jsonl", lines({**ROW, "reference": ""}), "no reference"),
    ],
)
def test_a_file_without_a_row_among_its_first_records_is_refused_with_the_reason(
    tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as refused:
        checked_inputs([str(tmp_path / name)], {}, ("instruction", "reference", "candidate"))
    assert str(refused.value).startswith(f"{tmp_path / name}: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize("empty", [b"", b"\n\n"])
def test_files_without_rows_are_named_and_refused_where_there_is_no_other(tmp_path: Path, empty: bytes) -> None:
    names = [str(tmp_path / name) for name in ("a.jsonl", "b.csv", "c.jsonl")]
    for name in names:
        Path(name).write_bytes(empty)
    with pytest.raises(UsageError, match=r"a\.jsonl, .*b\.csv, .*c\.jsonl: holds no rows"):
        checked_inputs(names, {}, ("instruction", "reference", "candidate"))
    Path(names[2]).write_bytes(lines(ROW))
    assert checked_inputs(names, {}, ("instruction", "reference", "candidate")).empty == names[:2]


def test_the_first_records_of_a_pipe_decide_its_reading_and_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines(*({**ROW, "id": str(number)} for number in range(250)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    os.mkfifo(tmp_path / "pipe.jsonl")
    writer = threading.Thread(target=(tmp_path / "pipe.jsonl").write_bytes, args=[data])
    writer.start()
    inputs = checked_inputs(["-", str(tmp_path / "pipe.jsonl")], {}, ("instruction", "reference", "candidate"))
    ids = [row.id for row in inputs.rows()]
    writer.join()
    assert ids == 2 * [str(number) for number in range(250)]


def test_two_columns_for_one_field_each_in_other_records_are_both_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(*[{"prompt": "a", "output": "b", "gold": "c"}] * 99, ROW))
    with pytest.raises(UsageError, match=r"instruction=instruction or `columns` instruction=prompt"):
        checked_inputs([str(file)], {}, ("instruction", "reference", "candidate"))


def test_standard_input_that_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="-: stdin is closed; pipe rows into it or name a file"):
        find_inputs(["-"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["instruction", "candidate", "reference", "id", "system", "output", "model", "x"])
any_line = st.one_of(
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" ")),
    st.dictionaries(names, json_values, max_size=5).map(lambda record: json.dumps(record).encode()),
    st.dictionaries(names, st.text(max_size=5), min_size=3).map(lambda record: json.dumps(record).encode()),
)


@given(st.lists(any_line, max_size=8))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_bytes_each_line_ends_as_one_row_or_one_failure(tmp_path: Path, data: list[bytes]) -> None:
    assume(not re.match(rb"\s*\[\s*\{", b"\n".join(data)))  # an array, whatever the suffix says
    assume(not b"\n".join(data).startswith(b"version https://git-lfs"))  # a pointer, not the file
    outcomes = read(tmp_path / "fuzz.jsonl", b"\n".join(data))
    expected = [number for number, line in enumerate(data, 1) if line.strip()]
    numbers = [int(outcome.source.rpartition(":")[2]) for outcome in outcomes]
    assert [*dict.fromkeys(numbers)] == expected  # a list of responses has an outcome for each
    for outcome in outcomes:
        outcome.id.encode()
        json.dumps(dict(outcome.columns), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    "name", ["fuzz.csv", "fuzz.tsv", "fuzz.json", "fuzz.jsonl.gz", "fuzz.parquet", "fuzz.arrow"]
)
@given(st.binary(max_size=200) | st.text('a",\n\r\t\0', max_size=60).map(str.encode))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_in_any_kind_of_file_break_the_reading(tmp_path: Path, name: str, data: bytes) -> None:
    outcomes = read_or_refusal(tmp_path / name, data)
    if isinstance(outcomes, str):
        assert re.fullmatch(rf"{tmp_path / name}: [^\n]+; [^\n]+", outcomes)
        return
    for outcome in outcomes:
        (outcome.id + (outcome.error if isinstance(outcome, Failure) else "")).encode()


def cycle() -> dict[str, Any]:
    record: dict[str, Any] = {}
    record["of"] = record
    return record


def deep() -> dict[str, Any]:
    record: dict[str, Any] = {}
    for _ in range(100_000):
        record = {"in": record}
    return record


@pytest.mark.parametrize("fields", [{"instruction": "Q", "candidate": "C"}, {"instruction": "Q"}])
@pytest.mark.parametrize("odd", [cycle(), deep(), {1: "a", "b": 2, (3, 4): 5}], ids=["cycle", "deep", "keys"])
def test_a_python_record_that_json_cannot_hold_is_a_failure_that_names_its_place(
    fields: dict[str, Any], odd: dict[str, Any]
) -> None:
    found = as_row({**fields, "odd": odd}, "row 7")
    assert isinstance(found, Failure)
    assert re.fullmatch("row 7: [^\n]+", found.error)


def test_a_row_may_have_several_responses_and_a_rubric_of_one_refuses_it_by_name() -> None:
    pair = Row(
        instruction="Who?", reference="She.", responses=(Response("I.", "a"), Response("You.", "b")), id="1"
    )
    (kept,) = rows_of_program([pair])
    assert isinstance(kept, Row)
    assert (kept.candidate, kept.system, kept.responses) == ("I.", "a", pair.responses)
    assert kept.digest != Row.from_response(instruction="Who?", reference="She.", candidate="I.").digest
    refusal = Rubric.load().refusal(kept)
    assert refusal is not None
    assert refusal.reason == "2 responses; the rubric just-eval judges one response"


def test_a_response_after_the_first_that_is_no_text_is_named() -> None:
    pair = Row(instruction="Who?", responses=(Response("I."), Response("\ud800")))
    (failure,) = rows_of_program([pair])
    assert isinstance(failure, Failure)
    assert "the text of response 2 has a lone surrogate (U+D800)" in failure.error


@pytest.mark.parametrize(
    ("used", "fields"),
    [
        (("candidate", "context"), {"context": "Paris is in France."}),
        (("candidate", "meta.topic"), {"meta.topic": "cities"}),
        (("candidate", "tags"), {"tags": '["a", "b"]'}),
        (("candidate", "year"), {"year": "1999"}),
    ],
)
def test_a_row_has_the_text_of_each_column_that_the_template_uses(
    used: tuple[str, ...], fields: dict[str, str]
) -> None:
    record = {"candidate": "Paris.", "context": "Paris is in France.", "meta": {"topic": "cities"}}
    row = as_row({**record, "tags": ["a", "b"], "year": 1999}, "here", used=used)
    assert isinstance(row, Row)
    assert row.fields == fields
    assert row.instruction == "", "the template does not use it"


def test_rows_that_differ_only_in_a_column_of_the_template_are_different_rows() -> None:
    used = ("instruction", "candidate", "context")
    one, two = (as_row({**ROW, "context": text}, "here", used=used) for text in ("a", "b"))
    assert isinstance(one, Row)
    assert isinstance(two, Row)
    assert one.digest != two.digest
    assert one.group != two.group


def test_a_row_without_a_column_of_the_template_is_a_failure_that_names_it() -> None:
    failure = as_row(ROW, "rows.jsonl:3", used=("instruction", "candidate", "context"))
    assert isinstance(failure, Failure)
    assert failure.error.startswith("rows.jsonl:3: no context; its columns are ")
    assert failure.error.endswith("name them with --column context=COLUMN")
