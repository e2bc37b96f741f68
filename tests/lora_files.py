"""LoRA adapters that tests write, as PEFT saves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

MODULES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")


def write_adapter(
    folder: Path,
    model: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    std: float = 0.5,
    modules: Sequence[str] = MODULES,
    **settings: Any,
) -> Path:
    """Write an adapter of random matrices for these modules of each layer of the model in a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    with safe_open(model / "model.safetensors", framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 (it is no dict)
            module = name.removesuffix(".weight")
            if module.endswith(tuple(modules)):
                outputs, inputs = weights.get_slice(name).get_shape()
                for part, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                    matrix = torch.randn(shape, generator=generator) * std
                    tensors[f"base_model.model.{module}.lora_{part}.weight"] = matrix
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": [module.rpartition(".")[2] for module in modules],
        "base_model_name_or_path": "some/one",
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | settings))
    return folder
