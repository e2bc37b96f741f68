"""GGUF files that tests write: of any content, and of the model in a directory."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

F32, Q4_1, Q8_0 = 0, 3, 8
"""Types of tensors."""
_U32, _F32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

GgufTensors = Mapping[str, tuple[list[int], int, bytes]]
"""The dimensions of each tensor, innermost first, its type and its bytes."""


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def value(content: Any) -> bytes:
    """The type and the content of a piece of metadata."""
    if isinstance(content, bool):
        return struct.pack("<I?", _BOOL, content)
    if isinstance(content, int):
        return struct.pack("<II", _U32, content)
    if isinstance(content, float):
        return struct.pack("<If", _F32, content)
    if isinstance(content, str):
        return struct.pack("<I", _STRING) + text(content)
    kinds, parts = {value(each)[:4] for each in content}, [value(each)[4:] for each in content]
    return struct.pack("<I", _ARRAY) + kinds.pop() + struct.pack("<Q", len(parts)) + b"".join(parts)


def write_gguf(file: Path, metadata: Mapping[str, Any], tensors: GgufTensors, version: int = 3) -> Path:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(content) for key, content in metadata.items())
    data = b""
    for name, (dimensions, kind, content) in tensors.items():
        data += bytes(-len(data) % 32)
        shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += text(name) + shape + struct.pack("<IQ", kind, len(data))
        data += content
    file.write_bytes(head + bytes(-len(head) % 32) + data)
    return file


def content_of(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[list[int], int, bytes]]]:
    """The metadata and the float32 tensors of a GGUF file for the Llama in a directory."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    metadata = {
        "general.architecture": "llama",
        "general.name": "random",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokenizer.convert_ids_to_tokens(range(len(tokenizer))),
        "tokenizer.ggml.token_type": [3 if token in added else 1 for token in range(len(tokenizer))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in backend["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.chat_template": tokenizer.chat_template,
    }
    tensors = {}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, weights in load_file(folder / "model.safetensors").items():
        place = name.removesuffix(".weight")
        if place.startswith("model.layers."):
            layer, _, part = place.removeprefix("model.layers.").partition(".")
            own = f"blk.{layer}.{_LAYER[part]}"
            if _LAYER[part] in heads:  # the rotary embedding of llama.cpp pairs neighbouring rows
                halves = weights.unflatten(0, (heads[_LAYER[part]], 2, -1))
                weights = halves.transpose(1, 2).flatten(0, 2)
        else:
            own = _OUTSIDE[place]
        numbers = weights.to(torch.float32).numpy().astype("<f4")
        tensors[f"{own}.weight"] = (list(numbers.shape[::-1]), F32, numbers.tobytes())
    return metadata, tensors


def as_gguf(folder: Path, file: Path, **metadata: Any) -> Path:
    """Write the Llama of a directory as a GGUF file, with further metadata."""
    own, tensors = content_of(folder)
    return write_gguf(file, own | {key.replace("__", "."): each for key, each in metadata.items()}, tensors)


def packed(tensors: GgufTensors) -> dict[str, tuple[list[int], int, bytes]]:
    """The float32 tensors with those of two dimensions packed as Q8_0: a scale for each 32 numbers."""
    found = {}
    for name, (dimensions, _, content) in tensors.items():
        if len(dimensions) == 1:
            found[name] = (dimensions, F32, content)
            continue
        blocks = np.frombuffer(content, "<f4").reshape(-1, 32)
        scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
        numbers = np.rint(blocks / scale.astype("<f4")).astype("i1")
        rows = np.concatenate([scale.view("i1").reshape(-1, 2), numbers], axis=1)
        found[name] = (dimensions, Q8_0, rows.tobytes())
    return found
