"""The files of a folder without what differs between two runs of one command: times, starts, speeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHANGES = {
    "run.json": ("starts",),
    "summary.json": ("engine",),
    "calibration.json": ("created",),
    "labels.jsonl": ("labelled", "seconds"),
}
"""The names in each JSON file whose values differ from run to run."""


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, by its path; of an empty folder, no content, by its path with `/`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[f"{name}/"] = b""
    return found


def comparable(name: str, content: bytes) -> object:
    """Return the content of a file without what differs from run to run.

    Raises:
        ValueError: it is not the JSON that a file of this name has.
    """
    file = Path(name).name
    if file not in CHANGES:
        return content
    if file.endswith(".jsonl"):
        return [_without(json.loads(line), CHANGES[file]) for line in content.splitlines()]
    return _without(json.loads(content), CHANGES[file])


def comparable_files(folder: Path) -> dict[str, object]:
    """Return what `comparable` returns of each file; of one that is broken, a text that says so."""
    found: dict[str, object] = {}
    for name, content in files_in(folder).items():
        try:
            found[name] = comparable(name, content)
        except ValueError as error:
            found[name] = f"broken: {error}"
    return found


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {name: _without(inner, names) for name, inner in value.items() if name not in names}
    if isinstance(value, list):
        return [_without(inner, names) for inner in value]
    return value
