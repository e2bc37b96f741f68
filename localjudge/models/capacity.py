"""Whether a model fits: on GPUs of a given size, and on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localjudge.models.catalogue import Profile
from localjudge.models.dimensions import ModelDimensions
from localjudge.models.memory_needs import (
    ANSWER_TOKENS,
    CPU_BATCH,
    MOST_GPUS,
    PROMPT_TOKENS,
    USUAL_GPU,
    GpuRequirements,
    GpuSplit,
    cpu_memory,
    gpu_requirements,
    loaded_bytes,
)
from localjudge.models.planned_model import PlannedModel
from localjudge.system.machine import Machine
from localjudge.system.quantities import memory_size


def shared_beginnings(dimensions: ModelDimensions) -> str:
    """Return where the beginnings that prompts share do not help this model; empty if they help everywhere.

    transformers keeps the keys and values of a beginning. That is all of it only where each layer sees all
    tokens (`keeps_rows`). vLLM keeps the blocks of a window, too, but the state of a recurrent layer only at
    the end of a step ("align", `CacheConfig.mamba_cache_mode` in vLLM 0.32). A prompt is usually computed in
    one step, so there is no state at the end of its shared beginning.
    """
    count = len(dimensions.layers)
    states = sum(layer.kind in ("linear", "other") for layer in dimensions.layers)
    windows = sum(layer.kind == "sliding" for layer in dimensions.layers)
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
        fit = _fit_on_machine(subject, machine, prompt_tokens)
        return cls(
            subject=subject,
            prompt_tokens=prompt_tokens,
            gpu_memory=gpu_memory,
            needs=gpu_requirements(
                subject.dimensions,
                subject.size.loaded,
                gpu_memory=gpu_memory,
                gpus=gpus,
                row_tokens=prompt_tokens + ANSWER_TOKENS,
            ),
            fits_here=fit.fits,
            how=fit.how,
        )

    @property
    def row_tokens(self) -> int:
        """Tokens of a typical row, with its answer."""
        return self.prompt_tokens + ANSWER_TOKENS

    @property
    def fits_context(self) -> bool:
        """Whether a typical row fits the model's context."""
        context = self.subject.dimensions.context
        return context is None or self.row_tokens <= context

    @property
    def notes(self) -> list[str]:
        """Remarks on the uncertainty of the numbers and on known problems."""
        dimensions = self.subject.dimensions
        notes: list[str] = []
        if self.needs.problem:
            notes.append(self.needs.problem)
        if not self.fits_context:
            notes.append(
                f"a row of {self.row_tokens:,} tokens does not fit its context of {dimensions.context:,}"
            )
        unknown_states = sum(layer.kind == "other" for layer in dimensions.layers)
        if unknown_states:
            notes.append(f"{unknown_states} of {len(dimensions.layers)} layers keep a state of unknown size")
        beginnings = shared_beginnings(dimensions)
        if beginnings:
            notes.append(beginnings)
        if self.subject.profile is not None:
            notes.extend(self.subject.profile.traps)
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for programs; sizes in bytes."""
        subject = self.subject
        chosen = self.needs.chosen
        return {
            "model": subject.name,
            "source": subject.source,
            "weights": subject.size.stored,
            "how_counted": subject.size.how_counted,
            "types": dict(subject.size.types),
            "shared_beginnings": shared_beginnings(subject.dimensions),
            "row_tokens": self.row_tokens,
            "gpu_memory": self.gpu_memory,
            "gpus": [_split_document(split) for split in self.needs.tried],
            "tensor_parallel_size": None if chosen is None else chosen.gpus,
            "fits_here": self.fits_here,
            "how": self.how,
            "notes": self.notes,
        }


def _split_document(split: GpuSplit) -> dict[str, Any]:
    return {
        "gpus": split.gpus,
        "weights": split.weights,
        "overhead": split.overhead,
        "cache": split.cache,
        "row": split.row,
        "rows": split.rows,
        "refused": split.refused,
    }


@dataclass(frozen=True, slots=True)
class _Fit:
    """Whether a model fits this machine, and a sentence that explains it."""

    fits: bool
    how: str


def _fit_on_machine(subject: PlannedModel, machine: Machine, prompt_tokens: int) -> _Fit:
    """Return whether this machine can run a model: on its GPUs, or on its CPU if it has none."""
    if machine.gpus:
        return _fit_on_gpus(subject, machine, prompt_tokens)
    return _fit_on_cpu(subject, machine, prompt_tokens)


def _fit_on_gpus(subject: PlannedModel, machine: Machine, prompt_tokens: int) -> _Fit:
    """Return whether vLLM can run a model on the GPUs of this machine, each with the memory of the smallest."""
    name = machine.gpus[0][0]
    count = len(machine.gpus)
    smallest = min(memory for _, memory in machine.gpus)
    needs = gpu_requirements(
        subject.dimensions,
        subject.size.loaded,
        gpu_memory=smallest,
        gpus=count,
        row_tokens=prompt_tokens + ANSWER_TOKENS,
    )
    chosen = needs.chosen
    if chosen is None:
        return _Fit(fits=False, how=f"no: {needs.problem} ({name})")
    used = f"{chosen.gpus} of {count} GPUs ({name}, {memory_size(smallest)})"
    return _Fit(fits=True, how=f"yes, on {used}, {chosen.rows:,} rows at a time")


def _fit_on_cpu(subject: PlannedModel, machine: Machine, prompt_tokens: int) -> _Fit:
    """Return whether transformers can run a model on the CPU, with the largest batch that fits."""
    for rows in (CPU_BATCH, 8, 4, 2, 1):
        needed = cpu_memory(subject.dimensions, subject.size.unpacked, prompt_tokens=prompt_tokens, rows=rows)
        if needed <= machine.usable_memory:
            batch = "" if rows == CPU_BATCH else f" with --engine-arg batch_size={rows}"
            used = f"{memory_size(needed)} of {memory_size(machine.memory or 0)}"
            return _Fit(fits=True, how=f"yes, on the CPU{batch}: {used} (no GPU: slow)")
    one_row = f"on the CPU it needs {memory_size(needed)}"
    if machine.memory is None:
        return _Fit(fits=False, how=f"no GPU; {one_row}; this machine's memory is unknown")
    return _Fit(fits=False, how=f"no: no GPU, and {one_row} of {memory_size(machine.memory)}")


def gpus_of_80(profile: Profile) -> int | None:
    """Return on how many GPUs of 80 GiB the model of a profile fits; None if on none."""
    dimensions = profile.dimensions
    loaded = loaded_bytes(dimensions, profile.weight_bytes)
    needs = gpu_requirements(dimensions, loaded, gpu_memory=USUAL_GPU)
    return None if needs.chosen is None else needs.chosen.gpus
