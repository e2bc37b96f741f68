"""Tests of the plan of a run: the order of judging, the longest prompt, and rows that do not fit."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pytest
from conftest import random_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localjudge import Failure, Judge, Judgement, Row
from localjudge.records import numbered
from localjudge.runs.run_plan import RunPlan


@pytest.fixture
def judge(model: Path, short_rubric: Path) -> Judge:
    return Judge(model, rubric=short_rubric, max_rationale_tokens=3)


def row(instruction: str, candidate: str = "Yes.", **fields: Any) -> Row:
    return Row.from_response(
        instruction=instruction, reference="No.", candidate=candidate, id="1", source="a:1", **fields
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.sampled_from("abcd")))
def test_rows_that_share_an_instruction_come_together_each_once(judge: Judge, instructions: list[str]) -> None:
    with RunPlan(judge, [row(instruction) for instruction in instructions]) as plan:
        order = [((each.number or 0) - 1, each.instruction) for each in plan if isinstance(each, Row)]
    assert sorted(place for place, _ in order) == list(range(len(instructions)))
    assert [instructions[place] for place, _ in order] == [instruction for _, instruction in order]
    groups = [instruction for instruction, _ in groupby(order, key=lambda item: item[1])]
    assert groups == list(dict.fromkeys(instructions)), "a group comes where its first row came"


def test_rows_come_back_as_they_went_in_whatever_they_hold(judge: Judge) -> None:
    rows: list[Row | Failure] = [
        Row.from_response(
            instruction="评", candidate="\x00\u2028🙂", id="x", columns={"n": 1.5, "deep": [{"a": None}]}
        ),
        Failure(id="b", key="k", source="s:2", error="s:2: broken"),
    ]
    with RunPlan(judge, rows) as plan:
        assert list(plan) == list(plan.in_order()) == list(numbered(rows))
        tasks = plan.encode()
        assert [replace(task, places=()) for task in tasks] == list(judge.task_builder.tasks(numbered(rows)))


def test_rows_that_repeat_an_id_of_their_system_are_counted(judge: Judge) -> None:
    names = [("1", "x"), ("1", "y"), ("2", "x"), ("2", "x"), ("1", None), ("2", "x")]
    rows = [
        Row.from_response(
            instruction="a", candidate="b", reference="c", id=name, system=system, source=f"{name}{system}"
        )
        for name, system in names
    ]
    with RunPlan(judge, rows) as plan:
        assert plan.repeated_ids == 2
        assert plan.repeated_id() == replace(rows[3], number=4)
    with RunPlan(judge, rows[:3]) as plan:
        assert plan.repeated_ids == 0


def test_long_references_are_not_encoded_all_at_once(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    encode_all = judge.prompts.encode_all

    def noted(texts: list[str], *beginnings: Any) -> list[Any]:
        sizes.append(sum(map(len, texts)))
        return encode_all(texts, *beginnings)

    monkeypatch.setattr(judge.prompts, "encode_all", noted)
    monkeypatch.setattr("localjudge.prompts.task_builder._CHARACTERS_AT_ONCE", 1000)
    rows = [
        Row.from_response(instruction="a", candidate="b", reference="long " * 80, id=str(number))
        for number in range(9)
    ] + [Row.from_response(instruction="a", candidate="b" * 3000, reference="c")]
    assert [task.row for task in judge.task_builder.tasks(rows)] == rows
    assert len(sizes) == 6, "two rows fit the limit, and one that exceeds it comes alone"


def test_the_longest_prompt_and_those_that_do_not_fit_are_known(tmp_path: Path, short_rubric: Path) -> None:
    judge = Judge(random_model(tmp_path, context=120), rubric=short_rubric, max_rationale_tokens=3)
    short, long = row("a"), row("a", "word " * 200)
    with RunPlan(judge, [short, long, long]) as plan:
        tasks = plan.encode()
        tasks.finish()
        assert (tasks.encoded, tasks.too_long, tasks.first_too_long) == (3, 2, "a:1")
        assert tasks.longest + judge.decoding.max_tokens <= 120
        assert (plan.longest() or 0) + judge.decoding.max_tokens <= 120
    with RunPlan(judge, [short]) as plan:
        assert plan.longest() == len(judge.task_builder.task(short).tokens)


def test_no_prompt_is_longer_than_the_plan_says_and_one_large_row_is_measured(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("a", "🙂 word " * count) for count in (3, 5, 200, 4)]
    exact = max(len(judge.task_builder.task(each).tokens) for each in rows)
    with RunPlan(judge, rows) as plan:
        assert plan.longest() == exact
    monkeypatch.setattr("localjudge.runs.run_plan._BYTES_MEASURED", 0)
    with RunPlan(judge, rows) as plan:
        assert exact < (plan.longest() or 0) <= (judge.context or 0) - judge.decoding.max_tokens


def encoders() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "localjudge-encoder"]


def test_an_error_of_the_encoding_thread_reaches_the_caller_after_the_rows_before_it(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_all = judge.prompts.encode_all

    def failing(texts: list[str], *beginnings: Any) -> list[Any]:
        if any("broken" in text for text in texts):
            raise MemoryError("no memory")
        return encode_all(texts, *beginnings)

    monkeypatch.setattr(judge.prompts, "encode_all", failing)
    monkeypatch.setattr("localjudge.prompts.task_builder._ROWS_AT_ONCE", 2)
    rows = [row(name) for name in ("a", "b", "broken", "c")]
    with RunPlan(judge, rows) as plan:
        tasks = plan.encode()
        found = iter(tasks)
        first = [replace(task, places=()) for task in islice(found, 2)]
        assert first == list(judge.task_builder.tasks(numbered(rows[:2])))
        with pytest.raises(MemoryError, match="no memory"):
            next(found)
    assert encoders() == []


def test_the_encoding_thread_ends_with_the_plan_before_its_last_row(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode_all = judge.prompts.encode_all
    begun, known = threading.Event(), threading.Event()

    def noted(texts: list[str], *beginnings: Any) -> list[Any]:
        encoded.extend(texts)
        if len(encoded) > 2:
            begun.set()
            known.wait()
            while not tasks._stopped:  # the plan is left while this batch is encoded
                threading.Event().wait(0.001)
        return encode_all(texts, *beginnings)

    monkeypatch.setattr(judge.prompts, "encode_all", noted)
    monkeypatch.setattr("localjudge.prompts.task_builder._ROWS_AT_ONCE", 2)
    with RunPlan(judge, [row(str(n)) for n in range(99)]) as plan:
        tasks = plan.encode()
        known.set()
        begun.wait()
    assert encoders() == []
    assert len(encoded) == 4


def test_a_candidate_that_does_not_fit_is_shortened_if_that_is_asked_for(
    tmp_path: Path, short_rubric: Path
) -> None:
    model = random_model(tmp_path, context=160)
    rows = [row("a", "word " * 200), row("a long question " * 99, "word")]
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=3, on_overflow="truncate-candidate")
    outcomes = {outcome.status: outcome for outcome in judge.score(rows)}
    judged, failed = outcomes["judged"], outcomes["failed"]
    assert isinstance(judged, Judgement)
    assert 0 < judged.candidate_cut < 1000
    assert judged.prompt_tokens + judge.decoding.max_tokens <= 160
    assert isinstance(failed, Failure)
    assert "even with one character of its candidate" in failed.error


@pytest.mark.parametrize(
    "candidate",
    [
        "是的" * 5000,
        "👩\u200d👩\u200d👧🙂" * 2000,
        "e" + "\u0301" * 9000,
        "word " * 9000,
        "🙂" * 50 + "word " * 9000,
        "是" * 60,
    ],
    ids=["ideographs", "emoji", "marks", "words", "emoji and words", "a little too long"],
)
def test_a_candidate_is_shortened_no_more_than_it_must_whatever_its_characters_take(
    tmp_path: Path, short_rubric: Path, candidate: str
) -> None:
    model = random_model(tmp_path, context=200)
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=3, on_overflow="truncate-candidate")
    whole = row("a", candidate)
    task = judge.task_builder.task(whole)
    tokens, kept = task.tokens, len(candidate) - task.candidate_cut
    assert tokens == judge.prompts.encode(judge.rubric.text(whole.with_candidate(candidate[:kept])))
    assert 0 < kept < len(candidate)
    longer = judge.prompts.encode(judge.rubric.text(whole.with_candidate(candidate[: kept + 1])))
    assert judge.task_builder.excess(len(tokens)) <= 0
    assert judge.task_builder.excess(len(tokens)) > -8 or judge.task_builder.excess(len(longer)) > 0


def test_shortening_encodes_a_candidate_a_bounded_number_of_times(
    tmp_path: Path, short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(tmp_path, context=200)
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=3, on_overflow="truncate-candidate")
    candidate = "word " * 30 + "🙂" * 20000
    encoded: list[str] = []
    encode_all = judge.prompts.encode_all

    def counting(texts: list[str], *beginnings: Any) -> list[Any]:
        encoded.extend(texts)
        return encode_all(texts, *beginnings)

    monkeypatch.setattr(judge.prompts, "encode_all", counting)
    judge.task_builder.task(row("a", candidate))
    assert len(encoded) <= 3 + 2 * math.log2(len(candidate))
