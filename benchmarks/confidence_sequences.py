"""How often a sweep that is read again and again calls equal systems different; how soon it finds the best.

    python benchmarks/confidence_sequences.py

Each sweep judges the responses of some systems to the same instructions on a scale from 1 to 5 and is read
after every tenth instruction. In a share of the instructions all systems are equal; else a score is the
instruction's level, the system's own and noise, rounded. "Intervals" are those that `rank` prints for complete
runs, read in the same way; "sequences" are those of incomplete runs
(`localjudge.statistics.confidence_sequence`).
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import Floats
from localjudge.statistics.confidence_sequence import ConfidenceSequence
from localjudge.statistics.resampling import studentise
from localjudge.statistics.system_means import column_means

REACH = 4.0
FIRST, EVERY = 20, 10
SWEEPS = {
    "2 equal systems": (0.0, 0.0),
    "4 equal systems": (0.0, 0.0, 0.0, 0.0),
    "2 systems, 0.2 apart": (0.2, 0.0),
    "2 systems, 0.5 apart": (0.5, 0.0),
    "4 systems, the best by 0.3": (0.3, 0.0, 0.0, -0.3),
}
DATA = {"noise": (0.8, 0.0), "expected scores": (0.3, 0.0), "seven in ten equal": (1.2, 0.7)}
"""The standard deviation of the noise, and the share of instructions on which all systems are equal."""


def sweep(levels: tuple[float, ...], data: str, instructions: int, seed: int) -> Floats:
    """Return the scores of a sweep, [instructions, systems], with the means `levels` above a common one."""
    random = np.random.default_rng(seed)
    noise, equal = DATA[data]
    level = random.choice([2.0, 3.0, 4.0], instructions)[:, None]
    exact = level + np.array(levels) / (1 - equal) + random.normal(0, noise, (instructions, len(levels)))
    exact = np.where(random.random(instructions)[:, None] < equal, level, exact)
    return np.clip(exact if data == "expected scores" else np.rint(exact), 1, 5)


def read(scores: Floats, pairs: Floats, seed: int) -> dict[str, int]:
    """Return after how many instructions each kind finds that the best system differs from all others."""
    between = scores[:, pairs[0]] - scores[:, pairs[1]]
    best = pairs[0] == 0
    found = {}
    for count in range(FIRST, len(scores) + 1, EVERY):
        estimates = column_means(between[:count])
        tested = studentise(estimates, -REACH, REACH, symmetric=True, resamples=300, seed=seed)
        p = {"intervals": tested.adjusted()}
        p["sequences"] = ConfidenceSequence(between[:count], -REACH, REACH, together=True).p
        for kind, each in p.items():
            if kind not in found and (each[best] < 0.05).all():
                found[kind] = count
            if f"any, {kind}" not in found and (each < 0.05).any():
                found[f"any, {kind}"] = count
        if len(found) == 4:
            break
    return found


def main() -> None:
    options = _options()
    lines: list[list[Any]] = []
    for name, levels in SWEEPS.items():
        pairs = np.array([*combinations(range(len(levels)), 2)]).T
        for data in DATA:
            truth = sweep(levels, data, 400_000, 10**6).mean(axis=0)
            sweeps = [sweep(levels, data, options.instructions, seed) for seed in range(options.sweeps)]
            looks = [read(each, pairs, seed) for seed, each in enumerate(sweeps)]
            covered = [_covers(each, truth, pairs) for each in sweeps]
            kinds = ("intervals", "sequences")
            alarms = [float(np.mean([f"any, {kind}" in each for each in looks])) for kind in kinds]
            counts = [each.get("sequences", options.instructions) for each in looks]
            decided = float(np.mean(["sequences" in each for each in looks]))
            lines.append([name, data, *alarms, float(np.mean(covered)), decided, float(np.median(counts))])
    error = (0.05 * 0.95 / options.sweeps) ** 0.5
    results_table.table(
        f"{options.sweeps} sweeps of {options.instructions} instructions; error of 0.05: {error:.3f}",
        [
            "sweep",
            "scores",
            "any pair, intervals",
            "any pair, sequences",
            "covered",
            "best known",
            "instructions",
        ],
        lines,
    )
    names = (
        "sweep",
        "scores",
        "intervals_find",
        "sequences_find",
        "covered",
        "best_known",
        "median_instructions",
    )
    results_table.write(
        "confidence_sequences",
        {
            "sweeps": options.sweeps,
            "instructions": options.instructions,
            "cells": [dict(zip(names, line, strict=True)) for line in lines],
        },
        options.results,
    )


def _covers(scores: Floats, truth: Floats, pairs: Floats) -> bool:
    """Return whether the intervals of all pairs contain the differences at every look."""
    between = scores[:, pairs[0]] - scores[:, pairs[1]]
    found = ConfidenceSequence(between, -REACH, REACH, together=True)
    true = truth[pairs[0]] - truth[pairs[1]]
    return bool(((found.low <= true) & (true <= found.high)).all())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--instructions", type=int, default=200)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
