"""Tests of what a server is asked for, and of how its answers become judgements."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows
from scripted_server import (
    FORM_RUBRIC,
    ROWS,
    WHOLE,
    Reply,
    always,
    answer_trial,
    chat,
    judge_on,
    judged,
    number_of,
    serving,
)

from localjudge import RowSource, UsageError, score_run
from localjudge.records import Failure, Judgement
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.written_values import answer_pattern, value_places


def each_character_with(logprob: float) -> dict[str, Any]:
    """Return the log-probabilities of a reply in which each value has this one."""
    top = [{"token": value, "logprob": logprob} for value in "123"]
    content = [{"token": each, "logprob": 0.0, "top_logprobs": top} for each in WHOLE]
    return {"logprobs": {"content": content}}


def test_whole_answers_become_judgements(short_rubric: Path) -> None:
    for outcome in judged(lambda text, before: chat(WHOLE), short_rubric).values():
        assert isinstance(outcome, Judgement)
        assert outcome.scores == {"tact": 2, "wit": 3}
        assert outcome.rationale == "Seen."
        assert (outcome.prompt_tokens, outcome.output_tokens) == (11, 7)
        assert outcome.probabilities == {}
        assert outcome.expected == {}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat('{"rationale":"See'), "the engine's answer is not whole: not an answer to the rubric short"),
        (chat(WHOLE, finish_reason="length"), "the engine's answer is not whole: it is cut off at the limit"),
        (chat('{"verdict":5}'), "not an object of 'rationale', 'scores'"),
        (chat(WHOLE.replace('"3"', '"9"')), "wit is not one of its values"),
        (chat(WHOLE.replace('"3"', "3")), "wit is not one of its values"),
        (chat(""), "the engine's answer is not whole"),
        (chat("[" * 100_000), "the engine's answer is not whole"),
        (chat(WHOLE, finish_reason="content_filter"), "the server's filter stopped the answer"),
        (
            chat(WHOLE.replace("Seen", "\\ud83d")),
            "rationale has half of a surrogate pair (U+D83D), which is not a character",
        ),
        (chat(WHOLE.replace('"wit"', '"tact":"1","wit"')), "has the key 'tact' twice"),
        (chat(WHOLE, **each_character_with(1e3)), "log-probabilities of tact are not numbers up to 0"),
        (chat(WHOLE, **each_character_with(math.nan)), "give `engine_args` top_logprobs=0"),
        ((200, {"choices": []}), "the server's reply has no answer in it"),
        ((400, {"error": {"message": "too many\ntokens"}}), "the server answered 400: too many tokens"),
        ((413, b"<html>large</html>"), "the server answered 413: <html>large</html>"),
        pytest.param(
            (200, b" " * 40_000_000),
            "the server's reply has more than 32,000,000 bytes and was cut off",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_no_answer_is_a_failure_of_its_row_in_one_line_and_is_asked_for_once(
    reply: Reply, reason: str, short_rubric: Path
) -> None:
    asked: list[str] = []

    def script(text: str, before: int) -> Reply:
        asked.append(text)
        return reply if number_of(text) == 3 else chat(WHOLE)

    found = judged(script, short_rubric)
    assert [row for row, outcome in found.items() if isinstance(outcome, Failure)] == ["r3"]
    failure = found["r3"]
    assert isinstance(failure, Failure)
    assert reason in failure.error
    assert "\n" not in failure.error
    assert len(asked) == len(ROWS)
    content = reply[1]["choices"] if isinstance(reply[1], dict) and "choices" in reply[1] else None
    said = content[0]["message"]["content"] if content else None
    assert failure.failed_answer == said


def test_a_refusal_is_a_failure_with_its_text(short_rubric: Path, tmp_path: Path) -> None:
    refuses = chat("", message={"role": "assistant", "content": None, "refusal": "I cannot judge this."})
    with (
        serving(lambda text, before: refuses if number_of(text) == 3 else chat(WHOLE)) as server,
        judge_on(server, short_rubric) as judge,
    ):
        score_run(judge, RowSource.from_rows(ROWS), tmp_path)
    [failed] = [line for line in read_lines(tmp_path) if line["status"] == "failed"]
    assert failed["id"] == "r3"
    assert "the model refused to answer" in failed["error"]
    assert failed["failed_answer"] == "I cannot judge this."


HALF = "half \ud83d"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (chat(HALF), "half \\ud83d"),
        (chat(WHOLE.replace("Seen", HALF)), WHOLE.replace("Seen", "half \\ud83d")),
        ((200, json.dumps(chat(HALF)[1], ensure_ascii=False).encode("utf-8", "surrogatepass")), "half \\ud83d"),
        (chat("", message={"content": WHOLE, "reasoning": HALF}), WHOLE),
        ((400, {"error": {"message": HALF}}), None),
        ((200, {"error": HALF}), None),
    ],
    ids=["an answer", "a rationale", "bytes", "thoughts", "a refusal", "an error"],
)
def test_half_of_a_character_fails_its_row_and_the_run_goes_on(
    reply: Reply, said: str | None, short_rubric: Path, tmp_path: Path
) -> None:
    with (
        serving(lambda text, before: reply if number_of(text) == 3 else chat(WHOLE)) as server,
        judge_on(server, short_rubric) as judge,
    ):
        score_run(judge, RowSource.from_rows(ROWS), tmp_path)
    lines = {line["id"]: line for line in read_lines(tmp_path)}
    assert len(lines) == len(ROWS)
    assert [row for row, line in lines.items() if line["status"] == "failed"] == ["r3"]
    assert lines["r3"]["failed_answer"] == said


def test_a_failed_answer_stands_in_the_line_of_its_row(short_rubric: Path, tmp_path: Path, cli: Cli) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    with serving(lambda text, before: chat("I would say 4.")) as server:
        flags = [
            "--engine",
            "server",
            "--server",
            server.url,
            "--rubric",
            short_rubric,
            "--out",
            tmp_path / "run",
        ]
        assert cli("score", rows, *flags).code == 3
    assert [line["failed_answer"] for line in read_lines(tmp_path / "run")] == ["I would say 4."] * 2
    assert "failed answer\n  I would say 4." in cli("show", tmp_path / "run", "--id", "r1").out


def test_rows_of_a_server_are_not_cut_because_their_tokens_are_not_known(short_rubric: Path) -> None:
    with (
        serving(lambda text, before: chat(WHOLE)) as server,
        pytest.raises(UsageError, match="only the server"),
    ):
        judge_on(server, short_rubric, on_overflow="truncate-candidate")


def test_the_server_is_asked_for_the_rubrics_schema_with_bounded_texts(short_rubric: Path) -> None:
    with serving(lambda text, before: chat(WHOLE)) as server:
        with judge_on(server, short_rubric, max_rationale_tokens=10) as judge:
            list(judge.score(ROWS[:1]))
        body = server.bodies[-1]
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["rationale"] == {"type": "string", "minLength": 1, "maxLength": 40}
    assert schema["properties"]["scores"]["properties"]["wit"] == {"enum": ["1", "2", "3"]}
    longest = WHOLE.replace("Seen.", "x" * 40)
    assert len(longest) < body["max_tokens"] < 4 * len(longest)
    assert not body.keys() & {"seed", "chat_template_kwargs", "structured_outputs"}


def test_vllm_is_asked_not_to_think(short_rubric: Path) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.version = "0.32.0"
        with judge_on(server, short_rubric) as judge:
            list(judge.score(ROWS[:1]))
        body = server.bodies[-1]
    assert body["chat_template_kwargs"]["enable_thinking"] is False


@pytest.mark.parametrize("lists", [True, False])
def test_a_server_that_takes_no_variables_of_a_chat_template_gets_none(
    short_rubric: Path, tmp_path: Path, lists: bool
) -> None:
    """A Mistral tokenizer has no chat template in vLLM."""

    def reply(body: dict[str, Any]) -> Reply:
        if "chat_template_kwargs" in body:
            return 400, {"error": {"message": "chat_template is not supported for Mistral tokenizers."}}
        if "logprobs" in body and not lists:
            return 400, {"error": {"message": "logprobs are not supported"}}
        return answer_trial(body)

    with serving(always(chat(WHOLE))) as server:
        server.version, server.trial = "0.32.0", reply
        with judge_on(server, short_rubric) as judge:
            score_run(judge, RowSource.from_rows(ROWS), tmp_path)
            details: Any = judge.engine.info.details
        body = server.bodies[-1]
    assert {line["status"] for line in read_lines(tmp_path)} == {"judged"}
    assert "chat_template_kwargs" not in body
    assert "Mistral tokenizers" in details["left_out"]["thinking"]
    assert ("logprobs" in body) == lists


def test_vllm_is_asked_for_the_form_of_a_rubric_by_a_pattern(tmp_path: Path) -> None:
    rubric = tmp_path / "form.toml"
    rubric.write_text(FORM_RUBRIC)
    with serving(always(chat("Feedback: Fine. [RESULT] 4"))) as server:
        server.version = "0.32.0"
        with judge_on(server, rubric) as judge:
            (outcome,) = judge.score(ROWS[:1])
        pattern = server.bodies[-1]["structured_outputs"]["regex"]
    assert isinstance(outcome, Judgement)
    assert outcome.scores == {"score": 4}
    assert re.fullmatch(pattern, "Feedback: Good. [RESULT] 5")
    assert not re.fullmatch(pattern, "Feedback: Good. [RESULT] 6")


def test_a_rationale_as_long_as_its_bound_was_cut(short_rubric: Path) -> None:
    found = judged(
        lambda text, before: chat(WHOLE.replace("Seen.", "x" * 40)), short_rubric, max_rationale_tokens=10
    )
    assert all(isinstance(outcome, Judgement) and outcome.rationale_cut for outcome in found.values())


def test_thoughts_before_an_answer_are_split_off(short_rubric: Path) -> None:
    for reply in (
        chat(f"<think>Hm, {{}}.</think>\n```json\n{WHOLE}\n```"),
        chat("", message={"content": WHOLE, "reasoning_content": "Hm, {}."}),
    ):
        found = judged(always(reply), short_rubric, keep_thoughts=True)
        assert {getattr(outcome, "thoughts", None) for outcome in found.values()} == {"Hm, {}."}


def test_a_server_that_knows_no_log_probabilities_is_asked_without(short_rubric: Path) -> None:
    with serving(lambda text, before: chat(WHOLE)) as server:
        reply = server.reply

        def refusing(path: str, body: Any) -> Reply | None:
            return (400, {"error": "unknown field"}) if body and "logprobs" in body else reply(path, body)

        server.reply = refusing  # type: ignore[method-assign]
        with judge_on(server, short_rubric) as judge:
            assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))
            assert judge.engine.info.details["top_logprobs"] == 0


def test_the_values_of_an_answer_are_found_in_any_white_space(short_rubric: Path) -> None:
    layout = Rubric.load(short_rubric).answer_layout
    spaced = json.dumps({"rationale": 'a "tact":"1" b', "scores": {"tact": "3", "wit": "1"}}, indent=4)
    found = {name: spaced[begin:end] for name, (begin, end) in value_places(layout, spaced).items()}
    assert found == {"tact": "3", "wit": "1"}
    other = json.dumps({"scores": {"tact": "3", "wit": "1"}, "rationale": "a"})
    assert value_places(layout, other) == {}
    assert answer_pattern(layout)


@pytest.mark.slow
def test_a_server_needs_neither_torch_nor_transformers_on_this_machine() -> None:
    with serving(always(chat("no answer"))) as server:
        code = f"""
import sys
sys.modules |= dict.fromkeys(["torch", "transformers", "tokenizers", "huggingface_hub"])
from localjudge import Judge
with Judge(engine="server", engine_args={{"server": {server.url!r}}}) as judge:
    print([outcome.status for outcome in judge.score({ROWS[:1]!r})])
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout == "['failed']\n", ended.stderr


@pytest.mark.parametrize(("version", "seeded"), [(None, True), ("0.32.0", False)])
def test_samples_have_a_seed_but_on_a_vllm_that_may_run_on_a_cpu(
    version: str | None, seeded: bool, short_rubric: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.version = version
        with judge_on(server, short_rubric, temperature=0.7) as judge:
            list(judge.score(ROWS))
            assert judge.engine.info.details["seeded"] is seeded
        seeds = {body.get("seed") for body in server.bodies if body["max_tokens"] > 1}
    assert len(seeds) == (len(ROWS) if seeded else 1)
