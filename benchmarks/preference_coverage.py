"""How often the 95 % intervals of preferences contain the true value, on simulated pairs of responses.

    python benchmarks/preference_coverage.py [--sets 1000]

Each instruction makes each system better or worse by a normal variable, so that the pairs of an instruction are
correlated. A preference is a probability (`soft`), or its draw, 0 or 1 (`hard`). In the population `close`, the
best system is preferred to the worst in 78 % of the pairs, in `far` in 98 %, and in `equal` in 50 %. Our
intervals are compared with the bootstrap-t that `localjudge rank` uses for means, and with the interval of
logistic regression that takes the pairs as independent. "No false difference" counts the sets in which no two
of equal systems differ significantly.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from scipy.special import expit
from scipy.stats import norm

from localjudge.arrays import Integers
from localjudge.statistics import Estimate
from localjudge.statistics.bradley_terry import Strengths, fit_at_equal_length, fit_strengths
from localjudge.statistics.preferences import PositionEffect, Preferences, direct_win_rates, system_win_rates
from localjudge.statistics.resampling import Contributions, averages, studentise

SIZES = (30, 80, 200)
"""Numbers of instructions."""

SYSTEMS = (3, 12)

POPULATIONS = {"close": (1.5, 0.6), "far": (5.0, 1.0), "equal": (0.0, 0.6)}
"""The range of the strengths in log-odds, and the standard deviation of an instruction's effect on a system."""

STRESS = "far"
"""A population that is shown but not counted: with 30 instructions, one system in two hardly ever loses."""

NOISE = 0.5
"""Standard deviation of a pair's own effect."""

LENGTH = 1.0
"""Effect of the logarithm of length; each system writes longer responses than the one before."""

POSITION = 0.4
"""Effect of the first place in the prompt."""

Held = tuple[str, str, np.ndarray, np.ndarray, np.ndarray]
"""The name of the estimate, the method, both ends of the intervals, and the true values."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="simulated data sets of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found = []
    for population in POPULATIONS:
        for hard in (False, True):
            for systems in SYSTEMS:
                simulation = Simulation(population, hard, systems, options.seed)
                for size in SIZES:
                    found += _count(simulation, size, options.sets)
    ours = [one for one in found if one["method"] == "ours" and not one["data"].startswith(STRESS)]
    outside = [one for one in ours if not 0.93 <= one["coverage"] <= 0.97]
    inside = f"{len(ours) - len(outside)} of {len(ours)}"
    print(f"\n{inside} within 93 to 97 %")
    intervals: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for one in found:
        figures = f"{one['coverage']} · {one['width']} · {one['undefined']}"
        intervals[one["data"]][one["kind"]][one["method"]] = figures
    content = {
        "sets": options.sets,
        "seed": options.seed,
        "within_93_to_97": inside,
        "outside": outside,
        "figures": "coverage · mean width · undefined intervals",
        "intervals": intervals,
    }
    results_table.write("preference_coverage", content, options.results)


class Simulation:
    """Simulated preferences of one population, and the true values of what is estimated.

    Args:
        population: the name of the population.
        hard: preferences are drawn as 0 or 1 in each order, instead of the probability.
        systems: number of systems; all pairs are compared on each instruction.
        seed: seed of the simulation.
    """

    def __init__(self, population: str, hard: bool, systems: int, seed: int) -> None:
        self.population, self.hard, self.systems, self.seed = population, hard, systems, seed
        reach, self.deviation = POPULATIONS[population]
        place = np.linspace(-0.5, 0.5, systems)
        self.lengths = place if reach else np.zeros(systems)  # the systems' mean log-lengths
        self.strengths = reach * place - LENGTH * self.lengths
        self.first, self.second = np.array(list(combinations(range(systems), 2))).T
        # The log-odds of a pair are normal, so its mean preference is an integral by Gauss and Hermite.
        points, weights = np.polynomial.hermite_e.hermegauss(80)
        deviation = np.sqrt(2 * self.deviation**2 + NOISE**2 + 2 * (0.4 * LENGTH) ** 2)
        odds = reach * (place[self.first] - place[self.second])[:, None] + deviation * points
        mean = ((expit(odds + POSITION) + expit(odds - POSITION)) / 2) @ weights / weights.sum()
        position = ((expit(odds + POSITION) + expit(POSITION - odds)) / 2) @ weights / weights.sum()
        expected = self._preferences(
            np.zeros(len(mean), dtype=np.int64), np.column_stack([mean, 1 - mean]), np.zeros(len(mean))
        )
        self.truth = fit_strengths(expected).value
        self.win_rates = system_win_rates(expected).value
        self.pair_rates, self.position = mean, float(position.mean())
        many = fit_at_equal_length(self.draw(np.random.default_rng(99), 600_000 // len(mean), hard=False))
        assert many is not None
        self.held, self.coefficient = many.value, float(many.parameters[-1])

    def draw(self, generator: np.random.Generator, size: int, hard: bool) -> Preferences:
        """Return the preferences of one data set of this many instructions."""
        effect = self.strengths + self.deviation * generator.standard_normal((size, self.systems))
        length = self.lengths + 0.4 * generator.standard_normal((size, self.systems))
        longer = length[:, self.first] - length[:, self.second]
        odds = effect[:, self.first] - effect[:, self.second] + LENGTH * longer
        odds = (odds + NOISE * generator.standard_normal(odds.shape)).ravel()
        wins = expit(np.column_stack([odds, -odds]) + POSITION)
        if hard:
            wins = (generator.random(wins.shape) < wins).astype(np.float64)
        return self._preferences(np.repeat(np.arange(size), len(self.first)), wins, longer.ravel())

    def _preferences(self, group: Integers, wins: np.ndarray, longer: np.ndarray) -> Preferences:
        repeats = len(group) // len(self.first)
        return Preferences(
            systems=tuple(map(str, range(self.systems))),
            first=np.tile(self.first, repeats),
            second=np.tile(self.second, repeats),
            group=group,
            preference=(wins[:, 0] + 1 - wins[:, 1]) / 2,
            shown_first=wins,
            agree=(np.sign(wins[:, 0] - 0.5) == -np.sign(wins[:, 1] - 0.5)).astype(np.float64),
            length_difference=longer,
        )

    def intervals(self, size: int, number: int) -> Iterator[Held]:
        """Yield the intervals of one data set.

        Args:
            size: number of instructions.
            number: the number of the data set.
        """
        generator = np.random.default_rng([self.seed, size, self.systems, self.hard, number])
        preferences = self.draw(generator, size, self.hard)
        pairs = self.first, self.second
        rates = system_win_rates(preferences)
        yield "win rate", "ours", *_ends(rates.estimates()), self.win_rates
        yield "win rate", "bootstrap-t", *self._resampled(preferences, number), self.win_rates
        error = 1.96 * np.sqrt(rates.value * (1 - rates.value) / rates.rows)
        yield "win rate", "independent", rates.value - error, rates.value + error, self.win_rates
        direct = direct_win_rates(preferences, *pairs)
        yield "win rate of a pair", "ours", *_ends(direct.estimates()), self.pair_rates
        share = [PositionEffect.from_preferences(preferences).share]
        yield "position", "ours", *_ends(share), np.array([self.position])
        strengths, held = fit_strengths(preferences), fit_at_equal_length(preferences)
        yield from self._differences("strength difference", strengths, self.truth, number)
        if held is not None:
            yield from self._differences("difference at equal length", held, self.held, number)
            found = held.coefficient().tested(0)
            yield "length", "ours", found.low, found.high, np.array([self.coefficient])
        own = strengths.strengths().tested(0)
        yield "strength", "ours", own.low, own.high, self.truth
        if self.population == "equal":
            p = strengths.differences(*pairs).tested(500, number).adjusted()
            found_none = np.array([float(not (p < 0.05).any())])
            yield "no false difference", "ours", 1 - found_none, np.ones(1), np.zeros(1)

    def _differences(self, kind: str, strengths: Strengths, truth: np.ndarray, seed: int) -> Iterator[Held]:
        pairs = self.first, self.second
        true = truth[self.first] - truth[self.second]
        estimates = strengths.differences(*pairs)
        ours = estimates.tested(0)
        yield kind, "ours", ours.low, ours.high, true
        unit = np.eye(len(strengths.parameters))
        contrast = unit[:, self.first] - unit[:, self.second]
        shares = Contributions(estimates.value, strengths.changes @ contrast, estimates.units)
        resampled = studentise(shares, symmetric=True, resamples=400, seed=seed)
        yield kind, "bootstrap-t", resampled.low, resampled.high, true
        variance = np.einsum("pk,pk->k", strengths.inverse @ contrast, contrast)
        error = norm.ppf(0.975) * np.sqrt(variance)
        yield kind, "independent", estimates.value - error, estimates.value + error, true

    def _resampled(self, preferences: Preferences, seed: int) -> tuple[np.ndarray, np.ndarray]:
        values = np.concatenate([preferences.preference, 1 - preferences.preference])
        system = np.concatenate([preferences.first, preferences.second])
        group = np.tile(preferences.group, 2)
        each = [
            averages(values[system == one, None], group[system == one], preferences.groups)
            for one in range(self.systems)
        ]
        together = Contributions(
            np.concatenate([one.value for one in each]),
            np.concatenate([one.shares for one in each], axis=1),
            np.concatenate([one.units for one in each]),
        )
        found = studentise(together, 0, 1, resamples=400, seed=seed)
        return found.low, found.high


def _ends(estimates: list[Estimate]) -> tuple[np.ndarray, np.ndarray]:
    low = [np.nan if one.low is None else one.low for one in estimates]
    high = [np.nan if one.high is None else one.high for one in estimates]
    return np.array(low), np.array(high)


def _count(simulation: Simulation, size: int, sets: int) -> list[dict[str, Any]]:
    """Return coverage and mean width of each method; intervals that are undefined are counted separately."""
    held: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for number in range(sets):
        for kind, method, low, high, truth in simulation.intervals(size, number):
            held[kind, method].append(np.column_stack([(low <= truth) & (truth <= high), high - low]))
    preferences = "hard" if simulation.hard else "soft"
    data = f"{simulation.population}, {preferences}, {simulation.systems} systems, {size} instructions"
    found = []
    for (kind, method), each in held.items():
        whole = np.concatenate(each)
        defined = whole[np.isfinite(whole[:, 1])]
        found.append(
            {
                "data": data,
                "kind": kind,
                "method": method,
                "undefined": len(whole) - len(defined),
                "coverage": round(float(defined[:, 0].mean()), 4),
                "width": round(float(defined[:, 1].mean()), 4),
            }
        )
    rows = [[one["kind"], one["method"], one["coverage"], one["width"], one["undefined"]] for one in found]
    results_table.table(data, ["interval", "method", "coverage", "width", "undefined"], rows)
    return found


if __name__ == "__main__":
    main()
