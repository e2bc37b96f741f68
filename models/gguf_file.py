"""The content of a GGUF file whose digest is known: its metadata, and its tensors as float32.

A GGUF file consists of the bytes `GGUF`, the version, the numbers of tensors and of metadata, the metadata
(key, type, value), for each tensor its name, dimensions (innermost first), type and offset, and the tensors,
each aligned. All numbers are little-endian. (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 32
"""Numbers in a quantized block: each has 4 or 8 bits, and the block has a scale."""
_BLOCKS = {
    3: np.dtype([("scale", "<f2"), ("lowest", "<f2"), ("pairs", "u1", _BLOCK // 2)]),  # Q4_1
    8: np.dtype([("scale", "<f2"), ("numbers", "i1", _BLOCK)]),  # Q8_0
}
_FLOAT32, _STRING, _ARRAY = 0, 8, 9
_ALIGNMENT = 32
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Format of `struct` for each type of a number in the metadata."""


class GgufFile:
    """The content of a GGUF file; tensors are read when they are asked for.

    Nothing is checked: the caller knows the digest of the file.

    Attributes:
        metadata: values by key, such as `llama.block_count`: numbers, texts and lists.
        names: names of the tensors, in the order of the file.
    """

    def __init__(self, path: Path) -> None:
        self._bytes = path.read_bytes()
        self._place = 8  # behind `GGUF` and the version
        count, entries = self._number("Q"), self._number("Q")
        self.metadata: dict[str, Any] = {self._text(): self._value(self._number("I")) for _ in range(entries)}
        self._tensors = {self._text(): self._tensor() for _ in range(count)}
        self._begin = math.ceil(self._place / _ALIGNMENT) * _ALIGNMENT
        self.names = tuple(self._tensors)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as float32; its shape is in the order of PyTorch, the innermost dimension last.

        Raises:
            KeyError: there is no such tensor, or its type is not one of F32, Q8_0 and Q4_1.
        """
        shape, kind, offset = self._tensors[name]
        begin, count = self._begin + offset, math.prod(shape)
        if kind == _FLOAT32:
            return np.frombuffer(self._bytes, "<f4", count, begin).reshape(shape)
        return _dequantized(np.frombuffer(self._bytes, _BLOCKS[kind], count // _BLOCK, begin)).reshape(shape)

    def _tensor(self) -> tuple[tuple[int, ...], int, int]:
        """Return the shape of a tensor, its type, and its first byte after the header."""
        shape = tuple(self._number("Q") for _ in range(self._number("I")))[::-1]
        return shape, self._number("I"), self._number("Q")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(_NUMBERS[kind])
        element, length = self._number("I"), self._number("Q")
        return [self._value(element) for _ in range(length)]

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(f"<{form}", self._bytes, self._place)
        self._place += struct.calcsize(f"<{form}")
        return number

    def _text(self) -> str:
        length = self._number("Q")
        self._place += length
        return self._bytes[self._place - length : self._place].decode()


def _dequantized(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """Return the numbers of quantized blocks, (blocks, 32): number times scale, for Q4_1 plus the lowest."""
    scale = blocks["scale"].astype(np.float32)[:, None]
    if "numbers" in blocks.dtype.names:
        return scale * blocks["numbers"].astype(np.float32)
    # The low bits of the bytes are the first half of the block, the high bits the second half.
    numbers = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32)
    return scale * numbers + blocks["lowest"].astype(np.float32)[:, None]
