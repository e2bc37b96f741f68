"""How often the gate of `localjudge compare --margin` passes by mistake, and how often it passes no change.

    python benchmarks/gate.py

Each population has a mean change just at the margin, so that every pass is a mistake, on a scale from 1 to 5:
rare and large drops with all else equal or a little better, frequent drops by 1, noise. `worst` and `quantile`
are the settings of `localjudge.statistics.non_inferiority`; the first line, 0 and 0.95, is Student's t without
the betting bound. Power is the share of passes where three in ten instructions move by one point and the mean
does not. `planned` is the chance to pass that `compare` prints and `sample-size --margin` plans with, beside
the share that passes.

`--improve` is measured on changes with a mean of 0: as often up as down, or with one rare large drop and the
others a little better, where the sign-flip test must not be trusted alone.

The same is measured for `--max-fell`, where the share of rows that fell is just what must be ruled out: rows of
60 or 150 instructions that fall alone, all of an instruction together, or often in a fifth of them. An
instruction has the same number of rows as the others, or 1, 2, 3 or 20.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import Floats
from localjudge.statistics.exact_shares import kish_number, share_below
from localjudge.statistics.non_inferiority import (
    QUANTILE,
    WORST_INSTRUCTIONS,
    betting_bound,
    chance_to_pass,
    fewest_to_pass,
    lower_bound,
    studentised_bound,
)
from localjudge.statistics.sign_flip import rise_p
from localjudge.studies.conditions import RISE_LEVEL

WIDTH = 4.0
SETTINGS = ((0.0, 0.95), (1.0, 0.95), (1.0, 0.96), (1.25, 0.95), (WORST_INSTRUCTIONS, QUANTILE), (1.5, 0.96))
MARGINS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
RARE_DROPS = ((20, 0.05, 3.0), (60, 0.05, 3.0), (60, 0.02, 4.0), (200, 0.02, 4.0))
"""The instructions, the share that falls, and by how much."""
UNEQUAL = (1, 2, 3, 20)
"""Numbers of rows of an instruction, drawn with the probabilities .4, .3, .2 and .1."""
SHARES = (
    (60, 1, "alone"), (150, 1, "alone"), (60, 4, "alone"), (150, 4, "together"), (60, 4, "in a fifth"),
    (60, None, "alone"), (150, None, "alone"), (60, None, "together"), (150, None, "together"),
    (150, None, "in a fifth"),
)  # fmt: skip
"""The instructions, the rows of each, or None for unequal numbers, and how rows fall."""
COUNTS = (15, 20, 30, 40, 50, 60, 80, 100, 130, 160, 200, 300, 400, 800)


def populations(margin: float) -> dict[str, tuple[list[float], list[float]]]:
    """Return changes and their probabilities, each with the mean `-margin`, by a name."""
    found = {}
    for drop in (1, 2, 2.5, 3, 3.5, 4) if margin else ():
        if margin <= drop:
            found[f"drops by {drop}"] = ([0.0, -drop], [1 - margin / drop, margin / drop])
    for drop in (3, 4):
        for rise in (0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
            share = (margin + rise) / (drop + rise)
            found[f"drops by {drop}, else {rise} better"] = ([rise, -drop], [1 - share, share])
    for share in (0.1, 0.2, 0.4):
        down = (margin + share) / 4
        found[f"drops by 4, {share:.0%} 1 better"] = ([1.0, 0.0, -4.0], [share, 1 - share - down, down])
    if margin <= 0.5:
        found["1 better or worse"] = ([1.0, 0.0, -1.0], [0.25, 0.5 - margin, 0.25 + margin])
    return found


def bound_with(changes: Floats, worst: float, quantile: float) -> Floats:
    """Return the bound with other settings; without further instructions, it is that of Student's t alone."""
    bound = studentised_bound(changes, WIDTH, worst, quantile)
    return bound if worst == 0 else np.maximum(bound, betting_bound(changes, WIDTH))


def false_rises(samples: int) -> dict[str, float]:
    """Return how often a rise is found where the mean does not change."""
    rng, found = np.random.default_rng(3), {}
    for count in (8, 16, 20, 60):
        changes = rng.choice([1.0, 0.0, -1.0], p=[0.3, 0.4, 0.3], size=(count, samples))
        found[f"1 better or worse, {count} instructions"] = changes
        found[f"normal, {count} instructions"] = rng.normal(0, 0.6, (count, samples))
    for count, share, drop in RARE_DROPS:
        rise = share * drop / (1 - share)
        falls = rng.random((count, samples)) < share
        found[f"drops by {drop:g} in {share:.0%} of {count} instructions, the others better"] = np.where(
            falls, -drop, rise + rng.normal(0, 0.3, (count, samples))
        )
    return {name: float((rise_p(changes, 999, seed=0) <= RISE_LEVEL).mean()) for name, changes in found.items()}


def drawn(values: list[float], shares: list[float], size: tuple[int, int], seed: int) -> Floats:
    return np.random.default_rng(seed).choice(values, p=shares, size=size)


def main() -> None:
    options = _options()
    found: dict[str, dict[str, Any]] = {}
    for worst, quantile in SETTINGS:
        mistakes, passes = [], []
        for margin in MARGINS:
            for name, (values, shares) in populations(margin).items():
                for seed, count in enumerate(COUNTS):
                    changes = drawn(values, shares, (options.samples, count), seed)
                    bound = bound_with(changes, worst, quantile)
                    mistakes.append((float((bound > -margin).mean()), f"{name}, {count}, margin {margin}"))
        rises = np.random.default_rng(0)
        for count in COUNTS:
            # Three in ten instructions move by one point, without a change in the mean.
            changes = rises.choice([1.0, 0.0, -1.0], p=[0.15, 0.7, 0.15], size=(options.samples, count))
            passes.append(float((bound_with(changes, worst, quantile) > -0.2).mean()))
        mistakes.sort(reverse=True)
        found[f"worst {worst:g}, quantile {quantile:g}"] = {
            "most_false_passes": mistakes[0][0],
            "in": mistakes[0][1],
            "cells_above_0.055": sum(share > 0.055 for share, _ in mistakes),
            "cells": len(mistakes),
            "power_by_instructions": dict(zip(map(str, COUNTS), np.round(passes, 3).tolist(), strict=True)),
        }
    equal = fewest_to_pass(0.2, WIDTH)
    results_table.table(
        f"{options.samples:,} samples a cell; the Monte Carlo error of 0.05 is {error(options.samples):.4f}",
        ["", "most false passes", "in", "above .055", "cells"],
        [[name, *[*one.values()][:4]] for name, one in found.items()],
    )
    print(f"{equal} equal instructions exclude a drop of 0.2")
    chances, of_rows = planned(options.samples), false_shares(max(options.samples // 8, 1))
    no_rise = false_rises(options.samples)
    results_table.table(
        "an unchanged system", ["deviation", "instructions", "planned", "passes"], [[*each] for each in chances]
    )
    results_table.table("rows that fell, false passes", ["", "share"], [[*each] for each in of_rows.items()])
    results_table.table("no rise, false passes", ["", "share"], [[*each] for each in no_rise.items()])
    results_table.write(
        "gate",
        {
            "samples": options.samples,
            "equal_instructions_for_0.2": equal,
            "settings": found,
            "unchanged": [
                dict(zip(("deviation", "instructions", "planned", "passes"), each, strict=True))
                for each in chances
            ],
            "false_passes_of_shares": of_rows,
            "false_rises": no_rise,
        },
        options.results,
    )


def planned(samples: int) -> list[tuple[float, int, float, float]]:
    """Return the deviation, the instructions, and the planned and the true chance of an unchanged system."""
    rng, found = np.random.default_rng(1), []
    for deviation in (0.3, 0.55, 1.0):
        for count in (20, 83, 200):
            changes = rng.choice([-1.0, 0.0, 1.0], p=_moves(deviation), size=(samples, count))
            passes = float((lower_bound(changes, WIDTH) > -0.2).mean())
            found.append((deviation, count, chance_to_pass(0.2, deviation**2, WIDTH, count), passes))
    return found


def _moves(deviation: float) -> list[float]:
    """Return the probabilities of -1, 0 and 1 with this standard deviation."""
    return [deviation**2 / 2, 1 - deviation**2, deviation**2 / 2]


def false_shares(samples: int) -> dict[str, float]:
    """Return how often a share of rows passes that is just what must be ruled out."""
    rng, found = np.random.default_rng(2), {}
    for most in (0.02, 0.05, 0.1):
        for count, rows, kind in SHARES:
            passes = 0
            for _ in range(samples):
                sizes = np.full(count, rows or 0)
                if rows is None:
                    sizes = rng.choice(UNEQUAL, p=[0.4, 0.3, 0.2, 0.1], size=count)
                group = np.repeat(np.arange(count), sizes)
                chance = np.full(count, most)
                if kind == "in a fifth":
                    chance = 5 * most * (rng.random(count) < 0.2)
                drawn_numbers = rng.random(count)[group] if kind == "together" else rng.random(len(group))
                fell = drawn_numbers < chance[group]
                passes += share_below(float(fell.mean()), kish_number(group)) < most
            each = "1 to 20" if rows is None else rows
            found[f"{most:g}, {count} instructions, {each} rows {kind}"] = passes / samples
    return found


def error(samples: int) -> float:
    """Return the standard error of a share of 0.05."""
    return float(np.sqrt(0.05 * 0.95 / samples))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
