"""Tiny models with random weights that also take images: a text part and an encoder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from localjudge.models.model_class import ModelClass

ROTATION = {"rope_type": "default", "rope_theta": 10000.0}
_BY_TIME_HEIGHT_AND_WIDTH = {"rope_parameters": ROTATION | {"mrope_section": [2, 3, 3]}}
_TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "pad_token_id": None,
    # Experts.
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    "num_experts_per_tok": 2,
    **dict.fromkeys(("n_shared_experts", "first_k_dense_replace", "n_group", "topk_group"), 1),
    # Keys and values of fewer numbers.
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_topk": 8,
    "index_n_heads": 16,
    "index_head_dim": 16,
}
_ENCODER: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "embed_dim", "width"), 32),
    **dict.fromkeys(("out_hidden_size", "projection_dim", "output_dim", "text_hidden_size"), 32),
    "intermediate_size": 64,
    **dict.fromkeys(("num_hidden_layers", "depth", "layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "heads"), 2),
    "num_key_value_heads": 2,
    "head_dim": 16,
}
_OF_TYPE: dict[str, dict[str, Any]] = {
    "glm46v": _BY_TIME_HEIGHT_AND_WIDTH,
    "qwen2_5_vl": _BY_TIME_HEIGHT_AND_WIDTH,
    "qwen3_vl": _BY_TIME_HEIGHT_AND_WIDTH,
    "kimi_k25": {"head_dim": 8, "num_key_value_heads": 2},
    "step3p7": {"pad_token_id": 0, "sliding_window": 16},
}


def save_vision_model(folder: Path, model_type: str, **text_settings: Any) -> Path:
    """Save a model of a type beside a tokenizer; its predictions are confident."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = _TEXT | _OF_TYPE.get(model_type, {}) | text_settings
    settings |= {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    config = small_config(model_type, settings)
    model_class = ModelClass.of(config)
    assert model_class is not None
    torch.manual_seed(0)
    network = model_class.auto.from_config(config)
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(folder)
    return folder


def small_config(model_type: str, text_settings: dict[str, Any]) -> PreTrainedConfig:
    """Return a configuration whose parts have those of the settings that they know."""
    default = AutoConfig.for_model(model_type)
    parts = {
        "text_config": _known(default.text_config, text_settings),
        "vision_config": _known(default.vision_config, _ENCODER),
    }
    config: PreTrainedConfig = type(default)(**parts)
    return config


def _known(part: PreTrainedConfig, settings: dict[str, Any]) -> dict[str, Any]:
    names = set(part.to_dict()) | set(part.attribute_map)
    known = {name: value for name, value in settings.items() if name in names}
    return known | {"model_type": part.model_type}
