"""The token table in vLLM's V1 model runner: states are tracked on the host.

vLLM reports which row of the batch belongs to which request, and gives each request's output tokens as a live
list. A row that returns after a preemption brings its tokens, so its state is computed from them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from localjudge.constraint.masking import DeviceTable, HostTable
from localjudge.engines.vllm.score_collector import TableHolder, TableSettings, entry_of, slot_of


@dataclass(slots=True)
class _RowState:
    tokens: list[int]
    limit: int  # the most tokens of the request
    deadline: int  # the number of tokens at which it must be complete, unless another text begins before
    slot: int
    state: int
    folded: int = 0


class TableProcessor(TableHolder, LogitsProcessor):  # type: ignore[misc]
    """Adapter for the interface of `vllm.v1.sample.logits_processor`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        settings = TableSettings.from_vllm(vllm_config)
        self._slot_count = settings.slots
        self._table = self.load_table(settings)
        self._allowances = self._table.allowances(settings.text_tokens, settings.thinking_budget)
        kind = HostTable if device.type == "cpu" else DeviceTable
        self._tensors: HostTable | DeviceTable = kind(
            self._table, settings.closing_margin, device, settings.slots
        )
        self.scores = self._tensors.scores
        self._device = device
        self._pin = is_pin_memory
        self._rows: dict[int, _RowState] = {}
        self._where = self._slots = np.empty(
            0, np.int64
        )  # of the rows: their indices in the batch, their slots
        self._after = self._table.next_state.item  # reads one entry, faster than an index does

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Track the rows of the batch. `apply` reads the tokens: the newest may be a placeholder until then."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _prompt, tokens in batch_update.added:
            self._rows.pop(index, None)
            slot = slot_of(params, self._slot_count)
            if slot is not None:
                entry = entry_of(params, self._table)
                limit = params.max_tokens
                deadline = min(limit, int(self._allowances[entry]))
                self._rows[index] = _RowState(tokens, limit, deadline, slot, entry)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if replaced is not None and direction == MoveDirectionality.SWAP:
                self._rows[source] = replaced
        # In batch order, so that logits need no copy if all rows are answers.
        self._rows = dict(sorted(self._rows.items()))
        self._where = np.array([*self._rows], np.int64)
        self._slots = np.array([row.slot for row in self._rows.values()], np.int64)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._rows:
            return logits
        rows = list(self._rows.values())
        for row in rows:
            self._fold(row)
        states = np.array([row.state for row in rows])
        left = np.array([row.deadline - row.folded for row in rows])
        # After its end a row may be computed once more; the result is ignored.
        left = np.maximum(left, np.maximum(self._table.distance[states], 1))
        where, slots = self._where, self._slots
        # Distinct indices in ascending order: none is missing if the last one is their number less one.
        every = len(rows) == len(logits) == where[-1] + 1
        part = logits if every else logits[torch.from_numpy(where).to(logits.device)]
        if isinstance(self._tensors, HostTable):
            self._tensors.constrain(part, states, left, slots)
        else:
            packed = torch.from_numpy(np.stack([states, left, slots]))
            if self._pin:
                packed = packed.pin_memory()
            self._tensors.constrain(part, *packed.to(self._device, non_blocking=True))
        if not every:
            logits[torch.from_numpy(where).to(logits.device)] = part
        return logits

    def _fold(self, row: _RowState) -> None:
        """Advance a row's state over its new tokens."""
        for token in row.tokens[row.folded :]:
            after: int = self._after(row.state, token)
            row.folded += 1
            if after >= 0 and after != row.state:
                row.state = after
                if self._allowances[after]:
                    row.deadline = min(row.limit, row.folded + int(self._allowances[after]))
