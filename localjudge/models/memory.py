"""What a judge needs: weights, cache, rows in flight, and over how many GPUs to split it.

Arithmetic on a `Shape`; no GPU is asked. For vLLM, on each of `g` GPUs that share the model:

    weights   W / g
    overhead  2 GiB + T (3 I / g + 2 H) b + 12 S V
    cache     u M - weights - overhead
    row       its cached numbers times the bytes of one, in blocks of 16 tokens, and its fixed states
    rows      the whole rows that the cache holds, at most S

with W the bytes of all weights, M those of a GPU, u `--gpu-memory-utilization` (vLLM gives itself that share
of the GPU and what it does not need to the cache: `Worker.determine_available_memory`), I and H the widths of
a token in the widest feed-forward block and between layers, b the bytes of a number, V the vocabulary. T and
S are vLLM's own `max_num_batched_tokens` and `max_num_seqs` for its offline engine
(`EngineArgs.get_batch_defaults`): 16,384 and 1,024 on a GPU of 70 GiB or more, else 8,192 and 256. The middle
term is the gate, the value and their product of one feed-forward block, with a layer's input and residual;
the last is the logits of S rows in float32, three times (as they come, for the sampler, sorted). 2 GiB stand
for the CUDA context, NCCL and the captured graphs: a round number that fits the one run measured (Qwen3-8B on
an H200 with vLLM 0.24, `benchmarks/results/gpu.json`, 3.8 GiB of overhead). Weights in float32 count half:
vLLM runs them in 16 bits unless it is told otherwise.

A cached prefix that rows share makes more rows fit than this says; it is left out. So are a vision tower and
layers that draft tokens, unless the weights are counted from files.

For transformers on a CPU there is no paged cache: a batch of 16 rows, each padded to the length of the longest:

    all       W + 16 row + 16 L (3 I + 2 H) b + 1 GiB

where the padded length L is up to 2^(1/4) times that of the prompt (`localjudge.engines.batches`),
quantised weights count as `dtype`, because they are unpacked, and 1 GiB stands for Python, its libraries and
the token table.
"""

from __future__ import annotations

from dataclasses import dataclass

from localjudge.models.shape import Shape

GIB = 2**30
BLOCK = 16
"""Tokens that vLLM's cache is given out by."""
CPU_BATCH = 16
"""Rows in a batch of the transformers engine on a CPU."""
USEFUL_ROWS = 64
"""Rows in flight below which another GPU is worth having: each step reads all weights, for however few."""
MOST_GPUS = 8
"""The GPUs of one host, over which tensor parallelism is sensible."""
PROMPT_TOKENS = 1500
"""A typical prompt: some 550 of the default rubric, the rest an instruction, a reference and a response."""
ANSWER_TOKENS = 35
"""Tokens of an answer of the default rubric besides those of its rationale: keys, quotes, scores."""


@dataclass(frozen=True, slots=True)
class Use:
    """How a model is to be used; sizes in tokens of a typical row.

    Attributes:
        prompt_tokens: of its prompt.
        rationale_tokens: the most of its rationale.
        thinking_tokens: the most of its thoughts.
        gpu_memory_utilization: the share of each GPU that vLLM takes.
        kv_cache_dtype: `auto` for that of the model, or `fp8` for one byte a number.
    """

    prompt_tokens: int = PROMPT_TOKENS
    rationale_tokens: int = 256
    thinking_tokens: int = 0
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"

    @property
    def answer_tokens(self) -> int:
        return self.thinking_tokens + self.rationale_tokens + ANSWER_TOKENS

    @property
    def row_tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class GpuSplit:
    """The model over this many GPUs; bytes are of each GPU.

    Attributes:
        cache: what is left for the cache; negative where nothing is.
        row: of the cache, for a typical row.
        rows: in flight at once.
        longest: tokens of the longest row that fits.
        refused: why vLLM would not split it so; empty if it would.
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
class Needs:
    """What a model needs on GPUs of one size.

    Attributes:
        weights: bytes of all weights.
        token: bytes that a token adds to the cache, all GPUs together, while no window is full.
        row: bytes of the cache for a typical row, all in one GPU's.
        max_model_len: a bound that leaves room for rows twice as long.
        tried: each number of GPUs, fewest first.
        chosen: the sensible one of them; None where the model does not fit.
        problem: why not, or why the chosen one is short of room; empty if all is well.
    """

    weights: int
    token: int
    row: int
    max_model_len: int
    tried: tuple[GpuSplit, ...]
    chosen: GpuSplit | None
    problem: str


def needs(
    shape: Shape,
    weights: int,
    use: Use,
    *,
    gpu_memory: int,
    gpus: int = MOST_GPUS,
    max_num_seqs: int | None = None,
) -> Needs:
    """What vLLM needs for this model.

    Tensor parallelism takes powers of two. Of those that vLLM accepts, the smallest with room for `USEFUL_ROWS`
    is chosen, else the one with the most.

    Args:
        shape: of the model.
        weights: bytes of its weights, as they are stored.
        use: how it is to be used.
        gpu_memory: bytes of each GPU.
        gpus: the most to use.
        max_num_seqs: vLLM's; None for its own default.
    """
    if shape.quantization is None:
        weights = weights * min(2, shape.element) // shape.element
    number = 1 if use.kv_cache_dtype.startswith("fp8") else min(2, shape.element)
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
        problem = f"room for only {chosen.rows} rows at once: the GPUs will mostly wait for their memory"
    elif chosen is None:
        problem = f"it does not fit {gpus} GPU{'s' if gpus > 1 else ''} of {gpu_memory / GIB:.0f} GiB"
        if why := next((each.refused for each in tried if each.refused), ""):
            problem += f" ({why})"
    return Needs(
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
    # Where no layer's cache is known here, only vLLM's own bound on rows is left.
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
    """Why vLLM would not split this model over so many GPUs; empty if it would.

    Attention heads must divide evenly; key-value heads must too, or each be copied to equally many GPUs (vLLM,
    `ParallelConfig` checks the first, its attention layers the second). Blocks that share a scale stay whole.
    """
    if shape.heads % gpus:
        return f"{shape.heads} attention heads are not divided by {gpus}"
    for heads in sorted({layer.kv_heads for layer in shape.layers if layer.values}):
        if heads % gpus and gpus % heads:
            return f"{heads} key-value heads are not divided by {gpus}, nor {gpus} by them"
    for width, block in shape.splits:
        if width % gpus or (width // gpus) % block:
            return f"a width of {width} over {gpus} is no whole number of quantised blocks of {block}"
    return ""


@dataclass(frozen=True, slots=True)
class CpuNeeds:
    """Bytes that the transformers engine needs on a CPU for a batch of so many rows."""

    weights: int
    cache: int
    work: int
    rows: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.work


def cpu_needs(shape: Shape, weights: int, use: Use, rows: int = CPU_BATCH) -> CpuNeeds:
    """What a batch of this many rows needs with transformers on a CPU."""
    number = shape.element
    padded = int(use.prompt_tokens * 2**0.25)
    # A window holds one token less than its width here, and memory is given out by the token.
    row = shape.cached_values(padded + use.answer_tokens) * number + shape.state_bytes
    work = rows * padded * (3 * shape.intermediate + 2 * shape.hidden) * number
    return CpuNeeds(
        weights=shape.parameters * number if shape.quantization and shape.is_known else weights,
        cache=rows * row,
        work=work + GIB,
        rows=rows,
    )
