"""The names of the systems of runs, in tables that have all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from localjudge.matching.identity import Identity

UNNAMED = "(none)"
"""Name of the system for rows without one."""

_Responses = dict[str, set[str | None]]
"""The digests of the responses to each instruction."""


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
        self._runs = runs
        self._judges = judges
        self._has_one_run = len(runs) < 2
        self._responses: dict[str | None, dict[int, _Responses]] = {}  # of each system in each run

    def add(self, run: int, row: Identity) -> None:
        """Add the responses of a row of a run, given by its number."""
        is_pair = len(row.systems) > 1
        for system, digest in zip(row.systems, row.digests, strict=True):
            if system is None and is_pair:
                continue
            responses = self._responses.setdefault(system, {}).setdefault(run, {})
            if not self._has_one_run and row.group is not None:
                responses.setdefault(row.group, set()).add(digest)

    def names(self) -> tuple[dict[tuple[int, str | None], str], tuple[str, ...]]:
        """Return the name of each system by the number of its run and its name there, and remarks."""
        names: dict[tuple[int, str | None], str] = {}
        systems_of_remark = defaultdict[str, list[str]](list)
        for system, responses in self._responses.items():
            if system is None:
                for run in responses:
                    names[run, system] = UNNAMED if self._has_one_run else self._runs[run]
                continue
            shared = _shared_responses(list(responses.values()))
            is_one_system = shared is not None and self._have_one_judge(responses)
            for run in responses:
                names[run, system] = system if is_one_system else f"{system} · {self._runs[run]}"
            if len(responses) > 1 and (is_one_system or shared is None):
                systems_of_remark[self._remark(responses, shared)].append(system)
        remarks = [
            f"several runs: {', '.join(systems)} {remark}" for remark, systems in systems_of_remark.items()
        ]
        return names, tuple(remarks)

    def _have_one_judge(self, runs: Iterable[int]) -> bool:
        judges = [self._judges[run] for run in runs]
        return all(judge == judges[0] for judge in judges)

    def _remark(self, runs: Iterable[int], shared: int | None) -> str:
        """Return what is remarked on a system of several runs.

        Args:
            runs: the runs.
            shared: as `_shared_responses` returns it.
        """
        names = ", ".join(self._runs[run] for run in runs)
        if shared is None:
            return f"answered the same instructions differently in {names}: a system in each"
        if shared == 0:
            return f"answered no instruction in two of {names}; the rows count together"
        return (
            f"gave responses that were judged in several of {names}, {shared} per system; their scores are "
            "averaged"
        )


def _shared_responses(runs: Sequence[_Responses]) -> int | None:
    """Return the number of responses that several runs share; None if two runs differ in one instruction.

    Args:
        runs: the digests of a system's responses to each instruction, in each run.
    """
    shared: set[str | None] = set()
    for responses, other in combinations(runs, 2):
        for group in responses.keys() & other.keys():
            if responses[group] != other[group] or None in responses[group]:
                return None
            shared |= responses[group]
    return len(shared)
