"""What trainers call becomes rows of what the rubric reads, whole, and nothing else; rewards that are null."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_serve import FORMULA, Endpoint, rows, serving

from localjudge import Judge
from localjudge.integrations import reward
from localjudge.integrations.http_app import AccessRules
from localjudge.integrations.reward import RewardEndpoint, compute_score

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it raining in Oslo?"}]
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
WORK = [
    {"role": "assistant", "content": "", "reasoning_content": "I ask.", "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "content": "4 °C, rain"},
    {"role": "assistant", "content": "Yes, rain."},
]


class Environment:
    """What TRL passes for an environment, an image or its state: an object that is not JSON."""


@pytest.fixture(scope="module")
def judge(model: Path, short_rubric: Path) -> Iterator[Judge]:
    with Judge(model, rubric=short_rubric, max_rationale_tokens=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def agent(model: Path) -> Iterator[Judge]:
    with Judge(model, rubric="agent", max_rationale_tokens=3) as opened:
        yield opened


@pytest.fixture
def endpoint(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving(judge, reward=FORMULA) as served:
        monkeypatch.setenv("LOCALJUDGE_URL", served.url)
        yield served


@pytest.fixture
def agents(agent: Judge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving(agent, reward="goal") as served:
        monkeypatch.setenv("LOCALJUDGE_URL", served.url)
        yield served


def key_of(judge: Judge, row: dict[str, Any]) -> str:
    (outcome,) = judge.score([row])
    assert outcome.status == "judged", outcome.error
    return outcome.key


def test_verl_has_the_prompt_in_several_places(endpoint: Endpoint, judge: Judge) -> None:
    question, messages = "Is it raining in Oslo?", np.array(ASKED, dtype=object)
    more = {"split": "train", "index": 3, "num_turns": 2, "rollout_reward_scores": {}}
    for extra_info, others in (
        ({"question": question, "raw_prompt": [{"role": "user", "content": "Another?"}]}, {}),
        ({"prompt": question}, {}),
        ({"raw_prompt": messages}, {}),
        ({"question": " ", "raw_prompt": ASKED}, {}),
        ({}, {"reward_model": {"style": "model", "question": question}}),
        (None, {"prompt": ASKED, "reward_model_tokenizer": Environment()}),
        (None, {"raw_prompt": messages}),
    ):  # fmt: skip
        compute_score("math", "Yes.", "Rain.", extra_info and extra_info | more, **others)  # type: ignore[arg-type]
    expected = key_of(judge, {"instruction": question, "candidate": "Yes.", "reference": "Rain."})
    assert [outcome.key for outcome in endpoint.service.judged] == [expected] * 7
    assert not any(outcome.columns for outcome in endpoint.service.judged), "nothing else is sent"


@pytest.mark.parametrize(
    "extra_info", [None, {}, {"split": "train", "index": 3}, {"question": "", "prompt": []}]
)
def test_verl_without_a_prompt_is_an_error_and_nothing_is_judged(endpoint: Endpoint, extra_info: Any) -> None:
    there = ", ".join(extra_info or ()) or "nothing"
    with pytest.raises(ValueError, match=f"math: no prompt: extra_info has {there}; give it `question`"):
        compute_score("math", "\\boxed{4}", "4", extra_info)
    assert not endpoint.service.judged


def test_verl_gives_the_ground_truth_and_the_columns_that_the_rubric_reads(
    endpoint: Endpoint, judge: Judge
) -> None:
    known = {"question": "Q?", "answer": "not the response", "id": 7, "reference": "R"}
    compute_score("math", "C", 4, known)
    compute_score("math", "C", None, known)
    expected = [
        key_of(judge, {"instruction": "Q?", "candidate": "C", "reference": text}) for text in ("4", "R")
    ]
    assert [(outcome.key, outcome.id) for outcome in endpoint.service.judged] == [
        (key, "7") for key in expected
    ]
    with pytest.raises(RuntimeError, match="'reference', the reference, is of type"):
        compute_score("math", "C", {"target": "4"}, known)


def test_verl_gives_a_rubric_of_conversations_the_messages(agents: Endpoint, agent: Judge) -> None:
    compute_score("math", "Yes.", None, {"question": "Q?", "raw_prompt": ASKED})
    compute_score("math", "Yes.", None, {"question": "Q?"})
    answer = {"role": "assistant", "content": "Yes."}
    whole, short = ([*turns, answer] for turns in (ASKED, [{"role": "user", "content": "Q?"}]))
    assert [outcome.key for outcome in agents.service.judged] == [
        key_of(agent, {"messages": each}) for each in (whole, short)
    ]


def test_trl_sends_what_the_rubric_reads_and_nothing_else(endpoint: Endpoint, judge: Judge) -> None:
    more = {
        "completion_ids": [[1] * 9000] * 2, "environments": [Environment()] * 2, "images": [Environment()] * 2,
        "trainer_state": Environment(), "log_extra": print, "log_metric": print,
        "answer": ["not the response", "nor this"], "question": ["X?", "Y?"], "system": ["Be brief."] * 2,
    }  # fmt: skip
    completions = [
        [{"role": "assistant", "content": text, "token_ids": Environment()}] for text in ("Yes.", "No.")
    ]
    rewards = RewardEndpoint(endpoint.url)([ASKED] * 2, completions, reference=["Rain.", "Rain."], **more)
    asked = {"instruction": "Is it raining in Oslo?", "reference": "Rain."}
    assert [each.key for each in endpoint.service.judged] == [
        key_of(judge, asked | {"candidate": text}) for text in ("Yes.", "No.")
    ]
    assert all(not outcome.columns and outcome.system is None for outcome in endpoint.service.judged)
    texts = RewardEndpoint(endpoint.url)(
        ["Is it raining in Oslo?"] * 2, ["Yes.", "No."], gold=["Rain."] * 2, **more
    )
    assert texts == rewards
    with pytest.raises(
        ValueError, match="a row has a value of type Environment, which is neither text nor JSON"
    ):
        RewardEndpoint(endpoint.url)(["Q?"], ["Yes."], reference=[Environment()])


def test_trl_sends_calls_of_tools_and_their_results(agents: Endpoint, agent: Judge) -> None:
    ask = RewardEndpoint(agents.url)
    unfinished = [*WORK[:2], WORK[0]]
    ask([ASKED] * 3, [WORK, WORK[:1], unfinished], completion_ids=[[1]] * 3, environments=[Environment()] * 3)
    expected = [key_of(agent, {"messages": [*ASKED, *work]}) for work in (WORK, WORK[:1], unfinished)]
    assert {outcome.row: outcome.key for outcome in agents.service.judged} == dict(enumerate(expected, 1))
    assert len(set(expected)) == 3
    ask(["Is it raining in Oslo?"], ["Yes."])  # texts alone are a conversation, too
    turns = [{"role": "user", "content": "Is it raining in Oslo?"}, {"role": "assistant", "content": "Yes."}]
    assert agents.service.judged[-1].key == key_of(agent, {"messages": turns})


def test_a_rubric_of_single_responses_judges_the_last_turn_and_says_if_there_is_none(
    endpoint: Endpoint, judge: Judge
) -> None:
    ask = RewardEndpoint(endpoint.url)
    ask([ASKED], [WORK], reference=["Rain."])
    row = {"instruction": "Is it raining in Oslo?", "reference": "Rain.", "candidate": "Yes, rain."}
    assert [outcome.key for outcome in endpoint.service.judged] == [key_of(judge, row)]
    for work, problem in (
        (WORK[:1], "calls a tool; judge the whole conversation"),
        (WORK[:2], "is the tool's"),
    ):
        with pytest.raises(RuntimeError, match=f"422 .*the last turn {problem}"):
            ask([ASKED], [work], reference=["Rain."])


def test_images_end_no_step_by_an_error_of_python(endpoint: Endpoint) -> None:
    picture = [{"type": "image", "image": Environment()}, {"type": "text", "text": "What is this?"}]
    with pytest.raises(RuntimeError, match=r"422 .*turn 1 has a part of type image, which is not supported"):
        RewardEndpoint(endpoint.url)([[{"role": "user", "content": picture}]], [WORK[2:]], reference=["R"])


def test_a_row_without_a_reward_is_null_if_so_chosen(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [
        *rows(1),
        {"instruction": "Q?", "candidate": "c"},
        {"instruction": "", "reference": "r", "candidate": ""},
    ]
    with serving(judge, reward=FORMULA, failed_reward="null") as endpoint:
        monkeypatch.setenv("LOCALJUDGE_URL", endpoint.url)
        status, answer = endpoint.ask("/v1/rewards", broken)
        assert (status, answer["rewards"][1:]) == (200, [None, None])
        first, second, third = answer["errors"]
        assert first is None
        assert second.startswith("row 2: no reference")
        assert third.startswith("row 3: an empty instruction")
        assert endpoint.ask("/v1/rewards", rows(1)) == (200, {"rewards": answer["rewards"][:1]})
        with caplog.at_level(logging.WARNING):
            found = RewardEndpoint(endpoint.url)(["Q?", "Q?"], ["c", "c"], reference=["R", None])
        assert isinstance(found[0], float)
        assert found[1] is None
        assert "1 of 2 rows could not be judged, the first because of row 2: no reference" in caplog.text
        with pytest.raises(RuntimeError, match="math: no reward, and verl needs one"):
            compute_score("math", "C", None, {"question": "Q?"})


def test_the_fields_of_the_rubric_are_told_only_with_the_token(judge: Judge) -> None:
    with serving(judge, AccessRules("secret")) as endpoint:
        assert endpoint.ask("/v1/rubric")[0] == 401
        fields = RewardEndpoint(endpoint.url, token="secret").fields()
    assert list(fields) == ["id", "instruction", "reference", "candidate"]
    assert {"reference", "gold", "ground_truth"} <= set(fields["reference"])


def test_the_reward_function_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    code = f"exec(open({reward.__file__!r}).read())\nprint(json.dumps(_row({{}}, 'a', 'b', {{}})))"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert json.loads(ended.stdout) == {"instruction": "a", "candidate": "b"}, ended.stderr
