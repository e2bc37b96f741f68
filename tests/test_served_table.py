"""Tests of a server with our token table, whose answers are whole by construction."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted_server import (
    FAST,
    ROWS,
    WHOLE,
    Reply,
    ScriptedServer,
    chat,
    serving,
)

from localjudge import Judge, UsageError
from localjudge.engines.vllm.table_settings import table_digest
from localjudge.records import Failure, Judgement, Row
from localjudge.runs.pipeline import score_run
from localjudge.runs.reader import read_notices
from localjudge.runs.row_source import RowSource


def tokens_of(judge: Judge) -> list[int]:
    """Return the tokens of a whole answer: in each state the first that is allowed near the end."""
    table, tokens = judge.decoding.table, list[int]()
    state, left = table.entry, judge.decoding.table.smallest_limit
    while not table.is_complete(state):
        tokens.append(int(table.allowed(state, left).argmax()))
        state, left = int(table.next_state[state, tokens[-1]]), left - 1
    return tokens


PRINT = ("serve", "--print-vllm-flags", "--model")
Listed = list[dict[str, float]]
Change = Callable[[list[int], Listed], tuple[list[int], Listed]]


@contextmanager
def table_serving(
    tokens: Callable[[], list[int]],
    table: Callable[[], object] = lambda: None,
    change: Change = lambda tokens, listed: (tokens, listed),
) -> Iterator[ScriptedServer]:
    """Serve completions of token ids, as a vLLM with this table does, or with none.

    Args:
        tokens: returns the tokens of each answer.
        table: returns the digest of the server's table.
        change: changes the tokens and the lists of the answers to rows; those to the trial stay.
    """
    with serving(lambda text, before: None) as server:
        get = server.reply

        def reply(path: str, body: Any) -> Reply | None:
            if body is None:
                return get(path, body)
            server.bodies.append(body)
            if body["vllm_xargs"]["localjudge"] == "0" * 32 and table():
                return 400, {"error": {"message": f"localjudge: this server has the table {table()}; judge …"}}
            listed = [
                {f"token_id:{each}": -1.0 - rank for rank, each in enumerate(body.get("logprob_token_ids", []))}
                for _ in tokens()
            ]
            answer = tokens()
            if len(server.bodies) > 2:
                answer, listed = change(answer, listed)
            choice = {"token_ids": answer, "logprobs": {"top_logprobs": listed}}
            return 200, {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"])}}

        server.reply = reply  # type: ignore[method-assign]
        yield server


def table_judge(server: ScriptedServer, model: Path, rubric: Path) -> Judge:
    given = {"server": server.url, "server_kind": "table", **FAST}
    return Judge(model, rubric=rubric, engine="server", engine_args=given, max_rationale_tokens=4)


def rows_of(rows: list[dict[str, str]]) -> list[Row]:
    return [
        Row.from_response(**{name: row[name] for name in ("instruction", "candidate", "reference")})
        for row in rows
    ]


def digest_of(judge: Judge) -> str:
    return table_digest(judge.decoding)


def test_doctor_says_whether_a_server_answers_what_it_serves_and_its_kind(cli: Cli) -> None:
    with serving(lambda text, before: chat(WHOLE)) as server:
        server.version = "0.32.0"
        ended = cli("doctor", "--engine", "server", "--server", server.url)
        assert ended.code == 0
        assert f"{server.url}/v1: answers; vllm 0.32.0; serves tiny" in ended.out
        assert "unverified: it applies no token table" in ended.out
        assert server.asked == []
    with table_serving(list, lambda: "1" * 32) as server:
        server.version = "0.32.0"
        ended = cli("doctor", "--engine", "server", "--server", server.url)
        assert ended.code == 0
        assert f"by construction, with --server-kind table: it has the token table {'1' * 32}" in ended.out
    ended = cli("doctor", "--engine", "server", "--server", server.url)
    assert ended.code == 1
    assert "the server cannot be reached" in ended.out
    assert "start the server, or correct the URL" in ended.out


def test_a_server_with_the_table_gives_tokens_normalized_probabilities_and_their_mass(
    model: Path, short_rubric: Path
) -> None:
    with (
        table_serving(lambda: tokens_of(judge), lambda: digest_of(judge)) as server,
        table_judge(server, model, short_rubric) as judge,
    ):
        outcomes = list(judge.score(ROWS))
        assert judge.engine.info.details["kind"] == "by construction"
        assert judge.engine.info.applies_table
        assert "whole by construction" in judge.engine.info.headline
        prompts = {tuple(body["prompt"]) for body in server.bodies[2:]}
        assert prompts == {tuple(task.tokens) for task in map(judge.task_builder.task, rows_of(ROWS))}
    shares = [math.exp(-rank) for rank in range(3)]
    for outcome in outcomes:
        assert isinstance(outcome, Judgement)
        for aspect in ("tact", "wit"):
            assert outcome.probabilities[aspect] == pytest.approx(
                [each / sum(shares) for each in shares], abs=1e-6
            )
            assert outcome.mass[aspect] == pytest.approx(sum(shares) / math.e, abs=1e-6)
            assert outcome.likeliest[aspect]


def every(value: float) -> Change:
    return lambda tokens, listed: (tokens, [dict.fromkeys(each, value) for each in listed])


NOT_FINITE = "probabilities of a score are not finite numbers"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tokens, listed: ([10**6, *tokens[1:]], listed), "the token 1000000, which the model does not"),
        (lambda tokens, listed: ([2**70, *tokens[1:]], listed), "which the model does not have"),
        (lambda tokens, listed: ([-1, *tokens[1:]], listed), "the token -1, which the model does not have"),
        (lambda tokens, listed: (tokens, listed[1:]), "log-probabilities at "),
        (lambda tokens, listed: ([], listed), "places for 0 tokens"),
        (every(math.inf), NOT_FINITE),
        (every(-math.inf), NOT_FINITE),
        (every(math.nan), NOT_FINITE),
        (every(1e6), NOT_FINITE),
        (every(3.0), NOT_FINITE),
    ],
)
def test_tokens_and_probabilities_that_cannot_be_fail_their_row(
    change: Change, said: str, model: Path, short_rubric: Path
) -> None:
    with (
        table_serving(lambda: tokens_of(judge), lambda: digest_of(judge), change) as server,
        table_judge(server, model, short_rubric) as judge,
    ):
        outcomes = list(judge.score(ROWS))
    assert len(outcomes) == len(ROWS)
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert said in outcome.error


def test_a_list_without_all_values_gives_no_probabilities(model: Path, short_rubric: Path) -> None:
    def picked(tokens: list[int], listed: Listed) -> tuple[list[int], Listed]:
        return tokens, [{f"token_id:{each}": -2.5} for each in tokens]

    with (
        table_serving(lambda: tokens_of(judge), lambda: digest_of(judge), picked) as server,
        table_judge(server, model, short_rubric) as judge,
    ):
        outcomes = list(judge.score(ROWS))
    for outcome in outcomes:
        assert isinstance(outcome, Judgement)
        assert (outcome.probabilities, outcome.expected) == ({}, {})


def test_a_server_with_the_table_that_lists_numbers_after_the_mask_gives_no_probabilities(
    model: Path, short_rubric: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        table_serving(lambda: tokens_of(judge), lambda: digest_of(judge)) as server,
        table_judge(server, model, short_rubric) as judge,
    ):
        usual = server.reply

        def masked(path: str, body: Any) -> Reply | None:
            reply = usual(path, body)
            if isinstance(reply, tuple) and "choices" in reply[1]:
                for place in reply[1]["choices"][0]["logprobs"]["top_logprobs"]:
                    place.update(dict.fromkeys([*place][1:], -9999.0))
            return reply

        server.reply = masked  # type: ignore[method-assign]
        outcomes = list(judge.score(ROWS))
        left_out = judge.engine.info.details["left_out"]
    reason = "its log-probabilities are those after the mask; start it with --logprobs-mode raw_logprobs"
    assert left_out == {"probabilities": reason}
    assert [record.getMessage() for record in caplog.records] == [
        f"server {server.url}/v1: no probabilities (null): {reason}"
    ]
    for outcome in outcomes:
        assert isinstance(outcome, Judgement)
        assert (outcome.probabilities, outcome.mass, outcome.likeliest) == ({}, {}, {})


def test_a_run_by_construction_says_that_the_weights_are_the_servers(
    model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    with (
        table_serving(lambda: tokens_of(judge), lambda: digest_of(judge)) as server,
        table_judge(server, model, short_rubric) as judge,
    ):
        score_run(judge, RowSource.from_rows(ROWS), tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["model"] == f"on a server {judge.model.digest}"
    assert run["starts"][0]["engine"]["details"]["model"]["digests"] == "unknown"
    assert any(notice.startswith("served model: its weights") for notice in read_notices(tmp_path))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (lambda judge: None, "has no token table; start it with the command that localjudge serve"),
        (lambda judge: "1" * 32, "has the table 1{32}, and the judge's is"),
        (digest_of, "breaks the token table"),
    ],
)
def test_a_server_without_the_judges_table_is_refused_before_the_first_row(
    table: Callable[[Judge], object], said: str, model: Path, short_rubric: Path
) -> None:
    with (
        table_serving(lambda: [5, 6, 7], lambda: table(judge)) as server,
        table_judge(server, model, short_rubric) as judge,
        pytest.raises(UsageError, match=said),
    ):
        list(judge.score(ROWS))
    assert all(len(body["prompt"]) < 20 for body in server.bodies)


def test_serve_flags_name_a_table_by_its_content_and_limits(
    model: Path, short_rubric: Path, tmp_path: Path, cli: Cli
) -> None:
    def named(*flags: object) -> str:
        ended = cli(*PRINT, model, "--rubric", short_rubric, "--table", tmp_path / "t.npz", *flags)
        assert ended.code == 0, ended.err
        command = shlex.split(ended.out)
        assert command[:3] == ["vllm", "serve", str(model)]
        return command[command.index("--logits-processors") + 1]

    flags = ["--runner", "V1", "--max-rationale-tokens", 9]
    first = named(*flags)
    assert first.startswith("localjudge.engines.vllm.runners:V1_")
    assert named(*flags) == first
    assert named("--runner", "V2", *flags[2:]) == first.replace("V1_", "V2_")
    assert named("--runner", "V1", "--max-rationale-tokens", 10) != first
