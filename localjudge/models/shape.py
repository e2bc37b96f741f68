"""The shape of a model: what decides the memory of its cache and its activations. `configuration` reads it."""

from __future__ import annotations

from dataclasses import dataclass

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
        quantized_blocks: widths that quantisation stores in blocks, with the block size; each GPU needs whole
            blocks.
        quantization: the method by which the weights are quantised; None if they are stored as `dtype`.
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
    quantized_blocks: tuple[tuple[int, int], ...]
    quantization: str | None

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
    def token_values(self) -> int:
        """Numbers that all layers cache for a token."""
        return sum(layer.values for layer in self.layers)

    @property
    def state_bytes(self) -> int:
        """Bytes that a row needs independent of its length."""
        return sum(layer.state for layer in self.layers)
