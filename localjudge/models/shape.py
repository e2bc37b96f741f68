"""The shape of a model: the sizes of its weights and its cache. `configuration` reads it."""

from __future__ import annotations

from dataclasses import dataclass

from localjudge.errors import ModelError
from localjudge.models.quantization import Quantization

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
