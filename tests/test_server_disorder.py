"""Tests of replies in disorder: whatever a server sends, each row has an outcome, and none is another's."""

from __future__ import annotations

import copy
import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import Cli, read_lines
from scripted_server import Reply, always, chat, judge_on, judged, listing, number_of, serving

from localjudge import RowSource, UsageError, score_run
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rows.columns import USED_FIELDS
from localjudge.runs.reader import read_outcomes

ODD: list[Any] = [
    None, True, False, 0, -5, 7, 10**30, 10**400, 2.0, -0.5, 1e308, math.nan, math.inf, -math.inf, "",
    "7", "-0.5", "x" * 3000, "half \ud83d", "\x00\x1b[31m", [], {}, [[]], [None], {"a": 1}, ["2", "3"],
]  # fmt: skip
"""Values that are not of the type, or not of the size, that stands in a reply."""
TRUSTED = {"content", "message"}
"""Fields with the answer itself: whatever else is in them is the answer."""


def whole_answer(number: int) -> str:
    scores = {"tact": str(number % 3 + 1), "wit": str(number // 3 % 3 + 1)}
    return json.dumps({"rationale": f"Seen {number}.", "scores": scores}, separators=(",", ":"))


def whole_reply(number: int) -> dict[str, Any]:
    answer = whole_answer(number)
    values = {"2": 0.5, "1": 0.25, "3": 0.2, "x": 0.0001}
    first, second = answer.index('"tact":"') + 8, answer.index('"wit":"') + 7
    places = [
        {answer[first]: values[answer[first]], **values},
        {answer[second]: values[answer[second]], **values},
    ]
    tokens = listing(answer[:first], places[0], answer[first + 1 : second], places[1], answer[second + 1 :])
    reply = chat(answer, **tokens)
    assert isinstance(reply, tuple)
    return {"id": "a", "object": "chat.completion", "model": "tiny", **reply[1]}


def rows(count: int) -> list[dict[str, str]]:
    return [{"id": str(n), "instruction": f"Q{n}?", "candidate": "C", "reference": "R"} for n in range(count)]


def places_in(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a document, and each of its keys or indices."""
    keys = (
        document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    )
    for key in keys:
        yield document, key
        yield from places_in(document[key])


def with_damage(number: int) -> dict[str, Any]:
    """Return the reply to a row with one or two fields that are missing, or something else."""
    random, reply = Random(number), whole_reply(number)
    for _ in range(random.choice([1, 1, 2])):
        container, key = random.choice([*places_in(reply)])
        if random.random() < 0.15:
            del container[key]
        else:
            container[key] = copy.deepcopy(random.choice(ODD))
    return reply


def check(number: int, outcome: Outcome) -> None:
    """Check that an outcome is this row's answer, or a failure in one line, and that its numbers can be."""
    assert outcome.id == str(number)
    assert 0 <= (outcome.prompt_tokens or 0) < 2**31
    if isinstance(outcome, Failure):
        assert outcome.error
        assert "\n" not in outcome.error
        return
    assert outcome.rationale == f"Seen {number}."
    assert outcome.scores == {"tact": number % 3 + 1, "wit": number // 3 % 3 + 1}
    assert 0 <= outcome.output_tokens < 2**31
    for shares in outcome.probabilities.values():
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert all(0 <= share <= 1 for share in shares)
    assert all(0 <= mass <= 1 for mass in outcome.mass.values())


@pytest.mark.slow
def test_a_reply_with_damaged_fields_is_the_rows_own_answer_or_its_failure(
    short_rubric: Path, tmp_path: Path, cli: Cli
) -> None:
    count = 300
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
    with (
        serving(lambda text, before: (200, with_damage(number_of(text)))) as server,
        judge_on(server, short_rubric, keep_thoughts=True) as judge,
    ):
        score_run(judge, RowSource.from_files([str(file)], used=USED_FIELDS), tmp_path / "run")
    outcomes = {outcome.id: outcome for outcome in read_outcomes(tmp_path / "run")}
    assert len(outcomes) == count
    for number in range(count):
        check(number, outcomes[str(number)])
    judgements = [outcome for outcome in outcomes.values() if isinstance(outcome, Judgement)]
    assert len(judgements) > count / 3
    assert any(not outcome.probabilities for outcome in judgements)
    assert any(outcome.output_tokens == 0 for outcome in judgements)
    for name in ("table.csv", "table.parquet", "table.jsonl"):
        ended = cli("export", tmp_path / "run", "--out", tmp_path / name)
        assert ended.code == 0, ended.err


def damaged_bytes(number: int) -> bytes:
    """Return the body of a reply with bytes that are changed, missing, twice there, or no UTF-8."""
    random = Random(number)
    body = bytearray(json.dumps(whole_reply(number)).encode())
    at = random.randrange(len(body))
    kind = number % 4
    if kind == 0:
        body[at] = random.choice(b'\x00\x80\xff"{}[],:')
    elif kind == 1:
        del body[at:]
    elif kind == 2:
        body[at:at] = body[: random.randrange(len(body))]
    else:
        body[at:at] = random.choice([b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f", b"\x00" * 9])
    return bytes(body)


@pytest.mark.slow
def test_a_reply_with_damaged_bytes_is_an_outcome_of_its_row(short_rubric: Path) -> None:
    count = 200
    found = judged(lambda text, before: (200, damaged_bytes(number_of(text))), short_rubric, rows(count))
    assert len(found) == count
    failures = [outcome for outcome in found.values() if isinstance(outcome, Failure)]
    assert len(failures) > count / 2
    assert all(outcome.error and "\n" not in outcome.error for outcome in failures)


BODY = json.dumps(whole_reply(3)).encode()


def http(*headers: bytes, body: bytes = BODY, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([status, *headers, b"", body])


def sized(body: bytes, *headers: bytes) -> bytes:
    return http(b"Content-Length: %d" % len(body), *headers, body=body)


CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked"
DISORDER: dict[str, tuple[bytes, bool]] = {
    "chunks that end early": (http(CHUNKED, body=CHUNK), False),
    "a chunk that ends early": (http(CHUNKED, body=CHUNK[:99]), False),
    "a chunk of a negative size": (http(CHUNKED, body=b"-5\r\nabc\r\n0\r\n\r\n"), False),
    "a body that ends early": (http(b"Content-Length: %d" % (len(BODY) + 9)), False),
    "a length below the body's": (http(b"Content-Length: 40"), False),
    "a negative length": (http(b"Content-Length: -5"), False),
    "a length that is no number": (http(b"Content-Length: many"), False),
    "two lengths": (http(b"Content-Length: 5", b"Content-Length: 6"), False),
    "no status": (b"judged\r\n\r\n", False),
    "a status of four digits": (http(status=b"HTTP/1.1 2000 OK"), False),
    "a status that is no number": (http(status=b"HTTP/1.1 OK"), False),
    "no body": (http(b"Content-Length: 0", body=b""), False),
    "204": (http(status=b"HTTP/1.1 204 No Content", body=b""), False),
    "101": (http(b"Upgrade: websocket", status=b"HTTP/1.1 101 Switching Protocols", body=b""), False),
    "headers without an end": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 99, False),
    "headers of a megabyte": (http(b"X: " + b"y" * 2**20), False),
    "a header that is no ASCII": (sized(BODY, b"X-\xff: \xe4\xff"), False),
    "an encoding that it has not": (sized(BODY, b"Content-Encoding: gzip"), False),
    "a redirect to no address": (
        http(b"Location: http://[\xff", b"Content-Length: 0", status=b"HTTP/1.1 302 Found", body=b""),
        False,
    ),
    "UTF-16": (sized(BODY.decode().encode("utf-16")), True),
    "UTF-8 with a mark": (sized(b"\xef\xbb\xbf" + BODY), True),
    "white space around": (sized(b"\r\n " + BODY + b"\n\n"), True),
    "text after the document": (sized(BODY + b"data: [DONE]"), False),
    "an event stream": (sized(b"data: " + BODY + b"\n\n", b"Content-Type: text/event-stream"), False),
    "a list of replies": (sized(b"[" + BODY + b"]"), False),
    "too deep": (sized(b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}"), False),
    "a number of 5000 digits": (sized(b'{"a":' + b"9" * 5000 + b"}"), False),
    "choices twice": (sized(BODY[:-1] + b',"choices":[]}'), False),
    "two answers": (sized(json.dumps({"choices": whole_reply(3)["choices"] * 2}).encode()), False),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 9 + sized(BODY), True),
    "chunks": (http(CHUNKED, body=CHUNK + b"0\r\n\r\n"), True),
    "gzip": (sized(gzip.compress(BODY), b"Content-Encoding: gzip"), True),
    "no length": (http(b"Connection: close"), True),
    "text/html": (sized(BODY, b"Content-Type: text/html; charset=latin-1"), True),
}


@pytest.mark.parametrize(("reply", "is_judged"), DISORDER.values(), ids=list(DISORDER))
def test_a_reply_that_breaks_the_protocol_is_the_failure_of_its_row_alone(
    reply: bytes, is_judged: bool, short_rubric: Path
) -> None:
    found = judged(
        lambda text, before: reply if number_of(text) == 3 else (200, whole_reply(number_of(text))),
        short_rubric,
        rows(6),
    )
    for number, outcome in enumerate(found[str(number)] for number in range(6)):
        check(number, outcome)
        assert isinstance(outcome, Judgement) is (number != 3 or is_judged)


def odd_pages() -> Iterator[tuple[str, Any]]:
    models = {"data": [{"id": "tiny", "max_model_len": 4096, "digest": "d"}]}
    for odd in ODD:
        for container, key in [*places_in(models)]:
            before = container[key]
            container[key] = odd
            yield "/v1/models", copy.deepcopy(models)
            container[key] = before
        for path, key in (("/version", "version"), ("/api/version", "version"), ("/props", "build_info")):
            yield path, {key: odd}


@pytest.mark.slow
def test_what_a_server_says_of_itself_is_read_or_refused_in_one_line(
    short_rubric: Path, tmp_path: Path
) -> None:
    pages: dict[str, Any] = {}
    usual = {"/v1/models": {"data": [{"id": "tiny"}]}, "/api/version": {"version": "0.1"}}

    def reply(path: str, body: Any) -> Reply | None:
        if body is not None:
            return answer(path, body)
        known = {**usual, **pages}
        return (200, known[path]) if path in known else (404, {})

    opened = 0
    with serving(always(chat(whole_answer(0)))) as server:
        answer = server.reply
        server.reply = reply  # type: ignore[method-assign]
        for number, (path, page) in enumerate([*odd_pages()][::7]):
            pages = {path: page}
            try:
                judge = judge_on(server, short_rubric)
            except UsageError as error:
                said = str(error)
            else:
                said = ""
                with judge:
                    score_run(judge, RowSource.from_rows(rows(1)), tmp_path / str(number))
                (line,) = read_lines(tmp_path / str(number))
                assert line["status"] == "judged"
                opened += 1
            assert "\n" not in said
    assert number > opened > number / 2, "some pages name no model"
