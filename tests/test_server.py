"""Tests of a server as the engine, with a real HTTP server: no row is lost, and none goes elsewhere."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows
from scripted_server import WHOLE, Reply, Script, ScriptedServer, chat, serving

from localjudge import EngineError, Judge, UsageError
from localjudge.engines.server.request_window import RequestWindow
from localjudge.engines.vllm.score_collector import TableSettings
from localjudge.records import Failure, Judgement, Outcome, Row
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.written_values import answer_pattern, value_places
from localjudge.runs.pipeline import RowSource, score_run
from localjudge.runs.reader import read_notices, read_outcomes

FORM = """
name = "form"
aspects = ["score"]
scale = { lowest = 1, highest = 5 }
[answer]
form = "Feedback: {rationale} [RESULT] {score}"
[prompt]
template = "Q: {$instruction} A: {$candidate} score 1-5 {$answer_format}"
"""
ROWS = [{"id": f"r{n}", "instruction": f"Q{n}?", "candidate": f"C{n}", "reference": "R"} for n in range(6)]
FAST = {"retry_wait": "0.01", "request_timeout": "20", "patience": "20"}


def number_of(text: str) -> int:
    """Return the number of the row whose text a server got."""
    return int(text.partition("Q: Q")[2].partition("?")[0])


def judge_on(server: ScriptedServer, rubric: Path | Rubric, **settings: Any) -> Judge:
    given = settings.pop("engine_args", {})
    return Judge(
        rubric=rubric, engine="server", engine_args={"server": server.url, **FAST, **given}, **settings
    )


def judged(script: Script, rubric: Path, rows: Any = ROWS, **settings: Any) -> dict[str, Outcome]:
    with serving(script) as server, judge_on(server, rubric, **settings) as judge:
        found = {outcome.id: outcome for outcome in judge.score(rows)}
    assert len(found) == len(rows)
    return found


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


def test_an_answer_that_is_not_whole_is_asked_for_again_only_on_request(short_rubric: Path) -> None:
    def script(text: str, before: int) -> Reply:
        return chat(WHOLE if before == 2 else "{")

    for again, kind in ((1, Failure), (2, Judgement)):
        found = judged(script, short_rubric, ROWS[:2], engine_args={"ask_again": str(again)})
        assert all(isinstance(outcome, kind) for outcome in found.values())


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"error": "slow down"}),
        (429, ({"Retry-After": "0"}, b"")),
        (500, b"Internal Server Error"),
        (503, {}),
        (200, {"error": {"message": "overloaded"}}),
        (200, b'{"choices": [{"mess'),
        None,
    ],
)
def test_a_request_that_the_server_could_not_answer_is_repeated_until_it_does(
    trouble: Reply | None, short_rubric: Path
) -> None:
    found = judged(lambda text, before: trouble if before < 2 else chat(WHOLE), short_rubric)
    assert all(isinstance(outcome, Judgement) for outcome in found.values())


@pytest.mark.parametrize("trouble", [(500, {"error": "kernel"}), None, (200, {"error": "kernel"})])
def test_a_row_that_the_server_never_answers_fails_when_it_answers_a_trial(
    trouble: Reply | None, short_rubric: Path
) -> None:
    found = judged(lambda text, before: trouble if number_of(text) == 2 else chat(WHOLE), short_rubric)
    failed = found.pop("r2")
    assert isinstance(failed, Failure)
    assert "5 times, and the server answers a trial" in failed.error
    assert all(isinstance(outcome, Judgement) for outcome in found.values())


@pytest.mark.slow
def test_a_request_without_an_answer_in_time_is_repeated_and_fails_in_the_end(short_rubric: Path) -> None:
    held = threading.Event()

    def script(text: str, before: int) -> Reply:
        if number_of(text) == 1 or (number_of(text) == 2 and before == 0):
            held.wait()
        return chat(WHOLE)

    try:
        with (
            serving(script) as server,
            judge_on(server, short_rubric, engine_args={"request_timeout": "1"}) as judge,
        ):
            found = {outcome.id: outcome for outcome in judge.score(ROWS)}
            held.set()
    finally:
        held.set()
    failed = found.pop("r1")
    assert isinstance(failed, Failure)
    assert "the server gave no answer within 1 s, 5 times" in failed.error
    assert all(isinstance(outcome, Judgement) for outcome in found.values())


def not_ready(server: ScriptedServer, times: int) -> None:
    """Let a server answer this number of requests, whatever they are, as one that loads its model."""
    reply, left = server.reply, iter(range(times))

    def loading(path: str, body: Any) -> Reply | None:
        if next(left, None) is None:
            return reply(path, body)
        return 503, {"error": {"message": "Loading model", "code": 503}}

    server.reply = loading  # type: ignore[method-assign]


def test_a_server_that_loads_its_model_is_waited_for_and_that_is_said_once(
    short_rubric: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(always(chat(WHOLE))) as server:
        not_ready(server, 4)
        with judge_on(server, short_rubric) as judge:
            not_ready(server, 2)  # loading again when the engine is opened
            assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))
    said = [record.getMessage() for record in caplog.records]
    waits, answers = (
        f"--server {server.url}/v1: the server answered 503: Loading model; waiting for it, up to 20 s",
        f"--server {server.url}/v1: answers again",
    )
    assert said == [waits, answers, waits, answers]


def test_a_server_that_is_not_ready_in_time_is_one_line(short_rubric: Path) -> None:
    with serving(always(chat(WHOLE))) as server:
        not_ready(server, 1)
        with pytest.raises(UsageError, match=r"no answer for 0 s: the server answered 503: Loading model"):
            judge_on(server, short_rubric, engine_args={"patience": "0"})


def test_doctor_does_not_wait_for_a_server_that_loads_its_model(cli: Cli) -> None:
    with serving(always(chat(WHOLE))) as server:
        not_ready(server, 1)
        ended = cli("doctor", "--engine", "server", "--server", server.url)
    assert ended.code == 1
    assert "the server answered 503: Loading model" in ended.out


@pytest.mark.parametrize("listing", [(500, b"Internal Server Error"), (404, {"detail": "Not Found"})])
def test_a_server_that_cannot_list_its_models_serves_one_that_is_named(
    listing: Reply, short_rubric: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        reply = server.reply
        server.reply = lambda path, body: reply(path, body) if body else listing  # type: ignore[method-assign]
        with judge_on(server, short_rubric, model="tiny") as judge:
            assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))
        with pytest.raises(UsageError, match="the server answered"):
            judge_on(server, short_rubric)


def test_a_server_that_goes_away_and_comes_back_costs_no_row(
    short_rubric: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("localjudge.engines.server.server_requests._TOLD_AFTER", 0.0)
    gone, back = threading.Event(), threading.Event()

    def script(text: str, before: int) -> Reply | None:
        return None if gone.is_set() else chat(WHOLE)

    with serving(script) as first, judge_on(first, short_rubric) as judge:
        port = first.server_address[1]
        rows = [dict(row, id=f"{row['id']}-{part}", candidate=f"C{part}") for part in range(5) for row in ROWS]
        outcomes = judge.score(rows)
        found = [next(outcomes)]
        gone.set()  # its open connections break, too
        first.shutdown()
        first.server_close()

        def serve_again() -> None:
            with serving(lambda text, before: chat(WHOLE), port):
                back.wait()

        later = threading.Timer(0.3, serve_again)
        later.start()
        found += outcomes
        back.set()
        later.join()
        repeated = judge.engine.statistics()["repeated_requests"]
    assert {outcome.id for outcome in found if isinstance(outcome, Judgement)} == {row["id"] for row in rows}
    assert repeated["away"] > 0
    said = [record.getMessage() for record in caplog.records]
    assert said[0].endswith("; waiting for it, up to 20 s")
    assert said[1] == said[-1] == f"--server http://127.0.0.1:{port}/v1: answers again"


def test_a_server_that_stays_away_ends_the_run_and_the_same_command_continues_it(
    short_rubric: Path, tmp_path: Path, cli: Cli
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 30)
    flags = [
        "--rubric",
        short_rubric,
        "--engine",
        "server",
        "--out",
        tmp_path / "run",
        "--engine-arg",
        "patience=0",
    ]

    def script(text: str, before: int) -> Reply:
        return chat(WHOLE) if len(server.asked) < 12 else (503, {"error": "loading"})

    with serving(script) as server:
        ended = cli("score", rows, *flags, "--server", server.url)
        assert ended.code == 1
        (line,) = (line for line in ended.err.splitlines() if line.startswith("localjudge:"))
        assert "no answer for 0 s: the server answered 503: loading; when it is back, the same command" in line
        done = {line["id"] for line in read_lines(tmp_path / "run")}
        assert 0 < len(done) < 30
    with serving(always(chat(WHOLE))) as other:
        assert cli("score", rows, *flags, "--server", other.url).code == 0
        assert len(other.asked) == 30 - len(done)
    assert sum(isinstance(outcome, Judgement) for outcome in read_outcomes(tmp_path / "run")) == 30


def test_a_run_records_where_its_rows_went_and_that_the_model_is_known_by_name(
    short_rubric: Path, tmp_path: Path, cli: Cli
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    with serving(lambda text, before: chat(WHOLE)) as server:
        server.version = "0.32.0"
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
        ended = cli("score", rows, *flags)
        assert ended.code == 0, ended.err
        assert "engine server (unverified: it applies no token table)" in ended.err
        repeated = cli("repeat", tmp_path / "run", "--sample", "3", "--json")
        assert repeated.code == 0, repeated.err
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["settings"]["model"] == "unverified tiny"
    assert run["model"] == {"name": "tiny", "path": None, "files": {}, "verified": False}
    engine = run["starts"][0]["engine"]
    assert engine["applies_table"] is False
    assert engine["versions"]["server"] == "vllm 0.32.0"
    assert engine["details"]["server"] == f"{server.url}/v1"
    assert engine["details"]["kind"] == "unverified"
    assert engine["details"]["model"]["digests"] == "unknown"
    assert run["starts"][0]["config"]["engine_args"]["server"] == server.url
    assert any(notice.startswith("unverified: tiny") for notice in read_notices(tmp_path / "run"))


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


@pytest.mark.parametrize(
    "url",
    ["http://judge.cluster.local:8000", "http://10.1.2.3/v1", "http://[2001:db8::1]:8000", "http://0.0.0.0"],
)
def test_rows_go_to_no_other_host_than_this_machine_unless_it_is_named(url: str, short_rubric: Path) -> None:
    host = url.removeprefix("http://").removesuffix("/v1").removesuffix(":8000").strip("[]")
    with pytest.raises(UsageError, match=f"{host} is not this machine.*--allow-host {host}"):
        Judge(rubric=short_rubric, engine="server", engine_args={"server": url})


def test_a_host_that_is_named_is_asked(short_rubric: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be reached.*start the server"):
        Judge(
            rubric=short_rubric,
            engine="server",
            engine_args={"server": "http://judge.invalid:8000", "allow_host": "judge.invalid"},
        )


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "127.0.0.1:8000", "http://me:secret@127.0.0.1", "unix:judge.sock"]
)
def test_an_address_that_is_none_of_a_server_is_one_line_without_its_secrets(
    url: str, short_rubric: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        Judge(rubric=short_rubric, engine="server", engine_args={"server": url})
    assert "secret" not in str(refused.value)
    assert str(refused.value).startswith("--server")


def test_a_redirect_leads_nowhere(short_rubric: Path) -> None:
    def script(text: str, before: int) -> Reply:
        return (
            (307, ({"Location": f"{other.url}/v1/chat/completions"}, b""))
            if number_of(text) == 3
            else chat(WHOLE)
        )

    with serving(lambda text, before: chat(WHOLE)) as other, serving(script) as server:
        with (
            judge_on(server, short_rubric) as judge,
            pytest.raises(EngineError, match=r"redirects to .* final URL"),
        ):
            list(judge.score(ROWS))
        assert other.paths == []


def test_proxies_of_the_environment_are_not_used(short_rubric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda text, before: chat(WHOLE)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        found = judged(lambda text, before: chat(WHOLE), short_rubric)
        assert all(isinstance(outcome, Judgement) for outcome in found.values())
        assert proxy.paths == []


def test_a_key_that_the_server_refuses_ends_the_run_in_one_line(short_rubric: Path) -> None:
    with (
        serving(lambda text, before: (401, {"error": "no key"})) as server,
        judge_on(server, short_rubric) as judge,
        pytest.raises(EngineError, match=r"answered 401: no key; put the key into .* LOCALJUDGE_SERVER_KEY"),
    ):
        list(judge.score(ROWS))


def test_a_server_without_the_model_names_those_that_it_has(short_rubric: Path) -> None:
    with serving(lambda text, before: chat(WHOLE)) as server:
        server.models = ["tiny", "huge"]
        with pytest.raises(UsageError, match="it serves huge, tiny"):
            judge_on(server, short_rubric, model="medium")
        with pytest.raises(UsageError, match="serves huge, tiny; name one"):
            judge_on(server, short_rubric)


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


def test_vllm_is_asked_for_the_form_of_a_rubric_by_a_pattern(tmp_path: Path) -> None:
    rubric = tmp_path / "form.toml"
    rubric.write_text(FORM)
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


def always(reply: Reply) -> Script:
    return lambda text, before: reply


def choices_of(pieces: list[str | dict[str, float]]) -> dict[str, Any]:
    """Return the log-probabilities of a reply from its tokens; a dict lists the tokens of a place."""
    content = []
    for piece in pieces:
        listed = {piece: 0.9} if isinstance(piece, str) else piece
        top = [{"token": token, "logprob": math.log(share)} for token, share in listed.items()]
        content.append({"token": next(iter(listed)), "logprob": top[0]["logprob"], "top_logprobs": top})
    return {"logprobs": {"content": content}}


def test_probabilities_come_from_the_tokens_that_tell_the_values_apart(short_rubric: Path) -> None:
    tokens = choices_of(
        [
            '{"rationale', '":"Se', "en.", '","scores":{"tact":',
            {'"2': 0.6, '"1': 0.2, '"3': 0.1, "x": 0.0001}, '","wit":"',
            {"3": 0.5, "1": 0.25, "2": 0.2, "0": 0.00001}, '"}}', {"<|end|>": 1.0},
        ]
    )  # fmt: skip
    for outcome in judged(lambda text, before: chat(WHOLE, **tokens), short_rubric).values():
        assert isinstance(outcome, Judgement)
        assert outcome.probabilities["tact"] == pytest.approx([2 / 9, 6 / 9, 1 / 9], abs=1e-6)
        assert outcome.probabilities["wit"] == pytest.approx([0.25 / 0.95, 0.2 / 0.95, 0.5 / 0.95], abs=1e-6)
        assert outcome.expected["tact"] == pytest.approx(17 / 9, abs=1e-4)


def test_probabilities_are_missing_where_the_list_of_tokens_leaves_a_value_open(short_rubric: Path) -> None:
    tokens = choices_of(
        ['{"rationale":"Seen.","scores":{"tact":"', {"2": 0.6, "1": 0.2}, '","wit":"', "3", '"}}']
    )
    for outcome in judged(lambda text, before: chat(WHOLE, **tokens), short_rubric).values():
        assert isinstance(outcome, Judgement)
        assert outcome.probabilities == {}


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


@pytest.mark.parametrize("stop_after", [0, 1])
def test_a_run_that_is_left_early_sends_nothing_more(stop_after: int, short_rubric: Path) -> None:
    with serving(lambda text, before: chat(WHOLE)) as server, judge_on(server, short_rubric) as judge:
        outcomes = judge.score(
            [dict(row, candidate=f"{n} {row['candidate']}") for n in range(9) for row in ROWS]
        )
        for _ in range(stop_after):
            next(outcomes)
        assert isinstance(outcomes, Iterator)
        del outcomes
        assert len(server.asked) < 54


def test_requests_are_in_flight_together_and_never_more_than_allowed(short_rubric: Path) -> None:
    together = threading.Barrier(4)
    rows = [dict(row, candidate=f"{n} {row['candidate']}") for n in range(4) for row in ROWS]

    def script(text: str, before: int) -> Reply:
        together.wait(timeout=60)
        return chat(WHOLE)

    with serving(script) as server, judge_on(server, short_rubric, engine_args={"max_num_seqs": "4"}) as judge:
        assert all(isinstance(outcome, Judgement) for outcome in judge.score(rows))
        assert judge.engine.statistics()["most_requests_at_once"] == 4


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


def tokens_of(judge: Judge) -> list[int]:
    """Return the tokens of a whole answer: in each state the first that is allowed near the end."""
    table, tokens = judge.decoding.table, list[int]()
    state, left = table.entry, judge.decoding.table.smallest_limit
    while not table.is_complete(state):
        tokens.append(int(table.allowed(state, left).argmax()))
        state, left = int(table.next_state[state, tokens[-1]]), left - 1
    return tokens


@contextmanager
def table_serving(
    tokens: Callable[[], list[int]], table: Callable[[], object] = lambda: None
) -> Iterator[ScriptedServer]:
    """Serve completions of token ids, as a vLLM with this table does, or with none."""
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
            choice = {"token_ids": tokens(), "logprobs": {"top_logprobs": listed}}
            return 200, {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"])}}

        server.reply = reply  # type: ignore[method-assign]
        yield server


def table_judge(server: ScriptedServer, model: Path, rubric: Path) -> Judge:
    given = {"server": server.url, "server_kind": "table", **FAST}
    return Judge(model, rubric=rubric, engine="server", engine_args=given, max_rationale_tokens=4)


def test_a_server_with_the_table_gives_tokens_and_normalized_probabilities(
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


def test_a_run_by_construction_says_that_the_weights_are_the_servers(
    model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    with (
        table_serving(lambda: tokens_of(judge), lambda: digest_of(judge)) as server,
        table_judge(server, model, short_rubric) as judge,
    ):
        score_run(judge, RowSource.of_rows(ROWS), tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["model"] == f"on a server {judge.model.digest}"
    assert run["starts"][0]["engine"]["details"]["model"]["digests"] == "unknown"
    assert any(notice.startswith("served model: its weights") for notice in read_notices(tmp_path))


def rows_of(rows: list[dict[str, str]]) -> list[Row]:
    return [Row.of(**{name: row[name] for name in ("instruction", "candidate", "reference")}) for row in rows]


def digest_of(judge: Judge) -> str:
    return TableSettings.served(judge.decoding, Path()).digest(judge.decoding.table)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (lambda judge: None, "has no token table; start it with the flags"),
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
        ended = cli("serve-flags", model, "--rubric", short_rubric, "--table", tmp_path / "t.npz", *flags)
        assert ended.code == 0, ended.err
        command = shlex.split(ended.out)
        assert command[:3] == ["vllm", "serve", str(model)]
        return command[command.index("--logits-processors") + 1]

    flags = ["--runner", "V1", "--max-rationale-tokens", 9]
    first = named(*flags)
    assert first.startswith("localjudge.engines.vllm.served_table:V1_")
    assert named(*flags) == first
    assert named("--runner", "V2", *flags[2:]) == first.replace("V1_", "V2_")
    assert named("--runner", "V1", "--max-rationale-tokens", 10) != first
    assert named(*flags, "--answer-spelling", "spaced") != first


def answer_all(window: RequestWindow, seconds: float = 1.0) -> None:
    """Answer as many requests as may be in flight."""
    for _ in range(window.size):
        window.answered(seconds)


def test_a_window_doubles_halves_when_the_server_is_busy_and_then_grows_by_one() -> None:
    window = RequestWindow(64, patience_seconds=10)
    sizes = [window.size]
    for _ in range(4):
        answer_all(window)
        sizes.append(window.size)
    assert sizes == [8, 16, 32, 64, 64]
    together = [window.send() for _ in range(window.size)]
    for number in together:
        window.busy(number)
    assert window.size == 32
    for expected in (32, 33, 34):
        answer_all(window)
        assert window.size in (expected, expected + 1)


def test_a_lost_request_sets_the_window_to_one_and_it_doubles_to_half_of_what_it_was() -> None:
    window = RequestWindow(64, patience_seconds=10)
    answer_all(window)
    for number in [window.send() for _ in range(window.size)]:
        window.lost(number)
    sizes = [window.size]
    for _ in range(4):
        answer_all(window)
        sizes.append(window.size)
    assert sizes[:4] == [1, 2, 4, 8]
    assert sizes[4] in (8, 9)


def test_a_window_does_not_grow_while_answers_take_long() -> None:
    window = RequestWindow(64, patience_seconds=10)
    answer_all(window, seconds=11)
    assert window.size == RequestWindow.FIRST


def test_a_server_on_a_unix_socket_is_asked(short_rubric: Path, tmp_path: Path) -> None:
    place = tmp_path / "judge.sock"
    with serving(always(chat(WHOLE)), place) as server:
        with judge_on(server, short_rubric, engine_args={"server": f"unix:{place}"}) as judge:
            assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))
            assert judge.engine.info.details["server"] == f"unix:{place}"
        assert len(server.asked) == len(ROWS)


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


@pytest.mark.parametrize(
    ("version", "given", "seeded"),
    [(None, {}, True), ("0.32.0", {}, False), ("0.32.0", {"seeded": "true"}, True)],
)
def test_samples_have_a_seed_but_on_a_vllm_that_may_run_on_a_cpu(
    version: str | None, given: dict[str, str], seeded: bool, short_rubric: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.version = version
        with judge_on(server, short_rubric, temperature=0.7, engine_args=given) as judge:
            list(judge.score(ROWS))
            assert judge.engine.info.details["seeded"] is seeded
        seeds = {body.get("seed") for body in server.bodies if body["max_tokens"] > 1}
    assert len(seeds) == (len(ROWS) if seeded else 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_num_seqs": "0"}, "give 1 or more"),
        ({"patience": "soon"}, "give a number"),
        ({"seeded": "yes"}, "give true or false"),
        ({"ask_again": "-1"}, "give 0 or more"),
        ({"batch_size": "4"}, "the server engine knows server, allow_host"),
        ({"server": ""}, "--engine server: give its URL"),
        ({"server_kind": "magic"}, "give unverified or table"),
        ({"ca_file": "/no/such/file"}, "cannot be read"),
    ],
)
def test_an_option_of_a_server_that_cannot_be_used_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Judge(engine="server", engine_args={"server": "http://127.0.0.1:9", **given})
