"""What differs between two runs: the judge, the responses that it read, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from localjudge.runs.run_manifest import RunManifest


class Differs(StrEnum):
    """What differs between two runs."""

    NOTHING = "nothing"
    RESPONSES = "responses"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of the judge that differs: its value in OLD and in NEW.

    A model or a rubric has its name as value, so the values are equal where one was edited.
    """

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.old == self.new:
            return f"{self.name} {self.old}, edited"
        return f"{self.name} {self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class RunDifference:
    """What differs between two runs.

    Attributes:
        settings: the settings of the judge that differ; empty for one judge.
        changed_responses: number of rows with a score in both runs whose response NEW does not have in their
            cell.
    """

    settings: tuple[SettingChange, ...]
    changed_responses: int

    @property
    def differs(self) -> Differs:
        """What differs: the judge, if any of its settings does."""
        if self.settings:
            return Differs.JUDGE
        if self.changed_responses:
            return Differs.RESPONSES
        return Differs.NOTHING


def changed_settings(manifests: Sequence[RunManifest]) -> tuple[SettingChange, ...]:
    """Return the settings of the judge that differ between two runs.

    Args:
        manifests: the manifests of OLD and NEW.
    """
    old, new = manifests
    changes = []
    for name, value in old.judge.items():
        if value == new.judge[name]:
            continue
        if name == "model":
            change = SettingChange(name, old.model.name, new=new.model.name)
        elif name == "rubric":
            change = SettingChange(name, old.rubric.name, new=new.rubric.name)
        else:
            change = SettingChange(name, value, new=new.judge[name])
        changes.append(change)
    return tuple(changes)
