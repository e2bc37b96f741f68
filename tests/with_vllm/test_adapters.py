"""The table inside vLLM's two model runners, driven step by step with vLLM's own types and without an engine.

What the runners do around a logits processor is played here: which requests come and go, where their rows
stand, which positions are computed twice. What the adapters must do is the table's rule on each row's history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import (
    BatchUpdate,
    BatchUpdateBuilder,
    MoveDirectionality,
)
from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns as v1_loader
from vllm.v1.worker.gpu import buffer_utils
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcRequestState,
)
from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs_by_fqcns as v2_loader
from vllm.v1.worker.gpu.states import RequestState

from localjudge import Rubric
from localjudge.constraint.compiler import after_thinking, token_table
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.engines.protocol import Decoding
from localjudge.engines.vllm.runners import V1Processor, V2Processor
from localjudge.engines.vllm.table_settings import KEY, table_config, table_digest

CPU = torch.device("cpu")
WORDS = [b"x", b"The", b" answer", b" is", b" right", b".", b" Not"]
WORDS += [b'{"', b"rationale", b'":"', b'","', b"scores", b"score", b'":{"', b'"}}', b'"},"']
WORDS += [aspect.encode() for aspect in Rubric.load().aspects] + [
    bytes([letter]) for letter in b"acdefghilnorstuy"
]
PIECES = [b'"', b"{", b"}", b":", b",", *(b"%d" % digit for digit in range(10)), *WORDS]
END = len(PIECES)
VOCABULARY = Vocabulary(dict(enumerate(PIECES)), frozenset({END}), END + 3)
TABLE: TokenTable = token_table(Rubric.load().answer_layout, VOCABULARY)
STRETCH = 3
TEXT_TOKENS = 9
LONGEST = TABLE.limit(TEXT_TOKENS)
BUDGET = 9
THINKING = after_thinking(TABLE, VOCABULARY, opens=[END + 1], ends=END + 2)
IN_WORDS = after_thinking(TABLE, VOCABULARY, opens=[], ends=b'"},"score', then=[END + 1, END + 2])
"""Thoughts that a text of several tokens ends, and tokens between them and the answer."""
EACH = token_table(Rubric.load("six-aspects", rationale="each").answer_layout, VOCABULARY)
"""Answers with six rationales."""
TABLES = {"answering": TABLE, "thinking": THINKING, "in words": IN_WORDS, "each": EACH}
SLOTS = 16
PROMPT = 7


tables = st.sampled_from([*TABLES.values()])


def most_tokens(table: TokenTable) -> int:
    return table.limit(TEXT_TOKENS) + (BUDGET if table.thinking else 0) + tokens_to_answer(table)


def tokens_to_answer(table: TokenTable) -> int:
    """Return the number of tokens that end a thought; 0 for answers without thoughts."""
    return int(table.distance[table.entry]) - table.smallest_limit


@dataclass(eq=False)
class Request:
    """A request and a model's opinion on it: logits that depend on its tokens so far and on nothing else.

    It has `limit` tokens in all. A model that thinks has at most `LONGEST` of these for its answer.
    """

    tag: int
    limit: int
    answers: bool = True
    table: TokenTable = TABLE
    outputs: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> list[int]:
        return [self.tag % END] * (1 + self.tag % PROMPT)

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.outputs

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(
            temperature=0, max_tokens=self.limit, extra_args={KEY: self.tag} if self.answers else None
        )

    def logits(self, outputs: list[int]) -> torch.Tensor:
        seed = hash((self.tag, *outputs)) % 2**31
        return torch.randn(VOCABULARY.size, generator=torch.Generator().manual_seed(seed))

    def path(self, outputs: list[int]) -> list[int]:
        """The states before each token and after the last; -1 from where the table refuses a token."""
        path = [self.table.entry]
        for token in outputs:
            path.append(-1 if path[-1] < 0 else int(self.table.next_state[path[-1], token]))
        return path

    def allowed(self, outputs: list[int]) -> torch.Tensor | None:
        """What the rule allows after these tokens; None where they are no beginning of an answer."""
        if not self.answers:
            return torch.ones(VOCABULARY.size, dtype=torch.bool)
        path = self.path(outputs)
        if min(path) < 0:
            return None
        allowances = self.table.allowances(TEXT_TOKENS, BUDGET)
        deadline = int(allowances[path[0]])
        for place, (before, state) in enumerate(pairwise(path), 1):
            if allowances[state] and state != before:
                deadline = place + int(allowances[state])
        deadline = min(self.limit, deadline)
        left = max(deadline - len(outputs), int(self.table.distance[path[-1]]), 1)
        return torch.from_numpy(self.table.allowed(path[-1], left, STRETCH))

    def next_token(self, outputs: list[int]) -> int:
        allowed = self.allowed(outputs)
        return 0 if allowed is None else int(self.logits(outputs).masked_fill(~allowed, -torch.inf).argmax())

    @property
    def is_finished(self) -> bool:
        return len(self.outputs) >= self.limit or self.outputs[-1:] == [END]

    @property
    def scores(self) -> np.ndarray:
        """The probabilities of each value of each score, their mass, and whether one was likeliest."""
        path = self.path(self.outputs)
        at = [path.index(int(state)) for state in self.table.score_state]
        return np.concatenate(
            [kept_of(self.logits(self.outputs[:step]), self.table.score_token[0]) for step in at]
        )


def kept_of(logits: torch.Tensor, values: np.ndarray) -> np.ndarray:
    """Return what a table keeps at a value where none may end, (K + 3,)."""
    shares = torch.softmax(logits.double(), dim=0)[values]
    return np.append(shares / shares.sum(), [0.0, shares.sum(), int(logits.argmax()) in values])


@pytest.fixture(scope="module", autouse=True)
def v2_without_a_gpu() -> Iterator[None]:
    """The V2 runner's own request state without pinned memory and without Triton's kernels."""

    def apply_write(tensor: Any) -> None:
        begin = 0
        for row, start, end in zip(
            tensor._staged_write_indices, tensor._staged_write_starts, tensor._staged_write_cu_lens, strict=True
        ):
            content = torch.tensor(tensor._staged_write_contents[begin:end], dtype=tensor.dtype)
            target = tensor.gpu[row] if tensor.gpu.dim() > 1 else tensor.gpu[row : row + 1]
            target[start : start + len(content)] = content
            begin = end
        tensor.clear_staged_writes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer_utils, "is_uva_available", lambda: False)
        patch.setattr(buffer_utils.StagedWriteTensor, "apply_write", apply_write)
        yield


@pytest.fixture(scope="module", autouse=True)
def table_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    Config.folder = tmp_path_factory.mktemp("tables")
    for name, table in TABLES.items():
        table.save(Config.folder / f"{name}.npz")


class Config:
    """vLLM's configuration, as far as an adapter looks."""

    folder: Path

    def __init__(self, table: TokenTable, drafts: int = 0) -> None:
        (name,) = (name for name, each in TABLES.items() if each is table)
        budget = BUDGET if table.thinking else None
        self.decoding = Decoding(table, TEXT_TOKENS, STRETCH, thinking_budget=budget)
        self.additional_config = table_config(self.decoding, self.folder / f"{name}.npz", SLOTS)
        self.speculative_config = SimpleNamespace(num_speculative_tokens=drafts) if drafts else None


def v1_processor(table: TokenTable = TABLE) -> V1Processor:
    return V1Processor(Config(table), CPU, is_pin_memory=False)


def some_requests(chance: Random, table: TokenTable, count: int) -> list[Request]:
    """Answers within mixed limits, and between them requests that are none."""
    longest = most_tokens(table)
    shortest = LONGEST + tokens_to_answer(table) if table.thinking else table.smallest_limit
    return [
        Request(tag, chance.randint(shortest, longest), chance.random() < 0.8, table) for tag in range(count)
    ]


def assert_allows(masked: torch.Tensor, request: Request, outputs: list[int]) -> None:
    """The row holds the model's logits where the rule allows a token, and -inf elsewhere."""
    allowed = request.allowed(outputs)
    assert allowed is not None
    expected = request.logits(outputs).masked_fill(~allowed, -torch.inf)
    assert torch.equal(masked, expected), (request, outputs)


# The V1 model runner


class V1Batch:
    """vLLM's persistent batch: holes of leavers are filled by newcomers, then from the end, then rows swap."""

    def __init__(self, table: TokenTable = TABLE) -> None:
        self.processor = v1_processor(table)
        self.rows: list[Request | None] = []
        self._builder = BatchUpdateBuilder()

    def update(
        self, leaving: list[Request], coming: list[Request], swaps: list[tuple[int, int]] | None = None
    ) -> BatchUpdate | None:
        builder = self._builder
        for request in leaving:
            index = self.rows.index(request)
            builder.removed_append(index)
            self.rows[index] = None
        for request in coming:
            index = builder.pop_removed()
            if index is None:
                index = len(self.rows)
                self.rows.append(None)
            self.rows[index] = request
            builder.added.append((index, request.params, request.prompt, request.outputs))
        while (hole := builder.peek_removed()) is not None:
            last = max((n for n, request in enumerate(self.rows) if request), default=-1)
            if hole >= last:
                break
            builder.pop_removed()
            builder.moved.append((last, hole, MoveDirectionality.UNIDIRECTIONAL))
            self.rows[hole], self.rows[last] = self.rows[last], None
        while self.rows and self.rows[-1] is None:
            self.rows.pop()
        for one, other in swaps or ():
            if max(one, other) < len(self.rows) and one != other:
                builder.moved.append((one, other, MoveDirectionality.SWAP))
                self.rows[one], self.rows[other] = self.rows[other], self.rows[one]
        return builder.get_and_reset(len(self.rows))

    def apply(self) -> torch.Tensor:
        seen = [request.logits(request.outputs) for request in self.rows if request]
        return self.processor.apply(torch.stack(seen))


def test_v1_rows_may_leave_come_move_and_swap() -> None:
    batch = V1Batch()
    a, b, c, d = (Request(tag, LONGEST - tag) for tag in range(4))
    other = Request(4, 99, answers=False)
    steps: list[tuple[list[Request], list[Request], list[tuple[int, int]]]] = [
        ([], [a, b, other, c], []),
        ([], [], []),
        ([b], [d], []),  # d takes b's index, and nobody says that b has left it
        ([a], [], []),  # c moves from the end to the front
        ([], [], [(0, 2)]),
        ([other], [a], [(0, 1)]),
        ([c], [other, b], [(0, 3), (1, 2)]),
        ([a, d, b, other], [], []),
        ([], [c], []),
    ]
    for leaving, coming, swaps in steps:
        update = batch.update(leaving, coming, swaps)
        batch.processor.update_state(update)
        if not batch.rows:
            continue
        for masked, request in zip(batch.apply(), batch.rows, strict=True):
            assert request is not None
            assert_allows(masked, request, request.outputs)
            request.outputs.append(request.next_token(request.outputs))


def test_v1_a_newcomer_takes_an_index_that_nobody_was_said_to_leave() -> None:
    batch = V1Batch()
    first, second = Request(0, LONGEST), Request(1, LONGEST, answers=False)
    batch.processor.update_state(batch.update([], [first]))
    update = batch.update([first], [second])
    assert update is not None
    assert not update.removed, "the case that this test is about"
    batch.processor.update_state(update)
    assert_allows(batch.apply()[0], second, [])


@settings(max_examples=40)
@given(st.integers(0, 2**32), tables)
def test_v1_masks_follow_the_rule_whatever_the_batch_does(seed: int, table: TokenTable) -> None:
    chance = Random(seed)
    batch = V1Batch(table)
    waiting = some_requests(chance, table, 9)
    requests, fresh = list(waiting), set[Request]()
    for _ in range(2000):
        running = [request for request in batch.rows if request]
        finished = [request for request in running if request.is_finished and chance.random() < 0.5]
        preempted = [request for request in running if not request.is_finished and chance.random() < 0.05]
        for request in preempted:
            request.outputs = list(request.outputs)  # it comes back with a list of its own
        coming = [request for request in waiting if len(running) < 5 and chance.random() < 0.3]
        waiting = [request for request in waiting if request not in coming] + preempted
        swaps = [(chance.randrange(5), chance.randrange(5)) for _ in range(chance.randrange(3))]
        update = batch.update(finished + preempted, coming, swaps)
        # Under asynchronous scheduling the newest token of a row that goes on is not there yet.
        held = {request: request.outputs.pop() for request in fresh if request in batch.rows}
        for request in held:
            request.outputs.append(-1)
        batch.processor.update_state(update)
        for request, token in held.items():
            request.outputs[-1] = token
        fresh = set()
        if not batch.rows:
            if not waiting:
                break
            continue
        # A chunk of a prompt is computed and thrown away, at the position that its request stands at.
        chunks = [request in coming and chance.random() < 0.5 for request in batch.rows]
        seen = [
            torch.randn(VOCABULARY.size) if chunk else request.logits(request.outputs)
            for chunk, request in zip(chunks, batch.rows, strict=True)
            if request
        ]
        masks = batch.processor.apply(torch.stack(seen))
        for masked, row, chunk in zip(masks, batch.rows, chunks, strict=True):
            assert row is not None
            if chunk:
                assert masked.isfinite().any()
                continue
            assert_allows(masked, row, row.outputs)
            if not row.is_finished:
                row.outputs.append(row.next_token(row.outputs))
                fresh.add(row)
    assert all(request.is_finished for request in requests)
    for request in requests:
        if request.answers:
            np.testing.assert_allclose(batch.processor.scores.take([request.tag])[0], request.scores, rtol=1e-6)


# The V2 model runner


@dataclass
class V2Row:
    """A row of logits: the last token that the model was fed for it, and the output tokens until there."""

    request: Request
    local: int
    position: int
    fed: int
    outputs: list[int]
    is_chunk: bool = False


class V2Runner:
    """Slots, histories and rows of the V2 model runner."""

    def __init__(self, slots: int, drafts: int = 0, table: TokenTable = TABLE) -> None:
        self.state = RequestState(
            max_num_reqs=slots,
            max_model_len=PROMPT + max(map(most_tokens, TABLES.values())) + drafts + 2,
            max_num_batched_tokens=64,
            num_speculative_steps=drafts,
            vocab_size=VOCABULARY.size,
            device=CPU,
        )
        self.drafts = drafts
        self.processor = V2Processor(
            Config(table, drafts), LogitsProcRequestState.from_request_state(self.state)
        )
        self.computed: dict[Request, int] = {}

    def admit(self, request: Request) -> None:
        self.state.add_request(
            str(request.tag),
            len(request.prompt),
            request.tokens,
            num_computed_tokens=0,
            max_tokens=request.limit,
        )
        answers = self.processor.add_request(self.slot(request), request.params)
        assert answers == request.answers
        self.computed[request] = 0

    def release(self, request: Request) -> None:
        self.state.remove_request(str(request.tag))
        del self.computed[request]

    def slot(self, request: Request) -> int:
        return self.state.req_id_to_index[str(request.tag)]

    def flush(self) -> None:
        self.state.apply_staged_writes()
        self.processor.apply_staged_writes()

    def rows(self, request: Request, chance: Random) -> list[V2Row]:
        """The rows of a request in this step: one, or one more for each draft token."""
        tokens, prompt = request.tokens, len(request.prompt)
        prefill = int(self.state.prefill_len.np[self.slot(request)])
        if self.computed[request] < prefill:
            computed = chance.randint(self.computed[request] + 1, prefill)
            self.computed[request] = computed
            outputs = tokens[prompt:computed]
            return [V2Row(request, 0, computed - 1, tokens[computed - 1], outputs, computed < prefill)]
        drafted = list(request.outputs)
        for _ in range(chance.randint(0, self.drafts)):
            right = chance.random() < 0.7
            drafted.append(request.next_token(drafted) if right else chance.randrange(VOCABULARY.size))
        path = request.prompt + drafted
        return [
            V2Row(request, local, at, path[at], path[prompt : at + 1])
            for local, at in enumerate(range(len(tokens) - 1, len(path)))
        ]

    def apply(self, rows: list[V2Row]) -> torch.Tensor:
        return self.processor.apply(*self.batch(rows))

    def batch(self, rows: list[V2Row]) -> tuple[torch.Tensor, LogitsContext]:
        """Return the logits of rows, and where they stand."""
        slots = [self.slot(row.request) for row in rows]
        own = np.array([slot for slot, row in zip(slots, rows, strict=True) if row.local == 0], np.int32)
        context = LogitsContext(
            expanded_idx_mapping=torch.tensor(slots, dtype=torch.int32),
            idx_mapping=torch.from_numpy(own),
            idx_mapping_np=own,
            expanded_local_pos=torch.tensor([row.local for row in rows], dtype=torch.int32),
            input_ids=torch.tensor([row.fed for row in rows], dtype=torch.int32),
            pos=torch.tensor([row.position for row in rows]),
            seq_lens_upper_bound_np=np.array([row.position + 1 for row in rows if row.local == 0]),
        )
        seen = torch.stack([row.request.logits(row.outputs) for row in rows])
        return seen, context

    def write(self, request: Request, tokens: list[int]) -> None:
        """As the runner's `post_update`: the tokens that were sampled and kept."""
        request.outputs += tokens
        end = len(request.tokens)
        slot = self.slot(request)
        self.state.all_token_ids.gpu[slot, end - len(tokens) : end] = torch.tensor(tokens, dtype=torch.int32)
        self.state.total_len.gpu[slot] = end
        self.computed[request] = end - 1


def v1_masks(processor: V1Processor, rows: list[V2Row]) -> torch.Tensor:
    """What the V1 adapter makes of the same histories."""
    added = [(n, row.request.params, row.request.prompt, row.outputs) for n, row in enumerate(rows)]
    processor.update_state(BatchUpdate(len(rows), removed=list(range(99)), added=added, moved=[]))
    return processor.apply(torch.stack([row.request.logits(row.outputs) for row in rows]))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([0, 0, 1, 3]), tables)
def test_v2_masks_and_scores_are_those_of_v1_on_the_same_histories(
    seed: int, drafts: int, table: TokenTable
) -> None:
    chance = Random(seed)
    runner, reference = V2Runner(3, drafts, table), v1_processor(table)
    waiting = some_requests(chance, table, 8)
    requests = list(waiting)
    for _ in range(2000):
        for request in list(runner.computed):
            if request.is_finished and chance.random() < 0.5:
                runner.release(request)
            elif not request.is_finished and chance.random() < 0.04:
                runner.release(request)
                waiting.append(request)
        while waiting and runner.state.free_indices and chance.random() < 0.5:
            runner.admit(waiting.pop(0))
        runner.flush()
        scheduled = [request for request in runner.computed if chance.random() < 0.8]
        chance.shuffle(scheduled)
        rows = [row for request in scheduled for row in runner.rows(request, chance)]
        if not rows:
            if not waiting and not runner.computed:
                break
            continue
        masks = runner.apply(rows)
        real = []
        for masked, row in zip(masks, rows, strict=True):
            assert masked.isfinite().any(), "whatever a row is, some token can be picked"
            if row.is_chunk:
                continue
            if row.request.allowed(row.outputs) is not None:  # else a draft before it is refused
                assert_allows(masked, row.request, row.outputs)
            # A draft is accepted where it is what its row would have sampled.
            request, ahead = row.request, len(row.outputs) - len(row.request.outputs)
            accepted = all(row.outputs[-n] == request.next_token(row.outputs[:-n]) for n in range(1, ahead + 1))
            if accepted and len(row.outputs) <= request.limit and END not in row.outputs[:-1]:
                real.append((row, masked))
        if real:
            same = v1_masks(reference, [row for row, _ in real])
            for (row, masked), other in zip(real, same, strict=True):
                assert torch.equal(masked, other), row
        for request in scheduled:
            picked = [request.next_token(row.outputs) for row, _ in real if row.request is request]
            room = request.limit - len(request.outputs)
            if END in picked:
                picked = picked[: picked.index(END) + 1]
            if picked[:room] and not request.is_finished:
                runner.write(request, picked[:room])
    assert all(request.is_finished for request in requests)
    for request in requests:
        if request.answers:
            kept = runner.processor.scores.take([request.tag])[0]
            np.testing.assert_array_equal(kept, reference.scores.take([request.tag])[0])
            np.testing.assert_allclose(kept, request.scores, rtol=1e-6)


def test_v2_a_slot_forgets_who_had_it_before() -> None:
    runner = V2Runner(slots=1)
    answer, other, another = Request(0, LONGEST), Request(1, 9, answers=False), Request(2, LONGEST - 1)
    for request in (answer, other, another):
        runner.admit(request)
        runner.flush()
        for _ in range(4):
            row = V2Row(request, 0, len(request.tokens) - 1, request.tokens[-1], list(request.outputs))
            assert_allows(runner.apply([row])[0], request, request.outputs)
            runner.write(request, [request.next_token(request.outputs)])
        runner.release(request)


def test_v2_a_preempted_answer_goes_on_where_it_was_in_another_slot() -> None:
    runner = V2Runner(slots=2)
    request, other = Request(0, LONGEST), Request(1, LONGEST)
    for _ in range(10):
        request.outputs.append(request.next_token(request.outputs))
    for newcomer in (other, request):
        runner.admit(newcomer)
    runner.flush()
    chunk = V2Row(request, 0, 4, request.tokens[4], request.tokens[len(request.prompt) : 5], is_chunk=True)
    assert runner.apply([chunk]).isfinite().any()
    row = V2Row(request, 0, len(request.tokens) - 1, request.tokens[-1], list(request.outputs))
    assert_allows(runner.apply([row])[0], request, request.outputs)


def test_v2_a_refused_draft_does_not_overwrite_the_score_before_it() -> None:
    runner = V2Runner(slots=1, drafts=2)
    request = Request(0, TABLE.smallest_limit)
    while TABLE.states(request.outputs)[-1] != TABLE.score_state[0]:
        request.outputs.append(request.next_token(request.outputs))
    runner.admit(request)
    runner.flush()
    comma = PIECES.index(b",")
    assert TABLE.next_state[TABLE.score_state[0], comma] < 0, "no score, and so refused"
    path, last = [*request.tokens, comma, comma], len(request.tokens) - 1
    rows = [
        V2Row(request, n, last + n, path[last + n], path[len(request.prompt) : last + n + 1]) for n in range(3)
    ]
    masks = runner.apply(rows)
    assert_allows(masks[0], request, request.outputs)
    assert masks.isfinite().any(dim=1).all()
    seen = kept_of(request.logits(request.outputs), TABLE.score_token[0])
    np.testing.assert_allclose(runner.processor.scores.take([0])[0, : len(seen)], seen, rtol=1e-6)


class OperationCount(TorchDispatchMode):
    """Counts the operations on tensors that compute something; views do not."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += not function.is_view
        return function(*args, **(kwargs or {}))


def operations_of_step(rows: int, at_values: int, drafts: int = 0) -> int:
    """Return the operations of a step with this many rows, some at a value and the others in a text."""
    runner = V2Runner(slots=rows, drafts=drafts)
    for tag in range(rows):
        request = Request(tag, LONGEST)
        if tag < at_values:
            while TABLE.states(request.outputs)[-1] not in TABLE.score_state:
                request.outputs.append(request.next_token(request.outputs))
        else:
            request.outputs += [request.next_token([])]
        runner.admit(request)
    runner.flush()
    of_step = [
        V2Row(request, 0, len(request.tokens) - 1, request.tokens[-1], list(request.outputs))
        for request in runner.computed
    ]
    batch = runner.batch(of_step)
    with OperationCount() as count:
        runner.processor.apply(*batch)
    return count.operations


def test_v2_a_step_has_the_same_few_operations_whatever_its_rows_are() -> None:
    found = {
        (rows, at_values): operations_of_step(rows, at_values)
        for rows, at_values in [(1, 0), (1, 1), (2, 1), (16, 0), (16, 16), (16, 5), (64, 32)]
    }
    (operations,) = {*found.values()}
    assert operations <= 63
    # Each draft token is one more walk.
    assert operations_of_step(8, 4, drafts=2) - operations_of_step(8, 4, drafts=1) <= 16


# Requests of strangers, as a server gets them


@pytest.mark.parametrize("slot", [-1, SLOTS, 10**9])
def test_an_answer_whose_slot_does_not_exist_is_masked_like_any_other(slot: int) -> None:
    known, unknown = Request(0, LONGEST), Request(slot, LONGEST)
    batch = V1Batch()
    batch.processor.update_state(batch.update([], [known, unknown]))
    for masked, request in zip(batch.apply(), batch.rows, strict=True):
        assert request is not None
        assert_allows(masked, request, [])


def test_a_request_that_is_no_answer_may_be_longer_than_any_answer_when_it_returns() -> None:
    runner, (table, longer) = V2Runner(2), sorted([TABLE, EACH], key=most_tokens)
    assert table is TABLE
    request = Request(1, 10**6, answers=False, outputs=[5] * most_tokens(longer))
    runner.admit(request)
    runner.flush()
    row = V2Row(request, 0, len(request.tokens) - 1, 5, request.outputs)
    assert torch.equal(runner.apply([row])[0], request.logits(request.outputs))


def test_each_runner_loads_the_class_of_its_servers_and_only_with_the_table_that_it_names() -> None:
    served = Config(TABLE)
    digest = table_digest(served.decoding)
    for runner, load in (("V1", v1_loader), ("V2", v2_loader)):
        (processor,) = load([f"localjudge.engines.vllm.runners:{runner}_{digest}"])
        assert processor.is_localjudge
        assert processor.configured(served)[0].table.digest == TABLE.digest
        with pytest.raises(ValueError, match=f"holds the table {digest}, and not {'1' * 32}"):
            load([f"localjudge.engines.vllm.runners:{runner}_{'1' * 32}"])[0].configured(served)
        processor.validate_params(SamplingParams(n=2))
        processor.validate_params(SamplingParams(extra_args={KEY: digest}))
        for refused in (
            SamplingParams(extra_args={KEY: 3}),
            SamplingParams(extra_args={KEY: digest}, n=2),
            SamplingParams(extra_args={KEY: digest}, bad_words=["a"]),
        ):
            with pytest.raises(ValueError, match="localjudge: "):
                processor.validate_params(refused)
    with pytest.raises(AttributeError):
        load(["localjudge.engines.vllm.runners:V3_0"])
