"""The models with a profile, what each needs, and whether it is in the local cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.capacity.memory import Needs, Use, needs
from localjudge.models.capacity.profiles import Profile, profiles
from localjudge.models.model import Model
from localjudge.system.quantities import GIB

_GPU_MEMORY = 80 * GIB


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model, its needs on GPUs of 80 GiB, and whether it is on this machine."""

    profile: Profile
    needs: Needs
    cached: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All models with a profile, smallest first."""

    entries: tuple[CatalogueEntry, ...]

    @classmethod
    def here(cls) -> Catalogue:
        """Return the catalogue of this installation and its local cache.

        Raises:
            ModelError: a profile is inconsistent.
        """
        return cls(
            tuple(
                CatalogueEntry(
                    profile,
                    needs(profile.shape, profile.shape.weight_bytes, Use(), gpu_memory=_GPU_MEMORY),
                    _is_cached(profile.id),
                )
                for profile in profiles()
            )
        )

    def as_list(self) -> list[dict[str, Any]]:
        """Return the catalogue for programs; sizes in bytes."""
        return [
            {
                **entry.profile.model_dump(mode="json"),
                "weights": entry.profile.shape.weight_bytes,
                "kv_cache_per_token": entry.needs.token,
                "gpus_of_80": entry.needs.chosen.gpus if entry.needs.chosen else None,
                "cached": entry.cached,
            }
            for entry in self.entries
        ]

    @property
    def notes(self) -> list[str]:
        """Return the most serious known problem of each model, one line each."""
        return [f"{each.profile.name}: {each.profile.traps[0]}" for each in self.entries if each.profile.traps]


def _is_cached(name: str) -> bool:
    try:
        Model.find(name)
    except (ModelError, ImportError):  # without huggingface_hub there is no cache
        return False
    return True
