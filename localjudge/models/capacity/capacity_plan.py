"""The capacity plan for a model: what it is, what it needs, and whether this machine can run it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.adapter import Adapter
from localjudge.models.capacity.memory import (
    CPU_BATCH,
    MOST_GPUS,
    CpuRequirements,
    GpuRequirements,
    PlannedUse,
    cpu_requirements,
    gpu_requirements,
)
from localjudge.models.capacity.profiles import Profile, find_profile
from localjudge.models.configuration import read_shape, shape_of
from localjudge.models.gguf import is_gguf
from localjudge.models.model import Model
from localjudge.models.model_location import BUNDLED, model_path
from localjudge.models.shape import Shape
from localjudge.models.tensor_check import count_parameters
from localjudge.models.weights import weights_in
from localjudge.system.machine import Machine
from localjudge.system.quantities import memory_size


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model for which a plan is made.

    Attributes:
        name: the requested name.
        source: where the facts are from.
        shape: the shape of the model.
        weights: bytes of its stored weights.
        unpacked: bytes of its weights in its dtype.
        how_counted: where the number of bytes is from, in words.
        profile: its profile; None without one.
        packed: bytes of its GGUF file, which transformers unpacks to `weights`; None for other models.
        adapter: the LoRA adapter, whose matrices are part of `weights`; None without one.
    """

    name: str
    source: str
    shape: Shape
    weights: int
    unpacked: int
    how_counted: str
    profile: Profile | None
    packed: int | None = None
    adapter: Adapter | None = None

    @classmethod
    def find(cls, name: str) -> PlannedModel:
        """Return the model of a directory or GGUF file, the bundled, a cached one, or one of a profile.

        A directory needs no weights, unless they are quantised: their number is then that of the modelling code
        of transformers. A model on this machine takes precedence over a profile.

        Raises:
            ModelError: there is no model of this name, or its size cannot be determined.
        """
        if is_gguf(name):
            return cls._of_gguf(Model.find(name))
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
                    raise ModelError(f"{said}; `localjudge models` lists all profiles") from None
                where = f"the profile {profile.name} (facts from {profile.checked})"
                sizes = profile.weight_bytes, profile.unpacked_bytes
                return cls(profile.id, where, profile.shape, *sizes, "as its profile states", profile)
        shape = read_shape(folder, name)
        weights, counted = weights_in(folder), "counted from its files"
        unpacked = weights
        if weights is None or shape.quantization:
            with suppress(ModelError):
                numbers = count_parameters(Model(name, folder))
                unpacked = None if numbers is None else numbers * shape.element
        if weights is None:
            if shape.quantization or unpacked is None:
                raise ModelError(f"model {name}: {folder} has no weights to count; give a directory with them")
            weights, counted = unpacked, "counted from its modelling code"
        unpacked = unpacked or weights
        return cls(profile.id if profile else name, str(folder), shape, weights, unpacked, counted, profile)

    def with_adapter(self, adapter: Adapter) -> PlannedModel:
        """Return the model with a LoRA adapter, kept beside the weights in the model's dtype."""
        more = adapter.parameters * self.shape.element
        return replace(self, weights=self.weights + more, unpacked=self.unpacked + more, adapter=adapter)

    @classmethod
    def _of_gguf(cls, model: Model) -> PlannedModel:
        numbers = sum(math.prod(tensor.shape) for tensor in model.gguf.tensors.values())
        shape = shape_of(model.configuration.to_dict() | {"dtype": model.gguf.dtype}, model.name)
        packed = model.path.stat().st_size
        counted = f"unpacked to {shape.dtype} from the {memory_size(packed)} of its GGUF file"
        weights = numbers * shape.element
        return cls(model.name, str(model.path), shape, weights, weights, counted, None, packed)


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The needs of a model on GPUs of a given size, and on this machine.

    Attributes:
        subject: the model.
        use: the intended use.
        gpu_memory: bytes of each planned GPU.
        needs: the needs on these GPUs.
        machine: this machine.
        here: the needs on the GPUs of this machine; None without GPUs.
        cpu: the needs on this machine's CPU, with the largest batch that fits.
    """

    subject: PlannedModel
    use: PlannedUse
    gpu_memory: int
    needs: GpuRequirements
    machine: Machine
    here: GpuRequirements | None
    cpu: CpuRequirements

    @classmethod
    def make(
        cls, subject: PlannedModel, use: PlannedUse, machine: Machine, *, gpu_memory: int, gpus: int = MOST_GPUS
    ) -> CapacityPlan:
        """Return the plan for at most `gpus` GPUs of this many bytes, and for this machine."""
        about = (subject.shape, subject.weights, use)
        smallest = min((memory for _, memory in machine.gpus), default=0)
        # transformers, which alone reads a GGUF file, uses one GPU.
        most = 1 if subject.packed else len(machine.gpus)
        on_cpu = (subject.shape, subject.unpacked, use)
        cpu = cpu_requirements(*on_cpu)
        while machine.memory is not None and cpu.total > machine.usable_memory and cpu.rows > 1:
            cpu = cpu_requirements(*on_cpu, rows=cpu.rows // 2)
        return cls(
            subject,
            use,
            gpu_memory,
            gpu_requirements(*about, gpu_memory=gpu_memory, gpus=gpus),
            machine,
            gpu_requirements(*about, gpu_memory=smallest, gpus=most) if smallest else None,
            cpu,
        )

    @property
    def flags(self) -> list[str]:
        """Flags of `localjudge score` for this plan; empty if vLLM cannot run the model."""
        chosen, use, usual = self.needs.chosen, self.use, PlannedUse()
        if chosen is None or not self.fits_context or self.subject.packed:
            return []
        flags = ["--adapter", self.subject.adapter.name] if self.subject.adapter else []
        flags += ["--tensor-parallel-size", str(chosen.gpus)]
        flags += ["--max-model-len", str(min(self.needs.max_model_len, chosen.longest))]
        if use.gpu_memory_utilization != usual.gpu_memory_utilization:
            flags += ["--gpu-memory-utilization", str(use.gpu_memory_utilization)]
        if use.rationale_tokens != usual.rationale_tokens:
            flags += ["--max-rationale-tokens", str(use.rationale_tokens)]
        if use.thinking_tokens:
            flags += ["--thinking-budget", str(use.thinking_tokens)]
        return flags

    @property
    def fits_context(self) -> bool:
        """True if a typical row fits the model's context."""
        context = self.subject.shape.context
        return context is None or self.use.row_tokens <= context

    @property
    def notes(self) -> list[str]:
        """Remarks on the uncertainty of the numbers and on known problems."""
        shape, notes = self.subject.shape, []
        if self.subject.packed:
            notes.append(
                "only the transformers engine reads a GGUF file, on the CPU or on one GPU; the table is "
                f"that of vLLM for the same model as safetensors files in {shape.dtype}"
            )
        if self.needs.problem:
            notes.append(self.needs.problem)
        if not self.fits_context:
            notes.append(
                f"a row of {self.use.row_tokens:,} tokens does not fit its context of {shape.context:,}"
            )
        if unknown := sum(layer.kind == "other" for layer in shape.layers):
            notes.append(f"{unknown} of {len(shape.layers)} layers keep a state of unknown size")
        return [*notes, *(self.subject.profile.traps if self.subject.profile else ())]

    @property
    def fits_here(self) -> tuple[bool, str]:
        """True if this machine can run the model, and a sentence that explains the result."""
        memory = self.machine.memory
        if self.here is not None:
            count, name = len(self.machine.gpus), self.machine.gpus[0][0]
            if chosen := self.here.chosen:
                return True, f"yes, on {chosen.gpus} of {count} GPUs ({name}), {chosen.rows} rows in flight"
            return False, f"no: {self.here.problem} ({name})"
        if memory is None:
            return (
                False,
                f"no GPU; on the CPU it needs {memory_size(self.cpu.total)}; this machine's memory is unknown",
            )
        if self.cpu.total > self.machine.usable_memory:
            return (
                False,
                f"no: no GPU, and on the CPU it needs {memory_size(self.cpu.total)} of {memory_size(memory)}",
            )
        batch = "" if self.cpu.rows == CPU_BATCH else f" with --engine-arg batch_size={self.cpu.rows}"
        return (
            True,
            f"yes, on the CPU{batch}: {memory_size(self.cpu.total)} of {memory_size(memory)} (no GPU: slow)",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for programs; sizes in bytes."""
        subject, shape = self.subject, self.subject.shape
        fits, how = self.fits_here
        return {
            "model": subject.name,
            "source": subject.source,
            "model_type": shape.model_type,
            "context": shape.context,
            "weights": subject.weights,
            "how_counted": subject.how_counted,
            **({"gguf_file": subject.packed} if subject.packed else {}),
            **({"adapter": subject.adapter.name} if subject.adapter else {}),
            "kv_cache_per_token": self.needs.token,
            "kv_cache_per_row": self.needs.row,
            "prompt_tokens": self.use.prompt_tokens,
            "answer_tokens": self.use.answer_tokens,
            "gpu_memory": self.gpu_memory,
            "gpus": [asdict(each) for each in self.needs.tried],
            "tensor_parallel_size": self.needs.chosen.gpus if self.needs.chosen else None,
            "rows_in_flight": self.needs.chosen.rows if self.needs.chosen else 0,
            "flags": self.flags,
            "cpu": {**asdict(self.cpu), "total": self.cpu.total},
            "machine": {"gpus": [list(each) for each in self.machine.gpus], "memory": self.machine.memory},
            "fits_here": fits,
            "how": how,
            "notes": self.notes,
        }
