"""The files of a model directory and its subfolders, and the SHA-256 of each."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.models.gguf import GGUF
from localjudge.system.cache import cache_folder, keep, recalled
from localjudge.system.steps import Report, no_progress

MANIFEST = "localjudge-manifest.json"
"""The file that `models verify` writes into a model directory; not part of the model."""

DECISIVE = (
    ".safetensors", ".json", ".jinja", ".model", ".txt", ".spm", ".tiktoken", ".bpe", ".vocab",
)  # fmt: skip
"""Suffixes of files that decide a model's answers: weights, configurations, chat templates, vocabularies."""

_LEGAL = ("license", "notice", "readme")
"""Name prefixes of files that only describe the model, if they end with .txt."""

_SHA256 = re.compile("[0-9a-f]{64}")

_PIECE = 8 * 2**20
"""Bytes per read."""

_SETTLED = 2 * 10**9
"""Nanoseconds after a change after which a further change is certain to alter the file's timestamps."""


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 of each file of a model directory, in hex, by path within the directory.

    Attributes:
        sha256: the digests.
        remembered: the files whose digest came from the cache; of the others, every byte was read.
    """

    sha256: dict[str, str]
    remembered: frozenset[str]


def paths_in(folder: Path) -> Iterator[Path]:
    """Yield each file and broken link in a model directory and its subfolders, except hidden ones.

    Links to folders are followed, except links to a folder that contains them.
    """
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = Path(parent).resolve()
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not here.is_relative_to(Path(parent, name).resolve())
        )
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model directory except its manifest, by path within it, with `/` as separator.

    A model in a single file has only that file.
    """
    if folder.is_file():
        return {folder.name: folder}
    files = {path.relative_to(folder).as_posix(): path for path in paths_in(folder) if path.is_file()}
    files.pop(MANIFEST, None)
    return files


def read_digests(folder: Path, *, ignore_cache: bool = False, report: Report = no_progress) -> Digests:
    """Return the digest of each file. The cache remembers the digests of unchanged files.

    A file counts as unchanged while its device, inode, size and both timestamps are the same. Writing to a file
    sets its ctime, and no program can set it back. A file that changed a moment ago is not remembered, because
    its next change could have the same timestamp.

    Args:
        folder: the model directory, or the file of a model in a single file.
        ignore_cache: compute every digest from the bytes of its file.
        report: receives the bytes that were read, and those of all files whose digest is not remembered.

    Raises:
        OSError: a file cannot be read.
    """
    memory_file = cache_folder() / "digests" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:32]}.json"
    try:
        memory = json.loads(recalled(memory_file).read_bytes())
    except (OSError, ValueError, RecursionError):
        memory = {}
    known = {} if ignore_cache or not isinstance(memory, dict) else memory
    known = {stamp: each for stamp, each in known.items() if isinstance(each, str) and _SHA256.fullmatch(each)}
    files = model_files(folder)
    done, total = 0, sum(file.stat().st_size for file in files.values() if _stamp(file)[0] not in known)
    found, worth_remembering, remembered = {}, {}, set()
    for name, file in files.items():
        stamp, changed = _stamp(file)
        if stamp in known:
            found[name] = known[stamp]
            remembered.add(name)
        else:
            found[name], size = _sha256(file, report, done, total)
            done += size
        if (stamp, changed) == _stamp(file) and time.time_ns() - changed > _SETTLED:
            worth_remembering[stamp] = found[name]
    if worth_remembering != memory:
        keep(memory_file, lambda file: file.write_bytes(json.dumps(worth_remembering).encode()))
    return Digests(found, frozenset(remembered))


def decisive_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 over the digests of the files that decide the answers: see `DECISIVE`.

    The digest of a model in a single file is the file's own.
    """
    if len(files) == 1 and (only := next(iter(files))).lower().endswith(GGUF):
        return files[only]
    decisive = {
        name: digest
        for name, digest in files.items()
        if name.endswith(DECISIVE) and not _is_legal(name.rpartition("/")[2].lower())
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _is_legal(name: str) -> bool:
    return name.startswith(_LEGAL) and name.endswith(".txt")


def _stamp(file: Path) -> tuple[str, int]:
    """Return a text that changes when the file does, without reading it, and the time of its last change."""
    status = file.stat()
    times = status.st_mtime_ns, status.st_ctime_ns
    return f"{file.resolve()} {status.st_dev} {status.st_ino} {status.st_size} {times}", max(times)


def _sha256(file: Path, report: Report, before: int, total: int) -> tuple[str, int]:
    """Return the digest of a file in hex and its size; `before` bytes of `total` were read earlier."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            report(before + size, total)
    return digest.hexdigest(), size
