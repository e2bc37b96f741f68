"""What a model directory consists of, and the SHA-256 of each of its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from localjudge.cache import cache_folder, keep

MANIFEST = "localjudge-manifest.json"
"""What `models verify` writes into a model directory; no file of the model's own."""

_PIECE = 8 * 2**20
"""Bytes that are read at a time."""


def model_files(folder: Path) -> list[Path]:
    """The files of a model directory by their names: no folders, no hidden ones, and not its manifest."""
    return [
        file
        for file in sorted(folder.iterdir())
        if file.is_file() and not file.name.startswith(".") and file.name != MANIFEST
    ]


def digests(
    folder: Path, *, afresh: bool = False, read: Callable[[int], None] = lambda count: None
) -> dict[str, str]:
    """SHA-256 of each file by its name, in hex. Remembered in the cache while a file is unchanged.

    Args:
        folder: the model directory.
        afresh: read every byte again, whatever is remembered.
        read: told how many bytes have been read, as they are.

    Raises:
        OSError: a file cannot be read.
    """
    memory_file = cache_folder() / "digests" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:32]}.json"
    try:
        memory = json.loads(memory_file.read_text())
    except (OSError, ValueError):
        memory = {}
    found, remembered = {}, {}
    for file in model_files(folder):
        status = file.stat()
        stamp = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
        known = None if afresh or not isinstance(memory, dict) else memory.get(stamp)
        found[file.name] = remembered[stamp] = known or _sha256(file, read)
    if remembered != memory:
        keep(memory_file, lambda file: file.write_text(json.dumps(remembered)))
    return found


def decisive_digest(files: Mapping[str, str]) -> str:
    """SHA-256 over the digests of what decides the answers: weights, configuration, tokenizer and template."""
    decisive = {
        name: digest
        for name, digest in files.items()
        if name.endswith((".safetensors", ".json", ".jinja", ".model"))
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _sha256(file: Path, read: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            read(len(piece))
    return digest.hexdigest()
