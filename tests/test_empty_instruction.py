"""An empty instruction that the rubric shows to the judge is a failure, in every way to give a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines

from localjudge import Failure, Judge, Row, RowSource, Rubric, load_run, score_run
from localjudge.integrations.judge_service import JudgeService
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.rubric_file import shipped_rubrics

REASON = "an empty instruction, which the rubric short shows to the judge"
EMPTY = ["", " ", "\n\t ", "\u3000"]


@pytest.fixture
def judge(model: Path, short_rubric: Path) -> Iterator[Judge]:
    with Judge(model, rubric=short_rubric, max_rationale_tokens=3) as opened:
        yield opened


def row(instruction: str, **others: Any) -> dict[str, Any]:
    return {"id": "a", "instruction": instruction, "reference": "R", "candidate": "C", **others}


@pytest.mark.parametrize("instruction", EMPTY)
def test_in_python(judge: Judge, instruction: str, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": instruction}, {"role": "assistant", "content": "C"}]
    (failed,) = judge.score([{"messages": messages, "reference": "R"}])
    assert failed.error == f"row 1: {REASON}"
    given = [row(instruction), row("Q")]
    failed, judged = judge.score(given)
    assert failed.error == f"row 1: {REASON}"
    assert judged.status == "judged"
    score_run(judge, RowSource.from_rows(given, judge.rubric.fields), tmp_path / "run")
    assert [outcome.status for outcome in load_run(tmp_path / "run")] == ["failed", "judged"]


def test_in_files(cli: Cli, model: Path, short_rubric: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row(text)) + "\n" for text in (*EMPTY, "Q")))
    (tmp_path / "a.csv").write_text("instruction,reference,candidate\n ,R,C\n")
    how = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 3]
    for name, failures in (("a.jsonl", 4), ("a.csv", 1)):
        assert cli("score", tmp_path / name, "--out", tmp_path / f"run-{name}", *how).code == 3
        errors = [line["error"] for line in read_lines(tmp_path / f"run-{name}") if line["status"] == "failed"]
        assert len(errors) == failures
        assert all(error.endswith(REASON) for error in errors)


def test_in_a_service(judge: Judge) -> None:
    with JudgeService(judge) as service:
        (future,) = service.submit(list(rows_of_program([row(" ")], judge.rubric.fields)))
        assert isinstance(future.result(), Failure)


@pytest.mark.parametrize("name", shipped_rubrics())
def test_a_rubric_that_shows_no_instruction_needs_none(name: str) -> None:
    rubric = Rubric.load(name)
    texts = dict.fromkeys((*rubric.fields, "reference", *rubric.mode.responses), "text") | {"criteria": ["a"]}
    (given,) = rows_of_program([texts | {"instruction": ""}], rubric.fields)
    assert isinstance(given, Row), given
    refused = rubric.refusal(given)
    assert ("empty instruction" in str(refused)) == ("instruction" in rubric.fields)
