"""The files of weights in a directory, and their headers. No weight is read.

A safetensors file consists of eight bytes with the length of its header (little-endian), the header, a JSON
object with the type, shape and offsets of each tensor, and the tensors, without gaps.
(https://github.com/huggingface/safetensors#format)

The library safetensors is not used for the header: it gives the same error for a truncated file and for a file
with extra bytes, and accepts duplicate names and tensors of any number of dimensions. A test checks that the
library reads each file that is accepted here in the same way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

_LONGEST_HEADER = 100_000_000  # the limit of the format
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
_MOST_DIMENSIONS = 64  # of a tensor in PyTorch
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a header: its type by the format's name, its shape, and its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


def is_lfs_pointer(file: Path) -> bool:
    """Return whether the file is a Git LFS pointer instead of its content."""
    if file.stat().st_size > 1024:
        return False
    with file.open("rb") as stream:
        return stream.read(len(_LFS)) == _LFS


def read_header(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, by name.

    Raises:
        ModelError: the header is invalid, or the file length does not match it; the message does not name the
            file.
        OSError: the file cannot be read.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise ModelError(f"cut short: {size:,} bytes are fewer than its header has")
        if length > _LONGEST_HEADER:
            raise ModelError(f"not safetensors: a header of {length:,} bytes")
        try:
            header = json.loads(stream.read(length).decode(), object_pairs_hook=_checked)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"its header is broken: {error}") from None
    if not isinstance(header, dict):
        raise ModelError("its header is broken: not a JSON object")
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (isinstance(metadata, dict) and all(map(_is_text, metadata.values()))):
        raise ModelError("its header is broken: its metadata must map names to texts")
    tensors: dict[str, Tensor] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        tensors[name], begin = _tensor(name, entry)
        places.append((begin, begin + tensors[name].size, name))
    reached = 0
    for begin, end, name in sorted(places):
        if begin != reached:
            raise ModelError(f"its header is broken: {name} begins at {begin:,} instead of {reached:,}")
        reached = end
    held = size - 8 - length
    if held < reached:
        raise ModelError(f"cut short: its header requires {reached:,} bytes of tensors, it has {held:,}")
    if held > reached:
        raise ModelError(f"{held - reached:,} bytes follow the last tensor of its header")
    return tensors


def _tensor(name: str, entry: Any) -> tuple[Tensor, int]:
    """Return a tensor of the header, and its first byte."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"its header is broken: {name} has no type, shape or offsets") from None
    if dtype not in _BITS:
        raise ModelError(f"its header is broken: {name} has the unknown type {str(dtype)[:40]!r}")
    numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
    if len(numbers) > _MOST_DIMENSIONS or not all(
        type(number) is int and 0 <= number < 2**63 for number in numbers
    ):
        raise ModelError(
            f"its header is broken: the shape or offsets of {name} are not a list of whole numbers"
        )
    if math.prod(shape) * _BITS[dtype] != 8 * (end - begin):
        raise ModelError(f"its header is broken: {name} does not take {end - begin:,} bytes as {dtype} {shape}")
    return Tensor(dtype, tuple(shape), end - begin), begin


def _checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse content that other JSON readers refuse or read differently."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    for text in filter(_is_text, chain.from_iterable(pairs)):
        text.encode()  # half of a surrogate pair cannot be encoded
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def read_index(folder: Path) -> dict[str, str] | None:
    """Return the file of each tensor by a directory's index of weights; None if it has none.

    Raises:
        ModelError: it cannot be read.
    """
    file = folder / INDEX
    if not file.is_file():
        return None
    try:
        shards: dict[str, str] = json.loads(file.read_bytes())["weight_map"]
        whole = bool(shards) and all(Path(shard).name == shard for shard in shards.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{INDEX}: cannot be read: {type(error).__name__}: {error}") from None
    if not whole:
        raise ModelError(f"{INDEX}: its weight_map must name a file of this directory for each tensor")
    # Hidden files and other suffixes have no part in the model's digest, and others may be pickles.
    odd = [name for name in shards.values() if name.startswith(".") or not name.endswith(".safetensors")]
    if odd:
        raise ModelError(f"{INDEX}: names {odd[0]}; weights must be safetensors files that are not hidden")
    return shards


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the files in a directory's index, or of its `model.safetensors`, by name.

    Raises:
        ModelError: a file is missing, damaged or not part of the model, or a tensor is in another file than the
            index says.
    """
    index = read_index(folder)
    named = sorted(set(index.values())) if index else [WHOLE]
    if missing := [shard for shard in named if not (folder / shard).is_file()]:
        raise ModelError(f"{INDEX if index else folder} needs {missing[0]}: missing")
    if WHOLE not in named and (folder / WHOLE).is_file():
        raise ModelError(f"{WHOLE}: not named in {INDEX}, but an engine might load it; remove one of them")
    held: dict[str, dict[str, Tensor]] = {}
    for shard in named:
        try:
            held[shard] = read_header(folder / shard)
        except ModelError as error:
            raise ModelError(f"{shard}: {error}") from None
    if index and (faults := _misplaced(index, held)):
        raise ModelError(faults[0])
    return {name: tensor for tensors in held.values() for name, tensor in tensors.items()}


def weights_in(folder: Path) -> int | None:
    """Return the bytes of a directory's safetensors files; None without any.

    If there is an index, only its files count: some repositories include a second copy of the weights.

    Raises:
        ModelError: the index cannot be read, or names a file that is missing.
    """
    if index := read_index(folder):
        names = sorted(set(index.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(
                f"{folder} lacks {missing[0]} of its index; {len(missing)} of {len(names)} files are missing"
            )
        return sum((folder / name).stat().st_size for name in names)
    files = list(folder.glob("*.safetensors"))
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    return sum(file.stat().st_size for file in files) or None


def _misplaced(shards: Mapping[str, str], held: Mapping[str, Mapping[str, Tensor]]) -> list[str]:
    """Return phrases for tensors that are not in the file that the index names."""
    absent = [
        f"{INDEX} lists {name} in {shard}, which does not have it"
        for name, shard in shards.items()
        if name not in held[shard]
    ]
    extra = [
        f"{shard} has {name}, which {INDEX} does not list there"
        for shard, tensors in held.items()
        for name in tensors
        if shards.get(name) != shard
    ]
    return absent + extra
