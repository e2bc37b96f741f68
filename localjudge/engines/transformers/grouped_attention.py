"""Attention with a mask that computes only what is visible, and reads each key and value once.

Where several heads share keys and values (grouped-query attention), transformers copies these for each head
whenever there is a mask. The queries of a few new tokens can instead stand beside each other, as if they were
further tokens of one head. On a processor, many new tokens are computed a block at a time, each with the keys
up to its last token: PyTorch computes all products of a mask, also those that it hides.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "localjudge_grouped"
# With more new tokens, the products outweigh the copies, and the mask grows with the heads.
_FEW_TOKENS = 64
# Measured on a CPU: 128 to 384 tokens a block take the same time.
_BLOCK = 256


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Make a model use this module's attention, if it uses PyTorch's `scaled_dot_product_attention`."""
    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(GROUPED, _attention)
        AttentionMaskInterface.register(GROUPED, sdpa_mask)
        model.set_attn_implementation(GROUPED)


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
        attention_mask: (rows, 1, new tokens, tokens); the last new token is the last token of the longest row,
            and no token sees a later one.
        scaling: the factor of the products.
        other: further arguments.

    Returns:
        (rows, new tokens, heads, width of a head).
    """
    (rows, heads, count, width), shared = query.shape, key.shape[1]
    plain = partial(sdpa_attention_forward, module, scaling=scaling, **other)
    if attention_mask is None or attention_mask.shape[1] != 1 or other.get("position_bias") is not None:
        result: tuple[torch.Tensor, None] = plain(query, key, value, attention_mask)
        return result
    if shared == heads or count > _FEW_TOKENS:
        found = []
        block = _BLOCK if query.device.type == "cpu" else count
        for begin in range(0, count, block):
            end = min(begin + block, count)
            seen = key.shape[2] - count + end
            mask = attention_mask[:, :, begin:end, :seen]
            found.append(plain(query[:, :, begin:end], key[:, :, :seen], value[:, :, :seen], mask)[0])
        return torch.cat(found, dim=1), None
    output = scaled_dot_product_attention(
        query.reshape(rows, shared, heads // shared * count, width),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, heads // shared, 1),
        scale=scaling,
    )
    return output.reshape(rows, heads, count, value.shape[-1]).transpose(1, 2).contiguous(), None
