"""The names of the systems of several runs: the same name in two runs can be two systems, or one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from localjudge.modes.row_outcome import RowOutcome

UNNAMED = "(none)"
"""Name of the system for rows without one."""


class SystemNames:
    """The names of the systems of runs, in tables that have all of them.

    A name stands for a different system in each run if the responses to an instruction differ between the runs
    (last week's and this week's version), or if the runs have different judges; the run's name is then added to
    it. Equal responses that one judge judged in several runs are draws of one system. Runs without a common
    instruction are parts of one run. Rows without a system get the name of their run.

    Args:
        runs: the names of the runs.
        judges: what identifies the judge of each run, as `RunManifest.judge` does.
    """

    def __init__(self, runs: Sequence[str], judges: Sequence[Mapping[str, Any]]) -> None:
        self._runs, self._judges = runs, judges
        self._responses: dict[str | None, dict[int, dict[str, set[str | None]]]] = {}

    def add(self, run: int, system: str | None, group: str | None, digest: str | None) -> None:
        """Add a response: the number of its run, its system, its instruction and the digest of its text."""
        of_run = self._responses.setdefault(system, {}).setdefault(run, {})
        if len(self._runs) > 1 and group is not None:
            of_run.setdefault(group, set()).add(digest)

    def add_outcome(self, run: int, outcome: RowOutcome) -> None:
        """Add the responses of a row: the number of its run, and its outcome."""
        first = outcome.first
        for system, digest in zip(outcome.systems, outcome.response_digests, strict=True):
            if system is not None or len(outcome.systems) == 1:
                self.add(run, system, first.group, digest)

    def names(self) -> tuple[dict[tuple[int, str | None], str], tuple[str, ...]]:
        """Return the name of each system by the number of its run and its name there, and remarks."""
        found: dict[tuple[int, str | None], str] = {}
        notes: list[str] = []
        for system, runs in self._responses.items():
            if system is None or len(runs) == 1:
                unnamed = UNNAMED if len(self._runs) == 1 else None
                found |= {(run, system): system or unnamed or self._runs[run] for run in runs}
                continue
            names = ", ".join(self._runs[run] for run in runs)
            drawn = _drawn(list(runs.values()))
            if drawn is None or any(self._judges[run] != self._judges[min(runs)] for run in runs):
                found |= {(run, system): f"{system} · {self._runs[run]}" for run in runs}
                if drawn is None:
                    said = f"{system} answered the same instructions differently in {names}, so it counts"
                    notes.append(f"several runs: {said} as a system in each")
                continue
            found |= {(run, system): system for run in runs}
            said = (
                f"{drawn} responses of {system} were judged in several of {names}; their scores are averaged"
                if drawn
                else f"{system} answered no instruction in two of {names}; its rows count together"
            )
            notes.append(f"several runs: {said}")
        return found, tuple(notes)


def _drawn(runs: Sequence[Mapping[str, set[str | None]]]) -> int | None:
    """Return the number of responses that several runs share; None if two runs differ in one instruction.

    Args:
        runs: the digests of a system's responses to each instruction, in each run.
    """
    shared: set[str | None] = set()
    for one, other in combinations(runs, 2):
        for group in one.keys() & other.keys():
            if one[group] != other[group] or None in one[group]:
                return None
            shared |= one[group]
    return len(shared)
