"""The type of the last layer in the real vLLM: its logits, what is reported, and which layers it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

pytest.importorskip("vllm")

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod

from localjudge.engines.protocol import Decoding
from localjudge.engines.vllm.vllm_engine import VllmEngine
from localjudge.errors import ModelError
from localjudge.models.last_layer import LastLayer, stored_last_layer
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the warnings are vLLM's own

OpenEngine = Callable[..., Any]
PROMPTS = [Prompt(number, [11 + number, *range(20, 40 + number)], number) for number in range(20)]
OVERRIDES = json.dumps({"rope_theta": 20000.0})


@pytest.fixture(scope="module")
def coarse(open_engine: OpenEngine, close_values: Model, decoding: Decoding) -> VllmEngine:
    """The last layer in bfloat16, as `auto` leaves it on a CPU."""
    return open_engine(close_values, decoding, dtype="bfloat16", max_num_seqs=16)


@pytest.fixture(scope="module")
def fine(open_engine: OpenEngine, close_values: Model, decoding: Decoding) -> VllmEngine:
    """The last layer in float32, beside another override of the configuration."""
    options = {"dtype": "bfloat16", "head_dtype": "float32", "hf_overrides": OVERRIDES}
    return open_engine(close_values, decoding, max_num_seqs=16, **options)


def largest_error(engine: VllmEngine) -> float:
    """The largest error of a logit of vLLM's last layer, beside the same layer in float64.

    The hidden states are so large that logits reach 30.
    """

    def error(network: Any) -> float:
        weight = network.lm_head.weight
        torch.manual_seed(0)
        hidden = 3 * torch.randn(16, weight.shape[1]).to(torch.bfloat16)
        logits = network.compute_logits(hidden)
        exact = hidden.double() @ weight.double().T
        exact = exact[:, : logits.shape[1]]
        assert exact.abs().max() > 30
        return float((logits.double() - exact).abs().max())

    (found,) = engine.llm.apply_model(error)
    return float(found)


def equal_values(engine: VllmEngine) -> int:
    """The number of scores with two values of equal probability."""
    count = 0
    for completions in engine.complete(PROMPTS):
        for completion in completions:
            assert completion.probabilities is not None
            count += sum(len(set(shares)) < len(shares) for shares in completion.probabilities.tolist())
    return count


def test_logits_are_those_of_an_exact_last_layer(coarse: VllmEngine, fine: VllmEngine) -> None:
    assert largest_error(coarse) > 0.05
    assert largest_error(fine) < 1e-4


def test_no_two_values_of_a_score_are_equal_by_rounding(coarse: VllmEngine, fine: VllmEngine) -> None:
    assert equal_values(coarse) > 20
    assert equal_values(fine) == 0


def test_the_type_in_use_is_reported_and_other_overrides_stay(coarse: VllmEngine, fine: VllmEngine) -> None:
    assert coarse.info.settings == {"engine": "vllm", "dtype": "bfloat16"}
    assert coarse.info.head_dtype == "bfloat16"
    assert "head_dtype=float32" in coarse.info.headline
    assert fine.info.settings == {"engine": "vllm", "dtype": "bfloat16", "head_dtype": "float32"}
    assert "bfloat16, values in float32" in fine.info.headline
    configuration = fine.llm.llm_engine.vllm_config.model_config.hf_config
    assert configuration.rope_theta == 20000.0


def test_a_model_in_float32_has_the_same_settings_whatever_was_asked_for(
    open_engine: OpenEngine, model: Model, decoding: Decoding
) -> None:
    engine = open_engine(model, decoding, head_dtype="float32")
    assert engine.info.head_dtype == "float32"
    assert engine.info.settings == {"engine": "vllm", "dtype": "float32"}


def test_a_run_is_continued_and_repeated_only_with_the_same_type_of_the_last_layer(
    model: Model, options: dict[str, str], tmp_path: Path, cli: Any
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"instruction": "Name a river.", "reference": "Elbe", "candidate": "Rhine"}))
    out = tmp_path / "run"
    command = ["score", rows, "--model", model.path, "--engine", "vllm", "--out", out]
    command += ["--max-rationale-tokens", 6]
    for name, value in (options | {"dtype": "bfloat16", "max_model_len": "4096"}).items():
        command += ["--engine-arg", f"{name}={value}"]
    scored = cli(*command, "--engine-arg", "head_dtype=float32")
    assert scored.code == 0, scored.err
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["settings"]["head_dtype"] == manifest["starts"][0]["engine"]["head_dtype"] == "float32"
    otherwise = cli(*command)
    assert otherwise.code == 2
    assert "head_dtype" in otherwise.err
    assert cli(*command, "--engine-arg", "head_dtype=float32").code == 0
    assert cli("audit", out, "--check", "repeat").code == 0


# Quantized layers

GROUP = {"bits": 4, "group_size": 32}
PACKED = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
GPTQ = {"quant_method": "gptq", "desc_act": False, "sym": True, **GROUP}
AWQ = {"quant_method": "awq", "zero_point": True, **GROUP}


def compressed(*targets: str, ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    groups = {"group_0": {"targets": list(targets), "weights": PACKED}}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": list(ignore),
        "config_groups": groups,
    }


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        (GPTQ, LastLayer.PLAIN),
        (GPTQ | {"lm_head": True}, LastLayer.QUANTIZED),
        (AWQ, LastLayer.PLAIN),
        (AWQ | {"lm_head": True}, LastLayer.QUANTIZED),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, LastLayer.PLAIN),
        (compressed("Linear", ignore=("lm_head",)), LastLayer.PLAIN),
        (compressed("Linear"), LastLayer.PLAIN),
        (compressed("Linear", "re:.*lm_head"), LastLayer.QUANTIZED),
    ],
    ids=[
        "gptq",
        "gptq with the head",
        "awq",
        "awq with the head",
        "fp8",
        "compressed without the head",
        "compressed linear layers",
        "compressed with the head",
    ],
)
def test_the_headers_tell_which_last_layers_vllm_has_quantized(
    settings: dict[str, Any], state: LastLayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those that vLLM itself wants of a checkpoint with these settings."""
    # A layer that is not part of an engine, in one process.
    monkeypatch.setattr("vllm.model_executor.parameter.get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr("vllm.model_executor.parameter.get_tensor_model_parallel_world_size", lambda: 1)
    quantization = get_quantization_config(settings["quant_method"]).from_config(dict(settings))
    with set_current_vllm_config(VllmConfig()):
        layer = ParallelLMHead(
            64, 64, params_dtype=torch.bfloat16, quant_config=quantization, prefix="lm_head", disable_tp=True
        )
    plain = isinstance(layer.quant_method, UnquantizedEmbeddingMethod | UnquantizedLinearMethod)
    weights = {f"lm_head.{name}": each.detach().clone() for name, each in layer.named_parameters()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    configuration = LlamaConfig(vocab_size=64, hidden_size=64, tie_word_embeddings=False)
    configuration.save_pretrained(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(document | {"quantization_config": settings}))
    assert plain == (state is LastLayer.PLAIN)
    assert stored_last_layer(Model("quantized", tmp_path)) is state


def test_a_quantized_last_layer_in_float32_is_refused_before_vllm_starts(
    open_engine: OpenEngine,
    model: Model,
    decoding: Decoding,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for file in model.path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    document = json.loads((model.path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    quantized = document | {"quantization_config": GPTQ | {"lm_head": True}}
    (tmp_path / "config.json").write_text(json.dumps(quantized))

    def start(**_: object) -> None:
        raise AssertionError("vLLM was started")

    monkeypatch.setattr("localjudge.engines.vllm.vllm_engine.LLM", start)
    with pytest.raises(ModelError, match="head_dtype=float32"):
        open_engine(Model.find(tmp_path), decoding, dtype="bfloat16", head_dtype="float32", load_format="dummy")
