"""What the tensors of a model's files take: as they are stored, as vLLM holds them, and unpacked.

Only the headers of the files are read: the type and the shape of each tensor. So the numbers are those of the
files, whether the weights are quantised, and whether anyone knows the model.

vLLM keeps quantised weights packed, and transformers unpacks them on a CPU. Numbers of 4 bits are packed in
bytes (MXFP4, NVFP4, bitsandbytes) or in integers of 32 bits (AWQ, GPTQ, compressed-tensors). Their scales, zero
points and indices are no weights.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import ModelError
from localjudge.models.dimensions import ModelDimensions
from localjudge.models.weights import Tensor, read_tensors

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""The bits of a number of each type of the format (safetensors, `Dtype::bitsize`)."""
_WIDE_FLOATS = ("F32", "F64")
_PACKED = ("I32", "U8")
_USUAL_BITS = 4
"""Bits of a packed weight whose configuration does not say them: MXFP4, NVFP4, the 4 bits of bitsandbytes."""
_QUANTIZATION_DATA = re.compile(r"scale|zero|absmax|quant_map|quant_state|bitsandbytes|g_idx|SCB|weight_shape")
"""In the last part of a tensor's name: it belongs to quantised weights and is no weight."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Bytes of all tensors of a model.

    Attributes:
        types: by type, with the name of the format, the largest first.
        loaded: as vLLM holds them.
        unpacked: in the model's dtype.
    """

    types: Mapping[str, int]
    loaded: int
    unpacked: int

    @property
    def stored(self) -> int:
        """Bytes as they are stored."""
        return sum(self.types.values())


def read_stored_weights(folder: Path, dimensions: ModelDimensions) -> StoredWeights:
    """Return what the weights in a directory take.

    Raises:
        ModelError: there are none, a file is missing or damaged, or a type is unknown.
    """
    return stored_weights(read_tensors(folder), dimensions)


def stored_weights(tensors: Mapping[str, Tensor], dimensions: ModelDimensions) -> StoredWeights:
    """Return what these tensors take in a model of these dimensions.

    Raises:
        ModelError: the type of a tensor is unknown.
    """
    types: Counter[str] = Counter()
    loaded = 0
    unpacked = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in BITS:
            raise ModelError(f"{name}: has the unknown type {tensor.dtype}; known are {', '.join(BITS)}")
        stored = math.prod(tensor.shape) * BITS[tensor.dtype] // 8
        types[tensor.dtype] += stored
        if dimensions.quantization is None:
            loaded += _loaded_plain(tensor, stored)
            unpacked += _unpacked_plain(tensor, stored, dimensions)
        else:
            loaded += stored
            unpacked += _unpacked_quantized(name, tensor, dimensions)
    return StoredWeights(dict(types.most_common()), loaded=loaded, unpacked=unpacked)


def _loaded_plain(tensor: Tensor, stored: int) -> int:
    """Return the bytes in vLLM of a tensor that is not quantised: it holds float32 in 16 bits."""
    if tensor.dtype in _WIDE_FLOATS:
        return math.prod(tensor.shape) * 2
    return stored


def _unpacked_plain(tensor: Tensor, stored: int, dimensions: ModelDimensions) -> int:
    """Return the bytes in transformers of a tensor of a model that is not quantised."""
    if BITS[tensor.dtype] < 16:
        return math.prod(tensor.shape) * dimensions.element
    return stored


def _unpacked_quantized(name: str, tensor: Tensor, dimensions: ModelDimensions) -> int:
    """Return the bytes in transformers of a tensor of a quantised model, unpacked."""
    if _QUANTIZATION_DATA.search(name.rpartition(".")[2]):
        return 0
    numbers = math.prod(tensor.shape)
    if tensor.dtype in _PACKED:
        weight_bits = dimensions.quantized_bits or _USUAL_BITS
        numbers = numbers * BITS[tensor.dtype] // weight_bits
    return numbers * dimensions.element
