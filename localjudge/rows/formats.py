"""The format of a file of rows: the one rule that says how it is read.

The suffix names the format, in any case; a text may be compressed, with `.gz`, `.bz2`, `.xz` or `.zst` after
the suffix. The content decides only what the suffix leaves open: the encoding of a text (`Utf8Stream`), the
delimiter of a CSV file (`csv_reader`), whether a JSON text is an array, JSON lines or a document of several
lines, whether `.txt` is JSON or CSV, and whether `.arrow` and `.feather` are a file or a stream of Arrow. A
folder is a dataset that `save_to_disk` of Hugging Face's datasets wrote. A `.json` that begins as Inspect
writes it is a log of Inspect, as a `.eval` is.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from localjudge.errors import RowError, UsageError
from localjudge.rows.csv_records import csv_reader
from localjudge.rows.inspect_records import is_inspect_log, read_inspect
from localjudge.rows.json_records import read_json_array, read_json_objects, read_jsonl
from localjudge.rows.json_values import parse_json
from localjudge.rows.record import DAMAGED, Record, lone_surrogate, unreadable_from_here
from localjudge.rows.table_records import STATE, dataset_files, read_arrow, read_parquet
from localjudge.system.requirements import require

Records = Iterator[tuple[int, Record]]
"""Records, each with its line; with its number, from 1, where the format has no lines."""


def _zstandard(name: str) -> BinaryIO:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(name, compression="zstd"))


STDIN, EXAMPLES = "-", "examples"
JSON_LINES = ".jsonl"
_LINES = (JSON_LINES, ".ndjson", ".jsonlines")
_INSTEAD: dict[Callable[..., Records], str] = {
    read_json_array: "an array of objects",
    read_json_objects: "objects of several lines",
}
_SAVED, _INSPECT = "saved dataset", "log of Inspect"
_TEXT = (*_LINES, ".json", ".traj", ".txt", ".csv", ".tsv")
_COMPRESSED: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstandard,
}
_LFS = b"version https://git-lfs.github.com/spec/"
_ARROW = (".parquet", ".arrow", ".feather")
_READERS: dict[str, Callable[[str, int], Iterator[Record]]] = {
    _INSPECT: read_inspect,
    ".parquet": read_parquet,
    **dict.fromkeys((_SAVED, ".arrow", ".feather"), read_arrow),
}
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_NOT_VALID = "localjudge.not-valid"
codecs.register_error(_NOT_VALID, lambda error: ("\udcff", getattr(error, "end", 0)))
_PIECE = 1 << 16
"""Bytes that are read at once; the first of a text decide how it is read."""


def check_file(name: str) -> tuple[str, bool]:
    """Check that a file, or a folder, is of a known format, by its suffix and its first bytes.

    Return in words what a text is instead of JSON lines, empty if nothing, and whether it begins as UTF-8.

    Raises:
        UsageError: the format is unknown or ambiguous, or the package that reads it is missing.
    """
    kind = _kind(name)
    if kind == _SAVED:
        dataset_files(name)
    is_file = Path(name).is_file()  # a pipe can be read only once
    if is_file and Path(name).stat().st_size < 1000 and Path(name).read_bytes().startswith(_LFS):
        raise UsageError(f"{name}: is a pointer of Git LFS, not the file itself; fetch it with: git lfs pull")
    if kind in _READERS or not is_file:
        return "", True
    with _open(name) as stream:
        head = Utf8Stream(stream).head
    instead = _INSTEAD.get(_text_reader(name, kind, head), "")
    text, _ = codecs.utf_8_decode(head, "surrogateescape")  # leaves an incomplete last character
    return instead if kind in _LINES else "", lone_surrogate(text) is None


def read_file(name: str, most_bytes: int) -> Records:
    """Yield the records of a file that `check_file` accepts.

    Args:
        name: the file or the folder; `-` is stdin, `examples` the included rows.
        most_bytes: size limit of a record; a larger one is skipped without being held in memory.

    Raises:
        UsageError: see `check_file`; if the file is a pipe, this is found here.
    """
    if (kind := _kind(name)) in _READERS:
        yield from _numbered(_READERS[kind](name, most_bytes))
        return
    number = 0
    with _open(name) as stream:
        text = Utf8Stream(stream)
        read = _text_reader(name, kind, text.head)
        try:
            for number, record in read(io.BufferedReader(text, _PIECE), most_bytes):
                yield number, record
        except DAMAGED as error:
            lines = 0 if read in _INSTEAD else text.lines
            yield max(number, lines) + 1, unreadable_from_here(error)


def _numbered(records: Iterable[Record]) -> Records:
    """Yield records with their numbers, from 1; a failure where an error of the library ends them."""
    number = 0
    try:
        for number, record in enumerate(records, 1):
            yield number, record
    except Exception as error:  # those of Arrow, and of what Inspect reads with, have no common class
        yield number + 1, unreadable_from_here(" ".join(str(error).split()))


def has_no_suffix(name: str) -> bool:
    """Return whether a name stands for standard input or for the included rows, which are JSON lines."""
    return name == STDIN or (name == EXAMPLES and not Path(name).exists())


def count_lines_of(files: Iterable[str]) -> int | None:
    """Return the number of lines of JSONL files; None if one is of another format, or can be read only once."""
    count = 0
    for name in files:
        if not name.endswith(JSON_LINES) or not Path(name).is_file():
            return None
        with Path(name).open("rb") as stream:
            pieces = iter(partial(stream.readline, _PIECE), b"")  # a line may be larger than the memory
            count += sum(len(piece) < _PIECE or piece.endswith(b"\n") for piece in pieces)
    return count


def sha256_of(name: str) -> str | None:
    """Return the SHA-256 of a file; None of a folder, or of an input that can be read only once."""
    if name == STDIN or (not has_no_suffix(name) and not Path(name).is_file()):
        return None
    digest = hashlib.sha256()
    with _bytes_of(name) as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def can_be_read_twice(name: str) -> bool:
    """Return whether an input exists and is neither standard input nor a pipe."""
    return name == EXAMPLES or (name != STDIN and (Path(name).is_file() or Path(name).is_dir()))


def needs_pyarrow(name: str) -> bool:
    """Return whether this file or folder is read by pyarrow."""
    return name.lower().endswith((*_ARROW, ".zst")) or os.path.isfile(os.path.join(name, STATE))


def input_extras(names: Iterable[str]) -> list[str]:
    """Return the extras of localjudge that are needed to read these files."""
    return ["parquet"] if any(map(needs_pyarrow, names)) else []


def bare_path(path: Path) -> Path:
    """Return the path of a file without the suffixes of its format and its compression; a folder has none."""
    bare = path if path.is_dir() else path.with_suffix("")
    return bare.with_suffix("") if path.suffix.lower() in _COMPRESSED else bare


def _kind(name: str) -> str:
    """Return the suffix that names the format, or `_SAVED`, or `_INSPECT`."""
    if has_no_suffix(name):
        return JSON_LINES
    if needs_pyarrow(name):
        require(name, "parquet")
    if Path(name).is_dir():
        return _folder(name)
    if is_inspect_log(name):
        require(name, "inspect")
        return _INSPECT
    bare = name.lower()
    packed = next(filter(bare.endswith, _COMPRESSED), "")
    known = _TEXT if packed else (*_TEXT, *_ARROW)
    if suffix := next(filter(bare.removesuffix(packed).endswith, known), None):
        return suffix
    raise UsageError(
        f"{name}: unknown format; use .jsonl, .json, .csv, .tsv (each also with .gz, .bz2, .xz or .zst), "
        ".parquet, .arrow, .feather, .eval, or a folder that datasets saved"
    )


def _folder(name: str) -> str:
    folder = Path(name)
    if (folder / STATE).is_file():
        return _SAVED
    if splits := sorted(str(each.parent) for each in folder.glob(f"*/{STATE}")):
        raise UsageError(f"{name}: has several splits; name the folder of one: {' or '.join(splits)}")
    raise UsageError(f"{name}: is a folder; name its files, such as {name.rstrip('/')}/*.jsonl")


def _bytes_of(name: str) -> BinaryIO:
    if has_no_suffix(name):
        return cast(BinaryIO, (files("localjudge") / "rows" / "examples.jsonl").open("rb"))
    return Path(name).open("rb")


def _open(name: str) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    packed = None if has_no_suffix(name) else _COMPRESSED.get(Path(name).suffix.lower())
    return cast(BinaryIO, packed(name)) if packed else _bytes_of(name)


def _text_reader(name: str, suffix: str, head: bytes) -> Callable[[io.BufferedReader, int], Records]:
    """Return the reader of a text that begins so.

    Raises:
        UsageError: the content is not of the format that the suffix names, or it is ambiguous.
    """
    begin = head.lstrip()
    if suffix in (".csv", ".tsv") or (suffix == ".txt" and begin[:1] not in (b"{", b"[", b"")):
        return csv_reader(name, head, is_whole=len(head) < _PIECE, usual="\t" if suffix == ".tsv" else ",")
    is_json = suffix in (".json", ".traj", ".txt")
    if begin[:1] == b"[" and (is_json or begin[1:].lstrip()[:1] == b"{"):
        return read_json_array
    if is_json and begin[:1] not in (b"{", b""):
        raise UsageError(f"{name}: is not an array of objects; write [{{…}}, {{…}}], or one object a line")
    line, end, more = begin.partition(b"\n")
    goes_on = bool(end) and line.rstrip()[-1:] in (b"{", b"[", b",") and more.lstrip()[:1] != b"{"
    is_line = bool(more.strip()) and not isinstance(parse_json(line, "line"), RowError)
    return read_json_objects if begin[:1] == b"{" and (is_json or goes_on) and not is_line else read_jsonl


class Utf8Stream(io.RawIOBase):
    """The bytes of a text in UTF-8, UTF-16 or UTF-32, as UTF-8 without a byte order mark.

    What is not valid UTF-8 stays so; what is not valid UTF-16 or UTF-32 becomes a byte that is not valid UTF-8.

    Args:
        stream: the bytes of the text.

    Attributes:
        head: the first bytes; fewer than `_PIECE` if the file ends or is damaged.
        lines: the number of ends of lines in the bytes that were read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._pieces, self._ahead, self.lines = _utf8_pieces(stream), b"", 0
        self._damage: Exception | None = None
        try:
            while len(self._ahead) < _PIECE and (piece := next(self._pieces, b"")):
                self._ahead += piece
        except DAMAGED as error:
            self._damage = error
        self.head = self._ahead[:_PIECE]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ahead and self._damage:
            raise self._damage
        self._ahead = self._ahead or next(self._pieces, b"")
        piece, self._ahead = self._ahead[: len(buffer)], self._ahead[len(buffer) :]
        self.lines += piece.count(b"\n")
        buffer[: len(piece)] = piece
        return len(piece)


def _utf8_pieces(stream: Any) -> Iterator[bytes]:
    """Yield the pieces of a text as UTF-8, none of them empty."""
    begin = stream.read(16)
    encoding = json.detect_encoding(begin)
    if not (encoding.startswith("utf-8") or begin.startswith(_MARKS)):
        text = begin.decode(encoding, "replace")  # detected by zero bytes, which may stand in a damaged file
        encoding = encoding if text.isascii() and "\0" not in text else "utf-8"
    pieces: Iterable[bytes] = chain(
        [begin.removeprefix(codecs.BOM_UTF8)], iter(lambda: stream.read1(_PIECE), b"")
    )
    if not encoding.startswith("utf-8"):
        texts = codecs.iterdecode(pieces, encoding, _NOT_VALID)
        pieces = (text.encode("utf-8", "surrogateescape") for text in texts)
    yield from filter(None, pieces)
