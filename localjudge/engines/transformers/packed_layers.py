"""Linear layers whose weights are kept in the order in which a processor multiplies them.

PyTorch reorders the weights of a linear layer at each call, or multiplies them in an order that is slow for a
few tokens. The library that it multiplies with on an x86 processor (oneDNN) can do this once: a step of a few
rows takes half of the time, a prompt nine tenths. It can also do what follows to each result before this goes
to memory: the prompts of a small model in float32 run 5 % faster.
"""

from __future__ import annotations

import platform
from collections import Counter

import torch
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaMLP

# oneDNN orders the weights for so many tokens a call; measured, the order is the same for any number above one.
_TOKENS = 16


class PackedLinear(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer with packed weights; `pack` makes it from an ordinary one, in place."""

    @property
    def weight(self) -> torch.Tensor:
        """The weights in their usual order, (outputs, inputs); packed ones are copied at each call."""
        return self._packed.to_dense()

    def forward(self, inputs: torch.Tensor, function: str = "none") -> torch.Tensor:
        """Return a function of the results, by oneDNN's name of the function."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, function, [], ""
        )
        return output

    def multiplied(self, inputs: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Return the products of the results and the factors."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            inputs, factors, self._packed, self.bias, "mul"
        )
        return output


class PackedMLP(torch.nn.Module):  # type: ignore[misc]
    """A feed-forward block as that of Llama, with SiLU; `pack` makes it from the block of a model, in place."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_proj, self.up_proj
        if type(gate) is type(up) is PackedLinear:
            inside = up.multiplied(inputs, gate(inputs, "swish"))
        else:  # an adapter stands beside them
            inside = self.act_fn(gate(inputs)) * up(inputs)
        output: torch.Tensor = self.down_proj(inside)
        return output


@torch.no_grad()  # type: ignore[untyped-decorator]
def pack(model: torch.nn.Module) -> None:
    """Pack the linear layers of a model and its feed-forward blocks, if oneDNN multiplies on this processor.

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
    for module in model.modules():
        if _is_like_llama(module) and type(module.gate_proj) is type(module.up_proj) is PackedLinear:
            module.__class__ = PackedMLP


def _is_like_llama(module: torch.nn.Module) -> bool:
    """Return whether a module computes what a feed-forward block of Llama does, with SiLU."""
    one, llama = (getattr(each.forward, "__code__", None) for each in (type(module), LlamaMLP))
    same = all(getattr(one, part, None) == getattr(llama, part) for part in ("co_code", "co_names"))
    return same and type(module.act_fn) is type(ACT2FN["silu"])
