"""The models with a profile, what each needs, and whether it is in the local cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from localjudge.errors import ModelError
from localjudge.models.memory import MOST_GPUS, Needs, Use, needs
from localjudge.models.model import Model
from localjudge.models.profiles import Profile, profiles
from localjudge.system.quantities import GIB, memory_size

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

    def table(self) -> Table:
        """Return a table with one row per model, for a terminal."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("model", overflow="fold", min_width=22)
        table.add_column("licence", overflow="fold", max_width=18)
        for heading in ("parameters", "context", "weights", "GPUs"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("thinks", no_wrap=True)
        table.add_column("here", no_wrap=True)
        for entry in self.entries:
            profile, shape = entry.profile, entry.profile.shape
            active = f" ({profile.active_parameters:g})" if profile.active_parameters else ""
            table.add_row(
                profile.id,
                profile.licence,
                f"{profile.parameters:g} B{active}",
                f"{shape.context:,}",
                memory_size(shape.weight_bytes),
                str(entry.needs.chosen.gpus) if entry.needs.chosen else f"> {MOST_GPUS}",
                profile.thinking,
                "yes" if entry.cached else "no",
            )
        return table

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
