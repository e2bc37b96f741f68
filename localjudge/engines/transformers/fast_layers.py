"""Attention and linear layers that compute what those of transformers and PyTorch do, and take less time.

* **Attention reads each key and value once.** Where several heads share keys and values (grouped-query
  attention), transformers copies these for each head whenever there is a mask. The queries of a few new tokens
  can instead stand beside each other, as if they were further tokens of one head.
* **It computes little of what is hidden.** On a processor, PyTorch computes all products of a mask, also those
  that it hides. Without a mask, it leaves out most of what is after each token, but only if the first query
  belongs to the first key. So prompts whose first tokens are in the cache get empty queries for these.
  PyTorch keeps the scores of bfloat16 queries and keys in float32. Products whose results are bfloat16 would
  take two thirds of the time on some processors, but where keys have a large common part, as those of some
  models have, their error is ten times as large and more.
* **Weights of linear layers are kept in the order in which a processor multiplies them.** PyTorch reorders them
  at each call, or multiplies them in an order that is slow for a few tokens. The library that it multiplies
  with on an x86 processor (oneDNN) can do this once: a step of a few rows takes half of the time, a prompt nine
  tenths. It can also do what follows to each result before this goes to memory: the prompts of a small model in
  float32 run 5 % faster.
"""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.llama.modeling_llama import LlamaMLP

GROUPED = "localjudge_grouped"
# With more new tokens, the products outweigh the copies, and the mask grows with the heads.
_FEW_TOKENS = 64
# In bfloat16, a processor takes up to twice as long for one, two or three queries as for four.
_LEAST = 4
# oneDNN orders the weights for so many tokens a call; measured, the order is the same for any number above one.
_TOKENS = 16


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Make a model use this module's attention, if it uses PyTorch's `scaled_dot_product_attention`.

    Encoders of images keep theirs.
    """
    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(GROUPED, _attention)
        AttentionMaskInterface.register(GROUPED, _mask)
        text = model.config.get_text_config()
        parts = [name for name in model.config.sub_configs if getattr(model.config, name) is text]
        model.set_attn_implementation(dict.fromkeys(["", *parts], GROUPED))  # "" stands for the model itself


def _mask(q_length: int, kv_length: int, q_offset: int = 0, **other: Any) -> torch.Tensor | None:
    """Do what `sdpa_mask` does, but return None where `_attention` adds empty queries."""
    plain = other.get("allow_is_causal_skip", True) and all(
        other.get(name) is None for name in ("attention_mask", "local_size")
    )
    on_processor = torch.device(other["device"]).type == "cpu"
    # With more tokens in the cache than new ones, the empty queries cost more than the mask.
    if on_processor and plain and 0 < q_offset < q_length and kv_length == q_offset + q_length:
        return None
    found: torch.Tensor | None = sdpa_mask(q_length=q_length, kv_length=kv_length, q_offset=q_offset, **other)
    return found


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **other: Any,
) -> tuple[torch.Tensor, None]:
    """Do what `sdpa_attention_forward` does.

    Args:
        module: the layer.
        query: (rows, heads, new tokens, width of a head).
        key, value: (rows, heads of keys, tokens, width of a head).
        attention_mask: (rows, 1, new tokens, tokens). Without it, a token sees those up to itself, and the last
            new token is the last token.
        scaling: the factor of the products.
        other: further arguments.

    Returns:
        (rows, new tokens, heads, width of a head).
    """
    (rows, heads, count, width), shared, mask = query.shape, key.shape[1], attention_mask
    if (cap := other.get("softcap")) is not None:
        return _capped(query, key, value, mask, scaling, cap), None
    few = count == 1 if mask is None else count <= _FEW_TOKENS and mask.shape[1] == 1
    if few and other.get("position_bias") is None:
        beside = heads // shared * count
        query = query.reshape(rows, shared, beside, width)
        if count == 1 and beside < _LEAST and (query.device.type, query.dtype) == ("cpu", torch.bfloat16):
            query = pad(query, (0, 0, 0, _LEAST - beside))
        output = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask if mask is None or count == 1 else mask.repeat(1, 1, heads // shared, 1),
            scale=scaling,
        )[:, :, :beside]
        return output.reshape(rows, heads, count, value.shape[-1]).transpose(1, 2).contiguous(), None
    before = key.shape[2] - count if mask is None and count > 1 else 0
    query = pad(query, (0, 0, before, 0)) if before else query
    found = sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **other)[0]
    return found[:, before:], None


def _capped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    cap: float,
) -> torch.Tensor:
    """Return attention whose scores are bounded, cap · tanh(score / cap), which PyTorch's attention cannot do.

    Arguments and result are those of `_attention`. The scores of a batch would need much memory, so the rows
    are computed one after the other.
    """
    (rows, heads, count, width), tokens = query.shape, key.shape[2]
    if mask is None:
        mask = torch.ones(count, tokens, dtype=torch.bool, device=query.device).tril(tokens - count)
        mask = mask.expand(rows, 1, count, tokens)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    output = query.new_empty(rows, count, heads, value.shape[-1])
    for row in range(rows):
        keys, values = (each[row].repeat_interleave(heads // key.shape[1], dim=0) for each in (key, value))
        scores = query[row] @ keys.transpose(1, 2) * (width**-0.5 if scaling is None else scaling)
        weights = torch.softmax(torch.tanh(scores / cap) * cap + mask[row], dim=-1, dtype=torch.float32)
        output[row] = (weights.to(query.dtype) @ values).transpose(0, 1)
    return output


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
        output: torch.Tensor = self.down_proj(self.up_proj.multiplied(inputs, self.gate_proj(inputs, "swish")))
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
