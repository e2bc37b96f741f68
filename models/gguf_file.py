"""The tensors of a GGUF file as float32, of the types F32, Q8_0 and Q4_1."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.models.gguf import read_gguf

_BLOCK = 32
"""Numbers in a quantized block: each has 4 or 8 bits, and the block has a scale."""
_BLOCKS = {
    "Q4_1": np.dtype([("scale", "<f2"), ("lowest", "<f2"), ("pairs", "u1", _BLOCK // 2)]),
    "Q8_0": np.dtype([("scale", "<f2"), ("numbers", "i1", _BLOCK)]),
}


class GgufFile:
    """The content of a GGUF file; tensors are read when they are asked for.

    Attributes:
        metadata: values by key, such as `llama.block_count`: numbers, texts and lists.
        names: names of the tensors, in the order of the file.

    Raises:
        ModelError: it is not a GGUF file, or it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._header = read_gguf(path)
        self._bytes = np.memmap(path, np.uint8, mode="r")
        self.metadata = self._header.metadata
        self.names = tuple(self._header.tensors)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as float32; its shape is in the order of PyTorch, the innermost dimension last.

        Raises:
            KeyError: there is no such tensor.
            ValueError: its type is not one of F32, Q8_0 and Q4_1.
        """
        tensor, begin = self._header.tensors[name], self._header.offsets[name]
        count = math.prod(tensor.shape)
        if tensor.dtype == "F32":
            numbers = np.frombuffer(self._bytes, "<f4", count, begin)
        elif tensor.dtype in _BLOCKS:
            blocks = np.frombuffer(self._bytes, _BLOCKS[tensor.dtype], count // _BLOCK, begin)
            numbers = _dequantized(blocks)
        else:
            raise ValueError(f"tensor {name}: type {tensor.dtype} is not supported")
        return numbers.reshape(tensor.shape)


def _dequantized(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """Return the numbers of quantized blocks, (blocks, 32): number times scale, for Q4_1 plus the lowest."""
    scale = blocks["scale"].astype(np.float32)[:, None]
    if "numbers" in blocks.dtype.names:
        return scale * blocks["numbers"].astype(np.float32)
    # The low bits of the bytes are the first half of the block, the high bits the second half.
    numbers = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32)
    return scale * numbers + blocks["lowest"].astype(np.float32)[:, None]
