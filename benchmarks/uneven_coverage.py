"""How often the intervals of `rank` contain the true value if systems answered different instructions.

    python benchmarks/uneven_coverage.py [--sets 500]

A score is the level of its instruction (2 or 3) plus two random steps of 0 or 1; the first has a
probability of its own for each of three systems. So the additive model of instructions and systems holds
exactly, and the scores are integers. Three designs: `duplicates` (one to four rows on an instruction; the
best system has most on hard ones, the worst on easy ones), `missing` (the worst system answers a third of
the hard instructions, the second four fifths of all), and `both`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import results_table

from localjudge.statistics.resampling import studentise
from localjudge.statistics.system_means import column_means, means_on_same_instructions

STEPS = np.array([0.2, 0.5, 0.6])
"""Probability of the first step for each system."""

OTHER_STEP = 0.2
LEVEL = 2.5
SIZES = (15, 40, 120)
DESIGNS = ("duplicates", "missing", "both")
FIRST, SECOND = np.array([0, 0, 1]), np.array([1, 2, 2])


def cells(rng: np.random.Generator, design: str, size: int) -> np.ndarray:
    """Draw each system's mean score on each instruction, [size, 3]; NaN if it has no row there."""
    hard = rng.random(size) < 0.5
    rows = np.ones((size, 3), dtype=np.int64)
    if design != "missing":
        rows = np.where(hard[:, None], [1, 2, 4], [4, 2, 1])
    steps = rng.binomial(rows, STEPS) + rng.binomial(rows, OTHER_STEP)
    found = np.where(hard, 2, 3)[:, None] + steps / rows
    if design != "duplicates":
        found[hard & (rng.random(size) > 1 / 3), 0] = np.nan
        found[rng.random(size) > 4 / 5, 1] = np.nan
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=500, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found = [
        row
        for design in DESIGNS
        for size in SIZES
        for row in _covered(design, size, options.sets, options.seed)
    ]
    content = {"sets": options.sets, "seed": options.seed, "intervals": found}
    results_table.write("uneven_coverage", content, options.results)


def _covered(design: str, size: int, sets: int, seed: int) -> list[dict[str, object]]:
    """Return the coverage of each kind of interval, with its Monte Carlo error.

    The error is computed from the data sets, because the intervals of one set depend on each other. Intervals
    that are not given count neither way.
    """
    rng = np.random.default_rng([seed, size, DESIGNS.index(design)])
    held: dict[str, list[tuple[float, float]]] = {}

    def note(kind: str, truth: np.ndarray, low: np.ndarray, high: np.ndarray, together: bool = False) -> None:
        given = np.isfinite(low)
        inside = ((low <= truth) & (truth <= high))[given]
        if given.any():
            share = float(inside.all()) if together else float(inside.mean())
            held.setdefault(kind, []).append((share, float((high - low)[given].mean())))

    for number in range(sets):
        scores = cells(rng, design, size)
        same = means_on_same_instructions(scores)
        means = studentise(same, 2, 5, seed=number)
        note("mean on the same instructions", LEVEL + STEPS + OTHER_STEP, means.low, means.high)
        truth = STEPS[FIRST] - STEPS[SECOND]
        effects = studentise(same.contrast(FIRST, SECOND), -3, 3, symmetric=True, seed=number)
        note("difference of additive effects", truth, effects.low, effects.high)
        alone = studentise(column_means(scores[:, FIRST] - scores[:, SECOND]), -3, 3, True, seed=number)
        note("difference on common instructions, alone", truth, alone.low, alone.high)
        three = alone.simultaneous(-3, 3)
        note("differences on common instructions, all three", truth, three.low, three.high, together=True)
    rows = []
    for kind, each in held.items():
        shares, widths = np.array(each).T
        rows.append(
            {
                "design": design,
                "instructions": size,
                "kind": kind,
                "sets": len(shares),
                "coverage": round(float(shares.mean()), 4),
                "monte_carlo_error": round(float(shares.std() / math.sqrt(len(shares))), 4),
                "width": round(float(widths.mean()), 4),
            }
        )
    columns = ["interval", "coverage", "error", "width", "sets"]
    table = [[row[key] for key in ("kind", "coverage", "monte_carlo_error", "width", "sets")] for row in rows]
    results_table.table(f"{design}, {size} instructions", columns, table)
    return rows


if __name__ == "__main__":
    main()
