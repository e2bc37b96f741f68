"""Tests of kept beginnings: what prompts share is computed once, and no score depends on what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_generation import ALL_KEYS_AND_VALUES, ENGINE_ARGS, completions, save_model
from transformers import AutoModelForCausalLM

from localjudge import Judge, Row, Rubric
from localjudge.engines.protocol import Completion
from localjudge.engines.transformers import generation
from localjudge.engines.transformers.cached_rows import CachedRows
from localjudge.engines.transformers.kept_beginnings import KeptBeginnings
from localjudge.prompts.task import Prompt

INSTRUCTIONS, SYSTEMS = 5, 3
BATCH = 6


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    model = save_model(tmp_path_factory.mktemp("llama"), "llama", {})
    rubric = Rubric.load("six-aspects", rationale="none")
    with Judge(model, rubric=rubric, engine_args=ENGINE_ARGS | {"batch_size": str(BATCH)}) as judge:
        yield judge


def rows() -> list[Row]:
    """Return rows of several systems for each instruction, whose responses begin alike."""
    ends = ("", "\nIt is so.", " Because of this, and of that. " * 4)
    return [
        Row.from_response(instruction=f"Why {n}?" + " Why?" * n, reference="A" * n, candidate=f"Because.{end}")
        for n in range(INSTRUCTIONS)
        for end in ends[:SYSTEMS]
    ]


def prompts_of(judge: Judge, given: Sequence[Row]) -> list[Prompt]:
    tasks = [judge.task_builder.task(row) for row in given]
    return [Prompt(n, task.tokens, n, beginnings=task.beginnings) for n, task in enumerate(tasks)]


@contextmanager
def counted_tokens(judge: Judge) -> Iterator[list[int]]:
    """Yield the numbers of tokens that the model's passes compute, padding included."""
    counts: list[int] = []

    def add(network: Any, positional: Any, inputs: dict[str, Any]) -> None:
        counts.append(inputs["input_ids"].numel())

    hook = judge.engine._model.register_forward_pre_hook(add, with_kwargs=True)  # type: ignore[attr-defined]
    yield counts
    hook.remove()


def kept_by(judge: Judge) -> KeptBeginnings:
    kept: KeptBeginnings = judge.engine._beginnings  # type: ignore[attr-defined]
    return kept


@pytest.fixture(scope="module")
def alone(judge: Judge) -> dict[int, Completion]:
    """Return the answers to prompts that share nothing, each in a batch of its own."""
    prompts = [replace(prompt, beginnings=()) for prompt in prompts_of(judge, rows())]
    return {prompt.tag: completions(judge, [prompt])[prompt.tag] for prompt in prompts}


@settings(max_examples=8, deadline=None)
@given(
    order=st.permutations(range(INSTRUCTIONS * SYSTEMS)), size=st.integers(1, BATCH), done=st.integers(0, 14)
)
def test_an_answer_is_the_same_whatever_was_kept_before_it(
    judge: Judge, alone: dict[int, Completion], order: list[int], size: int, done: int
) -> None:
    whole = prompts_of(judge, rows())
    judge.engine.reset(size)
    # A run that continues begins with an empty store, and with later rows.
    found = completions(judge, [whole[n] for n in order[:done]])
    kept_by(judge).clear()
    found |= completions(judge, [whole[n] for n in order[done:]])
    judge.engine.reset()
    assert found.keys() == alone.keys()
    for tag, completion in found.items():
        assert completion.tokens == alone[tag].tokens
        assert completion.probabilities == pytest.approx(alone[tag].probabilities, abs=1e-5)


def test_a_row_by_itself_has_the_same_bits_whatever_was_kept(judge: Judge) -> None:
    whole = prompts_of(judge, rows())
    orders = []
    for order in (whole, whole[::-1], whole[4::2]):
        judge.engine.reset(1)
        orders.append(completions(judge, order))
    judge.engine.reset()
    for found in orders[1:]:
        for tag, completion in found.items():
            np.testing.assert_array_equal(completion.probabilities, orders[0][tag].probabilities)


@pytest.mark.parametrize("architecture", ALL_KEYS_AND_VALUES)
def test_logits_after_a_kept_beginning_are_those_of_the_whole_prompt(tmp_path: Path, architecture: str) -> None:
    save_model(tmp_path, architecture, ALL_KEYS_AND_VALUES[architecture])
    network = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = [*range(20, 90)]
    prompts = [Prompt(n, [*tokens[: 50 + n], 7 + n, 9], n, beginnings=(30, 50 + n % 2)) for n in range(6)]
    kept = KeptBeginnings()
    found: list[torch.Tensor] = []
    for batch in (prompts[:2], prompts[2:]):
        with torch.inference_mode():
            _, inputs = generation.prepared(network, [prompt.tokens for prompt in batch], 2)
            cached = CachedRows(network, batch, inputs, kept)
            found.extend(cached.step([*range(len(batch))], [[]] * len(batch)))
    for prompt, logits in zip(prompts, found, strict=True):
        with torch.inference_mode():
            whole = network(torch.tensor([prompt.tokens])).logits[0, -1]
        scale = float(whole.std())
        assert float((logits - whole).abs().max()) < 1e-5 * max(1.0, scale)
    assert kept.served == 5 * 30 + 2 * 20 + 2 * 21


def test_each_beginning_is_computed_once_as_long_as_its_rows_come(judge: Judge) -> None:
    kept_by(judge).clear()
    prompts = prompts_of(judge, rows())
    before = judge.engine.statistics()["cached_prompt_tokens"]
    found = completions(judge, prompts)
    beginnings = {tuple(prompt.tokens[:end]): end for prompt in prompts for end in prompt.beginnings}
    first = min(beginnings.values())
    own = sum(len(prompt.tokens) - prompt.beginnings[-1] for prompt in prompts)
    once = first + sum(end - first for end in beginnings.values()) + own
    served = judge.engine.statistics()["cached_prompt_tokens"] - before
    assert served == sum(len(prompt.tokens) for prompt in prompts) - once
    assert served > 0.6 * sum(len(prompt.tokens) for prompt in prompts)
    with counted_tokens(judge) as counts:
        again = completions(judge, prompts)
    answers = sum(len(completion.tokens) for completion in again.values())
    assert sum(counts) < 1.5 * own + answers, "the same rows once more compute no beginning"
    assert all(again[tag].tokens == completion.tokens for tag, completion in found.items())


def test_no_more_tokens_are_kept_than_the_largest_batch_has(judge: Judge) -> None:
    kept_by(judge).clear()
    prompts = prompts_of(judge, rows())
    size = BATCH
    many = [replace(prompt, tokens=[*prompt.tokens[:-1], 7 + n]) for n in range(3) for prompt in prompts]
    given = [replace(p, beginnings=(*p.beginnings, len(p.tokens)), tag=n) for n, p in enumerate(many)]
    found = completions(judge, given)
    assert len(found) == len(given)
    assert 0 < kept_by(judge).tokens <= size * max(len(prompt.tokens) for prompt in given)


def test_a_beginning_ends_with_the_text_that_rows_share(judge: Judge) -> None:
    found = [[prompt.tokens[:end] for end in prompt.beginnings] for prompt in prompts_of(judge, rows())]
    shared = [tuple(each[0]) for each in found]
    assert len({*shared}) == 1
    for n in range(INSTRUCTIONS):
        assert len({tuple(each[1]) for each in found[n * SYSTEMS : (n + 1) * SYSTEMS]}) == 1
    assert len({tuple(each[1]) for each in found}) == INSTRUCTIONS
