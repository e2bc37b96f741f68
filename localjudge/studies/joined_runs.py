"""Runs that are joined from runs of several judges, row by row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from localjudge.records import Outcome
from localjudge.runs.notices import together
from localjudge.runs.reader import notices_of_run
from localjudge.runs.run_manifest import JurorRecord, RunSettings, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.runs.summary import Summary
from localjudge.studies.written_runs import write_run

T = TypeVar("T")


def write_joined(
    out: Path,
    outcomes: Iterable[Outcome],
    folders: Mapping[str, Path],
    *,
    engine: str,
    model: str,
    sources: Sequence[RunState],
    decided_by: object = None,
    notices: Sequence[str] = (),
    **fields: Any,
) -> Summary:
    """Write outcomes that were joined from runs of several judges as a run, of the rows of the first.

    Args:
        out: the run directory to create.
        outcomes: the outcomes of the prompts of the first run, in their order.
        folders: the run directory of each judge, by its name.
        engine: how the outcomes were joined.
        model: a name for all judges.
        sources: the runs of the judges, as they were before they were read.
        decided_by: further numbers that decide the outcomes; they are part of the run's identity.
        notices: notices before those of the runs.
        fields: further fields of `run.json`.

    Raises:
        RunMismatchError: a start has changed a run since then; nothing is written.
    """
    names = list(folders)
    manifests = [read_manifest(folder) for folder in folders.values()]
    rubric = manifests[0].rubric
    start = manifests[0].last_start
    settings: list[Any] = [manifest.settings.as_dict() for manifest in manifests]
    if decided_by is not None:
        settings = [settings, decided_by]
    jury = [
        JurorRecord(name=name, run=str(folder.resolve()), model=manifest.model.name, settings=manifest.settings)
        for (name, folder), manifest in zip(folders.items(), manifests, strict=True)
    ]
    of_runs = together(names, [notices_of_run(folder) for folder in folders.values()])
    return write_run(
        out,
        outcomes,
        rubric=rubric,
        settings=RunSettings(engine=engine, rubric=rubric.digest, model=_digest(settings)),
        model=model,
        inputs=start.inputs,
        columns=start.columns,
        pairing=start.pairing,
        readings=[reading.as_dict() for reading in start.readings],
        input_sha256=start.input_sha256,
        jury=jury,
        inherited_notices=list(notices) + list(of_runs),
        sources=sources,
        **fields,
    )


def _digest(settings: Sequence[Any]) -> str:
    """Return the digest of the settings of all judges."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def joined_key(outcomes: Iterable[Outcome | None]) -> str:
    """Return the key of an outcome that is made of those of several judges; None stands for a missing one."""
    keys = [None if outcome is None else outcome.key for outcome in outcomes]
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:32]


class Lookup(Generic[T]):
    """A lookup of the outcomes of a run, of its lines or of its rows, by their numbers.

    Outcomes that are read before they are needed stay in memory; runs over the same input have the same order,
    so these are few.
    """

    def __init__(self, outcomes: Iterable[T]) -> None:
        self._outcomes = enumerate(outcomes)
        self._waiting: dict[int, T] = {}

    def find(self, number: int | None) -> T | None:
        """Return an outcome, once; None without a number."""
        if number is None:
            return None
        if number in self._waiting:
            return self._waiting.pop(number)
        for read_number, outcome in self._outcomes:
            if read_number == number:
                return outcome
            self._waiting[read_number] = outcome
        return None
