"""A LoRA adapter in a local directory, as PEFT saves it: low-rank updates of a model's linear layers.

A module with the weight W, inputs x and the adapter's matrices A (rank, inputs) and B (outputs, rank) computes
W x + s B A x, with s = alpha / rank, or alpha / sqrt(rank) if it is rank-stabilized (Hu et al. 2021,
arXiv:2106.09685, section 4.1; Kalajdzievski 2023, arXiv:2312.03732). Only this is supported, because both
engines compute it: an adapter that replaces other weights, or changes what is computed, is refused.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.configuration import read_document
from localjudge.models.digests import read_digests
from localjudge.models.weights import PICKLED, Tensor, read_header

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter that decide its answers. Files beside them, such as a tokenizer, are not read."""

_PREFIX = "base_model.model."
_PARTS = (".lora_A.weight", ".lora_B.weight")
# What these settings say is in the weights, or concerns the training only.
_WITHOUT_EFFECT = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config",
    "lora_dropout", "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "revision",
    "target_modules",
}  # fmt: skip
_UNDERSTOOD = {"bias", "init_lora_weights", "lora_alpha", "peft_type", "r", "task_type", "use_rslora"}
# Initial values that leave the weights of the model as they are; others (pissa, olora …) change them.
_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter. `Adapter.find` reads one.

    Attributes:
        name: the requested name.
        path: the directory.
        rank: the number of rows of each matrix A.
        alpha: the scale's numerator.
        rank_stabilized: whether the scale's denominator is the square root of the rank.
        base: the model that it was trained for, by the name that its configuration gives; None without one.
        modules: inputs and outputs of each linear module that it updates, by the module's name in transformers.
    """

    name: str
    path: Path
    rank: int
    alpha: float
    rank_stabilized: bool
    base: str | None
    modules: Mapping[str, tuple[int, int]]

    def describe(self) -> dict[str, Any]:
        """Return its record for `run.json`."""
        return {
            "name": self.name,
            "path": str(self.path),
            "base": self.base,
            "rank": self.rank,
            "files": self.files,
        }

    @classmethod
    def find(cls, name: str | Path) -> Adapter:
        """Read the configuration of an adapter in a directory, and the header of its weights.

        Raises:
            ModelError: it is not a LoRA adapter, is damaged, or has more than both engines compute.
        """
        path = Path(name).expanduser()
        if not path.is_dir():
            raise ModelError(f"adapter {name}: no such directory; give the directory of a LoRA adapter")
        if not (path / CONFIG).is_file():
            raise ModelError(f"adapter {name}: {path} has no {CONFIG}; give the directory of a LoRA adapter")
        config = read_document(path / CONFIG, f"adapter {name}")
        if problem := _problem(config):
            raise ModelError(f"adapter {name}: {CONFIG}: {problem}")
        if not (path / WEIGHTS).is_file():
            pickled = any(file.name.lower().endswith(PICKLED) for file in path.iterdir())
            what = "only pickled weights, which can run code when loaded" if pickled else f"no {WEIGHTS}"
            raise ModelError(f"adapter {name}: {path} has {what}; save it with safetensors")
        try:
            modules = _modules(read_header(path / WEIGHTS), config["r"])
        except (ModelError, OSError) as error:
            raise ModelError(f"adapter {name}: {WEIGHTS}: {error}") from None
        return cls(
            name=str(name),
            path=path.resolve(),
            rank=config["r"],
            alpha=float(config["lora_alpha"]),
            rank_stabilized=bool(config.get("use_rslora")),
            base=str(config["base_model_name_or_path"]) if config.get("base_model_name_or_path") else None,
            modules=modules,
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """SHA-256 of its configuration and its weights, in hex."""
        found = read_digests(self.path)
        return {name: found[name] for name in (CONFIG, WEIGHTS)}

    @property
    def digest(self) -> str:
        """SHA-256 over the digests of its files."""
        return hashlib.sha256(json.dumps(self.files, sort_keys=True).encode()).hexdigest()

    @property
    def parameters(self) -> int:
        """Number of its parameters."""
        return sum(self.rank * (inputs + outputs) for inputs, outputs in self.modules.values())

    @property
    def description(self) -> str:
        """One phrase for people: its rank, its modules and the model it was trained for."""
        base = f", trained for {self.base}" if self.base else ""
        return f"LoRA of rank {self.rank} on {len(self.modules)} modules{base}"


def _problem(config: Mapping[str, Any]) -> str | None:
    """Return why a configuration cannot be used; None if it can."""
    if config.get("peft_type") != "LORA":
        return f"peft_type is {str(config.get('peft_type'))[:40]}; only LORA is supported"
    if config.get("task_type") not in ("CAUSAL_LM", None):
        return f"task_type is {str(config['task_type'])[:40]}; give an adapter of a causal language model"
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        return f"r is {str(rank)[:40]}; it must be a whole number of at least 1"
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) <= sys.float_info.max:
        return f"lora_alpha is {str(alpha)[:40]}; it must be a number"
    if config.get("bias", "none") != "none":
        return f"bias is {str(config['bias'])[:40]}; an adapter of biases is not supported"
    initial = config.get("init_lora_weights")
    if initial not in _INITIAL:
        return (
            f"init_lora_weights is {str(initial)[:40]}, which changes the model's own weights; convert it to a "
            "plain adapter (PEFT: path_initial_model_for_weight_conversion)"
        )
    further = sorted(
        name for name, value in config.items() if value and name not in _WITHOUT_EFFECT | _UNDERSTOOD
    )
    return f"{further[0][:40]} is not supported; give a plain LoRA adapter" if further else None


def _modules(tensors: Mapping[str, Tensor], rank: int) -> dict[str, tuple[int, int]]:
    """Return the inputs and outputs of each module, from the shapes of its two matrices."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, tensor in tensors.items():
        part = next((part for part in _PARTS if name.endswith(part)), None)
        if part is None or not name.startswith(_PREFIX):
            raise ModelError(
                f"has {name[:120]}, which is not supported; only LoRA matrices of linear layers are"
            )
        found.setdefault(name.removeprefix(_PREFIX).removesuffix(part), {})[part] = tensor.shape
    modules = {}
    for module, shapes in found.items():
        down, up = (shapes.get(part, ()) for part in _PARTS)
        if len(down) != 2 or len(up) != 2 or down[0] != rank or up[1] != rank:
            raise ModelError(
                f"the matrices of {module[:120]} are {list(down)} and {list(up)}, not of rank {rank}"
            )
        modules[module] = (down[1], up[0])
    if not modules:
        raise ModelError("has no tensors")
    return modules
