"""The last layer of a model in float32, where a value is picked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import random_model
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Cohere2Config,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    PhiConfig,
    PreTrainedConfig,
)

from localjudge.engines.transformers.fast_layers import pack
from localjudge.engines.transformers.float32_head import use_float32_head
from localjudge.judge import Judge
from localjudge.records import Judgement

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
}
# Those that change their logits after the last layer, that have a bias, and that share its weights.
CONFIGS = {
    "plain": LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "bias": PhiConfig(**SHAPE, tie_word_embeddings=False),
    "soft cap": Gemma2Config(**SHAPE, head_dim=16, final_logit_softcapping=40.0),
    "factor": CohereConfig(**SHAPE, logit_scale=0.7),
    "factor and window": Cohere2Config(**SHAPE, logit_scale=0.7, sliding_window=8),
    "divisor": GraniteConfig(**SHAPE, logits_scaling=1.3),
}


def model_with_large_logits(config: PreTrainedConfig, dtype: torch.dtype) -> torch.nn.Module:
    """Return a model with random weights of bfloat16 whose largest logits are about 30."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        head = model.get_output_embeddings()
        before = head.weight.clone()
        # A cap bounds the logits, so the weights are scaled by what stands before it.
        states: list[torch.Tensor] = []
        hook = head.register_forward_hook(lambda _module, _inputs, output: states.append(output))
        model(input_ids=tokens)
        hook.remove()
        factor = 30 / states[0].abs().max()
        head.weight = torch.nn.Parameter(before * factor)
        if head.bias is not None:
            head.bias.normal_()
        if config.tie_word_embeddings:
            model.get_input_embeddings().weight = head.weight
    return model.to(torch.bfloat16).to(dtype)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_logits_of_values_are_those_of_an_exact_last_layer_on_the_same_hidden_states(
    config: PreTrainedConfig,
) -> None:
    model = model_with_large_logits(config, torch.bfloat16)
    layer = model.get_output_embeddings()
    exact_layer = torch.nn.Linear(64, 300, bias=layer.bias is not None, dtype=torch.float64)
    exact_layer.load_state_dict(layer.state_dict())
    cap = getattr(config, "final_logit_softcapping", None)
    factor = getattr(config, "logit_scale", 1.0) / getattr(config, "logits_scaling", 1.0)
    tokens = torch.arange(5, 25).reshape(2, 10)
    head = use_float32_head(model)
    assert head is not None
    pack(model)
    states: list[torch.Tensor] = []
    head.register_forward_pre_hook(lambda _module, inputs: states.append(inputs[0]))
    with torch.inference_mode():
        unchanged = model(input_ids=tokens).logits
        with head.at([True, True]):
            whole = model(input_ids=tokens).logits
        with head.at([False, True]):
            mixed = model(input_ids=tokens).logits
        expected = exact_layer(states[-1].double())
    if cap is not None:
        expected = torch.tanh(expected / cap) * cap
    expected = expected * factor

    assert (unchanged.double() - expected).abs().max() > 0.02
    assert (whole.double() - expected).abs().max() < 0.0001
    assert whole.dtype == mixed.dtype == torch.float32
    torch.testing.assert_close(mixed[1], whole[1], rtol=1e-5, atol=1e-5)
    assert unchanged.dtype == torch.bfloat16
    # A text in a pass with values differs at most where a soft cap or a factor is no longer rounded.
    assert (mixed[0] - unchanged[0]).abs().max() <= 0.25


def test_a_model_in_float32_or_with_a_last_layer_of_another_kind_keeps_it() -> None:
    model = model_with_large_logits(CONFIGS["plain"], torch.float32)
    assert use_float32_head(model) is None
    assert type(model.get_output_embeddings()) is torch.nn.Linear

    class OtherLinear(torch.nn.Linear):
        """Stands for a quantized layer."""

    rounded = model.to(torch.bfloat16)
    rounded.lm_head.__class__ = OtherLinear
    assert use_float32_head(rounded) is None


@pytest.fixture(scope="module")
def rounded_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model directory in bfloat16 with large logits."""
    folder = random_model(tmp_path_factory.mktemp("models") / "rounded")
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.bfloat16)
    with torch.no_grad():
        model.lm_head.weight.mul_(4)
    model.save_pretrained(folder)
    return folder


ROWS = [
    {"instruction": f"Name {number} rivers.", "reference": "The Elbe", "candidate": "The Rhine " * number}
    for number in range(1, 7)
]


def judged(folder: Path, **engine_args: object) -> tuple[list[Judgement], Judge]:
    """Return judgements by a model in bfloat16, unless another type is given, and the judge."""
    options = {"batch_size": 3, "dtype": "bfloat16"} | engine_args
    judge = Judge(folder, engine="transformers", engine_args=options, max_rationale_tokens=8)
    with judge:
        outcomes = list(judge.score(ROWS))
        assert judge.settings  # read while the engine is open
    judgements = [outcome for outcome in outcomes if isinstance(outcome, Judgement)]
    assert len(judgements) == len(ROWS)
    return judgements, judge


def test_rationales_stay_and_each_probability_is_computed_in_float32(rounded_model: Path) -> None:
    coarse, without = judged(rounded_model, head_dtype="model")
    fine, judge = judged(rounded_model)
    assert [one.rationale for one in fine] == [one.rationale for one in coarse]
    changes = [
        np.subtract(one.probabilities[aspect], other.probabilities[aspect])
        for one, other in zip(fine, coarse, strict=True)
        for aspect in one.scores
    ]
    assert len(changes) == 6 * len(ROWS)
    # The logits of bfloat16 are off by up to 1/128 from 2 on, and those of its last layer by their sum.
    assert 0 < np.abs(changes).max() < 0.1
    assert judge.settings["head_dtype"] == "float32"
    assert "head_dtype" not in without.settings
    assert judge.settings | {"head_dtype": None} == without.settings | {"head_dtype": None}


def test_a_judge_in_float32_answers_the_same_with_the_same_keys(rounded_model: Path) -> None:
    without, _ = judged(rounded_model, dtype="float32", head_dtype="model")
    with_head, judge = judged(rounded_model, dtype="float32")
    assert with_head == without
    assert "head_dtype" not in judge.settings
