"""What a run is, as `run.json` says it: its settings, its model and rubric, and each start of it."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from localjudge.errors import RunMismatchError
from localjudge.rows.formats import MAX_ROW_BYTES
from localjudge.rubrics.rubric import Rubric

MANIFEST = "run.json"
FORMAT = 3


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `run.json` says.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    file = folder / MANIFEST
    if file.exists() and not file.is_file():
        raise RunMismatchError(f"{file}: is no file")
    try:
        manifest: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunMismatchError(f"{folder}: no run directory, it has no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunMismatchError(f"{file}: cannot be read: {error}") from None
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(found, int) and found != FORMAT:
        raise RunMismatchError(
            f"{file}: has run format {found}, and this version of localjudge reads format {FORMAT}; "
            "read it with the version that wrote it, or start a new run in another directory"
        )
    if not _is_whole(manifest):
        raise RunMismatchError(
            f"{file}: not a manifest of run format {FORMAT}, or damaged; "
            "restore the file, or start a new run in another directory"
        )
    if manifest["settings"].get("rubric") != _rubric_digest(manifest["rubric"]):
        raise RunMismatchError(
            f"{file}: its rubric is not the one of its settings, which the lines were made with; it was edited"
        )
    return dict(manifest)


def _is_whole(manifest: Any) -> bool:
    """Whether a document has the parts of a manifest, each of its type."""
    if not isinstance(manifest, dict) or not {"format", "settings", "shard"} <= set(manifest):
        return False
    try:
        Rubric.model_validate(manifest["rubric"])
        names = [manifest["model"]["name"], *(name for start in manifest["starts"] for name in start["inputs"])]
        columns = [start["columns"] for start in manifest["starts"]]
        started = [start["started"] for start in manifest["starts"]]
        limits = [start.get("max_row_bytes", MAX_ROW_BYTES) for start in manifest["starts"]]
    except (ValidationError, KeyError, TypeError):
        return False
    parts = [manifest["settings"], *columns]
    return (
        bool(columns)
        and all(isinstance(part, dict) for part in parts)
        and all(isinstance(text, str) for text in [*names, *started])
        and all(type(limit) is int and limit > 0 for limit in limits)
    )


def _rubric_digest(rubric: Mapping[str, Any]) -> str:
    """Digest of a rubric as `run.json` holds it, by the fields that it had then: see `Rubric.digest`."""
    decisive = {name: value for name, value in rubric.items() if name not in ("name", "description")}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def as_json(content: Mapping[str, Any]) -> bytes:
    """A file of the run directory, indented to be read."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    # A file's name that is not UTF-8 has lone surrogates, which JSON, too, spells with a backslash.
    return text.encode(errors="backslashreplace")


def new_start(
    inputs: list[str], columns: Mapping[str, str], max_row_bytes: int = MAX_ROW_BYTES
) -> dict[str, Any]:
    """What is known of a start from the beginning: when, where, of what."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "inputs": inputs,
        "columns": dict(columns),
        "max_row_bytes": max_row_bytes,
        "localjudge": version("localjudge"),
        "outlines_core": version("outlines-core"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def changes(manifest: Mapping[str, Any], described: Mapping[str, Any]) -> list[str]:
    """What of the settings differs, in words.

    Args:
        manifest: what `run.json` says.
        described: the same of a judge; of its settings, only those that are known.
    """
    found = []
    for name, now in described["settings"].items():
        was = manifest["settings"].get(name)
        if was != now:
            if name in ("rubric", "model"):
                was = f"{manifest[name]['name']} ({str(was)[:8]})"
                now = f"{described[name]['name']} ({str(now)[:8]})"
            found.append(f"{name}: {was} there, {now} now")
    was, now = manifest.get("shard"), described.get("shard")
    if was != now:
        found.append(f"shard: {was or 'the whole input'} there, {now or 'the whole input'} now")
    return found
