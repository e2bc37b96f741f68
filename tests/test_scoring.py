"""Tests of `score_run` from Python: rows, a run directory, and the run read again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, random_model, write_rows

from localjudge import Judge, JudgeConfig, Judgement, RecordedRun, RowSource, SettingError, load_run, score_run
from localjudge.engines.protocol import Completion, TableEngine
from localjudge.engines.selection import open_engine
from localjudge.engines.transformers.transformers_engine import TransformersEngine
from localjudge.errors import RunMismatchError
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task import Prompt
from localjudge.prompts.task_stream import TaskStream
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.run_observer import RunObserver
from localjudge.runs.shard import Shard

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

    def warn(self, text: str, *, always: bool = False) -> None:
        self.said.append(text)

    def add(self, outcomes: list[Any], rows: int) -> None:
        self.rows += rows


@pytest.fixture
def config(short_rubric: Path) -> JudgeConfig:
    return JudgeConfig.from_settings(rubric=short_rubric, engine="dry-run")


def test_a_program_scores_rows_into_a_folder_and_reads_the_run_back(
    config: JudgeConfig, tmp_path: Path
) -> None:
    notes = Notes()
    result = score_run(config, RowSource.from_rows(ROWS), tmp_path / "run", observer=notes)
    assert (result.complete, result.done, result.planned, notes.rows) == (True, 6, 6, 6)
    run = load_run(tmp_path / "run")
    outcomes = list(run)
    assert [outcome.id for outcome in outcomes] == [row["id"] for row in ROWS]
    assert all(isinstance(outcome, Judgement) for outcome in outcomes)
    assert run.complete
    assert run.notices == result.notices
    assert run.notices[0].startswith("dry run")


@pytest.mark.parametrize("read", [list, RecordedRun.to_pandas, RecordedRun.to_arrow])
def test_a_run_that_was_continued_after_it_was_loaded_is_loaded_again(
    config: JudgeConfig, tmp_path: Path, read: Callable[[RecordedRun], Any]
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    score_run(config, RowSource.from_rows(ROWS[:4]), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert len(read(run)) == 4
    score_run(config, RowSource.from_rows(ROWS), tmp_path / "run")
    with pytest.raises(RunMismatchError, match=str(tmp_path / "run")):
        read(run)
    assert len(read(load_run(tmp_path / "run"))) == 6


def test_an_outcome_has_the_number_of_its_row_in_the_whole_input(config: JudgeConfig, tmp_path: Path) -> None:
    rows = [*ROWS, {"id": "no", "instruction": "Q"}, ROWS[0] | {"id": "the same again"}]
    numbers = {str(row["id"]): number for number, row in enumerate(rows, 1)}
    given = list(Judge(config).score(rows))
    assert len(given) == len(rows)
    assert all(outcome.row == numbers.get(outcome.id, 7) for outcome in given)
    for index in (1, 2):
        score_run(config, RowSource.from_rows(rows), tmp_path / str(index), shard=Shard(index, 2))
    parts = [outcome for index in (1, 2) for outcome in load_run(tmp_path / str(index))]
    assert sorted(outcome.row or 0 for outcome in parts) == list(range(1, 9))
    assert sorted(given, key=lambda outcome: outcome.row or 0) == sorted(
        parts, key=lambda outcome: outcome.row or 0
    )


def test_the_command_line_and_a_program_write_the_same_run(
    cli: Cli, config: JudgeConfig, short_rubric: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 5)
    typed = ("--rubric", short_rubric, "--engine", "dry-run")
    assert cli("score", rows, "--out", tmp_path / "typed", *typed).code == 0
    score_run(
        config,
        RowSource.from_files([str(rows)], used=("instruction", "reference", "candidate")),
        tmp_path / "called",
    )
    lines = [(tmp_path / name / "judgements.jsonl").read_bytes() for name in ("typed", "called")]
    assert lines[0] == lines[1]


def test_the_same_call_continues_and_another_setting_is_another_run(
    config: JudgeConfig, tmp_path: Path
) -> None:
    score_run(config, RowSource.from_rows(ROWS[:4]), tmp_path / "run")
    notes = Notes()
    result = score_run(config, RowSource.from_rows(ROWS), tmp_path / "run", observer=notes)
    assert (result.done, notes.rows) == (6, 2)
    with pytest.raises(RunMismatchError, match="seed: 0 there, 1 now"):
        score_run(config.replace(seed=1), RowSource.from_rows(ROWS), tmp_path / "run")


def test_a_judge_that_is_made_already_keeps_its_engine_until_it_is_closed(
    config: JudgeConfig, tmp_path: Path
) -> None:
    with Judge(config) as judge:
        engine = judge.engine
        score_run(judge, RowSource.from_rows(ROWS), tmp_path / "run")
        assert judge.engine is engine
    assert judge.engine is not engine


def test_a_run_keeps_the_settings_that_it_was_made_with(config: JudgeConfig, tmp_path: Path) -> None:
    changed = config.replace(temperature=0.5, engine_args={"rate": 50})
    score_run(changed, RowSource.from_rows(ROWS), tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert manifest.config_of(manifest.last_start) == changed


def test_run_json_says_each_thing_once_and_is_written_again_as_it_was(
    config: JudgeConfig, tmp_path: Path
) -> None:
    score_run(config, RowSource.from_rows(ROWS[:3]), tmp_path / "run")
    first = json.loads((tmp_path / "run" / "run.json").read_text())
    assert read_manifest(tmp_path / "run").as_dict() == first
    settings, (start,) = first["settings"], first["starts"]
    assert {"seed", "temperature", "top_p", "max_rationale_tokens", "on_overflow", "rubric"} <= set(settings)
    assert set(start["config"]) == {"model", "engine", "engine_args", "thinking_budget", "keep_thoughts"}
    score_run(config.replace(keep_thoughts=True), RowSource.from_rows(ROWS), tmp_path / "run")
    again = json.loads((tmp_path / "run" / "run.json").read_text())
    assert again["starts"][1]["config"] == start["config"] | {"keep_thoughts": True}
    assert again | {"starts": again["starts"][:1]} == first


def test_when_the_prompts_are_encoded_changes_neither_the_batches_nor_the_run(
    model: Path, short_rubric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = [row | {"candidate": "word " * 9 * n, "id": f"{n}"} for n, row in enumerate(ROWS * 4)]
    batches: list[list[list[Prompt]]] = []

    def go(out: Path) -> None:
        judge = Judge(model, rubric=short_rubric, max_rationale_tokens=2, engine_args={"batch_size": "4"})
        batches.append([])
        score_run(judge, RowSource.from_rows([*ROWS, *longer, *ROWS]), out)

    generate, enter = TransformersEngine._generate, TaskStream.__enter__
    encode_all = PromptEncoder.encode_all
    opened = threading.Event()

    def noted(engine: TransformersEngine, batch: list[Prompt]) -> list[Completion]:
        batches[-1].append(batch)
        return generate(engine, batch)

    def encoded_before(tasks: TaskStream) -> TaskStream:
        enter(tasks).finish()
        return tasks

    def encoded_after(encoder: PromptEncoder, texts: Sequence[str], *beginnings: Any) -> list[Any]:
        if threading.current_thread() is not threading.main_thread():
            opened.wait()
        return encode_all(encoder, texts, *beginnings)

    def noted_opening(*arguments: Any, **others: Any) -> TableEngine:
        engine = open_engine(*arguments, **others)
        opened.set()
        return engine

    monkeypatch.setattr(TransformersEngine, "_generate", noted)
    monkeypatch.setattr("localjudge.prompts.task_builder._ROWS_AT_ONCE", 3)
    with monkeypatch.context() as patch:
        patch.setattr(TaskStream, "__enter__", encoded_before)
        go(tmp_path / "before")
    with monkeypatch.context() as patch:
        patch.setattr(PromptEncoder, "encode_all", encoded_after)
        patch.setattr("localjudge.judge.open_engine", noted_opening)
        go(tmp_path / "after")
    before, after = batches
    assert len(before) > 6
    assert before == after
    for name in ("judgements.jsonl", "summary.json"):
        assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes()
    one, other = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("before", "after"))
    assert one["starts"][0].pop("started") <= other["starts"][0].pop("started")
    assert one == other


def test_rows_that_do_not_fit_are_counted_when_the_run_ends(tmp_path: Path, short_rubric: Path) -> None:
    notes = Notes()
    judge = Judge(random_model(tmp_path / "model", context=120), rubric=short_rubric, max_rationale_tokens=3)
    long = [{"instruction": "Q", "reference": "R", "candidate": "word " * 200, "id": str(n)} for n in range(2)]
    score_run(judge, RowSource.from_rows([*ROWS, *long]), tmp_path / "run", observer=notes)
    assert notes.said[-1] == "2 of 8 encoded rows do not fit the context; they fail"


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_run_is_a_table(config: JudgeConfig, tmp_path: Path, library: str) -> None:
    if library == "pandas":
        pytest.importorskip("pandas")
    elif library == "polars":
        pytest.importorskip("polars")
    score_run(config, RowSource.from_rows([*ROWS, {"id": "no", "instruction": "Q"}]), tmp_path / "run")
    table = getattr(load_run(tmp_path / "run"), f"to_{library}")()
    assert len(table) == 7
    names = list(table.column_names if library == "arrow" else table.columns)
    assert names[:3] == ["id", "system", "status"]
    assert {"tact", "tact_expected", "wit_probabilities", "columns"} <= set(names)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": -1}, "`temperature` -1: give 0 or more"),
        ({"top_p": 0}, "`top_p` 0: give a share above 0 and up to 1"),
        ({"engine": "fast"}, "`engine` fast: give auto, vllm, transformers, server or dry-run"),
        ({"max_rationale_tokens": 0}, "`max_rationale_tokens` 0: the smallest that works is 1"),
        ({"thinking_budget": -1}, "`thinking_budget` -1: give 0 or more"),
        ({"on_overflow": "cut"}, "`on_overflow` cut: give fail or truncate-candidate"),
        ({"temprature": 1}, "`temprature` 1: "),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line_that_names_it(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        JudgeConfig.from_settings(**settings)
    assert str(refused.value).startswith(said)
