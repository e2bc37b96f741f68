"""How often the 95 % intervals hold the truth, on simulated judgements whose truth is known.

    python benchmarks/coverage.py [--sets 1000]

A score is a whole number from 1 to 5, cut from a normal variable that its instruction, its system and chance
make up. In the population `even` the five are about equally common; in `high` three of four are a 5, as strong
models get for clarity; in `top` nine of ten. The means are compared with the percentile bootstrap and the
normal interval that one could have picked instead, the prediction-powered ones with the labels alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import report
from scipy.stats import norm

from localjudge.trust.agreement import agree
from localjudge.trust.labels import Labels, Marks
from localjudge.trust.ppi import prediction_powered
from localjudge.trust.ranking import rank
from localjudge.trust.resampling import Contributions, averages, draws, studentise
from localjudge.trust.scores import Scores

CUTS = {
    "even": np.array([-0.84, -0.25, 0.25, 0.84]),
    "high": np.array([-2.3, -1.9, -1.5, -0.67]),
    "top": np.array([-2.6, -2.3, -2.0, -1.28]),
}
SIZES = (30, 80, 200)
"""Instructions; for the prediction-powered means, labelled ones among four times as many."""

STRESS = "top"
"""With thirty instructions about three are not a 5: shown, and not counted."""

STEP = 0.3
"""How much better the second system is, in standard deviations."""

REQUIRED = (
    "mean",
    "mean, 1 to 4 rows each",
    "paired difference",
    "prediction-powered",
    "prediction-powered difference",
)
"""Kinds whose coverage is to be within 93 and 97 %."""

Interval = tuple[float, float]
Found = Iterator[tuple[str, float, dict[str, Interval]]]
"""What was estimated, its true value, and each method's interval."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=report.RESULTS)
    options = parser.parse_args()
    found = []
    for population in CUTS:
        for size in SIZES:
            for simulate in (means, rankings, predictions, agreements):
                found += _count(simulate, population, size, options)
    ours = [
        one
        for one in found
        if one["method"] == "ours" and one["kind"] in REQUIRED and one["population"] != STRESS
    ]
    inside = [one for one in ours if 0.93 <= one["coverage"] <= 0.97]
    print(f"\n{len(inside)} of {len(ours)} within 93 to 97 %")
    outside = [one for one in ours if one not in inside]
    content = {
        "sets": options.sets,
        "seed": options.seed,
        "within_93_to_97": f"{len(inside)} of {len(ours)}",
        "outside": outside,
        "intervals": found,
    }
    report.write("coverage", content, options.results)


def means(rng: np.random.Generator, population: str, size: int, number: int) -> Found:
    """Means over one row an instruction, and over one to four."""
    truth = _mean(population, 0)
    score = _scores(rng, population, np.arange(size), 0)
    yield "mean", truth, _methods(averages(score[:, None], np.arange(size), size), number, 1, 5)
    group = np.repeat(np.arange(size), rng.integers(1, 5, size))
    score = _scores(rng, population, group, 0)
    yield "mean, 1 to 4 rows each", truth, _methods(averages(score[:, None], group, size), number, 1, 5)


def rankings(rng: np.random.Generator, population: str, size: int, number: int) -> Found:
    """The paired difference of two systems, as `rank` finds it; and how often two equal ones are told apart."""
    group = np.tile(np.arange(size), 2)
    system = np.repeat([0, 1], size)
    score = _scores(rng, population, group, STEP * system)
    found = rank(_as_scores(score, group, system), resamples=1000, seed=number)
    pair = found.pairs[0].difference
    between = score[:size] - score[size:]
    others = _methods(averages(between[:, None], np.arange(size), size), number, -4, 4)
    others["ours"] = (_end(pair.low), _end(pair.high))
    yield "paired difference", _mean(population, 0) - _mean(population, STEP), others


def predictions(rng: np.random.Generator, population: str, size: int, number: int) -> Found:
    """The human mean of two systems, and their difference, from labels of a quarter of the instructions."""
    group = np.arange(4 * size)
    labelled = group < size
    both = _pair(rng, population, np.tile(group, 2), STEP * np.repeat([0, 1], len(group)))
    (human, human_2), (judged, judged_2) = (np.split(column, 2) for column in both)
    first = prediction_powered(judged, labelled, human[labelled], group, len(group))
    second = prediction_powered(judged_2, labelled, human_2[labelled], group, len(group))
    alone = averages(human[labelled][:, None], group[labelled], size)
    truth = _mean(population, 0)
    methods = _methods(first, number, 1, 5, percentile=False)
    methods["labels alone"] = _ours(alone, number, 1, 5)
    yield "prediction-powered", truth, methods
    systems = Contributions(
        np.concatenate([first.value, second.value]),
        np.concatenate([first.shares, second.shares], axis=1),
        np.concatenate([first.units, second.units]),
    )
    difference = systems.contrast(np.array([0]), np.array([1]))
    methods = _methods(difference, number, -4, 4, percentile=False)
    alone = averages((human - human_2)[labelled][:, None], group[labelled], size)
    methods["labels alone"] = _ours(alone, number, -4, 4)
    yield "prediction-powered difference", truth - _mean(population, STEP), methods


def agreements(rng: np.random.Generator, population: str, size: int, number: int) -> Found:
    """What `agree` says of a judge's integers, two rows an instruction; half as many sets."""
    if number % 2:
        return
    group = np.repeat(np.arange(size), 2)
    human, judged = _pair(rng, population, group, 0)
    judged = np.clip(np.round(judged), 1, 5)
    rows = np.arange(len(group), dtype=np.int32)
    labels = Labels({"aspect": Marks(rows, np.zeros_like(rows), human)}, ("one",), (), ())
    scores = _as_scores(judged, group, np.zeros_like(group))
    found = agree(scores, labels, resamples=1000, seed=number).aspects["aspect"].comparisons["integer"]
    for name, truth in _agreement_truth(population).items():
        estimate = getattr(found, name)
        yield name, truth, {"ours": (_end(estimate.low), _end(estimate.high))}


_TRUTHS: dict[str, dict[str, float]] = {}


def _agreement_truth(population: str) -> dict[str, float]:
    """From two hundred thousand rows."""
    if population not in _TRUTHS:
        group = np.arange(200_000)
        human, judged = _pair(np.random.default_rng(99), population, group, 0)
        judged = np.clip(np.round(judged), 1, 5)
        rows = np.arange(len(group), dtype=np.int32)
        labels = Labels({"aspect": Marks(rows, np.zeros_like(rows), human)}, ("one",), (), ())
        scores = _as_scores(judged, group, np.zeros_like(group))
        found = agree(scores, labels, resamples=0).aspects["aspect"].comparisons["integer"]
        names = ("pearson", "spearman", "kendall", "kappa", "exact", "mae", "bias")
        _TRUTHS[population] = {name: getattr(found, name).value for name in names}
    return _TRUTHS[population]


def _normal(rng: np.random.Generator, group: np.ndarray) -> np.ndarray:
    """Standard normal, half of it the instruction's."""
    of_group = rng.standard_normal(int(group.max()) + 1)
    return np.sqrt(0.5) * (of_group[group] + rng.standard_normal(len(group)))


def _scores(rng: np.random.Generator, population: str, group: np.ndarray, shift: Any) -> np.ndarray:
    return 1.0 + np.searchsorted(CUTS[population], _normal(rng, group) + shift)


def _pair(rng: np.random.Generator, population: str, group: np.ndarray, shift: Any) -> tuple[np.ndarray, ...]:
    """A human score, and an expected score of a judge that sees most of it, squeezed and a little too kind."""
    latent = _normal(rng, group) + shift
    human = 1.0 + np.searchsorted(CUTS[population], latent)
    seen = 0.8 * latent + 0.6 * rng.standard_normal(len(group))
    middle = 0.5 * (CUTS[population][1] + CUTS[population][2])
    return human, 1 + 4 / (1 + np.exp(-1.2 * (seen - middle) - 0.2))


def _mean(population: str, shift: float) -> float:
    """The true mean score: 1 and the chance to pass each cut."""
    return float(1 + norm.sf(CUTS[population] - shift).sum())


def _as_scores(score: np.ndarray, group: np.ndarray, system: np.ndarray) -> Scores:
    return Scores(
        aspects=("aspect",),
        lowest=1,
        highest=5,
        folders=(Path("simulated"),),
        manifests=({"settings": {}},),
        ids=[""] * len(score),
        keys=[""] * len(score),
        run=np.zeros(len(score), dtype=np.int32),
        systems=("first", "second")[: int(system.max()) + 1],
        system=system.astype(np.int32),
        group=group.astype(np.int32),
        integer=score[:, None].astype(np.int32),
        expected=None,
        failed=0,
    )


def _ours(estimates: Contributions, seed: int, lowest: float, highest: float) -> Interval:
    found = studentise(estimates, lowest, highest, symmetric=lowest == -highest, seed=seed)
    return float(found.low[0]), float(found.high[0])


def _methods(
    estimates: Contributions, seed: int, lowest: float, highest: float, percentile: bool = True
) -> dict[str, Interval]:
    """Our interval, and those that one could have picked."""
    value, shares, units = estimates.value[0], estimates.shares[:, 0], estimates.units[0]
    error = np.sqrt((shares**2).sum() * units / (units - 1))
    found = {
        "ours": _ours(estimates, seed, lowest, highest),
        "normal": (value - 1.96 * error, value + 1.96 * error),
    }
    if percentile:
        drawn = np.concatenate([weights @ shares for weights in draws(len(shares), 1000, seed)])
        low, high = np.quantile(value + drawn, [0.025, 0.975])
        found["percentile"] = (float(low), float(high))
    return found


def _end(value: float | None) -> float:
    return float("nan") if value is None else value


def _count(
    simulate: Callable[..., Found], population: str, size: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Coverage and mean width of each method. Sets without an interval are counted apart."""
    held: dict[tuple[str, str], list[tuple[bool, float]]] = defaultdict(list)
    without: dict[tuple[str, str], int] = defaultdict(int)
    seed = np.random.SeedSequence([options.seed, size, list(CUTS).index(population), len(simulate.__name__)])
    rng = np.random.default_rng(seed)
    for number in range(options.sets):
        for kind, truth, intervals in simulate(rng, population, size, number):
            for method, (low, high) in intervals.items():
                if np.isfinite(low) and np.isfinite(high):
                    held[kind, method].append((low <= truth <= high, high - low))
                else:
                    without[kind, method] += 1
    found = []
    for (kind, method), each in held.items():
        inside, widths = np.array(each, dtype=np.float64).T
        found.append(
            {
                "population": population,
                "instructions": size,
                "kind": kind,
                "method": method,
                "sets": len(each),
                "undefined": without[kind, method],
                "coverage": round(float(inside.mean()), 4),
                "width": round(float(widths.mean()), 4),
            }
        )
    rows = [[one["kind"], one["method"], one["coverage"], one["width"], one["undefined"]] for one in found]
    columns = ["interval", "method", "coverage", "width", "undefined"]
    report.table(f"{population}, {size} instructions, {options.sets} sets", columns, rows)
    return found


if __name__ == "__main__":
    main()
