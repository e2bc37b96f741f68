"""The type in which vLLM is told to compute the last layer, without vLLM; `with_vllm` has what it computes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli
from safetensors.torch import save_file
from transformers import LlamaConfig

from localjudge.engines.engine_options import VllmOptions
from localjudge.engines.vllm.head_type import choose_head, last_layer
from localjudge.errors import ModelError, SettingError
from localjudge.models.last_layer import LastLayer, stored_last_layer
from localjudge.models.model import Model
from localjudge.system.machine import Machine

FLOAT32 = {"head_dtype": "float32"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
PLAIN = {"lm_head.weight": torch.zeros(8, 4, dtype=torch.bfloat16)}
PACKED = {
    "lm_head.qweight": torch.zeros(8, 4, dtype=torch.int32),
    "lm_head.scales": torch.zeros(1, 4, dtype=torch.float16),
}


def checkpoint(
    folder: Path,
    tensors: dict[str, torch.Tensor] | None,
    quantization: dict[str, Any] | None = None,
    *,
    tied: bool = False,
) -> Model:
    """Return a model with these tensors alone; None stands for a directory without weights."""
    folder.mkdir(exist_ok=True)
    configuration = LlamaConfig(vocab_size=8, hidden_size=4, num_attention_heads=1, tie_word_embeddings=tied)
    configuration.save_pretrained(folder)
    if quantization is not None:
        file = folder / "config.json"
        document = json.loads(file.read_text()) | {"quantization_config": quantization}
        file.write_text(json.dumps(document))
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return Model("judge", folder)


# Options


def test_the_type_of_the_last_layer_is_no_argument_of_vllm() -> None:
    options = VllmOptions.parse({"head_dtype": "float32", "max_num_seqs": "8"})
    assert options.head_dtype == "float32"
    assert options.arguments == {"max_num_seqs": 8}
    assert VllmOptions.parse({}).head_dtype == "auto"


@pytest.mark.parametrize(
    "wrong",
    [
        {"head_dtype": "float16"},
        {"head_dtype": ""},
        {"hf_overrides": "rope_theta"},
        {"hf_overrides": "[1]"},
        {"hf_overrides": '{"head_dtype": "float32"}'},
        {"hf_overrides": '{"head_dtype": "model"}', "head_dtype": "float32"},
    ],
    ids=str,
)
def test_a_wrong_type_and_a_second_statement_of_it_are_refused_by_name(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingError) as raised:
        VllmOptions.parse(wrong)
    name = next(iter(wrong))
    assert f"{name}={wrong[name]}" in str(raised.value)


# Quantized layers


@pytest.mark.parametrize(
    ("tensors", "quantization", "state"),
    [
        (PLAIN, None, LastLayer.PLAIN),
        (None, None, LastLayer.PLAIN),
        (PLAIN, GPTQ, LastLayer.PLAIN),
        (PACKED, GPTQ, LastLayer.QUANTIZED),
        (PLAIN, GPTQ | {"lm_head": True}, LastLayer.QUANTIZED),
        (None, GPTQ, LastLayer.UNKNOWN),
        ({"model.norm.weight": torch.zeros(4)}, GPTQ, LastLayer.UNKNOWN),
        (
            {"lm_head.weight": torch.zeros(8, 4, dtype=torch.float8_e4m3fn)},
            {"quant_method": "fp8", "activation_scheme": "dynamic"},
            LastLayer.QUANTIZED,
        ),
        (
            {"lm_head.weight": torch.zeros(8, 4, dtype=torch.uint8), "lm_head.weight.absmax": torch.zeros(1)},
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            LastLayer.QUANTIZED,
        ),
        ({"language_model.lm_head.weight_packed": torch.zeros(8, 1)}, GPTQ, LastLayer.QUANTIZED),
    ],
)
def test_a_last_layer_is_quantized_by_the_headers_of_its_tensors(
    tensors: dict[str, torch.Tensor] | None,
    quantization: dict[str, Any] | None,
    state: LastLayer,
    tmp_path: Path,
) -> None:
    assert stored_last_layer(checkpoint(tmp_path, tensors, quantization)) is state


def test_tied_embeddings_are_the_last_layer(tmp_path: Path) -> None:
    plain = {"model.embed_tokens.weight": torch.zeros(8, 4, dtype=torch.float16)}
    packed = {"model.embed_tokens.weight_packed": torch.zeros(8, 1, dtype=torch.int32)}
    assert stored_last_layer(checkpoint(tmp_path / "a", plain, GPTQ, tied=True)) is LastLayer.PLAIN
    assert stored_last_layer(checkpoint(tmp_path / "b", packed, GPTQ, tied=True)) is LastLayer.QUANTIZED
    # Without the layer's own tensors, the embeddings of a model that does not tie them say nothing.
    assert stored_last_layer(checkpoint(tmp_path / "c", plain, GPTQ)) is LastLayer.UNKNOWN


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "qwen3_vl", "tie_word_embeddings": True},
        {"model_type": "llava", "tie_word_embeddings": True},
        {"model_type": "llava", "text_config": {"model_type": "llama", "tie_word_embeddings": True}},
    ],
    ids=["qwen3_vl", "llava", "text part of llava"],
)
def test_the_embeddings_are_the_last_layer_if_either_part_of_an_image_model_ties_them(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    packed = {"model.language_model.embed_tokens.weight_packed": torch.zeros(8, 1, dtype=torch.int32)}
    (tmp_path / "config.json").write_text(json.dumps(settings | {"quantization_config": GPTQ}))
    save_file(packed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert stored_last_layer(Model("judge", tmp_path)) is LastLayer.QUANTIZED


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        ({}, LastLayer.PLAIN),
        ({"quantization": "fp8"}, LastLayer.PLAIN),
        ({"quantization": "int8_per_channel_weight_only"}, LastLayer.PLAIN),
        ({"quantization": "of_a_plugin"}, LastLayer.UNKNOWN),
        ({"load_format": "bitsandbytes"}, LastLayer.UNKNOWN),
        ({"hf_overrides": {"quantization_config": GPTQ}}, LastLayer.UNKNOWN),
    ],
    ids=str,
)
def test_weights_that_are_quantized_while_they_are_loaded(
    arguments: dict[str, Any], state: LastLayer, tmp_path: Path
) -> None:
    assert last_layer(checkpoint(tmp_path, PLAIN), arguments) is state


def test_a_quantization_that_names_the_one_of_the_checkpoint_changes_nothing(tmp_path: Path) -> None:
    plain = checkpoint(tmp_path / "plain", PLAIN, GPTQ)
    packed = checkpoint(tmp_path / "packed", PACKED, GPTQ)
    assert last_layer(plain, {"quantization": "gptq_marlin"}) is LastLayer.PLAIN
    assert last_layer(packed, {"quantization": "gptq_marlin"}) is LastLayer.QUANTIZED


# The choice


@pytest.mark.parametrize(
    ("asked", "on_gpu", "overrides"),
    [
        ("auto", True, FLOAT32),
        ("auto", False, {}),
        ("float32", True, FLOAT32),
        ("float32", False, FLOAT32),
        ("model", True, {"head_dtype": "model"}),
        ("model", False, {"head_dtype": "model"}),
    ],
)
def test_by_default_float32_is_for_gpus(
    asked: str, on_gpu: bool, overrides: dict[str, str], tmp_path: Path
) -> None:
    model = checkpoint(tmp_path, PLAIN)
    choice = choose_head(model, VllmOptions.parse({"head_dtype": asked}), on_gpu=on_gpu)
    assert choice.overrides == overrides
    assert bool(choice.remark) == (asked == "auto" and not on_gpu)


def test_a_quantized_last_layer_keeps_its_type_and_is_refused_in_float32(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, PACKED, GPTQ)
    choice = choose_head(model, VllmOptions({}), on_gpu=True)
    assert choice.overrides == {}
    assert choice.remark == LastLayer.QUANTIZED.value
    with pytest.raises(ModelError, match="head_dtype=float32"):
        choose_head(model, VllmOptions({}, "float32"), on_gpu=True)
    assert choose_head(model, VllmOptions({}, "model"), on_gpu=True).overrides == {"head_dtype": "model"}


def test_where_it_cannot_be_known_only_a_request_is_tried(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, None, GPTQ)
    assert choose_head(model, VllmOptions({}), on_gpu=True).overrides == {}
    assert choose_head(model, VllmOptions({}, "float32"), on_gpu=True).overrides == FLOAT32


# The flags of a server


def printed_overrides(cli: Cli, model: Path, table: Path, *flags: str) -> dict[str, Any] | None:
    """Return the value of `--hf-overrides` in the printed command; None without one."""
    ended = cli("serve", "--print-vllm-flags", "--model", model, "--table", table, *flags)
    assert ended.code == 0, ended.err
    command = shlex.split(ended.out)
    if "--hf-overrides" not in command:
        return None
    overrides: dict[str, Any] = json.loads(command[command.index("--hf-overrides") + 1])
    return overrides


def test_the_command_of_a_server_has_the_type_of_its_last_layer(
    cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed(*flags: str) -> dict[str, Any] | None:
        return printed_overrides(cli, model, tmp_path / "table.npz", *flags)

    monkeypatch.setattr(Machine, "here", lambda: Machine((), None))
    assert printed() is None
    assert printed("--engine-arg", "head_dtype=float32") == FLOAT32
    # The V2 runner needs a GPU, so the server is on another machine.
    assert printed("--runner", "V2") == FLOAT32
    assert printed("--runner", "V2", "--engine-arg", "head_dtype=model") == {"head_dtype": "model"}

    monkeypatch.setattr(Machine, "here", lambda: Machine((("a GPU", 2**34),), None))
    assert printed() == printed("--runner", "V1") == FLOAT32
    others = 'hf_overrides={"rope_theta": 20000.0}'
    assert printed("--engine-arg", others) == {"rope_theta": 20000.0} | FLOAT32


@pytest.mark.parametrize("command", [["serve", "--print-vllm-flags"], ["score", "--engine", "dry-run"]])
def test_a_wrong_type_ends_the_command_and_names_the_flag(
    cli: Cli, command: list[str], model: Path, tmp_path: Path
) -> None:
    if command[0] == "score":
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"instruction": "Name a river.", "reference": "Elbe", "candidate": "Rhine"}))
        command = [*command, str(rows), "--out", str(tmp_path / "run")]
    ended = cli(*command, "--model", model, "--engine-arg", "head_dtype=float64")
    assert ended.code == 2
    assert "--engine-arg head_dtype=float64" in ended.err.splitlines()[-1]
