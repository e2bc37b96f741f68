"""The manifest of a pack: its parts and the files in them, with their digests."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from localjudge.airgap import unpack
from localjudge.system.requirements import SELF


class PackedFile(BaseModel):
    """A part or a file: its name, its size in bytes, and its SHA-256 in hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    sha256: str


class PackManifest(BaseModel):
    """The content of `manifest.json`. `sha256` is the digest of all other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = unpack.FORMAT
    name: str = SELF
    version: str
    extras: tuple[str, ...]
    python: str
    platforms: tuple[str, ...]
    parts: tuple[PackedFile, ...]
    files: tuple[PackedFile, ...]
    sha256: str = ""

    def sealed(self) -> PackManifest:
        """Return the manifest with its digest."""
        digest = unpack.seal(self.model_dump(mode="json"))
        return self.model_copy(update={"sha256": digest})
