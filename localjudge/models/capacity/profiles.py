"""The models that can judge: their catalogue, and their profiles, one file each: `models/profiles/NAME.toml`.

A profile lists the facts to know before a model is downloaded: its licence, its size, whether it thinks and how
to switch that off, known problems, and the sources of these facts. Its `[config]` has the numbers of the
model's `config.json` that determine its size, with the same names, so that the same code reads profiles and
directories. (`layer_types` can be given as `sliding_window_pattern`: one layer in this many has no window.)
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from localjudge.errors import ModelError
from localjudge.models.capacity.memory import GpuRequirements, PlannedUse, gpu_requirements
from localjudge.models.configuration import shape_of
from localjudge.models.model_location import cached_folder, shipped_folder
from localjudge.models.shape import Shape
from localjudge.system.quantities import GIB

_GPU_MEMORY = 80 * GIB


class Profile(BaseModel):
    """A model that can judge.

    Attributes:
        name: name of the profile and of its file: the last part of the id in lower case.
        id: id of the model's repository.
        licence: licence of its weights.
        parameters: billions of parameters of its language model, as in its model card.
        active_parameters: billions that one token uses; None if it uses all.
        weight_bytes: bytes of its published weights.
        thinking: whether it thinks before it answers: `never`, `optional` or `always`.
        thinking_switch: how to switch thinking off, or limit it, in its chat template.
        thinking_end: the text that ends its thoughts.
        system_turn: whether its chat template has a system turn.
        too_small: whether it is too small for its scores to be results.
        traps: known problems, the most serious first; one line each.
        checked: the sources of these facts.
        config: numbers of its `config.json`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    licence: str = Field(min_length=1)
    parameters: float = Field(gt=0)
    active_parameters: float | None = Field(default=None, gt=0)
    weight_bytes: int = Field(gt=0)
    thinking: Literal["never", "optional", "always"]
    thinking_switch: str = ""
    thinking_end: str = ""
    system_turn: bool
    too_small: bool = False
    traps: tuple[str, ...] = Field(strict=False)
    checked: str = Field(min_length=1)
    config: dict[str, Any]

    @property
    def shape(self) -> Shape:
        """Shape of the model: the sizes of its cache and its activations."""
        return shape_of(self.config, self.name)

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of its weights in its dtype."""
        shape = self.shape
        return int(self.parameters * 1e9) * shape.element if shape.quantization else self.weight_bytes

    @property
    def small_notice(self) -> str | None:
        """The notice of a run that this model judged; None if it is not too small."""
        if not self.too_small:
            return None
        name = self.id.rpartition("/")[2]
        return f"small model: {name} is too small to judge; use its scores to try the program, not as results"

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if (self.thinking == "never") != (self.thinking_end == ""):
            raise ValueError("give thinking_end for a model that thinks, and only then")
        if self.thinking == "optional" and not self.thinking_switch:
            raise ValueError("thinking is optional, so give thinking_switch: how it is switched off")
        if self.name != self.id.rpartition("/")[2].lower():
            raise ValueError(
                f"the profile of {self.id} must be named {self.id.rpartition('/')[2].lower()}.toml"
            )
        if any("\n" in trap or not trap for trap in self.traps):
            raise ValueError("each of the traps must be one line")
        try:
            shape = self.shape
        except ModelError as error:
            raise ValueError(str(error)) from None
        if shape.context is None:
            raise ValueError("config has no max_position_embeddings")
        return self


@cache
def profiles() -> tuple[Profile, ...]:
    """Return all profiles, smallest model first.

    Raises:
        ModelError: this installation has no profiles, or one is inconsistent.
    """
    folder = shipped_folder("profiles")
    if folder is None:
        raise ModelError("the model profiles are missing from this installation; install localjudge again")
    found = []
    for file in folder.glob("*.toml"):
        try:
            document = tomllib.loads(file.read_text(encoding="utf-8"))
            found.append(Profile.model_validate({"name": file.stem, **document}))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ModelError(f"profile {file}: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise ModelError(f"profile {file}: {place + ': ' if place else ''}{message}") from None
    return tuple(sorted(found, key=lambda profile: (profile.parameters, profile.name)))


_SIZES = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
)  # fmt: skip


def profile_of(config: Any) -> Profile | None:
    """Return the profile of a model by its sizes, whatever its name; None if there is none.

    Args:
        config: the configuration of its language model, as transformers reads it.
    """
    sizes = {name: getattr(config, name, None) for name in _SIZES}
    return next(
        (each for each in profiles() if {name: each.config.get(name) for name in _SIZES} == sizes), None
    )


def find_profile(name: str) -> Profile | None:
    """Return the profile with this name or repository id, in any letter case; None if there is none."""
    wanted = name.lower()
    return next((each for each in profiles() if wanted in (each.name, each.id.lower())), None)


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model with a profile, its needs on GPUs of 80 GiB, and whether it is on this machine."""

    profile: Profile
    needs: GpuRequirements
    cached: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the entry for programs; sizes in bytes."""
        return {
            **self.profile.model_dump(mode="json"),
            "kv_cache_per_token": self.needs.token,
            "gpus_of_80": self.needs.chosen.gpus if self.needs.chosen else None,
            "cached": self.cached,
        }


def catalogue() -> list[CatalogueEntry]:
    """Return all models with a profile, smallest first.

    Raises:
        ModelError: a profile is inconsistent.
    """
    found = []
    for each in profiles():
        needs = gpu_requirements(each.shape, each.weight_bytes, PlannedUse(), gpu_memory=_GPU_MEMORY)
        found.append(CatalogueEntry(each, needs, _is_cached(each.id)))
    return found


def _is_cached(name: str) -> bool:
    try:
        cached_folder(name, allow_download=False)
    except (ModelError, ImportError):  # without huggingface_hub there is no cache
        return False
    return True
