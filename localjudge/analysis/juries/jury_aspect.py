"""The agreement of several judges on one aspect, and estimates of their errors without known labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from localjudge.analysis import Floats, Integers
from localjudge.analysis.matching.label_records import LabelArray
from localjudge.analysis.statistics import Estimate
from localjudge.analysis.statistics.agreement_statistics import alphas
from localjudge.analysis.statistics.resampling import bootstrap_weights, expanded_percentile, mean_estimate
from localjudge.rubrics.answer import Value

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
    """Return the estimates of Dawid & Skene (1979, doi:10.2307/2346806) by expectation maximization.

    The first step uses the shares of the votes as probabilities.

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


SPLIT = 2
"""Smallest difference between the highest and the lowest score of an aspect that makes a row a split row; on a
narrower scale, its range."""
_CERTAIN = 1e-6
"""Range of an estimate over the resamples below which it has no interval: it is at the end of its range."""
FEWEST_JURORS = 3
"""Number of jurors that estimates of their error rates require."""


@dataclass(frozen=True, slots=True)
class JuryAspect:
    """The agreement of the jurors on one aspect.

    `mean` and `median` are averages over the rows of the row's mean and median score. `spread` is the average
    standard deviation of a row's scores. `unanimous` and `split` are shares of the rows: with equal scores, and
    with scores that differ by `SPLIT` or more.
    """

    mean: Estimate
    median: float
    spread: float
    alpha_ordinal: Estimate
    alpha_interval: Estimate
    unanimous: float
    split: float


@dataclass(frozen=True, slots=True)
class EstimatedErrors:
    """Estimates of the jurors' errors without known labels, by Dawid and Skene's model.

    The model assumes that the errors of the jurors are independent given the true label; the estimates of
    jurors that make the same errors are too good. `shares` has the share of each true label, `accuracy` the
    share of rows that each juror labels right, and `rates` the share of each given label for each juror and
    true label; None for a label that no row has.
    """

    shares: tuple[float, ...]
    accuracy: tuple[Estimate, ...]
    rates: tuple[tuple[tuple[float | None, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class NominalJuryAspect:
    """The agreement of the jurors on an aspect without an order.

    `with_majority`, `unanimous` and `tied` are shares of the rows: with a label that more than half of the
    jurors gave, with equal labels, and with two or more labels that share the most votes. `majority` has the
    share of each label among the majorities; None without any. `estimated` is None for fewer than three jurors,
    for jurors that share a model, and if the aspect has labels.
    """

    labels: tuple[str, ...]
    alpha_nominal: Estimate
    with_majority: float
    unanimous: float
    tied: float
    majority: tuple[float, ...] | None
    estimated: EstimatedErrors | None


@dataclass(frozen=True, slots=True)
class RatedAspect:
    """The scores of an aspect as numbers, [rows, jurors]; `values` has the value of each number.

    The level of measurement is "ordinal", or "nominal" for labels, which are numbered from 0.
    """

    name: str
    level: str
    table: Integers
    values: Mapping[int, Value]

    @property
    def ends(self) -> tuple[int, int]:
        return min(self.values), max(self.values)

    @property
    def votes(self) -> Floats:
        """The number of jurors that gave each value to each row, [rows, values]."""
        counts: Floats = (self.table[:, :, None] == np.array([*self.values])).sum(axis=1).astype(np.float64)
        return counts

    def without(self, juror: int) -> RatedAspect:
        return replace(self, table=np.delete(self.table, juror, axis=1))

    def alpha(self, group: Integers) -> Estimate:
        """Return Krippendorff's alpha of this level."""
        return alphas(_marks(self.table), group, [self.level])[0]

    def spread(self, reach: float) -> Floats:
        """Return the spread of each row; a standard deviation is divided by `reach`."""
        jurors = self.table.shape[1]
        if self.level == "ordinal":
            deviation: Floats = self.table.std(axis=1, ddof=1) / reach
            return deviation
        differ = (self.table[:, :, None] != self.table[:, None, :]).sum(axis=(1, 2))
        share: Floats = differ / (jurors * (jurors - 1))
        return share


def jury_aspect(rated: RatedAspect, group: Integers, resamples: int, seed: int) -> JuryAspect:
    """Return the agreement on an aspect with an order.

    Args:
        rated: the scores.
        group: the instruction of each row, [rows], numbered from 0.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    table, (lowest, highest) = rated.table, rated.ends
    ordinal, interval = alphas(_marks(table), group)
    differences = table.max(axis=1) - table.min(axis=1)
    return JuryAspect(
        mean=mean_estimate(table.mean(axis=1), group, lowest, highest, False, resamples, seed),
        median=float(np.median(table, axis=1).mean()),
        spread=float(table.std(axis=1, ddof=1).mean()),
        alpha_ordinal=ordinal,
        alpha_interval=interval,
        unanimous=float((differences == 0).mean()),
        split=float((differences >= min(SPLIT, highest - lowest)).mean()),
    )


def nominal_jury_aspect(
    rated: RatedAspect, group: Integers, resamples: int, seed: int, is_estimated: bool
) -> NominalJuryAspect:
    """Return the agreement on an aspect without an order.

    Args: as for `jury_aspect`; `is_estimated` says whether to estimate the jurors' errors.
    """
    rows, jurors = rated.table.shape
    votes = rated.votes
    most = votes.max(axis=1)
    won = votes[2 * most > jurors].argmax(axis=1)
    return NominalJuryAspect(
        labels=tuple(map(str, rated.values.values())),
        alpha_nominal=rated.alpha(group),
        with_majority=len(won) / rows,
        unanimous=float((most == jurors).mean()),
        tied=float(((votes == most[:, None]).sum(axis=1) > 1).mean()),
        majority=tuple((np.bincount(won, minlength=votes.shape[1]) / len(won)).tolist()) if len(won) else None,
        estimated=_estimated(rated, group, min(resamples, 200), seed)
        if is_estimated and jurors >= FEWEST_JURORS
        else None,
    )


def _estimated(rated: RatedAspect, group: Integers, resamples: int, seed: int) -> EstimatedErrors:
    """Return the estimates, with intervals from resampling instructions."""
    patterns, pattern = np.unique(rated.table, axis=0, return_inverse=True)
    counts = (patterns[:, :, None] == np.arange(len(rated.values))).astype(np.float64)
    of_groups = np.zeros((int(group.max()) + 1, len(patterns)))
    np.add.at(of_groups, (group, pattern.ravel()), 1)
    found = error_rates(counts, of_groups.sum(axis=0))
    resampled = np.concatenate(
        [
            error_rates(counts, weights @ of_groups).accuracies
            for weights in bootstrap_weights(len(of_groups), resamples, seed)
        ]
    )
    return EstimatedErrors(
        shares=tuple(found.shares.tolist()),
        accuracy=tuple(
            expanded_percentile(value, values, len(of_groups))
            if np.ptp(values) > _CERTAIN
            else Estimate.from_floats(value)
            for value, values in zip(found.accuracies.tolist(), resampled.T, strict=True)
        ),
        rates=tuple(
            tuple(tuple(None if rate != rate else rate for rate in given) for given in juror)
            for juror in found.rates.tolist()
        ),
    )


def _marks(table: Integers) -> LabelArray:
    rows, jurors = table.shape
    return LabelArray(
        np.repeat(np.arange(rows, dtype=np.int32), jurors),
        np.tile(np.arange(jurors, dtype=np.int32), rows),
        table.ravel().astype(np.float64),
    )
