"""The manifest of a verified model: the SHA-256 of its files, and how the files differ from it now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localjudge import __version__
from localjudge.errors import ModelError
from localjudge.models.digests import MANIFEST, SHA256, decisive_digest, in_words
from localjudge.models.model import Model
from localjudge.system.durable import replacing
from localjudge.system.steps import Report, no_progress


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
    files: Mapping[str, Annotated[str, Field(pattern=SHA256)]]

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
            keys = "".join(f"{key} " for key in first["loc"])
            raise ModelError(f"{file}: not a readable manifest: {keys}{first['msg']}") from None

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
        missing = sorted(self.files.keys() - digests.keys())
        new = sorted(digests.keys() - self.files.keys())
        in_both = sorted(self.files.keys() & digests.keys())
        changed = [name for name in in_both if self.files[name] != digests[name]]
        return (
            [f"{name} has changed" for name in changed]
            + [f"{name} is missing" for name in missing]
            + [f"{name} is new" for name in new]
        )


def changes_since_verified(
    model: Model, *, allow_changed: bool = False, report: Report = no_progress
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
