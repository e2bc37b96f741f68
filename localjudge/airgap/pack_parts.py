"""The parts of a pack: together one plain tar file, cut at any byte.

So a part may have many files, or a slice of one.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from localjudge.airgap.pack_manifest import PackedFile
from localjudge.errors import UsageError
from localjudge.system.steps import Report, no_progress

ARCHIVE = "localjudge.tar"
_BLOCK = 1 << 20
_MOST_OVERHEAD = 4096
"""The most bytes of a header and its padding in a tar file."""


def write_parts(
    sources: Mapping[str, Path], folder: Path, part_size: int, report: Report = no_progress
) -> tuple[list[PackedFile], list[PackedFile]]:
    """Write files as a tar file in parts, in constant memory.

    Args:
        sources: where each file lies on this machine, by its name in the pack.
        folder: the new folder of the parts.
        part_size: the size of a part in bytes.
        report: receives the number of bytes that have been written.

    Returns:
        the parts, and the files in them.

    Raises:
        UsageError: a file became shorter while it was packed.
        OSError: a file cannot be read, or a part not written.
    """
    total = sum(file.stat().st_size for file in sources.values())
    digits = _digits_of_part_numbers(total, files=len(sources), part_size=part_size)
    folder.mkdir(parents=True)
    parts: Any = _Parts(folder, part_size, digits=digits)
    files: list[PackedFile] = []
    done = 0
    with tarfile.open(fileobj=parts, mode="w|", bufsize=_BLOCK, format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(sources):
            entry = tarfile.TarInfo(name)
            entry.size = sources[name].stat().st_size
            entry.mode = 0o644
            with sources[name].open("rb") as stream:
                hashed = _HashedStream(stream, report, done=done, total=total)
                try:
                    archive.addfile(entry, hashed)
                except OSError as error:
                    if error.errno is not None:  # an error of the disk
                        raise
                    raise UsageError(f"{sources[name]}: became shorter while it was packed") from None
            done += entry.size
            files.append(PackedFile(name=name, size=entry.size, sha256=hashed.digest.hexdigest()))
    return parts.close(), files


def _digits_of_part_numbers(total: int, *, files: int, part_size: int) -> int:
    """Return the number of digits of a part's number in its name.

    Args:
        total: the bytes of all files.
        files: the number of files.
        part_size: the size of a part in bytes.
    """
    most_bytes = total + _MOST_OVERHEAD * (files + 5)  # 5 for the end of the archive
    most_parts = -(-most_bytes // part_size)
    return max(3, len(str(most_parts)))


class _Parts:
    """A stream that continues in the next file when a part is full.

    Args:
        folder: the folder of the parts.
        size: the bytes of a part; the last one may have fewer.
        digits: how many digits the number in the name of each has.
    """

    def __init__(self, folder: Path, size: int, *, digits: int) -> None:
        self._folder = folder
        self._size = size
        self._digits = digits
        self._parts: list[PackedFile] = []
        self._stream: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._written = 0

    def write(self, data: bytes) -> int:
        remaining = memoryview(data)
        while remaining:
            if self._stream is None:
                name = f"{ARCHIVE}.{len(self._parts) + 1:0{self._digits}}"
                self._stream = (self._folder / name).open("xb")
            piece = remaining[: self._size - self._written]
            self._stream.write(piece)
            self._digest.update(piece)
            self._written += len(piece)
            if self._written == self._size:
                self._end_part()
            remaining = remaining[len(piece) :]
        return len(data)

    def close(self) -> list[PackedFile]:
        """End the last part, and return all parts."""
        if self._stream is not None:
            self._end_part()
        return self._parts

    def _end_part(self) -> None:
        assert self._stream is not None
        self._stream.close()
        name = Path(self._stream.name).name
        self._parts.append(PackedFile(name=name, size=self._written, sha256=self._digest.hexdigest()))
        self._stream = None
        self._digest = hashlib.sha256()
        self._written = 0


class _HashedStream(io.RawIOBase):
    """A stream that computes its digest while it is read, and reports the bytes that are done.

    Args:
        stream: what is read.
        report: receives the progress.
        done: the bytes that were done before.
        total: the bytes of all files.
    """

    def __init__(self, stream: IO[bytes], report: Report, *, done: int, total: int) -> None:
        self._stream = stream
        self._report = report
        self._done = done
        self._total = total
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.digest.update(block)
        self._done += len(block)
        self._report(self._done, self._total)
        return block
