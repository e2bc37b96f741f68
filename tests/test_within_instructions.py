"""Tests of agreement within instructions: against plain loops, and on judges whose truth is known."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli

from localjudge.arrays import Floats, LabelArray
from localjudge.report.agreement_tables import agreement_findings
from localjudge.statistics import EQUAL_EVERYWHERE, NOT_DEFINED, UNDEFINED, Estimate
from localjudge.statistics.agreement_statistics import Comparison
from localjudge.statistics.within_instructions import (
    LabelledResponses,
    WithinComparison,
    WithinInstructions,
    agree_within,
)
from localjudge.studies.agree import Agreement, AspectAgreement

SYSTEMS = 3


def within(column: Floats, label: Floats, group: Any, response: Any = None) -> WithinComparison:
    marks = LabelArray(np.arange(len(label)), np.zeros(len(label), int), label)
    own = np.arange(len(label)) if response is None else response
    responses = LabelledResponses.from_labels(marks, group, own)
    assert responses is not None
    return responses.compare(column, 0)[0]


def some_sets(instructions: int = 60, quality: float = 0.0) -> tuple[Floats, Floats, Any]:
    """Return scores that know the instruction's level, and of the response as much as `quality`; and labels."""
    rng = np.random.default_rng(3)
    level = np.repeat(rng.normal(0, 1.1, instructions), SYSTEMS)
    response, noise, error = rng.normal(0, 0.7, (3, SYSTEMS * instructions))
    label = np.clip(np.round(3 + level + response + error / 5), 1, 5)
    return 3 + level + quality * response + (1 - quality) * noise, label, np.arange(len(level)) // SYSTEMS


def test_a_judge_of_the_instruction_alone_agrees_over_all_rows_but_not_within_instructions() -> None:
    column, label, group = some_sets()
    assert np.corrcoef(column, label)[0, 1] > 0.6
    found = within(column, label, group)
    equal = within(np.zeros(len(label)), label, group).in_order
    assert found.in_order.low is not None
    assert equal.high is not None
    assert found.in_order.low < equal.high
    good = within(*some_sets(quality=0.9)).in_order
    assert good.low is not None
    assert good.low > equal.high


def test_the_share_in_order_is_that_of_plain_loops() -> None:
    column, label, group = some_sets(12, quality=0.5)
    found = within(column, label, group)
    pairs = [
        [pair for pair in combinations(range(len(group)), 2) if set(group[[*pair]]) == {g}] for g in range(12)
    ]

    def share(epsilon: float) -> float:
        return float(np.mean([
            np.mean([
                np.sign(label[a] - label[b])
                == (0 if abs(column[a] - column[b]) <= epsilon + 1e-9 else np.sign(column[a] - column[b]))
                for a, b in of_group
            ])
            for of_group in pairs
        ]))  # fmt: skip

    differences = [0.0, *(abs(column[a] - column[b]) for of_group in pairs for a, b in of_group)]
    best = max(sorted(differences), key=share)
    assert found.epsilon == pytest.approx(best)
    assert found.in_order.value is not None
    assert found.in_order.value <= share(best)


def test_the_share_over_chance_is_that_over_the_same_scores_in_a_random_order() -> None:
    """With integer scores epsilon is 0, so that chance is the mean over all orders within each instruction."""
    column, label, group = some_sets(40, quality=0.9)
    column = np.clip(np.round(column), 1, 5)
    found = within(column, label, group)
    assert found.epsilon == 0
    gain = []
    for g in range(40):
        scores, said = column[group == g], label[group == g]
        pairs = [*combinations(range(SYSTEMS), 2)]

        def share(order: Any, said: Any = said, pairs: Any = pairs) -> float:
            return float(
                np.mean([np.sign(order[a] - order[b]) == np.sign(said[a] - said[b]) for a, b in pairs])
            )

        gain.append(share(scores) - np.mean([share(order) for order in permutations(scores)]))
    assert found.over_chance.value == pytest.approx(np.mean(gain))


@pytest.mark.slow
@pytest.mark.parametrize("responses", [2, 4])
@pytest.mark.parametrize("step", [1.0, 1.25], ids=["many equal labels", "a third of them equal"])
def test_the_interval_contains_the_share_of_the_best_epsilon_and_a_blind_judge_is_not_above_chance(
    responses: int, step: float
) -> None:
    def sets(rng: Any, count: int, quality: float) -> tuple[Floats, Floats, Any]:
        level = np.repeat(rng.normal(0, 1.1, count), responses)
        of_response, noise, error = rng.normal(0, 0.7, (3, responses * count))
        label = np.clip(np.round(step * (3 + level + of_response + error / 5)), step, 5 * step)
        column = 3 + level + quality * of_response + (1 - quality) * noise
        return column, label, np.arange(len(level)) // responses

    for quality in (0.0, 0.5):
        column, label, group = sets(np.random.default_rng(1), 20_000, quality)
        first, second = (np.arange(0, len(group), responses) + place for place in (0, 1))
        by_column, by_label = column[first] - column[second], np.sign(label[first] - label[second])
        truth = max(
            np.mean(np.where(np.abs(by_column) <= epsilon, 0, np.sign(by_column)) == by_label)
            for epsilon in (*np.linspace(0, 2, 41), 99)
        )
        rng, held, above = np.random.default_rng(2), 0, 0
        for _ in range(80):
            found = within(*sets(rng, 50, quality))
            assert found.in_order.low is not None
            assert found.in_order.high is not None
            assert found.over_chance.low is not None
            held += found.in_order.low <= truth <= found.in_order.high
            above += found.over_chance.low > 0
        assert held >= 71, "95 % less 2.5 standard errors"
        assert above <= 6 if quality == 0 else above > 20


def test_exact_copies_are_in_order_and_a_constant_orders_only_ties() -> None:
    _, label, group = some_sets()
    assert within(label, label, group).in_order.value == 1
    constant = within(np.full(len(label), 3.3), label, group)
    ties = [label[a] == label[b] for a, b in combinations(range(len(label)), 2) if group[a] == group[b]]
    assert constant.epsilon == 0
    assert constant.in_order.value == pytest.approx(np.mean(ties))
    by_instruction = within(group / 7, label, group)
    assert by_instruction.in_order == constant.in_order
    assert (constant.over_chance.value, constant.over_chance.low) == (0, None)
    marks = LabelArray(np.arange(len(label)), np.zeros(len(label), int), label)
    agreement = agree_within({"integer": label, "length": label}, marks, group, np.arange(len(label)), 0)
    assert agreement is not None
    over = agreement.over_baselines
    assert (over["length"].value, over["length"].low) == (0, None), "the judge says what the baseline says"
    assert over["length"].why == "it is the same on all instructions"
    assert over["equal"].value == pytest.approx(1 - np.mean(ties))
    trivial = agreement.comparisons
    assert trivial["equal"].in_order == constant.in_order
    assert trivial["random"].in_order.value == pytest.approx((1 - np.mean(ties)) / 2)
    assert trivial["random"].in_order.low is not None
    assert trivial["random"].in_order.high is not None
    assert trivial["random"].in_order.low < (1 - np.mean(ties)) / 2 < trivial["random"].in_order.high


@pytest.mark.parametrize(
    ("over", "verdict"),
    [
        (Estimate(0.07, 0.02, 0.12), "it is better by 0.07 (.02 to .12)"),
        (Estimate(0.30, 0.20, 0.40), "it is better by 0.30 (.20 to .40)"),
        (Estimate(0.01, 0.001, 0.02), "it is better by 0.01 (.00 to .02)"),
        (Estimate(-0.07, -0.12, -0.02), "it is worse by 0.07 (.02 to .12)"),
        (Estimate(-0.30, -0.40, -0.20), "it is worse by 0.30 (.20 to .40)"),
        (Estimate(-0.01, -0.02, -0.001), "it is worse by 0.01 (.00 to .02)"),
        (Estimate(0.02, -0.06, 0.10), "there is no clear difference, 0.02 (-.06 to .10)"),
        (
            Estimate(0.02, why=NOT_DEFINED),
            "which is better is unknown (0.02), because the difference has no interval: it is not defined",
        ),
        (
            Estimate(0.0, why=EQUAL_EVERYWHERE),
            "which is better is unknown (0.00), because the difference has no interval: it is the same on all "
            "instructions",
        ),
    ],
)
def test_the_verdict_is_the_difference_to_the_best_baseline_that_was_tested(
    over: Estimate, verdict: str
) -> None:
    judge = Estimate(0.71, 0.66, 0.76)
    shares = {"integer": judge, "expected": judge, "length": Estimate(0.64), "overlap": Estimate(0.5)}
    compared = {name: WithinComparison(each, UNDEFINED, 0.0) for name, each in shares.items()}
    aspect = AspectAgreement(
        rows=120, instructions=40, annotators=1, comparisons=dict.fromkeys(shares, Comparison()),
        over_baselines={"spearman": {}}, counts={},
        within=WithinInstructions(40, 120, compared, {"overlap": Estimate(9.0), "length": over}),
        alpha=UNDEFINED, outside=None,
    )  # fmt: skip
    said = agreement_findings(Agreement({"wit": aspect}, {}, (), ())).answer[0]
    begin = "This judge orders responses as people do in 0.71 (.66 to .76) of the pairs, length alone in 0.64: "
    assert said == f"{begin}{verdict}."


def test_agree_says_whether_the_judge_is_better_than_length_alone_and_whether_it_reads_the_responses(
    tmp_path: Path, cli: Cli
) -> None:
    column, label, group = some_sets(60, quality=0.9)
    rng = np.random.default_rng(4)
    scores = {"good": column, "blind": 3 + rng.normal(size=len(label))}
    for name, numbers in scores.items():
        rows, labels = tmp_path / f"{name}.jsonl", tmp_path / "labels.jsonl"
        texts = [
            {
                "id": str(n),
                "system": f"s{n % SYSTEMS}",
                "instruction": f"question {g}",
                "candidate": f"answer {n}",
            }
            for n, g in enumerate(group)
        ]
        given = np.clip(np.round(numbers), 1, 5).astype(int).tolist()
        rows.write_text(
            "".join(json.dumps(row | {"wit": score}) + "\n" for row, score in zip(texts, given, strict=True))
        )
        labels.write_text(
            "".join(json.dumps(row | {"wit": score}) + "\n" for row, score in zip(texts, label, strict=True))
        )
        assert cli("import", rows, "--aspect", "wit", "--out", tmp_path / name).code == 0
        found = json.loads(cli("agree", tmp_path / name, "--labels", labels, "--json").out)["aspects"]["wit"][
            "within"
        ]
        over, share = found["over_baselines"]["random"], found["comparisons"]
        assert over["value"] == pytest.approx(
            share["integer"]["in_order"]["value"] - share["random"]["in_order"]["value"]
        )
        assert (found["over_baselines"]["equal"]["low"] > 0) == (name == "good")
        end = cli("agree", tmp_path / name, "--labels", labels, "--all", "--resamples", "100")
        assert end.code == 0, end.err
        said = " ".join(end.out.split())
        assert ("it is better by" in said) == (name == "good")
        assert ("Nothing shows that this judge reads the responses" in said) == (name == "blind")
        assert "random scores" in said


def test_rows_of_the_same_texts_are_one_response() -> None:
    column, label, group = some_sets(20, quality=0.5)
    first = np.arange(len(group))
    twice = within(np.tile(column, 2), np.tile(label, 2), np.tile(group, 2), np.tile(first, 2))
    assert twice == within(column, label, group)


def test_one_response_an_instruction_has_no_agreement_within() -> None:
    marks = LabelArray(np.arange(9), np.zeros(9, int), np.arange(9.0))
    own = np.arange(9)
    assert LabelledResponses.from_labels(marks, own, own) is None
    assert LabelledResponses.from_labels(marks, np.array([0, 0, 1, 2, 3, 4, 5, 6, 7]), own) is None
    assert LabelledResponses.from_labels(marks, np.array([0, 0, 1, 1, 3, 4, 5, 6, 7]), own) is not None
