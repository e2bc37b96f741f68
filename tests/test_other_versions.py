"""Tests across versions: a run of another version is refused by name, and nothing of it changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

import localjudge
from localjudge import Judge, load_run, score_run
from localjudge.errors import RunMismatchError
from localjudge.runs.row_source import RowSource
from localjudge.runs.shard import Shard


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with rows, and the run of each of their two halves."""
    folder = tmp_path_factory.mktemp("shards")
    rows = [
        {"instruction": f"Say {word}.", "reference": f"{word}.", "candidate": f"{word}!", "id": word}
        for word in ("one", "two", "three", "four", "five", "six")
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    judge = Judge()
    for part in (1, 2):
        source = RowSource.from_files([str(folder / "rows.jsonl")], used=judge.rubric.fields)
        score_run(judge, source, folder / f"part-{part}", shard=Shard(part, 2))
    return folder


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "judgements.jsonl").read_bytes().splitlines()]


COMMANDS = (
    "show {run}", "show {run} --failed", "export {run} --to csv --out x.csv", "report {run} --out x.html",
    "merge {run} part-2 --out whole", "rank {run}", "audit --check repeat {run} --sample 1",
    "score rows.jsonl --out {run} --shard 1/2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: manifest.update(format=9), "run.json: has run format 9, and {here} reads format 11"),
        (
            lambda manifest: manifest.update(format=12),
            "run.json: has run format 12, and {here} reads format 11",
        ),
    ],
)
def test_a_run_of_another_version_is_refused_everywhere_in_one_line_that_names_the_version(
    cli: Cli, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shards, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "part-1"
    manifest = json.loads((run / "run.json").read_bytes())
    manifest["starts"][-1]["localjudge"] = "7.1"
    change(manifest)
    (run / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    for command in COMMANDS:
        end = cli(*command.format(run=run).split())
        last = end.err.splitlines()[-1]
        words = said.format(here=f"localjudge {localjudge.__version__}")
        assert (end.code, words in last, "localjudge 7.1, which wrote it" in last) == (2, True, True), (
            command, end.err,
        )  # fmt: skip
    with pytest.raises(RunMismatchError, match=r"localjudge 7\.1, which wrote it"):
        list(load_run(run))
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["part-1", "part-2", "rows.jsonl"]


def test_a_run_whose_values_had_another_definition_is_not_continued(
    cli: Cli, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shards, tmp_path, dirs_exist_ok=True)
    manifest = json.loads(Path("part-1/run.json").read_bytes())
    rule = manifest["settings"]["value_rule"]
    manifest["settings"]["value_rule"] = rule - 1
    Path("part-1/run.json").write_text(json.dumps(manifest), encoding="utf-8")
    end = cli("score", "rows.jsonl", "--out", "part-1", "--shard", "1/2")
    assert (end.code, f"value_rule: {rule - 1} there, {rule} now" in end.err) == (2, True), end.err
