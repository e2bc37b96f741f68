"""Tests of broken model directories: `score` refuses each with one line, and judges no row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli, write_rows
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen3MoeConfig,
)

from localjudge import ModelError
from localjudge.models.model import Model
from localjudge.models.tensor_check import check_tensors

Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """Return a copy of an intact model, for the test to damage."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def change_weights(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def without_feed_forward(folder: Path) -> None:
    change_weights(folder, lambda held: [held.pop(name) for name in list(held) if ".mlp." in name])


def without_feed_forward_in_an_index_as_well(folder: Path) -> None:
    without_feed_forward(folder)
    shard = "model-00001-of-00001.safetensors"
    (folder / WEIGHTS).rename(folder / shard)
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(folder / shard), shard)}
    (folder / INDEX).write_text(json.dumps(index))


def only_a_stranger(folder: Path) -> None:
    save_file({"x": torch.zeros(3)}, folder / WEIGHTS, metadata={"format": "pt"})


def a_stranger_as_well(folder: Path) -> None:
    change_weights(folder, lambda held: held.update({"model.layers.7.mlp.up_proj.weight": torch.zeros(3)}))


def another_width(folder: Path) -> None:
    change_weights(folder, lambda held: held.update({"model.layers.0.mlp.up_proj.weight": torch.zeros(9, 32)}))


def end_at_a_digit(folder: Path) -> None:
    digit = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["2"]
    edit(folder / "generation_config.json", eos_token_id=[1, digit])


def lose_a_digit(folder: Path) -> None:
    layout = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = layout["model"]["vocab"]
    layout["model"]["vocab"] = {text: token for text, token in vocabulary.items() if "3" not in text}
    layout["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(layout))


def a_token_too_many(folder: Path) -> None:
    layout = json.loads((folder / "tokenizer.json").read_text())
    layout["model"]["vocab"]["Ġw"] = 400
    layout["model"]["merges"].insert(0, ["Ġ", "w"])
    (folder / "tokenizer.json").write_text(json.dumps(layout))


def generation_config(content: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "generation_config.json").write_text(content)

    return damage


def remote_attention(folder: Path) -> None:
    edit(folder / "config.json", attn_implementation="kernels-community/flash-attn3")


def remote_experts(folder: Path) -> None:
    edit(folder / "config.json", text_config={"_experts_implementation": {"": "some/experts@v1"}})


END_IDS = "give a token id, a whole number, or a list of them"
DEFECTS = {
    "tensors are missing": (
        without_feed_forward,
        "LlamaForCausalLM that config.json describes: missing model.layers.0.mlp.down_proj.weight, "
        "model.layers.0.mlp.gate_proj.weight, model.layers.0.mlp.up_proj.weight; download the whole model",
    ),
    "tensors are missing, and the index does not name them": (
        without_feed_forward_in_an_index_as_well,
        "missing model.layers.0.mlp.down_proj.weight, ",
    ),
    "one unrelated tensor": (only_a_stranger, "and 8 more; not its own x; download the whole model again"),
    "an unrelated tensor besides": (a_stranger_as_well, "not its own model.layers.7.mlp.up_proj.weight; "),
    "a tensor of another shape": (
        another_width,
        "of another shape model.layers.0.mlp.up_proj.weight [9, 32], not [32, 32]; ",
    ),
    "a digit ends the answer": (
        end_at_a_digit,
        "cannot spell '2', which every answer contains: it has no token",
    ),
    "a digit is missing": (lose_a_digit, "cannot spell '3', which every answer contains: it has no token"),
    "ids beyond the embedding": (
        a_token_too_many,
        "the tokenizer's largest id is 400, and config.json says vocab_size 400",
    ),
    "generation_config.json is cut": (generation_config("{"), "generation_config.json: not JSON: "),
    "generation_config.json is a list": (generation_config("[]"), "generation_config.json: not a JSON object"),
    "an end token is text": (
        generation_config('{"eos_token_id": "1"}'),
        f"generation_config.json: eos_token_id is '1'; {END_IDS}",
    ),
    "an end token is no whole number": (
        generation_config('{"eos_token_id": 1.5}'),
        f"generation_config.json: eos_token_id is '1.5'; {END_IDS}",
    ),
    "end tokens are nested": (
        generation_config('{"eos_token_id": [[1]]}'),
        f"generation_config.json: eos_token_id is '[[1]]'; {END_IDS}",
    ),
    "attention is a program of the hub": (
        remote_attention,
        "config.json names kernels of the hub (kernels-community/flash-attn3), which are programs",
    ),
    "experts are a program of the hub": (remote_experts, "kernels of the hub (some/experts@v1), which"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_model_is_one_line_and_no_judgement(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path, defect: str
) -> None:
    damage, complaint = DEFECTS[defect]
    damage(folder)
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    flags = ("--model", folder, "--rubric", short_rubric, "--engine", "transformers")
    end = cli("score", rows, "--out", tmp_path / "run", *flags)
    last = end.err.splitlines()[-1]
    assert end.code == 2, end.err
    assert last.startswith(f"localjudge: model {folder}: ")
    assert last.count(str(folder)) == 1
    assert complaint in last
    assert not (tmp_path / "run" / "judgements.jsonl").exists()
    assert cli("models", "verify", folder).code == 2, "verify refuses what score refuses"


def test_an_index_without_metadata_is_enough(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path
) -> None:
    shard = "model-00001-of-00001.safetensors"
    (folder / WEIGHTS).rename(folder / shard)
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(load_file(folder / shard), shard)}))
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    flags = ("--model", folder, "--rubric", short_rubric, "--max-rationale-tokens", 3)
    end = cli("score", rows, "--out", tmp_path / "run", *flags)
    assert end.code == 0, end.err


SMALL = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2,
}  # fmt: skip
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ARCHITECTURES = {
    "tied embeddings": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "gemma 3": Gemma3TextConfig(**SMALL, head_dim=16),
    "experts stored one by one": Qwen3MoeConfig(**SMALL, **SPARSE),
    "experts under other names": MixtralConfig(**SMALL, num_local_experts=4),
    "experts stored together": GptOssConfig(**SMALL, num_local_experts=4, head_dim=16),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_transformers_saves_is_whole_and_with_one_tensor_less_it_is_not(tmp_path: Path, name: str) -> None:
    folder = saved(ARCHITECTURES[name], tmp_path)
    assert check_tensors(Model("it", folder)).complete
    tensors = load_file(folder / WEIGHTS)
    lost = max(name for name in tensors if "down_proj" in name or "w2" in name)
    change_weights(folder, lambda held: held.pop(lost))
    with pytest.raises(ModelError, match=r"its weights do not match the \w+ that config.json describes"):
        check_tensors(Model("it", folder))


def saved(config: PreTrainedConfig, folder: Path) -> Path:
    """Write a model with this configuration, without a tokenizer."""
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


# The tensors with which each quantization method replaces `weight` in a layer.
PACKED = {
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "awq": ("qweight", "qzeros", "scales"),
    "fp8": ("weight", "weight_scale_inv"),
    "bitsandbytes": ("weight", "weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4"),
    "compressed-tensors": ("weight_packed", "weight_scale", "weight_shape"),
}


def pack_layers(tensors: Tensors, method: str) -> None:
    for name in [name for name in tensors if "_proj." in name and name.endswith(".weight")]:
        del tensors[name]
        tensors |= {name.removesuffix("weight") + part: torch.zeros(4, 1) for part in PACKED[method]}


@pytest.mark.parametrize("config", ["tied embeddings", "experts stored one by one"])
@pytest.mark.parametrize("method", PACKED)
def test_packed_layers_are_not_refused_but_a_lost_or_foreign_one_is(
    tmp_path: Path, method: str, config: str
) -> None:
    folder = saved(ARCHITECTURES[config], tmp_path)
    edit(folder / "config.json", quantization_config={"quant_method": method, "bits": 4})
    change_weights(folder, lambda held: pack_layers(held, method))
    whole = load_file(folder / WEIGHTS)
    found = check_tensors(Model("it", folder))
    assert not found.complete
    assert f"packed by {method}: every layer found" in found.words
    for change, complaint in (
        (lambda held: [held.pop(name) for name in whole if "1.self_attn.q_proj" in name], "missing"),
        (lambda held: held.pop("model.norm.weight"), "missing model.norm.weight;"),
        (
            lambda held: held.update({"model.norm.weight": torch.zeros(5)}),
            r"model.norm.weight \[5\], not \[32\];",
        ),
        (
            lambda held: held.update({"model.layers.9.mlp.up_proj.qweight": torch.zeros(5)}),
            "not its own model.l",
        ),
    ):
        save_file(whole, folder / WEIGHTS, metadata={"format": "pt"})
        change_weights(folder, change)
        with pytest.raises(ModelError, match=complaint):
            check_tensors(Model("it", folder))


def test_experts_packed_as_blocks_are_not_refused(tmp_path: Path) -> None:
    folder = saved(ARCHITECTURES["experts stored together"], tmp_path)
    edit(folder / "config.json", quantization_config={"quant_method": "mxfp4"})

    def pack(held: Tensors) -> None:
        for name in [name for name in held if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            del held[name]
            held |= {f"{name}_blocks": torch.zeros(4, 2, 1, 16), f"{name}_scales": torch.zeros(4, 2, 1)}

    change_weights(folder, pack)
    assert "packed by mxfp4" in check_tensors(Model("it", folder)).words
