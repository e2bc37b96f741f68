"""The token table in the sampler of vLLM's two model runners, and access to the scores that it keeps.

vLLM creates logits processors itself, in its worker processes, from a class and its own configuration. So the
table is passed as a file, named in `additional_config` (`table_config`); a request names the slot of its
scores in `extra_args`; and `ScoreCollector`, which vLLM mixes into its worker, returns the scores.

A vLLM server has `--logits-processors localjudge.engines.vllm.runners:V1_…`. This name holds the digest of the
table and of its limits, because vLLM validates a request where only the class is known. A request asks for the
table by this digest, and no scores are kept. If the server has another table, this request alone gets an error:
an error that a processor raised later would stop the server for all clients. Requests that do not ask for a
table are not changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.platforms import current_platform
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.worker.gpu.sample import logits_processor as v2

from localjudge.constraint.masking import DeviceTable, HostTable
from localjudge.constraint.token_table import TokenTable
from localjudge.engines.protocol import Decoding
from localjudge.engines.vllm.table_settings import KEY, STATE, read_config, table_digest

_NAME = re.compile(r"(V[12])_([0-9a-f]{32})")
# Parameters that can forbid the tokens that the table allows; the sampler has nothing to sample then.
_CONFLICTING = (
    "structured_outputs", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "thinking_token_budget",
)  # fmt: skip


def answer_of(params: Any, table: TokenTable, slots: int) -> tuple[int, int, int] | None:
    """Return the state in which an answer begins, its most tokens, and the slot of its scores.

    Args:
        params: vLLM's parameters of the request; None is returned for one that is not an answer.
        table: the table.
        slots: the number of slots; also the slot of an answer whose scores nobody fetches.
    """
    asked = params.extra_args or {}
    slot, state = asked.get(KEY), asked.get(STATE)
    if slot is None:
        return None
    slot = slot if isinstance(slot, int) and 0 <= slot < slots else slots
    entry = state if isinstance(state, int) and 0 <= state < len(table.distance) else table.entry
    return entry, params.max_tokens, slot


class TableHolder:
    """What the logits processors of both runners share."""

    is_localjudge = True

    @classmethod
    def configured(cls, vllm_config: Any) -> tuple[Decoding, int]:
        """Return how answers are decoded, and the number of slots for scores."""
        return read_config(vllm_config)


class ScoreCollector:
    """vLLM's worker extension."""

    model_runner: Any

    def localjudge_take_scores(self, slots: list[int]) -> bytes:
        """Return `ScoreBuffer.take` of these slots, as the bytes of a float64 array."""
        kept: bytes = self._localjudge_processor().scores.take(slots).tobytes()
        return kept

    def _localjudge_processor(self) -> Any:
        runner = self.model_runner
        of_v2 = getattr(getattr(runner, "sampler", None), "logits_processors", None)
        processors = of_v2 or runner.input_batch.logitsprocs.all
        return next(processor for processor in processors if getattr(processor, "is_localjudge", False))


@dataclass(slots=True)
class _RowState:
    tokens: list[int]
    limit: int  # the most tokens of the request
    deadline: int  # the number of tokens at which it must be complete, unless another text begins before
    slot: int
    state: int
    folded: int = 0


class V1Processor(TableHolder, LogitsProcessor):  # type: ignore[misc]
    """The table in the V1 model runner: states are tracked on the host.

    vLLM reports which row of the batch belongs to which request, and gives each request's output tokens as a
    live list. A row that returns after a preemption brings its tokens, and its state is computed again.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        decoding, self._slot_count = self.configured(vllm_config)
        self._table, self._allowances = decoding.table, decoding.allowances
        kind = HostTable if device.type == "cpu" else DeviceTable
        self._tensors: HostTable | DeviceTable = kind(
            self._table, decoding.closing_margin, device, self._slot_count
        )
        self.scores = self._tensors.scores
        self._device = device
        self._pin = is_pin_memory
        self._rows: dict[int, _RowState] = {}
        # Of the rows: their indices in the batch, and their slots.
        self._where = self._slots = np.empty(0, np.int64)
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
            if answer := answer_of(params, self._table, self._slot_count):
                entry, limit, slot = answer
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


@dataclass(frozen=True, slots=True)
class _Walked:
    """What a walk has found of each row, (rows,) int64."""

    before: torch.Tensor  # the state before the previous position
    states: torch.Tensor  # the state before its own
    deadlines: torch.Tensor
    least_left: torch.Tensor


class V2Processor(TableHolder, v2.LogitsProcessor):  # type: ignore[misc]
    """The table in the V2 model runner: states and token history stay on the device.

    A request has a slot in the runner's state. For each slot the adapter keeps the state before each output
    token. A row of logits belongs to one output position; its state is the state before the previous position,
    advanced by the token there. If a row is computed twice, in another order, or with draft tokens before it,
    the same state is written again, so chunked prefill, preemption and speculation need no special case.

    On a GPU each operation on a tensor takes about as long for many rows as for one. So what is read together
    stands in one tensor, and a step has the same operations whatever its rows are.
    """

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        decoding, self._slot_count = self.configured(vllm_config)
        device = req_states.device
        self._states = req_states
        self._table = DeviceTable(decoding.table, decoding.closing_margin, device, self._slot_count)
        self.scores = self._table.scores
        speculative = vllm_config.speculative_config
        self._drafts = speculative.num_speculative_tokens if speculative else 0
        requests = req_states.max_num_reqs
        # At [slot, k]: the state before output token k, and the number of tokens at which the answer must be
        # complete, unless another text begins before. A rejected draft token is forgotten together with both.
        width = decoding.max_tokens + self._drafts + 1
        self._history = torch.zeros((requests, width, 2), dtype=torch.int64, device=device)
        self._history[:, :, 0] = self._table.free
        # Of each request: the prompt's tokens less one, its most tokens, and the slot of its scores.
        self._of_request = torch.zeros((requests, 3), dtype=torch.int64, device=device)
        # Of each state: its allowance, and the fewest tokens that are left. A row that will be discarded may be
        # in any state: some token must be allowed there, too.
        self._allowances = np.append(decoding.allowances, 0).astype(np.int64)
        least_left = np.maximum(np.append(decoding.table.distance, 0), 1).astype(np.int64)
        self._of_state = self._to_device(np.stack([self._allowances, least_left], axis=1))
        # The slot for scores that nobody fetches.
        self._nowhere = self._slot_count
        self._new: dict[int, tuple[int, int, int] | None] = {}

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self._new[req_idx] = answer = answer_of(sampling_params, self._table.table, self._slot_count)
        return answer is not None

    def apply_staged_writes(self) -> None:
        """Set up the slots of new requests. A preempted request brings output tokens, which are replayed."""
        if not self._new:
            return
        slots = np.fromiter(self._new, np.int64, len(self._new))
        fresh = np.array([new or (self._table.free, 0, 0) for new in self._new.values()], np.int64)
        states, limits, kept_at = fresh.T
        prompts = self._states.prompt_len.np[slots].astype(np.int64)
        at = self._to_device(slots)
        self._of_request[at] = self._to_device(np.stack([prompts - 1, limits, kept_at], axis=1))
        deadlines = np.minimum(limits, self._allowances[states])
        self._history[at, 0] = self._to_device(np.stack([states, deadlines], axis=1))
        outputs = self._states.prefill_len.np[slots] - prompts
        # No answer has more tokens than the history holds; a request that is none may.
        for step in range(min(int(outputs.max(initial=0)), self._history.shape[1] - 1)):
            walking = outputs > step
            at = self._to_device(slots[walking])
            place = self._to_device(prompts[walking] + step)
            tokens = self._states.all_token_ids.gpu[at, place].long()
            limit = self._to_device(limits[walking])
            self._walk(at, torch.full_like(at, step + 1), tokens, limit)
        self._new.clear()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        before_output, limit, kept_at = self._of_request[slots].unbind(dim=1)
        position = (ctx.pos - before_output).clamp(min=0, max=self._history.shape[1] - 1)
        tokens = ctx.input_ids.long()
        # Draft tokens of one request are consecutive rows: each row's state depends on the row before it. So
        # each walk gives one more row of a request its state; those before it get the same state again.
        for _ in range(self._drafts + 1):
            walked = self._walk(slots, position, tokens, limit)
        left = torch.maximum(walked.deadlines - position, walked.least_left)
        if self._drafts:
            # A draft that the table forbids leaves its row in the state of the row before it: at the same
            # score.
            stays = (ctx.expanded_local_pos > 0) & (walked.before == walked.states)
            kept_at = kept_at.masked_fill(stays, self._nowhere)
        self._table.constrain(logits, walked.states, left, kept_at)
        return logits

    def _to_device(self, array: NDArray[np.int64]) -> torch.Tensor:
        """Copy from pinned memory to the device; otherwise the host would wait for the device."""
        tensor, device = torch.from_numpy(np.ascontiguousarray(array)), self._history.device
        return (tensor if device.type == "cpu" else tensor.pin_memory()).to(device, non_blocking=True)

    def _walk(
        self, slots: torch.Tensor, position: torch.Tensor, tokens: torch.Tensor, limit: torch.Tensor
    ) -> _Walked:
        """Write the state before each row's position, from the previous state and the token there.

        A row at position 0 keeps its state: its token is the last one of the prompt.
        """
        last = (position - 1).clamp(min=0)
        before, deadline = self._history[slots, last].unbind(dim=1)
        after = torch.where(position > 0, self._table.advance(before, tokens), before)
        allowance, least_left = self._of_state[after].unbind(dim=1)
        begins = (allowance > 0) & (after != before)
        deadline = torch.where(begins, torch.minimum(limit, position + allowance), deadline)
        self._history[slots, position] = torch.stack([after, deadline], dim=1)
        return _Walked(before, after, deadline, least_left)


def __getattr__(name: str) -> type[Any]:
    found = _NAME.fullmatch(name)
    if found is None:
        raise AttributeError(f"module {__name__} has no {name}")
    return _served_processor(*found.groups())


@cache
def _served_processor(runner: str, digest: str) -> type[Any]:
    """Return the logits processor of a model runner for the table with this digest."""
    base: Any = V1Processor if runner == "V1" else V2Processor

    class ServedTable(base):  # type: ignore[misc]
        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            refuse(sampling_params, digest)

        @classmethod
        def configured(cls, vllm_config: Any) -> tuple[Decoding, int]:
            decoding, slots = read_config(vllm_config)
            if (there := table_digest(decoding)) != digest:
                advice = "print the flags again with localjudge serve --print-vllm-flags"
                raise ValueError(f"localjudge: its file holds the table {there}, and not {digest}; {advice}")
            return decoding, slots

    ServedTable.__name__ = ServedTable.__qualname__ = f"{runner}_{digest}"
    ServedTable.__module__ = __name__
    return ServedTable


def refuse(params: Any, digest: str) -> None:
    """Refuse a request for another table, with options that a table excludes, or that would crash the server.

    Args:
        params: vLLM's parameters of the request.
        digest: the digest of the server's table.

    Raises:
        ValueError: the request is refused; vLLM answers it with status 400.
    """
    if params.seed is not None and current_platform.is_cpu():
        raise ValueError("localjudge: the seed of a request crashes a vLLM on a CPU; leave it out")
    asked = (params.extra_args or {}).get(KEY)
    if asked is None:
        return
    if asked != digest:
        raise ValueError(
            f"localjudge: this server has the table {digest}; judge with the model, rubric and limits of its "
            "localjudge serve --print-vllm-flags"
        )
    if params.n != 1:
        raise ValueError("localjudge: send n requests for n answers")
    if conflicting := [name for name in _CONFLICTING if getattr(params, name, None)]:
        raise ValueError(f"localjudge: {conflicting[0]} cannot be combined with a token table; leave it out")
