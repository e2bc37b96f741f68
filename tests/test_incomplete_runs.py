"""Tests of runs that are ranked before their end: random order, confidence sequences, `--until-decided`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli, read_lines

from localjudge.judge import Judge
from localjudge.matching.judged_rows import read_scores
from localjudge.runs import StopRequest
from localjudge.runs.pipeline import score_run
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_plan import RunPlan
from localjudge.statistics.confidence_sequence import ConfidenceSequence
from localjudge.studies.rank import rank

KINDS = {"good": 9, "poor": 2}
WORDS = [f"{one}{two}" for one in ("al", "be", "ga", "de") for two in ("pha", "ta", "mma", "lta", "ron")]


def rows(count: int) -> Iterator[dict[str, str]]:
    """Yield a row of a good and one of a poor system for each instruction."""
    for number in range(count):
        reference = np.random.default_rng(number).permutation(WORDS)[:10]
        for system, kept in KINDS.items():
            candidate = " ".join([*reference[:kept], *["x"] * (10 - kept)])
            yield {
                "id": str(number),
                "system": system,
                "instruction": f"Question {number}: name words.",
                "reference": " ".join(reference),
                "candidate": candidate,
                "topic": "words",
            }


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Return a judge with the bundled model, in batches of three."""
    with Judge(model="bundled", engine_args={"batch_size": "3"}) as judge:
        yield judge


class AfterSome(StopRequest):
    """Requests a stop at a number of questions whether to stop."""

    def __init__(self, number: int) -> None:
        self.left = number

    def asked(self) -> bool:
        self.left -= 1
        return self.left < 0


def by_steps(values: list[float], lowest: float, highest: float, null: float) -> float:
    """Return the largest logarithm of the capital against a mean, one value after the other."""
    share, null = (
        [(each - lowest) / (highest - lowest) for each in values],
        (null - lowest) / (highest - lowest),
    )
    capital = {1: 0.0, -1: 0.0}
    best, variance = 0.0, 0.25
    for number, each in enumerate(share, 1):
        bet = (2 * np.log(2 / 0.05) / (variance * number * np.log(1 + number))) ** 0.5
        capital[1] += np.log(1 + min(bet, 0.75 / null) * (each - null))
        capital[-1] += np.log(1 - min(bet, 0.75 / (1 - null)) * (each - null))
        best = max(best, *capital.values())
        means = [(0.5 + sum(share[:seen])) / (1 + seen) for seen in range(1, number + 1)]
        squares = sum((one - mean) ** 2 for one, mean in zip(share, means, strict=False))
        variance = (0.25 + squares) / (1 + number)
    return best


def test_the_ends_are_where_the_capital_reaches_its_threshold() -> None:
    values = np.random.default_rng(3).integers(1, 6, 80).astype(float)
    found = ConfidenceSequence(values[:, None], 1, 5)
    for end in (found.low[0], found.high[0]):
        assert by_steps(values.tolist(), 1, 5, end) == pytest.approx(np.log(40), abs=1e-6)
    assert found.value[0] == pytest.approx(values.mean())
    of_differences = ConfidenceSequence(values[:, None] - 3, -4, 4)
    assert of_differences.p[0] == pytest.approx(min(1, 2 * np.exp(-by_steps([*(values - 3)], -4, 4, 0))))


def test_who_looks_all_the_time_is_wrong_in_at_most_five_of_a_hundred_sweeps() -> None:
    missed = 0
    for seed in range(400):
        scores = np.random.default_rng(seed).choice([-2.0, 0.0, 1.0], p=[0.2, 0.4, 0.4], size=(150, 1))
        found = ConfidenceSequence(scores, -4, 4)  # an end that is passed once stays passed
        missed += not found.low[0] <= 0 <= found.high[0]
    assert missed / 400 <= 0.05


def test_a_difference_is_found_and_p_agrees_with_the_interval() -> None:
    random = np.random.default_rng(0)
    differences = np.column_stack([random.normal(0.5, 0.8, 300), random.normal(0, 0.8, 300), np.zeros(300)])
    found = ConfidenceSequence(np.clip(differences, -4, 4), -4, 4, together=True)
    assert ((found.p < 0.05) == ((found.low > 0) | (found.high < 0))).all()
    assert (found.p < 0.05).tolist() == [True, False, False]
    alone = ConfidenceSequence(np.clip(differences[:, :1], -4, 4), -4, 4)
    assert alone.high[0] - alone.low[0] < found.high[0] - found.low[0]


def test_a_missing_value_changes_nothing() -> None:
    values = np.random.default_rng(5).integers(1, 6, 40).astype(float)
    with_gaps = np.full((80, 2), np.nan)
    with_gaps[::2, 0] = values
    found, whole = ConfidenceSequence(with_gaps, 1, 5), ConfidenceSequence(values[:, None], 1, 5)
    for name in ("value", "low", "high"):
        assert getattr(found, name)[0] == pytest.approx(getattr(whole, name)[0])
    assert (found.low[1], found.high[1]) == pytest.approx((1, 5)), "a column without values says nothing"
    assert np.isnan(found.value[1])


def test_a_random_order_keeps_instructions_together_and_does_not_depend_on_other_rows(judge: Judge) -> None:
    def order(count: int, seed: int | None) -> list[str]:
        with RunPlan(judge, RowSource.from_rows([*rows(count)]).rows, shuffle=seed) as plan:
            return [row.id for row in plan]

    ten, twenty = order(10, 0), order(20, 0)
    assert ten[::2] == ten[1::2]
    assert sorted(ten) == sorted(order(10, None))
    assert ten != order(10, None)
    assert ten != order(10, 1)
    assert [each for each in twenty if int(each) < 10] == ten


def test_a_stopped_run_is_ranked_by_its_first_finished_instructions(
    tmp_path: Path, judge: Judge, cli: Cli
) -> None:
    out, whole = tmp_path / "a", tmp_path / "whole"
    source = RowSource.from_rows([*rows(30)])
    stopped = score_run(judge, RowSource.from_rows([*rows(30)]), out, shuffle=7, stopping=AfterSome(41))
    assert not stopped.complete
    with RunPlan(judge, source.rows, shuffle=7) as plan:
        planned = [each.id for each in plan][::2]
    done = [each["id"] for each in read_lines(out)]
    prefix = 0
    while done.count(planned[prefix]) == 2:
        prefix += 1
    assert 5 < prefix < 30
    found = rank(read_scores([out]))
    assert found.systems[0].instructions == prefix
    assert any(f"the first {prefix} of 30 instructions" in note for note in found.notes)
    chosen = [each for each in read_lines(out) if each["id"] in planned[:prefix] and each["system"] == "good"]
    good = next(each for each in found.systems if each.name == "good")
    assert good.means["clarity"].value == pytest.approx(np.mean([each["clarity_expected"] for each in chosen]))
    assert good.means["clarity"].low is not None
    out_text = cli("rank", out).out
    assert "hold at every look" in out_text

    score_run(judge, RowSource.from_rows([*rows(30)]), out, shuffle=7)
    score_run(judge, RowSource.from_rows([*rows(30)]), whole, shuffle=7)
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()
    assert sorted(each.name for each in out.iterdir()) == sorted(each.name for each in whole.iterdir())
    assert json.loads((out / "run.json").read_text())["starts"][0]["shuffle"] == 7


def test_other_incomplete_runs_get_no_intervals_and_it_says_why(tmp_path: Path, judge: Judge, cli: Cli) -> None:
    out = tmp_path / "a"
    score_run(judge, RowSource.from_rows([*rows(30)]), out, stopping=AfterSome(41))
    found = rank(read_scores([out]))
    assert "not complete" in found.without_intervals
    assert all(pair.p is None and pair.difference.low is None for pair in found.pairs)
    assert all(each.low is None for system in found.systems for each in system.means.values())
    said = cli("rank", out).out
    assert "Differences are not tested" in said
    assert "score --shuffle" in said
    sliced = cli("rank", out, "--by-column", "topic")
    assert sliced.code == 2
    assert "not complete" in sliced.err


@pytest.mark.slow
def test_a_sweep_stops_when_its_best_system_is_known(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(150)))
    out = tmp_path / "a"
    settings = [
        file,
        "--out",
        out,
        "--shuffle",
        "--until-decided",
        "helpfulness",
        "--engine-arg",
        "batch_size=4",
    ]
    end = cli("score", *settings)
    assert end.code == 0, end.err
    assert "decided: good is the highest in helpfulness" in end.err
    assert len([*read_lines(out)]) < 290
    ranked = cli("rank", out, "--by", "helpfulness").out.replace("\n", " ")
    assert "good is significantly higher than poor" in ranked


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--until-decided", "helpfulness"], "only with --shuffle"),
        (["--until-decided", "beauty", "--shuffle"], "give one of safety"),
        (
            ["--until-decided", "preference", "--shuffle", "--rubric", "pairwise"],
            "judges one response",
        ),
    ],
)
def test_until_decided_refuses_what_it_cannot_decide(
    tmp_path: Path, cli: Cli, options: list[str], says: str
) -> None:
    end = cli("score", "examples", "--out", tmp_path / "a", *options)
    assert end.code == 2
    assert says in end.err
    assert not (tmp_path / "a").exists()
