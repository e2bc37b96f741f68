"""Tests of formats: no line is lost, memory is limited for rows of any size, every kind of table is read."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_row import checked_inputs

from localjudge import Failure, Judge, Row, UsageError, read_rows
from localjudge.errors import RowError
from localjudge.rows.csv_records import read_csv
from localjudge.rows.formats import count_lines_of
from localjudge.rows.program_rows import rows_of_program
from localjudge.rows.record import Record

ROW = {"instruction": "Why?", "reference": "So.", "candidate": "Because."}


def write_records(file: Path, records: list[dict[str, str]]) -> Path:
    """Write the records in the format of the file's suffix."""
    plain = file.name.removesuffix(".gz")
    if plain.endswith(".parquet"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), file)
        return file
    text = io.StringIO(newline="")
    if plain.endswith(".jsonl"):
        text.writelines(json.dumps(record) + "\n" for record in records)
    else:
        writer = csv.DictWriter(text, list(records[0]), delimiter="\t" if plain.endswith(".tsv") else ",")
        writer.writeheader()
        writer.writerows(records)
    data = text.getvalue().encode()
    file.write_bytes(gzip.compress(data) if file.name.endswith(".gz") else data)
    return file


def records_of(data: bytes, most_bytes: int = 1000) -> list[tuple[int, Record]]:
    return list(read_csv(io.BytesIO(data), most_bytes))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.tsv", "a.parquet"])
@pytest.mark.parametrize("text", ["word ", 'line\n"quoted", '])
def test_a_row_above_the_limit_fails_by_its_line_and_the_next_rows_are_read(
    tmp_path: Path, name: str, text: str
) -> None:
    records = [ROW, {**ROW, "candidate": text * 1000}, {**ROW, "candidate": "last"}]
    file = write_records(tmp_path / name, records)
    first, large, last = read_rows([str(file)], max_row_bytes=2000)
    assert isinstance(large, Failure)
    number = 3 if "csv" in name or "tsv" in name else 2
    assert large.error.startswith(
        f"{file}:{number}: the row is larger than 2,000 bytes; allow larger rows with"
    )
    assert isinstance(first, Row)
    assert isinstance(last, Row)
    assert last.candidate == "last"
    assert all(isinstance(row, Row) for row in read_rows([str(file)], max_row_bytes=50_000))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_row_of_exactly_the_limit_is_read(tmp_path: Path, end: bytes) -> None:
    line = json.dumps(ROW).encode()
    file = tmp_path / "a.jsonl"
    for longer in (0, 1):
        file.write_bytes(line + b" " * longer + end + line)
        kinds = [type(row) for row in read_rows([str(file)], max_row_bytes=len(line))]
        assert kinds == [Failure if longer else Row, Row]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.tsv"])
def test_reading_past_a_huge_row_takes_no_more_memory_than_a_few_rows_of_the_limit(
    tmp_path: Path, name: str
) -> None:
    short_lines = 'a,"\n' * 10_000 + "\n" * 120_000  # a number kept for each of them takes 1 MB
    text = short_lines + ("word " * 400 + "\n") * 4000
    file = write_records(tmp_path / name, [ROW, {**ROW, "candidate": text}, ROW])
    tracemalloc.start()
    try:
        kinds = [type(row) for row in read_rows([str(file)], max_row_bytes=10_000)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kinds == [Row, Failure, Row]
    assert peak < 2_000_000, "of a row of 8 MB"


def test_neither_the_check_of_a_file_nor_the_count_of_its_lines_holds_more_than_some_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localjudge.rows.record.MOST_HELD", 500_000)
    file = write_records(tmp_path / "a.jsonl", [{**ROW, "candidate": "word " * 40_000}] * 100)
    (tmp_path / "b.jsonl").write_bytes(b" " * 10_000_000 + b"\n{}")
    tracemalloc.start()
    try:
        checked_inputs([str(file)], {}, list(ROW))
        assert count_lines_of([str(tmp_path / "b.jsonl")]) == 2
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000, "of rows of 20 MB, and a line of 10 MB"


@pytest.mark.parametrize("most_bytes", [100, 10_000_000])
def test_a_file_that_breaks_off_within_a_quoted_text_says_so(tmp_path: Path, most_bytes: int) -> None:
    text = "".join(f"{n * 7919}\n" for n in range(20_000))
    file = write_records(tmp_path / "a.csv.gz", [ROW, {**ROW, "candidate": text}, ROW])
    file.write_bytes(file.read_bytes()[:-5000])
    first, *failures = read_rows([str(file)], max_row_bytes=most_bytes)
    assert isinstance(first, Row)
    assert {type(row) for row in failures} == {Failure}
    assert "the rest of the file cannot be read" in failures[-1].error  # type: ignore[union-attr]


def test_every_line_after_a_quote_that_never_closes_is_accounted_for() -> None:
    rows = [f"i{n},{n}" for n in range(100)]
    rows[2] = 'i2,"oops'
    found = records_of("\n".join(["instruction,candidate", *rows]).encode(), most_bytes=10_000)
    assert [number for number, _ in found] == list(range(2, 102))
    assert [number for number, record in found if not isinstance(record, RowError)] == [2, 3]
    assert dict(found)[4] == RowError("not CSV: unexpected end of data")
    said = "part of the record that begins at line 4, which cannot be read"
    assert dict(found)[50] == RowError(said)


def test_a_quote_that_closes_too_late_takes_no_line_with_it_in_silence() -> None:
    found = records_of(b'a,b\n1,"2\n\n3,4\n5,"6"\n7,8\n')
    assert [number for number, _ in found] == [2, 4, 5, 6], "the blank line holds no row"
    assert found[-1][1] == {"a": "7", "b": "8"}


@given(st.text('a",\n\r;é', max_size=80), st.integers(5, 40))
@settings(max_examples=400)
def test_a_limit_changes_no_record_but_those_above_it(text: str, most_bytes: int) -> None:
    data = b"a,b\n" + text.encode()
    whole, limited = dict(records_of(data)), dict(records_of(data, most_bytes))
    for number, record in whole.items():
        assert limited[number] == record or "the row is larger than" in str(limited[number])
    # Blank lines beyond the size limit count if the record turns out to be unreadable.
    assert all("part of the record" in str(limited[number]) for number in limited.keys() - whole.keys())


BAD_TEXT = pyarrow.Array.from_buffers(
    pyarrow.string(),
    1,
    [None, pyarrow.array([0, 2], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"a\xff")],
)
HUGE = 2**62
COLUMNS: dict[str, tuple[Any, Any]] = {
    "text that is not UTF-8": (BAD_TEXT, "a?"),
    "nanoseconds": (
        pyarrow.array([1_000_000_001], pyarrow.timestamp("ns")),
        "1970-01-01 00:00:01.000000001",
    ),
    "whole microseconds": (
        pyarrow.array([1_000_000_000], pyarrow.timestamp("ns")),
        "1970-01-01 00:00:01.000000000",
    ),
    "whole microseconds in a zone": (
        pyarrow.array([1000], pyarrow.timestamp("ns", "UTC")),
        "1970-01-01 00:00:00.000001000Z",
    ),
    "nanoseconds in an unknown zone": (
        pyarrow.array([7], pyarrow.timestamp("ns", "A/B")),
        "timestamp[ns, tz=A/B]: [1970-01-01 00:00:00.000000007Z]",
    ),
    "a zone": (pyarrow.array([1], pyarrow.timestamp("ns", "UTC")), "1970-01-01 00:00:00.000000001Z"),
    "an unknown zone": (
        pyarrow.array([7], pyarrow.timestamp("us", "A/B")),
        "timestamp[us, tz=A/B]: [1970-01-01 00:00:00.000007Z]",
    ),
    "a time of the day": (pyarrow.array([1], pyarrow.time64("ns")), "00:00:00.000000001"),
    "a duration": (pyarrow.array([90], pyarrow.duration("s")), "0:01:30"),
    "a duration of nanoseconds": (pyarrow.array([1], pyarrow.duration("ns")), "duration[ns]: [1]"),
    "a second in nanoseconds": (pyarrow.array([10**9], pyarrow.duration("ns")), "duration[ns]: [1000000000]"),
    "a duration out of range": (pyarrow.array([HUGE], pyarrow.duration("s")), f"duration[s]: [{HUGE}]"),
    "a date": (pyarrow.array([datetime.date(2026, 1, 2)]), "2026-01-02"),
    "a date out of range": (
        pyarrow.array([10**9], pyarrow.date32()),
        "date32[day]: [<value out of range: 1000000000>]",
    ),
    "a timestamp out of range": (
        pyarrow.array([HUGE], pyarrow.timestamp("ms")),
        f"timestamp[ms]: [<value out of range: {HUGE}>]",
    ),
    "null": (pyarrow.array([None], pyarrow.duration("ns")), None),
    "a list": (
        pyarrow.array([[1, None, *range(30)]], pyarrow.list_(pyarrow.duration("ns"))),
        ["duration[ns]: [1]", None, *(f"duration[ns]: [{n}]" for n in range(30))],
    ),
    "a map": (
        pyarrow.array([[("k", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.time64("ns"))),
        'map<string, time64[ns] (\'x\')>: [keys:["k"]values:[00:00:00.000000001]]',
    ),
    "a struct": (
        pyarrow.array([{"t": HUGE, "n": 1}], pyarrow.struct([("t", pyarrow.duration("s")), ("n", "int8")])),
        {"t": f"duration[s]: [{HUGE}]", "n": 1},
    ),
    "a struct with a name twice": (
        pyarrow.StructArray.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"]),
        "struct<x: int64, x: int64>: -- is_valid: all not null\n-- child 0 type: int64\n[1]\n"
        "-- child 1 type: int64\n[2]",
    ),
    "a dictionary": (pyarrow.array([1], pyarrow.time64("ns")).dictionary_encode(), "00:00:00.000000001"),
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_a_parquet_column_of_any_type_is_kept_as_json_can_hold_it(tmp_path: Path, column: str) -> None:
    values, expected = COLUMNS[column]
    table = pyarrow.table({**{name: [text] for name, text in ROW.items()}, "x": values})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (row,) = read_rows([str(tmp_path / "a.parquet")])
    assert isinstance(row, Row)
    assert row.columns == {"x": expected}
    json.dumps(dict(row.columns), ensure_ascii=False, allow_nan=False).encode()


def test_parquet_text_that_is_not_utf8_fails_its_own_row_only(tmp_path: Path) -> None:
    texts = pyarrow.concat_arrays([pyarrow.array(["good"]), BAD_TEXT, pyarrow.array(["good"])])
    table = pyarrow.table({"instruction": ["a", "b", "c"], "candidate": texts})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    first, bad, last = read_rows([str(tmp_path / "a.parquet")])
    assert isinstance(bad, Failure)
    assert (
        "a.parquet:2: 'candidate', the candidate, has a byte that is not UTF-8 (0xFF) at character 2"
        in bad.error
    )
    assert (type(first), type(last)) == (Row, Row)


def test_a_value_without_a_python_type_changes_no_other_and_no_text_beside_it(tmp_path: Path) -> None:
    texts = pyarrow.concat_arrays([pyarrow.array(["Q", "A", "Q"]), BAD_TEXT, pyarrow.array(["Q", "A"])])
    turn = {
        "role": pyarrow.array(["user", "assistant"] * 3),
        "content": texts,
        "at": pyarrow.array([1] * 6, pyarrow.timestamp("ns")),
    }
    for names in (["role", "content"], [*turn]):
        turns = pyarrow.StructArray.from_arrays([turn[name] for name in names], names=names)
        dates = pyarrow.array([1, 10**9, 1], pyarrow.date32())
        table = pyarrow.table({"messages": pyarrow.ListArray.from_arrays([0, 2, 4, 6], turns), "on": dates})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        first, bad, last = read_rows([str(tmp_path / "a.parquet")], used=("instruction", "candidate"))
        assert isinstance(bad, Failure)
        assert "has a byte that is not UTF-8" in bad.error
        for row in (first, last):
            assert isinstance(row, Row)
            assert (row.instruction, row.candidate, row.columns) == ("Q", "A", {"on": "1970-01-02"})


def test_reading_nanoseconds_does_not_depend_on_pandas(tmp_path: Path) -> None:
    table = pyarrow.table({**{name: [text] for name, text in ROW.items()}, "x": COLUMNS["nanoseconds"][0]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    program = "import sys, localjudge as l; list(l.read_rows(sys.argv[1:])); print('pandas' in sys.modules)"
    end = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a.parquet"], capture_output=True, text=True, check=True
    )
    assert end.stdout == "False\n"


def test_of_two_parquet_columns_with_one_name_neither_is_taken(tmp_path: Path) -> None:
    names = [*ROW, "candidate"]
    table = pyarrow.Table.from_arrays([pyarrow.array(["a", "b"])] * 4, names=names)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    rows = list(read_rows([str(tmp_path / "a.parquet")]))
    assert [row.error for row in rows if isinstance(row, Failure)] == [
        f"{tmp_path}/a.parquet:{number}: two columns have the name 'candidate'" for number in (1, 2)
    ]


def table_of(library: str, columns: Mapping[str, Any]) -> Any:
    if library == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns, strict=False)
    return pyarrow.table(columns)


TABLES = ["pandas", "polars", "pyarrow"]


@pytest.mark.parametrize("library", TABLES)
def test_a_table_is_its_rows_and_what_it_lacks_is_missing(library: str) -> None:
    columns = {
        "id": [1, 2],
        "question": ["Why?", "How?"],
        "reference": ["So.", None],
        "response": ["Because.", ""],
        "when": [datetime.datetime(2026, 1, 2), None],
    }
    first, second = rows_of_program(table_of(library, columns))
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert (first.id, first.instruction, first.reference, first.candidate) == ("1", "Why?", "So.", "Because.")
    assert first.columns == {"when": "2026-01-02 00:00:00"}
    assert (second.id, second.reference, second.candidate, second.columns) == ("2", None, "", {"when": None})


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("nothing", [float("nan"), None])
def test_a_reference_that_is_nan_everywhere_is_a_missing_one(library: str, nothing: float | None) -> None:
    table = table_of(library, {"instruction": ["a"], "candidate": ["b"], "reference": [nothing]})
    (row,) = rows_of_program(table)
    assert isinstance(row, Row)
    assert row.reference is None


def test_a_judge_scores_a_table(model: Path, short_rubric: Path) -> None:
    judge = Judge(model, rubric=short_rubric, engine="dry-run")
    table = pyarrow.table({"id": ["x", "y"], **{name: [text] * 2 for name, text in ROW.items()}})
    assert sorted((outcome.id, outcome.status) for outcome in judge.score(table)) == [
        ("x", "judged"),
        ("y", "judged"),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROW, r"rows: is a single row, or several splits; write score\(\[row\]\)"),
        (Row.from_response(instruction="a", candidate="b"), "rows: is a single row, or several splits; write"),
        ("a.jsonl", r"rows: a str; give dicts, Rows, a table, or the rows of a file: read_rows\(\[FILE\]\)"),
        (Path("a.jsonl"), r"rows: a PosixPath; give .* the rows of a file: read_rows\(\[FILE\]\)"),
        (5, "rows: a int; give dicts, Rows, a table"),
    ],
)
def test_what_holds_no_rows_is_refused_at_once_with_the_line_to_write(
    model: Path, short_rubric: Path, rows: Any, message: str
) -> None:
    judge = Judge(model, rubric=short_rubric, engine="dry-run")
    with pytest.raises(UsageError, match=message):
        judge.score(rows)


def test_a_pandas_table_with_a_name_twice_or_a_polars_query_is_refused() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    with pytest.raises(UsageError, match="two columns of the DataFrame have the name 'x'"):
        rows_of_program(pandas.DataFrame([["a", "b"]], columns=["x", "x"]))
    with pytest.raises(UsageError, match="a LazyFrame; give dicts, Rows, a table"):
        rows_of_program(polars.LazyFrame(ROW))


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ("text", "row 1: a str; a row is a dict or a Row"),
        ({1: "a", "x": "b"}, "row 1: no instruction: no value at 'instruction'"),
        ({**ROW, "n": 10**5000}, "row 1: its columns cannot be written as JSON: "),
    ],
)
def test_a_record_that_cannot_be_a_row_fails_and_the_next_one_is_read(record: Any, error: str) -> None:
    failure, row = rows_of_program([record, ROW])
    assert isinstance(failure, Failure)
    assert failure.error.startswith(error)
    assert isinstance(row, Row)
