"""The agreement of two judges of the same responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import SampledRows, kappa, nominal_kappa
from localjudge.studies.compare.matched_runs import MatchedRuns
from localjudge.studies.compare.system_orders import ComparedSystems, OrderOfSystems, orders_of_systems


@dataclass(frozen=True, slots=True)
class TwoJudges:
    """The agreement of two judges.

    Attributes:
        kappa: for each aspect, Cohen's kappa of the written verdicts: agreement with that of chance removed,
            with quadratic weights for scales.
        systems: number of systems.
        order: for each column, the pairs of systems that both judges put in the same order, and in opposite
            order; empty for one system.
    """

    kappa: Mapping[str, Estimate]
    systems: int
    order: Mapping[str, OrderOfSystems]


def compare_two_judges(matched: MatchedRuns, *, resamples: int, seed: int) -> TwoJudges:
    """Return the agreement of the judges of two runs.

    Args:
        matched: the rows of both runs.
        resamples: number of resamples for the order of the systems.
        seed: seed of the resamples.
    """
    rows = matched.rows
    in_both = matched.cells.in_both
    first_rows = matched.cells.first_rows[in_both]
    group = matched.cells.group[in_both]
    kappas: dict[str, Estimate] = {}
    for aspect, written in rows.verdicts.items():
        statistic = kappa if written.is_ordered else nominal_kappa
        old, new = written.numbers[first_rows].T
        kappas[aspect] = SampledRows(group).agreement(statistic, old, new)
    systems = ComparedSystems.of_rows(matched, first_rows[:, 0])
    order: dict[str, OrderOfSystems] = {}
    if systems.can_be_ordered:
        order = orders_of_systems(
            systems.means(matched.cells.old[in_both], group),
            systems.means(matched.cells.new[in_both], group),
            names=systems.names,
            widths={name: float(column.width) for name, column in rows.columns.items()},
            resamples=resamples,
            seed=seed,
        )
    return TwoJudges(kappas, systems=len(systems.names), order=order)
