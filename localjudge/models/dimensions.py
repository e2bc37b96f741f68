"""The dimensions of a model, by the numbers in its `config.json`.

This is plain arithmetic on the configuration's numbers; nothing is loaded, and no library for the model is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.configuration import read_document

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""The bytes of a number of each known dtype."""
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Names of the configuration of the text part of a multimodal model."""
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
"""Other names of a setting in some model families."""
_MAX_LAYERS = 10_000
_WINDOW_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "gemma4_text": 6, "cohere2": 4, "gpt_oss": 2, "exaone4": 4}
"""For configurations that do not list the layers with a window: one layer in this many has none."""
_OTHER_LAYERS = ("block_configs", "hybrid_override_pattern", "mamba_d_state", "ssm_state_size")
"""Settings of models whose layers differ from each other, or keep a state of their own."""
_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
}
"""The kind of a layer by its name in `layer_types`."""


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
class ModelDimensions:
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
        all_tokens = _whole_blocks(tokens, block)
        window_tokens = all_tokens
        if self.window:
            window_tokens = min(all_tokens, _most_of_window(self.window, block))
        total = 0
        for layer in self.layers:
            if not layer.values:
                continue
            values_per_head = layer.values // layer.kv_heads
            heads_per_gpu = max(1, layer.kv_heads // gpus)
            cached_tokens = window_tokens if layer.kind == "sliding" else all_tokens
            total += values_per_head * heads_per_gpu * cached_tokens
        return total

    @property
    def state_bytes(self) -> int:
        """Bytes that a row needs independent of its length."""
        return sum(layer.state for layer in self.layers)


def _whole_blocks(tokens: int, block: int) -> int:
    """Return the number of tokens in the blocks that hold so many."""
    blocks = -(-tokens // block)
    return blocks * block


def _most_of_window(window: int, block: int) -> int:
    """Return the largest number of tokens that the cache of a window holds."""
    if block == 1:
        return window - 1
    return _whole_blocks(window, block) + block


def read_dimensions(folder: Path, name: str) -> ModelDimensions:
    """Return the dimensions of the model in this directory.

    Raises:
        ModelError: there is no configuration, or the size of the model cannot be computed from it.
    """
    config = read_document(folder / "config.json", f"model {name}")
    return dimensions_of(config, name)


def dimensions_of(config: Mapping[str, Any], name: str) -> ModelDimensions:
    """Return the dimensions that a configuration describes; of a multimodal model, those of its text part.

    Raises:
        ModelError: the size of the model cannot be computed from it.
    """
    try:
        return _ConfigurationReader(config).dimensions()
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:  # a number instead of a list …
        raise ModelError(f"model {name}: its config.json cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class _FeedForward:
    """The widths of a token in the feed-forward blocks.

    Attributes:
        dense: in a block without experts.
        has_experts: whether some blocks have experts.
        expert: in one expert.
        experts_per_token: experts that read a token, besides the shared ones.
        shared: in all shared experts of a block together.
    """

    dense: int
    has_experts: bool
    expert: int
    experts_per_token: int
    shared: int

    @property
    def widest(self) -> int:
        """Width of a token in the widest block, all its experts together."""
        return max(self.dense, self.experts_per_token * self.expert + self.shared)

    @property
    def stored(self) -> int:
        """The width of the matrices that GPUs divide."""
        return self.expert if self.has_experts else self.dense


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

    @classmethod
    def read(cls, config: Any) -> _Quantization:
        """Return what a `quantization_config` says.

        Raises:
            ValueError: it does not name its method.
        """
        if not config:
            return cls(None)
        method = config.get("quant_method") if isinstance(config, Mapping) else None
        if not isinstance(method, str):
            raise ValueError("its quantization_config has no quant_method")
        weights = config
        if method == "compressed-tensors":
            groups = config.get("config_groups", {}).values()
            first_group: Mapping[str, Any] = next(iter(groups), {})
            weights = first_group.get("weights") or {}
        bits = weights.get("bits") or weights.get("num_bits")
        return cls(
            method,
            block=max(0, int(_scale_block(weights, method))),
            bits=int(bits) if bits else None,
        )


def _scale_block(weights: Mapping[str, Any], method: str) -> Any:
    """Return how many quantised weights share a scale; 0 or less if all of a row or a tensor do."""
    block_sizes = weights.get("weight_block_size")
    if block_sizes:
        return next(iter(block_sizes))
    group_size = weights.get("group_size")
    if group_size:
        return group_size
    return 128 if method in ("awq", "gptq") else 0


@dataclass(frozen=True, slots=True)
class _AttentionHeads:
    """The key-value heads of a layer.

    Attributes:
        count: heads that tensor parallelism can split.
        values: numbers that all of them cache per token.
    """

    count: int
    values: int


class _ConfigurationReader:
    """Reads a configuration with the names that its model family uses."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = _with_text_part(config)
        self._type = str(self._config.get("model_type") or "")
        self._hidden = self._number("hidden_size")
        self._heads = self._number("num_attention_heads")
        self._layer_count = self._number("num_hidden_layers")
        if self._layer_count > _MAX_LAYERS:
            raise ValueError(f"{self._layer_count} layers are more than any model has")

    def dimensions(self) -> ModelDimensions:
        """Return the dimensions.

        Raises:
            ValueError: a number is missing or is none.
        """
        feed_forward = self._feed_forward()
        kinds = self._kinds()
        window = self._get("sliding_window") or self._get("attention_chunk_size")
        has_window = bool(window) and "sliding" in kinds
        quantization = _Quantization.read(self._get("quantization_config"))
        layers = self._layers(kinds)
        return ModelDimensions(
            model_type=self._type,
            dtype=self._dtype(),
            hidden=self._hidden,
            intermediate=feed_forward.widest,
            heads=self._heads,
            vocabulary=self._number("vocab_size"),
            context=self._number("max_position_embeddings", 0) or None,
            window=int(window) if has_window else None,
            layers=layers,
            quantized_block=(feed_forward.stored, quantization.block) if quantization.block else None,
            quantization=quantization.method,
            quantized_bits=quantization.bits,
        )

    def _get(self, name: str, default: Any = None) -> Any:
        """Return a setting by its name or one of its aliases."""
        for alias in (name, *_ALIASES.get(name, ())):
            value = self._config.get(alias)
            if value is not None:
                return value
        return default

    def _number(self, name: str, default: int | None = None) -> int:
        """Return a setting that is a whole number, at least 1 unless it has a default.

        Raises:
            ValueError: it is missing or is no such number.
        """
        value = self._get(name, default)
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]  # one number for each layer, all equal
        if value is None:
            raise ValueError(f"it does not name {name}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"it has no whole number for {name}")
        if value == 0 and default is None:
            raise ValueError(f"it says 0 for {name}")
        return value

    def _dtype(self) -> str:
        dtype = str(self._get("dtype", "bfloat16")).removeprefix("torch.")
        if dtype not in BYTES:
            raise ValueError(f"it has the unknown dtype {dtype}; known are {', '.join(BYTES)}")
        return dtype

    def _feed_forward(self) -> _FeedForward:
        """Return the widths of the feed-forward blocks."""
        dense = self._number("intermediate_size", 4 * self._hidden)
        has_experts = self._number("num_experts", 0) > 0
        experts_per_token = 0
        expert = 0
        if has_experts:
            experts_per_token = self._number("num_experts_per_tok", 0)
            expert = self._number("moe_intermediate_size", dense)
        shared = self._number("moe_shared_expert_intermediate_size", 0)
        if not shared:
            shared = expert * self._number("n_shared_experts", 0)
        return _FeedForward(
            dense=dense,
            has_experts=has_experts,
            expert=expert,
            experts_per_token=experts_per_token,
            shared=self._number("shared_expert_intermediate_size", shared),
        )

    def _kinds(self) -> list[str]:
        """Return the kind of each layer."""
        count = self._layer_count
        layer_types = self._get("layer_types")
        if isinstance(layer_types, list) and len(layer_types) >= count:
            return [_KINDS.get(str(layer_type), "other") for layer_type in layer_types[:count]]
        if any(self._get(name) for name in _OTHER_LAYERS):
            return ["other"] * count
        interval = self._get("full_attention_interval")
        if interval:
            return _kinds_by_interval(count, interval, between="linear")
        if not self._get("sliding_window") or self._get("use_sliding_window") is False:
            return ["full"] * count
        if self._get("use_sliding_window"):  # Qwen: the first layers have no window
            first_with_window = self._number("max_window_layers", 0)
            return ["full" if index < first_with_window else "sliding" for index in range(count)]
        pattern = self._get("sliding_window_pattern", _WINDOW_PATTERNS.get(self._type, 0))
        if not isinstance(pattern, int) or pattern < 1:
            return ["sliding"] * count
        return _kinds_by_interval(count, pattern, between="sliding")

    def _layers(self, kinds: list[str]) -> tuple[Layer, ...]:
        """Return the layers; the last ones may read the cache of earlier layers instead of their own."""
        first_without_cache = self._layer_count - self._number("num_kv_shared_layers", 0)
        return tuple(
            self._layer(index, kind, has_cache=index < first_without_cache) for index, kind in enumerate(kinds)
        )

    def _layer(self, index: int, kind: str, *, has_cache: bool) -> Layer:
        if kind == "linear":
            return Layer(kind, kv_heads=1, values=0, state=self._state())
        heads = self._attention_heads(index, kind)
        values = heads.values
        if kind == "other" or not has_cache:
            values = 0
        return Layer(kind, kv_heads=heads.count, values=values, state=0)

    def _attention_heads(self, index: int, kind: str) -> _AttentionHeads:
        """Return the key-value heads of a layer."""
        if self._get("kv_lora_rank"):  # one latent and one rotary key for all heads (arXiv:2405.04434, 2.1.3)
            latent = self._number("kv_lora_rank")
            rotary_key = self._number("qk_rope_head_dim")
            return _AttentionHeads(1, latent + rotary_key)
        size = self._number("head_dim", self._hidden // self._heads)
        default_count = 1 if self._get("multi_query") else self._heads
        count = self._number("num_key_value_heads", default_count)
        if kind == "full" and self._get("global_head_dim"):
            size = self._number("global_head_dim")
            count = self._number("num_global_key_value_heads", count)
        layer_configs = self._get("per_layer_config") or {}  # the same setting in transformers 5
        layer_config = layer_configs.get(str(index))
        if isinstance(layer_config, Mapping):
            size = int(layer_config.get("head_dim", size))
            count = int(layer_config.get("num_key_value_heads", count))
        keys_and_values = 2 * count * size
        return _AttentionHeads(count, keys_and_values)

    def _state(self) -> int:
        """Return the bytes of a row's state in gated delta networks (arXiv:2412.06464).

        As in Qwen3-Next and Qwen3.5: one float32 matrix per head, and the last inputs of a convolution.
        """
        key_heads = self._number("linear_num_key_heads")
        key_size = self._number("linear_key_head_dim")
        value_heads = self._number("linear_num_value_heads")
        value_size = self._number("linear_value_head_dim")
        matrices = BYTES["float32"] * value_heads * key_size * value_size
        width = 2 * key_heads * key_size + value_heads * value_size
        inputs = BYTES[self._dtype()] * width * self._number("linear_conv_kernel_dim")
        return matrices + inputs


def _with_text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a configuration; those of its text part replace those of the whole model."""
    settings = dict(config)
    for name in _TEXT_PARTS:
        text_config = config.get(name)
        if text_config:
            break
    if isinstance(text_config, dict):
        settings |= {key: value for key, value in text_config.items() if value is not None}
    return settings


def _kinds_by_interval(count: int, interval: int, *, between: str) -> list[str]:
    """Return the kinds of layers of which one in `interval` has full attention, the last of each interval."""
    return ["full" if index % interval == interval - 1 else between for index in range(count)]
