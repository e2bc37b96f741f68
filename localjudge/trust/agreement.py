"""How far a judge agrees with people, beside how far people agree with each other and how far a ruler does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.trust.estimate import UNDEFINED, Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """One column of numbers against the labels, statistic by statistic.

    The correlations compare with the mean of a row's labels. `kappa` (quadratic weights), `exact`,
    `within_one`, `mae` and `bias` (judge less label) compare with every label on its own; they are undefined
    where labels lie outside the judge's scale. `kappa` and `exact` want whole numbers on both sides.
    """

    pearson: Estimate = UNDEFINED
    spearman: Estimate = UNDEFINED
    kendall: Estimate = UNDEFINED
    kappa: Estimate = UNDEFINED
    exact: Estimate = UNDEFINED
    within_one: Estimate = UNDEFINED
    mae: Estimate = UNDEFINED
    bias: Estimate = UNDEFINED


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How far the labellers agree: what no judge can be expected to exceed by much.

    `rest` compares each label with the mean of the row's other labels, all labellers together; `labellers` does
    so one by one. The alphas are Krippendorff's.
    """

    alpha_ordinal: Estimate
    alpha_interval: Estimate
    rest: Comparison
    labellers: Mapping[str, Comparison]


@dataclass(frozen=True, slots=True)
class AspectAgreement:
    """One aspect. `comparisons` goes by "integer", "expected", "calibrated", "length" and "overlap", as far as
    there are such columns."""

    rows: int
    instructions: int
    labellers: int
    comparisons: Mapping[str, Comparison]
    ceiling: Ceiling | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against labels, aspect by aspect."""

    aspects: Mapping[str, AspectAgreement]
    notes: tuple[str, ...]
