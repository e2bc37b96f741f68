"""Tests of plans by the types that a model's files have, and of GPUs by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli
from safetensors.torch import save_file

from localjudge.models.dimensions import read_dimensions
from localjudge.models.gpus import GPU_MEMORY
from localjudge.models.memory_needs import gpu_requirements
from localjudge.models.planned_model import PlannedModel
from localjudge.models.stored_weights import BITS, read_stored_weights
from localjudge.system.quantities import GIB

WIDTH, INNER, WORDS, GROUP = 256, 512, 1000, 128
CONFIG: dict[str, Any] = {
    "model_type": "nobody_knows_this_type",
    "dtype": "bfloat16",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 4096,
}
NUMBERS = WORDS * WIDTH + WIDTH * INNER + WIDTH
"""The weights of the small model: an embedding, one layer, one norm."""


def fp8(method: str = "fp8") -> dict[str, Any]:
    scales = torch.ones(WIDTH // 128, INNER // 128, dtype=torch.float32)
    return {
        "config": {"quant_method": method, "weight_block_size": [128, 128]},
        "layer.weight": torch.zeros(WIDTH, INNER).to(torch.float8_e4m3fn),
        "layer.weight_scale_inv": scales,
    }


def awq() -> dict[str, Any]:
    return {
        "config": {"quant_method": "awq", "bits": 4, "group_size": GROUP},
        "layer.qweight": torch.zeros(WIDTH, INNER // 8, dtype=torch.int32),
        "layer.qzeros": torch.zeros(WIDTH // GROUP, INNER // 8, dtype=torch.int32),
        "layer.scales": torch.zeros(WIDTH // GROUP, INNER, dtype=torch.float16),
    }


def gptq_of_8_bits() -> dict[str, Any]:
    return {
        "config": {"quant_method": "gptq", "bits": 8, "group_size": GROUP},
        "layer.qweight": torch.zeros(WIDTH // 4, INNER, dtype=torch.int32),
        "layer.qzeros": torch.zeros(WIDTH // GROUP, INNER // 4, dtype=torch.int32),
        "layer.scales": torch.zeros(WIDTH // GROUP, INNER, dtype=torch.float16),
        "layer.g_idx": torch.zeros(WIDTH, dtype=torch.int32),
    }


def int8() -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    return {
        "config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}},
        "layer.weight": torch.zeros(INNER, WIDTH, dtype=torch.int8),
        "layer.weight_scale": torch.zeros(INNER, 1, dtype=torch.bfloat16),
    }


def packed_4_bits() -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "group_size": GROUP}
    return {
        "config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}},
        "layer.weight_packed": torch.zeros(INNER, WIDTH // 8, dtype=torch.int32),
        "layer.weight_scale": torch.zeros(INNER, WIDTH // GROUP, dtype=torch.bfloat16),
        "layer.weight_shape": torch.zeros(2, dtype=torch.int64),
    }


def mxfp4() -> dict[str, Any]:
    return {
        "config": {"quant_method": "mxfp4"},
        "layer.down_proj_blocks": torch.zeros(INNER, WIDTH // 32, 16, dtype=torch.uint8),
        "layer.down_proj_scales": torch.zeros(INNER, WIDTH // 32, dtype=torch.uint8),
    }


QUANTISED = (fp8, awq, gptq_of_8_bits, int8, packed_4_bits, mxfp4)


def save(folder: Path, quantised: dict[str, Any]) -> Path:
    """Write a model with an embedding and a norm in bfloat16, and one quantised layer."""
    tensors = dict(quantised)
    config = CONFIG | {"quantization_config": tensors.pop("config")}
    (folder / "config.json").write_text(json.dumps(config))
    tensors["embedding.weight"] = torch.zeros(WORDS, WIDTH, dtype=torch.bfloat16)
    tensors["norm.weight"] = torch.zeros(WIDTH, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors")
    return folder


def data_bytes(file: Path) -> int:
    """The bytes of a safetensors file after its header."""
    content = file.read_bytes()
    return len(content) - 8 - int.from_bytes(content[:8], "little")


@pytest.mark.parametrize("quantised", QUANTISED)
def test_quantised_weights_of_an_unknown_model_are_counted_by_the_types_of_its_files(
    tmp_path: Path, quantised: Any
) -> None:
    folder = save(tmp_path, quantised())
    size = PlannedModel.find(str(folder)).size
    assert size.stored == data_bytes(folder / "model.safetensors")
    assert size.loaded == size.stored, "vLLM keeps them packed"
    assert size.unpacked == 2 * NUMBERS, "in bfloat16, without scales, zero points and indices"
    assert sum(size.types.values()) == size.stored


def test_the_plan_prints_the_types_of_the_files(cli: Cli, tmp_path: Path) -> None:
    folder = save(tmp_path, fp8())
    found = json.loads(cli("models", "plan", folder, "--json").out)
    assert found["types"] == {
        "BF16": 2 * (WORDS * WIDTH + WIDTH),
        "F8_E4M3": WIDTH * INNER,
        "F32": 4 * (WIDTH // 128) * (INNER // 128),
    }
    assert found["weights"] == sum(found["types"].values())
    end = cli("models", "plan", folder)
    assert end.code == 0
    assert "F8_E4M3" in end.out
    assert "nobody_knows_this_type · fp8" in end.out


def test_weights_that_their_files_have_in_float32_count_half_in_vllm_whatever_config_json_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tensors = {"a.weight": torch.zeros(100, 10), "b.weight": torch.zeros(50, dtype=torch.bfloat16)}
    save_file(tensors, tmp_path / "model.safetensors")
    size = PlannedModel.find(str(tmp_path)).size
    assert (size.stored, size.loaded, size.unpacked) == (4100, 2100, 4100)


def test_all_files_of_an_index_are_counted_and_no_other(tmp_path: Path) -> None:
    folder = save(tmp_path, fp8())
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    save_file({"head.weight": torch.zeros(10, 10, dtype=torch.bfloat16)}, folder / "model-2.safetensors")
    save_file({"head.weight": torch.zeros(10, 10)}, folder / "consolidated.safetensors")
    first = ["layer.weight", "layer.weight_scale_inv", "embedding.weight", "norm.weight"]
    files = dict.fromkeys(first, "model-1.safetensors") | {"head.weight": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    read = read_stored_weights(folder, read_dimensions(folder, "tiny"))
    assert read.stored == data_bytes(folder / "model-1.safetensors") + 200
    assert read.unpacked == 2 * (NUMBERS + 100)


def test_a_damaged_file_is_counted_by_its_length_and_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(bytes(1234))
    found = json.loads(cli("models", "plan", tmp_path, "--json").out)
    assert (found["weights"], found["types"]) == (1234, {})
    assert "model.safetensors" in found["how_counted"]


def test_the_bits_of_each_type_are_those_of_torch() -> None:
    names = {
        torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
        torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.float16: "F16",
        torch.bfloat16: "BF16", torch.int32: "I32", torch.float32: "F32", torch.int64: "I64",
        torch.float64: "F64",
    }  # fmt: skip
    for dtype, name in names.items():
        assert BITS[name] == 8 * dtype.itemsize


@pytest.mark.parametrize("name", ["h100", "H100", "a100-40", "A100_40", "rtx4090", "mi300x", "l4", "b200"])
def test_a_gpu_has_its_memory_by_its_name(cli: Cli, name: str) -> None:
    found = json.loads(cli("models", "plan", "qwen3-8b", "--gpu", name, "--json").out)
    assert found["gpu_memory"] == GPU_MEMORY[name.lower().replace("_", "-")] * 2**20
    by_size = cli("models", "plan", "qwen3-8b", "--gpu-memory", found["gpu_memory"] / GIB, "--json")
    assert json.loads(by_size.out) == found


def test_the_memory_of_a_gpu_is_at_most_what_is_sold_and_hardly_less() -> None:
    sold = {
        "t4": 16, "a10": 24, "a10g": 24, "l4": 24, "rtx3090": 24, "rtx4090": 24, "rtx5090": 32, "a40": 48,
        "l40s": 48, "rtx-pro-6000": 96, "a100-40": 40, "a100-80": 80, "h100": 80, "h100-nvl": 94, "h200": 141,
        "b200": 180, "mi300x": 192,
    }  # fmt: skip
    assert sold.keys() == GPU_MEMORY.keys()
    for name, gib in sold.items():
        assert 0.93 * gib < GPU_MEMORY[name] / 1024 <= gib


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--gpu", "h100", "--gpu-memory", "80"], ["--gpu h100", "--gpu-memory 80"]),
        (["--gpu", "h1000"], ["--gpu h1000", "h100", "mi300x", "--gpu-memory"]),
        (["--gpu", ""], ["--gpu", "h100"]),
    ],
)
def test_a_gpu_with_two_sizes_or_an_unknown_name_is_refused_in_one_line(
    cli: Cli, flags: list[str], named: list[str]
) -> None:
    end = cli("models", "plan", "qwen3-8b", *flags)
    assert (end.code, end.out, end.err.count("\n")) == (2, "", 1)
    assert all(each in end.err for each in named)


def test_more_memory_never_holds_fewer_rows() -> None:
    subject = PlannedModel.find("qwen3-8b")
    rows = []
    for mib in sorted(GPU_MEMORY.values()):
        needs = gpu_requirements(subject.dimensions, subject.size.loaded, gpu_memory=mib * 2**20, gpus=1)
        rows.append(min(needs.tried[0].rows, 256))
    assert rows == sorted(rows)
