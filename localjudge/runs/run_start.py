"""The beginning of a start: whether the folder holds the same run, and the manifest with this start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import RunMismatchError
from localjudge.judge import Judge
from localjudge.rows.inputs import EXAMPLES, STDIN
from localjudge.runs.reader import JUDGEMENTS
from localjudge.runs.run_manifest import (
    FORMAT,
    MANIFEST,
    ModelFilesRead,
    RunManifest,
    StartRecord,
    changes,
    read_manifest,
)


def recorded_run(folder: Path, described: Mapping[str, Any]) -> RunManifest | None:
    """Return the manifest of a folder that holds the same run; None for a new run.

    Args:
        folder: the run directory.
        described: settings of this start, by the fields of the manifest.

    Raises:
        RunMismatchError: the folder holds another run, or something else.
    """
    if not (folder / MANIFEST).exists():
        if (folder / JUDGEMENTS).exists():
            raise RunMismatchError(f"`out` {folder}: has {JUDGEMENTS} but no {MANIFEST}; choose another folder")
        return None
    manifest = read_manifest(folder)
    if found := changes(manifest, described):
        raise RunMismatchError(
            f"`out` {folder}: holds another run; it differs in {'; '.join(found)}. "
            "Choose another folder, or give the settings of that run"
        )
    return manifest


def manifest_of(
    before: RunManifest | None,
    described: Mapping[str, Any],
    judge: Judge,
    inputs: Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
    **others: Any,
) -> RunManifest:
    """Return the manifest with this start.

    Args:
        before: the manifest of the earlier starts; None for a new run.
        described: the settings, by the fields of the manifest.
        judge: the judge.
        inputs: the names of the inputs.
        columns: the column of each field whose column has a custom name.
        others: further fields of a `StartRecord`.
    """
    remembered = judge.model.digests.remembered
    now = StartRecord.now(
        [name if name in (STDIN, EXAMPLES) else str(Path(name).resolve()) for name in inputs],
        columns or {},
        engine=judge.engine.info,
        config=judge.config.per_start_settings,
        model_files=ModelFilesRead(
            read=sorted(judge.model.files.keys() - remembered), remembered=sorted(remembered)
        ),
        **others,
    )
    if before is None:
        return RunManifest.model_validate({"format": FORMAT, **described, "starts": [now]})
    # What decides no judgement, such as a weight, is that of the last start.
    rubric = RunManifest.model_validate({**before.as_dict(), **described}).rubric
    return before.model_copy(update={"rubric": rubric, "starts": [*before.starts, now]})
