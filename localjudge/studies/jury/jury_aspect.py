"""The agreement of several judges on one aspect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.rubrics.answer import Value
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import alphas
from localjudge.statistics.resampling import mean_estimate

SPLIT = 2
"""Smallest difference between the highest and the lowest score of an aspect that makes a row a split row; on a
narrower scale, its range."""


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
class NominalJuryAspect:
    """The agreement of the jurors on an aspect without an order.

    `with_majority`, `unanimous` and `tied` are shares of the rows: with a label that more than half of the
    jurors gave, with equal labels, and with two or more labels that share the most votes. `majority` has the
    share of each label among the majorities; None without any.
    """

    labels: tuple[str, ...]
    alpha_nominal: Estimate
    with_majority: float
    unanimous: float
    tied: float
    majority: tuple[float, ...] | None


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


def nominal_jury_aspect(rated: RatedAspect, group: Integers) -> NominalJuryAspect:
    """Return the agreement on an aspect without an order.

    Args:
        rated: the labels.
        group: the instruction of each row, [rows], numbered from 0.
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
    )


def _marks(table: Integers) -> LabelArray:
    rows, jurors = table.shape
    return LabelArray(
        np.repeat(np.arange(rows, dtype=np.int32), jurors),
        np.tile(np.arange(jurors, dtype=np.int32), rows),
        table.ravel().astype(np.float64),
    )
