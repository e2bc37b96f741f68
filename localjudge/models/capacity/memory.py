"""Compute what a judge needs: weights, cache, rows in flight, and the number of GPUs to split it over.

This is arithmetic on a `Shape`; no GPU is queried. For vLLM, on each of `g` GPUs that share the model:

    weights   W / g
    overhead  2 GiB + T (3 I / g + 2 H) b + 12 S V
    cache     u M - weights - overhead
    row       its cached numbers times the bytes of one, in blocks of 16 tokens, and its fixed states
    rows      the whole rows that the cache holds, at most S

with W the bytes of all weights, M those of a GPU, u `--gpu-memory-utilization` (vLLM takes this share of
the GPU and gives the unused rest to the cache: `Worker.determine_available_memory`), I and H the widths of
a token in the widest feed-forward block and between layers, b the bytes of a number, V the vocabulary. T and
S are vLLM's own `max_num_batched_tokens` and `max_num_seqs` for its offline engine
(`EngineArgs.get_batch_defaults`): 16,384 and 1,024 on a GPU of 70 GiB or more, else 8,192 and 256. The middle
term is the gate, the value and their product of one feed-forward block, with a layer's input and residual;
the last is the logits of S rows in float32, three times (raw, for the sampler, sorted). 2 GiB stand
for the CUDA context, NCCL and the captured graphs: a round number that fits the one run measured (Qwen3-8B on
an H200 with vLLM 0.24, `benchmarks/results/gpu.json`, 3.8 GiB of overhead). Weights in float32 count half:
vLLM runs them in 16 bits by default.

A cached prefix that rows share is ignored; with it, more rows fit than computed here. A vision tower and layers
that draft tokens are ignored, too, unless the weights are counted from files.

For transformers on a CPU there is no paged cache; 16 rows are padded to the length L of the longest:

    all       W + 16 row + 16 L (3 I + 2 H) b + 1 GiB

where W counts quantised weights, also those of a GGUF file, as `dtype`, because they are unpacked, and 1 GiB
stands for Python, its libraries and the token table.
"""

from __future__ import annotations

from dataclasses import dataclass

from localjudge.models.shape import Shape
from localjudge.prompts.task_stream import BLOCK
from localjudge.system.quantities import GIB, memory_size

CPU_BATCH = 16
"""Rows in a batch of the transformers engine on a CPU."""
USEFUL_ROWS = 64
"""Rows in flight below which another GPU is useful: each step reads all weights, even for few rows."""
MOST_GPUS = 8
"""Limit of GPUs for tensor parallelism: those of one host."""
PROMPT_TOKENS = 1500
"""Tokens of a typical prompt: about 550 of the default rubric; the rest is the row."""
ANSWER_TOKENS = 35
"""Tokens of an answer to the default rubric without its rationale: keys, quotes, scores."""


@dataclass(frozen=True, slots=True)
class PlannedUse:
    """The intended use of a model; sizes in tokens of a typical row.

    Attributes:
        prompt_tokens: tokens of its prompt.
        rationale_tokens: limit of its rationale.
        thinking_tokens: limit of its thoughts.
        gpu_memory_utilization: the share of each GPU that vLLM takes.
    """

    prompt_tokens: int = PROMPT_TOKENS
    rationale_tokens: int = 256
    thinking_tokens: int = 0
    gpu_memory_utilization: float = 0.9

    @property
    def answer_tokens(self) -> int:
        return self.thinking_tokens + self.rationale_tokens + ANSWER_TOKENS

    @property
    def row_tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class GpuSplit:
    """The model split over this many GPUs; bytes are per GPU.

    Attributes:
        cache: bytes left for the cache; negative if the model does not fit.
        row: bytes of the cache for a typical row.
        rows: rows in flight at once.
        longest: tokens of the longest row that fits.
        refused: why vLLM would refuse this split; empty if it accepts it.
    """

    gpus: int
    weights: int
    overhead: int
    cache: int
    row: int
    rows: int
    longest: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class GpuRequirements:
    """The needs of a model on GPUs of one size.

    Attributes:
        weights: bytes of all weights.
        token: bytes that a token adds to the cache of all GPUs while no window is full.
        row: bytes of the cache for a typical row on one GPU.
        max_model_len: a limit that allows rows twice as long.
        tried: the split for each number of GPUs, fewest first.
        chosen: the recommended split; None if the model does not fit.
        problem: why it does not fit, or why the chosen split has little room; empty if there is no problem.
    """

    weights: int
    token: int
    row: int
    max_model_len: int
    tried: tuple[GpuSplit, ...]
    chosen: GpuSplit | None
    problem: str


def gpu_requirements(
    shape: Shape,
    weights: int,
    use: PlannedUse,
    *,
    gpu_memory: int,
    gpus: int = MOST_GPUS,
    max_num_seqs: int | None = None,
) -> GpuRequirements:
    """Return what vLLM needs for this model.

    Tensor parallelism uses powers of two. The smallest number of GPUs that vLLM accepts and that has room for
    `USEFUL_ROWS` is chosen; if there is none, the number with room for the most rows.

    Args:
        shape: the shape of the model.
        weights: bytes of its stored weights.
        use: the intended use.
        gpu_memory: bytes of each GPU.
        gpus: the largest number of GPUs.
        max_num_seqs: vLLM's option; None for its default.
    """
    if shape.quantization is None:
        weights = weights * min(2, shape.element) // shape.element
    number = min(2, shape.element)
    tokens = use.row_tokens
    longest = -(-2 * tokens // 1024) * 1024
    rows_at_once = max_num_seqs or (1024 if gpu_memory >= 70 * GIB else 256)
    tried = []
    count = 1
    while count <= gpus:
        tried.append(
            _placement(
                shape,
                weights,
                count,
                room=int(gpu_memory * use.gpu_memory_utilization),
                batched_tokens=16384 if gpu_memory >= 70 * GIB else 8192,
                rows_at_once=rows_at_once,
                tokens=tokens,
                number=number,
            )
        )
        count *= 2
    fitting = [each for each in tried if each.rows and not each.refused]
    chosen = next((each for each in fitting if each.rows >= min(USEFUL_ROWS, rows_at_once)), None)
    problem = ""
    if chosen is None and fitting:
        chosen = max(fitting, key=lambda each: each.rows)
        problem = f"room for only {chosen.rows} rows at once: the GPUs will mostly wait for memory"
    elif chosen is None:
        problem = f"it does not fit {gpus} GPU{'s' if gpus > 1 else ''} of {memory_size(gpu_memory)}"
        if why := next((each.refused for each in tried if each.refused), ""):
            problem += f" ({why})"
    return GpuRequirements(
        weights=weights,
        token=shape.token_values * number,
        row=shape.cached_values(tokens, 1, BLOCK) * number + shape.state_bytes,
        max_model_len=min(longest, shape.context or longest),
        tried=tuple(tried),
        chosen=chosen,
        problem=problem,
    )


def _placement(
    shape: Shape,
    weights: int,
    gpus: int,
    *,
    room: int,
    batched_tokens: int,
    rows_at_once: int,
    tokens: int,
    number: int,
) -> GpuSplit:
    share = -(-weights // gpus)
    width = 3 * shape.intermediate // gpus + 2 * shape.hidden
    overhead = 2 * GIB + batched_tokens * width * min(2, shape.element) + 12 * rows_at_once * shape.vocabulary
    cache = room - share - overhead
    states = shape.state_bytes // gpus
    # If no layer's cache size is known, only vLLM's own limit on rows remains.
    row = shape.cached_values(tokens, gpus, BLOCK) * number + states or 1
    block = shape.cached_values(BLOCK, gpus, BLOCK) * number or 1
    return GpuSplit(
        gpus=gpus,
        weights=share,
        overhead=overhead,
        cache=cache,
        row=row,
        rows=min(max(0, cache) // row, rows_at_once),
        longest=max(0, cache - states) // block * BLOCK,
        refused=refusal(shape, gpus),
    )


def refusal(shape: Shape, gpus: int) -> str:
    """Return why vLLM would refuse to split this model over so many GPUs; empty if it accepts.

    The number of attention heads must be divisible by the number of GPUs (vLLM's `ParallelConfig` checks this).
    The same holds for key-value heads, or else each is copied to equally many GPUs (its attention layers check
    this). Blocks that share a scale must not be divided.
    """
    if shape.heads % gpus:
        return f"the number of attention heads, {shape.heads}, is not divisible by {gpus}"
    for heads in sorted({layer.kv_heads for layer in shape.layers if layer.values}):
        if heads % gpus and gpus % heads:
            return f"the number of key-value heads, {heads}, is not divisible by {gpus}, nor the reverse"
    for width, block in shape.quantized_blocks:
        if width % gpus or (width // gpus) % block:
            return f"a width of {width} over {gpus} GPUs is not a whole number of quantised blocks of {block}"
    return ""


@dataclass(frozen=True, slots=True)
class CpuRequirements:
    """Bytes that the transformers engine needs on a CPU for a batch of this many rows."""

    weights: int
    cache: int
    work: int
    rows: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.work


def cpu_requirements(shape: Shape, weights: int, use: PlannedUse, rows: int = CPU_BATCH) -> CpuRequirements:
    """Return what a batch of this many rows needs with transformers on a CPU.

    Args:
        shape: the shape of the model.
        weights: bytes of its weights, unpacked.
        use: the intended use.
        rows: the number of rows.
    """
    number = shape.element
    # Here a window holds one token less than its width, and memory is allocated per token.
    row = shape.cached_values(use.prompt_tokens + use.answer_tokens) * number + shape.state_bytes
    work = rows * use.prompt_tokens * (3 * shape.intermediate + 2 * shape.hidden) * number
    return CpuRequirements(
        weights=weights,
        # As many tokens of prompts again are kept as beginnings.
        cache=rows * (row + shape.cached_values(use.prompt_tokens) * number),
        work=work + GIB,
        rows=rows,
    )
