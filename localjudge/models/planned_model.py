"""A model for which a plan is made: in a directory, in the hub's local cache, or known by its profile alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from localjudge.errors import ModelError, in_one_line
from localjudge.models.catalogue import BUNDLED, Profile, find_profile, model_path
from localjudge.models.dimensions import ModelDimensions, read_dimensions
from localjudge.models.memory_needs import loaded_bytes
from localjudge.models.model import Model
from localjudge.models.stored_weights import read_stored_weights
from localjudge.models.tensor_check import count_parameters
from localjudge.models.weights import weights_in


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
        return cls(
            stored=profile.weight_bytes,
            loaded=loaded_bytes(profile.dimensions, profile.weight_bytes),
            unpacked=profile.unpacked_bytes,
            how_counted="as its profile states",
        )

    @classmethod
    def in_folder(cls, folder: Path, name: str, dimensions: ModelDimensions) -> Self:
        """Return the size of the weights in a directory, by the types in the headers of its files.

        Files whose headers cannot be read are counted by their lengths. Without files, the modelling code of
        transformers has the number of weights, unless they are quantised.

        Raises:
            ModelError: there is nothing to count.
        """
        try:
            weights = read_stored_weights(folder, dimensions)
        except (ModelError, OSError) as error:
            unread_reason = in_one_line(error)
        else:
            return cls(
                stored=weights.stored,
                loaded=weights.loaded,
                unpacked=weights.unpacked,
                how_counted="counted from its files",
                types=weights.types,
            )
        stored = weights_in(folder)
        if stored is not None:
            return cls(
                stored=stored,
                loaded=loaded_bytes(dimensions, stored),
                unpacked=_unpacked_bytes(folder, name, dimensions=dimensions, stored=stored),
                how_counted=f"the length of its files, whose tensors are not known: {unread_reason}",
            )
        built = None
        if dimensions.quantization is None:
            built = _bytes_by_modelling_code(folder, name, dimensions)
        if built is None:
            raise ModelError(f"model {name}: {folder} has no weights to count; give a directory with them")
        return cls(
            stored=built,
            loaded=loaded_bytes(dimensions, built),
            unpacked=built,
            how_counted="counted from its modelling code",
        )


def _unpacked_bytes(folder: Path, name: str, *, dimensions: ModelDimensions, stored: int) -> int:
    """Return the bytes of weights in the model's dtype; as they are stored if those are not known."""
    if dimensions.quantization is None:
        return stored
    built = _bytes_by_modelling_code(folder, name, dimensions)
    return stored if built is None else built


def _bytes_by_modelling_code(folder: Path, name: str, dimensions: ModelDimensions) -> int | None:
    """Return the bytes of a model's parameters in its dtype; None if transformers cannot build it."""
    with suppress(ModelError):
        parameters = count_parameters(Model(name, folder))
        if parameters is not None:
            return parameters * dimensions.element
    return None


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model for which a plan is made.

    Attributes:
        name: the requested name.
        source: where the facts are from.
        dimensions: the dimensions of the model.
        size: the bytes of its weights.
        profile: its profile; None without one.
    """

    name: str
    source: str
    dimensions: ModelDimensions
    size: ModelSize
    profile: Profile | None = None

    @classmethod
    def find(cls, name: str) -> PlannedModel:
        """Return the model of a directory, the bundled, a cached one, or one of a profile.

        A model on this machine takes precedence over a profile.

        Raises:
            ModelError: no model has this name, or its size is not known.
        """
        folder = model_path(name)
        if name != BUNDLED and folder.is_dir():
            return cls._in_folder(folder, name)
        profile = find_profile(name)
        if profile is None:
            return cls._in_folder(_folder_without_profile(name), name)
        try:
            folder = Model.find(profile.id).path
        except (ModelError, ImportError):
            return cls._by_profile(profile)
        return cls._in_folder(folder, name, profile)

    @classmethod
    def _in_folder(cls, folder: Path, name: str, profile: Profile | None = None) -> PlannedModel:
        """Return the model in a directory."""
        dimensions = read_dimensions(folder, name)
        return cls(
            name=name if profile is None else profile.id,
            source=str(folder),
            dimensions=dimensions,
            size=ModelSize.in_folder(folder, name, dimensions),
            profile=profile,
        )

    @classmethod
    def _by_profile(cls, profile: Profile) -> PlannedModel:
        """Return a model that is not on this machine."""
        return cls(
            name=profile.id,
            source=f"the profile {profile.name} (facts from {profile.checked})",
            dimensions=profile.dimensions,
            size=ModelSize.of_profile(profile),
            profile=profile,
        )


def _folder_without_profile(name: str) -> Path:
    """Return the directory of the bundled model, or of one in the local cache.

    Raises:
        ModelError: it is not there.
    """
    try:
        return Model.find(name).path
    except ModelError as error:
        reason = str(error)
    except ImportError:
        reason = f"model {name}: no such directory, and no local cache without huggingface_hub"
    raise ModelError(f"{reason}; `localjudge models list` lists all profiles")
