"""Tests of where rows go: to the server that is named, and to no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli, write_rows
from scripted_server import (
    ROWS,
    WHOLE,
    Reply,
    always,
    chat,
    judge_on,
    judged,
    number_of,
    serving,
)

from localjudge import EngineError, Judge, UsageError
from localjudge.records import Failure, Judgement
from localjudge.runs.reader import read_notices


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
        repeated = cli("audit", "--check", "repeat", tmp_path / "run", "--sample", "3", "--json")
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


@pytest.mark.parametrize(
    "url",
    ["http://judge.cluster.local:8000", "http://10.1.2.3/v1", "http://[2001:db8::1]:8000", "http://0.0.0.0"],
)
def test_rows_go_to_no_other_host_than_this_machine_unless_it_is_named(url: str, short_rubric: Path) -> None:
    host = url.removeprefix("http://").removesuffix("/v1").removesuffix(":8000").strip("[]")
    with pytest.raises(UsageError, match=f"{host} is not this machine.*`allow_host` {host}"):
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
def test_an_address_that_is_not_of_a_server_is_one_line_without_its_secrets(
    url: str, short_rubric: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        Judge(rubric=short_rubric, engine="server", engine_args={"server": url})
    assert "secret" not in str(refused.value)
    assert str(refused.value).startswith("`server` ")


@pytest.mark.parametrize("redirects_all", [False, True])
def test_a_redirect_leads_nowhere(redirects_all: bool, short_rubric: Path) -> None:
    with serving(always(chat(WHOLE))) as other, serving(always(chat(WHOLE))) as server:
        redirect: Reply = (307, ({"Location": f"{other.url}/v1/chat/completions"}, b""))

        def script(text: str, before: int) -> Reply:
            if redirects_all:
                server.trial = lambda body: redirect
            return redirect if redirects_all or number_of(text) == 3 else chat(WHOLE)

        server.script = script
        with judge_on(server, short_rubric) as judge:
            if redirects_all:
                with pytest.raises(EngineError, match=r"redirects to .* final URL$"):
                    list(judge.score(ROWS))
            else:
                found = {outcome.id: outcome for outcome in judge.score(ROWS)}
                failed = found.pop("r3")
                assert isinstance(failed, Failure)
                assert f"redirects to {other.url}" in failed.error
                assert all(isinstance(outcome, Judgement) for outcome in found.values())
        assert other.paths == []


def test_proxies_of_the_environment_are_not_used(short_rubric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda text, before: chat(WHOLE)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        found = judged(lambda text, before: chat(WHOLE), short_rubric)
        assert all(isinstance(outcome, Judgement) for outcome in found.values())
        assert proxy.paths == []


def test_a_key_that_the_server_refuses_ends_the_run_in_one_line(short_rubric: Path) -> None:
    refusal: Reply = (401, {"error": "no key"})

    def script(text: str, before: int) -> Reply:
        server.trial = lambda body: refusal
        return refusal

    with (
        serving(script) as server,
        judge_on(server, short_rubric) as judge,
        pytest.raises(EngineError, match=r"answered 401: no key; put the key into .* LOCALJUDGE_SERVER_KEY$"),
    ):
        list(judge.score(ROWS))


def test_a_server_without_the_model_names_those_that_it_has(short_rubric: Path) -> None:
    with serving(lambda text, before: chat(WHOLE)) as server:
        server.models = ["tiny", "huge"]
        with pytest.raises(UsageError, match="it serves huge, tiny"):
            judge_on(server, short_rubric, model="medium")
        with pytest.raises(UsageError, match="serves huge, tiny; name one"):
            judge_on(server, short_rubric)


def test_a_server_on_a_unix_socket_is_asked(short_rubric: Path, tmp_path: Path) -> None:
    place = tmp_path / "judge.sock"
    with serving(always(chat(WHOLE)), place) as server:
        with judge_on(server, short_rubric, engine_args={"server": f"unix:{place}"}) as judge:
            assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))
            assert judge.engine.info.details["server"] == f"unix:{place}"
        assert len(server.asked) == len(ROWS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_num_seqs": "0"}, "give a whole number, 1 or more"),
        ({"patience": "soon"}, "give a number"),
        ({"top_logprobs": "-1"}, "give a whole number, 0 or more"),
        ({"batch_size": "4"}, "the server engine knows server, allow_host"),
        ({"server": ""}, "`engine` server: give its URL"),
        ({"server_kind": "magic"}, "give unverified or table"),
    ],
)
def test_an_option_of_a_server_that_cannot_be_used_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Judge(engine="server", engine_args={"server": "http://127.0.0.1:9", **given})
