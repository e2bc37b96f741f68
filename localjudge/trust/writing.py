"""Writing a run that no engine judged: a jury's, or scores that were made elsewhere."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Outcome, to_line
from localjudge.rubric import Rubric
from localjudge.run import _FORMAT as FORMAT
from localjudge.run import JUDGEMENTS, MANIFEST, SUMMARY
from localjudge.summary import Summary

Grouped = tuple[Outcome, str | None]
"""An outcome, and what is equal for rows of equal instruction and reference."""


def write_run(
    folder: Path,
    outcomes: Iterable[Grouped],
    *,
    rubric: Rubric,
    settings: Mapping[str, Any],
    model: str,
    inputs: Sequence[str],
    columns: Mapping[str, str],
    **told: Any,
) -> Summary:
    """Write a run directory, whole or not at all.

    Args:
        folder: made; it must not be there yet, or be empty.
        outcomes: in the order of the lines.
        rubric: the aspects and the scale.
        settings: what two such runs must share to be one; `rubric` and `model` are digests.
        model: a name for what judged.
        inputs: where the rows are.
        columns: the columns of fields that go by names of their own there.
        told: what else `run.json` is to say.

    Raises:
        UsageError: the folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder}: holds something already; choose another folder")
    start = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "inputs": list(inputs),
        "columns": dict(columns),
        "localjudge": version("localjudge"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "engine": {"name": settings["engine"]},
        "engine_args": {},
    }
    manifest = {
        "format": FORMAT,
        "settings": dict(settings),
        "rubric": rubric.model_dump(mode="json"),
        "prompt_sha256": rubric.template_digest,
        "model": {"name": model, "path": None, "files": {}},
        "max_tokens": None,
        "notice": None,
        **told,
        "starts": [start],
    }
    scratch = folder.with_name(f"{folder.name}.tmp")
    try:
        scratch.mkdir(parents=True)
        summary = Summary(rubric.aspects)
        with (scratch / JUDGEMENTS).open("w", encoding="utf-8") as stream:
            for number, (outcome, group) in enumerate(outcomes, 1):
                line = {**to_line(outcome, rubric.aspects), "group": group, "row": number}
                summary.add(line)
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        for name, content in ((SUMMARY, summary.as_dict()), (MANIFEST, manifest)):
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            (scratch / name).write_text(text, encoding="utf-8")
        scratch.replace(folder)
    except FileExistsError:
        raise UsageError(f"{scratch}: is in the way; remove it") from None
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return summary
