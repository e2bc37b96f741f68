"""The last layer of a model, which computes logits in float32 where a value is picked.

In bfloat16, neighbouring numbers near 30 differ by 0.125, and logits near 30 are usual. So two values of a
score often get exactly equal logits, and probabilities are as coarse as the logits. The last layer alone causes
most of this error: its inputs are not larger than those of other layers, but its results are.

Only passes at which a value is picked are computed in float32, because a rationale needs no probabilities. At
such a pass all logits of a row are, because the mass of the values and the likeliest token compare them with
all other tokens. What the model does to its logits (a soft cap, a factor) then runs on float32, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

_ROUNDED = (torch.bfloat16, torch.float16)
# So many rows of the weights are converted at a time: a converted copy of all would take twice their memory.
_BLOCK = 16_384


class Float32Head(torch.nn.Module):  # type: ignore[misc]
    """A linear layer that computes chosen rows of a batch in float32; `use_float32_head` puts it into a model.

    Args:
        linear: the last layer of a model, with weights of 16 bits.

    Attributes:
        weight: its weights, (V, width), also if those of `linear` are packed later.
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
            picks: for each row of the batch, whether a value is picked there; None leaves the layer as it is.
                With a list, the results of all rows have the type float32, so that a row does not depend on
                where the others stand.
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
