"""Which rows a sample prefers: those that are rare, or those that a judge doubts.

Half of the chances is spread evenly, so that every row can be drawn; the other half follows the judge's doubt
(active inference, arXiv:2403.03208).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from localjudge.arrays import Floats
from localjudge.errors import UsageError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric

Preferred = Literal["system", "score", "orders", "jurors", "mass", "interval"]


def even(kinds: Sequence[Hashable]) -> Floats:
    """Return weights with which each kind of row is drawn equally often, [n]."""
    counts = Counter(kinds)
    return np.array([len(kinds) / len(counts) / counts[kind] for kind in kinds])


def doubtful(doubt: Sequence[float | None]) -> Floats:
    """Return weights that grow with the doubt, [n]; a row whose doubt is not known has the mean weight."""
    known = [each for each in doubt if each is not None]
    mean = sum(known) / len(known) if known else 0.0
    return np.array([1.0 if each is None or not mean else 0.5 + 0.5 * each / mean for each in doubt])


def judge_weights(
    outcomes: Iterable[RowOutcome], rubric: Rubric, preferred: Preferred
) -> dict[str | None, float]:
    """Return the weight of each row of a run, by the digest of its texts.

    Args:
        outcomes: the outcome of each row.
        rubric: the aspects; the first one decides.
        preferred: what is drawn more often: rare scores; pairs whose orders disagree; rows whose jurors
            disagree; rows with a low mass of the values; or with a wide distribution of the values.

    Raises:
        UsageError: no row of the run has what is preferred.
    """
    name, aspect = next(iter(rubric.aspects.items()))
    rows = list(outcomes)
    digests = [row.first.digest for row in rows]
    if preferred == "score":
        scores = [row.verdicts.get(name) for row in rows]
        return dict(zip(digests, even(scores).tolist(), strict=True))
    found = [_DOUBTS[preferred](row, name, aspect) if row.error is None else None for row in rows]
    if all(each is None for each in found):
        raise UsageError(f"`prefer` {preferred}: this run does not record it; give another value")
    return dict(zip(digests, doubtful(found).tolist(), strict=True))


def _orders(row: RowOutcome, name: str, aspect: Aspect) -> float | None:
    known = row.preference(name)
    return None if known is None or known.agree is None else float(not known.agree)


def _jurors(row: RowOutcome, name: str, aspect: Aspect) -> float | None:
    jury = row.first.columns.get("jury")
    if not isinstance(jury, Mapping):
        return None
    values = [each[name] for each in jury.values()]
    if aspect.numbers is None:
        return 1 - max(Counter(values).values()) / len(values)
    return float(np.std([aspect.numbers[value] for value in values]))


def _mass(row: RowOutcome, name: str, aspect: Aspect) -> float | None:
    return _mean(1 - each.mass[name] for each in row.judged if name in each.mass)


def _interval(row: RowOutcome, name: str, aspect: Aspect) -> float | None:
    def width(shares: Sequence[float]) -> float:
        if aspect.numbers is None:
            return 1 - max(shares)
        numbers = np.array([*aspect.numbers.values()])
        mean = float(numbers @ np.array(shares))
        return float(np.sqrt((numbers - mean) ** 2 @ np.array(shares)))

    return _mean(width(each.probabilities[name]) for each in row.judged if name in each.probabilities)


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


_DOUBTS: Mapping[str, Callable[[RowOutcome, str, Aspect], float | None]] = {
    "orders": _orders,
    "jurors": _jurors,
    "mass": _mass,
    "interval": _interval,
}
