"""Measures of a response that need no judge: its length, and how many words it shares with the reference."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

RESPONSE_LENGTHS = ("characters", "opponent_characters")
"""The fields of an outcome with the length of the response that the judge reads first, and of the other one."""
_WORD = re.compile(r"\w+")


def word_overlap(response: str, reference: str) -> float:
    """Return the F1 of two texts' words, with repetitions (as in SQuAD's evaluation, arXiv:1606.05250)."""
    ours, theirs = Counter(_words(response)), _word_counts(reference)
    shared = sum(min(count, theirs[word]) for word, count in ours.items() if word in theirs)
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0


@lru_cache(maxsize=64)
def _word_counts(reference: str) -> Counter[str]:
    """Return the words of a reference, which the next rows of a run often share."""
    return Counter(_words(reference))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
