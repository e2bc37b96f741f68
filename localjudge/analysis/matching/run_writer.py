"""Write a run without an engine: the scores of a jury, or imported scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Outcome
from localjudge.records.outcome_columns import AnswerColumns, to_bytes
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.reader import JUDGEMENTS, SUMMARY
from localjudge.runs.run_manifest import (
    FORMAT,
    MANIFEST,
    ModelRecord,
    RunManifest,
    RunSettings,
    StartRecord,
    as_json,
)
from localjudge.runs.summary import Summary
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
        fields: further fields of `run.json`.

    Raises:
        UsageError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder}: is not empty; choose another folder")
    manifest = RunManifest(
        format=FORMAT,
        settings=settings,
        rubric=rubric,
        prompt_sha256=rubric.template_digest,
        model=ModelRecord(name=model, path=None, files={}),
        max_tokens=None,
        notice=None,
        shard=None,
        **fields,
        starts=[StartRecord.now(inputs, columns)],
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as scratch:
        scratch.mkdir()
        summary = Summary(manifest)
        with (scratch / JUDGEMENTS).open("xb") as stream:
            stream.writelines(_lines(outcomes, rubric.columns, summary))
        counted = summary.as_dict(manifest, complete=True, planned=summary.rows)
        (scratch / SUMMARY).write_bytes(as_json(counted))
        (scratch / MANIFEST).write_bytes(as_json(manifest.as_dict()))
    return summary


def _lines(outcomes: Iterable[Outcome], columns: AnswerColumns, summary: Summary) -> Iterator[bytes]:
    for number, outcome in enumerate(outcomes, 1):
        line = outcome.model_copy(update={"row": number})
        summary.add(line)
        yield to_bytes(line, columns)
