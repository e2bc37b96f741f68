"""The answers of a batch in progress: the tokens that are allowed next, and the one that is picked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from localjudge.constraint.masking import HostTable
from localjudge.constraint.value_paths import Branch
from localjudge.engines.protocol import Decoding
from localjudge.prompts.task import Prompt


class BatchAnswers:
    """The answers of a batch, a row each.

    The token at each place of a sampled row has its own random number. So the row's tokens do not depend on the
    other rows of the batch, nor on which tokens were picked and which are fixed.

    Attributes:
        tokens: the tokens of each row so far, thoughts included.
    """

    def __init__(self, table: HostTable, decoding: Decoding, prompts: Sequence[Prompt]) -> None:
        self._table = table
        self._decoding = decoding
        if decoding.temperature > 0:
            generators = [np.random.Generator(np.random.Philox(each.seed)) for each in prompts]
            self._draws = np.stack([each.random(decoding.max_tokens) for each in generators])
        self._fixed_token = table.fixed_token
        self._allowances = decoding.allowances
        self._writes = (table.table.text >= 0) | table.table.thinks
        self._starts = [each.start for each in prompts]
        entry = table.table.entry
        self._states = np.array([entry if start is None else start for start in self._starts], np.int64)
        # The length at which each row must be complete, unless another text begins before.
        self._deadline = self._allowances[self._states]
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self._complete = np.zeros(len(prompts), bool)

    @property
    def writing(self) -> list[int]:
        """The rows that are inside a text, or that think."""
        rows: list[int] = np.flatnonzero(self._writes[self._states]).tolist()
        return rows

    @property
    def incomplete(self) -> list[int]:
        """The rows whose answer is not complete."""
        rows: list[int] = np.flatnonzero(~self._complete).tolist()
        return rows

    def pick(self, rows: Sequence[int], logits: torch.Tensor) -> None:
        """Pick the next token of these rows; rows that are complete stay as they are.

        Args:
            rows: rows of the batch.
            logits: float32 (rows, V); they are changed.
        """
        at = np.array(rows)
        lengths = np.array([len(self.tokens[row]) for row in rows])
        # The token after a complete answer is ignored, but some token must be allowed.
        left = np.where(self._complete[at], 1, self._deadline[at] - lengths)
        self._table.constrain(logits, self._states[at], left, at)
        picked = logits.argmax(dim=-1) if self._decoding.temperature == 0 else self._sample(at, lengths, logits)
        for row, token in zip(rows, picked.tolist(), strict=True):
            if not self._complete[row]:
                self._append(row, token)

    def branches(self) -> list[tuple[int, Branch]]:
        """Return the picks beside the answers that are to be computed next, each with its row."""
        if not self._table.paths.most_branches:
            return []
        kept = self._table.scores.look([*range(len(self.tokens))])
        return [
            (row, branch)
            for row, tokens in enumerate(self.tokens)
            for branch in self._table.paths.unexplored(kept[row], tokens, self._starts[row])
        ]

    def keep(self, branches: Sequence[tuple[int, Branch]], logits: torch.Tensor) -> None:
        """Keep what the model says at these picks; logits are float32 (branches, V)."""
        at = torch.tensor([(row, branch.pick) for row, branch in branches], device=logits.device)
        self._table.scores.keep(logits, at[:, 0], at[:, 1])

    def append_fixed(self, rows: Sequence[int]) -> None:
        """Append the fixed text that comes next in each of these rows, up to the next text or value."""
        for row in rows:
            while (token := self._fixed_token[self._states[row]]) >= 0 and not self._writes[self._states[row]]:
                self._append(row, int(token))

    def _append(self, row: int, token: int) -> None:
        table, state = self._table.table, self._states[row]
        after = self._states[row] = table.next_state[state, token]
        self.tokens[row].append(token)
        if self._allowances[after] and after != state:
            self._deadline[row] = len(self.tokens[row]) + self._allowances[after]
        self._complete[row] = table.distance[after] == 0

    def _sample(self, rows: NDArray[np.int64], places: NDArray[np.int64], logits: torch.Tensor) -> torch.Tensor:
        """Return one token per row, (rows,), by inverting the cumulative distribution."""
        weights = torch.softmax(logits.double() / self._decoding.temperature, dim=-1)
        if self._decoding.top_p < 1:
            # The nucleus (Holtzman et al. 2020): the most likely tokens until their mass reaches top_p.
            ranked, order = weights.sort(dim=-1, descending=True, stable=True)
            outside = ranked.cumsum(dim=-1) - ranked >= self._decoding.top_p
            weights = weights.scatter(1, order, ranked.masked_fill(outside, 0.0))
        mass = weights.cumsum(dim=-1)
        draws = torch.from_numpy(self._draws[rows, places.clip(max=self._draws.shape[1] - 1)])[:, None]
        picked = torch.searchsorted(mass, draws.to(mass.device) * mass[:, -1:], right=True)[:, 0]
        # A draw that rounds up to the whole mass would select a token beyond the last one with any mass.
        return torch.where(picked < mass.shape[1], picked, weights.argmax(dim=-1))
