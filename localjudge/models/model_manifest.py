"""The manifest of a model directory: its files when it was verified."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localjudge.errors import ModelError
from localjudge.models.digests import MANIFEST, decisive_digest, model_files
from localjudge.models.model import Model
from localjudge.system.durable import replacing
from localjudge.system.steps import Report, no_progress
from localjudge.system.version import __version__

_MOST_NAMED = 4
"""Number of differences that a line names."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _ManifestRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileRecord(_ManifestRecord):
    """A verified file: its size in bytes and its SHA-256 in hex."""

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class ModelManifest(_ManifestRecord):
    """The content of `localjudge-manifest.json`: the files that `models verify` found.

    Attributes:
        digest: over the files that decide the model's answers, as runs record it.
        localjudge: the version that wrote it.
        created: local time with the offset from UTC.
    """

    format: Literal[1] = 1
    localjudge: str
    created: str
    digest: Sha256
    files: Mapping[str, FileRecord]

    @classmethod
    def from_digests(cls, folder: Path, digests: Mapping[str, str]) -> ModelManifest:
        """Return the manifest of a directory whose files have these digests."""
        return cls(
            localjudge=__version__,
            created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            digest=decisive_digest(digests),
            files={
                name: FileRecord(size=file.stat().st_size, sha256=digests[name])
                for name, file in model_files(folder).items()
                if name in digests
            },
        )

    @classmethod
    def read(cls, folder: Path) -> ModelManifest | None:
        """Return the manifest of a directory or a single file; None if it has none.

        Raises:
            ModelError: this version cannot read the manifest.
        """
        file = manifest_file(folder)
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            reason = (
                error.strerror
                if isinstance(error, OSError)
                else "; ".join(f"{'.'.join(map(str, e['loc']))} {e['msg']}".strip() for e in error.errors()[:2])
            )
            raise ModelError(f"{file}: not a readable manifest: {reason}") from None

    def write(self, folder: Path) -> None:
        """Write the manifest into the directory or beside the file, completely or not at all.

        Raises:
            ModelError: the directory cannot be written.
        """
        try:
            with replacing(manifest_file(folder)) as scratch:
                scratch.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ModelError(
                f"{manifest_file(folder)}: cannot be written: {error.strerror}; "
                "make the directory writable, or give --no-manifest to check only"
            ) from None

    def differences(self, digests: Mapping[str, str]) -> list[str]:
        """Return how files with these digests differ from the manifest, one phrase per file."""
        was = {name: record.sha256 for name, record in self.files.items()}
        gone = [f"{name} is missing" for name in sorted(was.keys() - digests.keys())]
        new = [f"{name} is new" for name in sorted(digests.keys() - was.keys())]
        shared = sorted(was.keys() & digests.keys())
        return [f"{name} has changed" for name in shared if was[name] != digests[name]] + gone + new


def manifest_file(path: Path) -> Path:
    """Return the manifest's place: in a model directory, or beside the file of a model in a single file."""
    return path.with_name(f"{path.name}.{MANIFEST}") if path.is_file() else path / MANIFEST


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
    try:
        manifest = ModelManifest.read(model.path)
        if manifest:
            model.read_files(report)
        differences = manifest.differences(model.files) if manifest else []
    except ModelError as error:
        if allow_changed:
            return [f"{MANIFEST} cannot be read"]
        raise ModelError(
            f"model {model.name}: {error}; if its files are right, run "
            f"localjudge models verify {quote(model.name)} --renew"
        ) from None
    if manifest and differences and not allow_changed:
        raise ModelError(
            f"model {model.name}: changed since it was verified on {manifest.created[:10]}: "
            f"{in_words(differences)}; copy the model again, or accept the change: "
            f"localjudge models verify {quote(model.name)} --renew, "
            "or --allow-changed-model for this run"
        )
    return differences if manifest else None
