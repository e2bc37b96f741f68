"""The pipeline from a program: rows in, a run directory, and the run read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows

from localjudge import Judge, JudgeConfig, Judgement, RowSource, SettingError, load_run, score_run
from localjudge.errors import RunMismatchError
from localjudge.runs.scoring import RunObserver

ROWS: list[dict[str, Any]] = [
    {"id": f"q{n}", "instruction": f"Question {n}?", "reference": "Yes.", "candidate": f"Answer {n}."}
    for n in range(6)
]


class Notes(RunObserver):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.rows = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def add(self, outcomes: list[Any], rows: int) -> None:
        self.rows += rows


@pytest.fixture
def config(short_rubric: Path) -> JudgeConfig:
    return JudgeConfig.of(rubric=short_rubric, engine="dry-run")


def test_a_program_scores_rows_into_a_folder_and_reads_the_run_back(
    config: JudgeConfig, tmp_path: Path
) -> None:
    notes = Notes()
    result = score_run(config, RowSource.of_rows(ROWS), tmp_path / "run", observer=notes)
    assert (result.complete, result.done, result.planned, notes.rows) == (True, 6, 6, 6)
    run = load_run(tmp_path / "run")
    outcomes = list(run)
    assert [outcome.id for outcome in outcomes] == [row["id"] for row in ROWS]
    assert all(isinstance(outcome, Judgement) for outcome in outcomes)
    assert run.complete
    assert run.notices == result.notices
    assert run.notices[0].startswith("dry run")


def test_the_command_line_and_a_program_write_the_same_run(
    cli: Cli, config: JudgeConfig, short_rubric: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 5)
    typed = ("--rubric", short_rubric, "--engine", "dry-run")
    assert cli("score", rows, "--out", tmp_path / "typed", *typed).code == 0
    score_run(config, RowSource.of_files([str(rows)], needs_reference=True), tmp_path / "called")
    lines = [(tmp_path / name / "judgements.jsonl").read_bytes() for name in ("typed", "called")]
    assert lines[0] == lines[1]


def test_the_same_call_continues_and_another_setting_is_another_run(
    config: JudgeConfig, tmp_path: Path
) -> None:
    score_run(config, RowSource.of_rows(ROWS[:4]), tmp_path / "run")
    notes = Notes()
    result = score_run(config, RowSource.of_rows(ROWS), tmp_path / "run", observer=notes)
    assert (result.done, notes.rows) == (6, 2)
    with pytest.raises(RunMismatchError, match="seed: 0 there, 1 now"):
        score_run(config.with_(seed=1), RowSource.of_rows(ROWS), tmp_path / "run")


def test_a_judge_that_is_made_already_keeps_its_engine_until_it_is_closed(
    config: JudgeConfig, tmp_path: Path
) -> None:
    with Judge(config) as judge:
        engine = judge.engine
        score_run(judge, RowSource.of_rows(ROWS), tmp_path / "run")
        assert judge.engine is engine
    assert judge.engine is not engine


def test_a_run_keeps_the_settings_that_it_was_made_with(config: JudgeConfig, tmp_path: Path) -> None:
    from localjudge.runs.run_manifest import read_manifest

    changed = config.with_(temperature=0.5, engine_args={"rate": 50})
    score_run(changed, RowSource.of_rows(ROWS), tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert JudgeConfig.of(**manifest["starts"][0]["config"], rubric=manifest["rubric"]) == changed


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_run_is_a_table(config: JudgeConfig, tmp_path: Path, library: str) -> None:
    if library == "pandas":
        pytest.importorskip("pandas")
    elif library == "polars":
        pytest.importorskip("polars")
    score_run(config, RowSource.of_rows([*ROWS, {"id": "no", "instruction": "Q"}]), tmp_path / "run")
    table = getattr(load_run(tmp_path / "run"), f"to_{library}")()
    assert len(table) == 7
    names = list(table.column_names if library == "arrow" else table.columns)
    assert names[:3] == ["id", "system", "status"]
    assert {"tact", "tact_expected", "wit_probabilities", "columns"} <= set(names)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": -1}, "temperature -1: give 0 or more"),
        ({"top_p": 0}, "top_p 0: give a share above 0 and up to 1"),
        ({"engine": "fast"}, "engine fast: give one of auto, transformers, vllm, dry-run"),
        ({"max_rationale_tokens": 0}, "max_rationale_tokens 0: the smallest that works is 1"),
        ({"thinking_budget": -1}, "thinking_budget -1: give 0 or more"),
        ({"on_overflow": "cut"}, "on_overflow cut: give fail or truncate-candidate"),
        ({"answer_spelling": "pretty"}, "answer_spelling pretty: give compact, spaced or indented"),
        ({"temprature": 1}, "temprature 1: "),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line_that_names_it(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        JudgeConfig.of(**settings)
    assert str(refused.value).startswith(said)
