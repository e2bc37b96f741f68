"""A GGUF file: its metadata, and its tensors as float32.

Reads version 3 of the format, little-endian, with tensors of the types F32, Q8_0 and Q4_1. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Format of `struct` for each type of a number in the metadata."""
_STRING, _ARRAY = 8, 9

F32, Q4_1, Q8_0 = 0, 3, 8
_BLOCK = 32
"""Numbers in a quantized block: each has 4 or 8 bits, and the block has a scale."""
_BLOCKS = {
    Q4_1: np.dtype([("scale", "<f2"), ("lowest", "<f2"), ("pairs", "u1", _BLOCK // 2)]),
    Q8_0: np.dtype([("scale", "<f2"), ("numbers", "i1", _BLOCK)]),
}


class GgufFile:
    """The content of a GGUF file; tensors are read when they are asked for.

    Attributes:
        metadata: values by key, such as `llama.block_count`: numbers, texts and lists.
        names: names of the tensors, in the order of the file.

    Raises:
        ValueError: it is not a GGUF file of version 3.
    """

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, np.uint8, mode="r")
        self._place = 0
        if self._take(4) != b"GGUF" or self._number("I") != 3:
            raise ValueError(f"{path}: not a GGUF file of version 3")
        tensors, entries = self._number("Q"), self._number("Q")
        self.metadata = {self._string(): self._value(self._number("I")) for _ in range(entries)}
        self._tensors = {
            self._string(): (
                [self._number("Q") for _ in range(self._number("I"))],
                self._number("I"),
                self._number("Q"),
            )
            for _ in range(tensors)
        }
        self.names = tuple(self._tensors)
        alignment = self.metadata.get("general.alignment", 32)
        self._data = math.ceil(self._place / alignment) * alignment

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as float32; its shape is in the order of PyTorch, the innermost dimension last.

        Raises:
            KeyError: there is no such tensor.
            ValueError: its type is not one of F32, Q8_0 and Q4_1.
        """
        dimensions, kind, offset = self._tensors[name]
        count = math.prod(dimensions)
        begin = self._data + offset
        if kind == F32:
            numbers = np.frombuffer(self._bytes, "<f4", count, begin)
        elif kind in _BLOCKS:
            blocks = np.frombuffer(self._bytes, _BLOCKS[kind], count // _BLOCK, begin)
            numbers = _dequantized(blocks, kind)
        else:
            raise ValueError(f"tensor {name}: type {kind} is not supported")
        return numbers.reshape(dimensions[::-1])

    def _take(self, size: int) -> bytes:
        self._place += size
        return self._bytes[self._place - size : self._place].tobytes()

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))[0]

    def _string(self) -> str:
        return self._take(self._number("Q")).decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, length = self._number("I"), self._number("Q")
            return [self._value(element) for _ in range(length)]
        return self._number(_NUMBERS[kind])


def _dequantized(blocks: NDArray[Any], kind: int) -> NDArray[np.float32]:
    """Return the numbers of quantized blocks, (blocks, 32): number times scale, for Q4_1 plus the lowest."""
    scale = blocks["scale"].astype(np.float32)[:, None]
    if kind == Q8_0:
        return scale * blocks["numbers"].astype(np.float32)
    # The low bits of the bytes are the first half of the block, the high bits the second half.
    numbers = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32)
    return scale * numbers + blocks["lowest"].astype(np.float32)[:, None]
