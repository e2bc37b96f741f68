"""What is computed from texts and settings: digests, the keys of judgements, the overlap of words."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
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
    return text_digest([instruction, response], size=16).hex()


def text_digest(texts: Sequence[str | tuple[str, str] | None], size: int) -> bytes:
    """Return the digest of texts, and of pairs of a name and a text, of this many bytes."""
    return hashlib.sha256(json.dumps(texts).encode()).digest()[:size]


RESPONSE_LENGTHS = ("characters", "opponent_characters")
"""The fields of an outcome with the length of the response that the judge reads first, and of the other one."""
_WORD = re.compile(r"\w+")


def word_overlap(response: str, reference: str) -> float:
    """Return the F1 of two texts' words, with repetitions (as in SQuAD's evaluation, arXiv:1606.05250)."""
    of_response = Counter(_words(response))
    of_reference = _word_counts(reference)
    shared = 0
    for word, count in of_response.items():
        shared += min(count, of_reference.get(word, 0))
    if not shared:
        return 0.0
    return 2 * shared / (of_response.total() + of_reference.total())


@lru_cache(maxsize=64)
def _word_counts(reference: str) -> Counter[str]:
    """Return the words of a reference, which the next rows of a run often share."""
    return Counter(_words(reference))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
