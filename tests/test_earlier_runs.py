"""Tests across versions: runs of earlier versions stay readable, and runs of later ones are refused by name.

`earlier_runs/VERSION` holds runs as that version wrote them: two shards of a run, and a run of pairs. They are
never changed after that version was released; `CONTRIBUTING.md` says when to keep another version's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from report_page import held_rows

import localjudge
from localjudge import load_run
from localjudge.errors import RunMismatchError
from localjudge.records.outcome_columns import from_bytes, to_line
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest

EARLIER = Path(__file__).with_name("earlier_runs")
VERSIONS = sorted(EARLIER.iterdir(), key=lambda folder: tuple(map(int, folder.name.split("."))))
RUNS = ("part-1", "part-2", "pairs")
ADVICE = (
    "a run has {}, which no run in tests/earlier_runs has: earlier runs need a default for it, and runs of "
    "this version must be kept (CONTRIBUTING.md, `a column of a judgement`)"
)


@pytest.fixture(params=VERSIONS, ids=lambda folder: str(folder.name))
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of the runs of one version, beside their rows."""
    copy: Path = shutil.copytree(request.param, tmp_path / "earlier")
    return copy


def lines(folder: Path, name: str = "judgements.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_bytes().splitlines()]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_an_earlier_version_means_what_it_meant(earlier: Path, name: str) -> None:
    folder = earlier / name
    columns = read_manifest(folder).rubric.columns
    assert len(list(load_run(folder))) == len(lines(folder))
    for line in lines(folder):
        again = to_line(from_bytes(json.dumps(line).encode(), columns), columns)
        assert {key: again[key] for key in line} == line
        assert all(again[key] is None for key in again.keys() - line.keys())


def test_the_verdicts_of_pairs_stay_those_of_the_version_that_judged_them(earlier: Path) -> None:
    folder = earlier / "pairs"
    columns = read_manifest(folder).rubric.columns
    kept = {line["id"]: line["better"] for line in lines(folder, "pairs.jsonl")}
    assert {pair.id: pair.line(columns)["better"] for pair in load_run(folder).pairs} == kept
    said = "averaged verdicts: made by an earlier version" in str(read_notices(folder))
    assert said is ("verdicts" not in json.loads((folder / "run.json").read_bytes()))


@pytest.mark.slow
def test_runs_of_an_earlier_version_are_merged_shown_exported_and_reported(cli: Cli, earlier: Path) -> None:
    pytest.importorskip("vl_convert")
    whole = earlier / "whole"
    assert cli("merge", earlier / "part-1", earlier / "part-2", "--out", whole).code == 3, (
        "a row of them failed"
    )
    parts = [line for name in RUNS[:2] for line in lines(earlier / name)]
    assert lines(whole) == sorted(parts, key=lambda line: line["row"])
    run = load_run(whole)
    assert run.complete
    assert [outcome.status for outcome in run] == ["judged"] * 4 + ["failed"]
    assert [pair.id for pair in load_run(earlier / "pairs").pairs] == [
        line["id"] for line in lines(earlier / "pairs", "pairs.jsonl")
    ]
    for folder, said in ((whole, "ex-01-birch"), (earlier / "pairs", "ex-01-birch vs ex-01-cedar")):
        shown = cli("show", folder)
        assert (shown.code, "birch" in shown.out) == (0, True), shown.err
        table, page = folder.with_suffix(".jsonl"), folder.with_suffix(".html")
        exported = cli("export", folder, "--to", "jsonl", "--out", table)
        assert (exported.code, said in table.read_text(encoding="utf-8")) == (0, True), exported.err
        assert cli("report", folder, "--out", page, "--inputs", earlier / "rows.jsonl").code == 0
        assert "A bit more than 8 minutes." in str(held_rows(page))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags"),
    [("part-1", ("--shard", "1/2")), ("pairs", ("--rubric", "pairwise", "--pairs", "all"))],
)
def test_a_run_of_an_earlier_version_continues_or_is_refused_with_the_difference(
    cli: Cli, earlier: Path, monkeypatch: pytest.MonkeyPatch, name: str, flags: tuple[str, ...]
) -> None:
    monkeypatch.chdir(earlier)
    journal = earlier / name / "judgements.jsonl"
    before = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(before[:-1]))
    (earlier / name / "summary.json").unlink()
    end = cli("score", "rows.jsonl", "--out", name, *flags)
    after = journal.read_bytes().splitlines(keepends=True)
    for line, again in zip(before[:-1], after, strict=False):
        # A run that is completed by this version has its columns in every line; the judgements stay.
        was, now = json.loads(line), json.loads(again)
        assert {column: now[column] for column in was if column != "group"} == {
            column: was[column] for column in was if column != "group"
        }
    assert (earlier / name / "set-aside.jsonl").exists() is False
    # The bundled judge, or the device, may be another one since; then the message says so.
    refused = f"--out {name}: holds another run; it differs in " in end.err
    assert (end.code in (0, 3) and len(after) == len(before)) or (end.code == 2 and refused), end.err


@pytest.mark.slow
def test_a_run_of_today_has_no_field_that_no_kept_run_has(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(VERSIONS[-1] / "rows.jsonl", "rows.jsonl")
    cli("score", "rows.jsonl", "--out", "part-1", "--shard", "1/2")
    cli("score", "rows.jsonl", "--out", "part-2", "--shard", "2/2")
    cli("score", "rows.jsonl", "--out", "pairs", "--rubric", "pairwise", "--pairs", "all")
    for name in RUNS:
        kept, now = VERSIONS[-1] / name, tmp_path / name
        for file in ("run.json", "summary.json"):
            found, known = (set(_fields(json.loads((folder / file).read_bytes()))) for folder in (now, kept))
            assert found <= known, ADVICE.format(f"{sorted(found - known)} in {file}")
        for file in ("judgements.jsonl", "pairs.jsonl"):
            if (kept / file).exists():
                found, known = (set().union(*lines(folder, file)) for folder in (now, kept))
                assert found == known, ADVICE.format(f"{sorted(found ^ known)} in {file}")


def _fields(document: Any, place: str = "") -> Iterator[str]:
    """Yield the place of each field of a JSON document, such as `starts.engine.name`."""
    if isinstance(document, list):
        for each in document:
            yield from _fields(each, place)
    elif isinstance(document, dict):
        for name, value in document.items():
            yield f"{place}{name}"
            yield from _fields(value, f"{place}{name}.")


COMMANDS = (
    "show {run}", "show {run} --failed", "export {run} --to csv --out x.csv", "report {run} --out x.html",
    "merge {run} part-2 --out whole", "rank {run}", "repeat {run} --sample 1",
    "score rows.jsonl --out {run} --shard 1/2",
)  # fmt: skip


def _add_to_a_line(run: Path) -> None:
    file = run / "judgements.jsonl"
    changed = [line | {"confidence": None} for line in lines(run)]
    file.write_text("".join(json.dumps(line) + "\n" for line in changed), encoding="utf-8")


def _give_a_line_another_status(run: Path) -> None:
    changed = [line | {"status": "skipped"} for line in lines(run)]
    (run / "judgements.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in changed), encoding="utf-8"
    )


def _add_to_a_start(manifest: dict[str, Any]) -> None:
    manifest["starts"][-1]["engine"]["speed"] = 3


def _add_a_setting(manifest: dict[str, Any]) -> None:
    manifest["starts"][-1]["config"]["mood"] = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: manifest.update(format=5), "run.json: has run format 5, and {here} reads format 4"),
        (lambda manifest: manifest.update(mood=1), "run.json: has a field that {here} cannot read: mood"),
        (_add_to_a_start, "run.json: has a field that {here} cannot read: starts.0.engine.speed"),
        (_add_a_setting, "run.json: has a field that {here} cannot read: `mood` 3"),
        (_add_to_a_line, "judgements.jsonl:1: has columns: confidence, which {here} does not know"),
        (_give_a_line_another_status, "judgements.jsonl:1: has content, which {here} does not know"),
    ],
)
def test_a_run_of_a_later_version_is_refused_everywhere_in_one_line_that_names_the_version(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(VERSIONS[-1], tmp_path, dirs_exist_ok=True)
    run = tmp_path / "part-1"
    manifest = json.loads((run / "run.json").read_bytes())
    manifest["starts"][-1]["localjudge"] = "7.1"
    change(run if "jsonl" in said else manifest)
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
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pairs", "part-1", "part-2", "rows.jsonl"]


def test_a_damaged_line_of_an_earlier_run_is_a_damaged_line(cli: Cli, tmp_path: Path) -> None:
    run = Path(shutil.copytree(VERSIONS[0] / "part-1", tmp_path / "run"))
    manifest = (run / "run.json").read_text(encoding="utf-8")
    (run / "run.json").write_text(manifest.replace('"localjudge": "0.1.0"', '"localjudge": "0.0.9"'))
    (run / "judgements.jsonl").write_bytes(b'{"id": "a\n' + (run / "judgements.jsonl").read_bytes())
    end = cli("show", run)
    assert (end.code, "jsonl:1: not a line of a run, or damaged; delete this line" in end.err) == (2, True)
