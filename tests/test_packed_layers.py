"""Packed layers compute what ordinary ones do, and a weight that is used twice is not copied."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP

from localjudge.engines.transformers.fast_layers import PackedLinear, PackedMLP, pack

TOKENS = (1, 2, 16, 300)


@pytest.fixture
def layers() -> torch.nn.ModuleList:
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(96, 160), torch.nn.Linear(160, 64, bias=False)])


def packed(model: torch.nn.Module) -> torch.nn.Module:
    found = deepcopy(model)
    pack(found)
    if not any(isinstance(each, PackedLinear) for each in found.modules()):
        pytest.skip("this processor has no packed layers")
    return found


@torch.inference_mode()
@pytest.mark.parametrize("tokens", TOKENS)
def test_packed_layers_compute_what_ordinary_layers_do(layers: torch.nn.ModuleList, tokens: int) -> None:
    inputs = torch.randn(2, tokens, 96)
    for plain, fast in zip(layers, packed(layers).children(), strict=True):
        assert isinstance(fast, PackedLinear)
        torch.testing.assert_close(fast(inputs), plain(inputs), rtol=1e-5, atol=1e-5)
        assert torch.equal(fast.weight, plain.weight)
        inputs = plain(inputs)


@torch.inference_mode()
def test_a_weight_that_is_used_twice_stays_one_tensor() -> None:
    model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(200, 96), "head": torch.nn.Linear(96, 200)})
    model["head"].weight = model["embedding"].weight
    before = model["head"](inputs := torch.randn(3, 96))
    pack(model)
    assert model["head"].weight.data_ptr() == model["embedding"].weight.data_ptr()
    torch.testing.assert_close(model["head"](inputs), before, rtol=1e-5, atol=1e-5)


class ScaledMLP(LlamaMLP):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(2 * self.act_fn(self.gate_proj(x)) * self.up_proj(x))


SIZES = {"hidden_size": 96, "intermediate_size": 160}
LLAMA = LlamaConfig(**SIZES)


@torch.inference_mode()
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize(
    ("block", "is_packed"),
    [
        (LlamaMLP(LLAMA), True),
        (LlamaMLP(LlamaConfig(**SIZES, mlp_bias=True)), True),
        (Qwen2MLP(Qwen2Config(**SIZES)), True),
        (LlamaMLP(LlamaConfig(**SIZES, hidden_act="gelu")), False),
        (ScaledMLP(LLAMA), False),
    ],
    ids=["llama", "with a bias", "qwen2", "another function", "another product"],
)
def test_a_packed_block_computes_what_the_models_block_does(
    block: torch.nn.Module, is_packed: bool, tokens: int
) -> None:
    fast = packed(block)
    assert isinstance(fast, PackedMLP) is is_packed
    inputs = torch.randn(2, tokens, 96)
    torch.testing.assert_close(fast(inputs), block(inputs), rtol=1e-5, atol=1e-5)
