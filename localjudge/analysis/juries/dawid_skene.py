"""Error rates of several judges without known labels (Dawid & Skene 1979, doi:10.2307/2346806)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.analysis.matching.scores import Floats

_MOST_STEPS = 1000
_CONVERGED = 1e-8


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Maximum likelihood estimates for J judges and L labels; several weightings come first in each shape.

    Attributes:
        shares: the share of each true label, [L].
        rates: the share of each given label for each judge and true label, [J, L, L]; NaN for a label that no
            row has. The diagonal has the judge's recall of each label.
        probabilities: the probability of each true label of each row, [n, L].
    """

    shares: Floats
    rates: Floats
    probabilities: Floats

    @property
    def accuracies(self) -> Floats:
        """The share of the rows that each judge labels right, [J]."""
        recalls = np.nan_to_num(np.diagonal(self.rates, axis1=-2, axis2=-1))
        result: Floats = (recalls @ self.shares[..., None])[..., 0]
        return result


def error_rates(counts: Floats, weights: Floats | None = None) -> ErrorRates:
    """Return the estimates by expectation maximization, which starts from the shares of the votes.

    The errors of the judges must be independent given the true label, and most judges better than chance.

    Args:
        counts: how often each judge gave each label to each row, [n, J, L].
        weights: how often each row counts, [n], or [B, n] for B weightings; None for once.
    """
    rows, judges, labels = counts.shape
    weights = np.ones(rows) if weights is None else weights
    votes, flat = counts.sum(axis=1), counts.reshape(rows, -1)
    probabilities: Floats = np.broadcast_to(votes / votes.sum(axis=1, keepdims=True), (*weights.shape, labels))
    for _ in range(_MOST_STEPS):
        weighted = probabilities * weights[..., None]
        shares = weighted.sum(axis=-2) / weights.sum(axis=-1, keepdims=True)
        given = (weighted.swapaxes(-1, -2) @ flat).reshape(*weights.shape[:-1], labels, judges, labels)
        with np.errstate(invalid="ignore", divide="ignore"):
            rates: Floats = given / given.sum(axis=-1, keepdims=True)
            log_rates = np.log(np.maximum(np.nan_to_num(rates), 1e-300))  # 0 times its logarithm is 0
            of_rows = flat @ log_rates.reshape(*rates.shape[:-2], -1).swapaxes(-1, -2)
            likelihood = np.log(shares)[..., None, :] + of_rows
        likelihood = np.exp(likelihood - likelihood.max(axis=-1, keepdims=True))
        before, probabilities = probabilities, likelihood / likelihood.sum(axis=-1, keepdims=True)
        if np.abs(probabilities - before).max() < _CONVERGED:
            break
    return ErrorRates(shares, rates.swapaxes(-3, -2), probabilities)
