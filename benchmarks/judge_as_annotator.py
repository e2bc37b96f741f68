"""What the alternative annotator test of `agree` says about judges whose true place among people is known.

    python benchmarks/judge_as_annotator.py [--sets 400]

An annotator's label is the quality of a row with noise: `scores` are five levels, `labels` have no order (the
annotator sees the right one of four in 70 % of the rows and guesses in the others), `pairs` are won, lost or
tied. A judge is like one more annotator, but random in a share of the rows: in none (`one more`), or in so many
that it is epsilon or twice epsilon behind an annotator. The judge `better` has half of the noise.

* `closer`: share of the sets in which the judge is closer to the others than an annotator is (equal: half).
* `holds`: share of the sets in which the interval of the advantage contains its true value.
* `winning_rate`: its mean. For a judge that is epsilon behind, it is the share of false results for one
  annotator.
* `approved`: share of the sets with a winning rate of 0.5 or more. It is false for a judge that is epsilon
  behind.

Each figure has its Monte Carlo standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from scipy.stats import norm

from localjudge.arrays import LabelArray
from localjudge.statistics.annotators import EPSILON, AnnotatorTest, replace_annotators

DISTANCES: dict[str, Callable[..., np.ndarray]] = {
    "scores": lambda given, other: (given - other) ** 2,
    "labels": np.not_equal,
    "pairs": lambda given, other: np.abs(given - other),
}
BEHIND = {"one more": 0.0, "epsilon behind": EPSILON, "2 epsilon behind": 2 * EPSILON}
DESIGNS = ((40, 1), (200, 1), (200, 4))
"""Numbers of rows, and of rows of one instruction."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=400, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for kind, annotators in product(DISTANCES, (3, 5)):
        lines = [
            line
            for design in DESIGNS
            for line in _tested(kind, annotators, *design, options.sets, options.seed)
        ]
        found += lines
        columns = list(lines[0])
        results_table.table(
            f"{kind}, {annotators} annotators", columns, [list(line.values()) for line in lines]
        )
    content = {"sets": options.sets, "seed": options.seed, "epsilon": EPSILON, "tests": found}
    results_table.write("judge_as_annotator", content, options.results)


def _tested(kind: str, annotators: int, rows: int, per: int, sets: int, seed: int) -> list[dict[str, Any]]:
    """Return a line for each judge."""
    rng = np.random.default_rng([seed, annotators, rows, per, len(kind)])
    random = _test(rng, kind, annotators, 20_000, 1, 1.0, 1.0, 0).advantage.value or 0.0
    judges = {name: (-behind / random, 1.0, -behind) for name, behind in BEHIND.items()}
    better = _test(rng, kind, annotators, 20_000, 1, 0.0, 0.5, 0).advantage.value or 0.0
    judges["better"] = 0.0, 0.5, better
    lines = []
    for judge, (guessed, noise, truth) in judges.items():
        results = []
        for _ in range(sets):
            test = _test(rng, kind, annotators, rows, per, guessed, noise, 300)
            advantage = test.advantage
            assert advantage.value is not None
            held = np.nan
            if advantage.low is not None and advantage.high is not None:
                held = float(advantage.low <= truth <= advantage.high)
            closer = (np.sign(advantage.value) + 1) / 2
            results.append((closer, held, test.winning_rate, float(test.winning_rate >= 0.5)))
        line = {"kind": kind, "annotators": annotators, "rows": rows, "rows of an instruction": per}
        line |= {"judge": judge, "advantage": round(truth, 3) + 0.0}
        for name, values in zip(
            ("closer", "holds", "winning_rate", "approved"), np.transpose(results), strict=True
        ):
            values = values[np.isfinite(values)]
            line[name] = round(float(values.mean()), 4)
            line[f"{name}_error"] = round(float(values.std() / len(values) ** 0.5), 4)
        lines.append(line)
    return lines


def _test(
    rng: np.random.Generator,
    kind: str,
    annotators: int,
    rows: int,
    per: int,
    guessed: float,
    noise: float,
    resamples: int,
) -> AnnotatorTest:
    """Test a judge that guesses in a share of the rows and else has `noise` times the noise of an annotator."""
    group = np.arange(rows) // per
    quality = rng.standard_normal(group[-1] + 1)[group]
    if per > 1:
        quality = (quality + rng.standard_normal(rows)) * 0.5**0.5
    guess = _label(rng, kind, rng.standard_normal(rows), 1.0)
    judged = np.where(rng.random(rows) < guessed, guess, _label(rng, kind, quality, noise))
    labels = [_label(rng, kind, quality, 1.0) for _ in range(annotators)]
    marks = LabelArray(
        np.tile(np.arange(rows), annotators), np.repeat(np.arange(annotators), rows), np.concatenate(labels)
    )
    names = tuple(str(number) for number in range(annotators))
    found = replace_annotators(marks, judged, group, names, DISTANCES[kind], resamples, 0)
    assert found is not None
    return found


def _label(rng: np.random.Generator, kind: str, quality: np.ndarray, noise: float) -> np.ndarray:
    """Draw one annotator's labels of rows of this quality."""
    seen = quality + noise * rng.standard_normal(len(quality))
    if kind == "scores":
        return 1.0 + np.searchsorted([-0.84, -0.25, 0.25, 0.84], seen * 0.5**0.5)
    if kind == "pairs":
        return np.select([seen > 0.6, seen < -0.6], [1.0, 0.0], 0.5)
    right = np.floor(4 * norm.cdf(quality))
    return np.where(rng.random(len(quality)) < 0.3 * noise, rng.integers(0, 4, len(quality)), right)


if __name__ == "__main__":
    main()
