"""Tests of notices: every output of scores with limited meaning says so."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from conftest import Cli, Ended, StopIf, read_lines, write_rows
from scripted import ScriptedEngine

from localjudge import Judge, Rubric, read_rows
from localjudge.models.catalogue import find_profile
from localjudge.records import Outcome
from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.rubrics.template import Template
from localjudge.runs.reader import notices_of_run, read_notices
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan

DRY = "dry run: no model was asked, and the scores mean nothing"
ASK: dict[str, list[str]] = {
    "rank": [],
    "agree": ["--labels", "LABELS"],
    "jury": ["OTHER"],
    "calibrate": ["--labels", "LABELS", "--out", "MAP"],
}
"""The commands that interpret scores, and their arguments besides a run."""


class KilledError(Exception):
    """The simulated end of the process, which writes nothing more."""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Write rows of three systems for four instructions."""
    written = [
        {
            "id": f"q{n // 3}{'abc'[n % 3]}", "system": "abc"[n % 3], "instruction": f"Question {n // 3}?",
            "reference": "Yes.", "candidate": "word " * (n + 1),
        }
        for n in range(12)
    ]  # fmt: skip
    return write(tmp_path / "rows.jsonl", written)


@pytest.fixture
def dry(cli: Cli, tmp_path: Path, rows: Path, model: Path, short_rubric: Path) -> Path:
    """Return a dry run, with labels of its rows next to it."""
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    assert cli("score", rows, "--out", tmp_path / "dry", *flags).code == 0
    labels = [{"id": line["id"], "tact": 1 + n % 3} for n, line in enumerate(read_lines(tmp_path / "dry"))]
    write(tmp_path / "labels.jsonl", labels)
    return tmp_path / "dry"


@pytest.fixture
def judge(model: Path, short_rubric: Path) -> Judge:
    return Judge(model, rubric=short_rubric, max_rationale_tokens=3, engine_args={"batch_size": "2"})


def write(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def begin(out: Path, judge: Judge, rows: Path, lines: int, killed: bool) -> Path:
    """Score until there are this many lines; then simulate a kill or a request to stop."""
    written = 0

    def count(outcomes: list[Outcome], given: int) -> None:
        nonlocal written
        written += given
        if killed and written >= lines:
            raise KilledError

    with suppress(KilledError), RunDirectory(out) as run, RunPlan(judge, read_rows([str(rows)])) as plan:
        run.begin(judge, plan, RowSource(inputs=[str(rows)]))
        run.score(count, StopIf(lambda: written >= lines))
    return out


def asked(cli: Cli, command: str, run: Path, *more: object) -> Ended:
    """Run a command of `ASK` on this run."""
    beside = run.parent
    names = {"LABELS": beside / "labels.jsonl", "OTHER": beside / "other", "MAP": beside / "map.json"}
    return cli(command, run, *(names.get(word, word) for word in ASK[command]), *more)


@pytest.mark.parametrize("command", ASK)
def test_a_dry_run_is_no_result_unless_it_is_asked_for_by_name(cli: Cli, dry: Path, command: str) -> None:
    other = dry.parent / "other"
    other.mkdir()
    for file in ("run.json", "judgements.jsonl", "summary.json"):
        (other / file).write_bytes((dry / file).read_bytes())
    end = asked(cli, command, dry)
    assert (end.code, end.out, end.err.count("\n")) == (2, "", 1)
    assert f"{dry}: a dry run: no model was asked" in end.err
    end = asked(cli, command, dry, "--allow-dry-run", "--resamples", 100)
    assert (end.code, end.out.splitlines()[0]) == (0, DRY)
    titles = [line for line in end.out.splitlines() if line.endswith(" · dry run")]
    assert len(titles) >= 1
    found = json.loads(asked(cli, command, dry, "--allow-dry-run", "--resamples", 100, "--json").out)
    assert found["notices"] == [DRY]


def test_a_dry_run_is_no_pilot_unless_it_is_asked_for_by_name(cli: Cli, dry: Path) -> None:
    command = ("sample-size", "--difference", 0.5, "--pilot", dry)
    end = cli(*command)
    assert (end.code, end.out) == (2, "")
    assert f"{dry}: a dry run: no model was asked" in end.err
    assert cli(*command, "--allow-dry-run").out.splitlines()[0] == DRY
    assert json.loads(cli(*command, "--allow-dry-run", "--json").out)["notices"] == [DRY]


def test_what_is_shown_and_reported_of_a_dry_run_says_so_first(cli: Cli, dry: Path) -> None:
    for more in ([], ["--id", "q0a"]):
        assert cli("show", dry, *more).out.splitlines()[0] == DRY
    page = dry.parent / "report.html"
    assert DRY in cli("report", dry, "--out", page).err
    packed = re.search(r'id="data-head">([^<]*)<', page.read_text())
    assert packed
    assert json.loads(gzip.decompress(base64.b64decode(packed[1])))["notices"][0] == DRY
    assert json.loads((dry / "summary.json").read_text())["notices"] == [DRY]
    end = cli("audit", "--check", "repeat", dry, "--json")
    assert json.loads(end.out)["notices"] == [DRY]
    assert cli("audit", "--check", "repeat", dry).out.splitlines()[0] == DRY


def test_every_record_of_an_export_says_who_judged_and_the_runs_notices(
    cli: Cli, dry: Path, model: Path
) -> None:
    out = {to: dry.parent / f"out.{to}" for to in ("jsonl", "csv", "parquet")}
    for to, file in out.items():
        end = cli("export", dry, "--to", to, "--out", file)
        assert (end.code, DRY in end.err) == (0, True)
    table = pyarrow.parquet.read_table(out["parquet"])
    with out["csv"].open(newline="") as stream:
        written = {
            "jsonl": [json.loads(line) for line in out["jsonl"].read_text().splitlines()],
            "csv": list(csv.DictReader(stream)),
            "parquet": table.to_pylist(),
        }
    for records in written.values():
        assert len(records) == 12
        assert {(record["model"], record["notice"]) for record in records} == {(str(model), DRY)}
    assert table.schema.metadata[b"localjudge.notice"].decode() == DRY
    assert table.schema.metadata[b"localjudge.model"].decode() == str(model)


def test_an_audit_by_a_dry_run_says_so_in_its_table_and_its_json(
    cli: Cli, rows: Path, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run", "--out", tmp_path / "audit"]
    assert cli("audit", rows, *flags).out.splitlines()[0] == DRY
    (tmp_path / "audit.json").write_text(cli("audit", rows, *flags, "--json").out)
    assert json.loads((tmp_path / "audit.json").read_text())["notices"] == [DRY]


@pytest.mark.parametrize("killed", [True, False])
def test_a_run_that_was_broken_off_says_first_how_much_of_it_is_there(
    cli: Cli, rows: Path, judge: Judge, tmp_path: Path, killed: bool
) -> None:
    run = begin(tmp_path / "half", judge, rows, 5, killed)
    lines = len(list(read_lines(run)))
    assert 0 < lines < 12
    assert (run / "summary.json").exists() != killed
    said = f"incomplete: {lines} of 12 rows; means include only these rows"
    assert cli("show", run).out.splitlines()[0] == said
    assert cli("export", run, "--to", "csv", "--out", tmp_path / "half.csv").err.splitlines()[-1] == said
    end = cli("rank", run, "--resamples", 100)
    assert (end.code, end.out.splitlines()[0]) == (0, said)
    assert "Mean expected scores, each instruction with the same weight · incomplete" in end.out
    if not killed:
        assert json.loads((run / "summary.json").read_text())["notices"] == [said]
    judged = begin(run, judge, rows, 13, False)
    assert notices_of_run(judged) == ()
    assert json.loads((judged / "summary.json").read_text())["notices"] == []


def test_a_complete_run_that_is_begun_again_with_more_rows_is_complete_no_more(
    rows: Path, judge: Judge, tmp_path: Path
) -> None:
    run = begin(tmp_path / "run", judge, rows, 13, False)
    assert notices_of_run(run) == ()
    more = [
        json.loads(line) | {"id": "more", "instruction": "Another?"} for line in rows.read_text().splitlines()
    ]
    with rows.open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in more)
    begin(run, judge, rows, 1, killed=True)
    assert notices_of_run(run) == ("incomplete: 14 of 24 rows; means include only these rows",)


def test_systems_that_answered_different_instructions_are_compared_on_those_in_common(
    cli: Cli, rows: Path, judge: Judge, tmp_path: Path
) -> None:
    run = begin(tmp_path / "half", judge, rows, 3, killed=True)
    found = json.loads(cli("rank", run, "--json", "--resamples", 100).out)
    lines = list(read_lines(run))
    answered = {name: {line["group"] for line in lines if line["system"] == name} for name in "abc"}
    assert len({len(each) for each in answered.values()}) > 1, "else there is nothing to say"
    assert {system["name"]: system["instructions"] for system in found["systems"]} == {
        name: len(each) for name, each in answered.items()
    }
    for pair in found["pairs"]:
        assert pair["instructions"] == len(answered[pair["first"]] & answered[pair["second"]])
    sizes = sorted(map(len, answered.values()))
    every, common = (len(join(*answered.values())) for join in (set.union, set.intersection))
    said = f"different instructions ({sizes[0]} to {sizes[-1]} of {every}, {common} in common)"
    assert [said in note for note in found["notes"]].count(True) == 1
    begin(run, judge, rows, 13, killed=False)
    assert "different instructions" not in cli("rank", run, "--resamples", 100).out


def test_shards_say_that_they_are_parts_and_what_is_merged_keeps_the_rest(
    cli: Cli, rows: Path, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    parts = [tmp_path / f"part-{number}" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        assert cli("score", rows, "--out", part, "--shard", f"{number}/2", *flags).code == 0
        assert read_notices(part) == (DRY, f"part: shard {number}/2 of the input")
    end = cli("merge", *parts, "--out", tmp_path / "whole")
    assert (end.code, end.out.splitlines()[0]) == (0, DRY)
    assert read_notices(tmp_path / "whole") == (DRY,)


def test_a_jury_keeps_the_notices_of_its_jurors_and_is_a_dry_run_if_one_is(
    cli: Cli, dry: Path, rows: Path, judge: Judge
) -> None:
    half = begin(dry.parent / "half", judge, rows, 5, killed=True)
    out = dry.parent / "jury"
    end = cli("jury", dry, half, "--out", out, "--allow-dry-run", "--resamples", 100)
    assert end.code == 0
    of_dry, of_half = read_notices(out)
    assert of_dry == DRY.replace("dry run", "dry run (dry)")
    assert of_half.startswith("incomplete (half): ")
    assert json.loads((out / "summary.json").read_text())["notices"] == [of_dry, of_half]
    assert f"{out}: a dry run" in cli("rank", out).err


def test_guarded_prompts_truncated_candidates_and_changed_models_are_told(
    cli: Cli, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    flags: list[Any] = ["--model", model, "--engine", "dry-run", "--guard"]
    assert cli("score", rows, "--out", tmp_path / "guarded", *flags).code == 0
    told = "guarded: made with --guard; do not compare with scores made without it"
    assert read_notices(tmp_path / "guarded") == (DRY, told)

    short = Judge(
        model, rubric=Rubric.load(short_rubric), engine="dry-run", on_overflow="truncate-candidate",
        max_rationale_tokens=3, engine_args={"max_model_len": "150"},
    )  # fmt: skip
    cut = begin(tmp_path / "cut", short, rows, 5, killed=False)
    count = sum(line["candidate_cut"] > 0 for line in read_lines(cut))
    assert 0 < count < 4
    assert [notice.partition(" candidate")[0] for notice in read_notices(cut)[1:]] == [f"truncated: {count}"]
    systems = json.loads((cut / "summary.json").read_text())["systems"]
    assert sum(system["candidates_cut"] for system in systems) == count

    manifest = json.loads((cut / "run.json").read_text())
    manifest["model"]["changed_since_verified"] = ["config.json has changed"]
    (cut / "run.json").write_text(json.dumps(manifest))
    assert "changed model: its files differ from the verified files (config.json has changed)" in read_notices(
        cut
    )


def test_the_bundled_model_says_that_prompts_it_was_not_trained_for_give_scores_without_meaning(
    cli: Cli, tmp_path: Path
) -> None:
    known, unknown = "it only compares words with the reference", "trained for the prompt of just-eval alone"
    assert cli("score", "examples", "--out", tmp_path / "default", "--limit", 1).code == 0
    [notice] = (each for each in read_notices(tmp_path / "default") if each.startswith("bundled model:"))
    assert known in notice
    ended = cli("score", "examples", "--rubric", "no-reference", "--out", tmp_path / "run", "--limit", 1)
    assert ended.out.count(unknown) == ended.err.count(unknown) == 1
    weighted = Rubric.load().model_copy(
        update={"aspects": {k: v.model_copy(update={"weight": 2.0}) for k, v in Rubric.load().aspects.items()}}
    )
    assert weighted.is_default
    assert not Rubric.load(guard=True).is_default


def test_the_name_of_a_column_that_exports_add_is_no_aspect() -> None:
    for name in ("model", "notice", "reference"):
        with pytest.raises(ValueError, match=f"'{name}' is the name of another column"):
            Rubric(
                name="odd", aspects={name: Aspect(scale=Scale(lowest=1, highest=5))},
                prompt=Template(template="{$candidate}"),
            )  # fmt: skip


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "qwen3-0.6b"])
def test_a_model_that_is_too_small_to_judge_is_known_by_its_sizes_and_each_output_says_so(
    cli: Cli, rows: Path, model: Path, short_rubric: Path, tmp_path: Path, name: str
) -> None:
    profile = find_profile(name)
    assert profile
    small = tmp_path / "any-name"
    shutil.copytree(model, small)
    config = json.loads((small / "config.json").read_text()) | profile.config
    (small / "config.json").write_text(json.dumps(config))
    judge = Judge(small, rubric=short_rubric)
    said = (
        f"small model: {profile.id.rpartition('/')[2]} is too small to judge; use its scores to try the program"
    )
    assert (judge.notice or "").startswith(said)
    assert Judge(model, rubric=short_rubric).notice is None

    with RunDirectory(tmp_path / "run") as run, RunPlan(judge, read_rows([str(rows)])) as plan:
        values = [len(field.values) for field in judge.rubric.answer_layout.values]
        judge.engine = ScriptedEngine(judge, lambda text: [[1.0, *[0.0] * (count - 1)] for count in values])
        run.begin(judge, plan, RowSource(inputs=[str(rows)]))
        run.score()
    assert cli("show", tmp_path / "run").out.startswith(said)
