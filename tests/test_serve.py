"""The judge behind HTTP: rows of many clients at once, rewards for trainers, and who may ask."""

from __future__ import annotations

import http.client
import json
import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from conftest import Cli, write_rows
from preloaded import Preloaded
from scripted import scripted_checks

from localjudge import Judge, Rubric, UsageError
from localjudge.errors import EngineError, ServiceBusyError
from localjudge.integrations.http_app import AccessRules, FailedReward, JudgeApp
from localjudge.integrations.http_server import server_config
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.reward import RewardEndpoint, compute_score
from localjudge.integrations.served_rewards import RewardFormula
from localjudge.records import Judgement, Outcome
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.aspect import Aspect, Scale

TOKENS = 6
FORMULA = "tact_expected - 5 * (wit < 2)"
Asked = tuple[int, Any]


class WatchedService(JudgeService):
    """A service that remembers what it judged, and counts the rows that wait or are judged now."""

    def __init__(self, judge: Judge, most_waiting: int) -> None:
        super().__init__(judge, most_waiting)
        self.judged: list[Outcome] = []

    @property
    def unfinished(self) -> int:
        return len(self._futures)

    def _finish(self, outcomes: list[Outcome]) -> None:
        self.judged += outcomes
        super()._finish(outcomes)


class Endpoint:
    """A running endpoint on this machine."""

    def __init__(self, port: int, service: WatchedService) -> None:
        self.port, self.service, self.url = port, service, f"http://127.0.0.1:{port}"

    def ask(self, path: str, document: Any = None, **headers: str) -> Asked:
        status, said = self.ask_bytes(
            path, None if document is None else json.dumps(document).encode(), **headers
        )
        return status, json.loads(said)

    def ask_bytes(self, path: str, body: bytes | None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): each for name, each in headers.items()
        }
        connection.request("GET" if body is None else "POST", path, body, sent)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found


@contextmanager
def serving(
    judge: Judge,
    rules: AccessRules | None = None,
    reward: str | None = None,
    failed_reward: FailedReward = None,
    most_waiting: int = 1000,
) -> Iterator[Endpoint]:
    formula = None if reward is None else RewardFormula.parse(reward, judge.rubric)
    with WatchedService(judge, most_waiting) as service:
        app = JudgeApp(judge, service, rules or AccessRules(), formula, failed_reward).asgi()
        server = uvicorn.Server(server_config(app, port=0, timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield Endpoint(server.servers[0].sockets[0].getsockname()[1], service)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def judge(model: Path, short_rubric: Path) -> Iterator[Judge]:
    options = {"dtype": "float32", "batch_size": "4"}
    with Judge(model, rubric=short_rubric, max_rationale_tokens=TOKENS, engine_args=options) as opened:
        yield opened


def rows(count: int, begin: int = 0) -> list[dict[str, str]]:
    return [
        {
            "id": f"r{n}",
            "instruction": f"Question {n}?",
            "reference": "Yes.",
            "candidate": "word " * (1 + n % 9),
        }
        for n in range(begin, begin + count)
    ]


def scores_of(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    return {line["id"]: (line["tact"], line["wit"], line["rationale"]) for line in outcomes}


def test_rows_are_answered_in_their_order_with_the_scores_of_a_run(judge: Judge) -> None:
    alone = {each.id: each for each in judge.score(rows(10)) if isinstance(each, Judgement)}
    with serving(judge) as endpoint:
        status, answer = endpoint.ask("/v1/judge", rows(10))
    assert status == 200
    lines = answer["outcomes"]
    assert [(line["row"], line["id"]) for line in lines] == [(n, f"r{n - 1}") for n in range(1, 11)]
    for line in lines:
        assert {name: line[name] for name in ("tact", "wit")} == alone[line["id"]].scores
        assert line["key"] == alone[line["id"]].key


def test_clients_share_one_judge_and_each_gets_its_own_rows(judge: Judge) -> None:
    with serving(judge) as endpoint, ThreadPoolExecutor(4) as clients:
        found = list(clients.map(lambda n: endpoint.ask("/v1/judge", rows(12, 12 * n)), range(4)))
    whole = {each.id: each for each in judge.score(rows(48)) if isinstance(each, Judgement)}
    assert [status for status, _ in found] == [200] * 4
    for n, (_, answer) in enumerate(found):
        assert [line["id"] for line in answer["outcomes"]] == [f"r{m}" for m in range(12 * n, 12 * n + 12)]
        assert all(line["tact"] == whole[line["id"]].scores["tact"] for line in answer["outcomes"])
    assert len(endpoint.service.judged) == 48


def test_a_row_that_cannot_be_judged_is_an_outcome_with_its_reason(judge: Judge) -> None:
    with serving(judge) as endpoint:
        status, answer = endpoint.ask("/v1/judge", [rows(1)[0], {"instruction": "Q?"}, 7])
    assert status == 200
    judged, failed, none = answer["outcomes"]
    assert judged["status"] == "judged"
    assert failed["error"].startswith("row 2: no candidate: no value at 'candidate'")
    assert none["error"] == "row 3: a int; a row is a dict or a Row"
    assert [line["row"] for line in answer["outcomes"]] == [1, 2, 3]


def test_a_pair_is_judged_in_both_orders(model: Path) -> None:
    pair = {"instruction": "Q?", "candidate_a": "a", "candidate_b": "b"}
    with Judge(model, rubric="pairwise", max_rationale_tokens=TOKENS) as judge, serving(judge) as endpoint:
        status, answer = endpoint.ask("/v1/judge", [pair, pair])
    assert status == 200
    assert [line["row"] for line in answer["outcomes"]] == [1, 2]
    assert all(line["key_ab"] and line["key_ba"] for line in answer["outcomes"])


def test_trainers_get_a_number_for_each_row(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = {each.id: each for each in judge.score(rows(3)) if isinstance(each, Judgement)}
    expected = [each.expected["tact"] - 5 * (int(each.scores["wit"]) < 2) for _, each in sorted(judged.items())]
    with serving(judge, reward=FORMULA) as endpoint:
        status, answer = endpoint.ask("/v1/rewards", rows(3))
        assert (status, answer["rewards"]) == (200, pytest.approx(expected, abs=1e-3))
        trl = RewardEndpoint(endpoint.url)
        prompts, completions = ([row[name] for row in rows(3)] for name in ("instruction", "candidate"))
        assert trl(prompts, completions, reference=["Yes."] * 3, trainer_state=None) == answer["rewards"]
        turns = [[{"role": "assistant", "content": text}] for text in completions]
        messages = [[{"role": "user", "content": text}] for text in prompts]
        assert trl(messages, turns, reference=["Yes."] * 3) == answer["rewards"]
        monkeypatch.setenv("LOCALJUDGE_URL", endpoint.url)
        score = compute_score("data", completions[2], "Yes.", {"question": prompts[2]})
        assert score == answer["rewards"][2]
        with pytest.raises(ValueError, match="3 prompts and 2 completions: give one for each"):
            trl(prompts, completions[:2])
        for missing in (None, math.nan):  # the rubric asks for one
            with pytest.raises(RuntimeError, match="reference"):
                compute_score("data", completions[2], missing, {"question": prompts[2]})


def test_a_row_without_a_score_has_no_reward_unless_one_is_given_for_it(judge: Judge) -> None:
    broken = [*rows(1), {"instruction": "Q?", "candidate": "c"}]
    with serving(judge, reward=FORMULA) as endpoint:
        status, answer = endpoint.ask("/v1/rewards", broken)
        assert status == 422
        assert "row 2: no reference" in answer["error"]
        with pytest.raises(RuntimeError, match="422"):
            RewardEndpoint(endpoint.url).rewards(broken)
    with serving(judge, reward=FORMULA, failed_reward=-1.5) as endpoint:
        assert endpoint.ask("/v1/rewards", broken)[1]["rewards"][1] == -1.5
    with serving(judge) as endpoint:
        assert endpoint.ask("/v1/rewards", rows(1))[0] == 404


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tact", 4), ("tact_expected - 5*(wit<3)", -1.75), ("overall * 2", 6.25), ("-tact ** 2", -16),
        ("max(tact, wit) - min(tact, wit, 1)", 3), ("1 if tact == 4 and not wit > 2 else 0", 1),
        ("1 < wit <= 2", 1), ("abs(wit - tact) / 4", 0.5), ("0.5 if 'a' == 'b' or tact > 3 else 1", 0.5),
    ],
)  # fmt: skip
def test_a_formula_makes_a_number_of_a_judgement(
    short_rubric: Path, tmp_path: Path, text: str, value: float
) -> None:
    assert reward(text, with_five_values(short_rubric, tmp_path)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tact +", "invalid syntax"),
        ("charm", "charm is not an aspect; give overall, tact, tact_expected, wit, wit_expected"),
        ("__import__('os').system('id')", "is not allowed"),
        ("tact.__class__", "'tact.__class__' is not allowed"),
        ("[tact for tact in (1,)]", "is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("tact; wit", "invalid syntax"),
        ("1" * 1001, "longer than 1000 characters"),
        ("(" * 400 + "1" + ")" * 400, ""),
        ("max(tact)", "max(tact) needs two numbers or more"),
        ("abs(tact, wit)", "abs(tact, wit) needs one number"),
        ("min()", "min() needs"),
        ("'x' * 9", "'x' is a text"),
        ("tact + 'a'", "'a' is a text"),
        ("'9'", "is a text"),
        ("tact < 'a'", "tact is a number, and 'a' a text"),
        ("1 if tact else 'x'", "1 is a number, and 'x' a text"),
        ("not 'x'", "'x' is a text"),
        ("tact + 1 / 0", "1 / 0 is not defined"),
        ("tact_expected / (1 - 1)", "is not defined"),
        ("9 ** 9 ** 9 ** 9", "is not defined"),
        ("(0 - 1) ** 0.5", "is not defined"),
        ("tact / (wit - wit)", "for no row"),
        ("tact + 1e999", "for no row"),
        ("tact == 'good'", "tact is a number, and 'good' a text"),
        ("tact_expected + (1 < tact != 'good')", "tact is a number, and 'good' a text"),
        ("tact == 9", "tact == 9 is 0 for every row: tact is one of 1, 2, 3"),
        ("tact_expected - 5 * (wit == 4)", "wit == 4 is 0 for every row: wit is one of 1, 2, 3"),
        ("tact_expected - 5 * (wit != 2.5)", "wit != 2.5 is 1 for every row"),
        ("5 * (tact > 3)", "5 * (tact > 3) is 0 for every row"),
        ("tact - tact + wit / wit", "is 1 for every row"),
    ],
)
def test_what_is_no_formula_is_refused_and_never_run(short_rubric: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=r"^`reward` ") as refused:
        RewardFormula.parse(text, Rubric.load(short_rubric))
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text", ["1 / (tact - 4)", "(2.5 - tact) ** 0.5", "tact if tact < 4 else 1 / 0", "10 ** (tact * 100)"]
)
def test_a_reward_that_is_not_defined_is_an_error_and_no_number(
    short_rubric: Path, tmp_path: Path, text: str
) -> None:
    rubric = with_five_values(short_rubric, tmp_path)
    with pytest.raises(ValueError, match=r"is not (defined|a finite number)"):
        reward(text, rubric)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("grade == 'correct'", None),
        ("'correct' != grade", None),
        ("5 * (grade == 'correct') + (grade > 'd')", None),
        ("grade == 1", "grade is a text, and 1 a number"),
        ("5 * (grade == 'corect')", "is 0 for every row: grade is one of correct, incorrect"),
        ("tact_expected + 5 * (grade == 'corect')", "grade == 'corect' is 0 for every row"),
        ("tact + (grade != 'corect')", "grade != 'corect' is 1 for every row"),
    ],
)
def test_a_label_is_compared_only_with_a_text_that_is_one(
    text: str, problem: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "grades.toml"
    file.write_text(
        'name = "grades"\n[aspects.grade]\nchoices = ["correct", "incorrect"]\n'
        "[aspects.tact]\nscale = { lowest = 1, highest = 3 }\n"
        "[prompt]\ntemplate = 'Q: {$instruction} A: {$candidate} correct incorrect 1-3'\n"
    )
    rubric = Rubric.load(file)
    if problem is None:
        assert RewardFormula.parse(text, rubric).text == text
        return
    with pytest.raises(UsageError, match=r"^`reward` ") as refused:
        RewardFormula.parse(text, rubric)
    assert problem in str(refused.value)


def test_a_formula_names_the_overall_score_only_if_the_aspects_have_the_same_values(tmp_path: Path) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text(
        'name = "mixed"\n[aspects.tact]\nscale = { lowest = 1, highest = 5 }\n'
        "[aspects.wit]\nscale = { lowest = 0, highest = 9 }\n"
        "[prompt]\ntemplate = '{$instruction} {$candidate} {$aspects} {$answer_format}'\n"
    )
    rubric = Rubric.load(file)
    assert reward("tact + wit / 9", rubric) == pytest.approx(4 + 2 / 9)
    with pytest.raises(UsageError, match="overall needs ordered aspects that all have the same values; "):
        RewardFormula.parse("overall", rubric)


def with_five_values(rubric: Path, folder: Path) -> Rubric:
    """Return a rubric of three values with five of them."""
    text = rubric.read_text()
    assert "highest = 3" in text
    file = folder / "five.toml"
    file.write_text(text.replace("highest = 3", "highest = 5"))
    return Rubric.load(file)


def judgement() -> Judgement:
    return Judgement(
        id="a", key="k", texts={"rationale": "R."}, scores={"tact": 4, "wit": 2}, rationale_cut=False,
        expected={"tact": 3.25, "wit": 3.0}, prompt_tokens=1, output_tokens=1,
    )  # fmt: skip


def reward(text: str, rubric: Rubric) -> float:
    """Return the reward of this judgement by a formula."""
    aspects = {name: Aspect(scale=Scale(lowest=1, highest=5)) for name in rubric.aspects}
    row = rubric.mode.join(aspects, 1).joined([judgement()])
    return RewardFormula.parse(text, rubric).reward(row)


def test_only_who_has_the_token_is_answered(judge: Judge) -> None:
    with serving(judge, AccessRules("söme-token")) as endpoint:
        for wrong in ({}, {"Authorization": "Bearer other"}, {"Authorization": "söme-token"}):
            sent = {name: value.encode().decode("latin-1") for name, value in wrong.items()}
            assert endpoint.ask("/v1/judge", rows(1), **sent)[0] == 401
        right = "Bearer söme-token".encode().decode("latin-1")
        assert endpoint.ask("/v1/judge", rows(1), Authorization=right)[0] == 200
        assert endpoint.ask("/health") == (200, {"state": "ready"}), "without a token"


def test_a_web_page_cannot_ask_a_judge_without_a_token(judge: Judge) -> None:
    with serving(judge) as endpoint:
        body = json.dumps(rows(1)).encode()
        assert endpoint.ask_bytes("/v1/judge", body, Content_Type="text/plain")[0] == 415
        assert endpoint.ask_bytes("/v1/judge", body, Host="evil.example")[0] == 400
        assert endpoint.ask_bytes("/v1/judge", body, Host=f"localhost:{endpoint.port}")[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"{", 400, "not JSON"),
        (b"7", 400, "give a list of rows"),
        (b'{"rows": 7}', 400, "give a list of rows"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'"' + b"a" * 2_000_000 + b'"', 413, "the body is larger than 1,000,000 bytes"),
    ],
)
def test_a_body_that_has_no_rows_is_refused_in_one_line(
    judge: Judge, body: bytes, status: int, problem: str
) -> None:
    with serving(judge, AccessRules(most_bytes=1_000_000)) as endpoint:
        found, said = endpoint.ask_bytes("/v1/judge", body)
        assert (found, problem in json.loads(said)["error"]) == (status, True), said
        assert endpoint.ask("/v1/judge", rows(1))[0] == 200, "and the next request is answered"


@pytest.mark.parametrize("path", ["/v1/judge", "/v1/rewards"])
def test_a_key_that_stands_twice_in_a_body_is_refused_with_its_name(judge: Judge, path: str) -> None:
    row = '{"instruction": "Q", "candidate": "A", "reference": "R", "candidate": "B"}'
    inside = '{"instruction": "Q", "candidate": "A", "reference": "R", "meta": {"topic": 1, "topic": 2}}'
    with serving(judge, reward=FORMULA) as endpoint:
        for body, key in ((f"[{row}]", "candidate"), (f"[{inside}]", "topic")):
            status, said = endpoint.ask_bytes(path, body.encode())
            error = json.loads(said)["error"]
            assert (status, key in error, "\n" in error) == (400, True, False)
        assert not endpoint.service.judged


_BODY = b'[{"id": "a", "instruction": "Q?", "candidate": "A", "reference": "R"}]'
_CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_BODY), _BODY)
_LENGTH = f"Content-Length: {len(_BODY)}"
_CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([_LENGTH, _CHUNKED], _CHUNKS),
        ([_CHUNKED, _LENGTH], _CHUNKS),
        ([_LENGTH, "Transfer-Encoding:\r\n chunked"], _CHUNKS),
        ([_LENGTH, f"Content-Length: {len(_BODY) + 1}"], _BODY),
        ([_CHUNKED, _CHUNKED], _CHUNKS),
        (["Transfer-Encoding: gzip, chunked"], _CHUNKS),
        ([f"Content-Length : {len(_BODY)}"], _BODY),
        ([f"Content-Length: +{len(_BODY)}"], _BODY),
        ([_LENGTH, "Host: evil.example"], _BODY),
        ([_LENGTH, "Content-Type: text/plain"], _BODY),
        ([_LENGTH, "Authorization: Bearer a", "Authorization: Bearer b"], _BODY),
        ([_CHUNKED], _CHUNKS.replace(b"0\r\n", b"+0\r\n")),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_its_connection_closed(
    judge: Judge, headers: list[str], body: bytes
) -> None:
    with serving(judge) as endpoint:
        said = sent(endpoint.port, "HTTP/1.1", headers, body)
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in said.lower()
        assert said.count(b"HTTP/1.1 ") == 1, "what follows is no request"
        assert not endpoint.service.judged


def test_a_transfer_encoding_of_the_old_protocol_is_refused(judge: Judge) -> None:
    with serving(judge) as endpoint:
        assert sent(endpoint.port, "HTTP/1.0", [_CHUNKED], _CHUNKS).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([_LENGTH], _BODY),
        ([_CHUNKED], _CHUNKS),
        ([_LENGTH, "X-Note: one\r\n two"], _BODY),
        ([_CHUNKED], _CHUNKS[:-2] + b"Content-Length: 9\r\nAuthorization: Bearer x\r\n\r\n"),
    ],
)
def test_a_request_that_can_be_read_in_one_way_is_answered_and_so_is_the_next_one(
    judge: Judge, headers: list[str], body: bytes
) -> None:
    with serving(judge) as endpoint:
        said = sent(endpoint.port, "HTTP/1.1", headers, body)
        assert said.count(b"HTTP/1.1 200 ") == 2


def sent(port: int, protocol: str, headers: list[str], body: bytes) -> bytes:
    """Return what comes back for a request with these headers, and one for `/health` after it."""
    head = [f"POST /v1/judge {protocol}", "Host: localhost", "Content-Type: application/json", *headers, "", ""]
    following = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall("\r\n".join(head).encode() + body + following)
        with suppress(ConnectionResetError):
            piece = client.recv(1 << 16)
            while piece:
                said += piece
                piece = client.recv(1 << 16)
    return said


def test_a_body_without_a_length_is_cut_off_at_the_limit(judge: Judge) -> None:
    with serving(judge, AccessRules(most_bytes=100_000)) as endpoint:
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as client:
            head = "POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            said = b""
            for _ in range(1000):
                try:
                    client.sendall(piece)
                except (BrokenPipeError, ConnectionResetError):
                    break
            client.settimeout(5)
            with suppress(ConnectionResetError):
                said = client.recv(1000)
            assert said == b"" or b"413" in said
        assert endpoint.ask("/v1/judge", rows(1))[0] == 200


def test_more_rows_than_may_wait_are_refused_and_can_be_sent_later(judge: Judge) -> None:
    with serving(judge, most_waiting=4) as endpoint:
        status, answer = endpoint.ask("/v1/judge", rows(5))
        assert (status, "above the limit of 4; send them later" in answer["error"]) == (429, True)
        assert endpoint.ask("/v1/judge", rows(4))[0] == 200


def held(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Hold the engine before each batch until the event is set."""
    opened, complete = threading.Event(), judge.engine.complete

    def slowly(prompts: Any) -> Iterator[Any]:
        for batch in complete(prompts):
            opened.wait()
            yield batch

    monkeypatch.setattr(judge.engine, "complete", slowly)
    return opened


def test_rows_of_a_client_that_went_away_are_not_judged(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = held(judge, monkeypatch)
    with serving(judge) as endpoint, ThreadPoolExecutor(1) as client:
        first = client.submit(endpoint.ask, "/v1/judge", rows(2))
        while endpoint.service.unfinished < 2:
            time.sleep(0.01)
        time.sleep(0.2)  # the first two are with the engine
        with socket.create_connection(("127.0.0.1", endpoint.port)) as gone:
            body = json.dumps(rows(300, 10)).encode()
            head = "POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while endpoint.service.unfinished < 302:
                time.sleep(0.01)
        time.sleep(0.5)
        opened.set()
        assert first.result()[0] == 200
        assert endpoint.ask("/v1/judge", rows(1))[0] == 200
        assert len(endpoint.service.judged) == 3, "those of the client that went away had not begun"


def test_an_engine_that_fails_is_told_to_every_client(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(prompts: Any) -> Iterator[Any]:
        next(iter(prompts))
        raise EngineError("no memory")
        yield

    monkeypatch.setattr(judge.engine, "complete", broken)
    with serving(judge) as endpoint:
        status, answer = endpoint.ask("/v1/judge", rows(2))
        assert (status, answer["error"]) == (503, "the judge stopped: no memory")
        assert endpoint.ask("/v1/judge", rows(2)) == (503, {"error": "the judge failed: no memory"})
        assert endpoint.ask("/health") == (503, {"state": "failed"})


def test_an_engine_that_fails_tells_no_client_a_secret(
    model: Path, short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_ThisIsNotForYou"

    def broken(*given: object, **options: object) -> None:
        raise ValueError(f"1 validation error\n  input_value={{'hf_token': '{secret}'}}")

    monkeypatch.setattr("localjudge.engines.dry_run.DryRunEngine.__init__", broken)
    judge = Judge(model, rubric=short_rubric, engine="dry-run", engine_args={"hf_token": secret})
    with judge, serving(judge) as endpoint:
        answers = [endpoint.ask("/v1/judge", rows(2)) for _ in range(2)]
        assert isinstance(endpoint.service.error, ValueError)
    for status, answer in answers:
        assert status == 503
        assert "1 validation error … input_value={'hf_token': '***'}" in answer["error"]


def test_what_is_submitted_is_all_or_none(judge: Judge) -> None:
    with JudgeService(judge, 3) as service:
        futures = service.submit(list(rows_of_program(rows(2), judge.rubric.fields)))
        with pytest.raises(ServiceBusyError):
            service.submit(list(rows_of_program(rows(2), judge.rubric.fields)) * 2)
        assert [future.result().id for future in futures] == ["r0", "r1"]
    with pytest.raises(EngineError, match="is stopping"):
        service.submit([])


def test_a_row_with_criteria_gets_one_line_and_one_reward(model: Path) -> None:
    asked = [
        {"criterion": "says a", "points": 3},
        {"criterion": "is b", "points": -1},
        {"criterion": "c", "points": 1},
    ]
    row = {"instruction": "Q?", "candidate": "a", "criteria": asked}
    with (
        scripted_checks(model, lambda response, criterion: 0.9 if response in criterion else 0.2) as judge,
        serving(judge, reward="score_expected - (score < 0)") as endpoint,
    ):
        status, answer = endpoint.ask("/v1/judge", [row, {**row, "candidate": "b"}])
        _, rewards = endpoint.ask("/v1/rewards", [row, {**row, "candidate": "b"}, row])
        refused = endpoint.ask("/v1/rewards", [row, {**row, "criteria": []}])
        none = endpoint.ask("/v1/rewards", [{**row, "criteria": [{"criterion": "c", "points": -1}]}])
    assert status == 200
    assert [(line["row"], line["score"]) for line in answer["outcomes"]] == [(1, 3 / 4), (2, -1 / 4)]
    a, b = (0.9 * 3 - 0.2 + 0.2) / 4, (0.2 * 3 - 0.9 + 0.2) / 4 - 1
    assert rewards["rewards"] == pytest.approx([a, b, a])
    assert refused[0] == none[0] == 422
    assert "an empty list" in refused[1]["error"]
    assert "no positive points" in none[1]["error"]


def test_a_reward_of_a_pair_is_refused() -> None:
    with pytest.raises(UsageError, match="compares two responses"):
        RewardFormula.parse("better", Rubric.load("pairwise"))


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines could use this judge; give --token-file FILE"),
        (["--reward", "charm"], "--reward 'charm': charm is not an aspect"),
        (["--failed-reward", "1"], "--failed-reward 1: belongs to --reward"),
        (["--reward", "safety", "--failed-reward", "nan"], "--failed-reward nan: give a number, or null"),
        (["--token-file", "gone"], "--token-file gone: cannot be read"),
        (["--port", "70000"], "--host 127.0.0.1: port 70000: bind(): port must be 0-65535"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_the_model_is_loaded(
    cli: Cli, flags: list[str], problem: str
) -> None:
    end = cli("serve", *flags)
    assert (end.code, problem in end.err, end.err.count("\n")) == (2, True, 1), end.err


def begun(port: int, asked: list[dict[str, str]]) -> http.client.HTTPConnection:
    """Send rows, and return the connection as soon as their request has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/judge", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    Endpoint(port, None).ask("/health")  # type: ignore[arg-type]  # which comes after it
    return connection


def answered(connection: http.client.HTTPConnection) -> Asked:
    with closing(connection), connection.getresponse() as answer:
        return answer.status, json.loads(answer.read())


@pytest.mark.slow
def test_a_service_that_is_stopped_in_the_middle_answers_what_it_has_begun(
    preloaded: Preloaded, model: Path, short_rubric: Path
) -> None:
    command: list[str | Path] = [
        *preloaded.localjudge, "serve", "--port", "0", "--model", model,
        "--rubric", short_rubric, "--max-rationale-tokens", "24", "--reward", "tact",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "listening on" not in (line := process.stderr.readline()):
            assert line, "it ended"
        asked = begun(int(line.split("127.0.0.1:")[1].split()[0]), rows(60))
        os.kill(process.pid, signal.SIGTERM)
        status, answer = answered(asked)
        process.wait(30)
    assert process.returncode == 143
    assert (status, len(answer["outcomes"])) == (200, 60)


@pytest.mark.slow
def test_a_service_that_is_stopped_in_a_long_batch_tells_its_clients_to_ask_again(
    preloaded: Preloaded, model: Path, short_rubric: Path
) -> None:
    """The engine gets four prompts and no more, so its batch does not end."""
    command: list[str | Path] = [
        *preloaded.client, Path(__file__).with_name("held_program.py"), "4", "serve", "--port", "0",
        "--model", model, "--rubric", short_rubric, "--max-rationale-tokens", "3",
        "--engine-arg", "batch_size=1",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "listening on" not in (line := process.stderr.readline()):
            assert line, "it ended"
        endpoint = Endpoint(int(line.split("127.0.0.1:")[1].split()[0]), None)  # type: ignore[arg-type]
        assert endpoint.ask("/v1/judge", rows(4))[0] == 200
        asked = [begun(endpoint.port, rows(9, begin)) for begin in (4, 13)]
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=60) as slow:
            head = "POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: 900\r\n\r\n[".encode())
            endpoint.ask("/health")
            stopped = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            assert slow.recv(1000).startswith(b"HTTP/1.1 503"), "whose body is not here yet"
        for request in asked:
            again = {"error": "the judge is stopping; send the rows again"}
            assert answered(request) == (503, again), "which clients repeat, unlike a 499"
        process.wait(60)
        assert time.monotonic() - stopped < 25, "Kubernetes waits for 30 seconds"
    assert process.returncode == 143


@pytest.mark.slow
def test_a_large_request_has_the_keys_of_a_run_of_its_rows(tmp_path: Path, judge: Judge) -> None:
    written = [json.loads(line) for line in write_rows(tmp_path / "a.jsonl", 200).read_text().splitlines()]
    with serving(judge) as endpoint:
        status, answer = endpoint.ask("/v1/judge", written)
    assert status == 200
    whole = {each.id: each for each in judge.score(written) if isinstance(each, Judgement)}
    assert {line["id"]: line["key"] for line in answer["outcomes"]} == {
        i: each.key for i, each in whole.items()
    }


@pytest.mark.slow
def test_the_trainer_of_trl_takes_ten_steps_by_rewards_of_the_endpoint(
    judge: Judge, model: Path, tmp_path: Path
) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    asked = datasets.Dataset.from_list([{"prompt": f"Question {n}?", "reference": "Yes."} for n in range(8)])
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "trained"), max_steps=10, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=6, report_to=[], use_cpu=True, bf16=False, logging_steps=1, save_strategy="no",
    )  # fmt: skip
    with serving(judge, reward="tact_expected - 5 * (wit < 2)") as endpoint:
        trainer = trl.GRPOTrainer(
            model=str(model), reward_funcs=RewardEndpoint(endpoint.url), args=settings, train_dataset=asked
        )
        trainer.train()
    rewards = [each["rewards/localjudge/mean"] for each in trainer.state.log_history if "reward" in each]
    assert len(rewards) == 10
    assert len(set(rewards)) > 1
    assert len(endpoint.service.judged) == 40
