"""The answers of a batch in progress: the tokens that are allowed next, and the one that is picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from localjudge.constraint.masking import HostTable
from localjudge.constraint.value_paths import Branch
from localjudge.engines.protocol import Decoding


@dataclass(frozen=True, slots=True)
class Draft:
    """The tokens of an answer so far, and those that are likely to follow.

    Attributes:
        tokens: the tokens.
        picks: the lengths of the answer at which a token is picked; the first is that of the answer so far.
    """

    tokens: list[int]
    picks: list[int]


@dataclass(frozen=True, slots=True)
class PickedLogits:
    """The logits at the picks of drafts.

    Attributes:
        logits: (rows, places, V).
        picks: for each draft its row in `logits`, and the place of each of its picks.
    """

    logits: torch.Tensor
    picks: Sequence[tuple[int, list[int]]]

    def at(self, nth: int, drafts: Sequence[int]) -> torch.Tensor:
        """Return a copy of the logits at the nth pick of some drafts, float32 (drafts, V)."""
        rows, places = zip(*((self.picks[each][0], self.picks[each][1][nth]) for each in drafts), strict=True)
        found = self.logits[list(rows), list(places)]
        return found.to(torch.float32)


class BatchAnswers:
    """The answers of a batch, a row each.

    The token at each place of a sampled row has its own random number. So the row's tokens do not depend on the
    other rows of the batch, nor on which tokens were picked and which are fixed.

    Attributes:
        tokens: the tokens of each row so far, thoughts included.
    """

    def __init__(self, table: HostTable, decoding: Decoding, seeds: Sequence[int]) -> None:
        self._table = table
        self._decoding = decoding
        if decoding.temperature > 0:
            generators = [np.random.Generator(np.random.Philox(seed)) for seed in seeds]
            self._draws = np.stack([each.random(decoding.max_tokens) for each in generators])
        self._fixed_token = table.fixed_token
        self._allowances = decoding.allowances
        self._writes = (table.table.text >= 0) | (np.arange(len(table.table.text)) == table.table.thinking)
        self._states = np.full(len(seeds), table.table.entry, np.int64)
        # The length at which each row must be complete, unless another text begins before.
        self._deadline = np.full(len(seeds), self._allowances[table.table.entry])
        self.tokens: list[list[int]] = [[] for _ in seeds]
        self._complete = np.zeros(len(seeds), bool)

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

    def draft(self, row: int, *, ahead: bool) -> Draft:
        """Return the tokens of a row, followed by what is likely to come next, up to a text or the end.

        Args:
            row: the row.
            ahead: whether anything may follow the tokens so far.
        """
        tokens = [*self.tokens[row]]
        return Draft(tokens, [len(tokens)])

    def pick(self, rows: Sequence[int], drafts: Sequence[Draft], logits: PickedLogits, *, fixed: bool) -> None:
        """Pick the next tokens of these rows, as far as their drafts are right; complete rows stay as they are.

        Args:
            rows: rows of the batch.
            drafts: their drafts.
            logits: the logits at the picks of the drafts.
            fixed: whether the fixed text after a pick is appended.
        """
        left, nth = [*range(len(rows))], 0
        while left:
            self._pick([rows[each] for each in left], logits.at(nth, left))
            if fixed:
                self._append_fixed([rows[each] for each in left])
            nth += 1
            left = [each for each in left if self._agrees(rows[each], drafts[each], nth)]

    def _agrees(self, row: int, draft: Draft, nth: int) -> bool:
        """Return whether the answer is what its draft says up to the nth pick."""
        return nth < len(draft.picks) and self.tokens[row] == draft.tokens[: draft.picks[nth]]

    def _pick(self, rows: Sequence[int], logits: torch.Tensor) -> None:
        """Pick the next token of these rows; logits are float32 (rows, V), and they are changed."""
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
            for branch in self._table.paths.unexplored(kept[row], tokens)
        ]

    def keep(self, branches: Sequence[tuple[int, Branch]], logits: torch.Tensor) -> None:
        """Keep what the model says at these picks; logits are float32 (branches, V)."""
        at = torch.tensor([(row, branch.pick) for row, branch in branches], device=logits.device)
        self._table.scores.keep(logits, at[:, 0], at[:, 1])

    def _append_fixed(self, rows: Sequence[int]) -> None:
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
