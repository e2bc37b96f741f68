"""Where an interval begins to be possible: the limits below which none is printed, from simulated scores.

    python benchmarks/interval_limits.py [--sets 1000]

The populations are those of `benchmarks/coverage.py`, and expected scores just below 5 (by up to 0.001 to 0.3)
of which 2 % are 2.

* `ends` has the means of expected scores, for 7 to 200 instructions. From it follows `LEAST_REACH` of
  `statistics.resampling`: the smallest of the values in `REACHES`
  with which the printed intervals contain the mean in 93 % of the sets or more.
* `kappa` has judges that are wrong by one point in 2 % to 20 % of the rows. `least_for_agreement` is the
  smallest number of rows in `SIZES` from which on the intervals of kappa contain its value in 93 % of the sets,
  within two Monte Carlo errors; `LEAST_FOR_AGREEMENT` of `statistics.jackknife` is not below it. Few sets of
  few rows have the error that an interval requires: only these are used, and `missed` is the share of all sets
  whose interval is wrong. The population `top` is shown but not counted: nine of ten scores are 5, and kappa
  then depends on a few rows.

Each share has its Monte Carlo standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import coverage
import numpy as np
import results_table

from localjudge.statistics import jackknife, resampling
from localjudge.statistics.agreement_statistics import kappa
from localjudge.statistics.resampling import averages

REACHES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Values of `LEAST_REACH` that are compared."""

SIZES = (5, 8, 10, 12, 15, 20, 30, 50, 200)
"""Numbers of rows for `kappa`."""


def main() -> None:
    cases = {"ends": ends, "kappa": kappas}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="simulated data sets of each kind")
    parser.add_argument(
        "--kappa-sets", type=int, default=2000, help="the same for kappa, with an error or more"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {"sets": options.sets, "kappa_sets": options.kappa_sets, "seed": options.seed}
    for name, simulate in cases.items():
        found[name] = list(simulate(options))
        lines = found[name]
        results_table.table(name, list(lines[0]), [list(line.values()) for line in lines])
    found["least_for_agreement"] = _derived(found["kappa"])
    print(f"\nfewest rows for an interval of kappa: {found['least_for_agreement']}")
    results_table.write("interval_limits", found, options.results)


def ends(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the coverage for each value of `LEAST_REACH` and population of expected scores."""
    jitters = (0.001, 0.01, 0.1, 0.3)
    populations = [*coverage.CUTS, *(f"2 %, up to {jitter:g}" for jitter in jitters)]
    for place, population in enumerate(populations):
        for size in (7, 15, 30, 50, 80, 200):
            rng = np.random.default_rng([options.seed, size, place])
            group, sets = np.arange(size), options.sets
            if population in coverage.CUTS:
                many = coverage._pair(np.random.default_rng(99), population, np.arange(400_000), 0)[1]
                truth = float(many.mean())
                values = np.column_stack([coverage._pair(rng, population, group, 0)[1] for _ in range(sets)])
            else:
                jitter = jitters[place - len(coverage.CUTS)]
                truth = 5 - 0.02 * 3 - 0.98 * jitter / 2
                near = 5 - jitter * rng.random((size, sets))
                values = np.where(rng.random((size, sets)) < 0.02, 2.0, near)
            kept = resampling.LEAST_REACH
            for limit in REACHES:
                resampling.LEAST_REACH = limit
                found = resampling.studentise(averages(values, group, size), 1, 5, seed=options.seed)
                held = ((found.low <= truth) & (truth <= found.high))[np.isfinite(found.low)]
                yield {"population": population, "instructions": size, "least_reach": limit} | _share(
                    held, sets
                )
            resampling.LEAST_REACH = kept


def kappas(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the coverage of kappa, also below `LEAST_FOR_AGREEMENT` instructions."""
    kept, jackknife.LEAST_FOR_AGREEMENT = jackknife.LEAST_FOR_AGREEMENT, 2
    for population, error in product(coverage.CUTS, (0.02, 0.05, 0.1, 0.2)):
        place = int(100 * error), list(coverage.CUTS).index(population)
        rng = np.random.default_rng([options.seed, *place])
        many = _erring(rng, population, 1_000_000, error)
        truth = _kappa(*many)
        for size in SIZES:
            held, left_out = list[bool](), 1 - np.eye(size)
            erring, drawn = _with_errors(rng, population, size, error, options.kappa_sets)
            for x, y in erring:
                estimate = jackknife.agreement_estimate(_kappa(x, y), kappa(x, y, left_out))
                if estimate.low is not None and estimate.high is not None:
                    held.append(estimate.low <= truth <= estimate.high)
            line = {"kind": "kappa", "population": population, "errors": error, "rows": size}
            line |= _share(np.array(held), drawn)
            yield line | {"missed": round((len(held) - sum(held)) / drawn, 4)}
    jackknife.LEAST_FOR_AGREEMENT = kept


def _with_errors(
    rng: np.random.Generator, population: str, size: int, error: float, sets: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
    """Draw sets until enough have an error or more; return these, and the number of all.

    Without an error there is no interval.
    """
    found: list[tuple[np.ndarray, np.ndarray]] = []
    block, drawn = 20_000, 0
    while len(found) < sets:
        scores = _erring(rng, population, block * size, error)
        x, y = (column.reshape(block, size) for column in scores)
        places = np.flatnonzero((x != y).any(axis=1))[: sets - len(found)]
        drawn += block if len(found) + len(places) < sets else int(places[-1]) + 1
        found += [(x[place], y[place]) for place in places]
    return found, drawn


def _kappa(x: np.ndarray, y: np.ndarray) -> float:
    """Return kappa of all rows."""
    return float(kappa(x, y, np.ones((1, len(x))))[0])


def _derived(lines: list[dict[str, Any]]) -> int | None:
    """Return the smallest number of rows from which on kappa has the coverage that is required."""
    for size in reversed(SIZES):
        counted = [line for line in lines if line["kind"] == "kappa" and line["population"] != coverage.STRESS]
        own = [line for line in counted if line["rows"] == size and line["sets"]]
        if any(line["coverage"] + 2 * line["error"] < 0.93 for line in own):
            larger = [other for other in SIZES if other > size]
            return larger[0] if larger else None
    return SIZES[0]


def _erring(
    rng: np.random.Generator, population: str, size: int, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels, and scores of a judge that is wrong by one point in a share of the rows."""
    human = 1.0 + np.searchsorted(coverage.CUTS[population], rng.standard_normal(size))
    wrong = np.clip(human + rng.choice([-1, 1], size), 1, 5)
    return human, np.where(rng.random(size) < error, wrong, human)


def _share(held: np.ndarray, sets: int) -> dict[str, Any]:
    """Return the share of the sets with an interval whose interval holds, with its Monte Carlo standard
    error."""
    share = float(held.mean()) if len(held) else float("nan")
    error = (share * (1 - share) / max(len(held), 1)) ** 0.5
    return {
        "coverage": round(share, 4) if len(held) else None,
        "error": round(error, 4) if len(held) else None,
        "printed": round(len(held) / sets, 3),
        "sets": len(held),
    }


if __name__ == "__main__":
    main()
