"""Where an interval begins to be possible: the limits below which none is printed, from simulated scores.

    python benchmarks/interval_limits.py [--sets 1000]

The populations are those of `benchmarks/coverage.py`, and expected scores just below 5 (by up to 0.001 to 0.3)
of which 2 % are 2.

* `ends` has the means of expected scores, for 7 to 200 instructions. From it follows `LEAST_REACH` of
  `localjudge.analysis.resampling`: the smallest of the values in `REACHES` with which the printed intervals
  contain the mean in 93 % of the sets or more.
* `kappa` has judges that are wrong by one point in 5 % and 20 % of the rows. From it follows
`LEAST_FOR_AGREEMENT` of
  `localjudge.analysis.jackknife`.
* `calibration` counts how often `calibrate` shows a gain, for random scores and for those of a generous judge.

Each share has its Monte Carlo standard error.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import coverage
import numpy as np
import results_table

from localjudge.analysis import jackknife, resampling
from localjudge.analysis.calibration import fit_map
from localjudge.analysis.resampling import averages

REACHES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Values of `LEAST_REACH` that are compared."""


def main() -> None:
    cases = {"ends": ends, "kappa": kappas, "calibration": calibrations}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {"sets": options.sets, "seed": options.seed}
    for name, simulate in cases.items():
        found[name] = list(simulate(options))
        lines = found[name]
        results_table.table(name, list(lines[0]), [list(line.values()) for line in lines])
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
    """Yield the coverage of kappa and Pearson's correlation, also below `LEAST_FOR_AGREEMENT` instructions."""
    kept, jackknife.LEAST_FOR_AGREEMENT = jackknife.LEAST_FOR_AGREEMENT, 2
    for population, error in product(("even", "high"), (0.05, 0.2)):
        rng = np.random.default_rng([options.seed, int(100 * error), list(coverage.CUTS).index(population)])
        truth = coverage._agree(*_erring(rng, population, 400_000, error), np.arange(400_000), 0, 0)
        for size in (7, 10, 15, 20, 50, 200):
            rows, held = np.arange(size), defaultdict(list)
            for _ in range(options.sets):
                found = coverage._agree(*_erring(rng, population, size, error), rows, 1, 0)
                for name in ("kappa", "pearson"):
                    estimate, value = getattr(found, name), getattr(truth, name).value
                    if estimate.low is not None:
                        held[name].append(estimate.low <= value <= estimate.high)
            for name, each in held.items():
                line = {"kind": name, "population": population, "errors": error, "rows": size}
                yield line | _share(np.array(each), options.sets)
    jackknife.LEAST_FOR_AGREEMENT = kept


def _erring(
    rng: np.random.Generator, population: str, size: int, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels, and scores of a judge that is wrong by one point in a share of the rows."""
    human = 1.0 + np.searchsorted(coverage.CUTS[population], rng.standard_normal(size))
    wrong = np.clip(human + rng.choice([-1, 1], size), 1, 5)
    return human, np.where(rng.random(size) < error, wrong, human)


def calibrations(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield how often a gain is shown by a map of random scores, and of scores by a judge that is generous."""
    for judge, population, size in product(("random", "generous"), ("even", "high"), (20, 50, 150)):
        rng = np.random.default_rng([options.seed, size, len(judge), list(coverage.CUTS).index(population)])
        group, shown = np.repeat(np.arange(size), 2), []
        for number in range(options.sets // 4):
            human, judged = coverage._pair(rng, population, group, 0)
            score = rng.integers(1, 6, len(group)) if judge == "random" else np.minimum(judged + 0.7, 5)
            found = fit_map(score.astype(float), human, group, 1000, number)
            shown.append(found.has_gain)
        line = _share(np.array(shown), options.sets // 4)
        yield {"judge": judge, "population": population, "instructions": size, "shown": line["coverage"]} | {
            name: line[name] for name in ("error", "sets")
        }


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
