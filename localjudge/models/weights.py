"""Weights as they lie in a directory: which files they are, and what their headers say. No weight is read.

A safetensors file is eight bytes with the length of its header (little-endian), the header, a JSON object that
gives each tensor its type, shape and place, and then the tensors, one after the other without a gap.
(https://github.com/huggingface/safetensors#format)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

_LONGEST_HEADER = 100_000_000  # the format's own bound
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
_MOST_DIMENSIONS = 64  # of a tensor in PyTorch
_LFS = b"version https://git-lfs.github.com/spec/"
# How families name the matrix that token ids are looked up in.
_EMBEDDINGS = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight", "embed_in.weight",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a header gives it: its type by the format's name, its shape, and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class WeightIndex:
    """The index of weights in several files: the file of each tensor, and the bytes of all, where it says."""

    shards: Mapping[str, str]
    total_size: int | None


def is_lfs_pointer(file: Path) -> bool:
    """Whether the file is no more than Git LFS's note of where its content is."""
    if file.stat().st_size > 1024:
        return False
    with file.open("rb") as stream:
        return stream.read(len(_LFS)) == _LFS


def read_header(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name.

    Raises:
        ModelError: the header is not sound, or the file is not as long as it says; the message lacks the name.
        OSError: it cannot be read.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise ModelError(f"cut short: {size:,} bytes do not hold its header")
        if length > _LONGEST_HEADER:
            raise ModelError(f"not safetensors: a header of {length:,} bytes")
        try:
            header = json.loads(stream.read(length), object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"its header is broken: {error}") from None
    if not isinstance(header, dict):
        raise ModelError("its header is broken: no JSON object")
    header.pop("__metadata__", None)
    tensors: dict[str, Tensor] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        tensors[name], begin = _tensor(name, entry)
        places.append((begin, begin + tensors[name].size, name))
    reached = 0
    for begin, end, name in sorted(places):
        if begin != reached:
            raise ModelError(f"its header is broken: {name} begins at {begin:,}, and not at {reached:,}")
        reached = end
    held = size - 8 - length
    if held < reached:
        raise ModelError(f"cut short: its header asks for {reached:,} bytes of tensors, it holds {held:,}")
    if held > reached:
        raise ModelError(f"{held - reached:,} bytes follow the tensors that its header names")
    return tensors


def _tensor(name: str, entry: Any) -> tuple[Tensor, int]:
    """A tensor of the header, and where it begins."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"its header is broken: {name} lacks its type, shape or place") from None
    if dtype not in _BITS:
        raise ModelError(f"its header is broken: {name} is of no known type, {str(dtype)[:40]!r}")
    numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
    if len(numbers) > _MOST_DIMENSIONS or not all(
        type(number) is int and 0 <= number < 2**63 for number in numbers
    ):
        raise ModelError(f"its header is broken: the shape or place of {name} is no list of whole numbers")
    if math.prod(shape) * _BITS[dtype] != 8 * (end - begin):
        raise ModelError(f"its header is broken: {name} does not take {end - begin:,} bytes as {dtype} {shape}")
    return Tensor(dtype, tuple(shape), end - begin), begin


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def read_index(folder: Path) -> WeightIndex | None:
    """The index of a directory's weights; None where it has none.

    Raises:
        ModelError: it cannot be read.
    """
    file = folder / INDEX
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_bytes())
        shards, metadata = content["weight_map"], content.get("metadata") or {}
        total = metadata.get("total_size")
        total = int(total) if isinstance(total, int | float) else None
        whole = bool(shards) and all(isinstance(shard, str) for shard in shards.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"{INDEX}: cannot be read: {type(error).__name__}: {error}") from None
    if not whole or any(Path(shard).name != shard for shard in shards.values()):
        raise ModelError(f"{INDEX}: its weight_map does not name a file of this directory for each tensor")
    # Hidden files and other endings have no part in the model's digest, and others may be pickles.
    odd = [name for name in shards.values() if name.startswith(".") or not name.endswith(".safetensors")]
    if odd:
        raise ModelError(f"{INDEX}: names {odd[0]}; weights must be safetensors files that are not hidden")
    return WeightIndex(shards, total)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of the files that a directory's index names, or of its `model.safetensors`, by name.

    Raises:
        ModelError: a file is missing, damaged or not of the model, or a tensor is not where the index says.
    """
    index = read_index(folder)
    named = sorted(set(index.shards.values())) if index else [WHOLE]
    if missing := [shard for shard in named if not (folder / shard).is_file()]:
        raise ModelError(f"{INDEX if index else folder} asks for {missing[0]}: not there")
    if WHOLE not in named and (folder / WHOLE).is_file():
        raise ModelError(f"{WHOLE}: not named in {INDEX}, but an engine might load it; take one of them away")
    held: dict[str, dict[str, Tensor]] = {}
    for shard in named:
        try:
            held[shard] = read_header(folder / shard)
        except ModelError as error:
            raise ModelError(f"{shard}: {error}") from None
    if index and (faults := misplaced(index.shards, held)):
        raise ModelError(faults[0])
    return {name: tensor for tensors in held.values() for name, tensor in tensors.items()}


def weights_in(folder: Path) -> int | None:
    """Bytes of a directory's safetensors files; None without any.

    Where an index names the files, only those count: some repositories hold the weights a second time.

    Raises:
        ModelError: the index cannot be read, or names a file that is missing.
    """
    if index := read_index(folder):
        names = sorted(set(index.shards.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(
                f"{folder} lacks {missing[0]}, named in its index; {len(missing)} of {len(names)} are not there"
            )
        return sum((folder / name).stat().st_size for name in names)
    files = list(folder.glob("*.safetensors"))
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    return sum(file.stat().st_size for file in files) or None


def misplaced(shards: Mapping[str, str], held: Mapping[str, Mapping[str, Tensor]]) -> list[str]:
    """Tensors of several files that are not where the index says, in words."""
    absent = [
        f"{INDEX} names {name} in {shard}, where it is not"
        for name, shard in shards.items()
        if name not in held[shard]
    ]
    extra = [
        f"{shard} holds {name}, which {INDEX} does not put there"
        for shard, tensors in held.items()
        for name in tensors
        if shards.get(name) != shard
    ]
    return absent + extra


def embedding_rows(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The rows of each embedding of token ids that goes by one of its usual names."""
    return {
        name: tensor.shape[0] for name, tensor in tensors.items() if name.endswith(_EMBEDDINGS) and tensor.shape
    }
