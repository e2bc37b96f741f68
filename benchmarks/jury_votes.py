"""How often the intervals of `jury --labels` contain the number of independent votes, on simulated jurors.

    python benchmarks/jury_votes.py [--sets 400]

Each juror shares the error of a row with the others in a share of the cases (`labels`: three labels, 30 %
wrong), or the errors are normal and rounded with a common part (`scores`). The true number of votes comes from
two million errors. `printed` is the share of the sets that have an interval; `below` and `above` are the shares
of the printed intervals that lie below and above the true value. `percentile` is the expanded percentile
interval of resampled instructions, for comparison. Each coverage has its Monte Carlo standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from scipy.special import ndtr, stdtrit

from localjudge.arrays import Floats, LabelArray
from localjudge.statistics import Estimate
from localjudge.statistics.jury_agreement import RatedAspect, jury_errors, mean_correlation
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, bootstrap_weights

SHARED = (0.0, 0.3, 0.7, 0.9, 0.97)
SIZES = (15, 30, 100)
RESAMPLES = 300


def expanded_percentile(value: float, resampled: Floats, groups: int) -> Estimate:
    """Return a statistic with its expanded percentile interval, from its values in resamples.

    The interval is undefined if there are fewer than five instructions, or if the statistic is defined in fewer
    than nine of ten resamples.

    Args:
        value: the statistic of the sample.
        resampled: the statistic of each resample, [B]; NaN if it is undefined.
        groups: number of instructions.
    """
    kept = resampled[np.isfinite(resampled)]
    if groups < MIN_INSTRUCTIONS or len(kept) < 0.9 * len(resampled):
        return Estimate.from_floats(value)
    tails = ndtr(stdtrit(groups - 1, [0.025, 0.975]) * np.sqrt(groups / (groups - 1)))
    low, high = np.quantile(kept, tails)
    return Estimate.from_floats(value, min(low, value), max(high, value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=400, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found = []
    for kind, jurors in product(("labels", "scores"), (3, 9)):
        lines = [line for shared in SHARED for line in _votes(kind, jurors, shared, options.sets, options.seed)]
        results_table.table(f"{kind}, {jurors} jurors", list(lines[0]), [list(line.values()) for line in lines])
        found += lines
    results_table.write(
        "jury_votes", {"sets": options.sets, "seed": options.seed, "votes": found}, options.results
    )


def _votes(kind: str, jurors: int, shared: float, sets: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the coverage of both intervals, for each number of rows."""
    rng = np.random.default_rng([seed, jurors, int(100 * shared), len(kind)])
    many = np.corrcoef(_errors(rng, kind, 2_000_000 // jurors, jurors, shared), rowvar=False)
    truth = jurors / (1 + (jurors - 1) * many[np.triu_indices(jurors, 1)].mean())
    for rows in SIZES:
        ends: dict[str, list[tuple[float, float]]] = {"ours": [], "percentile": []}
        for number in range(sets):
            errors = _errors(rng, kind, rows, jurors, shared)
            estimates = {"ours": _printed(kind, errors), "percentile": _percentile(errors, number)}
            for method, estimate in estimates.items():
                if estimate.low is not None and estimate.high is not None:
                    ends[method].append((estimate.low, estimate.high))
        for method, each in ends.items():
            line = {
                "kind": kind,
                "jurors": jurors,
                "shared": shared,
                "votes": round(float(truth), 3),
                "rows": rows,
            }
            line |= {"method": method, "printed": round(len(each) / sets, 3)}
            low, high = np.array(each, dtype=float).reshape(-1, 2).T
            share = float(((low <= truth) & (truth <= high)).mean()) if each else float("nan")
            line |= {
                "coverage": round(share, 4),
                "error": round((share * (1 - share) / max(len(each), 1)) ** 0.5, 4),
                "below": round(float((high < truth).sum()) / max(len(each), 1), 4),
                "above": round(float((low > truth).sum()) / max(len(each), 1), 4),
                "median width": round(float(np.median(high - low)), 3) if each else None,
            }
            yield line


def _errors(rng: np.random.Generator, kind: str, rows: int, jurors: int, shared: float) -> np.ndarray:
    """Draw the errors of the jurors, [rows, k]: 0 and 1 for labels, whole numbers for scores."""
    if kind == "labels":
        same = rng.random((rows, jurors)) < shared**0.5
        return np.where(same, rng.random((rows, 1)) < 0.3, rng.random((rows, jurors)) < 0.3).astype(float)
    common = rng.standard_normal((rows, 1))
    return np.round(shared**0.5 * common + (1 - shared) ** 0.5 * rng.standard_normal((rows, jurors)))


def _printed(kind: str, errors: np.ndarray) -> Any:
    """Return the number of votes as `jury` prints it, for rows whose right label is 0."""
    rows = np.arange(len(errors), dtype=np.int32)
    values = {0: "right", 1: "wrong"} if kind == "labels" else {0: 0, 20: 20}
    scale = "nominal" if kind == "labels" else "ordinal"
    marks = LabelArray(rows, np.zeros_like(rows), np.full(len(rows), 0.0 if kind == "labels" else 10.0))
    table = errors if kind == "labels" else errors + 10
    rated = RatedAspect("simulated", scale, table.astype(np.int32), values)
    scores = None if kind == "labels" else table
    names = [str(juror) for juror in range(errors.shape[1])]
    return jury_errors(rated, scores, marks, rows, names, 1, 0).votes


def _percentile(errors: np.ndarray, seed: int) -> Any:
    rows, jurors = errors.shape
    weights = [np.ones((1, rows)), *bootstrap_weights(rows, RESAMPLES, seed)]
    found = np.concatenate([mean_correlation(errors, each) for each in weights])
    with np.errstate(divide="ignore"):
        votes = jurors / np.maximum(1 + (jurors - 1) * found, 0)
    return expanded_percentile(votes[0], votes[1:], rows)


if __name__ == "__main__":
    main()
