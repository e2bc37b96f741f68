"""Where intervals hold less than their level, and what a cure costs: the numbers that the guide states.

    python benchmarks/known_limits.py [--sets 400]

`rare drops`: the interval of `compare` for the change on instructions that vary by a normal deviation, and of
which a share falls by much. `1/4` and `5/4` is the same interval, stretched to the bounds that count so many
more instructions with the largest drop and with the largest rise, as the bound of a gate does; `wider` is how
many times as wide. The lines without drops are usual changes. `rank` has the same interval for two systems.

`large hard instructions`: the labels of new responses that an interval of `calibrate --interval 0.9` holds, by
instructions, by rows, and of the rows of large instructions alone. These have 20 responses, the others two.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import Floats, LabelArray
from localjudge.statistics.non_inferiority import QUANTILE, WORST_INSTRUCTIONS, studentised_bound
from localjudge.statistics.paired_test import tested_changes
from localjudge.statistics.score_interval import ScoreInterval

WIDTH = 4.0
DROPS = (
    (20, 0.3, 0.05, 3.0),
    (60, 0.3, 0.05, 3.0),
    (60, 0.3, 0.02, 4.0),
    (200, 0.3, 0.02, 4.0),
    (20, 0.6, 0.05, 3.0),
    (60, 0.6, 0.02, 4.0),
    *((count, noise, 0.0, 0.0) for noise in (0.3, 0.6, 1.0) for count in (20, 60, 200)),
)
"""The instructions, the deviation of their changes, the share that falls, and by how much."""
ALLOWED = {"1/4": (0.25, 0.975), "5/4": (WORST_INSTRUCTIONS, (1 + QUANTILE) / 2)}
"""The further instructions, and the quantile of Student's t."""
LARGE = ((0.0, 0.5), (0.1, 1.0), (0.1, 1.5), (0.2, 1.5))
"""The share of the instructions that are large, and the deviation of their labels; the others have 0.5."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    studies = {
        "rare drops": [*rare_drops(options.sets)],
        "large hard instructions": [*large_instructions(options.sets // 4)],
    }
    for title, found in studies.items():
        results_table.table(title, list(found[0]), [list(line.values()) for line in found])
    results_table.write("known_limits", {"sets": options.sets, **studies}, options.results)


def rare_drops(sets: int) -> Iterator[dict[str, Any]]:
    """Yield how often the printed interval of a change holds, and the same with allowances for drops."""
    rng = np.random.default_rng(0)
    for count, noise, share, drop in DROPS:
        held: dict[str, list[bool]] = {name: [] for name in ("compare", *ALLOWED)}
        widths: dict[str, list[float]] = {name: [] for name in held}
        for seed in range(sets):
            change = rng.normal(0, noise, count) - drop * (rng.random(count) < share)
            [found] = tested_changes(np.zeros((count, 1)), change[:, None], np.array([WIDTH]), 300, seed)
            low, high = found.difference.low, found.difference.high
            if low is None or high is None:
                continue
            ends = {"compare": (low, high)}
            for name, (worst, quantile) in ALLOWED.items():
                bounds = (float(studentised_bound(each, WIDTH, worst, quantile)) for each in (change, -change))
                ends[name] = min(low, next(bounds)), max(high, -next(bounds))
            for name, (low, high) in ends.items():
                held[name].append(low <= -share * drop <= high)
                widths[name].append(high - low)
        printed, mean = len(held["compare"]), np.mean(held["compare"])
        yield {
            "instructions": count,
            "deviation": noise,
            "share": share,
            "drop": drop,
            "printed": round(printed / sets, 3),
            "holds": round(float(mean), 3),
            "error": round(float(np.sqrt(mean * (1 - mean) / printed)), 3),
            "width": round(float(np.mean(widths["compare"])), 2),
            **{f"{name} holds": round(float(np.mean(held[name])), 3) for name in ALLOWED},
            **{
                f"{name} wider": round(float(np.mean(widths[name]) / np.mean(widths["compare"])), 2)
                for name in ALLOWED
            },
        }


def large_instructions(sets: int) -> Iterator[dict[str, Any]]:
    """Yield the share of the labels that an interval of 90 % holds where large instructions are hard."""
    rng = np.random.default_rng(1)
    for (share, hard), count in product(LARGE, (60, 200)):
        held = []
        for _ in range(sets):
            expected, label, group, _ = responses(rng, count, share, hard)
            rows = np.arange(len(group), dtype=np.int32)
            labels = LabelArray(rows, np.zeros_like(rows), label)
            fitted = ScoreInterval.fit((1, 5), expected, np.full(len(group), 0.6), labels, group, 0.9)
            expected, label, group, is_large = responses(rng, 400, share, hard)
            ends = np.array([fitted.ends(each, 0.6) for each in expected.tolist()])
            inside = (ends[:, 0] <= label) & (label <= ends[:, 1])
            by_instructions = (np.bincount(group, inside) / np.bincount(group)).mean()
            held.append([by_instructions, inside.mean(), inside[is_large].mean() if share else inside.mean()])
        means = dict(zip(("by instructions", "by rows", "of large ones"), np.mean(held, axis=0), strict=True))
        yield {
            "labelled": count,
            "large": share,
            "deviation": hard,
            **{name: round(float(mean), 3) for name, mean in means.items()},
            "error": round(float(np.std(held, axis=0)[:2].max() / sets**0.5), 4),
        }


def responses(
    rng: np.random.Generator, count: int, share: float, hard: float
) -> tuple[Floats, Floats, np.ndarray, np.ndarray]:
    """Draw the expected score, the label and the instruction of each row, and whether that is a large one."""
    is_large = rng.random(count) < share
    group = np.repeat(np.arange(count), np.where(is_large, 20, 2))
    deviation = np.where(is_large, hard, 0.5)
    expected = rng.uniform(1.5, 4.5, len(group))
    error = 0.6 * rng.normal(size=count)[group] + rng.normal(size=len(group))
    return expected, np.clip(np.round(expected + deviation[group] * error), 1, 5), group, is_large[group]


if __name__ == "__main__":
    main()
