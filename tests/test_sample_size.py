"""Tests of `sample-size`: the power of the paired test, and what a pilot says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from scipy.stats import chi2, norm, ttest_1samp
from test_compare import judged, rows_of

from localjudge.report.sample_size_document import pilot_notes
from localjudge.statistics.non_inferiority import chance_to_pass, instructions_to_pass, lower_bound
from localjudge.statistics.paired_test import instructions_needed, paired_variance, power
from localjudge.studies.sample_size import Pilot


def test_the_power_is_that_of_a_simulated_t_test() -> None:
    differences = np.random.default_rng(0).normal(0.3, 1.0, (4000, 60))
    found = (ttest_1samp(differences, 0, axis=1).pvalue < 0.05).mean()
    assert power(0.3, 1.0, 60) == pytest.approx(found, abs=0.02)
    assert power(0.0001, 1.0, 60) == pytest.approx(0.05, abs=0.001), "that of chance"


def test_the_smallest_number_with_the_power_is_found() -> None:
    needed = instructions_needed(0.2, 1.0, 0.8) or 0
    assert power(0.2, 1.0, needed) >= 0.8 > power(0.2, 1.0, needed - 1)
    assert needed == 199, "as statsmodels' TTestPower and G*Power have it"
    assert (instructions_needed(0.2, 1.0, 0.8, tests=6) or 0) > needed
    assert instructions_needed(0.2, 0.0) == 5


@pytest.mark.parametrize("tests", [1, 3, 66, 4950])
@pytest.mark.parametrize("difference", [0.01, 0.1, 0.2, 0.3, 0.5])
def test_a_larger_deviation_needs_more_instructions_as_the_normal_distribution_has_it(
    difference: float, tests: int
) -> None:
    deviations = np.arange(0.1, 3.05, 0.1)
    needed = [instructions_needed(difference, each**2, 0.8, tests) or 0 for each in deviations]
    assert needed == sorted(needed)
    quantiles = norm.ppf(1 - 0.05 / tests / 2) + norm.ppf(0.8)
    least = (quantiles * deviations / difference) ** 2
    assert (np.array(needed) >= np.minimum(least, 10_000_000) - 1).all()
    assert (np.array(needed) <= 1.2 * least + 12).all()


@pytest.mark.parametrize(("deviation", "count"), [(0.3, 83), (0.7, 150), (0.0, 59), (0.1, 60), (1.0, 300)])
def test_an_unchanged_system_passes_a_gate_as_often_as_planned(deviation: float, count: int) -> None:
    changes = np.clip(np.random.default_rng(0).normal(0, deviation, (4000, count)), -4, 4)
    passed = float((lower_bound(changes, 4) > -0.2).mean())
    assert chance_to_pass(0.2, deviation**2, 4, count) == pytest.approx(passed, abs=0.03)
    needed = instructions_to_pass(0.2, deviation**2, 4) or 0
    assert (
        chance_to_pass(0.2, deviation**2, 4, needed) >= 0.8 > chance_to_pass(0.2, deviation**2, 4, needed - 1)
    )
    assert {0.3: 74, 0.0: 59}.get(deviation, needed) == needed


def test_the_variance_of_a_pilot_is_that_of_the_differences_of_its_systems() -> None:
    random = np.random.default_rng(1)
    group, system = (each.ravel() for each in np.indices((4000, 2, 3))[:2])
    level = random.normal(0, 0.5, (4000, 2))[group, system]  # the difference has a variance of 0.5
    values = 3 + random.normal(0, 2, 4000)[group] + level + random.normal(0, 0.7, len(group))
    found = paired_variance(values, group.astype(np.int32), system.astype(np.int32))
    assert found is not None
    variance, instructions = found
    assert variance == pytest.approx(0.5 + 2 * 0.49 / 3, rel=0.1)
    assert instructions == 4000
    one = paired_variance(values[system == 0], group[system == 0].astype(np.int32), system[system == 0])
    assert one is None, "one system has no difference"


def test_a_pilot_says_how_many_instructions_a_comparison_needs(tmp_path: Path, cli: Cli) -> None:
    random = np.random.default_rng(2)
    tables = random.integers(1, 6, (2, 40)).tolist()
    rows = [
        row
        for table, name in zip(tables, ("north", "south"), strict=True)
        for row in rows_of(table, name, name)
    ]
    pilot = judged(tmp_path / "pilot", rows)
    asked = ("sample-size", "--difference", 0.5, "--pilot", pilot, "--by", "helpfulness")
    found = json.loads(cli(*asked, "--json").out)
    variance = float(np.subtract(*tables).var(ddof=1))
    [(name, (needed, most))] = found["instructions"].items()
    assert (name, needed) == ("as in the pilot", instructions_needed(0.5, variance))
    assert most > needed, "the variance of a pilot is not known exactly"
    assert f"{needed:,}" in cli(*asked).out
    gate = json.loads(cli("sample-size", "--margin", 0.5, *asked[3:], "--json").out)["instructions"]
    assert gate[name][0] == instructions_to_pass(0.5, variance, 4)


def test_a_variance_is_known_as_well_as_the_instructions_that_two_systems_share_tell(
    tmp_path: Path, cli: Cli
) -> None:
    tables = np.random.default_rng(3).integers(1, 6, (2, 60)).tolist()
    north, south = (rows_of(table, name, name) for table, name in zip(tables, ("north", "south"), strict=True))
    for at, row in enumerate(south[:57]):
        row["instruction"] = f"another question {at}"
    pilot = judged(tmp_path / "pilot", [*north, *south])
    found = Pilot.read([pilot], "helpfulness")
    assert found.variance == pytest.approx(np.subtract(tables[0][57:], tables[1][57:]).var(ddof=1))
    assert found.inflation == pytest.approx(2 / chi2.ppf(0.05, 2))
    notes = pilot_notes(found)
    assert notes == ["3 instructions in common say little about a variance; give 20 or more"]
    shown = cli("sample-size", "--difference", 0.5, "--pilot", pilot, "--by", "helpfulness").out
    assert notes[0] in shown


def test_without_a_pilot_the_deviations_are_assumed(cli: Cli) -> None:
    end = cli("sample-size", "--difference", "0.2")
    assert end.code == 0
    assert "standard deviation 1 (assumed)" in end.out
    assert "199" in end.out
    gate = cli("sample-size", "--margin", "0.2").out
    assert "does not change passes compare --margin COLUMN=0.2 with a probability of 80%" in gate
    assert "more than 10,000,000" in cli("sample-size", "--margin", "0.0001").out
    assert (
        None in json.loads(cli("sample-size", "--margin", "0.0001", "--json").out)["instructions"].popitem()[1]
    )


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--difference", "0"], "give one of them, above 0"),
        (["--difference", "0.2", "--margin", "0.2"], "give one of them, above 0"),
        (["--difference", "0", "--margin", "0.2"], "give one of them, above 0"),
        (["--margin", "4"], "--margin 4: must be smaller than the scale, 1 to 5"),
        (["--margin", "0.2", "--systems", "3"], "--systems: is for --difference"),
    ],
)
def test_a_size_that_cannot_be_planned_is_refused(cli: Cli, flags: list[str], why: str) -> None:
    end = cli("sample-size", *flags)
    assert (end.code, why in end.err) == (2, True)


def test_a_pilot_of_one_system_is_refused(tmp_path: Path, cli: Cli) -> None:
    end = cli("sample-size", "--difference", 0.2, "--pilot", judged(tmp_path / "one", rows_of([1, 2, 3])))
    assert (end.code, "needs two systems with two instructions in common" in end.err) == (2, True)
