"""What `localjudge label --prefer` saves: intervals of `rank --labels` from doubtful rows and from random ones.

    python benchmarks/label_sampling.py

A judge scores 1,000 rows from 1 to 5, and people's labels differ from its scores by noise that grows with the
judge's doubt, that does not depend on it, or that shrinks with it. Labels of about N rows are drawn by doubt
or at random, and the mean label is estimated. The labels saved are those that the shorter interval would have
cost at random.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.analysis import Floats
from localjudge.analysis.ranking.system_means import drawn_with_chances, prediction_powered
from localjudge.analysis.statistics.resampling import studentise
from localjudge.labelling.preference import doubtful
from localjudge.labelling.sample import chances, draw

ROWS, LABELS, RESAMPLES = 1000, (50, 100, 200), 500
NOISE: dict[str, Callable[[Floats], Floats]] = {
    "grows with the doubt": lambda doubt: 0.1 + 1.5 * doubt,
    "does not depend on it": lambda doubt: np.full_like(doubt, 0.5),
    "shrinks with the doubt": lambda doubt: 1.0 - 0.9 * doubt,
}


def measured(noise: Callable[[Floats], Floats], labels: int, samples: int) -> dict[str, Any]:
    """Return the share of intervals that miss the mean, and their widths, for both kinds of samples."""
    missed, widths = np.zeros(2), np.zeros((2, samples))
    group, weights = np.arange(ROWS), np.ones(ROWS)
    for sample in range(samples):
        random = np.random.default_rng(sample)
        doubt = random.beta(1, 3, ROWS)
        judge = random.uniform(1, 5, ROWS)
        label = judge + 0.3 + noise(doubt) * random.normal(size=ROWS)
        for kind, preferred in enumerate((np.ones(ROWS), doubtful(doubt.tolist()))):
            chance = chances(preferred, np.ones(ROWS, dtype=np.int64), labels)
            known = np.zeros(ROWS, dtype=np.bool_)
            known[draw(chance, random)] = True
            own = label[known]
            found = (
                drawn_with_chances(judge, known, own, chance[known], group, ROWS, weights)
                if kind
                else prediction_powered(judge, known, own, group, ROWS, weights)
            )
            interval = studentise(found, resamples=RESAMPLES, seed=sample)
            missed[kind] += not interval.low[0] <= 3.3 <= interval.high[0]
            widths[kind, sample] = interval.high[0] - interval.low[0]
    ratio = float(widths[1].mean() / widths[0].mean())
    covered = 1 - missed / samples
    return {
        "covered_random": round(float(covered[0]), 3),
        "covered_doubtful": round(float(covered[1]), 3),
        "width_ratio": round(ratio, 3),
        "labels_saved": round(1 - ratio**2, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found = {
        f"{name}, {labels} labels": measured(noise, labels, options.samples)
        for name, noise in NOISE.items()
        for labels in LABELS
    }
    results_table.table(
        f"{options.samples:,} samples each; the noise of the labels …",
        ["", "covered, random", "covered, doubtful", "width ratio", "labels saved"],
        [[name, *one.values()] for name, one in found.items()],
    )
    error = round(float(np.sqrt(0.05 * 0.95 / options.samples)), 4)
    results_table.write(
        "label_sampling",
        {"samples": options.samples, "monte_carlo_error": error, "found": found},
        options.results,
    )


if __name__ == "__main__":
    main()
