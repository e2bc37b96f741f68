"""The `config.json` of a model: what it asks for, and the shape that it describes.

The shape is plain arithmetic on the configuration's numbers; nothing is loaded, and no library for the model is
needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
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
# For configurations that do not list the layers with a window: one layer in this many has none.
_WINDOW_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "gemma4_text": 6, "cohere2": 4, "gpt_oss": 2, "exaone4": 4}
# Settings of models whose layers differ from each other, or keep a state of their own.
_OTHER_LAYERS = ("block_configs", "hybrid_override_pattern", "mamba_d_state", "ssm_state_size")
_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        kind: `full` attention to all tokens, `sliding` attention to a window, `linear` with a state of fixed
            size, or `other`, whose state is unknown.
        kv_heads: key-value heads that tensor parallelism can split; 1 if all heads share one latent.
        values: numbers cached per token.
        state: bytes of a row's state of fixed size.
    """

    kind: str
    kv_heads: int
    values: int
    state: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a model that determine its memory.

    Attributes:
        model_type: as in `config.json`.
        dtype: of weights and activations that are not quantised.
        hidden: width of a token between layers.
        intermediate: width of a token in the widest feed-forward block, all its experts together.
        heads: number of attention heads.
        vocabulary: number of tokens.
        context: limit of tokens of a prompt and its answer; None without a limit.
        window: tokens that a sliding layer sees.
        layers: the layers in order.
        quantized_block: the width that quantisation stores in blocks, with the block size; each GPU needs whole
            blocks. None if any division is possible.
        quantization: the method by which the weights are quantised; None if they are stored as `dtype`.
        quantized_bits: bits of a quantised weight; None if the configuration does not say it.
    """

    model_type: str
    dtype: str
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    context: int | None
    window: int | None
    layers: tuple[Layer, ...]
    quantized_block: tuple[int, int] | None
    quantization: str | None
    quantized_bits: int | None = None

    @property
    def element(self) -> int:
        """Bytes of a number in `dtype`."""
        return BYTES[self.dtype]

    def cached_values(self, tokens: int, gpus: int = 1, block: int = 1) -> int:
        """Return how many numbers each GPU caches for a row of this many tokens.

        Key-value heads are split over the GPUs, and copied if there are fewer heads than GPUs. A latent that
        all heads share is on every GPU (vLLM, `ModelConfig.get_num_kv_heads`).

        Args:
            tokens: tokens of the row.
            gpus: GPUs over which attention heads are split.
            block: tokens per block of memory. A window can then extend over one more block.
        """
        held = -(-tokens // block) * block
        numbers = 0
        for layer in self.layers:
            if layer.values:
                each = layer.values // layer.kv_heads * max(1, layer.kv_heads // gpus)
                sees = held
                if layer.kind == "sliding" and self.window:
                    most = self.window - 1 if block == 1 else -(-self.window // block) * block + block
                    sees = min(held, most)
                numbers += each * sees
        return numbers

    @property
    def state_bytes(self) -> int:
        """Bytes that a row needs independent of its length."""
        return sum(layer.state for layer in self.layers)


def read_document(file: Path, owner: str) -> dict[str, Any]:
    """Read one of the JSON files of a model.

    Args:
        file: the file, such as `config.json`.
        owner: what it belongs to, for the message: `model NAME`.

    Raises:
        ModelError: the file is missing, or is not a JSON object.
    """
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{owner}: {file.parent} has no {file.name}; give a model directory") from None
    except OSError as error:
        raise ModelError(f"{owner}: {file.name}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{owner}: {file.name}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ModelError(f"{owner}: {file.name}: not a JSON object")
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
    return shape_of(read_document(folder / "config.json", f"model {name}"), name)


def shape_of(config: Mapping[str, Any], name: str) -> Shape:
    """Return the shape that a configuration describes; of a multimodal model, the shape of its text part.

    Raises:
        ModelError: the size of the model cannot be computed from it.
    """
    try:
        return _ConfigurationReader(config).shape()
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:  # a number instead of a list …
        raise ModelError(f"model {name}: its config.json cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class _Quantization:
    """How weights are quantised.

    Attributes:
        method: the method; None if they are not.
        block: how many of them share a scale along the dimension that GPUs divide; 0 for any division.
        bits: bits of each; None if the configuration does not say it.
    """

    method: str | None
    block: int = 0
    bits: int | None = None


class _ConfigurationReader:
    """Reads a configuration with the names that its model family uses."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        inner = config.get("text_config") or config.get("llm_config") or config.get("language_config")
        inner = inner if isinstance(inner, dict) else {}
        self._config = {**config, **{name: value for name, value in inner.items() if value is not None}}
        self._type = str(self._config.get("model_type") or "")
        self._hidden = self._number("hidden_size")
        self._heads = self._number("num_attention_heads")
        self._count = self._number("num_hidden_layers")
        if self._count > _MOST_LAYERS:
            raise ValueError(f"{self._count} layers are more than any model has")
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
        quantization = self._quantization()
        shared = self._number("num_kv_shared_layers", 0)
        layers = tuple(
            self._layer(index, kind, shares=index >= self._count - shared) for index, kind in enumerate(kinds)
        )
        width = self._expert_inner if self._experts else self._inner
        return Shape(
            model_type=self._type,
            dtype=self._dtype(),
            hidden=self._hidden,
            intermediate=max(self._inner, self._per_token * self._expert_inner + self._shared_inner),
            heads=self._heads,
            vocabulary=self._number("vocab_size"),
            context=self._number("max_position_embeddings", 0) or None,
            window=int(window) if window and "sliding" in kinds else None,
            layers=layers,
            quantized_block=(width, quantization.block) if quantization.block else None,
            quantization=quantization.method,
            quantized_bits=quantization.bits,
        )

    def _quantization(self) -> _Quantization:
        """Return how the weights are quantised."""
        config = self._get("quantization_config")
        if not config:
            return _Quantization(None)
        method = config.get("quant_method") if isinstance(config, Mapping) else None
        if not isinstance(method, str):
            raise ValueError("its quantization_config has no quant_method")
        if method == "compressed-tensors":
            group: Mapping[str, Any] = next(iter(config.get("config_groups", {}).values()), {})
            config = group.get("weights") or {}
        size = config.get("group_size") or (128 if method in ("awq", "gptq") else 0)
        size = next(iter(config.get("weight_block_size") or [size]))
        bits = config.get("bits") or config.get("num_bits")
        return _Quantization(method, block=max(0, int(size)), bits=int(bits) if bits else None)

    def _get(self, name: str, default: Any = None) -> Any:
        values = (self._config.get(each) for each in (name, *_ALIASES.get(name, ())))
        return next((value for value in values if value is not None), default)

    def _number(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"it {'does not name' if value is None else 'has no whole number for'} {name}")
        if value == 0 and default is None:
            raise ValueError(f"it says 0 for {name}")
        return value

    def _dtype(self) -> str:
        dtype = str(self._get("dtype", "bfloat16")).removeprefix("torch.")
        if dtype not in BYTES:
            raise ValueError(f"it has the unknown dtype {dtype}; known are {', '.join(BYTES)}")
        return dtype

    def _kinds(self) -> list[str]:
        named = self._get("layer_types")
        if isinstance(named, list) and len(named) >= self._count:
            return [_KINDS.get(str(kind), "other") for kind in named[: self._count]]
        if any(self._get(name) for name in _OTHER_LAYERS):
            return ["other"] * self._count
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
            return Layer(kind, 1, 0, self._state())
        if self._get("kv_lora_rank"):  # one latent and one rotary key for all heads (arXiv:2405.04434, 2.1.3)
            values, kv_heads = self._number("kv_lora_rank") + self._number("qk_rope_head_dim"), 1
        else:
            values, kv_heads = self._grouped(index, kind)
        return Layer(kind, kv_heads, 0 if shares or kind == "other" else values, 0)

    def _grouped(self, index: int, kind: str) -> tuple[int, int]:
        """Return the numbers cached per token and the key-value heads of grouped heads."""
        size = self._number("head_dim", self._hidden // self._heads)
        kv_heads = self._number("num_key_value_heads", 1 if self._get("multi_query") else self._heads)
        if kind == "full" and self._get("global_head_dim"):
            size = self._number("global_head_dim")
            kv_heads = self._number("num_global_key_value_heads", kv_heads)
        own = (self._get("per_layer_config") or {}).get(str(index))  # the same setting in transformers 5
        if isinstance(own, Mapping):
            size, kv_heads = int(own.get("head_dim", size)), int(own.get("num_key_value_heads", kv_heads))
        return 2 * kv_heads * size, kv_heads

    def _state(self) -> int:
        """Return the bytes of a row's state in gated delta networks (arXiv:2412.06464).

        As in Qwen3-Next and Qwen3.5: one float32 matrix per head, and the last inputs of a convolution.
        """
        key_heads, key = self._number("linear_num_key_heads"), self._number("linear_key_head_dim")
        heads, value = self._number("linear_num_value_heads"), self._number("linear_value_head_dim")
        mixed = 2 * key_heads * key + heads * value
        return 4 * heads * key * value + BYTES[self._dtype()] * mixed * self._number("linear_conv_kernel_dim")
