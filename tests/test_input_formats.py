"""Tests of the formats of files: each gives the rows of JSON lines, in a run as in reading."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import lzma
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.feather
import pytest
from conftest import Cli, read_lines
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from localjudge import Failure, Row, UsageError, read_rows
from localjudge.errors import RowError
from localjudge.rows.inputs import RecordStream, find_inputs
from localjudge.rows.program_rows import rows_of_program

Records = list[dict[str, str]]
ROW = {"instruction": "Why?", "reference": "So.", "candidate": "Because\nof “it”; is,\t是的 🙂"}


def json_lines(rows: Records) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def json_array(rows: Records) -> bytes:
    return json.dumps(rows, indent=2, ensure_ascii=False).encode()


def sheet(rows: Records, delimiter: str = ";") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def utf16(data: bytes, order: str = "le") -> bytes:
    return ("\ufeff" + data.decode()).encode(f"utf-16-{order}")


def arrow(rows: Records, *, is_file: bool = False) -> bytes:
    table, sink = pyarrow.Table.from_pylist(rows), io.BytesIO()
    make = pyarrow.ipc.new_file if is_file else pyarrow.ipc.new_stream
    with make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return sink.getvalue()


def feather(rows: Records) -> bytes:
    sink = io.BytesIO()
    pyarrow.feather.write_feather(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue()


def save_dataset(folder: Path, rows: Records) -> Path:
    """Write the files of `datasets.Dataset.save_to_disk`; the rows are not in the order of the file names."""
    folder.mkdir(parents=True)
    half = len(rows) // 2
    parts = {"data-00001-of-00002.arrow": rows[:half], "data-00000-of-00002.arrow": rows[half:]}
    for name, part in parts.items():
        (folder / name).write_bytes(arrow(part or rows[:0]))
    state = {"_data_files": [{"filename": name} for name in parts], "_fingerprint": "0", "_format_type": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


FILES: dict[str, Callable[[Records], bytes]] = {
    "array.json": json_array,
    "array.json.gz": lambda rows: gzip.compress(json_array(rows)),
    "lines.json": json_lines,
    "semicolons.csv": sheet,
    "semicolons.csv.gz": lambda rows: gzip.compress(sheet(rows)),
    "tabs.csv": lambda rows: sheet(rows, "\t"),
    "commas.tsv": lambda rows: sheet(rows, ","),
    "utf16le.csv": lambda rows: utf16(sheet(rows)),
    "utf16be.csv.gz": lambda rows: gzip.compress(utf16(sheet(rows), "be")),
    "utf16le.jsonl": lambda rows: utf16(json_lines(rows)),
    "utf16be.json": lambda rows: utf16(json_array(rows), "be"),
    "unmarked16le.csv": lambda rows: sheet(rows).decode().encode("utf-16-le"),
    "unmarked16be.jsonl": lambda rows: json_lines(rows).decode().encode("utf-16-be"),
    "utf32.json": lambda rows: json_array(rows).decode().encode("utf-32"),
    "utf8.json": lambda rows: b"\xef\xbb\xbf" + json_array(rows),
    "utf8.csv": lambda rows: b"\xef\xbb\xbf" + sheet(rows),
    "stream.arrow": arrow,
    "file.arrow": lambda rows: arrow(rows, is_file=True),
    "compressed.feather": feather,
}
SAVED = "saved-1.5"


def write(folder: Path, name: str, rows: Records) -> Path:
    if name == SAVED:
        return save_dataset(folder / name, rows)
    (folder / name).write_bytes(FILES[name](rows))
    return folder / name


@pytest.mark.parametrize("name", [*FILES, SAVED])
def test_every_format_gives_the_same_rows_in_the_same_order(tmp_path: Path, name: str) -> None:
    records = [{**ROW, "id": str(n), "extra": "kept"} for n in range(600)]
    rows = list(read_rows(find_inputs([str(write(tmp_path, name, records))])))
    assert [(type(row), row.id, row.columns) for row in rows] == [
        (Row, str(n), {"extra": "kept"}) for n in range(600)
    ]
    assert [{field: getattr(row, field) for field in ROW} for row in rows] == [ROW] * 600


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FILES, SAVED])
def test_a_run_of_any_format_continues_in_shards_and_its_texts_are_found_again(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path, name: str
) -> None:
    records = [{**ROW, "id": f"r{n}", "instruction": f"Question {n}?"} for n in range(12)]
    file = write(tmp_path, name, records)
    lines = tmp_path / "rows.jsonl"
    lines.write_bytes(json_lines(records))
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    out, of_lines, merged = (tmp_path / name for name in ("out", "of-lines", "merged"))
    assert cli("score", file, "--limit", 5, "--out", out, *flags).code == 0
    end = cli("score", file, "--out", out, *flags)
    assert (end.code, "continuing: 5 rows are done already, 7 are to do" in end.err) == (0, True), end.err
    shards = [tmp_path / f"shard-{index}" for index in (1, 2)]
    for index, shard in enumerate(shards, 1):
        assert cli("score", file, "--out", shard, "--shard", f"{index}/2", *flags).code == 0
    assert cli("merge", *shards, "--out", merged).code == 0
    assert (merged / "judgements.jsonl").read_bytes() == (out / "judgements.jsonl").read_bytes()
    texts = tmp_path / "texts.jsonl"
    assert cli("export", merged, "--to", "jsonl", "--out", texts, "--with-texts").code == 0
    exported = [json.loads(line) for line in texts.read_text("utf-8").splitlines()]
    assert [line["candidate"] for line in exported] == [ROW["candidate"]] * 12
    assert cli("score", lines, "--out", of_lines, *flags).code == 0
    one, other = ([{**line, "source": None} for line in read_lines(run)] for run in (out, of_lines))
    assert one == other
    digests = {
        json.loads((run / "run.json").read_text())["starts"][-1]["input_digest"] for run in (out, of_lines)
    }
    assert len(digests) == 1, "the digest is of the rows, not of the file"


@pytest.mark.parametrize("name", ["array.json", "semicolons.csv", "utf16le.jsonl", "file.arrow", SAVED])
def test_a_row_that_is_no_row_is_named_by_its_line_or_number(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path, name: str
) -> None:
    records = [{**ROW, "candidate": text} for text in ("one", "word " * 1000, "two")]
    file = write(tmp_path, name, records)
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run", "--max-row-bytes", 900]
    assert cli("score", file, "--out", tmp_path / "out", *flags).code == 3
    first, failed, last = read_lines(tmp_path / "out")
    number = 3 if "csv" in name else 2
    assert failed["error"].startswith(f"{file}:{number}: the row is larger than 900 bytes; allow larger rows")
    assert (first["status"], last["status"]) == ("judged", "judged")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "a.json",
            b'{\n"data": []}',
            "none of its first records is a row: no instruction, no reference, no candid",
        ),
        (
            "a.json",
            b'{\n"data": [}',
            "none of its first records is a row: the rest of the file cannot be read: not JSON: Expecting",
        ),
        ("a.json", b'"text"', "is not an array of objects; write"),
        (
            "a.csv",
            b"a,b;c\n1,2;3\n",
            "commas or semicolons may separate its columns; put each name of its first",
        ),
        (
            "a.xlsx",
            b"",
            "unknown format; use .jsonl, .json, .csv, .tsv (each also with .gz, .bz2, .xz or .zst), ",
        ),
    ],
)
def test_a_file_that_could_be_read_wrongly_is_refused_in_one_line_before_a_model_is_looked_for(
    cli: Cli, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    end = cli("score", tmp_path / name, "--out", tmp_path / "out", "--model", "none")
    assert (end.code, end.err.count("\n")) == (2, 1)
    assert end.err.startswith(f"localjudge: {tmp_path / name}: {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("none", "is a folder; name its files"),
        ("splits", "has several splits; name the folder of one: {0}/test or {0}/train"),
        ("missing", "has no file data-00000-of-00002.arrow, which its state.json names; copy it there"),
        ("outside", "has no file ../a.arrow, which its state.json names"),
        ("selection", "its rows are a selection; save it again with dataset.flatten_indices()"),
        ("damaged", "its state.json names no Arrow files; save the dataset again"),
    ],
)
def test_a_folder_that_is_no_whole_dataset_is_refused_in_one_line(
    tmp_path: Path, change: str, message: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if change == "splits":
        for split in ("train", "test"):
            save_dataset(folder / split, [ROW] * 2)
    elif change != "none":
        folder.rmdir()
        save_dataset(folder, [ROW] * 4)
        state = json.loads((folder / "state.json").read_text())
        if change == "missing":
            (folder / "data-00000-of-00002.arrow").unlink()
        elif change == "outside":
            (tmp_path / "a.arrow").write_bytes(arrow([ROW]))
            state["_data_files"] = [{"filename": "../a.arrow"}]
        elif change == "selection":
            state["_indices_data_files"] = [{"filename": "indices.arrow"}]
        (folder / "state.json").write_text("{" if change == "damaged" else json.dumps(state))
    with pytest.raises(UsageError) as refused:
        find_inputs([str(folder)])
    assert str(refused.value).startswith(f"{folder}: {message.format(folder)}")
    assert "\n" not in str(refused.value)


ARRAYS: dict[str, tuple[str, list[str | None]]] = {
    "no rows": ("[]", []),
    "a comma too many": ('[{"n": 1}, {"n": 2},]', [None, None]),
    "a comma too few": ('[{"n": 1} {"n": 2}, {"n": 3}]', [None, None, None]),
    "an invalid element": ('[{"n": 1},\n{\n"n": 2,},{"n": 3}]', [None, "2: the rest of the file cannot be "]),
    "elements that are no objects": ('[1, "],", [{}], null]', [f"{n}: not a JSON" for n in (1, 2, 3, 4)]),
    "brackets and quotes in texts": ('[{"n": "}],\\"[\\\\"}, {"]": "{"}]', [None, None]),
    "no end": ('[{"n": 1}, {"n": 2}', [None, None, "3: the rest of the file cannot be read: the array"]),
    "an end in an element": ('[{"n": 1}, {"n": "2', [None, "2: the rest of the file cannot be read: not JSON"]),
    "text after it": ('[{"n": 1}]\n[{"n": 2}]', [None, "2: the rest of the file cannot be read: there"]),
    "a closing bracket too many": ('[{"n": 1}}, {"n": 2}]', [None, "2: the rest of the file cannot be read"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_each_element_of_an_array_is_a_row_or_a_failure_and_one_says_where_the_array_breaks(
    tmp_path: Path, case: str
) -> None:
    text, expected = ARRAYS[case]
    file = tmp_path / "a.json"
    file.write_text(text.replace('"n": 3', '"n": 3, "instruction": "a", "candidate": "b"'))
    outcomes = list(read_rows([str(file)]))
    assert len(outcomes) == len(expected)
    for outcome, message in zip(outcomes, expected, strict=True):
        error = outcome.error if isinstance(outcome, Failure) else ""
        if message is None:
            assert not error or "no instruction" in error
        else:
            assert error.startswith(f"{file}:{message}"), error


@given(
    st.lists(
        st.dictionaries(st.text(max_size=4), st.text('a"\\[]{},\n é🙂', max_size=20), max_size=4), max_size=8
    ),
    st.sampled_from([None, 1]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"]),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_array_is_read_as_it_was_written(
    tmp_path: Path, records: Records, indent: int | None, encoding: str
) -> None:
    mark = "\ufeff" if "16" in encoding else ""
    text = mark + json.dumps(records, indent=indent, ensure_ascii=False)
    (tmp_path / "a.json").write_bytes(text.encode(encoding))
    assert [record for _, record in RecordStream(str(tmp_path / "a.json"))] == records


@pytest.mark.parametrize("form", ["[{}]", "{}"])
def test_json_is_read_the_same_wherever_a_piece_of_the_file_ends(tmp_path: Path, form: str) -> None:
    for place in range(24):
        records = [{"n": "x" * (65_520 - place)}, {"n": 2}, {"n": 3}]
        text = " ,\n ".join(map(json.dumps, records))
        (tmp_path / "a.json").write_text(form.format(text))
        assert [record for _, record in RecordStream(str(tmp_path / "a.json"))] == records


def test_white_space_between_two_elements_of_an_array_is_not_held(tmp_path: Path) -> None:
    space = b" " * 3_000_000
    (tmp_path / "a.json").write_bytes(
        b"[" + space + b'{"n": 1}' + space + b"," + space + b'{"n": 2}' + space + b"]"
    )
    tracemalloc.start()
    try:
        records = [record for _, record in RecordStream(str(tmp_path / "a.json"))]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert records == [{"n": 1}, {"n": 2}]
    assert peak < 1_500_000, "of 12 MB"


CELLS = st.text("a,;\t\"'\n\r é", max_size=8)


def is_consistent_without_quotes(text: str) -> bool:
    """Return whether each line has as many fields as the first one if quotes are a part of texts with tabs."""
    lines = [line.removesuffix("\n").removesuffix("\r") for line in io.StringIO(text, newline="\n")]
    widths = {len(line.split("\t")) for line in lines if line}
    return '"' in text and '""' not in text and len(widths) == 1 and "\r" not in "".join(lines)


@given(
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.lists(CELLS.filter(bool), min_size=2, max_size=4, unique=True),
    st.lists(st.lists(CELLS, min_size=4, max_size=4), max_size=4),
    st.sampled_from(["a.csv", "a.tsv"]),
)
@example(delimiter="\t", quoting=csv.QUOTE_MINIMAL, header=["\t\n", ";"], cells=[], name="a.tsv")
@example(
    delimiter="\t", quoting=csv.QUOTE_MINIMAL, header=[";", "\t"], cells=[["", "\t", "", ""]], name="a.csv"
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_csv_writer_wrote_is_read_back_or_refused_and_never_split_wrongly(
    tmp_path: Path, delimiter: str, quoting: Any, header: list[str], cells: list[list[str]], name: str
) -> None:
    text = io.StringIO(newline="")
    records = [row[: len(header)] for row in cells]
    csv.writer(text, delimiter=delimiter, quoting=quoting).writerows([header, *records])
    if name == "a.tsv" and delimiter != "\t" and "\t" in "".join(header):
        return  # the suffix says that a tab in the header is the delimiter
    if delimiter == "\t" and is_consistent_without_quotes(text.getvalue()):
        return  # the same bytes are a file of more rows whose texts have quotes
    file = tmp_path / name
    file.write_bytes(text.getvalue().encode())
    try:
        find_inputs([str(file)])
    except UsageError:
        plain = [each for each in ",;\t" if each in "".join(header)]
        assert quoting == csv.QUOTE_MINIMAL
        assert plain, "only a header that holds another delimiter is ambiguous"
        return
    read = [record for _, record in RecordStream(str(file))]
    if reasons := [each.reason for each in read if isinstance(each, RowError)]:
        assert "\t" in "".join(header), "read without quotes, two columns have the same name"
        assert len(reasons) == len(records)
        assert all(each.startswith("two columns have the name") for each in reasons)
        return
    assert read == [dict(zip(header, row, strict=True)) for row in records]


def test_a_quote_in_a_name_of_a_tsv_is_no_mark_of_quoting(tmp_path: Path) -> None:
    lines = ['question\tanswer (max 5")\treference', 'q1\t"Yes, he said\tr1', 'q2\tshe said no"\tr2']
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    read = [record for _, record in RecordStream(str(tmp_path / "a.tsv"))]
    header, *rows = (line.split("\t") for line in lines)
    assert read == [dict(zip(header, row, strict=True)) for row in rows]


def test_an_element_of_exactly_the_limit_is_read_whatever_white_space_is_around_it(tmp_path: Path) -> None:
    element = json.dumps(ROW).encode()
    file = tmp_path / "a.json"
    file.write_bytes(b"[" + b" " * 200_000 + element + b"\n  ,\n  " + element + b"\n]\n")
    for limit, kind in ((len(element), Row), (len(element) - 1, Failure)):
        assert [type(row) for row in read_rows([str(file)], max_row_bytes=limit)] == [kind] * 2


def test_an_export_into_the_folder_of_a_dataset_that_was_judged_is_refused(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    folder = save_dataset(tmp_path / SAVED, [ROW] * 2)
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    assert cli("score", folder, "--out", tmp_path / "out", *flags).code == 0
    file = folder / "data-00000-of-00002.arrow"
    end = cli("export", tmp_path / "out", "--to", "jsonl", "--out", file)
    assert (end.code, end.err) == (
        2,
        f"localjudge: --out {file}: is an input of this run; choose another name\n",
    )


def test_an_array_is_read_past_a_large_element_and_ends_with_a_failure_at_one_that_would_fill_the_memory(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.json.gz"
    file.write_bytes(gzip.compress(json_array([ROW, {**ROW, "candidate": '],"\n' * 5_000_000}, ROW]), 1))
    tracemalloc.start()
    try:
        row, failure = read_rows([str(file)], max_row_bytes=100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(row, Row)
    assert failure.error == (
        f"{file}:2: the rest of the file cannot be read: the row is larger than 100,000 bytes; "
        "allow larger rows with --max-row-bytes"
    )
    assert peak < 6_000_000, "of a row of 30 MB"
    kinds = [type(row) for row in read_rows([str(file)], max_row_bytes=10_000_000)]
    assert kinds == [Row, Failure, Row]


def test_a_utf16_text_that_breaks_off_or_is_not_valid_fails_where_it_does(tmp_path: Path) -> None:
    line = json_lines([{**ROW, "candidate": "plain"}])
    file = tmp_path / "a.jsonl"
    file.write_bytes(utf16(line) + line.decode().encode("utf-16-le")[:-5])
    first, last = read_rows([str(file)])
    assert isinstance(first, Row)
    assert isinstance(last, Failure)
    assert last.error == f"{file}:2: not UTF-8 at byte 64 of the line"
    file.write_bytes(utf16(line) + b'"\x00\x00\xd8"\x00\n\x00' + line.decode().encode("utf-16-le"))
    first, bad, last = read_rows([str(file)])
    assert (type(first), type(bad), type(last)) == (Row, Failure, Row)


def test_a_utf32_text_that_is_not_valid_fails_where_it_is_not_and_the_rest_is_read(tmp_path: Path) -> None:
    line = json_lines([{**ROW, "candidate": "plain"}]).decode()
    file = tmp_path / "a.jsonl"
    file.write_bytes(line.encode("utf-32") + b"\xff\xff\xff\xff" + 2 * line.encode("utf-32-le"))
    first, bad, last = read_rows([str(file)])
    assert (type(first), type(last)) == (Row, Row)
    assert isinstance(bad, Failure)
    assert bad.error == f"{file}:2: not UTF-8 at byte 1 of the line"


@pytest.mark.parametrize("zeros", [1, 2, 3, 5, 4096])
def test_zero_bytes_before_a_line_make_no_other_encoding_of_the_file(tmp_path: Path, zeros: int) -> None:
    line = json_lines([{**ROW, "candidate": "plain"}])
    file = tmp_path / "a.jsonl"
    for end in (b"\n", b""):
        file.write_bytes(b"\0" * zeros + end + 2 * line)
        damaged, *rows = read_rows([str(file)])
        assert isinstance(damaged, Failure)
        assert "not JSON" in str(damaged.error)
        assert [type(row) for row in rows] == [Row] * (2 if end else 1)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.xz", "a.csv.gz", "a.csv.xz"])
def test_a_packed_file_that_breaks_off_names_the_line_where_it_does(tmp_path: Path, name: str) -> None:
    texts = [str(number * 104_729) for number in range(3000)]
    table = "question,response\n" + "".join(f'"Q\n{text}",A\n' for text in texts)
    objects = "".join(json.dumps({"question": text, "response": "A"}) + "\n\n" for text in texts)
    data = (table if "csv" in name else objects).encode()
    whole, unpack = (
        (gzip.compress(data), zlib.decompressobj(31))
        if name.endswith("gz")
        else (lzma.compress(data), lzma.LZMADecompressor())
    )
    file = tmp_path / name
    file.write_bytes(whole[:-2000])
    *_, last = read_rows([str(file)], used=("instruction", "candidate"))
    assert isinstance(last, Failure)
    lines = unpack.decompress(whole[:-2000]).count(b"\n")
    assert last.source == f"{file}:{lines + 1}"
    assert "the rest of the file cannot be read" in last.error


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("places", [(0, 5, 11, 16), (0, 1, 3, 4)], ids=["of texts", "of lists"])
def test_an_arrow_file_whose_offsets_are_wrong_fails_its_own_row_and_does_not_end_the_process(
    tmp_path: Path, is_file: bool, places: tuple[int, ...]
) -> None:
    texts, tags = ("first", "second", "third"), (["a"], ["b", "c"], ["d"])
    columns = {"instruction": texts, "candidate": ["x"] * 3, "tags": tags}
    data = arrow(pyarrow.table(columns).to_pylist(), is_file=is_file)
    offsets = b"".join(number.to_bytes(4, "little") for number in places)
    wild = b"".join(number.to_bytes(4, "little") for number in (*places[:3], 2**31 - 1))
    assert data.count(offsets) == 1
    file = tmp_path / "a.arrow"
    file.write_bytes(data.replace(offsets, wild))
    first, second, third = read_rows([str(file)])
    assert (type(first), type(second)) == (Row, Row)
    assert isinstance(third, Failure)
    assert third.error.startswith(f"{file}:3: not a valid Arrow record: ")


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow", "compressed.feather"])
def test_a_damaged_arrow_file_gives_what_can_be_read_and_then_a_failure(tmp_path: Path, name: str) -> None:
    whole = FILES[name]([{**ROW, "candidate": "word " * n} for n in range(50)])
    for data in (b"", b"junk", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(data)
        *_, last = outcomes = list(read_rows([str(tmp_path / name)]))
        assert isinstance(last, Failure)
        assert len(outcomes) <= 51


def test_alpaca_evals_outputs_are_judged_without_options_and_the_run_says_which_columns_it_took(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    outputs = [
        {"dataset": "helpful_base", "instruction": f"Q{n}?", "output": "Yes.", "generator": "alpaca-7b"}
        for n in range(3)
    ]
    file = tmp_path / "model_outputs.json"
    file.write_text(json.dumps(outputs))
    flags = ["--out", tmp_path / "out", "--model", model, "--engine", "dry-run"]
    end = cli("score", file, *flags)
    assert end.code == 2
    assert end.err.endswith(
        "--column reference=COLUMN, or judge without one: --rubric no-reference (3 of its first 3)\n"
    )
    end = cli("score", file, *flags, "--rubric", "no-reference")
    assert end.code == 0, end.err
    assert "1 input(s), candidate=output system=generator → " in end.err
    assert {line["system"] for line in read_lines(tmp_path / "out")} == {"alpaca-7b"}
    assert {json.dumps(line["columns"]) for line in read_lines(tmp_path / "out")} == {
        '{"dataset": "helpful_base"}'
    }


def test_a_folder_gives_its_whole_name_to_its_rows_as_their_system(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / SAVED, [ROW] * 2)
    rows = list(read_rows([str(folder)], {"system": "@filename"}))
    assert {row.system for row in rows if isinstance(row, Row)} == {SAVED}
    assert [row.source for row in rows] == [f"{folder}:1", f"{folder}:2"]


class Exported:
    """A table of a library that is not known here, with Arrow's interface for streams."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Iterated:
    """Rows as `datasets.Dataset` gives them: neither a list nor a table, but it yields dicts."""

    def __init__(self, rows: Records) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        return iter(self._rows)


@pytest.mark.parametrize("make", [Iterated, lambda rows: Exported(pyarrow.Table.from_pylist(rows))])
def test_what_yields_dicts_or_exports_an_arrow_stream_is_its_rows(make: Callable[[Records], Any]) -> None:
    records = [{**ROW, "id": str(n)} for n in range(600)]
    rows = list(rows_of_program(make(records)))
    assert [row.id for row in rows] == [str(n) for n in range(600)]
    assert {row.candidate for row in rows if isinstance(row, Row)} == {ROW["candidate"]}


def test_a_column_of_a_table_is_no_rows() -> None:
    (failure,) = rows_of_program(pyarrow.chunked_array([["text"]]))
    assert isinstance(failure, Failure)
    assert failure.error.endswith("a row is a dict or a Row")


def test_the_splits_of_a_dataset_are_not_rows(installed_as: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed_as / "datasets.py").write_text(
        "class DatasetDict(dict): pass\nclass IterableDatasetDict(dict): pass\n"
    )
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    splits = importlib.import_module("datasets").DatasetDict(train=[ROW], test=[ROW])
    with pytest.raises(
        UsageError, match=r"^rows: is a single row, or several splits; write .* or score\(rows\['test'\]\)$"
    ):
        rows_of_program(splits)
    monkeypatch.delitem(sys.modules, "datasets")
