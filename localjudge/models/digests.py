"""The files of a model directory and its subfolders, their SHA-256, and the manifest of a verified model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localjudge import __version__
from localjudge.errors import ModelError
from localjudge.system.durable import cache_folder, keep, recalled, replacing
from localjudge.system.steps import Report, no_progress

if TYPE_CHECKING:
    from localjudge.models.model import Model

MANIFEST = "localjudge-manifest.json"
"""The file that `models verify` writes into a model directory; not part of the model."""

DECISIVE = (
    ".safetensors", ".json", ".jinja", ".model", ".txt", ".spm", ".tiktoken", ".bpe", ".vocab",
)  # fmt: skip
"""Suffixes of files that decide a model's answers: weights, configurations, chat templates, vocabularies."""

_LEGAL = ("license", "notice", "readme")
"""Name prefixes of files that only describe the model, if they end with .txt."""

_SHA256 = "^[0-9a-f]{64}$"

_MOST_NAMED = 4
"""Number of differences that a line names."""

_PIECE = 8 * 2**20
"""Bytes per read."""

_SETTLED = 2 * 10**9
"""Nanoseconds after a change after which a further change is certain to alter the file's timestamps."""


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
    memory_file = cache_folder() / "digests" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:32]}.json"
    try:
        memory = json.loads(recalled(memory_file).read_bytes())
    except (OSError, ValueError, RecursionError):
        memory = {}
    known = {} if ignore_cache or not isinstance(memory, dict) else memory
    known = {stamp: digest for stamp, digest in known.items() if re.fullmatch(_SHA256, str(digest))}
    files = model_files(folder)
    done, total = 0, sum(file.stat().st_size for file in files.values() if _stamp(file)[0] not in known)
    found, worth_remembering = {}, {}
    for name, file in files.items():
        stamp, changed = _stamp(file)
        if stamp in known:
            found[name] = known[stamp]
        else:
            found[name], size = _sha256(file, report, done, total)
            done += size
        if (stamp, changed) == _stamp(file) and time.time_ns() - changed > _SETTLED:
            worth_remembering[stamp] = found[name]
    if worth_remembering != memory:
        keep(memory_file, lambda file: file.write_bytes(json.dumps(worth_remembering).encode()))
    return found


def decisive_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 over the digests of the files that decide the answers: see `DECISIVE`."""
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


class ModelManifest(BaseModel):
    """The content of `localjudge-manifest.json`: the files that `models verify` found.

    Attributes:
        digest: over the files that decide the model's answers, as runs record it.
        localjudge: the version that wrote it.
        created: local time with the offset from UTC.
        files: SHA-256 of each file in hex.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[2] = 2
    localjudge: str
    created: str
    digest: str
    files: Mapping[str, Annotated[str, Field(pattern=_SHA256)]]

    @classmethod
    def from_digests(cls, digests: Mapping[str, str]) -> ModelManifest:
        """Return the manifest of a directory whose files have these digests."""
        created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return cls(localjudge=__version__, created=created, digest=decisive_digest(digests), files=digests)

    @classmethod
    def read(cls, folder: Path) -> ModelManifest | None:
        """Return the manifest of a directory or a single file; None if it has none.

        Raises:
            ModelError: this version cannot read the manifest.
        """
        file = folder / MANIFEST
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModelError(f"{file}: cannot be read: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            reason = " ".join(map(str, [*first["loc"], first["msg"]]))
            raise ModelError(f"{file}: not a readable manifest: {reason}") from None

    def write(self, folder: Path) -> None:
        """Write the manifest into the directory, completely or not at all.

        Raises:
            ModelError: the directory cannot be written.
        """
        file = folder / MANIFEST
        try:
            with replacing(file) as scratch:
                scratch.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ModelError(
                f"{file}: cannot be written: {error.strerror}; "
                "make the directory writable, or give --no-manifest to check only"
            ) from None

    def differences(self, digests: Mapping[str, str]) -> list[str]:
        """Return how files with these digests differ from the manifest, one phrase per file."""
        was = self.files
        gone = [f"{name} is missing" for name in sorted(was.keys() - digests.keys())]
        new = [f"{name} is new" for name in sorted(digests.keys() - was.keys())]
        shared = sorted(was.keys() & digests.keys())
        return [f"{name} has changed" for name in shared if was[name] != digests[name]] + gone + new


def in_words(differences: list[str]) -> str:
    """Return the first names and the number of the others."""
    more = len(differences) - _MOST_NAMED
    return ", ".join(differences[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def changes_since_verified(
    model: Model, allow_changed: bool = False, report: Report = no_progress
) -> list[str] | None:
    """Return how the model's files differ from its manifest, one phrase per file; None without a manifest.

    Args:
        model: the model.
        allow_changed: accept a changed model, too.
        report: as for `Model.read_files`.

    Raises:
        ModelError: the files differ, or the manifest cannot be read.
    """
    renew = f"localjudge models verify {quote(model.name)} --renew"
    try:
        manifest = ModelManifest.read(model.path)
    except ModelError as error:
        if allow_changed:
            return [f"{MANIFEST} cannot be read"]
        raise ModelError(f"model {model.name}: {error}; if its files are right, run {renew}") from None
    if manifest is None:
        return None
    model.read_files(report)
    differences = manifest.differences(model.files)
    if differences and not allow_changed:
        raise ModelError(
            f"model {model.name}: changed since it was verified on {manifest.created[:10]}: "
            f"{in_words(differences)}; copy the model again, or accept the change: {renew}, "
            "or --allow-changed-model for this run"
        )
    return differences
