"""The files of weights in a directory, and the tensors in their headers. No weight is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import ModelError

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_LFS = b"version https://git-lfs.github.com/spec/"


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
            entries = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (it is no dict)
            return {
                name: Tensor(entry.get_dtype(), tuple(entry.get_shape())) for name, entry in entries.items()
            }
    except SafetensorError as error:
        raise ModelError(f"damaged or cut short: {str(error)[:200]}") from None


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
    tensors: dict[str, Tensor] = {}
    for shard in named:
        try:
            held = read_header(folder / shard)
        except ModelError as error:
            raise ModelError(f"{shard}: {error}") from None
        if index and (fault := _misplaced(index, shard, held)):
            raise ModelError(fault)
        tensors |= held
    return tensors


def _misplaced(index: Mapping[str, str], shard: str, held: Mapping[str, Tensor]) -> str | None:
    """Return a phrase for a tensor that is not in the file that the index names; None if there is none."""
    named = {name for name, other in index.items() if other == shard}
    for name in sorted(named - held.keys()):
        return f"{INDEX} lists {name} in {shard}, which does not have it"
    for name in sorted(held.keys() - named):
        return f"{shard} has {name}, which {INDEX} does not list there"
    return None


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
