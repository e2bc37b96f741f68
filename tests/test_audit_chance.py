"""Tests of the level of chance of an audit, on simulated scores of the default number of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.random import Generator

from localjudge.arrays import Floats
from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.rubrics.score_column import ScoreColumn, score_columns
from localjudge.studies.audit import AuditReader
from localjudge.studies.audit.audit_scores import AuditedScores
from localjudge.studies.audit.expected_changes import ColumnChanges, change_test
from localjudge.studies.audit.perturbations import PAIR_PERTURBATIONS, PERTURBATIONS, Direction, Perturbation

ROWS, REPEATS = 100, 20
DEPTH = score_columns({"depth": Aspect(scale=Scale(lowest=1, highest=5))})
BETTER = (ScoreColumn("better", "better", {False: 0, True: 1}, 1.0),)
IGNORES_THE_TEXT: dict[str, Callable[[Generator], float]] = {
    "random integers": lambda random: float(random.integers(1, 6)),
    "random expected scores": lambda random: float(np.clip(random.normal(3.5, 0.7), 1, 5)),
    "expected scores close together": lambda random: float(random.normal(4, 0.15)),
    "always 4": lambda random: 4.0,
    "nearly always 4": lambda random: float(random.normal(4, 0.02)),
}
IGNORES_THE_PAIR: dict[str, Callable[[Generator], Floats]] = {
    "random answers": lambda random: random.choice([0.0, 0.5, 1.0], 2),
    "random probabilities": lambda random: random.random(2),
    "mostly the first": lambda random: (random.random(2) < 0.8).astype(float),
    "always a tie": lambda random: np.full(2, 0.5),
}
NO_RESPONSE = ("empty", "other", "colon", "opener", "constant")


def sound(
    perturbations: Sequence[Perturbation],
    columns: tuple[ScoreColumn, ...],
    judged: Callable[[str, int], Floats],
    seed: int = 0,
) -> set[str]:
    """Return the checks that a judge passes; `judged` has its score of a perturbation of a row, or, of a pair,
    the probability that the response shown first is better in each order."""
    numbers = {
        name: np.array([judged(name, row) for row in range(ROWS)])
        for name in ("original", *(each.name for each in perturbations if each.name != "position"))
    }
    if perturbations is PAIR_PERTURBATIONS:
        shown_first = {name: table[:, :, None] for name, table in numbers.items()}
        numbers = {name: (table[:, 0] + 1 - table[:, 1]) / 2 for name, table in shown_first.items()}
        places = {name: np.sign(np.round(table - 0.5, 2)) for name, table in shown_first.items()}
        scores = AuditedScores(columns, "preference", numbers, shown_first, places)
    else:
        scores = AuditedScores(columns, "expected", {name: table[:, None] for name, table in numbers.items()})
    reader = AuditReader(scores, np.arange(ROWS, dtype=np.int32), seed)
    checks = [reader.check(each, Counter(), None) for each in perturbations]
    return {check.name for check in checks if check.verdict == "sound"}


@pytest.mark.slow
@pytest.mark.parametrize("judge", IGNORES_THE_TEXT.values(), ids=list(IGNORES_THE_TEXT))
def test_a_judge_that_ignores_the_text_passes_no_check(judge: Callable[[Generator], float]) -> None:
    passed: Counter[str] = Counter()
    for seed in range(REPEATS):
        random = np.random.default_rng(seed)
        passed.update(
            sound(PERTURBATIONS, DEPTH, lambda name, row, r=random: np.array(judge(r)))  # type: ignore[misc]
        )
    assert max(passed.values(), default=0) <= 0.2 * REPEATS, "5 % and three standard errors"
    assert passed.total() <= 0.05 * REPEATS * len(PERTURBATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("judge", IGNORES_THE_PAIR.values(), ids=list(IGNORES_THE_PAIR))
def test_a_judge_that_ignores_the_responses_of_a_pair_passes_no_check(
    judge: Callable[[Generator], Floats],
) -> None:
    passed: Counter[str] = Counter()
    for seed in range(REPEATS):
        random = np.random.default_rng(seed)
        passed.update(sound(PAIR_PERTURBATIONS, BETTER, lambda name, row, r=random: judge(r), seed))  # type: ignore[misc]
    assert max(passed.values(), default=0) <= 0.2 * REPEATS, "5 % and three standard errors"
    assert passed.total() <= 0.05 * REPEATS * len(PAIR_PERTURBATIONS)


def test_a_judge_that_knows_only_the_instruction_passes_no_check() -> None:
    assert not sound(PERTURBATIONS, DEPTH, lambda name, row: np.array(2.0 + row % 4))


@pytest.mark.parametrize("rounded", [False, True])
def test_a_judge_that_reacts_with_a_little_noise_passes_every_check_with_the_default_rows(
    rounded: bool,
) -> None:
    random = np.random.default_rng(0)

    def judged(name: str, row: int) -> Floats:
        own = 2.0 + row % 4
        score = {"reference": 4.9, "swapped": max(4.9 - 0.1 * own, own), "half": own - 1.2} | dict.fromkeys(
            NO_RESPONSE, 1.2
        )
        lapse = random.random() < 0.02
        value = random.uniform(1, 5) if lapse else score.get(name, own) + random.normal(0, 0.08)
        value = np.clip(value, 1, 5)
        return np.round(value) if rounded else np.array(value)

    assert sound(PERTURBATIONS, DEPTH, judged) == {each.name for each in PERTURBATIONS}


def test_a_comparing_judge_with_a_little_noise_passes_every_check_with_the_default_rows() -> None:
    random = np.random.default_rng(0)

    def judged(name: str, row: int) -> Floats:
        wins = row % 2 == 0 and name not in (*NO_RESPONSE, "half")
        first = np.full(2, 0.5) if name == "identical" else np.array([0.1, 0.9])[:: -1 if wins else 1]
        lapse = random.random(2) < 0.02
        return np.where(lapse, random.random(2), first + random.normal(0, 0.004, 2))

    assert sound(PAIR_PERTURBATIONS, BETTER, judged) == {each.name for each in PAIR_PERTURBATIONS}


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_noise_does_not_move_more_often_as_expected_than_the_other_way(direction: Direction) -> None:
    random = np.random.default_rng(0)
    before, after = np.clip(random.normal(3.5, 0.7, (2, 20_000)), 1, 5)
    no_orders = np.zeros(len(before), dtype=np.bool_)
    one_way = change_test(direction, DEPTH[0], ColumnChanges(before, after, no_orders))
    other_way = change_test(direction, DEPTH[0], ColumnChanges(after, before, no_orders))
    assert one_way.tested.mean() == pytest.approx(0.48, abs=0.02)
    assert (one_way.has_room == other_way.has_room).all()
    assert other_way.tested.mean() == pytest.approx(one_way.tested.mean(), abs=0.03)
