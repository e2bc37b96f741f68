"""The shape of a model: its weights, their quantization, and its cache. `configuration` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localjudge.errors import ModelError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        kind: `full` attention to all tokens, `sliding` attention to a window, `linear` with a state of fixed
            size, or `other`, whose state is unknown.
        kv_heads: key-value heads that tensor parallelism can split; 1 if all heads share one latent.
        values: numbers cached per token.
        state: bytes of a row's state of fixed size.
        dense: weights of attention, feed-forward block and shared experts.
        experts: weights of all routed experts.
        active: weights of the routed experts that one token uses.
        small: norms, biases, routers.
    """

    kind: str
    kv_heads: int
    values: int
    state: int
    dense: int
    experts: int
    active: int
    small: int


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
        tied: the embedding is also the head.
        layer_embedding: parameters of embeddings that belong to single layers.
        layers: the layers in order.
        quantized_blocks: widths that quantisation stores in blocks, with the block size; each GPU needs whole
            blocks.
        quantization: how the weights are stored; None for `dtype`.
        estimated: no test compares the parameter count of this type with its modelling code.
    """

    model_type: str
    dtype: str
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    context: int | None
    window: int | None
    tied: bool
    layer_embedding: int
    layers: tuple[Layer, ...]
    quantized_blocks: tuple[tuple[int, int], ...]
    quantization: Quantization | None
    estimated: bool

    @property
    def element(self) -> int:
        """Bytes of a number in `dtype`."""
        return BYTES[self.dtype]

    @property
    def embedding(self) -> int:
        """Parameters of the embeddings, and of the head if it is not tied."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.layer_embedding

    @property
    def parameters(self) -> int:
        """Number of all parameters.

        Raises:
            ModelError: a layer is of an unknown kind.
        """
        self._known()
        return (
            self.embedding + self.hidden + sum(each.dense + each.experts + each.small for each in self.layers)
        )

    @property
    def active_parameters(self) -> int:
        """Number of parameters that one token uses, with the embedding counted once.

        Model cards count differently; this number is within 10 % of theirs.

        Raises:
            ModelError: as `parameters`.
        """
        self._known()
        once = self.vocabulary * self.hidden + self.hidden
        return once + sum(each.dense + each.active + each.small for each in self.layers)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as they are published.

        Raises:
            ModelError: as `parameters`, or the quantisation is unknown.
        """
        if self.quantization is None:
            return self.parameters * self.element
        linear = sum(0 if self.quantization.experts_only else each.dense for each in self.layers)
        packed = linear + sum(each.experts for each in self.layers)
        return int(packed * self.quantization.bits / 8) + (self.parameters - packed) * self.element

    @property
    def is_known(self) -> bool:
        """True if all layers are of known kinds, so that the parameters can be counted."""
        return all(layer.kind != "other" for layer in self.layers)

    def _known(self) -> None:
        if not self.is_known:
            raise ModelError(
                f"a model of the type {self.model_type} has layers of an unknown kind, so its parameters "
                "cannot be counted; give a directory with its weights"
            )

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
    def token_values(self) -> int:
        """Numbers that all layers cache for a token."""
        return sum(layer.values for layer in self.layers)

    @property
    def state_bytes(self) -> int:
        """Bytes that a row needs independent of its length."""
        return sum(layer.state for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Quantization:
    """Quantization of the weights of linear layers; embedding, head, norms and routers are not quantized.

    Attributes:
        method: its name in the configuration.
        packed_bits: bits per weight, with its share of scales and zero points; None if unknown.
        block: weights that share a scale along the dimension that GPUs divide; 0 if any division is possible.
        experts_only: only the routed experts are packed.
    """

    method: str
    packed_bits: float | None
    block: int = 0
    experts_only: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None, name: str) -> Quantization | None:
        """Return the quantization of a `quantization_config`; None without one.

        Bits per weight, scales included:

        * fp8 (DeepSeek-V3, arXiv:2412.19437, section 3.3): 8; the scale of each block of 128 by 128 is
          negligible.
        * AWQ and GPTQ: the bits, and for each group a 16-bit scale and a zero point (AutoAWQ, GPTQModel).
        * mxfp4 (OCP Microscaling Formats 1.0, section 5): 4, and 8 for each 32. gpt-oss packs its experts
          alone.
        * nvfp4: 4, and 8 for each 16.
        * bitsandbytes: 8, or 4 and a 32-bit scale for each 64, itself in 8 bits with double quantization
          (QLoRA, arXiv:2305.14314, section 3).
        * compressed-tensors: the bits that its first group of weights names, with a 16-bit scale a group.

        Raises:
            ModelError: it is not a mapping, or has no method.
        """
        if config is None:
            return None
        method = config.get("quant_method") if isinstance(config, Mapping) else None
        if not isinstance(method, str):
            raise ModelError(f"model {name}: its quantization_config has no quant_method")
        if method in ("fp8", "fbgemm_fp8"):
            sides = config.get("weight_block_size")
            return cls(method, 8, int(sides[0]) if isinstance(sides, list) and sides else 0)
        if method in ("awq", "gptq"):
            bits = int(config.get("bits") or config.get("w_bit") or 4)
            group = int(config.get("group_size") or 128)
            return cls(method, bits + (16 + bits) / group if group > 0 else bits, max(0, group))
        if method == "mxfp4":
            return cls(method, 4 + 8 / 32, experts_only=True)
        if method == "bitsandbytes":
            if config.get("load_in_8bit"):
                return cls(method, 8)
            twice = config.get("bnb_4bit_use_double_quant")
            return cls(method, 4 + (8 / 64 + 32 / (64 * 256) if twice else 32 / 64))
        if method == "modelopt":
            algorithm = str(config.get("quant_algo", "")).upper()
            return cls(method, {"FP8": 8, "NVFP4": 4 + 8 / 16}.get(algorithm))
        if method == "compressed-tensors":
            return _compressed(method, config)
        return cls(method, None)

    @property
    def bits(self) -> float:
        """Bits per packed weight.

        Raises:
            ModelError: the number is not known.
        """
        if self.packed_bits is None:
            raise ModelError(
                f"the size of weights quantised by {self.method} cannot be computed from a configuration; "
                "give a directory with the weights"
            )
        return self.packed_bits


def _compressed(method: str, config: Mapping[str, Any]) -> Quantization:
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping) or not isinstance(weights.get("num_bits"), int):
        return Quantization(method, None)
    bits, group = weights["num_bits"], weights.get("group_size")
    if not isinstance(group, int) or group < 1:
        return Quantization(method, bits)
    scale = 8 if weights.get("type") == "float" and bits == 4 else 16
    return Quantization(method, bits + scale / group, group)
