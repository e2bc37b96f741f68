"""Tests of the probabilities of values: which a server's list of texts shows, and which it cannot show."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows
from scripted_server import (
    ROWS,
    WHOLE,
    Body,
    Place,
    Reply,
    always,
    chat,
    judge_on,
    judged,
    listing,
    serving,
)

from localjudge.records import Failure, Judgement

OPENING = '{"rationale":"Seen.","scores":{"tact":"'
TAIL = ('","wit":"', "3", '"}}')
SCALE = {"2": 0.6, "1": 0.2, "3": 0.1}
RUBRIC = """
name = "one"
[prompt]
template = "Q: {$instruction} A: {$candidate} R: {$reference} {$answer_format}"
[answer]
rationale_place = "none"
scores = ""
"""


def outcome_of(reply: Reply, rubric: Path) -> Judgement:
    (outcome,) = judged(always(reply), rubric, ROWS[:1]).values()
    assert isinstance(outcome, Judgement)
    return outcome


def tact_of(place: Place, rubric: Path) -> Judgement:
    """Return the judgement of an answer with these tokens at the place of the first value."""
    return outcome_of(chat(WHOLE, **listing(OPENING, place, *TAIL)), rubric)


def rubric_with(aspect: str, folder: Path) -> Path:
    file = folder / "one.toml"
    file.write_text(f"{RUBRIC}\n{aspect}\n")
    return file


def test_probabilities_come_from_the_tokens_that_tell_the_values_apart(short_rubric: Path) -> None:
    tokens = listing(
        '{"rationale', '":"Se', "en.", '","scores":{"tact":',
        {'"2': 0.6, '"1': 0.2, '"3': 0.1, "x": 0.0001}, '","wit":"',
        {"3": 0.5, "1": 0.25, "2": 0.2, "0": 0.00001}, '"}}', {"<|end|>": 1.0},
    )  # fmt: skip
    outcome = outcome_of(chat(WHOLE, **tokens), short_rubric)
    assert outcome.probabilities["tact"] == pytest.approx([2 / 9, 6 / 9, 1 / 9], abs=1e-6)
    assert outcome.probabilities["wit"] == pytest.approx([0.25 / 0.95, 0.2 / 0.95, 0.5 / 0.95], abs=1e-6)
    assert outcome.expected["tact"] == pytest.approx(17 / 9, abs=1e-4)
    assert outcome.mass == pytest.approx({"tact": 0.9, "wit": 0.95}), "what the list has of the values"
    assert outcome.likeliest == {"tact": True, "wit": True}


def test_a_value_is_not_the_likeliest_token_where_the_list_has_a_likelier_one(short_rubric: Path) -> None:
    tokens = listing(
        OPENING, {"2": 0.2, "1": 0.1, "3": 0.1, "[": 0.5}, '","wit":"',
        {"3": 0.3, "1": 0.3, "2": 0.3, "0": 0.1}, '"}}',
    )  # fmt: skip
    outcome = outcome_of(chat(WHOLE, **tokens), short_rubric)
    assert outcome.mass == pytest.approx({"tact": 0.4, "wit": 0.9})
    assert outcome.likeliest == {"tact": False, "wit": True}


def test_probabilities_are_missing_where_the_list_of_tokens_leaves_a_value_open(short_rubric: Path) -> None:
    assert tact_of({"2": 0.6, "1": 0.2}, short_rubric).probabilities == {}


def test_the_sampled_token_below_the_list_bounds_no_token_that_is_not_listed(short_rubric: Path) -> None:
    place = {"2": 0.00001, "1": 0.6, "x": 0.01}
    assert tact_of(place, short_rubric).probabilities == {}, "3 may have up to 0.01"


def test_tokens_of_equal_text_count_together(short_rubric: Path) -> None:
    outcome = tact_of([("2", 0.5), ("1", 0.2), ("3", 0.1), ("2", 0.15)], short_rubric)
    assert outcome.probabilities["tact"] == pytest.approx([0.2 / 0.95, 0.65 / 0.95, 0.1 / 0.95], abs=1e-6)
    assert outcome.mass["tact"] == pytest.approx(0.95)
    split = tact_of([("2", 0.2), ("1", 0.1), ("3", 0.1), ("[", 0.25), ("2", 0.2)], short_rubric)
    assert split.likeliest["tact"], "0.4 in two tokens is more than 0.25 in one"


@pytest.mark.parametrize("other", ["10", "30", "2nd", "3rd", "1.5", "2x", "1 and", '2x"'])
def test_a_text_that_goes_on_after_a_value_is_not_this_value(other: str, short_rubric: Path) -> None:
    outcome = tact_of({**SCALE, other: 0.08}, short_rubric)
    assert outcome.probabilities["tact"] == pytest.approx([2 / 9, 6 / 9, 1 / 9], abs=1e-6)
    assert outcome.mass["tact"] == pytest.approx(0.9), "a lower bound, without the rest"


@pytest.mark.parametrize("closing", ['"', '",', '","wit', '",\n  "wit', '", "'])
def test_a_value_with_the_text_that_follows_it_is_this_value(closing: str, short_rubric: Path) -> None:
    outcome = tact_of({**SCALE, f"1{closing}": 0.05}, short_rubric)
    assert outcome.probabilities["tact"] == pytest.approx([0.25 / 0.95, 0.6 / 0.95, 0.1 / 0.95], abs=1e-6)


def test_a_word_that_begins_as_a_label_is_not_this_label(tmp_path: Path) -> None:
    rubric = rubric_with('[aspects.choice]\nchoices = ["A", "B"]', tmp_path)
    place: Place = {"A": 0.5, "Both": 0.3, "B": 0.1}
    outcome = outcome_of(chat('{"choice":"A"}', **listing('{"choice":"', place, '"}')), rubric)
    assert outcome.probabilities["choice"] == pytest.approx([0.5 / 0.6, 0.1 / 0.6], abs=1e-6)
    assert outcome.mass["choice"] == pytest.approx(0.6)


@pytest.mark.parametrize("listed", [{"1": 0.3}, {'1"': 0.3}, {"1": 0.00001}, {"10": 0.3}])
def test_a_value_that_another_one_continues_has_no_probability(
    listed: dict[str, float], tmp_path: Path
) -> None:
    rubric = rubric_with("[aspects.score]\nscale = { lowest = 1, highest = 10 }", tmp_path)
    place: Place = {"7": 0.3, **dict.fromkeys("2345689", 0.03), **listed}
    outcome = outcome_of(chat('{"score":"7"}', **listing('{"score":"', place, '"}')), rubric)
    assert outcome.scores == {"score": 7}
    assert (outcome.probabilities, outcome.mass, outcome.expected) == ({}, {}, {})


def test_labels_that_begin_alike_have_probabilities_only_if_the_list_tells_them_apart(tmp_path: Path) -> None:
    rubric = rubric_with('[aspects.kind]\nchoices = ["very good", "very bad", "poor"]', tmp_path)
    for tokens, is_known in (
        (({"very": 0.5, "poor": 0.3}, " good"), False),
        (({"very good": 0.5, "very bad": 0.2, "poor": 0.1, "v": 0.2},), False),
        (({"very good": 0.5, "very bad": 0.2, "poor": 0.1},), True),
    ):
        reply = chat('{"kind":"very good"}', **listing('{"kind":"', *tokens, '"}'))
        assert bool(outcome_of(reply, rubric).probabilities) is is_known


def test_a_list_that_goes_on_after_the_answer_gives_no_probabilities(short_rubric: Path) -> None:
    reply = chat(WHOLE, **listing(OPENING, SCALE, *TAIL, {"<|end|>": 1.0}, "{", '"'))
    assert outcome_of(reply, short_rubric).probabilities == {}


def test_a_missing_log_probability_is_not_1(short_rubric: Path) -> None:
    assert tact_of([("2", 0.6), ("1", None), ("3", 0.1)], short_rubric).probabilities == {}
    tokens = listing(OPENING, SCALE, *TAIL)
    for odd in ("absent", "-0.5", True, [0], 10**400):
        listed = json.loads(json.dumps(tokens))
        top = listed["logprobs"]["content"][1]["top_logprobs"][1]
        top["logprob"] = odd
        if odd == "absent":
            del top["logprob"]
        assert outcome_of(chat(WHOLE, **listed), short_rubric).probabilities == {}


@pytest.mark.parametrize(("shares", "is_failure"), [((1.0, 1.0, 1.0), True), ((0.6, 0.3, 0.11), False)])
def test_probabilities_that_add_up_to_more_than_1_fail_their_row(
    shares: tuple[float, ...], is_failure: bool, short_rubric: Path
) -> None:
    place: Place = dict(zip("213", shares, strict=True))
    (outcome,) = judged(always(chat(WHOLE, **listing(OPENING, place, *TAIL))), short_rubric, ROWS[:1]).values()
    if is_failure:
        assert isinstance(outcome, Failure)
        assert (
            "add up to more than 1; to judge without them, give `engine_args` top_logprobs=0" in outcome.error
        )
    else:
        assert isinstance(outcome, Judgement)
        assert outcome.mass["tact"] == 1


@pytest.mark.parametrize("excluded", [-9999.0, -math.inf])
def test_a_list_with_tokens_that_a_mask_excludes_shows_no_mass(excluded: float, short_rubric: Path) -> None:
    listed = listing(OPENING, {**SCALE, "x": 0.01}, *TAIL)
    listed["logprobs"]["content"][1]["top_logprobs"][3]["logprob"] = excluded
    outcome = outcome_of(chat(WHOLE, **listed), short_rubric)
    assert outcome.probabilities["tact"] == pytest.approx([2 / 9, 6 / 9, 1 / 9], abs=1e-6)
    assert (outcome.mass, outcome.likeliest) == ({}, {})


LOGITS = {"Sure": 5.0, "I": 4.0, "The": 2.0, "{": 0.5, "As": -1.0}
AFTER_TEMPERATURE = (
    "its log-probabilities are those after the temperature, not the model's own (with vLLM, give it "
    "--logprobs-mode raw_logprobs)"
)
AFTER_FORM = "its log-probabilities are those after the enforced form"
LEFT_OUT = {
    "raw": {},
    "masked": {"mass": AFTER_FORM},
    "scaled": {"probabilities": AFTER_TEMPERATURE},
    "processed": {"probabilities": AFTER_TEMPERATURE},
}


def sampling(kind: str, *, thinks: bool) -> Callable[[Body], Reply]:
    """Return replies to trials of a server that samples from `LOGITS`, and lists its log-probabilities.

    Args:
        kind: `masked` if they are those after the mask, `scaled` after the temperature, `processed` after both.
        thinks: whether the first token is one of a thought, which no form binds.
    """

    def reply(body: Body) -> Reply:
        logits = dict(LOGITS)
        if kind in ("masked", "processed") and "response_format" in body and not thinks:
            logits = {token: logit if token == "{" else -math.inf for token, logit in logits.items()}
        if kind in ("scaled", "processed") and body["temperature"]:
            logits = {token: logit / body["temperature"] for token, logit in logits.items()}
        total = math.log(sum(map(math.exp, logits.values())))
        top = [{"token": each, "logprob": max(logit - total, -9999.0)} for each, logit in logits.items()]
        top.sort(key=lambda each: -each["logprob"])  # type: ignore[operator]
        return chat("x", logprobs={"content": [{**top[0], "top_logprobs": top}]}, finish_reason="length")

    return reply


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("kind", ["raw", "masked", "scaled", "processed"])
@pytest.mark.parametrize("thinks", [False, True])
def test_log_probabilities_after_the_form_or_the_temperature_are_recognised_before_the_first_row(
    kind: str, thinks: bool, temperature: float, short_rubric: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(always(chat(WHOLE, **listing(OPENING, SCALE, *TAIL)))) as server:
        server.trial = sampling(kind, thinks=thinks)
        with judge_on(server, short_rubric, temperature=temperature) as judge:
            outcomes = [outcome for outcome in judge.score(ROWS) if isinstance(outcome, Judgement)]
            details = judge.engine.info.details
        asked = {body.get("top_logprobs") for body in server.bodies if body["max_tokens"] > 1}
    left_out = {} if thinks and kind == "masked" else LEFT_OUT[kind]
    assert details.get("left_out", {}) == left_out
    assert [record.getMessage() for record in caplog.records] == [
        f"server {server.url}/v1: no {what} (null): {reason}" for what, reason in left_out.items()
    ]
    assert asked == {None if "probabilities" in left_out else 20}
    assert len(outcomes) == len(ROWS)
    for outcome in outcomes:
        assert bool(outcome.probabilities) is ("probabilities" not in left_out)
        assert bool(outcome.mass) is bool(outcome.likeliest) is (not left_out)


LISTED = chat(WHOLE, **listing({"{": 1.0}))


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        (always(chat(WHOLE)), "it lists no log-probabilities"),
        (always(chat(WHOLE, logprobs=[1])), "it lists no log-probabilities"),
        (always(chat(WHOLE, **listing([("{", None)]))), "it lists no log-probabilities"),
        (
            always(chat(WHOLE, **listing(dict.fromkeys("{I12", 1.0)))),
            "it lists numbers that are no log-probabilities: above 0, or with a sum above 1",
        ),
        (
            lambda body, _: (400, {"error": "no field logprobs"}) if "logprobs" in body else chat(WHOLE),
            "it refuses to list log-probabilities (the server answered 400: no field logprobs)",
        ),
        (
            lambda body, _: (400, {"error": "hot"}) if body["temperature"] else LISTED,
            "whether its log-probabilities are the model's own cannot be tried (the server answered 400: hot)",
        ),
    ],
)
def test_a_server_that_does_not_show_that_its_numbers_are_the_models_gives_none_and_the_run_says_why(
    trial: Callable[[Any, int], Reply],
    reason: str,
    short_rubric: Path,
    tmp_path: Path,
    cli: Cli,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    flags = ["--engine", "server", "--rubric", short_rubric, "--out", tmp_path / "run"]
    with serving(always(chat(WHOLE, **listing(OPENING, SCALE, *TAIL)))) as server:
        server.trial = lambda body: trial(body, 0)
        ended = cli("score", rows, "--server", server.url, *flags)
    assert ended.code == 0, ended.err
    said = f"server {server.url}/v1: no probabilities (null): {reason}"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert [(line["tact"], line["tact_mass"]) for line in read_lines(tmp_path / "run")] == [(2, None)] * 3
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["starts"][0]["engine"]["details"]["left_out"] == {"probabilities": reason}


def test_a_server_is_not_asked_for_what_the_user_does_not_want(
    short_rubric: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(always(chat(WHOLE))) as server:
        with judge_on(server, short_rubric, engine_args={"top_logprobs": "0"}) as judge:
            assert all(isinstance(outcome, Judgement) for outcome in judge.score(ROWS))
        assert len(server.bodies) == 1 + len(ROWS)
    assert caplog.records == []
