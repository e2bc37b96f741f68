"""A real vLLM server with our table in its sampler: whole by construction, and no request brings it down."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from real_judgements import FLOAT32, example_rows

from localjudge import Failure, Judge, Judgement, Rubric, UsageError
from localjudge.models.model import Model
from localjudge.records import Outcome
from localjudge.runs.reader import read_notices

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the warnings are vLLM's own
]

ROWS = [
    {
        "id": f"r{n}",
        "instruction": f"Question {n}?",
        "reference": "Yes.",
        "candidate": "word " * (1 + n * 7 % 20),
    }
    for n in range(24)
]
TOKENS = 12


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def vllm_serving(
    model: Path, rubric: str, tokens: int, options: Mapping[str, str], folder: Path
) -> Iterator[str]:
    """Start the command that serve --print-vllm-flags prints; yield the server's URL."""
    flags = ["--max-rationale-tokens", str(tokens), "--runner", "V1", "--table", str(folder / "table.npz")]
    printed = subprocess.run(
        [
            sys.executable,
            "-m",
            "localjudge",
            "serve",
            "--print-vllm-flags",
            "--model",
            model,
            "--rubric",
            rubric,
            *flags,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    command = shlex.split(printed.stdout)
    assert command[:2] == ["vllm", "serve"]
    port = free_port()
    engine = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value != "true"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    # What `vllm serve` runs; that program itself does not find the metadata of vLLM's build for CPUs.
    program = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model"]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [*program, *command[2:], *engine, "--enforce-eager", *place],
            stdout=log,
            stderr=log,
            env={**os.environ, "VLLM_LOGGING_LEVEL": "INFO"},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        while not healthy(url):
            assert running.poll() is None, (folder / "log").read_text()[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        running.terminate()
        running.wait()


@pytest.fixture(scope="module")
def server(
    model: Model, short_rubric: Path, options: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with vllm_serving(model.path, str(short_rubric), TOKENS, options, folder) as url:
        yield url


def healthy(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/health", timeout=10).status == 200)
    except OSError:
        return False


def judge_on(url: str, model: Model, rubric: Path, **settings: Any) -> Judge:
    given = {"server": url, "server_kind": "table", "max_model_len": "512", **settings.pop("engine_args", {})}
    chosen: dict[str, Any] = {"max_rationale_tokens": TOKENS, **settings}
    return Judge(str(model.path), rubric=rubric, engine="server", engine_args=given, **chosen)


def test_a_server_with_the_table_gives_the_judgements_of_the_engine_in_this_process(
    server: str, model: Model, short_rubric: Path, options: dict[str, str]
) -> None:
    with Judge(
        str(model.path), rubric=short_rubric, engine="vllm", engine_args=options, max_rationale_tokens=TOKENS
    ) as judge:
        expected = {outcome.id: outcome for outcome in judge.score(ROWS)}
    with judge_on(server, model, short_rubric) as judge:
        assert judge.engine.info.details["kind"] == "by construction"
        found = {outcome.id: outcome for outcome in judge.score(ROWS)}
    assert_same(found, expected)


def assert_same(found: Mapping[str, Outcome], expected: Mapping[str, Outcome]) -> None:
    assert found.keys() == expected.keys()
    for name, outcome in found.items():
        here = expected[name]
        assert isinstance(outcome, Judgement)
        assert isinstance(here, Judgement)
        assert outcome.texts == here.texts
        assert outcome.scores == here.scores
        assert outcome.rationale_cut == here.rationale_cut
        assert (outcome.prompt_tokens, outcome.output_tokens) == (here.prompt_tokens, here.output_tokens)
        for aspect, shares in outcome.probabilities.items():
            assert shares == pytest.approx(here.probabilities[aspect], abs=1e-4)


@pytest.mark.real_model
def test_a_real_model_on_a_server_judges_as_in_this_process(real_model: Path, tmp_path: Path) -> None:
    rows, options = example_rows(4), FLOAT32 | {"max_model_len": "4096", "enforce_eager": "true"}
    with Judge(real_model, engine="vllm", engine_args=options, max_rationale_tokens=16) as judge:
        expected = {outcome.id: outcome for outcome in judge.score(rows)}
    given = {"server_kind": "table", "max_model_len": "4096"}
    with vllm_serving(real_model, "just-eval", 16, options, tmp_path) as url:
        args = given | {"server": url}
        with Judge(real_model, engine="server", engine_args=args, max_rationale_tokens=16) as judge:
            found = {outcome.id: outcome for outcome in judge.score(rows)}
    assert_same(found, expected)


def test_answers_are_whole_at_any_temperature(server: str, model: Model, short_rubric: Path) -> None:
    with judge_on(server, model, short_rubric, temperature=1.5) as judge:
        assert judge.engine.info.details["seeded"] is False
        assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))


def ask(url: str, path: str, **body: Any) -> int:
    """Return the status of a request."""
    request = urllib.request.Request(
        f"{url}/v1/{path}",
        json.dumps({"model": "tiny", "max_tokens": 4, **body}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        return int(urllib.request.urlopen(request, timeout=60).status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_no_request_brings_the_server_down(server: str, model: Model, short_rubric: Path) -> None:
    with judge_on(server, model, short_rubric) as judge:
        right = judge.engine.info.details["table"]
        assert isinstance(right, str)
        for value in (0, -1, 10**9, 1.5, "", "0" * 32, right.upper(), [1], [right]):
            assert ask(server, "completions", prompt=[5, 6], vllm_xargs={"localjudge": value}) == 400
        assert ask(server, "completions", prompt=[5, 6], temperature=1, seed=3) == 400
        for conflicting in (
            {"n": 2},
            {"min_tokens": 3},
            {"logit_bias": {"5": -100}},
            {"allowed_token_ids": [7]},
            {"bad_words": ["a"]},
            {"structured_outputs": {"choice": ["x"]}},
        ):
            status = ask(server, "completions", prompt=[5, 6], vllm_xargs={"localjudge": right}, **conflicting)
            assert status == 400, conflicting
        others: list[dict[str, Any]] = [
            {}, {"n": 3}, {"temperature": 2}, {"max_tokens": 1}, {"max_tokens": 300}, {"ignore_eos": True},
            {"logprobs": 5}, {"prompt_logprobs": 2}, {"echo": True}, {"top_k": 1}, {"repetition_penalty": 2},
        ]  # fmt: skip
        for other in others:
            assert ask(server, "completions", prompt=[5, 6], **other) == 200, other
            if "n" not in other:
                status = ask(server, "completions", prompt=[5, 6], vllm_xargs={"localjudge": right}, **other)
                assert status == 200, other
        assert healthy(server)
        assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS[:8]))


def test_a_judge_with_other_answers_is_refused(server: str, model: Model, short_rubric: Path) -> None:
    with (
        judge_on(server, model, short_rubric, max_rationale_tokens=TOKENS + 1) as judge,
        pytest.raises(UsageError, match=r"has the table \w{32}, and the judge's is"),
    ):
        _ = judge.engine


def test_a_judge_with_a_larger_context_is_refused(server: str, model: Model, short_rubric: Path) -> None:
    with (
        judge_on(server, model, short_rubric, engine_args={"max_model_len": "1024"}) as judge,
        pytest.raises(UsageError, match=r"its context is 512.*`max_model_len` 512"),
    ):
        _ = judge.engine


def test_a_server_is_asked_without_its_table_as_any_other(server: str, short_rubric: Path) -> None:
    given = {"server": server}
    with Judge(rubric=short_rubric, engine="server", engine_args=given, max_rationale_tokens=TOKENS) as judge:
        assert judge.engine.info.details["kind"] == "unverified"
        assert judge.engine.info.versions["server"].startswith("vllm ")
        found = list(judge.score(ROWS[:8]))
    assert len(found) == 8
    for outcome in found:
        assert isinstance(outcome, Judgement) or (isinstance(outcome, Failure) and outcome.failed_answer)


def test_a_run_on_the_server_is_recorded_with_its_kind(
    server: str, model: Model, short_rubric: Path, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    flags = ["--engine", "server", "--server", server, "--server-kind", "table", "--max-model-len", "512"]
    limits = ["--rubric", short_rubric, "--max-rationale-tokens", TOKENS]
    ended = cli("score", rows, "--model", model.path, *flags, *limits, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "whole by construction" in ended.err
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["starts"][0]["engine"]["details"]["kind"] == "by construction"
    assert run["starts"][0]["engine"]["applies_table"] is True
    assert run["settings"]["model"].startswith("on a server ")
    assert Rubric.load(short_rubric).name == run["rubric"]["name"]
    assert any(notice.startswith("served model: ") for notice in read_notices(tmp_path / "run"))
