"""The statistics of the card: intervals, agreement, baselines, and how true rationales are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats
from world import WORD

from localjudge import Judgement

FATE = re.compile(r"(\S+) (kept|missing|changed)(?=[,.])")
NEW = re.compile(r"New in it: ([^.]*)\.")


def interval(statistic: Callable[..., float], *samples: Sequence[float]) -> str:
    """A statistic of paired samples with its 95 % percentile bootstrap interval (Efron 1979)."""
    data = tuple(np.asarray(sample, float) for sample in samples)
    count = len(data[0])
    random = np.random.default_rng(0)
    draws = [statistic(*(sample[pick] for sample in data)) for pick in random.integers(0, count, (1000, count))]
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return f"{statistic(*data):.2f} [{low:.2f}, {high:.2f}]"


def spearman(a: Any, b: Any) -> float:
    if len(set(a)) < 2 or len(set(b)) < 2:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def area(score: Any, positive: Any) -> float:
    """The area under the ROC curve: how often a positive scores above a negative, ties half (Mann-Whitney)."""
    positive = np.asarray(positive, bool)
    yes, no = np.asarray(score)[positive], np.asarray(score)[~positive]
    if not len(yes) or not len(no):
        return float("nan")
    return float(stats.mannwhitneyu(yes, no).statistic / (len(yes) * len(no)))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def truth_of(name: str, rows: Sequence[tuple[str, str, str]], found: Sequence[Judgement]) -> str:
    """How many of the words that rationales call kept, missing, changed or new are so.

    `rows` are (instruction, reference, candidate).
    """
    claims = right = 0
    for (_, reference, candidate), judgement in zip(rows, found, strict=True):
        known, there = ({word.lower() for word in WORD.findall(text)} for text in (reference, candidate))
        for word, fate in FATE.findall(judgement.rationale):
            claims += 1
            right += word.lower() in known and (word.lower() in there) == (fate == "kept")
        for words in NEW.findall(judgement.rationale):
            for word in words.split(", "):
                claims += 1
                right += word.lower() in there and word.lower() not in known
    return f"{name}: {right} of {claims} ({right / max(1, claims):.0%})"


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def overlap(reference: str, candidate: str) -> float:
    """The share of the reference's words that the candidate has; of the best of answers parted by `/`."""
    there = set(words(candidate))
    shares = [[word in there for word in words(answer)] for answer in reference.split("/")]
    return max((sum(share) / len(share) for share in shares if share), default=0.0)
