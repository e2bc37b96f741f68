"""The files of weights in a directory, and the tensors in their headers. No weight is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import ModelError

WHOLE = "model.safetensors"
"""The file of a model whose weights are in a single file."""
INDEX = "model.safetensors.index.json"
"""The file that says in which file each tensor is."""
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Suffixes of pickled weights."""
_LFS = b"version https://git-lfs.github.com/spec/"
"""The first bytes of a Git LFS pointer."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a header: its type by the format's name, and its shape."""

    dtype: str
    shape: tuple[int, ...]


def is_lfs_pointer(file: Path) -> bool:
    """Return whether the file is a Git LFS pointer instead of its content."""
    if file.stat().st_size > 1024:
        return False
    with file.open("rb") as stream:
        return stream.read(len(_LFS)) == _LFS


def read_header(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, by name, as the library of all engines reads them.

    Raises:
        ModelError: the header is invalid, or the file length does not match it; the message does not name the
            file.
        OSError: the file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            tensors: dict[str, Tensor] = {}
            for name in opened.keys():  # noqa: SIM118 (it is no dict)
                entry = opened.get_slice(name)
                tensors[name] = Tensor(entry.get_dtype(), tuple(entry.get_shape()))
    except SafetensorError as error:
        raise ModelError(f"damaged or cut short: {str(error)[:200]}") from None
    return tensors


def read_index(folder: Path) -> dict[str, str] | None:
    """Return the file of each tensor by a directory's index of weights; None if it has none.

    Raises:
        ModelError: it cannot be read.
    """
    file = folder / INDEX
    if not file.is_file():
        return None
    try:
        shard_of: dict[str, str] = json.loads(file.read_bytes())["weight_map"]
        are_names = bool(shard_of) and all(Path(shard).name == shard for shard in shard_of.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{INDEX}: cannot be read: {type(error).__name__}: {error}") from None
    if not are_names:
        raise ModelError(f"{INDEX}: its weight_map must name a file of this directory for each tensor")
    # Hidden files and other suffixes have no part in the model's digest, and others may be pickles.
    for shard in shard_of.values():
        if shard.startswith(".") or not shard.endswith(".safetensors"):
            raise ModelError(f"{INDEX}: names {shard}; weights must be safetensors files that are not hidden")
    return shard_of


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the files in a directory's index, or of its `model.safetensors`, by name.

    Raises:
        ModelError: a file is missing, damaged or not part of the model, or a tensor is in another file than the
            index says.
    """
    shard_of = read_index(folder)
    _check_shards(folder, shard_of)
    if shard_of is None:
        return _read_shard(folder, WHOLE)
    tensors: dict[str, Tensor] = {}
    for shard in _shards(shard_of):
        shard_tensors = _read_shard(folder, shard)
        _check_places(shard_of, shard, shard_tensors)
        tensors |= shard_tensors
    return tensors


def _shards(shard_of: Mapping[str, str]) -> list[str]:
    """Return the files that an index names."""
    return sorted(set(shard_of.values()))


def _check_shards(folder: Path, shard_of: Mapping[str, str] | None) -> None:
    """Check that the files of weights are there, and that no other file could be read instead.

    Raises:
        ModelError: a file is missing or not part of the model.
    """
    if shard_of is None:
        if not (folder / WHOLE).is_file():
            raise ModelError(f"{folder} needs {WHOLE}: missing")
        return
    shards = _shards(shard_of)
    for shard in shards:
        if not (folder / shard).is_file():
            raise ModelError(f"{INDEX} needs {shard}: missing")
    if WHOLE not in shards and (folder / WHOLE).is_file():
        raise ModelError(f"{WHOLE}: not named in {INDEX}, but an engine might load it; remove one of them")


def _read_shard(folder: Path, shard: str) -> dict[str, Tensor]:
    """Return the tensors of a file, whose name stands in the error."""
    try:
        return read_header(folder / shard)
    except ModelError as error:
        raise ModelError(f"{shard}: {error}") from None


def _check_places(shard_of: Mapping[str, str], shard: str, tensors: Mapping[str, Tensor]) -> None:
    """Check that a file has the tensors for which the index names it, and no others.

    Raises:
        ModelError: it lacks one, or has another one.
    """
    indexed = {name for name, indexed_shard in shard_of.items() if indexed_shard == shard}
    missing = sorted(indexed - tensors.keys())
    if missing:
        raise ModelError(f"{INDEX} lists {missing[0]} in {shard}, which does not have it")
    unexpected = sorted(tensors.keys() - indexed)
    if unexpected:
        raise ModelError(f"{shard} has {unexpected[0]}, which {INDEX} does not list there")


def weights_in(folder: Path) -> int | None:
    """Return the bytes of a directory's safetensors files; None without any.

    If there is an index, only its files count: some repositories include a second copy of the weights.

    Raises:
        ModelError: the index cannot be read, or names a file that is missing.
    """
    shard_of = read_index(folder)
    if shard_of is not None:
        return _indexed_bytes(folder, _shards(shard_of))
    files = list(folder.glob("*.safetensors"))
    # The second copy of such a repository is in "consolidated" files.
    first_copy = [file for file in files if not file.name.startswith("consolidated")]
    if first_copy:
        files = first_copy
    size = sum(file.stat().st_size for file in files)
    return size if size > 0 else None


def _indexed_bytes(folder: Path, shards: list[str]) -> int:
    """Return the bytes of the files that an index names.

    Raises:
        ModelError: one is missing.
    """
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {missing[0]} of its index; {len(missing)} of {len(shards)} files are missing"
        )
    return sum((folder / shard).stat().st_size for shard in shards)
