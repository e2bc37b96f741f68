"""The files of a model directory and its subfolders, and their SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.system.durable import cache_folder, keep, recalled
from localjudge.system.steps import Report, no_progress

MANIFEST = "localjudge-manifest.json"
"""The file that `models verify` writes into a model directory; not part of the model."""

DECISIVE = (
    ".safetensors", ".json", ".jinja", ".model", ".txt", ".spm", ".tiktoken", ".bpe", ".vocab",
)  # fmt: skip
"""Suffixes of files that decide a model's answers: weights, configurations, chat templates, vocabularies."""

SHA256 = "^[0-9a-f]{64}$"
"""The pattern of a digest."""

_LEGAL = ("license", "notice", "readme")
"""Name prefixes of files that only describe the model, if they end with .txt."""

_MAX_NAMES = 4
"""Number of names that a line has."""

_CHUNK = 8 * 2**20
"""Bytes per read."""

_SETTLED = 2 * 10**9
"""Nanoseconds after a change after which a further change is certain to alter the file's timestamps."""


def paths_in(folder: Path) -> Iterator[Path]:
    """Yield each file and broken link in a model directory and its subfolders, except hidden ones.

    Links to folders are followed, except links to a folder that contains them.
    """
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        # os.walk visits the folders that are left in its list.
        subfolders[:] = sorted(name for name in subfolders if _is_visited(Path(parent), name))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(parent, name)


def _is_visited(parent: Path, name: str) -> bool:
    """Return whether a subfolder is neither hidden nor a link to a folder that contains it."""
    if name.startswith("."):
        return False
    target = Path(parent, name).resolve()
    return not parent.resolve().is_relative_to(target)


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model directory except its manifest, by path within it, with `/` as separator."""
    files = {path.relative_to(folder).as_posix(): path for path in paths_in(folder) if path.is_file()}
    files.pop(MANIFEST, None)
    return files


def read_digests(folder: Path, *, ignore_cache: bool = False, report: Report = no_progress) -> dict[str, str]:
    """Return the SHA-256 of each file in hex, by its path within the directory.

    The cache remembers the digests of unchanged files. A file counts as unchanged while its device, inode, size
    and both timestamps are the same. Writing to a file sets its ctime, and no program can set it back. A file
    that changed a moment ago is not remembered, because its next change could have the same timestamp.

    Args:
        folder: the model directory.
        ignore_cache: compute every digest from the bytes of its file.
        report: receives the bytes that were read, and those of all files whose digest is not remembered.

    Raises:
        OSError: a file cannot be read.
    """
    folder_hash = hashlib.sha256(str(folder).encode()).hexdigest()
    cache_file = cache_folder() / "digests" / f"{folder_hash[:32]}.json"
    cache_content = _read_cache(cache_file)
    remembered: dict[str, str] = {}
    if isinstance(cache_content, dict) and not ignore_cache:
        remembered = {
            version: digest for version, digest in cache_content.items() if re.fullmatch(SHA256, str(digest))
        }

    files = model_files(folder)
    sizes = [file.stat().st_size for file in files.values() if _FileVersion.read(file).text not in remembered]
    total = sum(sizes)
    done = 0
    digests: dict[str, str] = {}
    to_remember: dict[str, str] = {}
    for name, file in files.items():
        version = _FileVersion.read(file)
        if version.text in remembered:
            digests[name] = remembered[version.text]
        else:
            digests[name], size = _sha256(file, report, done_before=done, total=total)
            done += size
        has_settled = time.time_ns() - version.changed > _SETTLED
        if has_settled and version == _FileVersion.read(file):
            to_remember[version.text] = digests[name]
    if to_remember != cache_content:
        keep(cache_file, lambda file: file.write_bytes(json.dumps(to_remember).encode()))
    return digests


def _read_cache(file: Path) -> object:
    """Return the JSON value in a file of the cache; an empty object if it cannot be read."""
    try:
        content: object = json.loads(recalled(file).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content


@dataclass(frozen=True, slots=True)
class _FileVersion:
    """What shows that a file has changed without reading it.

    Attributes:
        text: its path, device, inode, size and timestamps.
        changed: the time of its last change in nanoseconds.
    """

    text: str
    changed: int

    @classmethod
    def read(cls, file: Path) -> _FileVersion:
        status = file.stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        text = f"{file.resolve()} {status.st_dev} {status.st_ino} {status.st_size} {times}"
        return cls(text, max(times))


def _sha256(file: Path, report: Report, *, done_before: int, total: int) -> tuple[str, int]:
    """Return the digest of a file in hex and its size.

    Args:
        file: the file.
        report: receives the bytes that were read, of this and of earlier files.
        done_before: the bytes of earlier files.
        total: the bytes of all files that are read.
    """
    digest = hashlib.sha256()
    size = 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            report(done_before + size, total)
    return digest.hexdigest(), size


def decisive_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 over the digests of the files that decide the answers: see `DECISIVE`."""
    decisive = {name: digest for name, digest in files.items() if _decides(name)}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _decides(path: str) -> bool:
    """Return whether a file, by its path within the directory, decides the answers."""
    name = path.rpartition("/")[2].lower()
    is_legal = name.startswith(_LEGAL) and name.endswith(".txt")
    return path.endswith(DECISIVE) and not is_legal


def in_words(names: list[str]) -> str:
    """Return the first names and the number of the others."""
    words = ", ".join(names[:_MAX_NAMES])
    further = len(names) - _MAX_NAMES
    if further > 0:
        words += f" and {further} more"
    return words
