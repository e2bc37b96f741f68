"""Whether a model fits: its weights, the cache of a row, and the number of GPUs to split it over.

This is arithmetic on a `Shape`; no GPU is queried. For vLLM, on each of `g` GPUs that share the model:

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

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from localjudge.errors import ModelError, in_one_line
from localjudge.models.catalogue import BUNDLED, Profile, find_profile, model_path
from localjudge.models.configuration import Shape, read_shape
from localjudge.models.model import Model
from localjudge.models.stored_weights import read_stored_weights
from localjudge.models.tensor_check import count_parameters
from localjudge.models.weights import weights_in
from localjudge.prompts.task_stream import BLOCK
from localjudge.system.machine import Machine
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
    shape: Shape,
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
        shape: the shape of the model.
        weights: bytes of its weights as vLLM holds them.
        gpu_memory: bytes of each GPU.
        gpus: the largest number of GPUs.
        row_tokens: tokens of a typical row, with its answer.
    """
    counts = (2**power for power in range(gpus.bit_length()))
    tried = tuple(_split(shape, weights, count, gpu_memory, row_tokens) for count in counts)
    fitting = [split for split in tried if split.rows and not split.refused]
    chosen = next((split for split in fitting if split.rows >= USEFUL_ROWS), None)
    problem = ""
    if chosen is None and fitting:
        chosen = max(fitting, key=lambda split: split.rows)
        problem = f"room for only {chosen.rows} rows at once: the GPUs will mostly wait for memory"
    elif chosen is None:
        problem = f"it does not fit {counted(gpus, 'GPU')} of {memory_size(gpu_memory)}"
        if refused := next((split.refused for split in tried if split.refused), ""):
            problem += f" ({refused})"
    return GpuRequirements(tried, chosen, problem)


def loaded_bytes(shape: Shape, stored: int) -> int:
    """Return the bytes in vLLM of weights whose files are not here: those in float32 count half."""
    if shape.quantization is not None:
        return stored
    return stored * min(2, shape.element) // shape.element


def _split(shape: Shape, weights: int, gpus: int, gpu_memory: int, row_tokens: int) -> GpuSplit:
    batched_tokens, sequences = (16384, 1024) if gpu_memory >= 70 * GIB else (8192, 256)
    number = min(2, shape.element)
    share = -(-weights // gpus)
    width = 3 * shape.intermediate // gpus + 2 * shape.hidden
    overhead = 2 * GIB + batched_tokens * width * number + 12 * sequences * shape.vocabulary
    cache = int(gpu_memory * 0.9) - share - overhead
    # If no layer's cache size is known, only vLLM's own limit on rows remains.
    row = shape.cached_values(row_tokens, gpus, BLOCK) * number + shape.state_bytes // gpus or 1
    rows = min(max(0, cache) // row, sequences)
    return GpuSplit(gpus, share, overhead, cache, row, rows, refusal(shape, gpus))


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
    width, block = shape.quantized_block or (gpus, 1)
    if width % gpus or (width // gpus) % block:
        return f"a width of {width} over {gpus} GPUs is not a whole number of quantised blocks of {block}"
    return ""


def cpu_memory(shape: Shape, weights: int, prompt_tokens: int, rows: int) -> int:
    """Return the bytes that a batch of this many rows needs with transformers on a CPU.

    Args:
        shape: the shape of the model.
        weights: bytes of its weights, unpacked.
        prompt_tokens: tokens of a typical prompt.
        rows: the number of rows.
    """
    # Here a window holds one token less than its width, and memory is allocated per token. As many tokens of
    # prompts again are kept as beginnings.
    cached = shape.cached_values(prompt_tokens + ANSWER_TOKENS) + shape.cached_values(prompt_tokens)
    work = prompt_tokens * (3 * shape.intermediate + 2 * shape.hidden)
    return weights + rows * ((cached + work) * shape.element + shape.state_bytes) + GIB


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The bytes of a model's weights.

    Attributes:
        stored: as they are stored.
        loaded: as vLLM holds them.
        unpacked: in the model's dtype, as transformers holds them on a CPU.
        how_counted: where the numbers are from, in words.
        types: bytes by the type that the files have, the largest first; empty if no file was read.
    """

    stored: int
    loaded: int
    unpacked: int
    how_counted: str
    types: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_profile(cls, profile: Profile) -> Self:
        """Return the size that a profile states."""
        stored = profile.weight_bytes
        loaded = loaded_bytes(profile.shape, stored)
        return cls(stored, loaded, profile.unpacked_bytes, "as its profile states")

    @classmethod
    def in_folder(cls, folder: Path, name: str, shape: Shape) -> Self:
        """Return the size of the weights in a directory, by the types in the headers of its files.

        Files whose headers cannot be read are counted by their lengths. Without files, the modelling code of
        transformers has the number of weights, unless they are quantised.

        Raises:
            ModelError: there is nothing to count.
        """
        try:
            read = read_stored_weights(folder, shape)
        except (ModelError, OSError) as error:
            unread = in_one_line(error)
        else:
            return cls(read.stored, read.loaded, read.unpacked, "counted from its files", read.types)
        stored = weights_in(folder)
        if stored is not None:
            unpacked = stored
            if shape.quantization is not None:
                unpacked = _by_modelling_code(folder, name, shape) or stored
            how = f"the length of its files, whose tensors are not known: {unread}"
            return cls(stored, loaded_bytes(shape, stored), unpacked, how)
        counted = None if shape.quantization is not None else _by_modelling_code(folder, name, shape)
        if counted is None:
            raise ModelError(f"model {name}: {folder} has no weights to count; give a directory with them")
        return cls(counted, loaded_bytes(shape, counted), counted, "counted from its modelling code")


def _by_modelling_code(folder: Path, name: str, shape: Shape) -> int | None:
    """Return the bytes of a model's parameters in its dtype; None if transformers cannot build it."""
    with suppress(ModelError):
        numbers = count_parameters(Model(name, folder))
        return None if numbers is None else numbers * shape.element
    return None


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model for which a plan is made.

    Attributes:
        name: the requested name.
        source: where the facts are from.
        shape: the shape of the model.
        size: the bytes of its weights.
        profile: its profile; None without one.
    """

    name: str
    source: str
    shape: Shape
    size: ModelSize
    profile: Profile | None = None

    @classmethod
    def find(cls, name: str) -> PlannedModel:
        """Return the model of a directory, the bundled, a cached one, or one of a profile.

        A model on this machine takes precedence over a profile.

        Raises:
            ModelError: no model has this name, or its size is not known.
        """
        profile, folder = None, model_path(name)
        if name == BUNDLED or not folder.is_dir():
            profile = find_profile(name)
            try:
                folder = Model.find(profile.id if profile else name).path
            except (ModelError, ImportError) as error:
                if profile is None:
                    said = str(error)
                    if isinstance(error, ImportError):
                        said = f"model {name}: no such directory, and no local cache without huggingface_hub"
                    raise ModelError(f"{said}; `localjudge models list` lists all profiles") from None
                where = f"the profile {profile.name} (facts from {profile.checked})"
                return cls(profile.id, where, profile.shape, ModelSize.of_profile(profile), profile)
        shape = read_shape(folder, name)
        known = profile.id if profile else name
        return cls(known, str(folder), shape, ModelSize.in_folder(folder, name, shape), profile)


def shared_beginnings(shape: Shape) -> str:
    """Return where the beginnings that prompts share do not help this model; empty if they help everywhere.

    transformers keeps the keys and values of a beginning. That is all of it only where each layer sees all
    tokens (`keeps_rows`). vLLM keeps the blocks of a window, too, but the state of a recurrent layer only at
    the end of a step ("align", `CacheConfig.mamba_cache_mode` in vLLM 0.32). A prompt is usually computed in
    one step, so there is no state at the end of its shared beginning.
    """
    count = len(shape.layers)
    states = sum(layer.kind in ("linear", "other") for layer in shape.layers)
    windows = sum(layer.kind == "sliding" for layer in shape.layers)
    if states:
        return (
            f"beginnings that prompts share help little: {states} of {count} layers keep a state of the text; "
            "transformers computes each prompt whole, and vLLM keeps a state only at the end of a step"
        )
    if windows:
        return (
            f"beginnings that prompts share help in vLLM alone: {windows} of {count} layers see a window of "
            "the text, so transformers computes each prompt whole"
        )
    return ""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Whether a model fits GPUs of a given size, and this machine.

    Attributes:
        subject: the model.
        prompt_tokens: tokens of a typical prompt.
        gpu_memory: bytes of each planned GPU.
        needs: the splits over these GPUs.
        fits_here: whether this machine can run the model.
        how: a sentence that explains the result.
    """

    subject: PlannedModel
    prompt_tokens: int
    gpu_memory: int
    needs: GpuRequirements
    fits_here: bool
    how: str

    @classmethod
    def make(
        cls,
        subject: PlannedModel,
        machine: Machine,
        *,
        gpu_memory: int = USUAL_GPU,
        gpus: int = MOST_GPUS,
        prompt_tokens: int = PROMPT_TOKENS,
    ) -> CapacityPlan:
        """Return the plan for at most `gpus` GPUs of this many bytes, and for this machine."""
        tokens = prompt_tokens + ANSWER_TOKENS
        model = subject.shape, subject.size.loaded
        needs = gpu_requirements(*model, gpu_memory=gpu_memory, gpus=gpus, row_tokens=tokens)
        fits, how = _on_cpu(subject, machine, prompt_tokens)
        if machine.gpus:
            name, smallest = machine.gpus[0][0], min(memory for _, memory in machine.gpus)
            here = gpu_requirements(*model, gpu_memory=smallest, gpus=len(machine.gpus), row_tokens=tokens)
            fits, how = False, f"no: {here.problem} ({name})"
            if chosen := here.chosen:
                of = f"{chosen.gpus} of {len(machine.gpus)} GPUs ({name}, {memory_size(smallest)})"
                fits, how = True, f"yes, on {of}, {chosen.rows:,} rows at a time"
        return cls(subject, prompt_tokens, gpu_memory, needs, fits, how)

    @property
    def row_tokens(self) -> int:
        return self.prompt_tokens + ANSWER_TOKENS

    @property
    def fits_context(self) -> bool:
        """True if a typical row fits the model's context."""
        context = self.subject.shape.context
        return context is None or self.row_tokens <= context

    @property
    def notes(self) -> list[str]:
        """Remarks on the uncertainty of the numbers and on known problems."""
        shape, notes = self.subject.shape, []
        if self.needs.problem:
            notes.append(self.needs.problem)
        if not self.fits_context:
            notes.append(f"a row of {self.row_tokens:,} tokens does not fit its context of {shape.context:,}")
        if unknown := sum(layer.kind == "other" for layer in shape.layers):
            notes.append(f"{unknown} of {len(shape.layers)} layers keep a state of unknown size")
        beginnings = shared_beginnings(shape)
        if beginnings:
            notes.append(beginnings)
        return [*notes, *(self.subject.profile.traps if self.subject.profile else ())]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for programs; sizes in bytes."""
        subject, chosen = self.subject, self.needs.chosen
        return {
            "model": subject.name,
            "source": subject.source,
            "weights": subject.size.stored,
            "how_counted": subject.size.how_counted,
            "types": dict(subject.size.types),
            "shared_beginnings": shared_beginnings(subject.shape),
            "row_tokens": self.row_tokens,
            "gpu_memory": self.gpu_memory,
            "gpus": [asdict(split) for split in self.needs.tried],
            "tensor_parallel_size": chosen.gpus if chosen else None,
            "fits_here": self.fits_here,
            "how": self.how,
            "notes": self.notes,
        }


def _on_cpu(subject: PlannedModel, machine: Machine, prompt_tokens: int) -> tuple[bool, str]:
    """Return whether transformers can run a model on the CPU, with the largest batch that fits, and how."""
    for rows in (CPU_BATCH, 8, 4, 2, 1):
        needed = cpu_memory(subject.shape, subject.size.unpacked, prompt_tokens, rows)
        if needed <= machine.usable_memory:
            batch = "" if rows == CPU_BATCH else f" with --engine-arg batch_size={rows}"
            of = f"{memory_size(needed)} of {memory_size(machine.memory or 0)}"
            return True, f"yes, on the CPU{batch}: {of} (no GPU: slow)"
    needs = f"on the CPU it needs {memory_size(needed)}"
    if machine.memory is None:
        return False, f"no GPU; {needs}; this machine's memory is unknown"
    return False, f"no: no GPU, and {needs} of {memory_size(machine.memory)}"


def gpus_of_80(profile: Profile) -> int | None:
    """Return on how many GPUs of 80 GiB the model of a profile fits; None if on none."""
    loaded = loaded_bytes(profile.shape, profile.weight_bytes)
    chosen = gpu_requirements(profile.shape, loaded, gpu_memory=USUAL_GPU).chosen
    return chosen.gpus if chosen else None
