"""The last layer of a model, which computes logits in float32 where a value is picked.

In bfloat16, neighbouring numbers near 30 differ by 0.125, and logits near 30 are common. So two values of a
score often get exactly equal logits. In float32, the last layer distinguishes them; its inputs keep the
rounding errors of the layers before it.

Only the passes that pick a value use float32, because the probabilities of a text are not recorded. Such a pass
computes all logits of a row in float32: the mass of the values and the likeliest token depend on the logits of
all tokens. A soft cap or a factor that the model applies to its logits then runs in float32, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

_ROUNDED = (torch.bfloat16, torch.float16)
# Number of tokens whose weights are converted to float32 at a time. Converting all of them at once would take
# twice the memory of the layer.
_BLOCK = 16_384


class Float32Head(torch.nn.Module):  # type: ignore[misc]
    """A linear layer that computes chosen rows of a batch in float32; `use_float32_head` puts it into a model.

    Args:
        linear: the last layer of a model, with weights of 16 bits.

    Attributes:
        weight: the weights, (V, width). They stay in this order when `pack` packs those of `linear`.
        was_used: whether the model has called this layer.
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.weight = linear.weight.detach()
        self.was_used = False
        self._picks: Sequence[bool] | None = None

    @contextmanager
    def at(self, picks: Sequence[bool] | None) -> Iterator[None]:
        """Compute the passes of the block with these rows in float32.

        Args:
            picks: for each row of the batch, whether the pass picks a value; None for no change to the layer.
                With a list, the logits of all rows are returned in float32, so that those of a row do not
                depend on which other rows pick a value.
        """
        self._picks = picks
        try:
            yield
        finally:
            self._picks = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, (rows, places, V), of hidden states, (rows, places, width)."""
        self.was_used = True
        if self._picks is None:
            return self.linear(hidden)
        if all(self._picks):
            return self._in_float32(hidden)
        logits: torch.Tensor = self.linear(hidden).float()
        if any(self._picks):
            rows = torch.tensor(self._picks, device=hidden.device)
            logits[rows] = self._in_float32(hidden[rows])
        return logits

    def _in_float32(self, hidden: torch.Tensor) -> torch.Tensor:
        states = hidden.float()
        blocks = [states @ weight.float().T for weight in self.weight.split(_BLOCK)]
        logits = torch.cat(blocks, dim=-1)
        if self.linear.bias is not None:
            logits += self.linear.bias.float()
        return logits


def use_float32_head(model: PreTrainedModel) -> Float32Head | None:
    """Make the last layer of a model a `Float32Head`.

    The model must be on its device, and its layers not yet packed.

    Returns:
        The layer; None for a model that needs none, because it computes in float32, or that can have none: its
        last layer is quantized, or is not an ordinary linear layer that the model calls.
    """
    linear = model.get_output_embeddings()
    if type(linear) is not torch.nn.Linear or linear.weight.dtype not in _ROUNDED:
        return None
    name = next((name for name, module in model.named_modules() if module is linear), None)
    if name is None:
        return None
    parent_name, _, attribute = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    head = Float32Head(linear)
    setattr(parent, attribute, head)
    with torch.inference_mode(), head.at([True]):
        logits = model(input_ids=torch.tensor([[3, 4]], device=model.device), use_cache=False).logits
    if head.was_used and logits.dtype == torch.float32:
        return head
    setattr(parent, attribute, linear)
    return None


def head_dtype(model: PreTrainedModel) -> torch.dtype:
    """Return the type of a model's last layer, which some models keep in float32; the model's, if quantized."""
    layer = model.get_output_embeddings()
    weight = getattr(layer, "weight", None)
    if isinstance(weight, torch.Tensor) and weight.dtype in (torch.float32, *_ROUNDED):
        return weight.dtype
    return model.dtype
