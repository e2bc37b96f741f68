"""The reading of a run is stored: a further start, a merge, and the texts that are read again take it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from localjudge.runs.recorded_run import load_run
from localjudge.runs.reread_texts import rows_again
from localjudge.runs.run_manifest import read_manifest

DRY = ("--engine", "dry-run", "--rubric", "no-reference")


def write(file: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def answers(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "question": f"Q{n}?", "response": f"A{n}."} | more for n in range(count)]


def reading_of(run: Path) -> Any:
    (record,) = read_manifest(run).last_start.readings
    return record.reading


def test_a_run_stores_its_reading_and_the_digest_of_its_input(cli: Cli, tmp_path: Path) -> None:
    file, run = write(tmp_path / "a.jsonl", answers(3)), tmp_path / "run"
    assert cli("score", file, "--out", run, *DRY).code == 0
    assert reading_of(run).fields["candidate"].texts[0].path == "response"
    start = read_manifest(run).last_start
    assert [len(digest or "") for digest in start.input_sha256] == [64]


def test_a_run_is_continued_by_its_stored_reading(cli: Cli, tmp_path: Path) -> None:
    file, run = write(tmp_path / "a.jsonl", answers(3)), tmp_path / "run"
    assert cli("score", file, "--out", run, *DRY).code == 0
    before = reading_of(run)
    write(file, [{"prompt": "Q?", "output": "Other."}, *answers(3)])
    end = cli("score", file, "--out", run, *DRY)
    assert end.code == 3
    assert f"{file}: has changed since the last start" in end.err
    assert reading_of(run) == before
    errors = [outcome.error for outcome in load_run(run) if outcome.error]
    assert errors == [f"{file}:1: no instruction: no value at 'question', no candidate: no value at 'response'"]


def test_shards_with_unequal_readings_are_not_merged(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", answers(8, output=""))
    runs = [tmp_path / "one", tmp_path / "two"]
    for number, run in enumerate(runs, 1):
        shard = ("--shard", f"{number}/2", "--column", "candidate=response")
        assert cli("score", file, "--out", run, *shard, *DRY).code == 0
    manifest = json.loads((runs[1] / "run.json").read_text())
    manifest["starts"][0]["readings"][0]["reading"]["fields"]["candidate"]["texts"][0]["path"] = "output"
    (runs[1] / "run.json").write_text(json.dumps(manifest))
    end = cli("merge", *runs, "--out", tmp_path / "whole")
    assert (end.code, "readings" in end.err) == (2, True)


def test_the_texts_of_moved_inputs_are_read_by_the_stored_readings(cli: Cli, tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a.jsonl", answers(2)),
        write(tmp_path / "b.jsonl", [{"prompt": "Q?", "output": "Other.", "id": "b"}]),
    ]
    run = tmp_path / "run"
    assert cli("score", *files, "--out", run, *DRY).code == 0
    assert len(read_manifest(run).last_start.readings) == 2
    moved = [str(file.rename(tmp_path / f"moved-{file.name}")) for file in files]
    problems: list[str] = []
    texts = [row.candidate for row in rows_again(read_manifest(run), moved, problems)]
    assert (texts, problems) == (["A0.", "A1.", "Other."], [])


def test_a_column_of_later_records_is_counted_and_named_with_its_flag(cli: Cli, tmp_path: Path) -> None:
    records = answers(100) + [record | {"model": "north"} for record in answers(3)]
    file, run = write(tmp_path / "a.jsonl", records), tmp_path / "run"
    end = cli("score", file, "--out", run, *DRY)
    assert end.code == 0
    assert "3 records" in end.out + end.err
    assert "--column system=model" in " ".join((end.out + end.err).split())
    assert "--column system=model" in " ".join(cli("show", run).out.split())


@pytest.mark.parametrize(("code", "known"), [("First", True), ("first", True), ("FIRST", True), ("1st", False)])
def test_a_code_matches_exactly_or_without_regard_to_case(
    cli: Cli, tmp_path: Path, code: str, known: bool
) -> None:
    pairs = [
        {"prompt": f"Q{n}", "response_a": f"a{n}", "response_b": f"b{n}", "pref": ("First", "Second")[n % 2]}
        for n in range(4)
    ]
    file, run = write(tmp_path / "pairs.jsonl", pairs), tmp_path / "run"
    assert cli("score", file, "--rubric", "pairwise", "--engine", "dry-run", "--out", run).code == 0
    mapping = ("--map", f"better=pref:{code}=a,Second=b")
    assert (cli("agree", run, "--allow-dry-run", *mapping).code == 0) == known


def test_two_codes_that_differ_in_case_need_the_exact_one(cli: Cli, tmp_path: Path) -> None:
    pairs = [
        {"prompt": f"Q{n}", "response_a": f"a{n}", "response_b": f"b{n}", "pref": ("a", "A")[n % 2]}
        for n in range(4)
    ]
    file, run = write(tmp_path / "pairs.jsonl", pairs), tmp_path / "run"
    assert cli("score", file, "--rubric", "pairwise", "--engine", "dry-run", "--out", run).code == 0
    end = cli("agree", run, "--allow-dry-run", "--map", "better=pref:a=b,A=a", "--json")
    labels = json.loads(end.out)["aspects"]["better"]["labels"]
    assert labels == {"a": 2, "tie": 0, "b": 2}


def test_the_annotator_of_a_label_file_is_in_the_column_that_is_named(cli: Cli, tmp_path: Path) -> None:
    file, run = write(tmp_path / "a.jsonl", answers(4)), tmp_path / "run"
    assert cli("score", file, "--out", run, *DRY).code == 0
    labels = write(
        tmp_path / "labels.jsonl",
        [
            {"id": f"r{n}", "depth": 1 + (n + place) % 5, "WorkerId": name}
            for n in range(4)
            for place, name in enumerate(("ann", "bob"))
        ],
    )
    how = ("--labels", labels, "--allow-dry-run", "--json", "--column", "annotator=WorkerId")
    end = cli("agree", run, *how)
    assert end.code == 0, end.err
    assert json.loads(end.out)["aspects"]["depth"]["annotators"] == 2


def test_the_export_of_judged_conversations_is_read_as_the_same_rows(cli: Cli, tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello\nthere"}]
    file, run = write(tmp_path / "a.jsonl", [{"id": "t", "messages": talk}]), tmp_path / "run"
    how = ("--engine", "dry-run", "--rubric", "conversation")
    assert cli("score", file, "--out", run, *how).code == 0
    table = tmp_path / "table.jsonl"
    assert cli("export", run, "--to", "jsonl", "--with-texts", "--out", table).code == 0
    again = tmp_path / "again"
    assert cli("score", table, "--out", again, *how).code == 0
    digests = [[outcome.digest for outcome in load_run(each)] for each in (run, again)]
    assert digests[0] == digests[1]
