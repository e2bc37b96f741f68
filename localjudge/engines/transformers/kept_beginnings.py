"""The keys and values of the beginnings of prompts, kept from batch to batch.

What counts as a beginning follows from the rubric's template (`Prompt.beginnings`), not from the rows at hand.
A beginning is computed by itself, without the rest of a prompt, whether it is kept or not. So another batch, a
run that continues and a shard compute the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import torch

Kept = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""The keys and values of each layer, (1, heads, tokens, width of a head)."""


class PromptPart(NamedTuple):
    """A part of a prompt: its tokens up to the end of the part, and where the part begins."""

    begin: int
    tokens: tuple[int, ...]

    @property
    def new(self) -> tuple[int, ...]:
        """The tokens of the part alone."""
        return self.tokens[self.begin :]


class KeptBeginnings:
    """The beginnings that were used last, as many tokens of them as the largest batch so far has.

    Each is kept without the shorter beginning before it, which is kept once for all that follow it.

    Attributes:
        most: number of tokens of the largest batch.
        served: number of tokens of prompts that were not computed, because an earlier prompt begins with them.
    """

    def __init__(self) -> None:
        self.served = 0
        self.most = 0
        self._kept: OrderedDict[PromptPart, Kept] = OrderedDict()

    def get(self, beginning: PromptPart) -> Kept | None:
        """Return the keys and values of a part; None if they are not kept."""
        if beginning in self._kept:
            self._kept.move_to_end(beginning)
        return self._kept.get(beginning)

    def keep(self, beginning: PromptPart, kept: Kept) -> None:
        """Keep a copy of the keys and values of a part, and drop the parts that were used longest ago."""
        self._kept[beginning] = [(keys.clone(), values.clone()) for keys, values in kept]
        while self.tokens > self.most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Drop all: the model is another one, or later prompts are to be computed as the first ones were."""
        self._kept.clear()

    @property
    def tokens(self) -> int:
        """Number of tokens whose keys and values are kept."""
        return sum(kept[0][0].shape[2] for kept in self._kept.values())
