"""Several answers to each row, sampled: their mean, how far they are apart, and what is recorded of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Cli, random_model
from hypothesis import given
from hypothesis import strategies as st

from localjudge import Judge, JudgeConfig, Rubric, load_run
from localjudge.engines.answer_reader import Distribution, ReadAnswer, averaged
from localjudge.errors import SettingError
from localjudge.prompts.task import Prompt, Task, TaskFeed
from localjudge.records import Judgement, Row
from localjudge.rubrics.answer import Answer

ROWS = [
    {"id": f"r{n}", "instruction": f"Name {n} trees.", "reference": "Oak.", "candidate": "Elm."}
    for n in range(5)
]
KEY = "0123456789abcdef" * 2


def feed_of(count: int, samples: int) -> TaskFeed:
    tasks = [Task(Row.from_response(instruction=str(n), candidate="x", id=str(n)), [n]) for n in range(count)]
    return TaskFeed(tasks, lambda row: KEY, samples)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32), st.integers(1, 4))
def test_a_task_is_done_when_its_last_answer_has_come(
    count: int, samples: int, seed: int, at_once: int
) -> None:
    feed = feed_of(count, samples)
    prompts = [prompt for prompt in feed if isinstance(prompt, Prompt)]
    assert len({prompt.tag for prompt in prompts}) == len(prompts) == count * samples
    assert [prompt.tokens[0] for prompt in prompts] == [n for n in range(count) for _ in range(samples)]
    assert len({prompt.seed for prompt in prompts[:samples]}) == samples
    assert prompts[0].seed == int(KEY, 16), "one sample is what it was without any"
    answers = [SimpleNamespace(tag=prompt.tag, of=prompt.tokens[0]) for prompt in prompts]
    Random(seed).shuffle(answers)
    done = [
        each
        for begin in range(0, len(answers), at_once)
        for each in feed.take(answers[begin : begin + at_once])
    ]
    assert sorted(task.tokens[0] for task, _, _ in done) == list(range(count))
    for task, key, own in done:
        assert key == KEY
        assert [answer.of for answer in own] == task.tokens * samples
        assert [answer.tag for answer in own] == sorted(answer.tag for answer in own)


def read_answer(first: Sequence[float], other: Sequence[float], score: int) -> ReadAnswer:
    return ReadAnswer(
        answer=Answer({"rationale": f"So {score}."}, {"wit": score, "tact": score}),
        rationale_cut=False,
        known={"wit": Distribution(first, first[0], first[0] > 0.5), "tact": Distribution(other)},
        thoughts="",
        output_tokens=7,
    )


shares = st.lists(st.floats(0.01, 1), min_size=3, max_size=3).map(
    lambda each: [one / sum(each) for one in each]
)


@given(st.lists(st.tuples(shares, shares), min_size=2, max_size=5))
def test_the_numbers_are_means_and_the_texts_are_those_of_the_answer_nearest_to_them(drawn: list[Any]) -> None:
    three = {"scale": {"lowest": 1, "highest": 3}}
    rubric = {"name": "two", "aspects": {"wit": three, "tact": three}, "prompt": {"template": "{$candidate}"}}
    aspects = Rubric.model_validate(rubric).aspects
    samples = [read_answer(first, other, 1 + n) for n, (first, other) in enumerate(drawn)]
    found, spread = averaged(samples, aspects)
    expected = [each.expected(aspects) for each in samples]
    for name in aspects:
        means = np.mean([each.known[name].shares for each in samples], axis=0)
        assert found.known[name].shares == pytest.approx(means)
        assert found.expected(aspects)[name] == pytest.approx(fmean(each[name] for each in expected), abs=1e-3)
        assert spread[name] == pytest.approx(stdev(each[name] for each in expected), abs=1e-3)
    distance = [sum(abs(each[name] - found.expected(aspects)[name]) for name in aspects) for each in expected]
    chosen = int(found.answer.texts["rationale"].removeprefix("So ").removesuffix(".")) - 1
    assert distance[chosen] == pytest.approx(min(distance), abs=1e-3)
    assert found.answer == samples[chosen].answer
    assert found.known["wit"].mass == pytest.approx(fmean(each.known["wit"].mass for each in samples))
    assert np.isnan(found.known["tact"].mass)
    assert found.output_tokens == 7 * len(samples)
    assert averaged(samples[:1], aspects) == (samples[0], {})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("random"))


def judged(model: Path, **settings: Any) -> dict[str | None, Judgement]:
    judge = Judge(model, max_rationale_tokens=6, temperature=2.0, **settings)
    return {each.id: each for each in judge.score(ROWS) if isinstance(each, Judgement)}


def test_a_mean_of_samples_is_that_of_answers_to_the_same_prompt(model: Path) -> None:
    one, several = judged(model), judged(model, samples=3)
    assert one.keys() == several.keys() == {row["id"] for row in ROWS}
    for name, single in one.items():
        mean = several[name]
        assert single.spread == {}
        assert mean.spread.keys() == mean.expected.keys()
        assert mean.output_tokens > single.output_tokens
        assert mean.prompt_tokens == single.prompt_tokens
    assert any(each.spread["depth"] > 0 for each in several.values())
    assert judged(model, samples=3) == several, "the seeds are those of the rows"


def test_samples_without_a_temperature_are_refused() -> None:
    with pytest.raises(SettingError, match="without a temperature above 0 all answers are equal"):
        JudgeConfig.from_settings(samples=4)
    with pytest.raises(SettingError, match="samples"):
        JudgeConfig.from_settings(samples=0, temperature=1.0)
    assert JudgeConfig.from_settings(samples=4, temperature=1.0).run_identity["samples"] == 4


def test_a_run_shows_which_of_samples_and_instructions_limits_it(tmp_path: Path, cli: Cli) -> None:
    rows, run = tmp_path / "rows.jsonl", tmp_path / "run"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    flags = ("--samples", "3", "--temperature", "1", "--max-rationale-tokens", "8")
    assert cli("score", rows, "--out", run, *flags).code == 0
    lines = [json.loads(line) for line in (run / "judgements.jsonl").read_text().splitlines()]
    assert len(lines) == len(ROWS)
    within = np.sqrt(np.mean([line["depth_spread"] ** 2 for line in lines]))
    between = np.std([line["depth_expected"] for line in lines], ddof=1)
    said = (
        f"spread of depth: {within:.2f} between samples, {between:.2f} between instructions; "
        f"the mean of 3 samples is off by {within / np.sqrt(3):.2f}"
    )
    assert said in cli("show", run).out
    assert [each.spread["depth"] for each in load_run(run)] == [line["depth_spread"] for line in lines]
    kept = (run / "judgements.jsonl").read_bytes()
    (run / "judgements.jsonl").write_bytes(b"".join(kept.splitlines(keepends=True)[:3]))
    (run / "summary.json").unlink()
    assert cli("score", rows, "--out", run, *flags).code == 0
    assert (run / "judgements.jsonl").read_bytes() == kept, "a run that goes on has the same samples"
    other = cli("score", rows, "--out", run, "--temperature", "1", "--max-rationale-tokens", "8")
    assert (other.code, "samples" in other.err) == (2, True)
    table = tmp_path / "all.csv"
    assert cli("export", run, "--out", table).code == 0
    assert "depth_spread" in table.read_text().splitlines()[0]
