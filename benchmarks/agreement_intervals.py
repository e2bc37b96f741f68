"""Which interval each statistic of agreement should have: coverage and width of several, on simulated scores.

    python benchmarks/agreement_intervals.py [--sets 500]

A set has 8 to 100 instructions with 1, 2, 4, or 1 to 4 responses (for shares in order, 2 to 4 in place of 1 to
4). A score is a whole number from 1 to 5. The judge's score and the label come from two normal variables with a
correlation of 0 to .95, half of whose variance belongs to the instruction, and the five scores have about equal
frequencies (`even` of `benchmarks/coverage.py`); or the judge is wrong by one point in 2 to 20 % of the rows,
with the same scores or with three of four scores a 5 (`high`), as in `benchmarks/interval_limits.py`. These are
the cells that count. `skewed` cells are shown beside them: the same correlations with three of four scores a 5.

Three annotators have the same correlation with each other, or are each wrong as often. The differences are
those of `compare --labels`, from a worse judge, whose correlation is .3 lower or who is wrong twice as often,
and who shares a part of the errors.

The methods leave out or resample instructions; G is their number.

* `ours`: that of localjudge's functions.
* `arcsine + 0` to `+ 3`: the jackknife on the scale of the arcsine, for differences without a transformation,
  with the t distribution of G - 1 and 0 to 3 further instructions that change the statistic as much as the one
  that changes it most.
* `Fisher's z`: the jackknife on Fisher's z, for differences on that of the share of their largest value; G - 1.
* `effective t`: the jackknife on Fisher's z, for differences without a transformation, with the t distribution
  of the effective number of instructions that carry the variance, minus 2.
* `BCa` and `percentile`: the bootstrap of instructions.
* `Clopper-Pearson`: for shares of rows, the exact interval of the effective number of rows, which is ours.
* `bootstrap-t`: for the mean absolute error, the interval of means.

`coverage` is that of the sets that have the interval, and `width` their mean width among the sets that have all
intervals but `effective t`, `Fisher's z` and `bootstrap-t`, which are undefined more often. A method breaks in
a cell if its coverage is below 93 % by more than two Monte Carlo errors. `missed` is the share of all sets
whose interval does not contain the true value. Cells with fewer than 50 intervals are left out.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import coverage
import numpy as np
import results_table
from scipy.special import ndtr, ndtri, stdtrit

from localjudge.arrays import Floats, Integers
from localjudge.statistics.agreement_statistics import absolute_error, kappa, spearman
from localjudge.statistics.exact_shares import exact_share
from localjudge.statistics.jackknife import LeftOut, agreement_estimate
from localjudge.statistics.resampling import bootstrap_weights, mean_estimate

INSTRUCTIONS = (8, 13, 20, 40, 100)
RESPONSES = {"1": (1, 1), "2": (2, 2), "4": (4, 4), "1 to 4": (1, 4)}
CORRELATIONS = (0.0, 0.3, 0.6, 0.8, 0.95)
DISAGREEMENTS = (0.02, 0.05, 0.1, 0.2)
FURTHER = (0, 1, 2, 3)
"""Numbers of further instructions that are compared."""
ANNOTATORS = 3
SCORES = 5
POPULATION = 1_000_000
"""Rows from which the true values are estimated."""
BLOCK = 40
"""Sets that are resampled at once, to save memory."""
FOLDS, DRAWS = 5, 10
"""As for the share in order of `localjudge.statistics.within_instructions`."""
REQUIRED = 0.93
SELDOM = ("effective t", "Fisher's z", "bootstrap-t")
"""Methods that are undefined more often."""
CHOSEN = ("ours", "Clopper-Pearson")
"""Methods of localjudge's functions."""
FEWEST = 50
"""Fewest intervals of a cell that is counted."""
SCORE, LABEL = (1.0 + each for each in np.indices((SCORES, SCORES)).reshape(2, -1).astype(np.float64))
"""Score and label of each of the 25 pairs of them."""


@dataclass(frozen=True)
class Population:
    """How the scores of a judge and the labels are drawn.

    Attributes:
        cuts: name of the thresholds of the scores.
        correlation: correlation of the normal variables; 1 for judges that are only rarely wrong.
        wrong: share of the rows where the judge is wrong by one point.
    """

    cuts: str
    correlation: float = 1.0
    wrong: float = 0.0

    @property
    def name(self) -> str:
        if self.wrong:
            return f"{self.cuts}, {self.wrong:.0%} wrong"
        return f"{self.cuts}, correlation {self.correlation:g}"

    @property
    def is_skewed(self) -> bool:
        return self.cuts == "high" and not self.wrong

    @property
    def worse(self) -> Population:
        """The population of the worse judge."""
        return Population(self.cuts, max(self.correlation - 0.3, 0.0), 2 * self.wrong)


POPULATIONS = [Population(cuts, correlation) for cuts in ("even", "high") for correlation in CORRELATIONS]
POPULATIONS += [Population(cuts, wrong=wrong) for cuts in ("even", "high") for wrong in DISAGREEMENTS]


@dataclass(frozen=True)
class Statistic:
    """A statistic of agreement.

    Attributes:
        lowest: smallest possible value.
        highest: largest possible value.
        is_difference: whether it is a difference of two judges.
    """

    lowest: float
    highest: float
    is_difference: bool = False


STATISTICS = {
    "spearman": Statistic(-1, 1),
    "kappa": Statistic(-1, 1),
    "alpha": Statistic(-1, 1),
    "exact": Statistic(0, 1),
    "mae": Statistic(0, SCORES - 1),
    "in order": Statistic(0, 1),
    "difference of spearman": Statistic(-2, 2, True),
    "difference of exact": Statistic(-1, 1, True),
    "difference of mae": Statistic(1 - SCORES, SCORES - 1, True),
    "difference of in order": Statistic(-1, 1, True),
}


@dataclass(frozen=True)
class Values:
    """A statistic of S sets: of the set, without each of G instructions, and in B resamples of instructions."""

    of_set: Floats  # [S]
    without: Floats  # [S, G]
    resampled: Floats  # [S, B]

    def minus(self, other: Values) -> Values:
        return Values(
            self.of_set - other.of_set, self.without - other.without, self.resampled - other.resampled
        )


@dataclass(frozen=True)
class Sets:
    """The rows of S sets with G instructions each, [rows]; `place` is the number of the instruction."""

    sets: int
    instructions: int
    place: Integers
    human: Floats
    better: Floats
    worse: Floats
    annotators: Floats  # [3, rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=500, help="simulated data sets of each cell")
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--instructions", type=int, nargs="+", default=INSTRUCTIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    cells = [cell for cell in measured(options) if cell["intervals"] >= FEWEST]
    kinds = list(summaries(cells, ("statistic", "skewed", "method")))
    results_table.table(
        f"{options.sets} sets of each cell", list(kinds[0]), [list(line.values()) for line in kinds]
    )
    sizes = [
        line
        for line in summaries(cells, ("statistic", "instructions", "method", "skewed"))
        if line["method"] in (*CHOSEN, "effective t")
    ]
    results_table.table("by instructions", list(sizes[0]), [list(line.values()) for line in sizes])
    found = {
        "sets": options.sets,
        "resamples": options.resamples,
        "seed": options.seed,
        "methods": kinds,
        "by_instructions": sizes,
        "broken": [cell for cell in cells if cell["method"] in CHOSEN and _breaks(cell)],
    }
    results_table.write("agreement_intervals", found, options.results)


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the coverage and the width of each method for each statistic in each cell."""
    for instructions in options.instructions:
        weights = np.concatenate(list(bootstrap_weights(instructions, options.resamples, options.seed)))
        for number, (responses, (fewest, most)) in enumerate(RESPONSES.items()):
            for place, population in enumerate(POPULATIONS):
                rng = np.random.default_rng([options.seed, instructions, number, place])
                sizes = rng.integers(fewest, most + 1, options.sets * instructions)
                sets = drawn(rng, population, options.sets, sizes)
                values = values_of_pairs(sets, weights)
                found = {
                    name: intervals(name, values[name]) | alternatives(name, sets, options) for name in values
                }
                if most > 1:
                    several = drawn(rng, population, options.sets, np.maximum(sizes, 2))
                    ordered = values_in_order(several, weights, options.seed)
                    found |= {name: intervals(name, ordered[name]) for name in ordered}
                cell = {
                    "population": population.name,
                    "skewed": population.is_skewed,
                    "instructions": instructions,
                    "responses": responses,
                }
                for name, methods in found.items():
                    for line in covered(methods, truths(population)[name]):
                        yield cell | {"statistic": name} | line


def drawn(rng: np.random.Generator, population: Population, sets: int, sizes: Integers) -> Sets:
    """Draw sets whose instructions have these numbers of responses, [sets * instructions]."""
    place = np.repeat(np.arange(len(sizes)), sizes)
    latent = _normal(rng, place)
    error, other = _normal(rng, place), _normal(rng, place)
    half = math.sqrt(0.5) * (error + other)
    human = _scores(population, latent)
    if population.wrong:
        chance = rng.random(len(place))
        also = np.where(rng.random(len(place)) < 0.5, chance, rng.random(len(place)))
        better = _erring(rng, human, chance < population.wrong)
        worse = _erring(rng, human, also < population.worse.wrong)
        annotators = [_erring(rng, human, rng.random(len(place)) < population.wrong) for _ in range(ANNOTATORS)]
    else:
        better = _scores(population, _mixed(latent, error, population.correlation))
        worse = _scores(population, _mixed(latent, half, population.worse.correlation))
        to_latent = math.sqrt(population.correlation)
        annotators = [
            _scores(population, _mixed(latent, _normal(rng, place), to_latent)) for _ in range(ANNOTATORS)
        ]
    return Sets(sets, len(sizes) // sets, place, human, better, worse, np.stack(annotators))


def _normal(rng: np.random.Generator, place: Integers) -> Floats:
    """Draw standard normal values; half of the variance belongs to the instruction."""
    of_instruction = rng.standard_normal(int(place.max()) + 1)
    values: Floats = math.sqrt(0.5) * (of_instruction[place] + rng.standard_normal(len(place)))
    return values


def _mixed(latent: Floats, error: Floats, correlation: float) -> Floats:
    return correlation * latent + math.sqrt(1 - correlation**2) * error


def _scores(population: Population, latent: Floats) -> Floats:
    levels = np.searchsorted(coverage.CUTS[population.cuts], latent)
    return 1 + levels.astype(np.float64)


def _erring(rng: np.random.Generator, human: Floats, wrong: np.ndarray) -> Floats:
    moved = np.clip(human + rng.choice([-1, 1], len(human)), 1, SCORES)
    return np.where(wrong, moved, human)


@cache
def truths(population: Population) -> dict[str, float]:
    """Estimate the true values from a large set, whose rows each have their own instruction."""
    rng = np.random.default_rng(99)
    many = drawn(rng, population, 1, np.ones(POPULATION, dtype=int))
    found = dict[str, float]()
    for judge in ("better", "worse"):
        counts = _pair_counts(many, getattr(many, judge)).sum(axis=(0, 1))
        for name, statistic in OF_PAIRS.items():
            value = float(statistic(counts[None])[0])
            if judge == "better":
                found[name] = value
            else:
                found[f"difference of {name}"] = found[name] - value
    found["alpha"] = float(_alpha(_coincidences(many).sum(axis=(0, 1))[None])[0])
    pairs = drawn(rng, population, 1, np.full(POPULATION // 2, 2))
    better, worse = (_in_order(pairs, scores)[0].mean(axis=0).max() for scores in (pairs.better, pairs.worse))
    found["in order"], found["difference of in order"] = float(better), float(better - worse)
    return found


def _exact(counts: Floats) -> Floats:
    share: Floats = counts @ (SCORE == LABEL) / counts.sum(axis=1)
    return share


def _alpha(observed: Floats) -> Floats:
    """Return Krippendorff's ordinal alpha of matrices of coincidences, [B, 25]; as `krippendorff.alpha`."""
    matrix = observed.reshape(-1, SCORES, SCORES)
    of_value = matrix.sum(axis=1)
    number = of_value.sum(axis=1)
    position = of_value.cumsum(axis=1) - of_value / 2
    distance = (position[:, :, None] - position[:, None]) ** 2
    expected = np.einsum("bi,bij,bj->b", of_value, distance, of_value)
    apart = (matrix * distance).sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected > 0, 1 - (number - 1) * apart / expected, np.nan)


OF_PAIRS: dict[str, Callable[[Floats], Floats]] = {
    "spearman": lambda counts: spearman(SCORE, LABEL, counts),
    "kappa": lambda counts: kappa(SCORE, LABEL, counts),
    "exact": _exact,
    "mae": lambda counts: absolute_error(SCORE, LABEL, counts),
}
"""The statistics of numbers of pairs, [B, 25]."""


def _pair_counts(sets: Sets, scores: Floats) -> Floats:
    """Return the number of each pair of score and label in each instruction, [S, G, 25]."""
    pair = ((scores - 1) * SCORES + sets.human - 1).astype(int)
    return _counted(sets, pair, 1.0)


def _coincidences(sets: Sets) -> Floats:
    """Return the sum of the matrices of coincidences of each instruction's rows, [S, G, 25]."""
    total = np.zeros((sets.sets, sets.instructions, SCORES**2))
    for first in range(ANNOTATORS):
        for second in range(ANNOTATORS):
            if first != second:
                pair = (sets.annotators[first] - 1) * SCORES + sets.annotators[second] - 1
                total += _counted(sets, pair.astype(int), 1 / (ANNOTATORS - 1))
    return total


def _counted(sets: Sets, pair: Integers, weight: float) -> Floats:
    places = sets.sets * sets.instructions
    counts = np.bincount(sets.place * SCORES**2 + pair, minlength=places * SCORES**2)
    return weight * counts.reshape(sets.sets, sets.instructions, SCORES**2).astype(np.float64)


def values_of_pairs(sets: Sets, weights: Floats) -> dict[str, Values]:
    """Return the statistics of pairs of score and label, and alpha."""
    better, worse = (_pair_counts(sets, scores) for scores in (sets.better, sets.worse))
    of_better, of_worse = _values(better, weights, OF_PAIRS), _values(worse, weights, OF_PAIRS)
    found = of_better | _values(_coincidences(sets), weights, {"alpha": _alpha})
    for name in ("spearman", "exact", "mae"):
        found[f"difference of {name}"] = of_better[name].minus(of_worse[name])
    return found


def _values(
    counts: Floats, weights: Floats, statistics: dict[str, Callable[[Floats], Floats]]
) -> dict[str, Values]:
    """Return statistics of counts of instructions, [S, G, 25]; weights of the resamples are [B, G]."""
    whole = counts.sum(axis=1)
    of_sets = {name: statistic(whole) for name, statistic in statistics.items()}
    without, resampled = defaultdict(list), defaultdict(list)
    for start in range(0, len(counts), BLOCK):
        block = counts[start : start + BLOCK]
        rest = (block.sum(axis=1)[:, None] - block).reshape(-1, SCORES**2)
        again = (weights @ block).reshape(-1, SCORES**2)
        for name, statistic in statistics.items():
            without[name].append(statistic(rest).reshape(len(block), -1))
            resampled[name].append(statistic(again).reshape(len(block), -1))
    return {
        name: Values(of_sets[name], np.concatenate(without[name]), np.concatenate(resampled[name]))
        for name in statistics
    }


def values_in_order(sets: Sets, weights: Floats, seed: int) -> dict[str, Values]:
    """Return the share of pairs of responses in order, and its difference."""
    found = []
    for scores in (sets.better, sets.worse):
        shares = _in_order(sets, scores)
        every = np.ones((1, sets.instructions))
        without = np.ones(sets.instructions) - np.eye(sets.instructions)
        at_once = np.concatenate([every, without, weights])
        values = np.concatenate(
            [_crossfit(shares[at : at + BLOCK], at_once, seed) for at in range(0, len(shares), BLOCK)]
        )
        resampled = values[:, 1 + sets.instructions :]
        found.append(Values(values[:, 0], values[:, 1 : 1 + sets.instructions], resampled))
    return {"in order": found[0], "difference of in order": found[0].minus(found[1])}


def _in_order(sets: Sets, scores: Floats) -> Floats:
    """Return the share of pairs in order of each instruction for each largest tie, 0 to 4, [S, G, 5]."""
    places = sets.sets * sets.instructions
    right, pairs = np.zeros((places, SCORES)), np.zeros(places)
    largest = int(np.bincount(sets.place).max())
    for step in range(1, largest):
        same = sets.place[step:] == sets.place[:-step]
        place = sets.place[step:][same]
        by_judge = (scores[step:] - scores[:-step])[same]
        by_label = np.sign(sets.human[step:] - sets.human[:-step])[same]
        pairs += np.bincount(place, minlength=places)
        for tie in range(SCORES):
            says = np.where(np.abs(by_judge) <= tie, 0, np.sign(by_judge))
            right[:, tie] += np.bincount(place, says == by_label, minlength=places)
    return (right / pairs[:, None]).reshape(sets.sets, sets.instructions, SCORES)


def _crossfit(shares: Floats, weights: Floats, seed: int) -> Floats:
    """Return the share in order as `within_instructions` does, with weights of instructions, [S, B].

    Args:
        shares: the shares of instructions for each largest tie, [S, G, 5].
        weights: weights of the instructions, [B, G].
        seed: the seed of the folds.
    """
    whole = weights @ shares
    total = _at(whole, _best(whole))
    generator = np.random.default_rng(seed)
    instructions = shares.shape[1]
    unseen = np.zeros_like(total)
    for _ in range(DRAWS):
        fold = generator.permutation(instructions) % FOLDS
        for number in range(FOLDS):
            inside = fold == number
            held = weights[:, inside] @ shares[:, inside]
            unseen += _at(held, _best(whole - held)) / DRAWS
    return ((total + unseen) / 2 / weights.sum(axis=1)).round(9)


def _best(shares: Floats) -> Integers:
    best: Integers = shares.round(9).argmax(axis=-1)
    return best


def _at(shares: Floats, place: Integers) -> Floats:
    return np.take_along_axis(shares, place[..., None], axis=-1)[..., 0]


Ends = tuple[Floats, Floats]
"""Both ends of the intervals of S sets; NaN where there is none."""


def intervals(name: str, values: Values) -> dict[str, Ends]:
    """Return the intervals of a statistic by each method."""
    statistic = STATISTICS[name]
    lowest, highest = statistic.lowest, statistic.highest
    middle, half = (lowest + highest) / 2, (highest - lowest) / 2
    most = values.without.shape[1] - 1.0

    def fraction(numbers: Floats) -> Floats:
        return ((numbers - middle) / half).round(12).clip(-1, 1)

    def arcsine(numbers: Floats) -> Floats:
        return numbers if statistic.is_difference else np.arcsin(fraction(numbers))

    def sine(ends: Floats) -> Floats:
        if statistic.is_difference:
            return ends.clip(lowest, highest)
        return middle + half * np.sin(ends.clip(-np.pi / 2, np.pi / 2))

    def z(numbers: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.arctanh(fraction(numbers))

    def tanh(ends: Floats) -> Floats:
        return middle + half * np.tanh(ends)

    found = dict[str, Ends]()
    centre, squares = _squared_changes(arcsine(values.of_set), arcsine(values.without))
    for further in FURTHER:
        reach = stdtrit(most, 0.975) * _error(squares, further)
        found[f"arcsine + {further}"] = (sine(centre - reach), sine(centre + reach))
    on_z, squares_of_z = _squared_changes(z(values.of_set), z(values.without))
    reach = stdtrit(most, 0.975) * _error(squares_of_z)
    found["Fisher's z"] = (tanh(on_z - reach), tanh(on_z + reach))
    if not statistic.is_difference:
        centre, squares, sine = on_z, squares_of_z, tanh
    effective = squares.sum(axis=1) ** 2 / (squares**2).sum(axis=1)
    reach = stdtrit(np.maximum(effective - 2, 1), 0.975) * _error(squares)
    found["effective t"] = (sine(centre - reach), sine(centre + reach))
    return found | _ours(name, values) | _bootstrap(values)


def _ours(name: str, values: Values) -> dict[str, Ends]:
    """Return the intervals of localjudge's functions; none for exact agreement, which has another."""
    if name == "exact":
        return {}
    statistic = STATISTICS[name]
    ends = np.full((2, len(values.of_set)), np.nan)
    for number, (value, without) in enumerate(zip(values.of_set.tolist(), values.without, strict=True)):
        if statistic.is_difference:
            found = LeftOut(value, without).difference(statistic.highest)
        elif name in ("in order", "mae"):
            found = agreement_estimate(value, without, 0.0, highest=statistic.highest, further=0)
        else:
            found = agreement_estimate(value, without)
        if found.low is not None and found.high is not None:
            ends[:, number] = found.low, found.high
    return {"ours": (ends[0], ends[1])}


def _squared_changes(of_set: Floats, without: Floats) -> tuple[Floats, Floats]:
    """Return the values [S] and their squared changes without each instruction [S, G]; NaN if undefined."""
    with np.errstate(invalid="ignore"):
        squares = (without - without.mean(axis=1, keepdims=True)) ** 2
        total = squares.sum(axis=1)
    usable = np.isfinite(of_set + total) & (total > 1e-24)
    return np.where(usable, of_set, np.nan), np.where(usable[:, None], squares, np.nan)


def _error(squares: Floats, further: int = 0) -> Floats:
    """Return standard errors from squared changes [S, G], with further instructions as the largest change."""
    number = squares.shape[1]
    error: Floats = np.sqrt((squares.sum(axis=1) + further * squares.max(axis=1)) * (number - 1) / number)
    return error


def _bootstrap(values: Values) -> dict[str, Ends]:
    """Return the percentile and BCa intervals (Efron & Tibshirani 1993, 14.3)."""
    usable = np.isfinite(values.of_set + values.without.sum(axis=1)) & (np.ptp(values.without, axis=1) > 1e-12)
    ordered = np.sort(values.resampled, axis=1)
    number = np.isfinite(ordered).sum(axis=1)
    below = (ordered < values.of_set[:, None] - 1e-9).sum(axis=1)
    equal = (np.abs(ordered - values.of_set[:, None]) <= 1e-9).sum(axis=1)
    change = values.without.mean(axis=1, keepdims=True) - values.without
    with np.errstate(invalid="ignore", divide="ignore"):
        bias = ndtri((below + equal / 2) / number)
        skew = (change**3).sum(axis=1) / (6 * (change**2).sum(axis=1) ** 1.5)
    found = dict[str, Ends]()
    for name in ("percentile", "BCa"):
        ends = []
        for level in (0.025, 0.975):
            share = np.full(len(number), level)
            if name == "BCa":
                with np.errstate(invalid="ignore"):
                    moved = bias + ndtri(level)
                    share = ndtr(bias + moved / (1 - skew * moved))
            at = np.nan_to_num(share) * np.maximum(number - 1, 0)
            low = np.floor(at).astype(int)
            high = np.minimum(low + 1, np.maximum(number - 1, 0))
            every = np.arange(len(number))
            end = ordered[every, low] + (at - low) * (ordered[every, high] - ordered[every, low])
            ends.append(np.where(usable & np.isfinite(share), end, np.nan))
        found[name] = (ends[0], ends[1])
    return found


def alternatives(name: str, sets: Sets, options: argparse.Namespace) -> dict[str, Ends]:
    """Return the intervals of shares and means that only exact agreement and the absolute error can have."""
    if name not in ("exact", "mae"):
        return {}
    ends = np.full((2, sets.sets), np.nan)
    error = np.abs(sets.better - sets.human)
    of_set = sets.place // sets.instructions
    starts = np.searchsorted(of_set, np.arange(sets.sets + 1))
    for number in range(sets.sets):
        rows = slice(starts[number], starts[number + 1])
        group = sets.place[rows]
        if name == "exact":
            found = exact_share(error[rows] == 0, group)
        else:
            found = mean_estimate(
                error[rows], group, 0, SCORES - 1, resamples=options.resamples, seed=options.seed
            )
        if found.low is not None and found.high is not None:
            ends[:, number] = found.low, found.high
    method = "Clopper-Pearson" if name == "exact" else "bootstrap-t"
    return {method: (ends[0], ends[1])}


def covered(methods: dict[str, Ends], truth: float) -> Iterator[dict[str, Any]]:
    """Yield how often the intervals of each method contain the true value, and their mean width."""
    compared = [low for method, (low, _) in methods.items() if method not in SELDOM]
    every = np.isfinite(compared).all(axis=0)
    for method, (low, high) in methods.items():
        defined = np.isfinite(low)
        held = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
        number = int(defined.sum())
        share = float(held[defined].mean()) if number else math.nan
        widths = (high - low)[every & defined]
        width = float(widths.mean()) if len(widths) else math.nan
        yield {
            "method": method,
            "coverage": _known(share),
            "error": _known(math.sqrt(share * (1 - share) / max(number, 1))),
            "width": _known(width),
            "undefined": round(1 - number / len(low), 4),
            "missed": round(float((defined & ~held).mean()), 4),
            "intervals": number,
        }


def _known(number: float) -> float | None:
    return round(number, 4) if math.isfinite(number) else None


def summaries(cells: list[dict[str, Any]], keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield in how many cells each method breaks, and its mean width, for each value of these keys."""
    grouped = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list)
    for cell in cells:
        grouped[tuple(cell[key] for key in keys)].append(cell)
    for values, group in grouped.items():
        coverages = [cell["coverage"] for cell in group]
        widths = [cell["width"] for cell in group if cell["width"] is not None]
        yield dict(zip(keys, values, strict=True)) | {
            "cells": len(group),
            "breaks": sum(map(_breaks, group)),
            "lowest": min(coverages),
            "mean": round(float(np.mean(coverages)), 4),
            "highest": max(coverages),
            "missed": max(cell["missed"] for cell in group),
            "error": max(cell["error"] for cell in group),
            "undefined": round(float(np.mean([cell["undefined"] for cell in group])), 4),
            "width": round(float(np.mean(widths)), 4) if widths else None,
        }


def _breaks(cell: dict[str, Any]) -> bool:
    """Whether the coverage is below the required one by more than two Monte Carlo errors."""
    return bool(cell["coverage"] + 2 * cell["error"] < REQUIRED)


if __name__ == "__main__":
    main()
