"""The memory that a model needs: its weights, the cache of a row, and the number of GPUs to split it over.

This is arithmetic on `ModelDimensions`; no GPU is queried. For vLLM, on each of `g` GPUs that share the model:

    weights   W / g
    overhead  2 GiB + T (3 I / g + 2 H) b + 12 S V
    cache     0.9 M - weights - overhead
    row       its cached numbers times the bytes of one, in blocks of 16 tokens, and its fixed states
    rows      the whole rows that the cache holds, at most S

with W the bytes of all weights, M those of a GPU (vLLM takes 0.9 of it by default and gives the unused rest to
the cache: `Worker.determine_available_memory`), I and H the widths of
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

where W counts quantised weights as `dtype`, because they are unpacked, and 1 GiB
stands for Python, its libraries and the token table.
"""

from __future__ import annotations

from dataclasses import dataclass

from localjudge.models.dimensions import ModelDimensions
from localjudge.prompts.task_stream import BLOCK
from localjudge.system.quantities import GIB, counted, memory_size

CPU_BATCH = 16
"""Rows in a batch of the transformers engine on a CPU."""
USEFUL_ROWS = 64
"""Rows in flight below which another GPU is useful: each step reads all weights, even for few rows."""
MOST_GPUS = 8
"""Limit of GPUs for tensor parallelism: those of one host."""
USUAL_GPU = 80 * GIB
"""Memory of the GPU that is planned for by default, in bytes."""
PROMPT_TOKENS = 1500
"""Tokens of a typical prompt: about 550 of the default rubric; the rest is the row."""
ANSWER_TOKENS = 35 + 256
"""Tokens of an answer to the default rubric: keys, quotes and scores; and the longest rationale."""


@dataclass(frozen=True, slots=True)
class GpuSplit:
    """The model split over this many GPUs; bytes are per GPU.

    Attributes:
        gpus: the number of GPUs.
        weights: bytes of the weights.
        overhead: bytes of activations, logits and the libraries.
        cache: bytes left for the cache; negative if the model does not fit.
        row: bytes of the cache for a typical row.
        rows: rows in flight at once.
        refused: why vLLM would refuse this split; empty if it accepts it.
    """

    gpus: int
    weights: int
    overhead: int
    cache: int
    row: int
    rows: int
    refused: str


@dataclass(frozen=True, slots=True)
class GpuRequirements:
    """The splits over GPUs of one size.

    Attributes:
        tried: the split for each number of GPUs, fewest first.
        chosen: the recommended split; None if the model does not fit.
        problem: why it does not fit, or why the chosen split has little room; empty if there is no problem.
    """

    tried: tuple[GpuSplit, ...]
    chosen: GpuSplit | None
    problem: str


def gpu_requirements(
    dimensions: ModelDimensions,
    weights: int,
    *,
    gpu_memory: int,
    gpus: int = MOST_GPUS,
    row_tokens: int = PROMPT_TOKENS + ANSWER_TOKENS,
) -> GpuRequirements:
    """Return what vLLM needs for this model.

    Tensor parallelism uses powers of two. The smallest number of GPUs that vLLM accepts and that has room for
    `USEFUL_ROWS` is chosen; if there is none, the number with room for the most rows.

    Args:
        dimensions: the dimensions of the model.
        weights: bytes of its weights as vLLM holds them.
        gpu_memory: bytes of each GPU.
        gpus: the largest number of GPUs.
        row_tokens: tokens of a typical row, with its answer.
    """
    splits: list[GpuSplit] = []
    count = 1
    while count <= gpus:
        splits.append(_split(dimensions, weights, gpus=count, gpu_memory=gpu_memory, row_tokens=row_tokens))
        count *= 2
    fitting = [split for split in splits if split.rows and not split.refused]
    if not fitting:
        problem = f"it does not fit {counted(gpus, 'GPU')} of {memory_size(gpu_memory)}"
        refusals = [split.refused for split in splits if split.refused]
        if refusals:
            problem += f" ({refusals[0]})"
        return GpuRequirements(tuple(splits), chosen=None, problem=problem)
    for split in fitting:
        if split.rows >= USEFUL_ROWS:
            return GpuRequirements(tuple(splits), chosen=split, problem="")
    largest = max(fitting, key=lambda split: split.rows)
    problem = f"room for only {largest.rows} rows at once: the GPUs will mostly wait for memory"
    return GpuRequirements(tuple(splits), chosen=largest, problem=problem)


def loaded_bytes(dimensions: ModelDimensions, stored: int) -> int:
    """Return the bytes in vLLM of weights whose files are not here: those in float32 count half."""
    if dimensions.quantization is not None:
        return stored
    return stored * _loaded_element(dimensions) // dimensions.element


def _loaded_element(dimensions: ModelDimensions) -> int:
    """Return the bytes of a number in vLLM, which runs float32 in 16 bits by default."""
    return min(2, dimensions.element)


@dataclass(frozen=True, slots=True)
class _BatchLimits:
    """The limits of a step of vLLM: `max_num_batched_tokens` and `max_num_seqs`."""

    tokens: int
    rows: int

    @classmethod
    def of_gpu(cls, gpu_memory: int) -> _BatchLimits:
        """Return vLLM's default limits for a GPU with `gpu_memory` bytes."""
        if gpu_memory >= 70 * GIB:
            return cls(tokens=16384, rows=1024)
        return cls(tokens=8192, rows=256)


def _split(
    dimensions: ModelDimensions, weights: int, *, gpus: int, gpu_memory: int, row_tokens: int
) -> GpuSplit:
    """Return the model split over this many GPUs; the formulas are at the top of this file."""
    limits = _BatchLimits.of_gpu(gpu_memory)
    element = _loaded_element(dimensions)
    weights_per_gpu = -(-weights // gpus)
    token_width = 3 * dimensions.intermediate // gpus + 2 * dimensions.hidden
    activations = limits.tokens * token_width * element
    logits = 12 * limits.rows * dimensions.vocabulary
    overhead = 2 * GIB + activations + logits
    cache = int(gpu_memory * 0.9) - weights_per_gpu - overhead
    cached_bytes = dimensions.cached_values(row_tokens, gpus, BLOCK) * element
    row = cached_bytes + dimensions.state_bytes // gpus
    if row == 0:
        row = 1  # no layer's cache size is known: only vLLM's own limit on rows remains
    return GpuSplit(
        gpus=gpus,
        weights=weights_per_gpu,
        overhead=overhead,
        cache=cache,
        row=row,
        rows=min(max(0, cache) // row, limits.rows),
        refused=refusal(dimensions, gpus),
    )


def refusal(dimensions: ModelDimensions, gpus: int) -> str:
    """Return why vLLM would refuse to split this model over so many GPUs; empty if it accepts.

    The number of attention heads must be divisible by the number of GPUs (vLLM's `ParallelConfig` checks this).
    The same holds for key-value heads, or else each is copied to equally many GPUs (its attention layers check
    this). Blocks that share a scale must not be divided.
    """
    if dimensions.heads % gpus:
        return f"the number of attention heads, {dimensions.heads}, is not divisible by {gpus}"
    for heads in sorted({layer.kv_heads for layer in dimensions.layers if layer.values}):
        if heads % gpus and gpus % heads:
            return f"the number of key-value heads, {heads}, is not divisible by {gpus}, nor the reverse"
    if dimensions.quantized_block is None:
        return ""
    width, block = dimensions.quantized_block
    if width % gpus or (width // gpus) % block:
        return f"a width of {width} over {gpus} GPUs is not a whole number of quantised blocks of {block}"
    return ""


def cpu_memory(dimensions: ModelDimensions, weights: int, prompt_tokens: int, rows: int) -> int:
    """Return the bytes that a batch of this many rows needs with transformers on a CPU.

    Args:
        dimensions: the dimensions of the model.
        weights: bytes of its weights, unpacked.
        prompt_tokens: tokens of a typical prompt.
        rows: the number of rows.
    """
    # Here a window holds one token less than its width, and memory is allocated per token. As many tokens of
    # prompts again are kept as beginnings.
    row_cache = dimensions.cached_values(prompt_tokens + ANSWER_TOKENS)
    prefix_cache = dimensions.cached_values(prompt_tokens)
    activations = prompt_tokens * (3 * dimensions.intermediate + 2 * dimensions.hidden)
    row_numbers = row_cache + prefix_cache + activations
    row_bytes = row_numbers * dimensions.element + dimensions.state_bytes
    return weights + rows * row_bytes + GIB
