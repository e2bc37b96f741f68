"""The seam between the judge and its engines: names, options, what an engine says about itself, prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from conftest import Cli, fake_package
from hypothesis import example, given
from hypothesis import strategies as st

from localjudge import Judge, RowSource, RunObserver, score_run
from localjudge.doctor import examine
from localjudge.engines.engine_options import BATCH_INVARIANT, DryRunOptions, TransformersOptions, VllmOptions
from localjudge.engines.prompt_batches import batches, chunks
from localjudge.engines.protocol import EngineInfo
from localjudge.engines.selection import engine_options
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt, StopSubmitting
from localjudge.settings import EngineName

ROW = {"id": "q", "instruction": "Why?", "reference": "So.", "candidate": "Yes."}


def test_the_help_names_every_engine(cli: Cli) -> None:
    said = cli("score", "--help").out
    assert all(name in said for name in get_args(EngineName))


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_run_and_the_doctor_take_the_same_engine_for_auto(
    has_gpu: bool, installed_as: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_package(installed_as, "vllm", version="9.9.9")
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    assert isinstance(engine_options("auto", {}), VllmOptions if has_gpu else TransformersOptions)
    (found,) = [check.found for check in examine("none", "auto") if check.name == "engine"]
    assert (found == "transformers, because there is no GPU for vLLM") == (not has_gpu)


@pytest.mark.parametrize(
    ("options", "context"),
    [
        (VllmOptions({}), 4096),
        (VllmOptions({"max_model_len": 1000}), 1000),
        (VllmOptions({"max_model_len": 9000}), 4096),
        (VllmOptions({"max_model_len": "auto"}), 4096),
        (DryRunOptions.parse({"max_model_len": "1000", "rate": "5"}), 1000),
        (TransformersOptions.parse({"batch_size": "3"}), 4096),
    ],
)
def test_an_engine_knows_its_context_from_its_options(
    options: VllmOptions | DryRunOptions | TransformersOptions, context: int, model: Path
) -> None:
    assert Model.find(model).context == 4096
    assert options.context(Model.find(model)) == context


def test_run_json_keeps_what_the_engine_says_about_itself(
    model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    with Judge(model, rubric=short_rubric, engine="transformers", max_rationale_tokens=1) as judge:
        score_run(judge, RowSource.from_rows([ROW]), tmp_path)
        (start,) = json.loads((tmp_path / "run.json").read_text())["starts"]
        assert EngineInfo.model_validate(start["engine"]) == judge.engine.info
        assert (judge.engine.info.applies_table, judge.engine.info.context) == (True, 4096)


@pytest.mark.parametrize("asked", [True, False])
def test_results_that_depend_on_the_batch_are_told_where_the_contrary_was_asked_for(
    asked: bool, short_rubric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Warnings(RunObserver):
        def warn(self, text: str, *, always: bool = False) -> None:
            warned.append(text)

    warned: list[str] = []
    monkeypatch.setenv(BATCH_INVARIANT, "1" if asked else "0")
    with Judge(rubric=short_rubric, engine="dry-run") as judge:
        score_run(judge, RowSource.from_rows([ROW]), tmp_path, observer=Warnings())
        assert judge.engine.info.batch_invariant is (False if asked else None)
    assert any(text.startswith("`deterministic`: not supported") for text in warned) == asked


def prompts(*tags: int | None) -> list[Prompt | None]:
    return [None if tag is None else Prompt(tag, [7] * 20, seed=0) for tag in tags]


def stopped(*tags: int) -> Iterator[Prompt | None]:
    yield from prompts(*tags)
    raise StopSubmitting


def test_an_engine_answers_what_it_has_when_no_prompt_is_ready(model: Path, short_rubric: Path) -> None:
    for engine in ("dry-run", "transformers"):
        judge = Judge(model, rubric=short_rubric, engine=engine, max_rationale_tokens=1)
        answered = judge.engine.complete(prompts(1, 2, None, 3))
        assert [each.tag for finished in answered for each in finished] == [1, 2]


def of_lengths(lengths: Iterable[int]) -> list[Prompt]:
    return [Prompt(tag, [7] * length, seed=0) for tag, length in enumerate(lengths)]


def test_a_few_prompts_of_many_lengths_fill_batches() -> None:
    found = batches(of_lengths(range(600, 888, 12)), 16, mixed=True)
    assert [len(batch) for batch in found] == [16, 8]


@given(st.lists(st.integers(33, 9000), max_size=60), st.integers(1, 5))
def test_the_longest_prompt_of_a_batch_is_at_most_half_as_long_again_as_the_shortest(
    lengths: list[int], size: int
) -> None:
    found = list(batches(prompts := of_lengths(lengths), size, mixed=True))
    assert sorted(each.tag for batch in found for each in batch) == [each.tag for each in prompts]
    for batch in found:
        ordered = sorted(len(each.tokens) for each in batch)
        assert len(batch) <= size
        assert ordered[-1] <= 1.5 * ordered[0]


@given(
    st.lists(st.integers(1, 300), max_size=60),
    st.integers(1, 5),
    st.booleans(),
    st.sets(st.integers(0, 30)),
)
@example([200, 100, 120, 180], 2, True, {1})
@example([200, 100, 195, 97, 199, 180], 2, True, {0, 2})
def test_batches_are_the_same_after_any_of_them_were_answered(
    lengths: list[int], size: int, mixed: bool, answered: set[int]
) -> None:
    prompts = of_lengths(lengths)
    unbroken = list(batches(prompts, size, mixed=mixed))
    left = [batch for number, batch in enumerate(unbroken) if number not in answered]
    tags = {each.tag for batch in left for each in batch}
    assert list(batches([each for each in prompts if each.tag in tags], size, mixed=mixed)) == left


def test_a_chunk_ends_with_an_instruction_and_has_at_most_twice_its_size() -> None:
    beginnings = [0, 0, 0, 1, 1, 1, *[2] * 9, 3]
    asked = [Prompt(n, [7, each, n], 0, beginnings=(1, 2)) for n, each in enumerate(beginnings)]
    found = [[each.tokens[1] for each in chunk] for chunk in chunks(asked, 4)]
    assert found == [[0, 0, 0, 1, 1, 1], [2] * 8, [2, 3]]


def test_a_stop_ends_chunks_with_the_rest_and_batches_without_it() -> None:
    assert [[each.tag for each in chunk] for chunk in chunks(stopped(1, 2, 3), 2)] == [[1, 2], [3]]
    assert [[each.tag for each in batch] for batch in batches(stopped(1, 2, 3), 2, mixed=True)] == [[1, 2]]
