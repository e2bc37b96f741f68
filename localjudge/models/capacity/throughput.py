"""Predict how long a job takes: a roofline of the model's work on a device.

A pass of the model takes the longer of two times: its operations divided by the operations per second that the
device reaches, and the bytes that it reads divided by the bytes per second (`models/capacity/device.py`).

    prefill   2 operations for each active parameter and prompt token, and the attention: compute-bound
    decode    in each step all weights once (of a mixture of experts, those that some row uses) and each row's
              keys and values: bandwidth-bound with few rows in flight, compute-bound with many

vLLM (GPUs): prompt tokens that the prefix cache serves are not computed. The memory gives the number of rows in
flight (`models/capacity/memory.py`). Every token of an answer is a step, fixed text as well. Copies of the
model share the rows evenly; each is split over as many GPUs as `memory` recommends; communication is
free.

transformers (CPUs): batches of a fixed size, no prefix cache. A prompt is padded by about `PADDING`, and each
padded token attends to all others. The longest rationale of a batch counts as twice the mean. A step copies the
keys and values of its rows, so they move three times. Fixed text costs operations, and the scores a pass each;
where layers are not all of full attention, each token is a step.

The time to load the model, to encode rows and to write judgements is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from localjudge.models.capacity.device import Device
from localjudge.models.capacity.memory import ANSWER_TOKENS, CPU_BATCH, MOST_GPUS, PlannedUse, gpu_requirements
from localjudge.models.shape import BYTES, Layer, Shape

EXPECTED_SHARE = 0.5
"""Share of its limit that a rationale, or a thought, takes in the mean, where nothing else is said."""
PADDING = 2**0.125
"""Mean length of a padded prompt in a full batch of the transformers engine, relative to the prompt."""


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """The tokens of an answer.

    Attributes:
        written: tokens of its thoughts and its rationale, in the mean.
        written_limit: their limit.
        fixed: tokens of fixed text.
        scores: tokens of scores.
    """

    written: float
    written_limit: int
    fixed: int
    scores: int

    @property
    def total(self) -> float:
        """Tokens of the whole answer, in the mean."""
        return self.written + self.fixed + self.scores

    @property
    def longest(self) -> AnswerTokens:
        """The answer at its limit."""
        return replace(self, written=self.written_limit)


@dataclass(frozen=True, slots=True)
class Workload:
    """The rows that a model judges.

    Attributes:
        rows: number of prompts; duplicate rows have one.
        prompt_tokens: total number of their tokens.
        shared_tokens: number of them that a prefix cache serves.
        squares: sum of the squares of the prompts' lengths.
        answer: the tokens of each answer.
        estimate: how the tokens were estimated, in words; empty if they were counted.
    """

    rows: int
    prompt_tokens: int
    shared_tokens: int
    squares: int
    answer: AnswerTokens
    estimate: str = ""

    @classmethod
    def estimated(
        cls, lengths: Sequence[int], use: PlannedUse, written: float | None, scores: int, estimate: str
    ) -> Workload:
        """Return the work of prompts of estimated lengths in tokens, of which none share a prefix.

        Args:
            lengths: the length of each prompt.
            use: the limits of a rationale and its thoughts.
            written: as in `localjudge.runs.workload`.
            scores: the number of scores.
            estimate: how the lengths were estimated.
        """
        limit = use.rationale_tokens + use.thinking_tokens
        mean = EXPECTED_SHARE * limit if written is None else written
        answer = AnswerTokens(mean, limit, max(1, ANSWER_TOKENS - scores), scores)
        squares = sum(each**2 for each in lengths)
        return cls(len(lengths), sum(lengths), 0, squares, answer, estimate)

    @property
    def mean(self) -> float:
        """Mean length of a prompt in tokens."""
        return self.prompt_tokens / max(1, self.rows)

    @property
    def shared(self) -> float:
        """Share of the prompt tokens that a prefix cache serves."""
        return self.shared_tokens / max(1, self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class Throughput:
    """The predicted speed on this many GPUs, or on a CPU.

    Attributes:
        gpus: number of GPUs; 0 for a CPU.
        split: GPUs over which each copy of the model is split; 0 for a CPU.
        rows_in_flight: rows that a copy works on at once.
        rows: rows of the job.
        seconds: the predicted time.
    """

    gpus: int
    split: int
    rows_in_flight: int
    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def hours(self) -> float:
        return self.seconds / 3600


def throughput(
    shape: Shape,
    weights: int,
    work: Workload,
    device: Device,
    use: PlannedUse | None = None,
    *,
    gpus: int = 1,
    batch: int = CPU_BATCH,
    max_num_seqs: int | None = None,
) -> Throughput | None:
    """Return the predicted speed; None if the model does not fit these GPUs.

    Args:
        shape: the shape of the model.
        weights: bytes of its stored weights.
        work: the rows; at least one.
        device: each GPU, or the CPU.
        use: the share of the memory and the type of the cache on GPUs; its tokens are taken from `work`.
        gpus: the number of GPUs.
        batch: rows in a batch on a CPU.
        max_num_seqs: vLLM's option; None for its default.

    Raises:
        ModelError: a layer of the model is of an unknown kind.
    """
    if not device.is_gpu:
        return Throughput(0, 0, min(batch, work.rows), work.rows, _batches_seconds(shape, work, device, batch))
    use = replace(
        use or PlannedUse(),
        prompt_tokens=math.ceil(work.mean),
        rationale_tokens=work.answer.written_limit,
        thinking_tokens=0,
    )
    most = min(gpus, MOST_GPUS)
    chosen = gpu_requirements(
        shape, weights, use, gpu_memory=device.memory, gpus=most, max_num_seqs=max_num_seqs
    ).chosen
    if chosen is None:
        return None
    rows = work.rows / min(gpus // chosen.gpus, work.rows)
    number = 1 if use.kv_cache_dtype.startswith("fp8") else 2
    cost = _Cost(shape, weights / (2 if shape.quantization is None and shape.element == 4 else 1), number)
    in_flight = min(chosen.rows, math.ceil(rows))
    fast = replace(device, operations=device.operations * chosen.gpus, bandwidth=device.bandwidth * chosen.gpus)
    seconds = _continuous_seconds(cost, work, rows, in_flight, fast)
    return Throughput(gpus, chosen.gpus, in_flight, work.rows, seconds)


def _continuous_seconds(cost: _Cost, work: Workload, rows: float, in_flight: int, device: Device) -> float:
    """Return the seconds of vLLM for this many of the rows."""
    part, answer = rows / work.rows, work.answer.total
    computed = (work.prompt_tokens - work.shared_tokens) * part
    pairs = (1 - work.shared**2) * work.squares / 2 * part
    prefill = cost.operations(computed, rows, pairs)
    steps = max(answer, rows * answer / in_flight)
    present = rows * answer / steps
    length = work.mean + answer / 2
    step = cost.operations(present, present, present * length)
    moved = cost.weights_read(present) + present * cost.cache(length)
    return _seconds(device, prefill, 0) + steps * _seconds(device, step, moved)


def _batches_seconds(shape: Shape, work: Workload, device: Device, batch: int) -> float:
    """Return the seconds of transformers on a CPU."""
    number = BYTES[device.dtype]
    cost, answer = _Cost(shape, shape.parameters * number, number), work.answer
    batches = math.ceil(work.rows / batch)
    rows = work.rows / batches
    padded = work.mean * PADDING
    lockstep = all(layer.kind == "full" for layer in shape.layers)
    served = work.shared if lockstep else 0.0  # other models keep no beginnings
    pairs = work.squares / batches * PADDING**2 * (1 - served**2)
    prefill = cost.operations(rows * padded * (1 - served), rows, pairs)
    seconds = _seconds(device, prefill, cost.weights_read(rows * padded))

    written, closing = answer.written, float(answer.fixed + answer.scores)
    steps = min(2 * written, float(answer.written_limit))
    if not lockstep:
        written, steps, closing = written + closing, steps + closing, 0.0
    present = rows * written / steps
    length = padded + written / 2
    step = cost.operations(present, present, present * length)
    moved = cost.weights_read(present) + 3 * present * cost.cache(length)
    seconds += steps * _seconds(device, step, moved)
    if closing:
        tokens = rows * closing / answer.scores
        length = padded + written
        step = cost.operations(tokens, rows, tokens * length)
        moved = cost.weights_read(tokens) + 3 * rows * cost.cache(length)
        seconds += answer.scores * _seconds(device, step, moved)
    return batches * seconds


def _seconds(device: Device, operations: float, moved: float) -> float:
    return max(
        operations / (device.operations * device.compute_efficiency),
        moved / (device.bandwidth * device.bandwidth_efficiency),
    )


class _Cost:
    """Operations and bytes of a model.

    Args:
        shape: its shape.
        weights: bytes of all weights as the engine keeps them.
        number: bytes of a cached number.
    """

    def __init__(self, shape: Shape, weights: float, number: int) -> None:
        self._shape, self._number = shape, number
        self._head = shape.vocabulary * shape.hidden
        self._active = shape.active_parameters - self._head
        # Quantised and other weights count alike.
        self._bytes = weights / shape.parameters

    def operations(self, tokens: float, sampled: float, pairs: float) -> float:
        """Return the operations for tokens, of which some get logits, and that attend to so many pairs."""
        linear = 2 * self._active * tokens + 2 * self._head * sampled
        # A window sees no more than its width.
        window = min(pairs, tokens * (self._shape.window or math.inf))
        return linear + sum(
            _per_pair(self._shape, layer) * (window if layer.kind == "sliding" else pairs)
            for layer in self._shape.layers
        )

    def weights_read(self, tokens: float) -> float:
        """Return the bytes of the weights that a pass over this many tokens reads."""
        layers = sum(layer.dense + layer.small + _touched(layer, tokens) for layer in self._shape.layers)
        return (layers + self._head) * self._bytes

    def cache(self, tokens: float) -> float:
        """Return the bytes that a row of this many tokens keeps."""
        return self._shape.cached_values(round(tokens)) * self._number + self._shape.state_bytes


def _per_pair(shape: Shape, layer: Layer) -> float:
    """Return the operations for a token and one it attends to: products with its key and its value."""
    return 2 * shape.heads * layer.values / layer.kv_heads if layer.values else 0.0


def _touched(layer: Layer, tokens: float) -> float:
    """Return the parameters of the experts that at least one token uses, if all are equally likely."""
    return layer.experts * (1 - (1 - layer.active / layer.experts) ** tokens) if layer.experts else 0.0
