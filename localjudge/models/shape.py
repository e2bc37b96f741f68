"""The shape of a model: what its weights and its cache are made of. `configuration` reads one."""

from __future__ import annotations

from dataclasses import dataclass

from localjudge.errors import ModelError
from localjudge.models.quantization import Quantization

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        kind: `full` attention to all tokens, `sliding` to a window of them, `linear` with a state of fixed
            size, or `other`: one whose state is not known here.
        kv_heads: key-value heads that tensor parallelism can split; 1 where all share one latent.
        values: numbers cached a token.
        state: bytes of the state of a row that does not grow with its tokens.
        dense: weights of attention, feed-forward block and shared experts.
        experts: weights of all routed experts.
        active: those of the routed experts that one token meets.
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
    """A model, as far as its memory is concerned.

    Attributes:
        model_type: as in `config.json`.
        dtype: of weights and activations that are not quantised.
        hidden: numbers of a token between layers.
        intermediate: numbers of a token within the widest feed-forward block, all its experts together.
        heads: attention heads.
        vocabulary: tokens.
        context: most tokens of a prompt and its answer; None where no bound is named.
        window: tokens that a sliding layer sees.
        tied: the embedding is also the head.
        layer_embedding: parameters of embeddings that layers have of their own.
        layers: in their order.
        splits: widths that quantisation stores in blocks, with the block: each GPU needs whole ones.
        quantization: how the weights are stored; None for `dtype`.
        estimated: no test holds the count of parameters of this type against its modelling code.
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
    splits: tuple[tuple[int, int], ...]
    quantization: Quantization | None
    estimated: bool

    @property
    def element(self) -> int:
        """Bytes of a number in `dtype`."""
        return BYTES[self.dtype]

    @property
    def embedding(self) -> int:
        """Parameters of the embeddings, and of the head where that is not the same."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.layer_embedding

    @property
    def parameters(self) -> int:
        """All of them.

        Raises:
            ModelError: a layer is of a kind that is not known here.
        """
        self._known()
        return (
            self.embedding + self.hidden + sum(each.dense + each.experts + each.small for each in self.layers)
        )

    @property
    def active_parameters(self) -> int:
        """Those that one token meets, the embedding counted once: of that it reads one row. Model cards differ
        in what they count; this is within a tenth of them.

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
            ModelError: as `parameters`, or the quantisation is not known here.
        """
        if self.quantization is None:
            return self.parameters * self.element
        linear = sum(0 if self.quantization.experts_only else each.dense for each in self.layers)
        packed = linear + sum(each.experts for each in self.layers)
        return int(packed * self.quantization.bits / 8) + (self.parameters - packed) * self.element

    @property
    def is_known(self) -> bool:
        """Whether all its layers are of kinds that are known here, so that its parameters can be counted."""
        return all(layer.kind != "other" for layer in self.layers)

    def _known(self) -> None:
        if not self.is_known:
            raise ModelError(
                f"a model of the type {self.model_type} has layers that are not known here, so its parameters "
                "cannot be counted; give a directory that holds its weights"
            )

    def cached_values(self, tokens: int, gpus: int = 1, block: int = 1) -> int:
        """Numbers that one GPU of several keeps of a row of this many tokens.

        Key-value heads are split over the GPUs, and copied where there are fewer heads than GPUs; a latent that
        all heads share is on every GPU (vLLM, `ModelConfig.get_num_kv_heads`).

        Args:
            tokens: of the row.
            gpus: over which attention heads are split.
            block: tokens that memory is given out by. A window then reaches over one block more.
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
        """Numbers cached for a token by all layers."""
        return sum(layer.values for layer in self.layers)

    @property
    def state_bytes(self) -> int:
        """Bytes a row keeps however many tokens it has."""
        return sum(layer.state for layer in self.layers)
