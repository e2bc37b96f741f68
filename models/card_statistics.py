"""Statistics for the model card: intervals, agreement, baselines, and how often rationales are true."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats
from synthetic_text import WORD

from localjudge import Judgement

NAMED_FACT = re.compile(r"(\S+) (kept|missing|changed)(?=[,.])")
NAMED_NEW_WORDS = re.compile(r"New in it: ([^.]*)\.")


def with_interval(statistic: Callable[..., float], *samples: Sequence[float]) -> str:
    """Format a statistic of paired samples with its 95 % percentile bootstrap interval (Efron 1979)."""
    data = tuple(np.asarray(sample, float) for sample in samples)
    count = len(data[0])
    random = np.random.default_rng(0)
    resampled = [
        statistic(*(sample[pick] for sample in data)) for pick in random.integers(0, count, (1000, count))
    ]
    low, high = np.nanpercentile(resampled, [2.5, 97.5])
    return f"{statistic(*data):.2f} [{low:.2f}, {high:.2f}]"


def spearman(a: Any, b: Any) -> float:
    """Return Spearman's correlation; NaN where one side is constant."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def roc_auc(score: Any, positive: Any) -> float:
    """Return the area under the ROC curve: the share of (positive, negative) pairs in order, ties half."""
    positive = np.asarray(positive, bool)
    positives, negatives = np.asarray(score)[positive], np.asarray(score)[~positive]
    if not len(positives) or not len(negatives):
        return float("nan")
    return float(stats.mannwhitneyu(positives, negatives).statistic / (len(positives) * len(negatives)))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rationale_accuracy(name: str, rows: Sequence[tuple[str, str, str]], judgements: Sequence[Judgement]) -> str:
    """Count the words that rationales call kept, missing, changed or new, and those named correctly.

    Args:
        rows: (instruction, reference, candidate) of each row.
    """
    claims = true = 0
    for (_, reference, candidate), judgement in zip(rows, judgements, strict=True):
        in_reference, in_candidate = ({*words(text)} for text in (reference, candidate))
        for word, state in NAMED_FACT.findall(judgement.rationale):
            claims += 1
            true += word.lower() in in_reference and (word.lower() in in_candidate) == (state == "kept")
        for named in NAMED_NEW_WORDS.findall(judgement.rationale):
            for word in named.split(", "):
                claims += 1
                true += word.lower() in in_candidate and word.lower() not in in_reference
    return f"{name}: {true} of {claims} ({true / max(1, claims):.0%})"


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def overlap(reference: str, candidate: str) -> float:
    """Return the share of the reference's words in the candidate; for answers separated by `/`, the largest."""
    in_candidate = set(words(candidate))
    shares = [[word in in_candidate for word in words(answer)] for answer in reference.split("/")]
    return max((sum(share) / len(share) for share in shares if share), default=0.0)
