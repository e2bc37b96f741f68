"""Packed layers compute what ordinary ones do, and a weight that is used twice is not copied."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from localjudge.engines.transformers.packed_layers import PackedLinear, pack

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
