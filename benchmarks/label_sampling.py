"""What `localjudge label --prefer` saves, and whether the intervals of statistics of its labels hold.

    python benchmarks/label_sampling.py

A judge scores 1,000 rows from 1 to 5, and people's labels differ from its scores by noise that grows with the
judge's doubt, that does not depend on it, or that shrinks with it. Labels of about N rows are drawn by doubt
or at random, and the mean label is estimated as by `rank --labels`. The labels saved are those that the shorter
interval would have cost at random.

The statistics of `agree` are computed from labels of 120 rows, of two rows for each instruction, and from the
first half of them, where a person has stopped; with the chances, and as if they were equal. The truth is the
value in two million rows. The mean of the map of `calibrate` over all rows is compared with the mean label.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.labelling.sample import chances, doubtful, draw
from localjudge.statistics.agreement_statistics import Comparison, compare
from localjudge.statistics.prediction_powered import drawn_with_chances, prediction_powered
from localjudge.statistics.resampling import studentise
from localjudge.studies.calibrate import fit_map

STATISTICS = "spearman", "kappa", "exact", "bias"
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


def _instructions(noise: Callable[[Floats], Floats], count: int, random: np.random.Generator) -> list[Floats]:
    """Return the doubt of each instruction, and its judge's scores and labels from 1 to 5, both [count, 2]."""
    doubt = random.beta(1, 3, count)
    judge = np.clip(random.uniform(1, 5, (count, 1)) + random.normal(0, 0.7, (count, 2)), 1, 5)
    label = judge + 0.3 + noise(doubt)[:, None] * random.normal(size=(count, 2))
    return [doubt, np.clip(judge.round(), 1, 5), np.clip(label.round(), 1, 5)]


def _compared(judge: Floats, label: Floats, chosen: Integers, weight: Floats | None, seed: int) -> Comparison:
    """Compare the chosen rows, with equal weights or with these; two rows are of one instruction."""
    marks = LabelArray(chosen.astype(np.int32), np.zeros(len(chosen), np.int32), label[chosen], weight)
    return compare(judge, marks, np.arange(len(judge)) // 2, (1, 5), RESAMPLES // 2, seed)


def agreement(noise: Callable[[Floats], Floats], samples: int) -> dict[str, Any]:
    """Return how often the intervals of each statistic contain the truth, for each kind of sample."""
    _, judge, label = (each.ravel() for each in _instructions(noise, 1_000_000, np.random.default_rng(samples)))
    every = np.bincount((judge * 8 + label).astype(int))
    cell = np.flatnonzero(every)
    row = np.arange(len(cell), dtype=np.int32)
    marks = LabelArray(row, np.zeros_like(row), (cell % 8).astype(float), every[cell].astype(float))
    truth = compare((cell // 8).astype(float), marks, row, (1, 5), 100, 0)
    covered: dict[str, dict[str, list[bool]]] = {}
    shifts: dict[str, list[float]] = {}
    for sample in range(samples):
        random = np.random.default_rng(sample)
        doubt, judge, label = (each.ravel() for each in _instructions(noise, ROWS // 2, random))
        for kind, preferred in (("random", np.ones(len(doubt))), ("doubtful", doubtful(doubt.tolist()))):
            chance = chances(preferred, np.full(len(doubt), 2), 120)
            rows: Integers = (2 * draw(chance, random)[:, None] + np.array([0, 1])).ravel()
            weight, half = 1 / chance[rows // 2], rows[: len(rows) // 2 - 1]  # it ends within an instruction
            kinds: list[tuple[str, Integers, Floats | None]]
            if kind == "random":
                kinds = [("random", rows, None), ("random, stopped at half", half, None)]
            else:
                kinds = [("doubtful", rows, weight), ("doubtful, stopped at half", half, weight[: len(half)])]
                kinds.append(("doubtful, chances ignored", rows, None))
            for name, chosen, given in kinds:
                found = _compared(judge, label, chosen, given, sample)
                for statistic in STATISTICS:
                    own_truth, known = getattr(truth, statistic).value, getattr(found, statistic)
                    held = known.low is not None and known.low <= own_truth <= known.high
                    covered.setdefault(name, {}).setdefault(statistic, []).append(held)
                points = fit_map(judge[chosen], label[chosen], chosen // 2, 0, sample, given)
                mapped = np.interp(judge, points.x, points.y)
                shifts.setdefault(name, []).append(float(mapped.mean() - label.mean()))
    return {
        name: {statistic: round(float(np.mean(held)), 3) for statistic, held in of_kind.items()}
        | {
            "calibrated_mean_error": round(float(np.mean(shifts[name])), 4),
            "calibrated_mean_monte_carlo": round(float(np.std(shifts[name]) / samples**0.5), 4),
        }
        for name, of_kind in covered.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000, help="for rank; 0 leaves it out")
    parser.add_argument("--agreements", type=int, default=200, help="samples for agree; 0 leaves it out")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    if options.samples:
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
        results_table.write("label_sampling", _results(options.samples, found), options.results)
    if options.agreements:
        agreed = {name: agreement(noise, options.agreements) for name, noise in NOISE.items()}
        for name, kinds in agreed.items():
            results_table.table(
                f"Covered, {options.agreements:,} samples; the noise of the labels {name}",
                ["", *next(iter(kinds.values()))],
                [[kind, *one.values()] for kind, one in kinds.items()],
            )
        results_table.write("label_agreement", _results(options.agreements, agreed), options.results)


def _results(samples: int, found: dict[str, Any]) -> dict[str, Any]:
    error = round(float(np.sqrt(0.05 * 0.95 / samples)), 4)
    return {"samples": samples, "monte_carlo_error": error, "found": found}


if __name__ == "__main__":
    main()
