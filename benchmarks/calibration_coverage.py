"""What `calibrate` and `rank` print for simulated labels: approved maps, and means of systems after a map.

    python benchmarks/calibration_coverage.py [--sets 300]

* `maps`: how often `calibrate` shows a gain: for random scores and for a constant with noise (each is a false
  result), and for the scores of a generous judge and of a judge that needs no map.
* `means`: three systems and a judge that is generous and narrows the scale; the bias is `equal`, or the judge
  favours the second system and is strict with the third. Labels are drawn by row or by instruction.
  `error` is the distance from the human means (root mean square) of the judge's means, the calibrated means and
  the prediction-powered means of `--labels`. Then: how often a gain is shown; the share of calibrated means
  that have an interval; how often the intervals of prediction-powered means contain the true value, and those
  of the three differences all together, for the judge's own scores and for the calibrated ones.

Each share has its Monte Carlo standard error.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import coverage
import numpy as np
import results_table

from localjudge.matching.scores import Scores
from localjudge.matching.system_names import SystemNames
from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.rubrics.score_column import score_columns
from localjudge.statistics.ranked_column import RankedColumn
from localjudge.studies.calibrate import fit_map

JUDGES = ("random", "constant", "generous", "good")
SHIFTS = np.array([0.0, 0.2, 0.5])
"""The qualities of the systems."""

BIASES = {"equal": np.zeros(3), "unequal": np.array([0.0, 0.3, -0.3])}
"""How far the judge errs for each system, beside its errors for all."""

LABELS = ((100, 50, "row"), (300, 60, "row"), (300, 150, "row"), (300, 450, "row"), (300, 60, "instruction"))
"""Numbers of instructions and of labels, and whether rows or whole instructions are drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=300, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {"sets": options.sets, "seed": options.seed}
    for name, simulate in {"maps": maps, "means": means}.items():
        found[name] = list(simulate(options))
        results_table.table(name, list(found[name][0]), [list(line.values()) for line in found[name]])
    results_table.write("calibration_coverage", found, options.results)


def maps(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield how often a gain is shown, for each kind of judge; two rows of each instruction are labelled."""
    for judge, population, size in product(JUDGES, ("even", "high"), (20, 50, 150)):
        place = JUDGES.index(judge), list(coverage.CUTS).index(population)
        rng = np.random.default_rng([options.seed, size, *place])
        group, shown = np.repeat(np.arange(size), 2), []
        for number in range(options.sets):
            human, judged = coverage._pair(rng, population, group, 0)
            score = {
                "random": rng.integers(1, 6, len(group)).astype(float),
                "constant": 4 + 0.1 * rng.standard_normal(len(group)),
                "generous": np.minimum(judged + 0.7, 5),
                "good": np.clip(human + 0.3 * rng.standard_normal(len(group)), 1, 5),
            }[judge]
            shown.append(fit_map(score, human, group, 1000, number).has_gain)
        yield {"judge": judge, "population": population, "instructions": size} | _mean("shown", shown)


def means(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the errors of the means of three systems, and the coverage of their intervals."""
    truth = np.array([coverage._mean("even", shift) for shift in SHIFTS])
    for bias, (size, labels, drawn) in product(BIASES, LABELS):
        rng = np.random.default_rng([options.seed, size, labels, len(drawn), len(bias)])
        group, system = np.tile(np.arange(size), 3), np.repeat(np.arange(3), size)
        errors: dict[str, list[Any]] = defaultdict(list)
        shares: dict[str, list[Any]] = defaultdict(list)
        for number in range(options.sets):
            latent = coverage._normal(rng, group) + SHIFTS[system]
            human = 1.0 + np.searchsorted(coverage.CUTS["even"], latent)
            seen = 0.7 * latent + 0.7 * rng.standard_normal(len(group)) + BIASES[bias][system]
            scores = _scores(1 + 4 / (1 + np.exp(-1.2 * seen - 0.5)), system, group)
            if drawn == "row":
                rows = np.sort(rng.choice(len(group), labels, replace=False)).astype(np.int32)
            else:
                rows = np.flatnonzero(np.isin(group, rng.choice(size, labels // 3, replace=False))).astype(
                    np.int32
                )
            column = scores.column("aspect", "expected")
            own = column[rows], human[rows], group[rows]
            points = fit_map(*own, 300, number)
            mapped = np.interp(column, points.x, points.y)
            calibrated = replace(scores, expected=mapped[:, None], calibrated=True)
            shares["shown"].append(points.has_gain)
            errors["judge"].append(_ranked(scores, None, number, "means")[0] - truth)
            at, low, _, _ = _ranked(calibrated, None, number, "means")
            errors["calibrated"].append(at - truth)
            shares["intervals of calibrated means"].append(np.isfinite(low).mean())
            for name, used in {"labels": scores, "labels, calibrated": calibrated}.items():
                at, low, high, pairs = _ranked(used, (rows, human[rows]), number, "human")
                errors[name].append(at - truth)
                given = np.isfinite(low)
                shares[f"{name}: mean"].append(
                    ((low <= truth) & (truth <= high))[given].mean() if given.any() else np.nan
                )
                shares[f"{name}: differences"].append(
                    all(
                        (pair.difference.low or 0.0)
                        <= truth[int(pair.first)] - truth[int(pair.second)]
                        <= (pair.difference.high or 0.0)
                        for pair in pairs
                        if pair.difference.low is not None
                    )
                )
        line = {"bias": bias, "instructions": size, "labels": labels, "drawn": drawn}
        line |= {
            f"error of {name}": round(float(np.sqrt(np.square(each).mean())), 3)
            for name, each in errors.items()
        }
        for name, each in shares.items():
            line |= _mean(name, each)
        yield line


def _ranked(scores: Scores, human: Any, seed: int, of: str) -> tuple[Any, ...]:
    """Return the means that `rank` prints, the ends of their intervals, and the pairs of systems."""
    column = RankedColumn(scores, "aspect", scores.column("aspect", "expected"), (1, 5), None, human, 300, seed)
    ends = [[one.value, one.low, one.high] for one in getattr(column, of)]
    return *np.array(ends, dtype=float).T, column.pairs


def _scores(expected: np.ndarray, system: np.ndarray, group: np.ndarray) -> Scores:
    rows = len(group)
    return Scores(
        columns=score_columns({"aspect": Aspect(scale=Scale(lowest=1, highest=5))}),
        folders=(Path("simulated"),),
        manifests=(),
        names=SystemNames((), ()),
        run=np.zeros(rows, dtype=np.int32),
        lines=[()] * rows,
        ids=[""] * rows,
        identities=[],
        shown=[("", False)] * rows,
        lengths=np.full((rows, 1), np.nan),
        overlap=np.full(rows, np.nan),
        flags=np.zeros(rows, dtype=np.uint8),
        errors=[""] * rows,
        counts=np.ones(rows, dtype=np.bool_),
        signs=(),
        selected=(),
        systems=("0", "1", "2"),
        system=system.astype(np.int32),
        group=group.astype(np.int32),
        integer=np.round(expected)[:, None],
        expected=expected[:, None],
        failed=0,
    )


def _mean(name: str, values: Any) -> dict[str, float]:
    """Return a mean over the sets, with its Monte Carlo standard error; NaN does not count."""
    kept = np.array(values, dtype=float)
    kept = kept[np.isfinite(kept)]
    return {
        name: round(float(kept.mean()), 4),
        f"{name}, error": round(float(kept.std() / len(kept) ** 0.5), 4),
    }


if __name__ == "__main__":
    main()
