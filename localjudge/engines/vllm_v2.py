"""The token table in vLLM's V2 model runner: states stay on the device, and so does the tokens' history.

A request has a slot in the runner's state. For each slot the adapter keeps the state before each output
token. A row of logits stands at one output position; its state is the one before the previous position,
advanced by the token there. Computing a row twice, in another order, or with draft tokens before it, writes
the same again, so neither chunked prefill nor preemption nor speculation needs a case of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)

from localjudge.decoding import DeviceTable
from localjudge.engines.vllm_worker import WorkerSettings, slot_of, validate


class TableProcessor(LogitsProcessor):  # type: ignore[misc]
    """The adapter for the interface of `vllm.v1.worker.gpu.sample.logits_processor`."""

    is_localjudge = True

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        validate(sampling_params)

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        settings = WorkerSettings.of(vllm_config)
        device = req_states.device
        self._states = req_states
        self._table = DeviceTable(settings.load_table(), settings.stretch, device, settings.slots)
        self.scores = self._table.scores
        speculative = vllm_config.speculative_config
        self._drafts = speculative.num_speculative_tokens if speculative else 0
        requests = req_states.max_num_reqs
        # The state before output token k stands at [slot, k]; the last column takes what no row is to keep.
        width = settings.max_tokens + self._drafts + 2
        self._history = torch.full((requests, width), self._table.free, dtype=torch.int64, device=device)
        self._limit = settings.limit
        # Of each slot: the number of tokens by which its answer must be complete, and where its scores are
        # kept. The host knows them first. Thinking that ends early brings the former forward.
        # As above, the last column takes what is not to be kept.
        self._deadline = torch.zeros(requests + 1, dtype=torch.int64, device=device)
        self._kept_at = torch.zeros(requests + 1, dtype=torch.int64, device=device)
        self._new: dict[int, tuple[int, int] | None] = {}
        self._sampled = False

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        slot = slot_of(sampling_params)
        self._new[req_idx] = None if slot is None else (sampling_params.max_tokens, slot)
        if slot is None:
            return False
        self._sampled |= sampling_params.temperature > 0
        return True

    def apply_staged_writes(self) -> None:
        """Set up the slots of new requests. One that was preempted brings output tokens: they are walked."""
        if not self._new:
            return
        device = self._history.device
        slots = np.fromiter(self._new, np.int64, len(self._new))
        entry, free = self._table.table.entry, self._table.free
        fresh = np.array([(free, 0, 0) if new is None else (entry, *new) for new in self._new.values()]).T
        at = torch.from_numpy(slots).to(device)
        self._history[at, 0], self._deadline[at], self._kept_at[at] = torch.from_numpy(fresh).to(device)
        prompts = self._states.prompt_len.np[slots]
        outputs = self._states.prefill_len.np[slots] - prompts
        for step in range(int(outputs.max(initial=0))):
            walking = outputs > step
            at = torch.from_numpy(slots[walking]).to(device)
            place = torch.from_numpy(prompts[walking].astype(np.int64) + step).to(device)
            tokens = self._states.all_token_ids.gpu[at, place].long()
            after = self._table.advance(self._history[at, step], tokens)
            self._end_thinking(self._history[at, step], after, at, torch.full_like(at, step + 1))
            self._history[at, step + 1] = after
        self._new.clear()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        position = ctx.pos.long() + 1 - self._states.prompt_len.gpu[slots].long()
        position = position.clamp(min=0, max=self._history.shape[1] - 2)
        tokens = ctx.input_ids.long()
        states = self._history[slots, 0]
        nowhere = self._history.shape[1] - 1
        # Draft tokens of one request follow each other: a row's state waits for the row before it.
        for place in range(self._drafts + 1):
            here = (ctx.expanded_local_pos == place) & (position > 0)
            before = self._history[slots, (position - 1).clamp(min=0)]
            after = self._table.advance(before, tokens)
            self._end_thinking(before, after, torch.where(here, slots, len(self._deadline) - 1), position)
            states = torch.where(here, after, states)
            self._history[slots, torch.where(here, position, nowhere)] = states
        # A row that will be thrown away may stand anywhere: something must be allowed there, too.
        left = torch.maximum(self._deadline[slots] - position, self._table.distance[states]).clamp(min=1)
        self._table.constrain(logits, states, left, self._kept_at[slots], sampled=self._sampled)
        return logits

    def _end_thinking(
        self, before: torch.Tensor, after: torch.Tensor, slots: torch.Tensor, position: torch.Tensor
    ) -> None:
        """Where a row's thinking has just ended, its answer has its own limit from here."""
        table = self._table.table
        if table.thinking is None:
            return
        ended = (before == table.thinking) & (after == table.start)
        self._deadline[slots] = torch.where(ended, position + self._limit, self._deadline[slots])
