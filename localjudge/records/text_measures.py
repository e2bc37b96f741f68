"""Measures of a response that need no judge: its length, and how many words it shares with the reference."""

from __future__ import annotations

import re
from collections import Counter

RESPONSE_LENGTHS = ("characters", "opponent_characters")
"""The fields of an outcome with the length of the response that the judge reads first, and of the other one."""
_WORD = re.compile(r"\w+")


def word_overlap(response: str, reference: str) -> float:
    """Return the F1 of two texts' words, with repetitions (as in SQuAD's evaluation, arXiv:1606.05250)."""
    ours, theirs = (Counter(_WORD.findall(text.lower())) for text in (response, reference))
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0
