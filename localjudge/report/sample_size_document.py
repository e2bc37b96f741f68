"""The document of `localjudge sample-size --json`; `localjudge help compare` describes the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge.studies.sample_size import Pilot
from localjudge.system.quantities import counted

_FEW = 20
"""Number of instructions of two systems below which a pilot says little about a variance."""


def sample_size_document(
    column: str,
    instructions: Mapping[str, Sequence[int | None]],
    *,
    notes: Sequence[str],
    notices: Sequence[str],
) -> dict[str, Any]:
    """Return the document of how many instructions a comparison needs.

    Args:
        column: the column to compare.
        instructions: by the deviation that is assumed or measured, the number of instructions, and the number
            that 95 % confidence in the deviation of the pilot asks for; None for more than 10,000,000.
        notes: remarks for the reader.
        notices: the notices of the pilot's runs.
    """
    return {
        "column": column,
        "instructions": {basis: list(numbers) for basis, numbers in instructions.items()},
        "notes": list(notes),
        "notices": list(notices),
    }


def pilot_notes(pilot: Pilot) -> list[str]:
    """Return the remark on a pilot whose systems share few instructions; none with enough."""
    if pilot.instructions >= _FEW:
        return []
    instructions = counted(pilot.instructions, "instruction")
    return [f"{instructions} in common say little about a variance; give {_FEW} or more"]
