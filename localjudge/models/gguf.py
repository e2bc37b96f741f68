"""A model in a GGUF file: its header, and its configuration and tokenizer as transformers reads its metadata.

No weight is read for the header. A GGUF file consists of the bytes `GGUF`, the version, the numbers of tensors
and of metadata, the metadata (key, type, value), for each tensor its name, dimensions (innermost first), type
and offset, and the tensors, each aligned. All numbers are little-endian.
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)

The package gguf names the types, but does not read the header: it does not check that counts and offsets lie
within the file.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.weights import Tensor

GGUF = ".gguf"
"""The suffix of a GGUF file."""

_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Format of `struct` for each type of a number in the metadata."""
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4  # of a tensor in ggml
_MOST_VALUES = 2**24  # of a list in the metadata; a vocabulary is the longest
_PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a GGUF file.

    Attributes:
        version: of the format, 2 or 3.
        metadata: values by key, such as `llama.block_count`: numbers, texts and lists.
        tensors: the tensors by name; shapes are in the order of PyTorch, the innermost dimension last.
        offsets: the first byte of each tensor in the file.
    """

    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    offsets: Mapping[str, int]

    @property
    def architecture(self) -> str:
        """The model's family, by llama.cpp's name."""
        return str(self.metadata["general.architecture"])

    @property
    def dtype(self) -> str:
        """The type of the weights of the model in memory: the file's own, or bfloat16 if they are quantized."""
        kinds = {tensor.dtype for tensor in self.tensors.values() if len(tensor.shape) > 1}
        return _PLAIN[kinds.pop()] if len(kinds) == 1 and kinds <= _PLAIN.keys() else "bfloat16"


def read_gguf(file: Path) -> GgufHeader:
    """Return the header of a GGUF file.

    Raises:
        ModelError: the header is invalid, or the file is shorter than its tensors; the message does not name
            the file.
        OSError: the file cannot be read.
    """
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ModelError("not a GGUF file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                return _HeaderReader(content).header()
            except struct.error:
                raise ModelError(f"cut short: its header goes on after {len(content):,} bytes") from None
            except UnicodeDecodeError:
                raise ModelError("its header is broken: a text is not UTF-8") from None


class _HeaderReader:
    """Reads the content of a file from its beginning."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._place = 4

    def header(self) -> GgufHeader:
        version = self._number("I")
        if version not in _VERSIONS:
            raise ModelError(f"GGUF of version {version} is not supported; give a file of version 2 or 3")
        count, entries = self._count(), self._count()
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._text()
            if key in metadata:
                raise ModelError(f"its header is broken: {key[:80]} occurs twice")
            metadata[key] = self._value(self._number("I"))
        tensors: dict[str, Tensor] = {}
        places: list[tuple[int, int, str]] = []
        for _ in range(count):
            name = self._text()
            if name in tensors:
                raise ModelError(f"its header is broken: the tensor {name[:80]} occurs twice")
            tensors[name], offset, size = self._tensor(name)
            places.append((offset, size, name))
        if not isinstance(metadata.get("general.architecture"), str):
            raise ModelError("its header is broken: it names no general.architecture")
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise ModelError(f"its header is broken: general.alignment is {str(alignment)[:40]}")
        begin = math.ceil(self._place / alignment) * alignment
        reached = begin
        for offset, size, name in sorted(places):
            if begin + offset < reached:
                raise ModelError(f"its header is broken: {name} begins within another tensor")
            reached = begin + offset + size
        if reached > len(self._content):
            raise ModelError(
                f"cut short: its tensors end at byte {reached:,}, the file has {len(self._content):,}"
            )
        offsets = {name: begin + offset for offset, _, name in places}
        return GgufHeader(version, metadata, tensors, offsets)

    def _tensor(self, name: str) -> tuple[Tensor, int, int]:
        """Return a tensor, its first byte after the header, and its size in bytes."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        dimensions = self._number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise ModelError(f"its header is broken: {name[:80]} has {dimensions:,} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        kind, offset = self._number("I"), self._number("Q")
        try:
            named = GGMLQuantizationType(kind)
        except ValueError:
            raise ModelError(f"{name[:80]} has the unknown type {kind}") from None
        numbers, size = GGML_QUANT_SIZES[named]
        if (shape or (1,))[-1] % numbers:
            raise ModelError(
                f"its header is broken: {name[:80]} has rows that are not whole blocks of {named.name}"
            )
        return Tensor(named.name, shape), offset, math.prod(shape) // numbers * size

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(self._form(kind))
        element, length = self._number("I"), self._count()
        if length > _MOST_VALUES:
            raise ModelError(f"its header is broken: a list of {length:,} values")
        if element == _STRING:
            return [self._text() for _ in range(length)]
        form = f"<{length}{self._form(element)}"
        values = struct.unpack_from(form, self._content, self._place)
        self._place += struct.calcsize(form)
        return list(values)

    def _form(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise ModelError(f"its header is broken: metadata of the unknown type {kind}")
        return _NUMBERS[kind]

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(f"<{form}", self._content, self._place)
        self._place += struct.calcsize(f"<{form}")
        return number

    def _count(self) -> int:
        """Return a number of things, each of which takes at least one byte of the rest of the file."""
        count: int = self._number("Q")
        if count > len(self._content) - self._place:
            raise ModelError(f"cut short, or its header is broken: {count:,} entries do not fit the file")
        return count

    def _text(self) -> str:
        length = self._count()
        self._place += length
        return self._content[self._place - length : self._place].decode()


LINKED = f"model{GGUF}"
"""The name of the file in the directory that `alone` yields."""


def gguf_file(path: Path) -> Path | None:
    """Return the GGUF file that a model's path names; None if the path names no GGUF file.

    It is the file itself, or the only one in a directory that has no other weights.

    Raises:
        ModelError: the directory has several.
    """
    if path.is_file():
        return path.parent.resolve() / path.name if _has_suffix(path) else None
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    files = sorted(file for file in path.iterdir() if _has_suffix(file))
    if len(files) > 1:
        named = ", ".join(file.name for file in files[:4])
        raise ModelError(
            f"model {path}: has {len(files)} GGUF files ({named} …); give one of them as the model"
        )
    return path.resolve() / files[0].name if files else None


def is_gguf(name: str | None) -> bool:
    """Return whether a model's name is that of a GGUF file, or of a directory with only one."""
    return name is not None and gguf_file(Path(os.path.expanduser(name))) is not None


@contextmanager
def alone(file: Path) -> Iterator[Path]:
    """Yield a directory with only a link to a GGUF file, named `LINKED`.

    transformers would also read other files beside it, such as a chat template, which the model's digest does
    not cover.
    """
    with TemporaryDirectory(prefix="localjudge-") as scratch:
        Path(scratch, LINKED).symlink_to(file)
        yield Path(scratch)


def read_configuration(file: Path, header: GgufHeader) -> Any:
    """Return the configuration that transformers derives from the metadata; its `dtype` is the header's.

    Any error of the library is passed on.
    """
    from transformers import AutoConfig

    with alone(file) as folder:
        found = AutoConfig.from_pretrained(
            folder, gguf_file=LINKED, local_files_only=True, trust_remote_code=False
        )
    found.dtype = header.dtype
    return found


def read_tokenizer(file: Path) -> Any:
    """Return the tokenizer that transformers builds from the metadata.

    Any error of the library is passed on.
    """
    from transformers import AutoTokenizer

    with alone(file) as folder:
        return AutoTokenizer.from_pretrained(
            folder, gguf_file=LINKED, local_files_only=True, trust_remote_code=False, mistral_format=False
        )


def unknown_split(header: GgufHeader) -> str | None:
    """Return the rule by which a byte-level tokenizer splits text into words, if transformers does not know it.

    transformers then splits as GPT-2 does, which can give other tokens for digits and signs.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    named = str(header.metadata.get("tokenizer.ggml.pre", "gpt-2"))
    known = header.metadata.get("tokenizer.ggml.model") != "gpt2" or named in GGUF_PRE_TOKENIZER_SPLITS
    return None if known or named == "gpt-2" else named


def ignored_scaling(header: GgufHeader, configuration: Any) -> str | None:
    """Return the metadata's scaling of rotary embeddings, if the configuration lacks it."""
    named = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    rope = getattr(configuration.get_text_config(), "rope_parameters", None) or {}
    return str(named) if named != "none" and rope.get("rope_type", "default") == "default" else None


def _has_suffix(path: Path) -> bool:
    return path.name.lower().endswith(GGUF)
