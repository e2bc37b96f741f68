"""The probabilities of whole values by their definition: each value is given to the model, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from localjudge.constraint.token_table import TokenTable

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

    found, masses = np.zeros(table.value_token.shape[:2]), np.zeros(len(table.score_state))
    path = table.states(answer)
    for aspect, state in enumerate(table.score_state):
        before = tuple(answer[: path.index(int(state))])
        values = [tuple(value[value >= 0].tolist()) for value in table.value_token[aspect]]
        for place, value in enumerate(filter(None, values)):  # the last may be missing
            share = mass = 1.0
            for length in range(len(value) + 1):
                longer = {each[length] for each in values if each[:length] == value[:length] != each}
                said = probabilities(before + value[:length]) if longer else torch.ones(0)
                onward = float(said[[*longer]].sum()) if longer else 0.0
                if length and value[:length] in values:  # a value may end here
                    rest = float(said[[token for token in range(len(said)) if token not in longer]].sum())
                    share *= float(said[value[length]]) if length < len(value) else rest if longer else 1.0
                elif length == 0 or len(longer) > 1:
                    share *= float(said[value[length]]) / onward
                    mass *= onward
            found[aspect, place] = share
            masses[aspect] += share * mass
    return found, masses


def fold_end(table: TokenTable, state: int, logits: torch.Tensor) -> None:
    """Give the token that ends a value, where others continue it, what all tokens have that continue none."""
    for aspect, start in enumerate(table.score_state):
        values = [tuple(value[value >= 0].tolist()) for value in table.value_token[aspect]]
        for value in filter(None, values):
            at = int(start)
            for token in value:
                at = int(table.next_state[at, token])
            longer = {each[len(value)] for each in values if each[: len(value)] == value != each}
            if at == state and longer:
                (closing,) = {*np.flatnonzero(table.next_state[at] >= 0).tolist()} - longer
                others = logits.clone()
                others[[*longer]] = -torch.inf
                logits[closing] = torch.logsumexp(others, dim=0)
                return


def total_variation(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The largest, over the aspects."""
    return float(np.abs(one - other).sum(axis=1).max() / 2)
