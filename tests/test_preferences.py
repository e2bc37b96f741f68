"""Tests of the statistics of preferences: against independent computations, and of judges with known habits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, write_rows
from report_page import section
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, logit
from scripted import Taste, scripted_comparison
from sklearn.linear_model import LogisticRegression

from localjudge import Judge, RowSource, UsageError, score_run
from localjudge.matching.judged_rows import read_judged_pairs
from localjudge.report.estimate_document import estimate_document
from localjudge.report.preference_lines import order_notes
from localjudge.report.preference_tables import preference_findings
from localjudge.rows.pairs import Pairing
from localjudge.statistics import Estimate
from localjudge.statistics.bradley_terry import fit_at_equal_length, fit_strengths
from localjudge.statistics.jackknife import JackknifeEstimates
from localjudge.statistics.log_odds import Shares
from localjudge.statistics.preferences import Preferences, direct_win_rates, system_win_rates
from localjudge.studies.rank.preference_ranking import (
    PreferenceOrder,
    PreferenceRanking,
    preferences_of,
    rank_preferences,
)

Habit = Callable[..., Any]
"""Returns the probability that the first response wins, in the input's order, and shown second."""


def preferences(
    judge: Habit,
    systems: int = 3,
    instructions: int = 30,
    pairs: Sequence[tuple[int, int]] = (),
    seed: int = 0,
) -> Preferences:
    """Return a judge's preferences on all pairs of systems, or on those given; higher systems write longer."""
    generator = np.random.default_rng(seed)
    pairs = pairs or list(combinations(range(systems), 2))
    first, second = np.tile(np.array(pairs), (instructions, 1)).T
    group = np.repeat(np.arange(instructions), len(pairs))
    lengths = generator.normal(6, 0.5, (instructions, systems)) + 0.3 * np.arange(systems)
    longer = lengths[group, first] - lengths[group, second]
    when_first, when_second = judge(first=first, second=second, longer=longer, generator=generator)
    return Preferences(
        systems=tuple("abcdefghijkl"[:systems]),
        first=first,
        second=second,
        group=group,
        preference=np.nanmean([when_first, when_second], axis=0),
        shown_first=np.column_stack([when_first, 1 - when_second]),
        agree=np.where(np.isnan(when_second), np.nan, (when_first > 0.5) == (when_second > 0.5)),
        length_difference=longer,
    )


def noisy(first: Any, second: Any, longer: Any, generator: Any) -> Any:
    """A judge that prefers lower systems and longer responses, not always, and the response shown first."""
    odds = 0.5 * (second - first) + 0.8 * longer + generator.normal(0, 1, len(first))
    return expit(odds + 0.3), expit(odds - 0.3)


def certain(preferred: Any) -> Any:
    """Return the probabilities of a judge that always names the same winner, in both orders."""
    return (np.where(preferred, 1.0, 0.0),) * 2


def holds(estimate: Estimate | None, value: float) -> bool:
    return estimate is not None and estimate.low <= value <= estimate.high


def ranked(judge: Habit, **how: Any) -> PreferenceOrder:
    return rank_preferences(preferences(judge, **how))


def test_strengths_have_the_largest_likelihood() -> None:
    given = preferences(noisy, systems=4)
    wins = np.zeros((4, 4))
    np.add.at(wins, (given.first, given.second), given.preference)
    np.add.at(wins, (given.second, given.first), 1 - given.preference)

    def loss(free: Any) -> float:
        power = np.exp(np.append(free, 0))
        return -float((wins * np.log(power[:, None] / (power[:, None] + power))).sum())

    best = np.append(minimize(loss, np.zeros(3), tol=1e-14, method="BFGS", options={"gtol": 1e-9}).x, 0)
    assert fit_strengths(given).value == pytest.approx(best - best.mean(), abs=1e-6)


def design(given: Preferences) -> Any:
    """Return the design matrix without the last system, whose strength is 0: [n, K - 1], and length."""
    rows = np.arange(len(given.first))
    matrix = np.zeros((len(rows), len(given.systems)))
    matrix[rows, given.first] += 1
    matrix[rows, given.second] -= 1
    assert given.length_difference is not None
    return np.column_stack([matrix[:, :-1], given.length_difference])


def test_strengths_at_equal_length_are_those_of_logistic_regression() -> None:
    given = preferences(noisy, systems=4)
    weights = np.concatenate([given.preference, 1 - given.preference])
    labels = np.repeat([1, 0], len(given.first))
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12, solver="newton-cholesky")
    model.fit(np.tile(design(given), (2, 1)), labels, weights)
    found = fit_at_equal_length(given)
    assert found is not None
    strengths = np.append(model.coef_[0, :-1], 0)
    assert found.parameters[-1] == pytest.approx(model.coef_[0, -1], abs=1e-6)
    assert found.value == pytest.approx(strengths - strengths.mean(), abs=1e-6)
    rates = expit(found.value[:, None] - found.value)
    np.fill_diagonal(rates, 0)
    assert found.win_rates().value == pytest.approx(rates.sum(axis=1) / 3, abs=1e-9)


def test_variances_of_strengths_are_those_of_the_cluster_estimator() -> None:
    given = preferences(noisy, systems=4, pairs=[(0, 1), (0, 2), (0, 3), (1, 2)])
    found = fit_at_equal_length(given)
    assert found is not None
    matrix = design(given)
    chance = expit(matrix @ np.append(found.value[:-1] - found.value[-1], found.parameters[-1]))
    root = np.sqrt(chance * (1 - chance))
    weighted, residual = matrix * root[:, None], (given.preference - chance) / root
    bread = np.linalg.inv(weighted.T @ weighted)
    total = np.zeros((4, 4))
    scores = []
    for group in range(given.groups):
        own = weighted[given.group == group]
        leverage = np.linalg.inv(np.eye(len(own)) - own @ bread @ own.T)
        scores.append(own.T @ leverage @ residual[given.group == group])
    scores = [score - np.mean(scores, axis=0) for score in scores]
    total = bread @ sum(np.outer(score, score) for score in scores) @ bread
    differences = found.differences(np.arange(3), np.full(3, 3))
    assert differences.covariance == pytest.approx(total[:3, :3], rel=1e-4)
    assert found.coefficient().covariance[0, 0] == pytest.approx(total[3, 3], rel=1e-4)


def test_a_win_rate_has_the_jackknife_interval_of_its_log_odds() -> None:
    given = preferences(noisy)
    rates = system_win_rates(given)
    wins = [
        [
            np.where(given.first == 1, given.preference, 1 - given.preference)[chosen].mean()
            for left_out in range(-1, 30)
            if (chosen := ((given.first == 1) | (given.second == 1)) & (given.group != left_out)).any()
        ]
    ][0]
    assert rates.value[1] == pytest.approx(wins[0])
    error = np.sqrt(((np.array(wins[1:]) - wins[0]) ** 2).sum()) / (wins[0] * (1 - wins[0]))
    reach = stats.t.ppf(0.975, 29) * error
    estimate = rates.estimates()[1]
    ends = expit(logit(wins[0]) + np.array([-reach, reach]))
    assert (estimate.low, estimate.high) == pytest.approx(tuple(ends), abs=1e-6)


def test_direct_win_rates_do_not_depend_on_the_order_of_the_input() -> None:
    given = preferences(noisy, systems=4)
    turned = np.random.default_rng(1).random(len(given.first)) < 0.5
    again = Preferences(
        systems=given.systems,
        first=np.where(turned, given.second, given.first),
        second=np.where(turned, given.first, given.second),
        group=given.group,
        preference=np.where(turned, 1 - given.preference, given.preference),
        shown_first=np.where(turned[:, None], given.shown_first[:, ::-1], given.shown_first),
        agree=given.agree,
        length_difference=np.where(turned, -1, 1) * given.length_difference,
    )
    pairs = np.array([0, 2]), np.array([3, 1])
    assert direct_win_rates(again, *pairs).value == pytest.approx(direct_win_rates(given, *pairs).value)
    (one, two) = (rank_preferences(each) for each in (given, again))
    for left, right in zip(one.systems, two.systems, strict=True):
        assert left.name == right.name
        for estimate, turned_back in ((left.strength, right.strength), (left.shown_first, right.shown_first)):
            expected = pytest.approx(estimate_document(turned_back), abs=1e-8)
            assert estimate_document(estimate) == expected


def test_a_judge_that_always_prefers_the_first_response_finds_no_difference() -> None:
    found = ranked(lambda first, **_: (np.ones(len(first)), np.zeros(len(first))))
    assert (found.position.value, found.consistency.value) == (1, 0)
    assert found.position.low > 0.85
    assert [system.win_rate.value for system in found.systems] == [0.5] * 3
    assert [system.strength.value for system in found.systems] == pytest.approx([0] * 3)
    assert [system.ranks for system in found.systems] == [(1, 3)] * 3
    assert found.groups == (("a", "b", "c"),)


def test_a_perfect_judge_orders_all_systems() -> None:
    found = ranked(lambda first, second, **_: certain(first > second))
    assert [system.name for system in found.systems] == ["c", "b", "a"]
    assert [system.ranks for system in found.systems] == [(1, 1), (2, 2), (3, 3)]
    assert found.groups == (("c",), ("b",), ("a",))
    assert (found.systems[0].win_rate.value, found.systems[0].win_rate.high) == (1, 1)
    assert found.unlimited
    assert "some systems always win or always lose" in order_notes(found)[0]
    assert (found.position.value, found.consistency.value) == (0.5, 1)


@pytest.mark.parametrize("instructions", [12, 30, 200])
def test_a_system_that_always_wins_is_as_good_as_the_exact_interval_says(instructions: int) -> None:
    found = ranked(lambda first, **_: certain(first == 0), systems=2, instructions=instructions)
    (pair,) = found.pairs
    exact = stats.binomtest(instructions, instructions).proportion_ci().low
    assert pair.difference.value is not None
    assert pair.difference.low == pytest.approx(logit(exact), abs=0.2)
    assert pair.win_rate.low == pytest.approx(exact, abs=0.05)
    assert pair.p < 0.05


def test_the_length_explains_a_judge_that_always_prefers_the_longer_response() -> None:
    found = ranked(lambda longer, **_: certain(longer > 0), instructions=80)
    assert [system.name for system in found.systems] == ["c", "b", "a"]
    assert found.groups == (("c",), ("b",), ("a",))
    assert found.length.value > 3
    assert all(holds(system.strength_at_equal_length, 0) for system in found.systems)
    assert all(holds(system.win_rate_at_equal_length, 0.5) for system in found.systems)
    assert any("length decides almost always" in note for note in order_notes(found))


def test_the_coefficient_of_length_is_found() -> None:
    found = ranked(noisy, instructions=200)
    assert holds(found.length, 0.69)  # 0.8, reduced by the noise
    assert not holds(found.length, 0.4)


def test_systems_that_are_not_compared_are_named_and_not_ordered() -> None:
    found = ranked(noisy, systems=5, pairs=[(0, 1), (2, 3)])
    assert [system.component for system in found.systems] == [1, 1, 2, 2, 3]
    assert any(note.endswith("sets of systems: a, b; c, d; e") for note in order_notes(found))
    across = [pair for pair in found.pairs if {pair.first, pair.second} not in ({"a", "b"}, {"c", "d"})]
    assert {(pair.difference.value, pair.p, pair.contradicts) for pair in across} == {(None, None, False)}
    assert {frozenset(group) for group in found.groups} >= {frozenset("e")}
    assert not [group for group in found.groups if set(group) & set("ab") and set(group) & set("cde")]
    assert found.systems[4].strength.value is found.systems[4].win_rate.value is None
    assert found.untested == (), "the note on the sets says it"


def test_strengths_that_depend_on_one_instruction_have_no_interval() -> None:
    apart = preferences(noisy, systems=4, pairs=[(0, 1), (2, 3)])
    bridge = preferences(noisy, systems=4, instructions=1, pairs=[(1, 2)])
    joined = {
        name: np.concatenate([getattr(apart, name), getattr(bridge, name)])
        for name in ("first", "second", "group", "preference", "shown_first", "agree", "length_difference")
    }
    found = rank_preferences(Preferences(systems=apart.systems, **joined))
    pairs = {frozenset((pair.first, pair.second)): pair.difference for pair in found.pairs}
    assert pairs[frozenset("ab")].low is not None
    assert pairs[frozenset("bc")].value is not None
    assert pairs[frozenset("bc")].low is pairs[frozenset("ad")].low is None


def test_few_instructions_have_estimates_and_no_intervals() -> None:
    found = ranked(noisy, instructions=3)
    assert all(system.strength.value is not None for system in found.systems)
    assert all(system.strength.low is system.win_rate.low is None for system in found.systems)
    assert all(pair.p is None for pair in found.pairs)
    assert "there are no intervals below 5 instructions" in order_notes(found)


def test_a_length_that_follows_from_the_system_is_not_separated_from_it() -> None:
    given = preferences(noisy)
    fixed = np.array([1.0, 2.0, 4.0])
    along = Preferences(
        given.systems, given.first, given.second, given.group, given.preference, given.shown_first, given.agree,
        fixed[given.first] - fixed[given.second],
    )  # fmt: skip
    found = rank_preferences(along)
    assert found.length is found.systems[0].strength_at_equal_length is None
    assert "the effect of length cannot be told from that of the systems" in order_notes(found)


def test_contradictions_of_the_order_are_found() -> None:
    beats = {(0, 1): 0.8, (1, 2): 0.8, (0, 2): 0.3}

    def circular(first: Any, second: Any, generator: Any, **_: Any) -> Any:
        chance = np.array([beats[pair] for pair in zip(first, second, strict=True)])
        return (np.clip(chance + generator.normal(0, 0.1, len(first)), 0, 1),) * 2

    found = ranked(circular)
    (pair,) = (pair for pair in found.pairs if pair.contradicts)
    assert (pair.first, pair.second, pair.contradiction_significant) == ("a", "c", True)
    assert pair.contradiction_p is not None
    assert pair.contradiction_p < 0.05
    assert not any(pair.contradicts for pair in ranked(noisy, instructions=200).pairs)


def test_a_constant_preference_leaves_unknown_whether_systems_differ() -> None:
    found = ranked(lambda first, second, **_: (np.where(first > second, 0.95, 0.05),) * 2)
    assert all(pair.p is None for pair in found.pairs)
    assert found.groups == (("c",), ("b",), ("a",)), "nothing shows that two of them do not differ"
    assert {frozenset(pair[:2]) for pair in found.untested} == {frozenset(pair) for pair in ("ab", "ac", "bc")}
    assert {why for *_, why in found.untested} == {"it is the same on all instructions"}


def test_systems_that_always_win_have_the_exact_sign_test() -> None:
    for preference in (0.98, 1.0):  # the interval is undefined, or open at an end

        def first_wins(first: Any, second: Any, chance: float = preference, **_: Any) -> Any:
            return (np.where(first < second, chance, 1 - chance),) * 2

        found = ranked(first_wins, instructions=30)
        assert len(found.pairs) == 3
        for pair in found.pairs:
            assert pair.difference.low is None or pair.difference.high is None
            assert (pair.wins, pair.ties, pair.losses) == (30, 0, 0)
            assert pair.sign_p == pytest.approx(3 * stats.binomtest(30, 30).pvalue)
        one = ranked(first_wins, instructions=30, systems=2)
        assert one.pairs[0].sign_p == pytest.approx(stats.binomtest(30, 30).pvalue)
        ranking = PreferenceRanking(
            "better", is_default=True, aspects={"better": one}, unnamed_pairs=0, lost=(), notices=()
        )
        said = [*preference_findings(ranking).answer]
        assert "Of 30 instructions, a wins 30 and loses 0 against b (exact sign test: p < .001)" in said
    assert {pair.sign_p for pair in ranked(noisy, instructions=200).pairs} == {None}, "intervals with two ends"


def test_the_instructions_that_a_system_wins_are_those_of_its_mean_preference() -> None:
    given = preferences(noisy, instructions=40)
    (pair,) = (each for each in rank_preferences(given).pairs if {each.first, each.second} == set("ab"))
    first, second = given.systems.index(pair.first), given.systems.index(pair.second)
    wins = losses = 0
    for instruction in range(given.groups):
        own = [
            preference if one == first else 1 - preference
            for one, other, group, preference in zip(
                given.first, given.second, given.group, given.preference, strict=True
            )
            if group == instruction and {one, other} == {first, second}
        ]
        wins += np.mean(own) > 0.5
        losses += np.mean(own) < 0.5
    assert (pair.wins, pair.losses) == (wins, losses)


def test_a_contradiction_that_cannot_be_tested_is_neither_significant_nor_not() -> None:
    wins = {(0, 1): 0.8, (1, 2): 0.8, (0, 2): 0.3}

    def circular(first: Any, second: Any, **_: Any) -> Any:
        return (np.array([wins[pair] for pair in zip(first, second, strict=True)]),) * 2

    found = ranked(circular)
    (pair,) = (pair for pair in found.pairs if pair.contradicts)
    assert (pair.contradiction_p, pair.contradiction_significant) == (None, None)


def test_a_pair_is_called_significant_by_the_test_of_its_difference() -> None:
    for found in (ranked(noisy, instructions=200), ranked(noisy, instructions=12)):
        tested = [pair for pair in found.pairs if pair.p is not None]
        assert len(tested) == 3
        for pair in tested:
            low, high = pair.difference.low, pair.difference.high
            assert low is not None
            assert high is not None
            assert pair.significant == (pair.p < 0.05) == (low > 0 or high < 0)
    assert {pair.significant for pair in ranked(noisy, instructions=200).pairs} == {True, False}
    assert {pair.significant for pair in ranked(noisy, instructions=3).pairs} == {None}, "not tested"


def test_one_order_is_said_to_mix_place_and_system() -> None:
    found = ranked(lambda first, **_: (np.full(len(first), 0.7), np.full(len(first), np.nan)))
    assert found.position.value == pytest.approx(0.7)
    assert found.consistency.value is None
    assert any("in one order only" in note for note in order_notes(found))


def test_pairs_of_one_system_count_for_the_position_only() -> None:
    given = preferences(noisy, pairs=[(0, 1), (1, 2), (2, 2)])
    without = given.take(given.first != given.second)
    found, expected = rank_preferences(given), rank_preferences(without)
    assert [system.strength for system in found.systems] == [system.strength for system in expected.systems]
    assert found.position != expected.position
    assert order_notes(found) == ["30 pairs have two responses of one system; they count for the position only"]


def test_p_values_are_adjusted_for_the_number_of_pairs() -> None:
    generator = np.random.default_rng(0)
    changes = generator.standard_normal((1000, 50))
    covariance = changes.T @ changes
    estimates = JackknifeEstimates(2.5 * np.sqrt(np.diag(covariance)), covariance, np.full(50, 40.0))
    alone = JackknifeEstimates(estimates.value[:1], covariance[:1, :1], estimates.units[:1])
    single = 2 * stats.t.sf(2.5, 39)
    assert alone.tested(20_000).adjusted()[0] == pytest.approx(single, abs=0.003)
    # 50 estimates that are nearly independent; their errors have one common estimate of the variance.
    spread = np.sqrt(stats.chi2.ppf(np.arange(0.0005, 1, 0.001), 39) / 39)
    largest = 1 - ((1 - 2 * stats.norm.sf(2.5 * spread)) ** 50).mean()
    assert estimates.tested(20_000).adjusted().max() == pytest.approx(largest, abs=0.02)


def test_the_same_share_on_all_instructions_has_no_interval() -> None:
    group = np.arange(20)
    shares = Shares.from_values(np.full(20, 0.7), np.zeros(20, dtype=np.int32), 2, group)
    assert [(one.low, one.high) for one in shares.estimates()] == [(None, None)] * 2
    assert shares.value == pytest.approx([0.7, np.nan], nan_ok=True)


WORDS = {"brief": 4, "plain": 12, "wordy": 40}
"""The systems of the runs, and the number of words in their responses to the first instruction."""


def rows_of(instructions: int) -> list[dict[str, Any]]:
    """Return a response of each system to each instruction."""
    return [
        {
            "id": f"{system}-{n}",
            "instruction": f"Question {n}?",
            "candidate": f"{system} " * (words + n * (3 + number) % 7),
            "system": system,
        }
        for n in range(instructions)
        for number, (system, words) in enumerate(WORDS.items())
    ]


def longer_or_first(first: str, second: str) -> float:
    return float(expit(0.8 * (np.log1p(len(first)) - np.log1p(len(second))) + 0.5))


@pytest.fixture
def judged(tmp_path: Path, model: Path) -> Callable[..., Path]:
    """Return a run in which all pairs of systems were compared."""

    def make(
        taste: Taste = longer_or_first,
        name: str = "run",
        rubric: str = "pairwise",
        instructions: int = 12,
        **how: Any,
    ) -> Path:
        judge = scripted_comparison(model, taste, rubric)
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(instructions)))
        pairing = Pairing(forms=True, **how)
        score_run(
            judge, RowSource.from_files([str(file)], used=judge.rubric.fields, pairing=pairing), tmp_path / name
        )
        return tmp_path / name

    return make


def test_the_pairs_of_a_run_are_read_with_both_orders_and_their_lengths(judged: Callable[..., Path]) -> None:
    found = preferences_of(read_judged_pairs([judged()]))["better"]
    assert (found.systems, found.groups, len(found.first)) == (("brief", "plain", "wordy"), 12, 36)
    assert found.length_difference is not None
    texts = {row["id"]: row["candidate"] for row in rows_of(12)}
    for place, (first, second) in enumerate(zip(found.first, found.second, strict=True)):
        names = (f"{found.systems[number]}-{found.group[place]}" for number in (first, second))
        one, two = (texts[name] for name in names)
        assert found.length_difference[place] == pytest.approx(np.log1p(len(one)) - np.log1p(len(two)))
        shown = [
            0.45 + 0.1 * chance if 0.45 < chance < 0.55 else chance  # mostly a tie
            for chance in (longer_or_first(one, two), longer_or_first(two, one))
        ]
        assert found.shown_first[place] == pytest.approx(shown, abs=1e-5)
        assert found.preference[place] == pytest.approx((shown[0] + 1 - shown[1]) / 2, abs=1e-5)
    single = preferences_of(read_judged_pairs([judged(name="one", orders=1)]))["better"]
    assert single.agree == pytest.approx(np.full(36, np.nan), nan_ok=True)


def test_the_effects_of_length_and_position_say_why_they_have_no_interval(
    judged: Callable[..., Path], cli: Cli
) -> None:
    run = judged(instructions=3)
    shown = " ".join(cli("rank", run, "--all").out.split())
    few = ", no interval: it depends on fewer than 5 instructions"
    assert re.search(rf"odds of winning multiplied by \d\.\d\d{few.replace(' 3 ', ' 2.2 ')}", shown)
    assert re.search(rf"Position: the first place has a win rate of \d\.\d\d{few};", shown)


def test_rank_shows_strengths_and_what_explains_them(judged: Callable[..., Path], cli: Cli) -> None:
    run = judged()
    shown = cli("rank", run, "--all").out
    assert "Preferences in better" in shown
    assert "the system of the row against that of the column" in shown
    assert "At equal length, better" in shown
    assert "A response twice as long has its odds of winning multiplied by 1.68" in shown
    assert "All systems differ significantly in strength (better)" in shown
    found = json.loads(cli("rank", run, "--json").out)
    better = found["aspects"][found["by"]]
    assert [system["name"] for system in better["systems"]] == ["wordy", "plain", "brief"]
    assert better["length"]["value"] == pytest.approx(0.8, abs=0.05)
    assert better["position"]["value"] > 0.55
    assert [pair["win_rate"]["value"] > 0.5 for pair in better["pairs"]] == [True] * 3


def test_no_table_says_that_systems_do_not_differ_if_that_was_not_tested(
    judged: Callable[..., Path], cli: Cli, tmp_path: Path
) -> None:
    run = judged(lambda first, second: 0.95 if len(first) > len(second) else 0.05)
    shown = " ".join(cli("rank", run).out.split())
    assert "No significant difference" not in shown
    unknown = "Unknown whether a difference in strength (better) is significant, because it "
    assert unknown in shown
    assert cli("report", run, "--out", tmp_path / "report.html").code == 0
    notes = section(tmp_path / "report.html", "systems")["leads"]
    assert not any("No significant difference" in note for note in notes)
    assert any(unknown in note for note in notes)


def test_the_table_and_the_page_name_a_significant_contradiction_of_the_order(
    judged: Callable[..., Path], cli: Cli, tmp_path: Path
) -> None:
    beats = {("brief", "plain"), ("plain", "wordy"), ("wordy", "brief")}

    def circular(first: str, second: str) -> float:
        clear = 0.7 + 0.2 * (len(first) // 5 * (len(second) // 5) % 7) / 7  # not the same on all instructions
        return clear if (first.split()[0], second.split()[0]) in beats else 1 - clear

    run = judged(circular)
    assert cli("report", run, "--out", tmp_path / "report.html").code == 0
    notes = " ".join(section(tmp_path / "report.html", "systems")["leads"])
    for said in (" ".join(cli("rank", run).out.split()), notes):
        assert re.search(r"Against the order of strengths: \w+ wins 0\.\d\d \(.*\) of its comparisons", said)


def test_rank_orders_by_the_aspect_that_is_named(judged: Callable[..., Path], cli: Cli) -> None:
    run = judged(rubric="pairwise-aspects")
    shown = cli("rank", run, "--all").out
    assert "safety, the first aspect, decides the order of the systems" in shown
    assert "Win rates in all aspects" in shown
    assert "Preferences in depth" in cli("rank", run, "--by", "depth").out
    refused = cli("rank", run, "--by", "charm")
    assert (refused.code, "--by charm: give one of safety, engagement" in refused.err) == (2, True)


def test_several_runs_of_one_judge_are_ranked_together(judged: Callable[..., Path]) -> None:
    both = [judged(name="one", systems=(("brief", "plain"),)), judged(name="two", baseline="wordy")]
    found = rank_preferences(preferences_of(read_judged_pairs(both))["better"])
    assert {(pair.first, pair.second) for pair in found.pairs if pair.pairs == 12} == {
        ("wordy", "plain"), ("wordy", "brief"), ("plain", "brief"),
    }  # fmt: skip


def test_the_effect_of_length_is_known_without_the_texts(judged: Callable[..., Path], cli: Cli) -> None:
    run = judged()
    before = cli("rank", run, "--all").out
    run.with_suffix(".jsonl").unlink()
    assert cli("rank", run, "--all").out == before
    assert "twice as long" in before
    end = cli("rank", run, "--inputs", run.parent / "nowhere.jsonl")
    assert (end.code, "nowhere.jsonl: No such file" in end.err) == (2, True), "what is named must be there"


def test_pairs_that_failed_or_name_no_systems_are_counted(
    tmp_path: Path, model: Path, cli: Cli, judged: Callable[..., Path]
) -> None:
    rows = [
        {
            "instruction": f"Question {n}?",
            "candidate_a": "word " * (3 + n % 4),
            "candidate_b": "word " * 5,
            **({"system_a": "one", "system_b": "two"} if n else {}),
        }
        for n in range(8)
    ]
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"instruction": "?"}])
    )
    judge = scripted_comparison(model, longer_or_first)
    source = RowSource.from_files([str(tmp_path / "pairs.jsonl")], used=judge.rubric.fields)
    score_run(judge, source, tmp_path / "pairs")
    shown = cli("rank", tmp_path / "pairs").out
    assert "Failed, and left out: 1 of 8 of one" in " ".join(shown.split())
    assert "1 pairs that do not name both systems are excluded" in shown
    (tmp_path / "bare.jsonl").write_text(json.dumps(rows[0]) + "\n")
    source = RowSource.from_files([str(tmp_path / "bare.jsonl")], used=judge.rubric.fields)
    score_run(judge, source, tmp_path / "bare")
    with pytest.raises(UsageError, match="bare: no pair names two systems"):
        preferences_of(read_judged_pairs([tmp_path / "bare"]))


def test_runs_of_one_response_and_of_two_are_not_ranked_together(
    tmp_path: Path, model: Path, cli: Cli, judged: Callable[..., Path]
) -> None:
    compared = judged()
    file = write_rows(tmp_path / "rows.jsonl", 4)
    judge = Judge(model, rubric="just-eval", max_rationale_tokens=8)
    score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), tmp_path / "single")
    mixed = cli("rank", tmp_path / "single", compared)
    assert (mixed.code, "judges one response, and" in mixed.err) == (2, True)
    for option in ("--scores", "--calibration"):
        refused = cli("rank", compared, option, "expected")
        assert (refused.code, f"{option}: is for runs that judge one response" in refused.err) == (2, True)


def test_a_strength_is_bounded_only_where_the_pairs_bound_it() -> None:
    found = ranked(lambda first, second, **_: certain(first > second), instructions=30)
    best, middle, worst = (system.strength for system in found.systems)
    assert (best.low is not None and best.low > 0, best.high) == (True, None)
    assert (worst.low, worst.high is not None and worst.high < 0) == (None, True)
    assert (middle.low, middle.high) == (None, None)
    assert all(pair.difference.low > 0 and pair.difference.high is None for pair in found.pairs)
    assert all(pair.p < 0.05 for pair in found.pairs)


def test_an_interval_is_open_only_for_the_system_that_wins_always() -> None:
    def judge(first: Any, second: Any, **_: Any) -> Any:
        """System 2 always wins; 0 and 1 win against each other in turn."""
        turn = np.arange(len(first)) % 2 == 0
        return certain(np.where(second == 2, False, np.where(first == 2, True, turn)))

    found = ranked(judge, instructions=31)
    assert found.systems[0].name == "c"
    ends = {
        system.name: (system.strength.low is None, system.strength.high is None) for system in found.systems
    }
    assert ends == {"c": (False, True), "a": (True, False), "b": (True, False)}
    (between,) = (pair for pair in found.pairs if {pair.first, pair.second} == {"a", "b"})
    assert between.difference.low < 0 < between.difference.high
