"""Write a pack: everything that a machine without a network needs, in parts of limited size.

The parts together are one plain tar file, cut at any byte, so a part may hold many files or a slice of one. The
pack also has `manifest.json`, with the SHA-256 of each part and file, and `unpack.py`, which needs only Python.
The same files and part size give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from localjudge.airgap import unpack
from localjudge.airgap.wheels import NAME, Say, Target, choose_extras, gather_wheels, own_wheel
from localjudge.errors import UsageError
from localjudge.models.adapter import Adapter
from localjudge.models.model import Model
from localjudge.models.model_location import model_path
from localjudge.models.model_manifest import manifest_file
from localjudge.system.durable import settle
from localjudge.system.quantities import file_size
from localjudge.system.steps import Report, unreported

ARCHIVE = "localjudge.tar"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SMALLEST = 1024
_MOST_PARTS = 9999
_BLOCK = 1 << 20
_README = """This is localjudge {version} for Python {python} on {platform},
packed for a machine without a network. Bring all files of this folder there, in one folder or several, and run

    python{python} unpack.py

(`python{python} unpack.py FOLDER FOLDER ...` for several.) It needs Python alone, checks every part, unpacks,
and installs into a virtual environment. It prints the digest of the manifest. What `pack` printed was

    {sha256}
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
    name: str = NAME
    version: str
    extras: tuple[str, ...]
    python: str
    platforms: tuple[str, ...]
    parts: tuple[PackedFile, ...]
    files: tuple[PackedFile, ...]
    sha256: str = ""

    def sealed(self) -> PackManifest:
        return self.model_copy(update={"sha256": unpack.seal(self.model_dump(mode="json"))})


def parse_size(text: str) -> int:
    """Return a size in bytes. K, M and G are powers of 1000; KiB, MiB and GiB are powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", text.strip().upper())
    if not match:
        raise UsageError(f"--part-size {text}: write it like 60M, 1.5G or 512MiB")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < _SMALLEST:
        raise UsageError(f"--part-size {text}: give at least {_SMALLEST} bytes")
    return size


def make_pack(
    out: Path,
    part_size: int,
    target: Target,
    extras: Sequence[str] | None = None,
    models: Iterable[str] = (),
    rows: Iterable[Path] = (),
    pip_args: Sequence[str] = (),
    say: Say = print,
    adapters: Iterable[str] = (),
    report: Report = unreported,
) -> PackManifest:
    """Collect wheels, models, adapters and rows, and write them as a pack into `out`, a new or empty folder.

    Raises:
        UsageError: a requested file is missing, or there is not enough free disk space.
        LocalJudgeError: pip failed.
    """
    sources = {**_model_files(models), **_adapter_files(adapters), **_row_files(rows)}
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out}: exists already; give a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_room(out, sources, part_size)
    scratch = out.with_name(f"{out.name}.partial")
    try:
        scratch.mkdir()
    except FileExistsError:
        raise UsageError(f"{scratch}: another pack is in progress; if it was killed, remove this") from None
    try:
        (scratch / "own").mkdir()
        own = own_wheel(scratch / "own", pip_args, say)
        version = own.name.split("-")[1]
        chosen = choose_extras(own, extras)
        wanted = f"{NAME}[{','.join(chosen)}]"
        say(f"collecting {wanted} {version} for Python {target.python} on {target.platforms[0]}")
        gather_wheels(f"{own}[{','.join(chosen)}]", target, scratch / "wheels", pip_args, say)
        sources |= {f"wheels/{file.name}": file for file in (scratch / "wheels").iterdir()}
        _check_room(out, sources, part_size)
        say(f"writing {len(sources)} files, {file_size(sum(map(_size, sources.values())))}")
        folder = scratch / "pack"
        parts, files = write_parts(sources, folder, part_size, report)
        manifest = PackManifest(
            version=version,
            extras=tuple(chosen),
            python=target.python,
            platforms=target.platforms,
            parts=tuple(parts),
            files=tuple(files),
        ).sealed()
        write_beside(manifest, folder)
        settle(folder, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def write_parts(
    sources: Mapping[str, Path], folder: Path, part_size: int, report: Report = unreported
) -> tuple[list[PackedFile], list[PackedFile]]:
    """Write files under the given names as a tar file in parts, in constant memory."""
    done, total = 0, sum(map(_size, sources.values()))
    bound = total + 4096 * (len(sources) + 5)  # headers, padding, end of archive
    count = -(-bound // part_size)
    folder.mkdir(parents=True)
    parts: Any = _Parts(folder, part_size, digits=max(3, len(str(count))))
    files = []
    with tarfile.open(fileobj=parts, mode="w|", bufsize=_BLOCK, format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(sources):
            with sources[name].open("rb") as stream:
                entry = tarfile.TarInfo(name)
                entry.size = _size(sources[name])
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
    """Write the manifest, the unpacker and its instructions beside the parts."""
    (folder / unpack.MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(unpack.__file__, folder / "unpack.py")
    details = {
        "platform": manifest.platforms[0],
        **manifest.model_dump(include={"version", "python", "sha256"}),
    }
    (folder / "README.txt").write_text(_README.format(**details), encoding="utf-8")


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


def _model_files(names: Iterable[str]) -> dict[str, Path]:
    """Return all files of each model's directory except hidden ones, as `models/NAME/…`.

    A GGUF file and its manifest are `models/FILE`.
    """
    files: dict[str, Path] = {}
    for name in names:
        model = Model.find(name)
        if model.is_gguf:
            for file in (model.path, manifest_file(model.path)):
                packed = _checked(f"models/{file.name}", file)
                if packed in files:
                    raise UsageError(f"--model {name}: a second model of this name; rename its file")
                files |= {packed: file} if file.is_file() else {}
            continue
        is_folder = model_path(name).is_dir()
        folder = f"models/{model.path.name if is_folder else name.rpartition('/')[2]}"
        if any(file.startswith(f"{folder}/") for file in files):
            raise UsageError(f"--model {name}: a second model of this name; rename its directory")
        for file in sorted(model.path.rglob("*")):
            inside = file.relative_to(model.path)
            if file.is_file() and not any(part.startswith(".") for part in inside.parts):
                files[_checked(f"{folder}/{inside.as_posix()}", file)] = file
    return files


def _adapter_files(names: Iterable[str]) -> dict[str, Path]:
    """Return the files of each adapter that decide its answers, as `adapters/NAME/…`."""
    files: dict[str, Path] = {}
    for name in names:
        adapter = Adapter.find(name)
        own = {f"adapters/{adapter.path.name}/{file}": adapter.path / file for file in adapter.files}
        if own.keys() & files:
            raise UsageError(f"--adapter {name}: a second adapter of this name; rename its directory")
        files |= {_checked(place, file): file for place, file in own.items()}
    return files


def _row_files(rows: Iterable[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for file in rows:
        if not file.is_file():
            raise UsageError(f"--rows {file}: no such file")
        name = _checked(f"rows/{file.name}", file)
        if name in files:
            raise UsageError(f"--rows {file}: a second file of this name; rename it")
        files[name] = file
    return files


def _checked(name: str, file: Path) -> str:
    if not unpack.is_safe(name):
        raise UsageError(f"{file}: some systems cannot unpack this name; rename it")
    return name


def _check_room(out: Path, sources: Mapping[str, Path], part_size: int) -> None:
    size = sum(map(_size, sources.values()))
    if size > part_size * _MOST_PARTS:
        least = -(-size // _MOST_PARTS)
        raise UsageError(f"--part-size {part_size}: gives more than {_MOST_PARTS} parts; give at least {least}")
    free = shutil.disk_usage(out.parent).free
    if size > free:
        raise UsageError(
            f"--out {out}: not enough disk space: {file_size(size)} needed, {file_size(free)} free"
        )


def _size(file: Path) -> int:
    return file.stat().st_size
