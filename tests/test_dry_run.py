"""Tests of dry runs: all steps except the model, and the estimated cost of the real run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli, read_lines, write_rows

from localjudge import Judge, Judgement, read_rows


def test_an_answer_follows_from_the_prompt_alone(model: Path, short_rubric: Path, tmp_path: Path) -> None:
    rows = list(read_rows([str(write_rows(tmp_path / "a.jsonl", 200))]))
    judges = [Judge(model, rubric=short_rubric, engine="dry-run") for _ in "ab"]
    first = {outcome.id: outcome for outcome in judges[0].score(rows)}
    second = {outcome.id: outcome for outcome in judges[1].score(rows[::-1])}
    assert [(row.id, first[row.id].row, second[row.id].row) for row in rows] == [
        (f"r{n}", n + 1, 200 - n) for n in range(200)
    ], "a row's number is its place among those that were given"
    assert {name: each.model_copy(update={"row": None}) for name, each in first.items()} == {
        name: each.model_copy(update={"row": None}) for name, each in second.items()
    }
    assert all(isinstance(outcome, Judgement) for outcome in first.values())
    scores = [outcome.scores["tact"] for outcome in first.values() if isinstance(outcome, Judgement)]
    assert set(scores) == {1, 2, 3}


@pytest.mark.parametrize("limit", [1, 2, 64])
def test_its_answers_keep_to_the_limit(model: Path, short_rubric: Path, limit: int, tmp_path: Path) -> None:
    judge = Judge(model, rubric=short_rubric, engine="dry-run", max_rationale_tokens=limit)
    for outcome in judge.score(read_rows([str(write_rows(tmp_path / "a.jsonl", 50))])):
        assert isinstance(outcome, Judgement)
        assert outcome.output_tokens <= judge.decoding.max_tokens


def test_a_dry_run_says_what_the_job_will_take(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 30)
    with rows.open("a") as stream:
        stream.write(rows.read_text().splitlines()[0] + "\n")
        stream.write(json.dumps({"instruction": "Q", "reference": "R", "candidate": "word " * 9000}) + "\n")
    flags = ["--out", tmp_path / "dry", "--model", model, "--rubric", short_rubric]
    more = ["--engine", "dry-run", "--engine-arg", "rate=0.01", "--max-model-len", "2000"]
    end = cli("score", rows, *flags, *more)
    assert end.code == 3
    said = " ".join(end.out.split())
    assert "rows 32, of which 31 differ; 31 prefixes" in said
    assert "cannot be judged 1; 1 rows exceed the context of 2,000 tokens" in said
    assert "time 51.7 minutes at this rate" in said
    lines = list(read_lines(tmp_path / "dry"))
    tokens = sum(line["prompt_tokens"] or 0 for line in lines)
    assert f"prompts {tokens:,} tokens" in said
    computed = int(re.search(r"computed ([\d,]+) of them", said)[1].replace(",", ""))  # type: ignore[index]
    parts = [int(part) for part in re.findall(r"(\d+)(?: tokens)? of (?:all rows|its|the rubric)", said)]
    prompts = [line["prompt_tokens"] for line in lines[:30]]
    assert len(parts) == 4
    assert abs(sum(parts) - sum(prompts) / 30) < 3
    assert sum(prompts) >= computed >= sum(prompts) - 30 * (parts[0] + parts[1])
    assert "no model was asked" in json.loads((tmp_path / "dry" / "run.json").read_text())["notice"]
    end = cli("score", rows, *flags)
    assert (end.code, "engine: dry-run there, transformers now" in end.err) == (2, True), end.err


def test_a_dry_run_that_continues_says_what_the_whole_job_will_take(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 9)
    with rows.open("a") as stream:
        stream.write(json.dumps({"instruction": "Q", "reference": "R", "candidate": "word " * 9000}) + "\n")
    flags = ["--out", tmp_path / "dry", "--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    whole = cli("score", rows, *flags).out
    (tmp_path / "dry" / "summary.json").unlink()
    (tmp_path / "dry" / "judgements.jsonl").write_bytes(
        b"".join((tmp_path / "dry" / "judgements.jsonl").read_bytes().splitlines(keepends=True)[3:])
    )
    for again in (cli("score", rows, *flags), cli("score", rows, *flags)):
        assert [line for line in again.out.splitlines() if "disk" not in line] == [
            line for line in whole.splitlines() if "disk" not in line
        ]
    assert "1 rows exceed the context" in whole


def test_files_can_stand_for_systems(cli: Cli, tmp_path: Path, model: Path, short_rubric: Path) -> None:
    files = [write_rows(tmp_path / f"{name}.jsonl", 4) for name in ("gpt-0.5", "llama")]
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    end = cli("score", *files, "--out", tmp_path / "out", "--system-from", "filename", *flags)
    assert end.code == 0
    lines = list(read_lines(tmp_path / "out"))
    assert [line["system"] for line in lines] == ["gpt-0.5"] * 4 + ["llama"] * 4
    assert lines[0]["columns"] == {"system": "a"}, "what the row said itself is kept"
    end = cli("score", *files, "--out", tmp_path / "out", "--system-from", "folder", *flags)
    assert (end.code, "--system-from folder: give filename" in end.err) == (2, True)


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "nan", "inf"])
def test_a_rate_is_a_number_above_nothing(cli: Cli, tmp_path: Path, model: Path, rate: str) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 1)
    flags = ["--model", model, "--engine", "dry-run", "--engine-arg", f"rate={rate}"]
    end = cli("score", rows, "--out", tmp_path / "out", *flags)
    assert (end.code, f"--engine-arg rate={rate}: give rows per second" in end.err) == (2, True)
