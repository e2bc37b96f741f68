"""Tests of servers that do not enforce the schema of an answer: what they take is found, said and kept."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import Cli, read_lines, write_rows
from report_page import head
from scripted_server import (
    FAST,
    FORM_RUBRIC,
    ROWS,
    TRIAL,
    WHOLE,
    Body,
    Reply,
    ScriptedServer,
    always,
    chat,
    judge_on,
    serving,
)

from localjudge import Judge, RowSource, score_run
from localjudge.engines.protocol import Enforced
from localjudge.errors import RunMismatchError, SettingError
from localjudge.integrations.http_app import AccessRules, JudgeApp
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.served_rewards import RewardFormula
from localjudge.integrations.shared_judge import SharedJudge
from localjudge.records import Failure, Judgement
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest
from localjudge.studies.calibration import Calibration

Refusal = Callable[[Body], Reply | None]


def error(status: int, message: str) -> Reply:
    return status, {"error": {"message": message}}


def form_of(body: Body) -> str | None:
    """Return the type of the form that a request asks for."""
    found: str | None = body.get("response_format", {}).get("type")
    return found


def deepseek(body: Body) -> Reply | None:
    """DeepSeek's API takes any JSON object, and only if the prompt names JSON."""
    if form_of(body) == "json_schema":
        return error(400, "This response_format type is unavailable now")
    if form_of(body) == "json_object" and "json" not in json.dumps(body["messages"]).lower():
        return error(400, "Prompt must contain the word 'json' in some form to use 'response_format'")
    return None


def text_generation_inference(body: Body) -> Reply | None:
    """Text Generation Inference wants another field than OpenAI's, for both types."""
    if form_of(body) is not None:
        return 422, {"error": "response_format: missing field `value` at line 1 column 168"}
    return None


def lm_studio(body: Body) -> Reply | None:
    if form_of(body) not in (None, "json_schema", "text"):
        return 400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}
    return None


def mistral_tokenizer(body: Body) -> Reply | None:
    if "chat_template_kwargs" in body:
        return error(400, "chat_template is not supported for Mistral tokenizers.")
    return None


def mistral_tokenizer_without_schemas(body: Body) -> Reply | None:
    return mistral_tokenizer(body) or deepseek(body)


def text_alone(body: Body) -> Reply | None:
    """A server that takes none of what it may refuse, and says only that."""
    if body.keys() & {"response_format", "chat_template_kwargs", "logprobs"}:
        return 422, b"Unprocessable Entity"
    return None


def either_form_or_list(body: Body) -> Reply | None:
    """A server that takes a form and a list of alternatives, but not together."""
    if body.keys() >= {"response_format", "logprobs"}:
        return error(400, "logprobs with response_format are not supported")
    return None


@dataclass(frozen=True)
class Server:
    """A server that refuses requests, and what is found of it.

    Attributes:
        refusal: what it refuses.
        is_vllm: whether it says that it is vLLM.
        enforced: what it is asked to enforce in the end.
        lists: whether it is asked to list alternatives.
        switches: whether it is asked not to think.
        trials: the requests until this is known.
    """

    refusal: Refusal
    is_vllm: bool
    enforced: Enforced
    lists: bool
    switches: bool
    trials: int


SERVERS = {
    "DeepSeek": Server(deepseek, False, "json_object", True, False, trials=4),
    "TGI": Server(text_generation_inference, False, "none", True, False, trials=5),
    "LM Studio": Server(lm_studio, False, "json_schema", True, False, trials=1),
    "a Mistral tokenizer": Server(mistral_tokenizer, True, "json_schema", True, False, trials=3),
    "a Mistral tokenizer, no schemas": Server(
        mistral_tokenizer_without_schemas, True, "json_object", True, False, trials=5
    ),
    "text alone": Server(text_alone, True, "none", False, False, trials=6),
    "either": Server(either_form_or_list, False, "json_schema", False, False, trials=2),
}


def trials_of(server: ScriptedServer) -> list[Body]:
    return [body for body in server.bodies if body["messages"][-1]["content"].startswith(TRIAL)]


def check_requests(bodies: list[Body], expected: Server) -> None:
    """Check that the requests of rows have what the server takes, and nothing else."""
    assert bodies
    form = None if expected.enforced == "none" else expected.enforced
    for body in bodies:
        assert form_of(body) == form
        assert ("logprobs" in body) == expected.lists
        assert ("chat_template_kwargs" in body) == expected.switches


@pytest.mark.parametrize("expected", SERVERS.values(), ids=SERVERS.keys())
def test_what_a_server_takes_is_found_stored_and_found_again_by_a_continued_run(
    expected: Server, short_rubric: Path, tmp_path: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.refusal = expected.refusal
        server.version = "0.32.0" if expected.is_vllm else None
        for rows in (ROWS[:2], ROWS):
            server.bodies.clear()
            with judge_on(server, short_rubric) as judge:
                score_run(judge, RowSource.from_rows(rows), tmp_path)
            trials = trials_of(server)
            check_requests([body for body in server.bodies if body not in trials], expected)
            compared = 2 if expected.lists else 0
            assert len(trials) - compared == expected.trials
        assert len(server.asked) == len(ROWS)  # each row once, in both starts together
    assert [line["status"] for line in read_lines(tmp_path)] == ["judged"] * len(ROWS)
    manifest = read_manifest(tmp_path)
    assert manifest.settings.enforced == expected.enforced
    assert [start.engine.enforced for start in manifest.starts if start.engine] == [expected.enforced] * 2
    is_said = any(notice.startswith("not enforced:") for notice in read_notices(tmp_path))
    assert is_said == (expected.enforced != "json_schema")


@pytest.mark.parametrize(
    ("first", "then", "names"),
    [
        (lambda body: None, deepseek, ["json_schema", "json_object"]),
        (deepseek, lambda body: None, ["json_object", "json_schema"]),
        (deepseek, text_generation_inference, ["json_object", "none"]),
    ],
)
def test_a_run_is_refused_where_the_server_takes_another_form_than_before(
    first: Refusal, then: Refusal, names: list[str], short_rubric: Path, tmp_path: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.refusal = first
        with judge_on(server, short_rubric) as judge:
            score_run(judge, RowSource.from_rows(ROWS[:2]), tmp_path)
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
        server.refusal = then
        with judge_on(server, short_rubric) as judge, pytest.raises(RunMismatchError) as refused:
            score_run(judge, RowSource.from_rows(ROWS), tmp_path)
        assert len(server.asked) == 2
    said = str(refused.value)
    assert f"enforced: {names[0]} there, {names[1]} now" in said
    assert "\n" not in said
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


FORMS: list[list[Enforced]] = [["json_schema", "json_object", "none"], ["json_object", "none"], ["none"]]


@pytest.mark.parametrize(
    ("takes", "lists", "switches"), list(itertools.product(FORMS, [True, False], [True, False]))
)
def test_of_all_that_a_server_takes_nothing_is_left_out_in_at_most_six_trials(
    takes: list[str], lists: bool, switches: bool, short_rubric: Path
) -> None:
    def refusal(body: Body) -> Reply | None:
        takes_form = (form_of(body) or "none") in takes
        takes_list = lists or "logprobs" not in body
        takes_switch = switches or "chat_template_kwargs" not in body
        return None if takes_form and takes_list and takes_switch else (400, b"Bad Request")

    with serving(always(chat(WHOLE))) as server:
        server.refusal, server.version = refusal, "0.32.0"
        with judge_on(server, short_rubric) as judge:
            outcomes = list(judge.score(ROWS[:1]))
        check_requests(server.bodies[-1:], Server(refusal, True, takes[0], lists, switches, trials=0))  # type: ignore[arg-type]
        assert len(trials_of(server)) - 2 * lists <= 6
    assert isinstance(outcomes[0], Judgement)


@pytest.mark.parametrize(("status", "trials"), [(400, 4), (422, 4), (413, 1), (404, 1), (500, 1)])
def test_a_server_that_answers_no_trial_is_one_line_with_its_first_refusal(
    status: int, trials: int, short_rubric: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.trial = lambda body: error(status, f"no {form_of(body)}")
        with judge_on(server, short_rubric) as judge, pytest.raises((SettingError, RunMismatchError)) as raised:
            _ = judge.engine
        assert len(server.bodies) == trials
    assert f"answered {status}: no json_schema" in str(raised.value)


def prompt_at(server: ScriptedServer) -> str:
    found: str = server.asked[-1]
    return found


@pytest.mark.parametrize("refusal", [deepseek, text_generation_inference])
def test_the_prompt_has_the_form_once_where_no_schema_is_enforced(
    refusal: Refusal, short_rubric: Path, tmp_path: Path
) -> None:
    shown = tmp_path / "shown.toml"
    shown.write_text(short_rubric.read_text().replace("Tact, wit: 1-3", "Tact, wit: 1-3 {$answer_format}"))
    form = '{"rationale":"[your rationale]","scores":{"tact":"[1-3]","wit":"[1-3]"}}'
    for rubric in (short_rubric, shown):
        with serving(always(chat(WHOLE))) as server:
            with judge_on(server, rubric) as judge:
                list(judge.score(ROWS[:1]))
            enforced = prompt_at(server)
            server.refusal = refusal
            with judge_on(server, rubric) as judge:
                list(judge.score(ROWS[:1]))
            asked = prompt_at(server)
        assert asked.startswith(f"{enforced}\n\n")
        assert "JSON" in asked.removeprefix(enforced)
        assert asked.count(form) == 1


@pytest.mark.parametrize(("said", "is_added"), [("", True), (" Feedback: (words) [RESULT] (number)", False)])
def test_a_form_that_a_server_refuses_stands_in_the_prompt_unless_the_rubric_says_it(
    said: str, is_added: bool, tmp_path: Path
) -> None:
    rubric = tmp_path / "form.toml"
    rubric.write_text(FORM_RUBRIC.replace("score 1-5", f"score 1-5{said}"))
    with serving(always(chat("Feedback: Fine. [RESULT] 4"))) as server:
        server.version = "0.32.0"
        server.refusal = lambda body: error(400, "no backend") if "structured_outputs" in body else None
        with judge_on(server, rubric) as judge:
            (outcome,) = judge.score(ROWS[:1])
            assert judge.settings["enforced"] == "none"
        assert isinstance(outcome, Judgement)
        assert outcome.scores == {"score": 4}
        assert prompt_at(server).endswith("Feedback: [your rationale] [RESULT] [1-5]") == is_added


@pytest.mark.parametrize("refusal", [lambda body: None, deepseek, text_generation_inference])
@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        (WHOLE, True),
        (f"```json\n{WHOLE}\n```", True),
        (json.dumps(json.loads(WHOLE), indent=2), True),
        (f"Here is my answer:\n{WHOLE}", False),
        (f"{WHOLE}\nI hope this helps.", False),
        (f"{WHOLE}{WHOLE}", False),
        (WHOLE.replace('"3"', "3"), False),
        (WHOLE.replace('"3"', '"4"'), False),
        (WHOLE.replace('"scores"', '"Scores"'), False),
        ("tact: 2, wit: 3", False),
    ],
)
def test_an_answer_is_read_as_strictly_whatever_is_enforced(
    refusal: Refusal, text: str, is_whole: bool, short_rubric: Path
) -> None:
    with serving(always(chat(text))) as server:
        server.refusal = refusal
        with judge_on(server, short_rubric) as judge:
            (outcome,) = judge.score(ROWS[:1])
        assert len(server.asked) == 1
    if is_whole:
        assert isinstance(outcome, Judgement)
        assert outcome.scores == {"tact": 2, "wit": 3}
    else:
        assert isinstance(outcome, Failure)
        assert outcome.failed_answer == text


def test_every_table_of_a_run_says_that_its_form_was_not_enforced(
    short_rubric: Path, tmp_path: Path, cli: Cli
) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 8), tmp_path / "run"
    with serving(always(chat(WHOLE))) as server:
        server.refusal = deepseek
        given = ["--engine", "server", "--server", server.url, "--rubric", short_rubric]
        scored = cli("score", rows, *given, "--out", run)
        again = cli("score", rows, *given, "--out", run)
        server.refusal = text_generation_inference
        other = cli("score", rows, *given, "--out", run)
    assert (scored.code, again.code, other.code) == (0, 0, 2)
    assert "enforced" in other.err
    others = [
        cli("show", run),
        cli("rank", run),
        cli("export", run, "--out", tmp_path / "rows.csv"),
        cli("report", run, "--out", tmp_path / "page.html"),
    ]
    for ended in (scored, again, *others):
        assert ended.code == 0
        assert "not enforced: " in ended.out + ended.err
    assert "not enforced: " in (tmp_path / "rows.csv").read_text()
    assert any(notice.startswith("not enforced: ") for notice in head(tmp_path / "page.html")["notices"])


def test_doctor_says_what_a_server_enforces_and_sends_no_row(cli: Cli) -> None:
    found = {}
    for name, refusal in {"all": lambda body: None, "object": deepseek, "text": text_alone}.items():
        with serving(always(chat(WHOLE))) as server:
            server.refusal = refusal
            ended = cli("doctor", "--engine", "server", "--server", server.url)
            assert ended.code == 0
            assert server.asked == []
        found[name] = next(line for line in ended.out.splitlines() if " form " in line)
    assert "takes the JSON schema" in found["all"]
    assert "any JSON object" in found["object"]
    assert "no JSON schema and no other JSON form" in found["text"]
    with serving(always(chat(WHOLE))) as server:
        server.trial = lambda body: error(503, "Loading model")
        ended = cli("doctor", "--engine", "server", "--server", server.url)
        assert ended.code == 1
        assert "answered 503: Loading model" in ended.out


def test_rewards_come_from_a_server_that_enforces_less(short_rubric: Path) -> None:
    async def ask(app: Any) -> Any:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1"
        ) as client:
            return (await client.post("/v1/rewards", json=ROWS)).json()

    with serving(always(chat(WHOLE))) as server:
        server.refusal = deepseek
        with judge_on(server, short_rubric) as judge, JudgeService(judge, 100, 10) as service:
            formula = RewardFormula.parse("tact + wit", judge.rubric)
            app = JudgeApp(judge, service, AccessRules(None, 10**6), formula)
            answer = asyncio.run(ask(app.asgi()))
            assert answer["rewards"] == [5.0] * len(ROWS)
            assert [notice.partition(":")[0] for notice in answer["notices"]] == ["not enforced"]
        assert form_of(server.bodies[-1]) == "json_object"


@pytest.mark.parametrize(("refusal", "is_told"), [(deepseek, True), (lambda body: None, False)])
def test_a_judge_inside_other_tools_says_that_the_form_was_not_enforced(
    refusal: Callable[[Body], Reply | None], is_told: bool, short_rubric: Path
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.refusal = refusal
        given = {"server": server.url, **FAST}
        judge = SharedJudge(rubric=str(short_rubric), engine="server", engine_args=given)
        try:
            assert len(judge.outcomes(ROWS)) == len(ROWS)
            assert ("not enforced: " in str(judge.about["notice"])) == is_told
        finally:
            judge.close()


def test_only_a_server_without_the_table_has_the_setting(
    model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    with Judge(model, rubric=short_rubric, engine="transformers") as judge:
        assert "enforced" not in judge.settings
        score_run(judge, RowSource.from_rows(ROWS[:1]), tmp_path)
    assert "enforced" not in json.loads((tmp_path / "run.json").read_text())["settings"]
    judged_by = read_manifest(tmp_path)
    fitted_before = {name: value for name, value in judged_by.judge.items() if name != "enforced"}
    earlier = Calibration(judge=fitted_before, model="m", of="expected", rows=(), aspects={})
    earlier.check(tmp_path, judged_by)
