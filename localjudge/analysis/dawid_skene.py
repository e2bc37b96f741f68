"""Error rates of several judges without known labels (Dawid & Skene 1979, doi:10.2307/2346806)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.analysis.scores import Floats

_MOST_STEPS = 1000
_CONVERGED = 1e-8


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Maximum likelihood estimates for J judges and L labels.

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
        recalls = np.nan_to_num(np.diagonal(self.rates, axis1=1, axis2=2))
        result: Floats = recalls @ self.shares
        return result


def error_rates(counts: Floats) -> ErrorRates:
    """Return the estimates by expectation maximization, which starts from the shares of the votes.

    The errors of the judges must be independent given the true label, and most judges better than chance.

    Args:
        counts: how often each judge gave each label to each row, [n, J, L].
    """
    votes = counts.sum(axis=1)
    probabilities: Floats = votes / votes.sum(axis=1, keepdims=True)
    for _ in range(_MOST_STEPS):
        shares = probabilities.mean(axis=0)
        given = np.einsum("nl,njk->jlk", probabilities, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            rates: Floats = given / given.sum(axis=2, keepdims=True)
            log_rates = np.log(np.maximum(np.nan_to_num(rates), 1e-300))  # 0 times its logarithm is 0
            likelihood = np.log(shares) + np.einsum("njk,jlk->nl", counts, log_rates)
        likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        before, probabilities = probabilities, likelihood / likelihood.sum(axis=1, keepdims=True)
        if np.abs(probabilities - before).max() < _CONVERGED:
            break
    return ErrorRates(shares, rates, probabilities)
