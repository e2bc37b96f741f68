"""Linear layers whose weights are kept in the order in which a processor multiplies them.

PyTorch reorders the weights of a linear layer at each call, or multiplies them in an order that is slow for a
few tokens. The library that it multiplies with on an x86 processor (oneDNN) can do this once: a step of a few
rows takes half of the time, a prompt nine tenths.
"""

from __future__ import annotations

import platform
from collections import Counter

import torch

# oneDNN orders the weights for so many tokens a call; measured, the order is the same for any number above one.
_TOKENS = 16


class PackedLinear(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer with packed weights; `pack` makes it from an ordinary one, in place."""

    @property
    def weight(self) -> torch.Tensor:
        """The weights in their usual order, (outputs, inputs); packed ones are copied at each call."""
        return self._packed.to_dense()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, "none", [], ""
        )
        return output


@torch.no_grad()  # type: ignore[untyped-decorator]
def pack(model: torch.nn.Module) -> None:
    """Pack the linear layers of a model, if oneDNN multiplies on this processor.

    A weight that several modules use, such as the embedding and the last layer of a small model, keeps its
    usual order: packing it would make a copy.
    """
    if platform.machine().lower() not in {"x86_64", "amd64"} or not torch.backends.mkldnn.is_available():
        return
    types = {torch.float32}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        types.add(torch.bfloat16)
    uses = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))
    for module in model.modules():
        if type(module) is torch.nn.Linear and (weight := module.weight).dtype in types:
            alone = uses[id(weight)] == 1
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS) if alone else weight.detach()
            del module.weight
            module.__class__, module._packed = PackedLinear, packed
