"""The last layer of a model in float32, where a value is picked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import Cli, random_model, write_rows
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

from localjudge.constraint.masking import HostTable
from localjudge.engines.transformers.fast_layers import pack
from localjudge.engines.transformers.float32_head import head_dtype, use_float32_head
from localjudge.engines.transformers.generation import BatchAnswers
from localjudge.judge import Judge
from localjudge.prompts.task import Prompt
from localjudge.records import Judgement, Row
from localjudge.rows.formats import EXAMPLES
from localjudge.rows.inputs import read_rows

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


def test_a_last_layer_that_a_model_keeps_in_float32_is_reported_so() -> None:
    model = model_with_large_logits(CONFIGS["plain"], torch.bfloat16)
    assert head_dtype(model) == torch.bfloat16
    model.lm_head.float()
    assert use_float32_head(model) is None
    assert head_dtype(model) == torch.float32


def test_a_pass_computes_only_rows_in_float32_that_pick_a_value(rounded_model: Path) -> None:
    """In a batch that computes all its rows at each pass, the rows in a text or in fixed text keep theirs."""
    judge = Judge(rounded_model, engine="transformers", max_rationale_tokens=8)
    decoding = judge.decoding
    table = HostTable(decoding.table, 0, torch.device("cpu"), 2)
    prompts = [Prompt(number, [5, 6, 7], number) for number in range(2)]
    answers = BatchAnswers(table, decoding, prompts)
    picked_values = 0
    while rows := answers.incomplete:
        picks = answers.at_values(rows)
        lengths = [len(answers.tokens[row]) for row in rows]
        for row, is_value, length in zip(rows, picks, lengths, strict=True):
            answers.pick([row], torch.zeros(1, len(judge.model.vocabulary.pieces)))
            picked_values += is_value and length < len(answers.tokens[row])
    # Six scores of one digit in each of the two answers.
    assert picked_values == 2 * 6
    assert answers.at_values([0, 1]) == [False, False]


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
EXAMPLE_ROWS = [row for row in read_rows([EXAMPLES]) if isinstance(row, Row)]


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


def test_the_rationales_and_all_other_settings_stay_with_a_last_layer_in_float32(rounded_model: Path) -> None:
    coarse, without = judged(rounded_model, head_dtype="model")
    fine, judge = judged(rounded_model)
    assert [one.rationale for one in fine] == [one.rationale for one in coarse]
    assert [one.probabilities for one in fine] != [one.probabilities for one in coarse]
    assert judge.settings == without.settings | {"head_dtype": "float32"}
    assert "head_dtype" not in without.settings


def test_a_judge_in_float32_answers_the_same_with_the_same_keys(rounded_model: Path) -> None:
    without, _ = judged(rounded_model, dtype="float32", head_dtype="model")
    with_head, judge = judged(rounded_model, dtype="float32")
    assert with_head == without
    assert "head_dtype" not in judge.settings


def test_a_run_records_the_type_of_the_last_layer_and_is_continued_and_repeated_only_with_it(
    rounded_model: Path, tmp_path: Path, cli: Cli
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    out = tmp_path / "run"
    command = ["score", rows, "--model", rounded_model, "--engine", "transformers", "--out", out]
    command += ["--max-rationale-tokens", 8, "--engine-arg", "dtype=bfloat16"]
    scored = cli(*command)
    manifest = json.loads((out / "run.json").read_text())
    assert scored.code == 0
    assert "bfloat16, values in float32" in scored.err
    assert manifest["settings"]["head_dtype"] == manifest["starts"][0]["engine"]["head_dtype"] == "float32"

    otherwise = cli(*command, "--engine-arg", "head_dtype=model")
    assert otherwise.code == 2
    assert "head_dtype" in otherwise.err
    assert cli(*command).code == 0
    assert cli("audit", out, "--check", "repeat").code == 0

    without = tmp_path / "without"
    command[command.index(out)] = without
    assert cli(*command, "--engine-arg", "head_dtype=model").code == 0
    otherwise = cli(*command)
    assert otherwise.code == 2
    assert "head_dtype" in otherwise.err
    assert cli("audit", without, "--check", "repeat").code == 0


def test_shards_whose_last_layers_had_other_types_are_not_merged(
    rounded_model: Path, tmp_path: Path, cli: Cli
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    shards = [tmp_path / "first", tmp_path / "second"]
    for number, setting in enumerate(["float32", "model"]):
        command = ["score", rows, "--model", rounded_model, "--engine", "transformers", "--out", shards[number]]
        command += ["--shard", f"{number + 1}/2", "--max-rationale-tokens", 8]
        command += ["--engine-arg", "dtype=bfloat16", "--engine-arg", f"head_dtype={setting}"]
        assert cli(*command).code == 0
    for order in (shards, shards[::-1]):
        merged = cli("merge", *order, "--out", tmp_path / "whole")
        assert merged.code == 2
        assert "head_dtype" in merged.err


@pytest.mark.real_model
@pytest.mark.slow
def test_no_two_values_of_a_score_are_equal_by_the_rounding_of_the_last_layer(real_model: Path) -> None:
    equal: dict[str, int] = {}
    for setting in ("model", "float32"):
        options = {"dtype": "bfloat16", "head_dtype": setting}
        with Judge(real_model, engine="transformers", engine_args=options, max_rationale_tokens=8) as judge:
            judgements = [one for one in judge.score(EXAMPLE_ROWS) if isinstance(one, Judgement)]
        values = [shares for one in judgements for shares in one.probabilities.values()]
        assert len(values) == 6 * len(EXAMPLE_ROWS)
        equal[setting] = sum(len(set(shares)) < len(shares) for shares in values)
    assert equal["model"] > len(EXAMPLE_ROWS)
    assert equal["float32"] == 0
