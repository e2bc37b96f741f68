"""The probabilities of whole values by their definition: each value is given to the model, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import torch

from localjudge.constraint.token_table import UNREACHABLE, TokenTable

ASPECTS: dict[str, dict[str, Any]] = {
    "ten": {"scale": {"lowest": 1, "highest": 10}},
    "hundred": {"scale": {"lowest": 0, "highest": 100}},
    "signed": {"scale": {"lowest": -10, "highest": 10}},
    "heat": {"choices": ["warm", "warmer", "warmest", "cold"]},
    "five": {"scale": {"lowest": 1, "highest": 5}},
}
"""Aspects whose values share tokens, and one whose values do not."""

Logits = Callable[[Sequence[int]], torch.Tensor]


def values_one_by_one(
    table: TokenTable, answer: Sequence[int], logits: Logits
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the probability of each value of each aspect, (A, K), and their mass, (A,), by their definition.

    Args:
        table: the table.
        answer: an answer, without thoughts.
        logits: what the model says after these tokens of an answer, (V,).
    """

    @cache  # values begin alike
    def probabilities(before: tuple[int, ...]) -> torch.Tensor:
        return torch.softmax(logits(before).double(), dim=0)

    def share(before: Sequence[int], tokens: Sequence[int]) -> float:
        return float(probabilities(tuple(before))[list(tokens)].sum())

    found, path = np.zeros(table.value_token.shape[:2]), table.states(answer)
    for aspect, state in enumerate(table.score_state):
        before = list(answer[: path.index(int(state))])
        values = [tuple(value[value >= 0].tolist()) for value in table.value_token[aspect]]
        for place, value in enumerate(values):
            if not value:
                continue
            if table.first_token_decides[aspect]:
                found[aspect, place] = share(before, value[:1])
                continue
            shares = [share([*before, *value[:at]], [value[at]]) for at in range(len(value))]
            if longer := {each[len(value)] for each in values if each[: len(value)] == value != each}:
                *_, after = accumulate(
                    value, lambda at, token: int(table.next_state[at, token]), initial=int(state)
                )
                ends = set(np.flatnonzero(table.allowed(after, UNREACHABLE)).tolist()) - longer
                shares.append(share([*before, *value], sorted(ends)))
            found[aspect, place] = prod(shares)
    mass = found.sum(axis=1)
    return found / mass[:, None], mass


def total_variation(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The largest, over the aspects."""
    return float(np.abs(one - other).sum(axis=1).max() / 2)
