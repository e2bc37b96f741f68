"""The manifest of a model directory: the files that it was verified with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localjudge.errors import ModelError
from localjudge.models.digests import MANIFEST, decisive_digest, model_files
from localjudge.models.model import Model
from localjudge.system.durable import replacing

_MOST_NAMED = 4
"""Differences that a single line names."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileRecord(_Record):
    """A file as it was: its bytes and their SHA-256, in hex."""

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class ModelManifest(_Record):
    """What `models verify` found in a model directory, as `localjudge-manifest.json` holds it.

    Attributes:
        digest: over what decides the model's answers, as runs record it.
        localjudge: the version that wrote it.
        created: when, with the offset from UTC.
    """

    format: Literal[1] = 1
    localjudge: str
    created: str
    digest: Sha256
    files: Mapping[str, FileRecord]

    @classmethod
    def of(cls, folder: Path, digests: Mapping[str, str]) -> ModelManifest:
        """Of a directory whose files have these digests."""
        return cls(
            localjudge=version("localjudge"),
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
        """The manifest of a directory; None where it has none.

        Raises:
            ModelError: it is none that this version can read.
        """
        file = folder / MANIFEST
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
            raise ModelError(f"{file}: no manifest that can be read: {reason}") from None

    def write(self, folder: Path) -> None:
        """Write it into the directory, whole or not at all.

        Raises:
            ModelError: the directory cannot be written.
        """
        try:
            with replacing(folder / MANIFEST) as scratch:
                scratch.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ModelError(
                f"{folder / MANIFEST}: cannot be written: {error.strerror}; "
                "make the directory writable, or give --no-manifest to check only"
            ) from None

    def differences(self, digests: Mapping[str, str]) -> list[str]:
        """How files with these digests differ from it, a phrase a file."""
        was = {name: record.sha256 for name, record in self.files.items()}
        gone = [f"{name} is gone" for name in sorted(was.keys() - digests.keys())]
        new = [f"{name} is new" for name in sorted(digests.keys() - was.keys())]
        shared = sorted(was.keys() & digests.keys())
        return [f"{name} has changed" for name in shared if was[name] != digests[name]] + gone + new


def in_words(differences: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(differences) - _MOST_NAMED
    return ", ".join(differences[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def changes_since_verified(model: Model, allow_changed: bool = False) -> list[str] | None:
    """How the model's files differ from those of its manifest, a phrase a file; None where it has no manifest.

    Args:
        model: the model.
        allow_changed: take one that has changed, too.

    Raises:
        ModelError: the files are others, or the manifest cannot be read.
    """
    try:
        manifest = ModelManifest.read(model.path)
        differences = manifest.differences(model.files) if manifest else []
    except ModelError as error:
        if allow_changed:
            return [f"{MANIFEST} cannot be read"]
        raise ModelError(
            f"model {model.name}: {error}; if its files are right: "
            f"localjudge models verify {quote(model.name)} --renew"
        ) from None
    if manifest and differences and not allow_changed:
        raise ModelError(
            f"model {model.name}: not what was verified on {manifest.created[:10]}: {in_words(differences)}; "
            f"copy the model again; if that is meant: localjudge models verify {quote(model.name)} --renew, "
            "or --allow-changed-model for this run"
        )
    return differences if manifest else None
