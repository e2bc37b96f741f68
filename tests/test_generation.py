"""Tests of the generation loop: fixed text takes no passes, and answers are those of a pass for each token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_model
from test_transformers import THINKING_CHAT, save_random_model
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from value_oracle import fold_end

from localjudge import Judge, Rubric
from localjudge.engines.protocol import Completion
from localjudge.engines.transformers import cached_rows, fast_layers, generation
from localjudge.engines.transformers.fast_layers import use_grouped_attention
from localjudge.models.model import Model
from localjudge.models.model_class import ModelClass
from localjudge.prompts.task import Prompt

ENGINE_ARGS = {"batch_size": "4", "device": "cpu", "dtype": "float32"}
PROMPT_LENGTHS = (1, 2, 29, 32, 17, 3, 31)
SCORES = 6
PREFILL = 1
"""Passes for the prompts of a batch, without their last tokens."""

WINDOW = {"sliding_window": 16, "num_key_value_heads": 1}
ALL_KEYS_AND_VALUES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"n_positions": 4096, "n_embd": 32, "n_head": 2, "n_layer": 2},
    "mistral": WINDOW | {"sliding_window": None},
}
OTHER_CACHES: dict[str, dict[str, Any]] = {
    "mpt": {"d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 4096},  # ALiBi
    "mistral": WINDOW,
    "gemma2": WINDOW | {"head_dim": 16},
    "gemma3_text": WINDOW | {"head_dim": 16},
    "mamba": {"state_size": 8},
    "qwen3_next": {
        "head_dim": 16,
        "num_key_value_heads": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "llama": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
}


def save_model(folder: Path, architecture: str, settings: dict[str, Any]) -> Path:
    """Save a model of an architecture with random weights, large enough for confident predictions."""
    tokens = AutoConfig.from_pretrained(random_model(folder))
    common = {
        "vocab_size": tokens.vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": tokens.eos_token_id,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **(common | settings)))
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("llama"), "llama", {})


def prompts_of(judge: Judge) -> list[Prompt]:
    text = judge.prompts.encode("A response to judge, word by word. " * 8)
    return [Prompt(n, list(text[:length]), seed=n) for n, length in enumerate(PROMPT_LENGTHS)]


def completions(judge: Judge, prompts: list[Prompt]) -> dict[int, Completion]:
    answered = (each for finished in judge.engine.complete(prompts) for each in finished)
    return {each.tag: each for each in answered if isinstance(each, Completion)}


@contextmanager
def counted_passes(judge: Judge) -> Iterator[list[tuple[int, ...]]]:
    """Yield the shapes, (rows, tokens), of the model's passes so far."""
    shapes: list[tuple[int, ...]] = []

    def add(network: Any, positional: Any, inputs: dict[str, Any]) -> None:
        shapes.append(tuple(inputs["input_ids"].shape))

    hook = judge.engine._model.register_forward_pre_hook(add, with_kwargs=True)  # type: ignore[attr-defined]
    yield shapes
    hook.remove()


def rationale_tokens(judge: Judge, completion: Completion) -> int:
    """Return the number of tokens up to the one that closes the rationale, thoughts included."""
    table = judge.decoding.table
    _, answer = table.split(completion.tokens)
    path = table.states(answer)
    closes = int(np.flatnonzero(table.text[path] >= 0)[-1]) + 1
    return len(completion.tokens) - len(answer) + closes


def assert_as_a_pass_for_each_token(judge: Judge, prompts: list[Prompt]) -> dict[int, Completion]:
    """Complete the prompts, and each one again by itself without a cache; both must be the same."""
    model_class = ModelClass.of(judge.model.configuration)
    assert model_class is not None
    network = model_class.auto.from_pretrained(
        judge.model.path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    found = completions(judge, prompts)
    assert found.keys() == {prompt.tag for prompt in prompts}
    for prompt in prompts:
        tokens, probabilities = reference(judge, network, prompt)
        assert found[prompt.tag].tokens == tokens
        if probabilities is not None:
            assert found[prompt.tag].probabilities == pytest.approx(probabilities, abs=1e-4)
    return found


@torch.inference_mode()
def reference(
    judge: Judge, network: PreTrainedModel, prompt: Prompt
) -> tuple[tuple[int, ...], np.ndarray[Any, Any] | None]:
    """Return the tokens and the scores' probabilities of an answer, from the token table and the definition."""
    decoding, table = judge.decoding, judge.decoding.table
    random = np.random.Generator(np.random.Philox(prompt.seed))
    answer: list[int] = []
    probabilities = []
    state, allowances = table.entry, decoding.allowances
    deadline = int(allowances[state])
    while not table.is_complete(state):
        logits = network(torch.tensor([[*prompt.tokens, *answer]]), use_cache=False).logits[0, -1].double()
        if state in table.score_state and table.first_token_decides.all():
            (aspect,) = np.flatnonzero(table.score_state == state)
            probabilities.append(torch.softmax(logits[table.score_token[aspect]], dim=0).numpy())
        fold_end(table, state, logits)
        logits[~table.allowed(state, deadline - len(answer), decoding.closing_margin)] = -torch.inf
        draw, token = random.random(), int(logits.argmax())
        if decoding.temperature:
            mass = torch.softmax(logits / decoding.temperature, dim=0).cumsum(dim=0)
            token = int(torch.searchsorted(mass, draw * mass[-1], right=True))
        answer.append(token)
        before, state = state, int(table.next_state[state, token])
        if allowances[state] and state != before:
            deadline = len(answer) + int(allowances[state])
    return tuple(answer), np.array(probabilities) if probabilities else None


def test_fixed_text_takes_no_passes(llama: Path) -> None:
    judge = Judge(llama, max_rationale_tokens=20, engine_args=ENGINE_ARGS)
    prompts = prompts_of(judge)[:4]
    with counted_passes(judge) as shapes:
        longest = max(rationale_tokens(judge, each) for each in completions(judge, prompts).values())
    assert len(shapes) == PREFILL + longest + SCORES


def test_a_row_leaves_the_batch_when_its_rationale_closes_and_returns_for_its_scores(llama: Path) -> None:
    judge = Judge(llama, max_rationale_tokens=40, temperature=5.0, engine_args=ENGINE_ARGS)
    prompts = prompts_of(judge)[:4]
    with counted_passes(judge) as shapes:
        lengths = sorted(rationale_tokens(judge, each) for each in completions(judge, prompts).values())
    assert lengths[0] < lengths[-1], "they close at different tokens"
    rows = [rows for rows, _ in shapes[PREFILL:]]
    assert rows[:-SCORES] == [sum(length > step for length in lengths) for step in range(lengths[-1])]
    assert rows[-SCORES:] == [4] * SCORES


def test_a_cache_that_grows_at_every_other_token_keeps_what_it_has(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_rows, "_GROWTH", 2)
    judge = Judge(llama, max_rationale_tokens=20, temperature=1.0, engine_args=ENGINE_ARGS)
    assert_as_a_pass_for_each_token(judge, prompts_of(judge))


@pytest.mark.parametrize("passes", ["a row at a time", "two rows at a time"])
def test_prompts_are_computed_a_few_at_a_time(
    llama: Path, monkeypatch: pytest.MonkeyPatch, passes: str
) -> None:
    monkeypatch.setattr(cached_rows, "_TOKENS_OF_A_PASS", 1 if passes == "a row at a time" else 60)
    judge = Judge(llama, max_rationale_tokens=3, engine_args=ENGINE_ARGS)
    assert_as_a_pass_for_each_token(judge, prompts_of(judge))


def test_the_pass_of_a_prompt_ends_with_the_last_keys_and_values(llama: Path) -> None:
    judge = Judge(llama, max_rationale_tokens=20, engine_args=ENGINE_ARGS)
    calls: list[int] = []
    layers = judge.engine._model.model.layers  # type: ignore[attr-defined]
    for number, layer in enumerate(layers):
        layer.mlp.register_forward_hook(lambda *_, number=number: calls.append(number))
    with counted_passes(judge) as shapes:
        completions(judge, prompts_of(judge)[:4])
    assert calls.count(0) == len(shapes)
    assert calls.count(len(layers) - 1) == len(shapes) - PREFILL


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_prompts_that_begin_alike_are_computed_once(llama: Path, temperature: float) -> None:
    judge = Judge(llama, max_rationale_tokens=5, temperature=temperature, engine_args=ENGINE_ARGS)
    shared = judge.prompts.encode("A response to judge, word by word. " * 60)[:400]
    ends = [[7, 8], [7, 9, 10], [], [7, 8]]
    prompts = [Prompt(n, [*shared, *end], seed=n, beginnings=(399,)) for n, end in enumerate(ends)]
    with counted_passes(judge) as shapes:
        assert_as_a_pass_for_each_token(judge, prompts)
    assert shapes[0] == (1, len(shared) - 1)
    assert all(tokens < 50 for _, tokens in shapes[1:])


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("architecture", ALL_KEYS_AND_VALUES)
def test_answers_are_those_of_a_pass_for_each_token(
    tmp_path: Path, architecture: str, temperature: float
) -> None:
    model = save_model(tmp_path, architecture, ALL_KEYS_AND_VALUES[architecture])
    judge = Judge(model, max_rationale_tokens=12, temperature=temperature, engine_args=ENGINE_ARGS)
    with counted_passes(judge) as shapes:
        found = assert_as_a_pass_for_each_token(judge, prompts_of(judge))
    assert len(shapes) < len(found[0].tokens), "fixed text takes no passes"


@pytest.mark.parametrize("architecture", OTHER_CACHES)
def test_a_model_that_keeps_other_things_than_all_keys_and_values_takes_a_pass_for_each_token(
    tmp_path: Path, architecture: str
) -> None:
    model = save_model(tmp_path, architecture, OTHER_CACHES[architecture])
    judge = Judge(model, max_rationale_tokens=12, temperature=1.0, engine_args=ENGINE_ARGS)
    prompts = [Prompt(n, [7, 8, 9 + n] * 8, seed=n) for n in range(4)]
    with counted_passes(judge) as shapes:
        found = assert_as_a_pass_for_each_token(judge, prompts)
    assert len(shapes) == max(len(each.tokens) for each in found.values())


def test_rows_whose_rationales_close_with_different_tokens_meet_in_the_fixed_text(llama: Path) -> None:
    judge = Judge(llama, max_rationale_tokens=40, temperature=5.0, engine_args=ENGINE_ARGS)
    prompts = prompts_of(judge)
    found = assert_as_a_pass_for_each_token(judge, prompts)
    rest = {len(each.tokens) - rationale_tokens(judge, each) for each in found.values()}
    assert len(rest) > 1


@pytest.mark.parametrize("temperature", [0.0, 5.0])
def test_values_of_several_tokens_need_not_have_as_many_in_each_row(llama: Path, temperature: float) -> None:
    answers = {"choices": ["no", "not at all", "certainly, and without any doubt"]}
    document = Rubric.load().model_dump() | {"aspects": dict.fromkeys(Rubric.load().aspects, answers)}
    rubric = Rubric.model_validate(document)
    judge = Judge(
        llama, rubric=rubric, max_rationale_tokens=3, temperature=temperature, engine_args=ENGINE_ARGS
    )
    found = assert_as_a_pass_for_each_token(judge, prompts_of(judge))
    if temperature:
        lengths = {len(each.tokens) - rationale_tokens(judge, each) for each in found.values()}
        assert len(lengths) > 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("budget", [0, 7])
def test_a_model_that_thinks_answers_as_with_a_pass_for_each_token(
    tmp_path: Path, budget: int, temperature: float
) -> None:
    model = save_random_model(tmp_path, Model.find().path / "tokenizer.json", chat=THINKING_CHAT)
    judge = Judge(
        model,
        max_rationale_tokens=5,
        thinking_budget=budget,
        temperature=temperature,
        engine_args=ENGINE_ARGS,
    )
    with counted_passes(judge) as shapes:
        found = assert_as_a_pass_for_each_token(judge, prompts_of(judge)[:4])
    table = judge.decoding.table
    opening, state = 0, table.start
    while state not in table.text_start:
        opening, state = opening + 1, int(table.next_state[state, table.fixed_token[state]])
    longest = max(rationale_tokens(judge, each) for each in found.values())
    assert len(shapes) == PREFILL + longest - opening + SCORES, "the opening is fixed text, too"


def test_the_cache_is_known_by_each_name_that_transformers_has_given_it(llama: Path) -> None:
    network = AutoModelForCausalLM.from_pretrained(llama)
    _, inputs = generation.prepared(network, [[3, 4]], 2)
    (now,) = {"past_key_values", "cache"} & inputs.keys()
    cache = inputs.pop(now)
    names = ("past_key_values", "cache", "unknown")
    found = [cached_rows.keeps_rows(network, inputs | {name: cache}) for name in names]
    assert found == [True, True, False]


def test_a_row_whose_rotation_depends_on_its_batch_is_not_beside_a_longer_one(tmp_path: Path) -> None:
    changes_at = {"original_max_position_embeddings": 128}
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [40.0] * 8}
    model = save_model(tmp_path, "phi3", {"rope_parameters": rope | changes_at, **changes_at})
    judge = Judge(model, max_rationale_tokens=5, engine_args=ENGINE_ARGS)
    text = judge.prompts.encode("A response to judge, word by word. " * 20)
    short, long = (Prompt(n, list(text[:length]), seed=n) for n, length in enumerate((100, 140)))
    beside, alone = completions(judge, [short, long])[0], completions(judge, [short])[0]
    assert beside.tokens == alone.tokens
    assert beside.probabilities == pytest.approx(alone.probabilities, abs=1e-4)


@pytest.mark.parametrize("heads", [2, 4])
def test_attention_without_hidden_products_is_that_of_transformers(heads: int) -> None:
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=heads,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    tokens, mask = torch.randint(50, (2, 600)), torch.ones(2, 600, dtype=torch.long)
    mask[0, :70] = 0
    with torch.inference_mode():
        before = model(tokens, attention_mask=mask).logits[:, 70:]
        use_grouped_attention(model)
        after = model(tokens, attention_mask=mask).logits[:, 70:]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (6, 2), (8, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_one_token_is_that_of_transformers(
    dtype: torch.dtype, heads: int, shared: int, masked: bool
) -> None:
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(3, n, tokens, 16) for n, tokens in [(heads, 1), (shared, 70), (shared, 70)]
    )
    mask = torch.zeros(3, 1, 1, 70)
    mask[0, :, :, 40:] = torch.finfo(dtype).min
    layer = torch.nn.Module()
    layer.num_key_value_groups, layer.is_causal = heads // shared, True
    values = [layer, *(each.to(dtype) for each in (query, key, value)), mask.to(dtype) if masked else None]
    torch.testing.assert_close(fast_layers._attention(*values), sdpa_attention_forward(*values))
