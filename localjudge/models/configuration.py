"""Read a model's shape from its `config.json`.

This is plain arithmetic on the configuration's numbers; nothing is loaded, and no library for the model is
needed. Parameters are counted as in the published modelling code: projections of attention
(Vaswani et al. 2017, grouped heads after Ainslie et al. 2023, the latent of DeepSeek-V2, arXiv:2405.04434,
section 2.1), gated feed-forward blocks (Shazeer 2020), experts, embeddings, norms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.shape import BYTES, Layer, Quantization, Shape

_ALIASES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head",),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim"),
    "max_position_embeddings": ("n_positions", "max_seq_len"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("top_k_experts", "moe_top_k", "num_experts_per_token"),
    "head_dim": ("attention_head_dim",),
    "dtype": ("torch_dtype",),
}
_MOST_LAYERS = 10_000
# Types whose parameter count a test compares with the modelling code.
_COUNTED = {
    "cohere2", "deepseek_v3", "gemma2", "gemma3_text", "gemma4_text", "glm4_moe", "gpt_oss", "granite", "llama",
    "mistral", "mixtral", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "qwen3_5_moe_text", "qwen3_5_text",
    "qwen3_moe", "smollm3",
}  # fmt: skip
# For configurations that do not list the layers with a window: one layer in this many has none.
_WINDOW_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "gemma4_text": 6, "cohere2": 4, "gpt_oss": 2, "exaone4": 4}
_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
}


def read_document(file: Path, name: str) -> dict[str, Any]:
    """Read one of the JSON files of a model.

    Args:
        file: the file, such as `config.json`.
        name: the model's name, for the message.

    Raises:
        ModelError: the file is missing, or is not a JSON object.
    """
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"model {name}: {file.parent} has no {file.name}; give a model directory") from None
    except OSError as error:
        raise ModelError(f"model {name}: {file.name}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"model {name}: {file.name}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ModelError(f"model {name}: {file.name}: not a JSON object")
    return document


def remote_kernels(config: Mapping[str, Any]) -> list[str]:
    """Return the repositories of compiled kernels that a configuration tells transformers to download.

    They occur as the name of an implementation: `"attn_implementation": "kernels-community/flash-attn3"`, also
    in a nested configuration, or in a mapping with a name for each part of the model.
    """
    found: set[str] = set()
    for key, value in config.items():
        parts = value if isinstance(value, Mapping) else {key: value}
        if "implementation" in key:
            found |= {str(part) for part in parts.values() if isinstance(part, str) and "/" in part}
        elif isinstance(value, Mapping):
            found |= set(remote_kernels(value))
    return sorted(found)


def remote_code(configuration: Mapping[str, Any]) -> Iterator[str]:
    """Yield the code files that a configuration tells the library to run."""
    named = configuration.get("auto_map")
    for value in named.values() if isinstance(named, dict) else []:
        for reference in value if isinstance(value, list) else [value]:
            if reference:
                yield f"{str(reference).rpartition('--')[2].partition('.')[0]}.py"


def read_shape(folder: Path, name: str) -> Shape:
    """Return the shape of the model in this directory.

    Raises:
        ModelError: there is no configuration, or the size of the model cannot be computed from it.
    """
    return shape_of(read_document(folder / "config.json", name), name)


def shape_of(config: Mapping[str, Any], name: str) -> Shape:
    """Return the shape that a configuration describes; of a multimodal model, the shape of its text part.

    Raises:
        ModelError: the size of the model cannot be computed from it.
    """
    try:
        return _ConfigurationReader(config, name).shape()
    except (
        ArithmeticError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:  # for example a number instead of a list
        raise ModelError(f"model {name}: its config.json is inconsistent: {error}") from None


class _ConfigurationReader:
    """Reads a configuration with the names that its model family uses."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        inner = config.get("text_config") or config.get("llm_config") or config.get("language_config")
        self._outer = config
        self._config: Mapping[str, Any] = inner if isinstance(inner, dict) else config
        self._name = name
        self._type = str(self._config.get("model_type") or config.get("model_type") or "")
        self._hidden = self._number("hidden_size")
        self._heads = self._number("num_attention_heads")
        self._count = self._number("num_hidden_layers")
        if self._count > _MOST_LAYERS:
            raise ModelError(
                f"model {name}: its config.json names {self._count} layers, more than any model has"
            )
        self._inner = self._number("intermediate_size", 4 * self._hidden)
        self._experts = self._number("num_experts", 0)
        self._per_token = self._number("num_experts_per_tok", 0) if self._experts else 0
        self._expert_inner = self._number("moe_intermediate_size", self._inner) if self._experts else 0
        self._shared_inner = self._number(
            "shared_expert_intermediate_size",
            self._number("moe_shared_expert_intermediate_size", 0)
            or self._expert_inner * self._number("n_shared_experts", 0),
        )

    def shape(self) -> Shape:
        kinds = self._kinds()
        window = self._get("sliding_window") or self._get("attention_chunk_size")
        quantization = Quantization.from_config(
            self._outer.get("quantization_config") or self._config.get("quantization_config"), self._name
        )
        shared = self._number("num_kv_shared_layers", 0)
        layers = tuple(
            self._layer(index, kind, shares=index >= self._count - shared) for index, kind in enumerate(kinds)
        )
        block = quantization.block if quantization else 0
        widths = {self._expert_inner} if self._experts else {self._inner}
        return Shape(
            model_type=self._type,
            dtype=self._dtype(),
            hidden=self._hidden,
            intermediate=max(self._inner, self._per_token * self._expert_inner + self._shared_inner),
            heads=self._heads,
            vocabulary=self._number("vocab_size"),
            context=self._number("max_position_embeddings", 0) or None,
            window=int(window) if window and "sliding" in kinds else None,
            tied=bool(self._get("tie_word_embeddings", self._type.startswith(("gemma", "cohere")))),
            layer_embedding=self._layer_embedding(),
            layers=layers,
            quantized_blocks=tuple((width, block) for width in sorted(widths)) if block else (),
            quantization=quantization,
            estimated=self._type not in _COUNTED,
        )

    def _get(self, name: str, default: Any = None) -> Any:
        for config in (self._config, self._outer):
            for each in (name, *_ALIASES.get(name, ())):
                if config.get(each) is not None:
                    return config[each]
        return default

    def _number(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            said = "does not name" if value is None else "has no whole number for"
            raise ModelError(f"model {self._name}: its config.json {said} {name}")
        if value == 0 and default is None:
            raise ModelError(f"model {self._name}: its config.json says 0 for {name}")
        return value

    def _dtype(self) -> str:
        dtype = str(self._get("dtype", "bfloat16")).removeprefix("torch.")
        if dtype not in BYTES:
            raise ModelError(
                f"model {self._name}: config.json has the unknown dtype {dtype}; known are {', '.join(BYTES)}"
            )
        return dtype

    def _kinds(self) -> list[str]:
        named = self._get("layer_types")
        if isinstance(named, list) and len(named) >= self._count:
            return [_KINDS.get(str(kind), "other") for kind in named[: self._count]]
        if self._get("block_configs"):  # from architecture search: all layers differ
            return ["other"] * self._count
        hybrid = self._get("hybrid_override_pattern")
        if hybrid or self._get("mamba_d_state") or self._get("ssm_state_size"):
            pattern = str(hybrid or "").ljust(self._count, "M")
            return ["full" if letter == "*" else "other" for letter in pattern[: self._count]]
        if every := self._get("full_attention_interval"):
            return ["full" if index % every == every - 1 else "linear" for index in range(self._count)]
        if not self._get("sliding_window") or self._get("use_sliding_window") is False:
            return ["full"] * self._count
        if self._get("use_sliding_window"):  # Qwen: the first layers have no window
            first = self._number("max_window_layers", 0)
            return ["full" if index < first else "sliding" for index in range(self._count)]
        every = self._get("sliding_window_pattern", _WINDOW_PATTERNS.get(self._type, 0))
        if not isinstance(every, int) or every < 1:
            return ["sliding"] * self._count
        return ["full" if index % every == every - 1 else "sliding" for index in range(self._count)]

    def _layer(self, index: int, kind: str, *, shares: bool) -> Layer:
        if kind == "linear":
            values, kv_heads, (state, weights, small) = 0, 1, self._linear()
        else:
            state = 0
            values, kv_heads, weights, small = (
                self._latent() if self._get("kv_lora_rank") else self._grouped(index, kind)
            )
            values = 0 if shares or (kind == "other") else values
        experts = active = 0
        width = self._inner
        if self._is_sparse(index):
            one = 3 * self._hidden * self._expert_inner
            if self._type == "gpt_oss":  # its experts have biases
                one += 2 * self._expert_inner + self._hidden
                small += self._experts
            experts, active = one * self._experts, one * self._per_token
            small += self._hidden * self._experts
            width = self._shared_inner
            if self._get("enable_moe_block"):  # Gemma 4 has a block for every token besides the experts
                width = self._inner
                small += 4 * self._hidden + self._experts  # with three more norms and two more scales
            if self._type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5_moe")):
                small += self._hidden  # the gate of the shared expert
        weights += 3 * self._hidden * width
        norms = 4 if self._type.startswith(("gemma2", "gemma3", "gemma4")) else 2
        small += self._hidden * (1 if self._type.startswith("cohere") else norms)
        return Layer(kind, kv_heads, values, state, weights, experts, active, small)

    def _layer_embedding(self) -> int:
        """Return the parameters of Gemma 3n's and 4's embedding per layer, with its projections."""
        width = self._number("hidden_size_per_layer_input", 0)
        if not width:
            return 0
        vocabulary = self._number("vocab_size_per_layer_input", self._number("vocab_size"))
        inout = 3 * self._hidden * width + self._hidden
        return self._count * (vocabulary * width + inout) + width

    def _is_sparse(self, index: int) -> bool:
        if not self._experts or index < self._number("first_k_dense_replace", 0):
            return False
        if index in (self._get("mlp_only_layers") or ()):
            return False
        step = self._number("decoder_sparse_step", 0) or self._number("interleave_moe_layer_step", 0) or 1
        return (index + 1) % step == 0

    def _grouped(self, index: int, kind: str) -> tuple[int, int, int, int]:
        """Return numbers cached per token, key-value heads, weights and small parameters of grouped heads."""
        size = self._number("head_dim", self._hidden // self._heads)
        kv_heads = self._number("num_key_value_heads", 1 if self._get("multi_query") else self._heads)
        keys_are_values = kind == "full" and bool(self._get("attention_k_eq_v"))  # Gemma 4
        if kind == "full" and self._get("global_head_dim"):
            size = self._number("global_head_dim")
            kv_heads = self._number("num_global_key_value_heads", kv_heads)
        own = (self._get("per_layer_config") or {}).get(str(index))  # the same setting in transformers 5
        if isinstance(own, Mapping):
            size, kv_heads = int(own.get("head_dim", size)), int(own.get("num_key_value_heads", kv_heads))
        queries, keys = self._heads * size, kv_heads * size
        gated = self._get("attn_output_gate", self._type.startswith(("qwen3_5", "qwen3_next")))
        projections = self._hidden * (queries * (3 if gated else 2) + keys * (1 if keys_are_values else 2))
        small = 0
        if self._get("attention_bias", self._type in ("qwen2", "qwen2_moe")):
            small += queries + 2 * keys + (self._hidden if self._type in ("llama", "gpt_oss") else 0)
        if self._type == "gpt_oss":
            small += self._heads  # the sinks
        if self._type.startswith(("qwen3", "gemma3", "gemma4")):
            small += 2 * size
        if self._type.startswith(("olmo2", "olmo3")):
            small += queries + keys
        return 2 * keys, kv_heads, projections, small

    def _latent(self) -> tuple[int, int, int, int]:
        """Return the same numbers for multi-head latent attention, which caches one latent and one rotary key
        for all heads (arXiv:2405.04434, section 2.1.3)."""
        latent, rotary = self._number("kv_lora_rank"), self._number("qk_rope_head_dim")
        plain, value = self._number("qk_nope_head_dim"), self._number("v_head_dim")
        rank = self._number("q_lora_rank", 0)
        queries = self._heads * (plain + rotary)
        projections = self._hidden * (rank or queries) + rank * queries
        projections += self._hidden * (latent + rotary) + latent * self._heads * (plain + value)
        projections += self._heads * value * self._hidden
        return latent + rotary, 1, projections, rank + latent

    def _linear(self) -> tuple[int, int, int]:
        """Return gated delta networks (arXiv:2412.06464): bytes of a row's state, weights, small parameters.

        As in Qwen3-Next and Qwen3.5: one float32 matrix per head, and the last inputs of a convolution."""
        key_heads, key = self._number("linear_num_key_heads"), self._number("linear_key_head_dim")
        heads, value = self._number("linear_num_value_heads"), self._number("linear_value_head_dim")
        kernel = self._number("linear_conv_kernel_dim")
        mixed = 2 * key_heads * key + heads * value
        state = 4 * heads * key * value + BYTES[self._dtype()] * mixed * kernel
        weights = self._hidden * (mixed + 2 * heads * value + 2 * heads)
        return state, weights, mixed * kernel + 2 * heads + value
