"""Tests of exports of pairs: tables of pairs, and pairs for programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from conftest import Cli, row_lines
from pair_runs import RUBRIC, judged_pairs, write_pairs, write_responses

from localjudge import Rubric, RubricError, UsageError, load_run
from localjudge.rows.pairs import Pairing


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of the seven pairs of three systems."""
    folder = tmp_path_factory.mktemp("pairs")
    return judged_pairs(write_responses(folder / "rows.jsonl"), model, folder / "run")


@pytest.fixture(scope="module")
def nameless(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of four pairs without systems, judged in one order; the last pair cannot be judged."""
    folder = tmp_path_factory.mktemp("nameless")
    rows = write_pairs(folder / "rows.jsonl", note="=1+1")
    return judged_pairs(rows, model, folder / "run", Pairing(orders=1))


def exported(cli: Cli, run: Path, to: str, out: Path, *flags: str) -> Path:
    end = cli("export", run, "--to", to, "--out", out, *flags)
    assert end.code == 0, end.err
    assert " pairs · " in end.err
    return out


def test_a_table_of_a_run_of_pairs_has_a_line_for_each_pair(cli: Cli, run: Path, tmp_path: Path) -> None:
    out = exported(cli, run, "jsonl", tmp_path / "t.jsonl")
    table = [json.loads(line) for line in out.read_text().splitlines()]
    pairs = row_lines(run)
    assert [{name: row[name] for name in pairs[0]} for row in table] == pairs
    assert len(table) == 7
    assert all(row["notice"].startswith("missing responses: ") for row in table)


def test_the_texts_of_a_pair_are_in_the_order_of_the_input(cli: Cli, run: Path, tmp_path: Path) -> None:
    out = exported(cli, run, "jsonl", tmp_path / "t.jsonl", "--with-texts")
    for row in map(json.loads, out.read_text().splitlines()):
        n = int(row["id"][0])
        assert (row["instruction"], row["reference"]) == (f"Question {n}?", None)
        assert row["candidate_a"] == f"word {row['system_a']} " * n
        assert row["candidate_b"] == f"word {row['system_b']} " * n


def test_parquet_has_typed_columns_and_the_failed_pairs(cli: Cli, nameless: Path, tmp_path: Path) -> None:
    table = pyarrow.parquet.read_table(
        exported(cli, nameless, "parquet", tmp_path / "t.parquet", "--with-texts")
    )
    types = {field.name: field.type for field in table.schema}
    assert types["better_preference"] == pyarrow.float64()
    assert types["better_orders_agree"] == pyarrow.bool_()
    assert types["better"] == types["better_ba"] == types["candidate_a"] == pyarrow.string()
    *judged, failed = table.to_pylist()
    assert [row["candidate_a"] for row in judged] == ["yes ", "yes yes ", "yes yes yes "]
    assert {row["better_ba"] for row in judged} == {None}, "it was judged in one order"
    assert (failed["status"], failed["better"], failed["better_preference"]) == ("failed", None, None)
    assert failed["error"]


def test_no_cell_of_a_csv_of_pairs_is_a_formula(cli: Cli, nameless: Path, tmp_path: Path) -> None:
    with exported(cli, nameless, "csv", tmp_path / "t.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == ["p1", "p2", "p3", "p4"]
    assert rows[0]["better_preference"] == str(row_lines(nameless)[0]["better_preference"])
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_a_program_reads_the_pairs_of_a_run_as_outcomes_and_as_tables(run: Path) -> None:
    recorded, written = load_run(run), row_lines(run)
    assert [pair.id for pair in recorded.pairs] == [line["id"] for line in written]
    values = [line["better_preference"] for line in written]
    assert list(recorded.pairs.to_pandas()["better_preference"]) == values
    assert recorded.pairs.to_polars()["better_preference"].to_list() == values
    assert recorded.pairs.to_arrow()["better_preference"].to_pylist() == values
    assert recorded.to_arrow().num_rows == 14, "the run itself has a row for each order"


def test_a_program_gets_the_texts_that_an_export_has(cli: Cli, run: Path, tmp_path: Path) -> None:
    exported(cli, run, "jsonl", tmp_path / "t.jsonl", "--with-texts")
    whole = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    recorded = load_run(run)
    table = recorded.pairs.to_pandas(with_texts=True)
    for name in ("instruction", "candidate_a", "candidate_b", "better_preference"):
        assert table[name].tolist() == [line[name] for line in whole]
    by_order = recorded.to_pandas(with_texts=True)
    of_pair = by_order[by_order["id"] == whole[0]["id"]]
    assert set(of_pair["swapped"]) == {True, False}
    assert set(of_pair["candidate_a"]) == {whole[0]["candidate_a"]}, (
        "both orders have the texts of the input's order"
    )


def test_a_run_of_single_responses_has_no_pairs(cli: Cli, model: Path, tmp_path: Path) -> None:
    assert cli("score", "examples", "--limit", 1, "--engine", "dry-run", "--out", tmp_path / "run").code == 0
    with pytest.raises(UsageError, match="judges one response, so it has no pairs"):
        _ = load_run(tmp_path / "run").pairs


@pytest.mark.parametrize(
    "name", ["system_a", "candidate_b", "depth_preference", "depth_orders_agree", "depth_ab"]
)
def test_an_aspect_of_pairs_cannot_have_the_name_of_a_column_of_pairs(name: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(RUBRIC.replace("aspects.better", f"aspects.{name}"))
    with pytest.raises(RubricError, match=f"'{name}' is the name of another column"):
        Rubric.load(str(tmp_path / "r.toml"))
