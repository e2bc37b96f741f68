"""The format of a file of rows: the one rule that says how it is read.

The suffix names the format; a text may be compressed, with `.gz` after the suffix. The content decides only
what the suffix leaves open: the encoding of a text (`text_encoding`), the delimiter of a CSV file
(`find_delimiter`), whether a `.json` file holds an array or JSON lines, and whether `.arrow` and `.feather` are
a file or a stream of Arrow. A folder is a dataset that `save_to_disk` of Hugging Face's datasets wrote. A
`.json` that begins as Inspect writes it is a log of Inspect, as a `.eval` is.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from localjudge.errors import RowError, UsageError
from localjudge.rows.arrow_records import STATE, dataset_files, read_arrow, read_parquet, read_saved_dataset
from localjudge.rows.csv_records import find_delimiter, read_csv
from localjudge.rows.inspect_records import is_inspect_log, read_inspect
from localjudge.rows.json_records import parse_json, read_json_array, read_jsonl
from localjudge.rows.record import Record
from localjudge.rows.text_encoding import Utf8Stream
from localjudge.system.requirements import require

Records = Iterator[tuple[int, Record]]
"""Records, each with its line; with its number, from 1, where the format has no lines."""

JSON_LINES = ".jsonl"
_SAVED, _INSPECT = "saved dataset", "log of Inspect"
_TEXT = (JSON_LINES, ".ndjson", ".json", ".csv", ".tsv")
_ARROW: dict[str, Callable[[str, int], Records]] = {
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
}
_HEAD = 1 << 16
"""Bytes of a text that decide how it is read."""


def check_file(name: str) -> None:
    """Check that a file, or a folder, is of a known format, by its suffix and its first bytes.

    Raises:
        UsageError: the format is unknown or ambiguous, or the package that reads it is missing.
    """
    kind = _kind(name)
    if kind == _SAVED:
        dataset_files(name)
    elif kind in _TEXT and Path(name).is_file():  # a pipe can be read only once
        with _open(name) as stream:
            _reader(name, kind, Utf8Stream(stream, name))


def read_file(name: str, most_bytes: int) -> Records:
    """Yield the records of a file that `check_file` accepts.

    Args:
        name: the file or the folder.
        most_bytes: size limit of a record; a larger one is skipped without being held in memory.

    Raises:
        UsageError: see `check_file`; if the file is a pipe, this is found here.
    """
    kind = _kind(name)
    if kind == _SAVED:
        yield from read_saved_dataset(name, most_bytes)
    elif kind == _INSPECT:
        yield from read_inspect(name, most_bytes)
    elif kind in _ARROW:
        yield from _ARROW[kind](name, most_bytes)
    else:
        yield from read_text(_open(name), name, kind, most_bytes)


def read_text(stream: BinaryIO, name: str, suffix: str, most_bytes: int) -> Records:
    """Yield the records of a text, as `read_file` does.

    Args:
        stream: the bytes of the text; it is closed.
        name: its name in messages.
        suffix: the suffix that names the format.
        most_bytes: size limit of a record.
    """
    with stream:
        text = Utf8Stream(stream, name)
        read = _reader(name, suffix, text)
        yield from read(io.BufferedReader(text, _HEAD), most_bytes)


def needs_pyarrow(name: str) -> bool:
    """Return whether this file or folder is read by pyarrow."""
    return name.endswith(tuple(_ARROW)) or Path(name, STATE).is_file()


def _kind(name: str) -> str:
    """Return the suffix that names the format, or `_SAVED`, or `_INSPECT`."""
    if needs_pyarrow(name):
        require(name, "parquet")
    if Path(name).is_dir():
        return _folder(name)
    if is_inspect_log(name):
        require(name, "inspect")
        return _INSPECT
    if suffix := next((each for each in _TEXT if name.removesuffix(".gz").endswith(each)), None):
        return suffix
    if suffix := next((each for each in _ARROW if name.endswith(each)), None):
        return suffix
    raise UsageError(
        f"{name}: unknown format; use .jsonl, .json, .csv, .tsv (each also with .gz), .parquet, .arrow, "
        ".feather, .eval, or a folder that datasets saved"
    )


def _folder(name: str) -> str:
    folder = Path(name)
    if (folder / STATE).is_file():
        return _SAVED
    if splits := sorted(str(each.parent) for each in folder.glob(f"*/{STATE}")):
        raise UsageError(f"{name}: has several splits; name the folder of one: {' or '.join(splits)}")
    raise UsageError(f"{name}: is a folder; name its files, such as {name.rstrip('/')}/*.jsonl")


def _open(name: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(name) if name.endswith(".gz") else Path(name).open("rb"))


def _reader(name: str, suffix: str, text: Utf8Stream) -> Callable[[io.BufferedReader, int], Records]:
    """Return the reader of a text.

    Raises:
        UsageError: the content is not of the format that the suffix names, or it is ambiguous.
    """
    if suffix == ".json":
        return read_json_array if _is_array(name, text.head(_HEAD)) else read_jsonl
    if suffix in (".csv", ".tsv"):
        head = text.head(_HEAD)
        delimiter = find_delimiter(name, head, len(head) < _HEAD, "\t" if suffix == ".tsv" else ",")
        return partial(read_csv, delimiter=delimiter)
    return read_jsonl


def _is_array(name: str, head: bytes) -> bool:
    """Return whether a JSON text is an array; False if it is JSON lines."""
    begin = head.lstrip()
    line, end, _ = begin.partition(b"\n")
    if begin[:1] == b"[" or not begin:
        return bool(begin)
    if begin[:1] != b"{" or (end and isinstance(parse_json(line, "line"), RowError)):
        raise UsageError(f"{name}: is not an array of objects; write [{{…}}, {{…}}], or one object a line")
    return False
