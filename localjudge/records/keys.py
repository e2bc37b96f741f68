"""Keys of judgements, and the digests of texts and settings that they are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

RESPONSE_DIGESTS = ("response_digest", "opponent_digest")
"""The fields of an outcome with the digest of the response that the judge reads first, and of the other one."""


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Return the digest of everything that decides a judgement besides the row, 32 bytes."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()


def row_key(settings: bytes, row: bytes) -> str:
    """Return the key of a judgement, 32 hex digits, from the digests of its settings and its row."""
    return hashlib.sha256(settings + row).hexdigest()[:32]


def response_digest(instruction: str, response: str) -> str:
    """Return the digest of an instruction and a response to it, 32 hex digits."""
    return text_digest([instruction, response], 16).hex()


def text_digest(texts: Sequence[str | tuple[str, str] | None], size: int) -> bytes:
    """Return the digest of texts, and of pairs of a name and a text, of this many bytes."""
    return hashlib.sha256(json.dumps(texts).encode()).digest()[:size]
