"""The numbers of a page's rows as columns, and the typed arrays as which the page gets them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DIGITS = 6
"""Number of decimals on the page."""


@dataclass(frozen=True, slots=True)
class TypedArray:
    """Numbers as the page reads them.

    Attributes:
        kind: the name of the page's class of typed arrays.
        content: the numbers, little-endian.
    """

    kind: str
    content: bytes

    @classmethod
    def from_numbers(cls, numbers: NDArray[Any]) -> TypedArray:
        """Return the typed array of these numbers, in the order of their rows."""
        array_type = _TYPES[numbers.dtype.kind + str(numbers.dtype.itemsize)]
        return cls(array_type.kind, numbers.astype(array_type.number).tobytes())


@dataclass(frozen=True, slots=True)
class _ArrayType:
    """A class of typed arrays: its name, and the type of its numbers."""

    kind: str
    number: str


_TYPES = {
    "i2": _ArrayType("Int16Array", "<i2"),
    "i4": _ArrayType("Int32Array", "<i4"),
    "u1": _ArrayType("Uint8Array", "u1"),
    "f8": _ArrayType("Float32Array", "<f4"),
}
"""The page's type of the numbers of each type of numpy; 32 bits of a float are enough there."""


@dataclass(frozen=True, slots=True)
class PageColumns:
    """N rows with R responses each, in A aspects, by instruction, in the order of the first row of each.

    Attributes:
        series: int16 (R, N), the index of the system of each response.
        group: int32 (N,), the number of the instruction; rows with equal instruction and reference share it.
        scores: int16 (A, M), the index of each answer among the values of its aspect, or of a pair's winner in
            `WINNERS`; -1 if it failed. M is N, or the number of criteria of all rows.
        expected: float64 (A, M), the expected score, or the preference for the first response; NaN if it is
            unknown, or the aspect has no order.
        confidence: float64 (A, M), the probability of the score; NaN if it is unknown.
        agree: float64 (A, M), 1 if both orders say the same, a tie or a response, 0 if not; NaN for one order.
        overall: float64 (N,), the number that decides which row is better; NaN if the row failed, or no aspect
            is ordered.
        length: int32 (R, N), characters of the responses; -1 if the texts were not found.
        flags: uint8 (N,), a sum of `FAILED` and the other bits.
        criteria: int32 (N + 1,), where the criteria of each row begin; None for rows without criteria.
    """

    series: NDArray[np.int16]
    group: NDArray[np.int32]
    scores: NDArray[np.int16]
    expected: NDArray[np.float64]
    confidence: NDArray[np.float64]
    agree: NDArray[np.float64]
    overall: NDArray[np.float64]
    length: NDArray[np.int32]
    flags: NDArray[np.uint8]
    criteria: NDArray[np.int32] | None

    def typed_arrays(self) -> dict[str, TypedArray]:
        """Return the columns by name; a NaN in them means unknown."""
        arrays = {}
        for field in fields(self):
            numbers = getattr(self, field.name)
            if numbers is not None:
                arrays[field.name] = TypedArray.from_numbers(np.round(numbers, _DIGITS))
        return arrays
