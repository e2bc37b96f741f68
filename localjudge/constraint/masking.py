"""Apply the token table to logits, as tensor operations that every engine shares.

`HostTable` tracks each row's state on the host and changes few logits; it suits CPUs, and engines that read
every token on the host. `DeviceTable` keeps everything on the device and never waits for it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.value_paths import ValuePaths

Rows = NDArray[np.int64]


def _make_finite(logits: torch.Tensor) -> None:
    """Replace NaN and infinity by finite numbers, in place, so that every allowed token can be picked."""
    largest = torch.finfo(logits.dtype).max / 8
    logits.nan_to_num_(nan=-largest, posinf=largest, neginf=-largest)


def _with_row(array: NDArray[np.generic], value: int, device: torch.device) -> torch.Tensor:
    """Return an array on the device, with a last row of this value."""
    shape = (1,) + array.shape[1:]
    row = np.full(shape, value, array.dtype)
    return torch.from_numpy(np.concatenate([array, row])).to(device)


class ScoreBuffer:
    """The probabilities of the branches of values, kept on the logits' device until the engine fetches them.

    Each answer has a slot, and each pick columns in it (`ValuePaths.column`). The last write counts, because
    an engine may compute a position more than once and only the last computation is valid. Probabilities are
    those of the branches at a pick, before temperature and top-p, divided by their sum; NaN if a logit that
    they need is not a finite number. The sum is in the model's distribution over its whole vocabulary, and 1
    where a value may end.
    """

    def __init__(self, paths: ValuePaths, slots: int, device: torch.device) -> None:
        # One extra slot and one extra column: on a device, what is not to be kept is written there.
        shape = slots + 1, paths.width + 1
        self._kept = torch.full(shape, torch.nan, dtype=torch.float64, device=device)
        absent = np.arange(paths.token.shape[1]) >= paths.count[:, None]
        # The last row is that of no pick, which is -1: nothing ends there, and nothing is kept.
        self._columns = _with_row(paths.column, paths.width, device)
        self._tokens = _with_row(paths.token, 0, device)
        self._closing = _with_row(paths.closing, -1, device)
        self._absent = _with_row(absent, True, device)

    def keep(self, logits: torch.Tensor, slots: torch.Tensor, picks: torch.Tensor) -> None:
        """Keep the probabilities at each row's pick, make the logits finite, and fold the end into one token.

        Where a value may end, the token that the table allows after it gets the logit of the end: the
        log-sum-exp of all tokens that continue no value. So what is written follows the kept probabilities.

        Args:
            logits: (rows, V), before they are masked; changed in place.
            slots: the slot of each row, (rows,).
            picks: the pick of each row, (rows,); -1 for none.
        """
        tokens = self._tokens[picks]
        closing = self._closing[picks]
        chosen = logits.gather(1, tokens)
        others = logits.scatter_(1, tokens, -torch.inf)
        rest = torch.logsumexp(others, dim=1)
        largest = others.amax(dim=1)
        logits.scatter_(1, tokens, chosen)
        likeliest = chosen.amax(dim=1) >= largest
        listed = chosen.double().masked_fill_(self._absent[picks], -torch.inf)
        exact_rest = rest.double()
        may_end = closing >= 0
        end = exact_rest.masked_fill(~may_end, -torch.inf)
        branches = torch.cat([listed, end[:, None]], dim=1)
        # A broken logit of another token must not make a row fail: the mass is then a number without meaning.
        whole = torch.cat([listed, exact_rest.nan_to_num(torch.inf)[:, None]], dim=1)
        mass = (torch.logsumexp(branches, dim=1) - torch.logsumexp(whole, dim=1)).exp().clamp(max=1)
        shares = torch.softmax(branches, dim=1)
        kept = torch.cat([shares, mass[:, None], likeliest[:, None]], dim=1)
        self._kept[slots[:, None], self._columns[picks]] = kept
        _make_finite(logits)
        _make_finite(rest)
        where = closing.clamp(min=0)[:, None]
        logits.scatter_(1, where, torch.where(may_end[:, None], rest[:, None], logits.gather(1, where)))

    def look(self, slots: list[int]) -> NDArray[np.float64]:
        """Return what is kept in these slots, (slots, `ValuePaths.width`); NaN where nothing was kept."""
        kept: NDArray[np.float64] = self._kept[slots, :-1].cpu().numpy()
        return kept

    def take(self, slots: list[int]) -> NDArray[np.float64]:
        """Return what is kept in these slots as `look` does, and clear them."""
        kept = self.look(slots)
        self._kept[slots] = torch.nan
        return kept


@dataclass(frozen=True, slots=True)
class _Mask:
    """The tokens that may come next, as the shorter of two lists: the allowed or the forbidden tokens."""

    tokens: torch.Tensor
    are_allowed: bool


class HostTable:
    """Mask logits by states that the host knows, and change as few logits as possible.

    The allowed tokens depend on the row's state and on how many of the state's distinct `tokens_required`
    values fit the tokens left. A state has few such values, and almost always all of them fit. So there are few
    masks; each is built once and applied to all rows that share it.
    """

    def __init__(self, table: TokenTable, closing_margin: int, device: torch.device, slots: int) -> None:
        self.table = table
        self.paths = ValuePaths(table)
        self.fixed_token = table.fixed_token
        self.scores = ScoreBuffer(self.paths, slots, device)
        self._closing_margin = closing_margin
        self._device = device
        self._needs: dict[int, list[int]] = {}
        self._masks: dict[tuple[int, int], _Mask] = {}
        self._pick = np.full(len(table.distance), -1)
        self._pick[self.paths.state] = np.arange(len(self.paths.state))

    def constrain(self, logits: torch.Tensor, states: Rows, left: Rows, slots: Rows) -> None:
        """Do what `ScoreBuffer.keep` does, then forbid, in place, each token that may not come next.

        Args:
            logits: (rows, V), floating point.
            states: the state of each row, (rows,).
            left: the number of tokens left for each row, at least 1, (rows,).
            slots: the slot that keeps each row's scores, (rows,).
        """
        picks = self._pick[states]
        picking = np.flatnonzero(picks >= 0)  # the rows at a pick
        if picking.size:
            rows_at_pick = self._tensor(picking)
            of_rows = logits[rows_at_pick]
            self.scores.keep(of_rows, self._tensor(slots[picking]), self._tensor(picks[picking]))
            logits[rows_at_pick] = of_rows
        _make_finite(logits)
        groups: dict[tuple[int, int], list[int]] = {}  # the rows of each mask
        # Plain Python: NumPy's overhead for each group is larger than the work.
        for row, (state, tokens_left) in enumerate(zip(states.tolist(), left.tolist(), strict=True)):
            needs = self._needs.get(state) or self._distinct_needs(state)
            groups.setdefault((state, bisect_left(needs, tokens_left)), []).append(row)
        for (state, covered), rows in groups.items():
            self._write(logits, np.array(rows), self._mask(state, covered))

    def _write(self, logits: torch.Tensor, rows: Rows, mask: _Mask) -> None:
        """Apply a mask to these rows."""
        if logits.device.type != "cpu" or logits.dtype != torch.float32:
            self._write_tensors(logits, self._tensor(rows), mask)
            return
        # Row by row is by far the fastest here: memory is read in order, and no threads are started.
        values = logits.numpy()
        tokens = mask.tokens.numpy()
        if not mask.are_allowed:
            for row in rows:
                values[row][tokens] = -np.inf
            return
        kept = values[rows[:, None], tokens]
        for row in rows:
            values[row].fill(-np.inf)
        values[rows[:, None], tokens] = kept

    def _write_tensors(self, logits: torch.Tensor, rows: torch.Tensor, mask: _Mask) -> None:
        """Apply a mask to these rows by tensor operations."""
        if not mask.are_allowed:
            logits[rows[:, None], mask.tokens] = -torch.inf
            return
        kept = logits[rows[:, None], mask.tokens]
        logits[rows] = -torch.inf
        logits[rows[:, None], mask.tokens] = kept

    def _distinct_needs(self, state: int) -> list[int]:
        """Return the distinct `tokens_required` of the tokens that a state allows, smallest first."""
        if state not in self._needs:
            needs = np.unique(self.table.tokens_required(state, self._closing_margin))
            self._needs[state] = needs[needs < UNREACHABLE].tolist()
        return self._needs[state]

    def _mask(self, state: int, covered: int) -> _Mask:
        """Return the mask of a state when this many of its distinct needs fit the limit."""
        if (state, covered) not in self._masks:
            largest_need = self._distinct_needs(state)[covered - 1] if covered else -1
            allowed = self.table.tokens_required(state, self._closing_margin) <= largest_need
            lists_allowed = bool(allowed.sum() * 2 <= len(allowed))
            tokens = np.flatnonzero(allowed if lists_allowed else ~allowed)
            self._masks[state, covered] = _Mask(self._tensor(tokens), lists_allowed)
        return self._masks[state, covered]

    def _tensor(self, array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


class DeviceTable:
    """Mask logits with gather operations on the device: two tables of (S, V) int16, and no wait for a result.

    `free` is an extra state for a row that is not an answer: it allows every token and never ends.
    """

    def __init__(self, table: TokenTable, closing_margin: int, device: torch.device, slots: int) -> None:
        self.table = table
        paths = ValuePaths(table)
        self.scores = ScoreBuffer(paths, slots, device)
        states, vocabulary = table.next_state.shape
        self.free = states
        need = np.zeros((states + 1, vocabulary), np.int16)
        for state in range(states):
            need[state] = np.minimum(table.tokens_required(state, closing_margin), UNREACHABLE)
        self._need = torch.from_numpy(need).to(device)
        # A forbidden token leaves the state unchanged.
        own_state = np.arange(states, dtype=np.int16)[:, None]
        after = np.where(table.next_state >= 0, table.next_state, own_state)
        after_free = np.full((1, vocabulary), self.free, np.int16)
        self._next_state = torch.from_numpy(np.concatenate([after, after_free])).to(device)
        pick = np.full(states + 1, -1)
        pick[paths.state] = np.arange(len(paths.state))
        self._pick = torch.from_numpy(pick).to(device)

    def constrain(
        self, logits: torch.Tensor, states: torch.Tensor, left: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Do what `HostTable.constrain` does, for int64 tensors on the device."""
        self.scores.keep(logits, slots, self._pick[states])
        # A token fits if it and those that must follow it are not more than are left.
        left = left.clamp(max=UNREACHABLE).to(torch.int16)
        logits.masked_fill_(self._need[states] >= left[:, None], -torch.inf)

    def advance(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the state after each row's token; a forbidden token leaves the state unchanged."""
        return self._next_state[states, tokens].to(states.dtype)
