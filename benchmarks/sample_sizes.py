"""Whether a comparison of the size that `localjudge sample-size` plans finds the difference as often as asked.

    python benchmarks/sample_sizes.py

Two systems answer instructions of different difficulty; scores are whole numbers from 1 to 5, in the middle of
the scale or near its end. The variance of a difference is measured on a very large pilot, the size is planned
for a power of 0.8, and samples of that size are tested as `rank` tests them, as the table of `compare` does,
and as `compare --improve` does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import results_table

from localjudge.arrays import Floats
from localjudge.statistics.paired_test import instructions_needed, paired_variance
from localjudge.statistics.resampling import averages, studentise
from localjudge.statistics.sign_flip import rise_p, tested_means
from localjudge.studies.conditions import RISE_LEVEL

POPULATIONS = {"middle": (1.0, 2.0, 3.0, 4.0), "near the end": (-1.5, -0.5, 0.5, 1.2)}
"""Where a latent value begins each score from 2 on, after a shift of -2.5 in the middle."""
SHIFTS = (0.3, 0.5, 0.8)
RESPONSES = (1, 2, 4)
PILOT = 200_000


def main() -> None:
    options = _options()
    rows = []
    for name, cuts in POPULATIONS.items():
        edges = np.array(cuts) - (2.5 if name == "middle" else 0.0)
        for shift in SHIFTS:
            for responses in RESPONSES:
                pilot = drawn(np.random.default_rng(0), PILOT, shift, edges, responses)
                group, system = (each.ravel().astype(np.int32) for each in np.indices(pilot.shape)[:2])
                paired = paired_variance(pilot.ravel(), group, system)
                assert paired is not None
                variance, _ = paired
                difference = float((pilot[:, 1] - pilot[:, 0]).mean())
                needed = instructions_needed(difference, variance)
                assert needed is not None
                random = np.random.default_rng(1)
                found: list[list[bool]] = []
                for seed in range(options.samples):
                    sample = drawn(random, needed, shift, edges, responses).mean(axis=2)
                    changes = sample[:, 1:] - sample[:, :1]
                    means = averages(changes, np.arange(needed), needed)
                    by_rank = studentise(means, -4, 4, True, 500, seed).adjusted()[0] < 0.05
                    by_compare = tested_means(changes, -4, 4, 500, seed).adjusted()[0] < 0.05
                    found.append([by_rank, by_compare, rise_p(changes, 500, seed)[0] <= RISE_LEVEL])
                power = np.mean(found, axis=0).round(3).tolist()
                rows.append([name, round(difference, 3), responses, needed, *power])
    columns = ["scores", "difference", "responses", "instructions", "rank", "compare", "--improve"]
    results_table.table(f"power where 0.8 was planned, {options.samples} samples each", columns, rows)
    results_table.write(
        "sample_sizes",
        {"samples": options.samples, "cells": [dict(zip(columns, row, strict=True)) for row in rows]},
        options.results,
    )


def drawn(random: np.random.Generator, count: int, shift: float, edges: Floats, responses: int) -> Floats:
    """Return scores, [instructions, systems, responses]; the second system is better by `shift`."""
    level = random.normal(0, 0.7, (count, 1, 1)) + random.normal(0, 0.4, (count, 2, 1)) + [[0.0], [shift]]
    latent = level + random.normal(0, 0.6, (count, 2, responses))
    return (1 + np.searchsorted(edges, latent)).astype(np.float64)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
