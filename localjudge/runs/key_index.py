"""Where keys stand in a sequence, such as the lines of a journal."""

from __future__ import annotations

import hashlib

import numpy as np


class KeyIndex:
    """The positions of keys in a sequence, from 0; of several equal keys, the last position.

    Args:
        keys: their digests, 16 bytes each.
    """

    def __init__(self, keys: bytes | bytearray) -> None:
        digests = np.frombuffer(bytes(keys), "S16")
        self._positions = np.argsort(digests, kind="stable")
        self._sorted = digests[self._positions]
        # The number of positions of a key that `take` has used, at the first rank of the key.
        self._used = np.zeros(len(digests), np.int64)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> int | None:
        """Return the last position of this key; None if there is none."""
        digest = _sortable(key)
        last = int(np.searchsorted(self._sorted, digest, side="right")) - 1
        if last < 0 or self._sorted[last] != digest:
            return None
        return int(self._positions[last])

    def take(self, key: str) -> bool:
        """Use one position of this key. Return False if all are used, or there is none."""
        digest = _sortable(key)
        first = int(np.searchsorted(self._sorted, digest, side="left"))
        end = int(np.searchsorted(self._sorted, digest, side="right"))
        if first == end or self._used[first] == end - first:
            return False
        self._used[first] += 1
        return True

    def count_in(self, other: KeyIndex) -> int:
        """Return the number of entries, repeated keys included, whose key is in the other index."""
        return int(np.isin(self._sorted, other._sorted).sum())


def _sortable(key: str) -> bytes:
    """Return the digest of a key as NumPy has it, which removes zero bytes at the end."""
    return key_digest(key).rstrip(b"\0")


def key_digest(key: str) -> bytes:
    """Return a digest of 16 bytes for a key of any length."""
    return hashlib.sha256(key.encode()).digest()[:16]
