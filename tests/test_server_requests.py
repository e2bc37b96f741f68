"""Tests of requests to a real HTTP server: no row is lost, whatever the server does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows
from scripted_server import (
    ROWS,
    WHOLE,
    Reply,
    ScriptedHandler,
    ScriptedServer,
    always,
    chat,
    judge_on,
    judged,
    number_of,
    serving,
)

from localjudge import EngineError, UsageError
from localjudge.engines.server.server_requests import RequestWindow
from localjudge.records import Failure, Judgement
from localjudge.runs.reader import read_outcomes


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"error": "slow down"}),
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
    assert "5 times, although the server answers a test request" in failed.error
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


GIVEN_UP = "although the server answers a test request"


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((429, b"busy"), "the server answered 429: busy, for 0.2 s"),
        ((502, b"bad gateway"), "the server answered 502: bad gateway, for 0.2 s"),
        ((503, {"error": "no backend"}), "the server answered 503: no backend, for 0.2 s"),
        ((504, b"time-out"), "the server answered 504: time-out, for 0.2 s"),
        ((403, b"blocked by the firewall"), "the server answered 403: blocked by the firewall; put the key"),
        ((404, b"no such page"), "the server answered 404: no such page"),
        ((451, b""), "the server answered 451"),
    ],
)
@pytest.mark.parametrize("last", [False, True], ids=["among others", "after all others"])
def test_a_row_that_is_always_refused_fails_after_the_patience_if_the_server_answers_a_trial(
    refusal: Reply, said: str, last: bool, short_rubric: Path
) -> None:
    rows = [row for row in ROWS if row["id"] == "r2"] if last else ROWS
    found = judged(
        lambda text, before: refusal if number_of(text) == 2 else chat(WHOLE),
        short_rubric,
        rows,
        engine_args={"patience": "0.2"},
    )
    failed = found.pop("r2")
    assert isinstance(failed, Failure)
    assert said in failed.error
    assert failed.error.endswith(GIVEN_UP)
    assert all(isinstance(outcome, Judgement) for outcome in found.values())


def test_a_run_ends_though_every_row_is_refused_while_trials_are_answered(short_rubric: Path) -> None:
    rows = [dict(row, candidate=f"C{part}", id=f"{row['id']}-{part}") for part in range(8) for row in ROWS]
    with (
        serving(always((502, b"bad gateway"))) as server,
        judge_on(server, short_rubric, engine_args={"patience": "0.5"}) as judge,
    ):
        began = time.monotonic()
        outcomes = list(judge.score(rows))
        took = time.monotonic() - began
    assert all(isinstance(outcome, Failure) for outcome in outcomes)
    assert len(outcomes) == len(rows)
    assert took < 0.5 * len(rows) / 2, "the patience is for all rows, not for each"


def test_a_row_gets_several_tries_though_the_patience_is_short(short_rubric: Path) -> None:
    found = judged(
        lambda text, before: (502, b"") if before < 3 else chat(WHOLE),
        short_rubric,
        engine_args={"patience": "0"},
    )
    assert all(isinstance(outcome, Judgement) for outcome in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("answered", [0, 2])
def test_a_silent_server_ends_the_run_after_the_patience_and_a_line_says_that_it_is_waited_for(
    answered: int, short_rubric: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localjudge.engines.server.server_requests._REPORTED_AFTER", 0.1)
    end = threading.Event()

    def script(text: str, before: int) -> Reply | None:
        if len(server.asked) > answered:
            server.trial = lambda body: silence()
            return silence()
        return chat(WHOLE)

    def silence() -> Reply | None:
        end.wait()
        return None

    with serving(script) as server:
        try:
            given = {"request_timeout": "0.5", "patience": "1.5"}
            with judge_on(server, short_rubric, engine_args=given) as judge:
                began = time.monotonic()
                with pytest.raises(
                    EngineError, match=r"no answer for 1\.5 s: the server gave no answer within"
                ):
                    list(judge.score(ROWS))
                took = time.monotonic() - began
        finally:
            end.set()
    assert 1.5 <= took < 1.5 + 4 * 0.5, "the patience, a time-out that began in it, and the trial"
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        f"server {server.url}/v1: the server gave no answer within 0.5 s; waiting for it, up to 1.5 s"
    )


def test_a_server_that_is_slow_is_not_silent(short_rubric: Path) -> None:
    def script(text: str, before: int) -> Reply:
        time.sleep(0.3)
        return (502, b"") if number_of(text) == 4 and before == 0 else chat(WHOLE)

    found = judged(script, short_rubric, engine_args={"patience": "0.1", "max_num_seqs": "1"})
    assert all(isinstance(outcome, Judgement) for outcome in found.values())


def test_a_server_whose_first_page_is_silent_is_one_line_soon(
    short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localjudge.engines.server.connection._LOOK_SECONDS", 0.2)
    end = threading.Event()

    def silence(path: str, body: Any) -> Reply | None:
        end.wait()
        return None

    with serving(always(chat(WHOLE))) as server:
        server.reply = silence  # type: ignore[method-assign]
        try:
            began = time.monotonic()
            with pytest.raises(UsageError, match=r"gave no answer within 0\.2 s; start the server"):
                judge_on(server, short_rubric)
            assert time.monotonic() - began < 5
        finally:
            end.set()


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_a_surplus_reply_is_not_taken_for_that_of_another_row(delay: float, short_rubric: Path) -> None:
    class SurplusHandler(ScriptedHandler):
        def _send(self, written: bytes) -> None:
            super()._send(written)
            content = json.dumps(chat(WHOLE.replace('"2"', '"1"'))[1]).encode()
            surplus = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)
            time.sleep(delay)
            super()._send(surplus)

    with serving(always(chat(WHOLE))) as server:
        server.RequestHandlerClass = SurplusHandler
        with judge_on(server, short_rubric, engine_args={"max_num_seqs": "1"}) as judge:
            outcomes = list(judge.score(ROWS))
    assert [getattr(outcome, "scores", None) for outcome in outcomes] == [{"tact": 2, "wit": 3}] * len(ROWS)


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
        f"server {server.url}/v1: the server answered 503: Loading model; waiting for it, up to 20 s",
        f"server {server.url}/v1: answers again",
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


def test_a_server_that_goes_away_and_comes_back_costs_no_row(
    short_rubric: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("localjudge.engines.server.server_requests._REPORTED_AFTER", 0.0)
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
    assert said[1] == said[-1] == f"server http://127.0.0.1:{port}/v1: answers again"


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
        if len(server.asked) < 12:
            return chat(WHOLE)
        server.trial = lambda body: (503, {"error": "loading"})
        return server.trial({})

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
        window.unanswered(number, busy=True)
    assert window.size == 32
    for expected in (32, 33, 34):
        answer_all(window)
        assert window.size in (expected, expected + 1)


def test_a_lost_request_sets_the_window_to_one_and_it_doubles_to_half_of_what_it_was() -> None:
    window = RequestWindow(64, patience_seconds=10)
    answer_all(window)
    for number in [window.send() for _ in range(window.size)]:
        window.unanswered(number, busy=False)
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
