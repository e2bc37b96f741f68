"""Run directories of outcomes that no engine made: imported, joined, or of a jury."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Outcome
from localjudge.records.outcome_columns import to_bytes
from localjudge.rows.pairs import Pairing
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_files import JUDGEMENTS, MANIFEST, SUMMARY
from localjudge.runs.run_manifest import FORMAT, ModelRecord, RunManifest, RunSettings, StartRecord, as_json
from localjudge.runs.run_state import RunState
from localjudge.runs.summary import Summary, read_summary
from localjudge.system.durable import replacing


def write_run(
    folder: Path,
    outcomes: Iterable[Outcome],
    *,
    rubric: Rubric,
    settings: RunSettings,
    model: str,
    inputs: Sequence[str],
    columns: Mapping[str, str],
    pairing: Pairing | None = None,
    readings: Sequence[Mapping[str, Any]] = (),
    input_sha256: Sequence[str | None] = (),
    sources: Sequence[RunState] = (),
    **fields: Any,
) -> Summary:
    """Write a run directory, completely or not at all.

    Args:
        folder: the directory to create; it must be missing or empty.
        outcomes: the outcomes in the order of the lines, which are numbered from 1.
        rubric: the aspects and the scale.
        settings: the settings that identify the run; runs with equal settings are the same run.
        model: a name for the judge.
        inputs: the files of the rows.
        columns: the column of each field whose column has a custom name.
        pairing: how rows of two responses were made; None for rows of one.
        readings: the readings of the inputs, as `StartRecord` has them.
        input_sha256: SHA-256 of each input.
        sources: the runs that the outcomes come from, as they were before they were read.
        fields: further fields of `run.json`.

    Raises:
        UsageError: the folder is not empty.
        RunMismatchError: a start has changed a source since then; the folder is as it was.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"`out` {folder}: is not empty; choose another folder")
    manifest = RunManifest(
        format=FORMAT,
        settings=settings,
        rubric=rubric,
        prompt_sha256=rubric.template_digest,
        model=ModelRecord(name=model, path=None, files={}),
        max_tokens=None,
        notice=None,
        shard=None,
        starts=[
            StartRecord.now(
                inputs, columns, pairing=pairing, readings=list(readings), input_sha256=list(input_sha256)
            )
        ],
        **fields,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as scratch:
        scratch.mkdir()
        with (scratch / JUDGEMENTS).open("xb") as stream:
            for number, outcome in enumerate(outcomes, 1):
                stream.write(to_bytes(outcome.model_copy(update={"row": number}), rubric.columns))
        (scratch / MANIFEST).write_bytes(as_json(manifest.as_dict()))
        summary = read_summary(scratch)
        (scratch / SUMMARY).write_bytes(as_json(summary.as_dict(complete=True, planned=summary.rows)))
        for source in sources:
            source.refuse_change()
    return summary
