"""Tests of exports to the formats of other tools: every row, with types, and safe to open."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from conftest import Cli, read_lines, write_rows

from localjudge import UsageError
from localjudge.modes import ONE_ROW_PER_PROMPT
from localjudge.records import Judgement
from localjudge.records.outcome_columns import AnswerColumns, to_bytes, to_line
from localjudge.report.table_files import LineTable, write_csv, write_jsonl, write_parquet
from localjudge.runs.reader import read_notices


@pytest.fixture
def run(cli: Cli, tmp_path: Path, model: Path, short_rubric: Path) -> Path:
    """Return a run of six rows by two systems on three questions; one row could not be judged."""
    rows = write_rows(tmp_path / "a.jsonl", 5, note="=1+1")
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    for place, line in enumerate(lines):
        line["instruction"] = f"Question {place // 2}?"
    bad = {"id": "=bad", "system": "b", "instruction": "Question 2?", "reference": "Yes.", "candidate": None}
    rows.write_text("".join(json.dumps(line) + "\n" for line in [*lines, bad]))
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    assert cli("score", rows, "--out", tmp_path / "run", *flags).code == 3
    return tmp_path / "run"


def test_parquet_has_every_row_with_typed_columns(cli: Cli, run: Path, model: Path, tmp_path: Path) -> None:
    assert cli("export", run, "--to", "parquet", "--out", tmp_path / "t.parquet", "--with-texts").code == 0
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    assert table.num_rows == 6
    assert table.schema.field("tact").type == pyarrow.int64()
    assert table.schema.field("tact_expected").type == pyarrow.float64()
    assert table.schema.field("wit_probabilities").type == pyarrow.list_(pyarrow.float64())
    first, last = table.to_pylist()[0], table.to_pylist()[-1]
    line = next(read_lines(run))
    assert first | {"columns": line["columns"]} == line | {
        "instruction": "Question 0?", "reference": "Yes.", "candidate": "word ",
        "model": str(model), "notice": read_notices(run)[0],
    }  # fmt: skip
    assert json.loads(first["columns"]) == {"note": "=1+1"}
    assert (last["tact"], last["candidate"], last["status"]) == (None, None, "failed")


def test_the_suffix_names_the_format_of_a_table(cli: Cli, run: Path, tmp_path: Path) -> None:
    for suffix in ("jsonl", "csv", "parquet"):
        assert cli("export", run, "--out", tmp_path / f"named.{suffix}").code == 0
        assert cli("export", run, "--to", suffix, "--out", tmp_path / "other").code == 0
        assert (tmp_path / f"named.{suffix}").read_bytes() == (tmp_path / "other").read_bytes()
    end = cli("export", run, "--out", tmp_path / "t.xlsx")
    assert (end.code, "its suffix names no table; end it with .jsonl, .csv, .parquet" in end.err) == (2, True)


def test_csv_holds_the_same_and_no_cell_is_a_formula(cli: Cli, run: Path, tmp_path: Path) -> None:
    assert cli("export", run, "--to", "csv", "--out", tmp_path / "t.csv").code == 0
    with (tmp_path / "t.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    lines = list(read_lines(run))
    assert [row["tact"] for row in rows] == [str(line["tact"] or "") for line in lines]
    assert json.loads(rows[0]["tact_probabilities"]) == lines[0]["tact_probabilities"]
    assert rows[-1]["id"] == "'=bad"
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


FORMULAS = {
    "=1+1": "'=1+1",
    "a;=1+1": "a;'=1+1",
    "a\t=1+1": "a\t'=1+1",
    " =1+1": "' =1+1",
    "a;  \u00a0+1": "a;'  \u00a0+1",
    'a;"=1': "a;'\"=1",
    "\t@x": "'\t'@x",
    "\rx": "'\rx",
    "one\n-two": "one\n'-two",
    "one\r\n=two": "one\r\n'=two",
    "a;\uff1d1": "a;'\uff1d1",
    "1 - 1 = 0; a@b": "1 - 1 = 0; a@b",
    "a; b\tc\n": "a; b\tc\n",
}


def test_no_part_of_a_csv_cell_that_a_program_might_split_off_is_a_formula(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    rows = tmp_path / "a.jsonl"
    record = {"instruction": "a", "reference": "b", "candidate": "c"}
    rows.write_text("".join(json.dumps({**record, "candidate": text, "x": text}) + "\n" for text in FORMULAS))
    assert cli("score", rows, "--out", tmp_path / "run", "--model", model, "--engine", "dry-run").code == 0
    assert cli("export", tmp_path / "run", "--to", "csv", "--out", tmp_path / "t.csv", "--with-texts").code == 0
    with (tmp_path / "t.csv").open(newline="") as stream:
        cells = list(csv.DictReader(stream))
    assert [cell["candidate"] for cell in cells] == list(FORMULAS.values())
    assert [json.loads(cell["columns"])["x"] for cell in cells] == list(FORMULAS), "JSON has an escape for it"
    assert ";=" not in cells[1]["columns"]


def test_jsonl_holds_the_lines_themselves(cli: Cli, run: Path, model: Path, tmp_path: Path) -> None:
    assert cli("export", run, "--to", "jsonl", "--out", tmp_path / "t.jsonl").code == 0
    origin = {"model": str(model), "notice": read_notices(run)[0]}
    written = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert written == [line | origin for line in read_lines(run)]


def means_of_duckdb(file: Path) -> dict[str, list[float]]:
    import duckdb

    query = f"select system, avg(tact), avg(wit), avg(wit_expected), count(wit) from '{file}' group by system"
    return {name: means for name, *means in duckdb.sql(query).fetchall()}


def means_of_pandas(file: Path) -> dict[str, list[float]]:
    import pandas

    groups = pandas.read_parquet(file).groupby("system")
    means = groups[["tact", "wit", "wit_expected"]].mean().assign(judged=groups["wit"].count())
    return {str(name): list(row) for name, row in zip(means.index, means.to_numpy(), strict=True)}


@pytest.mark.parametrize("means_of", [means_of_duckdb, means_of_pandas])
def test_other_tools_read_the_means_of_the_run_from_parquet(
    cli: Cli, run: Path, tmp_path: Path, means_of: Callable[[Path], dict[str, list[float]]]
) -> None:
    file = tmp_path / "t.parquet"
    assert cli("export", run, "--to", "parquet", "--out", file).code == 0
    assert means_of(file) == {
        name: pytest.approx(
            [each["mean"]["tact"], each["mean"]["wit"], each["mean_expected"]["wit"], each["judged"]], abs=1e-4
        )
        for name, each in summed(run).items()
    }


def summed(run: Path) -> dict[str, dict[str, Any]]:
    """Return the counts and means of each system, which `show` prints, from the summary of a run."""
    return {each["system"]: each for each in json.loads((run / "summary.json").read_text())["systems"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["RUN", "--to", "xlsx", "--out", "t"], "--to xlsx: give one of jsonl, csv, parquet"),
        (["none", "--to", "csv", "--out", "t"], "none: not a run directory"),
        (["RUN", "--to", "csv", "--out", "none/t"], "--out none/t: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    cli: Cli, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    end = cli("export", *(run if word == "RUN" else word for word in arguments))
    assert (end.code, end.out, words in end.err) == (2, "", True)


WIT = AnswerColumns({"wit": int})
SCHEMA = partial(ONE_ROW_PER_PROMPT.schema, WIT, ())


def judgement_with(columns: dict[str, Any]) -> Judgement:
    return Judgement(
        id="r7", key="k", source="mine.py:7", columns=columns, texts={"rationale": ""}, scores={"wit": 1},
        rationale_cut=False, prompt_tokens=1, output_tokens=1,
    )  # fmt: skip


def cycle() -> dict[str, Any]:
    columns: dict[str, Any] = {"list": []}
    columns["list"].append(columns)
    return columns


def deep() -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(100_000):
        inner = {"in": inner}
    return inner


@pytest.mark.parametrize("odd", [cycle(), deep(), {"of": {(1, 2): 3}}, {"of": [object()]}])
def test_columns_that_json_cannot_hold_are_one_line_that_names_the_row(
    odd: dict[str, Any], tmp_path: Path
) -> None:
    judgement = judgement_with(odd)
    line = to_line(judgement, WIT)
    said = r"^mine.py:7: its columns cannot be written as JSON: [^\n]+$"
    with pytest.raises(UsageError, match=said):
        to_bytes(judgement, WIT)
    table = LineTable(list(line), [line], SCHEMA)
    for write in (write_jsonl, write_csv, write_parquet):
        with pytest.raises(UsageError, match=said):
            write(table, tmp_path / "out")


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet"])
def test_a_field_of_the_template_never_replaces_a_column_of_the_run(
    cli: Cli, tmp_path: Path, model: Path, to: str
) -> None:
    fields = ("source", "status", "warmth", "model", "input_source", "mood")
    rubric = tmp_path / "fields.toml"
    shown = " ".join(f"{{${name}}}" for name in fields)
    rubric.write_text(
        'name = "fields"\naspects = ["warmth"]\nscale = {lowest = 1, highest = 5}\n[answer]\n'
        f'rationale_place = "none"\n[prompt]\ntemplate = "{{$instruction}} {{$candidate}} {shown}"\n'
    )
    row = {"instruction": "i", "candidate": "c", **{name: f"own {name}" for name in fields}}
    rows, run, out = tmp_path / "rows.jsonl", tmp_path / "run", tmp_path / f"out.{to}"
    rows.write_text(json.dumps(row) + "\n")
    assert cli("score", rows, "--model", model, "--rubric", rubric, "--out", run).code == 0
    assert cli("export", run, "--to", to, "--with-texts", "--out", out).code == 0
    if to == "csv":
        names, cells = csv.reader(out.read_text().splitlines())
        assert len(names) == len(cells) == len({*names})
        line = dict(zip(names, cells, strict=True))
    else:
        line = json.loads(out.read_text()) if to == "jsonl" else pyarrow.parquet.read_table(out).to_pylist()[0]
    assert (line["status"], line["source"]) == ("judged", f"{rows}:1")
    assert int(line["warmth"]) in range(1, 6)
    assert line["model"] == str(model)
    own = {"input_status": "status", "input_warmth": "warmth", "input_model": "model", "mood": "mood"}
    own |= {"input_input_source": "source", "input_source": "input_source"}
    assert {name: line[name] for name in own} == {name: f"own {field}" for name, field in own.items()}


def test_texts_that_have_changed_are_not_passed_off_as_judged(cli: Cli, run: Path, tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    before = rows.read_text()
    rows.write_text(before.replace("Question 1?", "Another?"))
    end = cli("export", run, "--to", "csv", "--out", tmp_path / "t.csv", "--with-texts")
    assert (end.code, "a.jsonl:3 has changed since it was judged" in end.err) == (2, True)
    assert not list(tmp_path.glob("t.csv*"))
    rows.unlink()
    end = cli("export", run, "--to", "csv", "--out", tmp_path / "t.csv", "--with-texts")
    assert (end.code, "its rows cannot be read again" in end.err) == (2, True)
