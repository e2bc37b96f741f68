"""The token table at work on logits: the rule as torch operations, whichever engine drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from localjudge.engines import Decoding
from localjudge.grammar import FAR


@dataclass(frozen=True, slots=True)
class _StateMask:
    """What a state allows when no limit is near: the few allowed tokens, or the few that are not."""

    allowed: torch.Tensor | None
    forbidden: torch.Tensor | None
    furthest: int  # the largest need among the allowed tokens: with more left, the limit forbids nothing


class TableMask:
    """Masks logits by the table, row by row.

    Most rows stand far from their limit, where a state alone decides: then only the few tokens on one side of
    the rule are written, for all rows of a state at once. Rows near their limit compare every token.
    """

    def __init__(self, decoding: Decoding, device: torch.device) -> None:
        self.decoding = decoding
        self._device = device
        self._masks: dict[int, _StateMask] = {}

    def apply(self, logits: torch.Tensor, states: NDArray[np.int64], left: NDArray[np.int64]) -> None:
        """Forbid, in place, each token that may not come next. Afterwards every row has some finite logit.

        Args:
            logits: (rows, V), floating point. A broken model's NaNs and infinities are made finite first.
            states: the state of each row, (rows,).
            left: the tokens left to each row, at least 1, (rows,).
        """
        largest = torch.finfo(logits.dtype).max / 8
        torch.nan_to_num_(logits, nan=-largest, posinf=largest, neginf=-largest)
        for state in np.unique(states):
            mask = self._mask(int(state))
            here = states == state
            near = here & (left <= mask.furthest)
            self._by_state(logits, np.flatnonzero(here & ~near), mask)
            for row in np.flatnonzero(near):
                allowed = self.decoding.table.allowed(int(state), int(left[row]), self.decoding.stretch)
                logits[row, torch.from_numpy(~allowed).to(self._device)] = -torch.inf

    def _by_state(self, logits: torch.Tensor, rows: NDArray[np.int64], mask: _StateMask) -> None:
        if not rows.size:
            return
        which = torch.from_numpy(rows).to(self._device)[:, None]
        if mask.allowed is not None:
            kept = logits[which, mask.allowed]
            logits[which[:, 0]] = -torch.inf
            logits[which, mask.allowed] = kept
        else:
            logits[which, mask.forbidden] = -torch.inf

    def _mask(self, state: int) -> _StateMask:
        if state not in self._masks:
            need = self.decoding.table.need(state, self.decoding.stretch)
            allowed, forbidden = np.flatnonzero(need < FAR), np.flatnonzero(need >= FAR)
            furthest = int(need[allowed].max(initial=0))
            few = len(allowed) <= len(forbidden)
            tokens = torch.from_numpy(allowed if few else forbidden).to(self._device)
            self._masks[state] = _StateMask(tokens if few else None, None if few else tokens, furthest)
        return self._masks[state]


class TableDecoder:
    """One batch of answers on their way: where each row stands, and what the model thought of its scores."""

    def __init__(self, mask: TableMask, rows: int) -> None:
        table = mask.decoding.table
        self._mask = mask
        self._aspect_of = {int(state): aspect for aspect, state in enumerate(table.score_state)}
        self.states = np.full(rows, table.start, np.int64)
        self.lengths = np.zeros(rows, np.int64)  # tokens of each row's answer so far
        self.step = 0
        shape = (rows, *table.score_token.shape)
        self.probabilities = np.full(shape, np.nan) if table.has_probabilities else None
        self.broken = np.zeros(rows, bool)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Whether each row's answer is complete."""
        done: NDArray[np.bool_] = self._mask.decoding.table.distance[self.states] == 0
        return done

    def constrain(self, logits: torch.Tensor) -> None:
        """Mask the logits (rows, V) of the next token in place, and keep those of the scores."""
        rows = np.flatnonzero(~self.complete)
        self._capture(logits, rows)
        left = np.full(len(self.states), self._mask.decoding.limit - self.step)
        # A complete row's next token is not read, but its logits must still hold a choice.
        left[self.complete] = 1
        self._mask.apply(logits, self.states, np.maximum(left, 1))

    def advance(self, tokens: Sequence[int]) -> None:
        """Take the token of each row; those of complete rows count for nothing."""
        going = ~self.complete
        after = self._mask.decoding.table.next_state[self.states, tokens]
        self.states = np.where(going, after, self.states)
        self.lengths += going
        self.step += 1

    def _capture(self, logits: torch.Tensor, rows: NDArray[np.int64]) -> None:
        """Each row at a score: the probabilities of its values by the model alone, without temperature."""
        for row in rows:
            aspect = self._aspect_of.get(int(self.states[row]))
            if aspect is None:
                continue
            tokens = torch.from_numpy(self._mask.decoding.table.score_token[aspect]).to(logits.device)
            if self.probabilities is None:
                self.broken[row] |= not bool(torch.isfinite(logits[row]).any())
                continue
            chosen = logits[row, tokens].double()
            self.broken[row] |= not bool(torch.isfinite(chosen).all())
            self.probabilities[row, aspect] = torch.softmax(chosen, dim=0).cpu().numpy()
