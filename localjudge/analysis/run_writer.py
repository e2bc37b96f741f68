"""Write a run without an engine: the scores of a jury, or imported scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.line_format import to_line
from localjudge.records import Outcome
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.journal import to_bytes
from localjudge.runs.notices import notices
from localjudge.runs.reader import JUDGEMENTS, SUMMARY
from localjudge.runs.run_manifest import FORMAT, MANIFEST, as_json, new_start
from localjudge.runs.summary import Summary
from localjudge.system.durable import replacing


def write_run(
    folder: Path,
    outcomes: Iterable[Outcome],
    *,
    rubric: Rubric,
    settings: Mapping[str, Any],
    model: str,
    inputs: Sequence[str],
    columns: Mapping[str, str],
    **told: Any,
) -> Summary:
    """Write a run directory, completely or not at all.

    Args:
        folder: the directory to create; it must be missing or empty.
        outcomes: in the order of the lines.
        rubric: the aspects and the scale.
        settings: what two such runs must share to be one; `rubric` and `model` are digests.
        model: a name for the judge.
        inputs: where the rows are.
        columns: the columns of fields that go by names of their own there.
        told: further fields of `run.json`.

    Raises:
        UsageError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder}: holds something already; choose another folder")
    start = new_start(list(inputs), columns) | {"engine": {"name": settings["engine"]}, "engine_args": {}}
    manifest = {
        "format": FORMAT,
        "settings": dict(settings),
        "rubric": rubric.model_dump(mode="json"),
        "prompt_sha256": rubric.template_digest,
        "model": {"name": model, "path": None, "files": {}},
        "max_tokens": None,
        "notice": None,
        "shard": None,
        **told,
        "starts": [start],
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as scratch:
        scratch.mkdir()
        summary = Summary(rubric.aspects)
        lines = (to_line(outcome, rubric.aspects, number) for number, outcome in enumerate(outcomes, 1))
        with (scratch / JUDGEMENTS).open("xb") as stream:
            stream.writelines(_counted(lines, summary))
        counted = {
            "complete": True,
            "notices": notices(manifest, True, summary.rows, summary.truncated),
            "planned": summary.rows,
            **summary.as_dict(),
        }
        (scratch / SUMMARY).write_bytes(as_json(counted))
        (scratch / MANIFEST).write_bytes(as_json(manifest))
    return summary


def _counted(lines: Iterable[dict[str, Any]], summary: Summary) -> Iterator[bytes]:
    for line in lines:
        summary.add(line)
        yield to_bytes(line)
