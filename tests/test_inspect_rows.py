"""Logs of Inspect as rows, written and read by Inspect itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines

from localjudge import Failure, Row, UsageError, read_rows
from localjudge.rows.inputs import find_inputs

WHOLE = ("conversation",)


def samples() -> list[Any]:
    """Return samples of a task with a tool: one that was solved, one whose tool failed, one that broke."""
    log = pytest.importorskip("inspect_ai.log")
    model, tool = pytest.importorskip("inspect_ai.model"), pytest.importorskip("inspect_ai.tool")
    asked = model.ChatMessageUser(content="7 * 6?")
    call = tool.ToolCall(id="c", function="times", arguments={"a": 7, "b": 6})
    thought = [model.ContentReasoning(reasoning="Use the tool."), model.ContentText(text="I ask.")]
    calling = model.ChatMessageAssistant(content=thought, tool_calls=[call])
    good = model.ChatMessageTool(content="42", tool_call_id="c", function="times")
    broken = tool.ToolCallError(type="timeout", message="timed out")
    bad = model.ChatMessageTool(content="", tool_call_id="c", function="times", error=broken)
    said = model.ChatMessageAssistant(content="It is 42.")
    error = log.EvalError(message="out of\nmemory", traceback="", traceback_ansi="")
    given: list[tuple[list[Any], Any, Any]] = [
        ([asked, calling, good, said], "42", None),
        ([asked, calling, bad, said], ["42", "forty-two"], None),
        ([asked], "42", error),
    ]
    more = {"epoch": 1, "input": "7 * 6?", "metadata": {"topic": "sums"}}
    return [
        log.EvalSample(id=number, messages=messages, target=target, error=failed, **more)
        for number, (messages, target, failed) in enumerate(given, 1)
    ]


def written(file: Path, given: list[Any], epochs: int = 1) -> Path:
    log = pytest.importorskip("inspect_ai.log")
    spec = log.EvalSpec(
        created="2026-01-01T00:00:00+00:00",
        task="sums",
        dataset=log.EvalDataset(sample_ids=list(dict.fromkeys(sample.id for sample in given))),
        model="north/seven",
        config=log.EvalConfig(epochs=epochs),
    )
    log.write_eval_log(log.EvalLog(status="success", eval=spec, samples=given), str(file))
    return file


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_the_samples_of_a_log_are_rows(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path / f"log.{suffix}", samples())
    solved, failed, broke = read_rows(find_inputs([str(file)]), used=("conversation", "reference"))
    assert isinstance(solved, Row)
    assert isinstance(failed, Row)
    assert (solved.id, solved.system, solved.reference) == ("1", "north/seven", "42")
    assert solved.columns == {"topic": "sums", "epoch": 1}
    assert solved.source == f"{file}:1"
    assert solved.candidate == (
        'User:\n> 7 * 6?\n\nAssistant:\n> I ask.\n\nAssistant, call 1:\n> times {"a": 7, "b": 6}\n\n'
        "Tool, result of call 1:\n> 42\n\nAssistant:\n> It is 42."
    )
    assert "Tool, error of call 1:\n> timed out" in failed.candidate
    assert failed.reference == "42\nor\nforty-two"
    assert isinstance(broke, Failure)
    assert broke.reason == "the sample ended with an error: out of memory"
    (shown, *_) = read_rows([str(file)], used=("conversation_with_reasoning",))
    assert isinstance(shown, Row)
    assert "Assistant, reasoning:\n> Use the tool.\n\nAssistant:\n> I ask." in shown.candidate


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_epochs_large_samples_and_damaged_logs(tmp_path: Path, suffix: str) -> None:
    one, *_ = samples()
    twice = [one, one.model_copy(update={"epoch": 2, "uuid": None})]
    file = written(tmp_path / f"log.{suffix}", twice, epochs=2)
    assert [row.id for row in read_rows([str(file)], used=WHOLE)] == ["1-1", "1-2"]
    large = [row.error for row in read_rows([str(file)], max_row_bytes=100, used=WHOLE)]
    assert all("the row is larger than 100 bytes" in str(error) for error in large)
    assert len(large) == 2
    file.write_bytes(file.read_bytes()[:-400])
    (failure,) = read_rows([str(file)], used=WHOLE)
    assert isinstance(failure, Failure)
    assert "the rest of the file cannot be read: " in failure.error
    assert len(failure.error.splitlines()) == 1


def test_a_sample_that_would_fill_the_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = pytest.importorskip("inspect_ai.log")
    one, *_ = samples()
    turns = [*one.messages]
    large = one.model_copy(
        update={"id": 2, "uuid": None, "messages": [*turns[:-1], _longer(turns[-1], 2_000_000)]}
    )
    file = written(tmp_path / "log.eval", [one, large, one.model_copy(update={"id": 3, "uuid": None})])
    assert file.stat().st_size < 20_000
    unpacked, read = list[object](), log.read_eval_log_sample

    def noted(name: str, **how: Any) -> Any:
        unpacked.append(how["id"])
        return read(name, **how)

    monkeypatch.setattr(log, "read_eval_log_sample", noted)
    found = list(read_rows([str(file)], max_row_bytes=20_000, used=WHOLE))
    assert [isinstance(row, Row) for row in found] == [True, False, True]
    assert "the row is larger than 20,000 bytes" in str(found[1].error)
    assert 2 not in unpacked
    assert {1, 3} <= {*unpacked}


def _longer(message: Any, characters: int) -> Any:
    return message.model_copy(update={"content": "A" * characters})


def test_a_run_judges_a_log(cli: Cli, model: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "log.eval", samples())
    how = ["--model", model, "--rubric", "agent", "--max-rationale-tokens", 3]
    assert cli("score", file, "--out", tmp_path / "run", *how).code == 3
    lines = list(read_lines(tmp_path / "run"))
    assert [(line["id"], line["system"], line["status"]) for line in lines[:2]] == [
        ("1", "north/seven", "judged"), ("2", "north/seven", "judged"),
    ]  # fmt: skip
    assert lines[2]["status"] == "failed"


def test_without_inspect_a_line_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "localjudge.system.requirements.installed", lambda name: None if "inspect" in name else "1"
    )
    (tmp_path / "log.eval").write_bytes(b"PK")
    head = json.dumps({"version": 2, "status": "success", "eval": {}}, indent=2)
    (tmp_path / "log.json").write_text(head)
    for name in ("log.eval", "log.json"):
        with pytest.raises(UsageError, match=rf"{name}: inspect-ai is not installed: pip install .inspect-ai"):
            find_inputs([str(tmp_path / name)])
