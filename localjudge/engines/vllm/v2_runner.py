"""The token table in vLLM's V2 model runner: states and token history stay on the device.

A request has a slot in the runner's state. For each slot the adapter keeps the state before each output
token. A row of logits belongs to one output position; its state is the state before the previous position,
advanced by the token there. If a row is computed twice, in another order, or with draft tokens before it, the
same state is written again, so chunked prefill, preemption and speculation need no special case.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)

from localjudge.constraint.masking import DeviceTable
from localjudge.engines.vllm.score_collector import TableHolder, TableSettings, entry_of, slot_of


class TableProcessor(TableHolder, LogitsProcessor):  # type: ignore[misc]
    """Adapter for the interface of `vllm.v1.worker.gpu.sample.logits_processor`."""

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        settings = TableSettings.from_vllm(vllm_config)
        device = req_states.device
        self._states = req_states
        self._slot_count = settings.slots
        self._table = DeviceTable(self.load_table(settings), settings.closing_margin, device, settings.slots)
        self.scores = self._table.scores
        speculative = vllm_config.speculative_config
        self._drafts = speculative.num_speculative_tokens if speculative else 0
        requests = req_states.max_num_reqs
        # The state before output token k is at [slot, k]; the last column takes values that no row keeps.
        width = settings.max_tokens + self._drafts + 2
        self._history = torch.full((requests, width), self._table.free, dtype=torch.int64, device=device)
        allowances = self._table.table.allowances(settings.text_tokens, settings.thinking_budget)
        self._allowances = self._to_device(np.append(allowances, 0))
        # The most tokens of each request.
        self._limit = torch.zeros(requests, dtype=torch.int64, device=device)
        # The number of tokens at which the answer must be complete, unless another text begins before, as known
        # at each position: a rejected draft token is forgotten together with its state.
        self._deadline = torch.zeros_like(self._history)
        # The score slot of each request slot, and the slot for rows that are not answers.
        self._kept_at = torch.zeros(requests, dtype=torch.int64, device=device)
        self._nowhere = settings.slots
        self._new: dict[int, tuple[int, int, int] | None] = {}

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        slot = slot_of(sampling_params, self._slot_count)
        entry = entry_of(sampling_params, self._table.table)
        self._new[req_idx] = None if slot is None else (entry, sampling_params.max_tokens, slot)
        return slot is not None

    def apply_staged_writes(self) -> None:
        """Set up the slots of new requests. A preempted request brings output tokens, which are replayed."""
        if not self._new:
            return
        slots = np.fromiter(self._new, np.int64, len(self._new))
        fresh = np.array([new or (self._table.free, 0, 0) for new in self._new.values()]).T
        at = self._to_device(slots)
        self._history[at, 0], self._limit[at], self._kept_at[at] = self._to_device(fresh)
        self._deadline[at, 0] = torch.minimum(self._limit[at], self._allowances[self._history[at, 0]])
        prompts = self._states.prompt_len.np[slots]
        outputs = self._states.prefill_len.np[slots] - prompts
        # No answer has more tokens than the history holds; a request that is none may.
        for step in range(min(int(outputs.max(initial=0)), self._history.shape[1] - 2)):
            walking = outputs > step
            at = self._to_device(slots[walking])
            place = self._to_device(prompts[walking].astype(np.int64) + step)
            tokens = self._states.all_token_ids.gpu[at, place].long()
            self._walk(at, torch.full_like(at, step + 1), tokens)
        self._new.clear()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        position = ctx.pos.long() + 1 - self._states.prompt_len.gpu[slots].long()
        position = position.clamp(min=0, max=self._history.shape[1] - 2)
        tokens = ctx.input_ids.long()
        # Draft tokens of one request are consecutive rows: each row's state depends on the row before it.
        for place in range(self._drafts + 1):
            here = (ctx.expanded_local_pos == place) & (position > 0)
            self._walk(slots, position, tokens, here)
        states = self._history[slots, position]
        # A row that will be discarded may be in any state: some token must be allowed there, too.
        left = torch.maximum(self._deadline[slots, position] - position, self._table.distance[states])
        kept_at = self._kept_at[slots]
        if self._drafts:
            # A draft that the table forbids leaves its row in the state of the row before it: at the same
            # score.
            stays = (ctx.expanded_local_pos > 0) & (self._history[slots, (position - 1).clamp(min=0)] == states)
            kept_at = torch.where(stays, self._nowhere, kept_at)
        self._table.constrain(logits, states, left.clamp(min=1), kept_at)
        return logits

    def _to_device(self, array: NDArray[np.int64]) -> torch.Tensor:
        """Copy from pinned memory to the device; otherwise the host would wait for the device."""
        tensor, device = torch.from_numpy(np.ascontiguousarray(array)), self._history.device
        return (tensor if device.type == "cpu" else tensor.pin_memory()).to(device, non_blocking=True)

    def _walk(
        self,
        slots: torch.Tensor,
        position: torch.Tensor,
        tokens: torch.Tensor,
        here: torch.Tensor | None = None,
    ) -> None:
        """Write the state before each row's position, from the previous state and the token there.

        `here` selects the rows; the values of other rows go to the last column.
        """
        last = (position - 1).clamp(min=0)
        before, deadline = self._history[slots, last], self._deadline[slots, last]
        after = self._table.advance(before, tokens)
        allowance = self._allowances[after]
        fresh = torch.minimum(self._limit[slots], position + allowance)
        deadline = torch.where((allowance > 0) & (after != before), fresh, deadline)
        at = position if here is None else torch.where(here, position, self._history.shape[1] - 1)
        self._history[slots, at], self._deadline[slots, at] = after, deadline
