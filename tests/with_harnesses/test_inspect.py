"""The scorer in the real Inspect: its own commands run it, and its data frames read what it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import random_model
from test_guide import PAGES, script_of
from test_inspect_rows import written

from localjudge import Judge, Row, read_rows
from localjudge.integrations.shared_judge import SharedJudge
from localjudge.records import Judgement
from localjudge.rows.program_rows import rows_of_program

pytest.importorskip("inspect_ai")
pytestmark = pytest.mark.slow

RUBRIC = """
name = "tact"
[aspects.tact]
scale = { lowest = 1, highest = 3 }
[aspects.tone]
choices = { A = "warm", B = "cold" }
[prompt]
empty_candidate = "fail"
template = "Q: {$instruction} R: {$reference} A: {$candidate} At {$place}. Tact (1-3) and tone (A or B)?"
"""
ANSWERS = {"Peru": "Lima.", "France": "Lyon, I think.", "Chile": "", "Spain": "Madrid."}
TASK = f"""
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate
from localjudge.integrations.inspect import judge

ANSWERS = {ANSWERS!r}

def answer(messages, tools, tool_choice, config):
    text = next(ANSWERS[name] for name in ANSWERS if name in messages[-1].text)
    found = ModelOutput.from_content("mock", text)
    found.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return found

@task
def capitals():
    home = {{"place": "home"}}
    samples = [Sample(input=f"The capital of {{name}}?", target="A city.", id=name, metadata=home)
               for name in ANSWERS]
    return Task(dataset=samples, model=get_model("mockllm/model", custom_outputs=answer), solver=generate(),
                scorer=judge(rubric="tact.toml", model="model", max_rationale_tokens=6))
"""
READ = """
import json
from inspect_ai.analysis import evals_df, samples_df
from inspect_ai.log import list_eval_logs, read_eval_log
[found] = list_eval_logs("logs")
log = read_eval_log(found.name)
print(json.dumps({
    "eval": evals_df("logs").iloc[0].filter(regex="score_|status").to_dict(),
    "samples": [row.filter(regex="^id$|epoch|score_").to_dict() for _, row in samples_df("logs").iterrows()],
    "scores": {sample.id: score.model_dump() for sample in log.samples for score in sample.scores.values()},
    "unscored": {score.name: score.unscored_samples for score in log.results.scores},
}, default=str))
"""


def said(folder: Path, *command: str) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def inspect(folder: Path, *arguments: str) -> str:
    program = str(Path(sys.executable).with_name("inspect"))
    return said(folder, program, *arguments, "--display", "plain")


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(folder, sys.executable, "-c", READ).splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the log of a task of two epochs, which Inspect's own command ran."""
    folder = tmp_path_factory.mktemp("inspect")
    random_model(folder / "model")
    (folder / "tact.toml").write_text(RUBRIC)
    (folder / "task.py").write_text(TASK)
    inspect(folder, "eval", "task.py", "--epochs", "2", "--log-dir", "logs")
    return folder


def test_the_samples_of_a_task_have_the_scores_of_a_judge_with_all_that_they_stand_on(judged: Path) -> None:
    rows = [
        {
            "id": name,
            "instruction": f"The capital of {name}?",
            "reference": "A city.",
            "candidate": text,
            "place": "home",
        }
        for name, text in ANSWERS.items()
    ]
    with Judge(judged / "model", rubric=judged / "tact.toml", max_rationale_tokens=6) as judge:
        alone = {outcome.id: outcome for outcome in judge.score(rows)}
    for name, score in read(judged)["scores"].items():
        outcome = alone[name]
        if not isinstance(outcome, Judgement):
            continue
        tone = outcome.scores["tone"]
        assert score["value"] == {
            "tact": outcome.scores["tact"], "tone=warm": int(tone == "warm"), "tone=cold": int(tone == "cold"),
        }  # fmt: skip
        assert (score["answer"], score["explanation"]) == (ANSWERS[name], outcome.rationale)
        for key in ("scores", "expected", "probabilities", "mass"):
            assert score["metadata"][key].keys() == getattr(outcome, key).keys()
        assert score["metadata"]["key"] == outcome.key
        assert score["metadata"]["rubric"] == "tact"


def test_a_response_that_cannot_be_judged_is_unscored_with_its_reason_and_in_no_mean(judged: Path) -> None:
    found = read(judged)
    score = found["scores"]["Chile"]
    assert score["value"] != score["value"], "NaN is Inspect's unscored"
    assert score["reason"] == "grader_failed"
    assert "empty" in score["explanation"]
    assert found["unscored"] == {"tact": 1, "tone=warm": 1, "tone=cold": 1}
    values = [found["scores"][name]["value"] for name in ANSWERS if name != "Chile"]
    assert found["eval"]["score_tact_mean"] == pytest.approx(sum(each["tact"] for each in values) / 3)
    assert found["eval"]["score_tone=warm_mean"] == pytest.approx(sum(each["tone=warm"] for each in values) / 3)


def test_the_data_frames_of_inspect_have_a_row_for_each_sample_and_epoch(judged: Path) -> None:
    samples = read(judged)["samples"]
    assert sorted((each["id"], each["epoch"]) for each in samples) == sorted(
        (n, e) for n in ANSWERS for e in (1, 2)
    )
    assert all(("tact" in str(each["score_judge"])) == (each["id"] != "Chile") for each in samples)


def test_a_log_that_is_there_is_judged_by_the_scorer_that_is_found_by_its_name(judged: Path) -> None:
    [log] = map(str, (judged / "logs").glob("*.eval"))
    chosen = ["-S", "rubric=tact.toml", "-S", "model=model"]
    inspect(
        judged, "score", log, "--scorer", "localjudge/judge", *chosen, "--action", "overwrite", "--overwrite"
    )
    found = read(judged)
    assert {score["metadata"]["model"] for score in found["scores"].values()} == {"model"}
    assert found["unscored"]["tact"] == 1


def states() -> tuple[list[Any], list[Any]]:
    """Return the samples of a log, and the states that a task with the same messages has when it is scored."""
    from inspect_ai.log import EvalSample
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageTool,
        ChatMessageUser,
        ContentReasoning,
        ContentText,
        ModelName,
        ModelOutput,
    )
    from inspect_ai.scorer import Target
    from inspect_ai.solver import TaskState
    from inspect_ai.tool import ToolCall, ToolCallError

    asked = ChatMessageUser(content="The capital of Chile?")
    calls = [
        ChatMessageAssistant(
            content=[ContentReasoning(reasoning="I look it up."), ContentText(text="One moment.")],
            tool_calls=[ToolCall(id=key, function="look_up", arguments={"country": "Chile"})],
        )
        for key in "ab"
    ]
    failed = ToolCallError(type="timeout", message="timed out")
    results = [
        ChatMessageTool(content="", tool_call_id="a", function="look_up", error=failed),
        ChatMessageTool(content="Santiago", tool_call_id="b", function="look_up"),
    ]
    said = ChatMessageAssistant(content=[ContentReasoning(reasoning="Sure."), ContentText(text="Santiago.")])
    targets = ["Santiago", "Santiago de Chile"]
    given: list[tuple[list[Any], Any, str | list[str]]] = [
        ([asked, said, ChatMessageUser(content="Sure?"), ChatMessageAssistant(content="Yes.")], None, ""),
        ([asked, calls[0], results[0], calls[1], results[1], said], said, targets),
        ([asked, calls[0]], calls[0], targets),
        ([asked], said, "Santiago"),
    ]
    samples, running = [], []
    for number, (messages, last, target) in enumerate(given, 1):
        output = ModelOutput.from_message(last) if last else ModelOutput()
        more: dict[str, Any] = {
            "epoch": 1,
            "input": "The capital of Chile?",
            "messages": messages,
            "output": output,
        }
        samples.append(EvalSample(id=number, target=target, **more))
        state = TaskState(model=ModelName("north/seven"), sample_id=number, **more)
        running.append((state, Target(target)))
    return samples, running


@pytest.mark.parametrize("name", ["agent", "conversation", "with reasoning", "with reference"])
def test_the_scorer_reads_what_the_rows_of_its_log_have(tmp_path: Path, name: str) -> None:
    from localjudge.integrations.inspect import _row

    fields = {
        "with reasoning": "{$conversation_with_reasoning}",
        "with reference": "{$conversation} {$reference}",
    }
    if name in fields:
        template = f"template = 'Read {fields[name]}. {{$aspects}} {{$answer_format}}'"
        scale = "scale = { lowest = 1, highest = 3 }"
        (tmp_path / "own.toml").write_text(f'name = "own"\naspects = ["tact"]\n{scale}\n[prompt]\n{template}\n')
    judge = SharedJudge(str(tmp_path / "own.toml") if name in fields else name, engine="dry-run")
    samples, running = states()
    read = list(read_rows([str(written(tmp_path / "log.eval", samples))], used=judge.rubric.fields))
    scored = list(
        rows_of_program([_row(state, target, judge) for state, target in running], judge.rubric.fields)
    )
    assert len(read) == len(scored) == 4
    for one, other in zip(read, scored, strict=True):
        assert isinstance(one, Row), one.error
        assert isinstance(other, Row), other.error
        assert (one.id, one.candidate, one.instruction) == (other.id, other.candidate, other.instruction)
        assert (one.reference, one.digest) == (other.reference, other.digest)
        assert (judge.rubric.refusal(other) is None) == (not judge.rubric.needs_reference or one.id != "1")
    shown = scored[1].candidate
    assert 'Assistant, call 1:\n> look_up {"country": "Chile"}' in shown
    assert "Tool, error of call 1:\n> timed out" in shown
    assert "Tool, result of call 2:\n> Santiago" in shown
    assert ("Assistant, reasoning:\n> Sure." in shown) == (name == "with reasoning")
    assert scored[0].candidate.count("Santiago.") == 1, "each turn once"
    assert scored[3].candidate.endswith("Assistant:\n> Santiago.") or name == "with reasoning"


def test_several_targets_are_alternatives_for_a_rubric_of_single_responses() -> None:
    from localjudge.integrations.inspect import _row

    judge = SharedJudge("correctness", engine="dry-run")
    _, running = states()
    rows = [_row(state, target, judge) for state, target in running]
    assert [row.get("reference") for row in rows] == [
        [""],
        *[["Santiago", "Santiago de Chile"]] * 2,
        ["Santiago"],
    ]
    assert [row["candidate"] for row in rows[1:]] == ["Santiago.", "One moment.", "Santiago."]


def test_the_warning_about_the_bundled_model_is_printed_once(tmp_path: Path) -> None:
    own = 'scorer=judge(rubric="tact.toml", model="model", max_rationale_tokens=6)'
    (tmp_path / "task.py").write_text(TASK.replace(own, "scorer=judge()"))
    shown = " ".join(inspect(tmp_path, "eval", "task.py", "--log-dir", "logs").split())
    assert shown.count("These scores come from the small bundled model") == 1


def test_the_task_of_the_guide_can_be_made(tmp_path: Path) -> None:
    script_of(PAGES["harnesses"].read_text(), tmp_path)
    made = "import capitals; from inspect_ai.scorer._scorer import as_scorer_spec as spec; "
    assert said(
        tmp_path, sys.executable, "-c", made + "print(spec(capitals.capitals().scorer[0]).args)"
    ).endswith("{'rubric': 'just-eval', 'model': 'bundled'}\n")
