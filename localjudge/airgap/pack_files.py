"""The files of a pack: the parts, the manifest, the unpacker with its instructions, recipes, checksums.

The parts together are one plain tar file, cut at any byte, so a part may hold many files or a slice of one.
`manifest.json` has the SHA-256 of each part and each file in them, `SHA256SUMS` that of every file of the pack.
`unpack.py` needs only Python.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from shlex import join
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from localjudge.airgap import unpack
from localjudge.errors import LocalJudgeError, UsageError
from localjudge.system.requirements import SELF
from localjudge.system.steps import Report, no_progress

ARCHIVE = "localjudge.tar"
RECIPES = Path(__file__).with_name("recipes")
"""A folder of recipes: an OCI image, an Apptainer image, a Slurm job array, a Kubernetes Job."""
_BLOCK = 1 << 20
_README = """This is localjudge {version} for Python {python} on {platform},
packed for a machine without a network. Bring all files of this folder there, in one folder or several, and run

    python{python} unpack.py

(`python{python} unpack.py FOLDER FOLDER ...` for several.) It needs Python alone, checks every part, unpacks,
and installs into a virtual environment. It prints the digest of the manifest. What `pack` printed was

    {sha256}

A pack with a {signature} is signed. With the public key of its signer, which must not come with the pack,
check that nothing was changed before you run anything of it:

    openssl dgst -sha256 -verify PUBLIC.pem -signature {signature} {sums}
    sha256sum --check {sums}

`python{python} unpack.py --key PUBLIC.pem` makes the same checks, but an unpack.py that was changed makes none.
{bill} lists what the pack brings, with licences, in the format CycloneDX.

Containerfile and apptainer.def make an image of these files, and slurm-array.sh and
kubernetes-job.yaml judge in it on a cluster; each
begins with its commands.
"""


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
        return self.model_copy(update={"sha256": unpack.seal(self.model_dump(mode="json"))})


def write_parts(
    sources: Mapping[str, Path], folder: Path, part_size: int, report: Report = no_progress
) -> tuple[list[PackedFile], list[PackedFile]]:
    """Write files under the given names as a tar file in parts, in constant memory."""
    done, total = 0, sum(file.stat().st_size for file in sources.values())
    bound = total + 4096 * (len(sources) + 5)  # headers, padding, end of archive
    count = -(-bound // part_size)
    folder.mkdir(parents=True)
    parts: Any = _Parts(folder, part_size, digits=max(3, len(str(count))))
    files = []
    with tarfile.open(fileobj=parts, mode="w|", bufsize=_BLOCK, format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(sources):
            with sources[name].open("rb") as stream:
                entry = tarfile.TarInfo(name)
                entry.size = sources[name].stat().st_size
                entry.mode = 0o644
                hashed = _Hashed(stream, report, done, total)
                try:
                    archive.addfile(entry, hashed)
                except OSError as error:
                    if error.errno is not None:  # an error of the disk
                        raise
                    raise UsageError(f"{sources[name]}: became shorter while it was packed") from None
            done += entry.size
            files.append(PackedFile(name=name, size=entry.size, sha256=hashed.digest.hexdigest()))
    return parts.close(), files


def write_beside(manifest: PackManifest, folder: Path) -> None:
    """Write the manifest, the unpacker with its instructions, the recipes and checksums beside the parts."""
    (folder / unpack.MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    for file in (Path(unpack.__file__), *(RECIPES / name for name in unpack.RECIPES)):
        shutil.copyfile(file, folder / file.name)
    details = {
        "platform": manifest.platforms[0],
        "signature": unpack.SIGNATURE,
        "sums": unpack.SUMS,
        "bill": unpack.BILL,
        **manifest.model_dump(include={"version", "python", "sha256"}),
    }
    (folder / "README.txt").write_text(_README.format(**details), encoding="utf-8")
    digests = {part.name: part.sha256 for part in manifest.parts}
    digests |= {file.name: unpack.digest_of(file) for file in folder.iterdir() if file.name not in digests}
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    (folder / unpack.SUMS).write_text(sums, encoding="utf-8")


class _Parts:
    """A stream that continues in the next file when a part is full."""

    def __init__(self, folder: Path, size: int, digits: int) -> None:
        self._folder, self._size, self._digits = folder, size, digits
        self._stream: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._entries: list[PackedFile] = []
        self._used = 0

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:
            if self._stream is None:
                name = f"{ARCHIVE}.{len(self._entries) + 1:0{self._digits}}"
                self._stream = (self._folder / name).open("xb")
            piece = rest[: self._size - self._used]
            self._stream.write(piece)
            self._digest.update(piece)
            self._used += len(piece)
            rest = rest[len(piece) :]
            if self._used == self._size:
                self._end_part()
        return len(data)

    def close(self) -> list[PackedFile]:
        if self._stream is not None:
            self._end_part()
        return self._entries

    def _end_part(self) -> None:
        assert self._stream is not None
        self._stream.close()
        name = Path(self._stream.name).name
        self._entries.append(PackedFile(name=name, size=self._used, sha256=self._digest.hexdigest()))
        self._stream, self._digest, self._used = None, hashlib.sha256(), 0


class _Hashed(io.RawIOBase):
    """A stream that computes its digest while it is read, and reports its bytes after the `done` before it."""

    def __init__(self, stream: IO[bytes], report: Report, done: int, total: int) -> None:
        self._stream, self._report, self._done, self._total = stream, report, done, total
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.digest.update(block)
        self._done += len(block)
        self._report(self._done, self._total)
        return block


_PROGRAM = "openssl"


def check_signer(key: Path) -> None:
    """Check that there are a key and a program that could sign.

    Raises:
        UsageError: one of them is missing.
    """
    if not key.is_file():
        raise UsageError(f"--sign {key}: no such file; give a private key, such as openssl ecparam makes")
    if shutil.which(_PROGRAM) is None:
        raise UsageError(f"--sign needs the program {_PROGRAM}: install it, or sign the pack elsewhere")


def sign_pack(folder: Path, key: Path) -> None:
    """Sign the checksums of a pack with ECDSA (or RSA) and SHA-256; the program asks for a pass phrase.

    The program openssl signs, because nearly every Linux has it: a machine with Python alone can check the
    signature before it uses anything else of the pack. (Python's standard library cannot check signatures.)
    ECDSA is used because every version of openssl supports it and FIPS 186 approves it. To make a key pair:

        openssl ecparam -name prime256v1 -genkey -noout -out private.pem
        openssl ec -in private.pem -pubout -out public.pem

    Raises:
        LocalJudgeError: openssl failed; the pack is kept, and the message has the command to sign it.
    """
    scratch = folder / f"{unpack.SIGNATURE}.partial"
    command = [_PROGRAM, "dgst", "-sha256", "-sign", str(key), "-out"]
    sums, signature = folder / unpack.SUMS, folder / unpack.SIGNATURE
    done = subprocess.run(
        [*command, str(scratch), str(sums)], stderr=subprocess.PIPE, text=True, errors="replace"
    )
    if done.returncode:
        scratch.unlink(missing_ok=True)
        said = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        again = join([*command, str(signature), str(sums)])
        raise LocalJudgeError(
            f"{folder}: the pack is written, but not signed: {said}; to sign it with this or another key "
            f"(elliptic curve or RSA): {again}"
        )
    scratch.rename(signature)
