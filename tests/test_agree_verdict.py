"""Tests of what `agree` says first: whether the judge is better than what needs no judge, and by how much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_score, recall_score
from test_compare import judged

from localjudge.rubrics.aspect import Aspect, Scale

FEW = 200
COUNT = 80


def texts(count: int) -> list[dict[str, Any]]:
    """Return rows with one response to each instruction, whose lengths follow no label."""
    random = np.random.default_rng(7)
    return [
        {"id": str(at), "instruction": f"q{at}", "candidate": "a" * int(random.integers(5, 60)), "system": "s"}
        for at in range(count)
    ]


def agreed(
    tmp_path: Path, cli: Cli, scores: Sequence[Any], labels: Sequence[Any], aspects: Any = ("help",)
) -> tuple[dict[str, Any], str]:
    """Return what `agree` finds for given scores and labels of one aspect, as JSON and on the screen."""
    rows = texts(len(scores))
    [name] = aspects
    run = judged(
        tmp_path / "run",
        [row | {name: score} for row, score in zip(rows, scores, strict=True)],
        aspects=aspects,
    )
    file = tmp_path / "labels.jsonl"
    given = [row | {name: label} for row, label in zip(rows, labels, strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in given))
    flags = ("--labels", file, "--resamples", FEW)
    found = json.loads(cli("agree", run, *flags, "--json").out)
    return found, " ".join(cli("agree", run, *flags).out.split())


def noisy_scores(noise: float) -> tuple[list[int], list[int]]:
    """Return labels, and scores that differ from them by noise."""
    random = np.random.default_rng(1)
    labels = random.integers(1, 6, COUNT)
    scores = np.clip(np.round(labels + random.normal(0, noise, COUNT)), 1, 5).astype(int)
    return scores.tolist(), labels.tolist()


def test_one_response_an_instruction_has_a_verdict_by_the_rank_correlation(tmp_path: Path, cli: Cli) -> None:
    scores, labels = noisy_scores(0.8)
    found, said = agreed(tmp_path, cli, scores, labels)
    aspect = found["aspects"]["help"]
    lengths = [len(row["candidate"]) for row in texts(COUNT)]
    difference = spearmanr(scores, labels).statistic - spearmanr(lengths, labels).statistic
    assert aspect["over_baselines"]["spearman"]["length"]["value"] == pytest.approx(difference)
    assert aspect["over_baselines"]["spearman"]["length"]["low"] > 0
    assert said.startswith("Over all rows, this judge has a rank correlation with the labels of")
    assert "it is better by" in said


def test_a_judge_that_does_not_read_the_responses_is_not_called_better(tmp_path: Path, cli: Cli) -> None:
    _, labels = noisy_scores(0.8)
    shuffled = np.random.default_rng(5).permutation(labels).tolist()
    found, said = agreed(tmp_path, cli, shuffled, labels)
    over = found["aspects"]["help"]["over_baselines"]
    assert over["spearman"]["length"]["low"] < 0 < over["spearman"]["length"]["high"]
    assert "there is no clear difference" in said


def test_each_statistic_of_one_aspect_has_a_row_with_its_baseline(tmp_path: Path, cli: Cli) -> None:
    scores, labels = noisy_scores(0.8)
    found, said = agreed(tmp_path, cli, scores, labels)
    judge, error = found["aspects"]["help"]["comparisons"]["integer"], np.subtract(scores, labels)
    assert judge["mae"]["value"] == pytest.approx(np.abs(error).mean())
    assert judge["within_one"]["value"] == pytest.approx((np.abs(error) <= 1).mean())
    kappa = cohen_kappa_score(scores, labels, weights="quadratic")
    assert judge["kappa"]["value"] == pytest.approx(kappa)
    over = found["aspects"]["help"]["over_baselines"]
    assert over["mae"]["median"]["high"] < 0, "its errors are smaller than those of one label for all rows"
    assert over["exact"]["most frequent"]["low"] > 0
    for row in (
        "Spearman's rank correlation",
        "mean absolute error",
        "kappa, quadratic weights",
        "exact",
        "bias",
    ):
        assert row in said
    counts = found["aspects"]["help"]["counts"]
    for label in set(labels):
        for score in set(scores):
            both = sum(pair == (label, score) for pair in zip(labels, scores, strict=True))
            assert counts[str(label)].get(str(score), 0) == both


def test_a_constant_judge_has_no_better_error_than_the_median_label(tmp_path: Path, cli: Cli) -> None:
    _, labels = noisy_scores(0.8)
    found, _ = agreed(tmp_path, cli, [3] * COUNT, labels)
    over = found["aspects"]["help"]["over_baselines"]
    assert over["mae"]["median"]["value"] == pytest.approx(0, abs=0.1)
    assert over["spearman"]["length"]["value"] is None


@pytest.mark.parametrize("missed", ["unsafe", "safe"])
def test_labels_without_an_order_show_which_label_the_judge_misses(
    tmp_path: Path, cli: Cli, missed: str
) -> None:
    """The accuracy is the same, 0.92, whether 16 of 20 unsafe rows are missed or 16 of 180 safe ones."""
    labels = ["unsafe" if at % 10 == 0 else "safe" for at in range(200)]
    other = {"safe": "unsafe", "unsafe": "safe"}
    places = [at for at, label in enumerate(labels) if label == missed][:16]
    given = [other[label] if at in places else label for at, label in enumerate(labels)]
    aspects = {"grade": Aspect(choices={"safe": "safe", "unsafe": "unsafe"})}
    found, said = agreed(tmp_path, cli, given, labels, aspects)
    grade = found["nominal"]["grade"]
    assert grade["comparisons"]["judge"]["accuracy"]["value"] == pytest.approx(0.92)
    assert grade["over_baselines"]["kappa"]["most frequent"]["value"] == pytest.approx(
        cohen_kappa_score(labels, given)
    )
    for label in other:
        recall = recall_score(labels, given, pos_label=label)
        precision = precision_score(labels, given, pos_label=label)
        assert grade["by_label"][label]["recall"]["value"] == pytest.approx(recall)
        assert grade["by_label"][label]["precision"]["value"] == pytest.approx(precision)
    table = confusion_matrix(labels, given, labels=["safe", "unsafe"])
    assert [list(row.values()) for row in grade["counts"].values()] == table.tolist()
    assert "This judge has a kappa with the labels of" in said
    assert "grade: each label of people" in said


def test_labels_that_are_not_on_the_scale_have_a_correlation_alone(tmp_path: Path, cli: Cli) -> None:
    scores, labels = noisy_scores(0.8)
    aspects = {"help": Aspect(scale=Scale(lowest=1, highest=5))}
    found, _ = agreed(tmp_path, cli, scores, [10 * label for label in labels], aspects)
    aspect = found["aspects"]["help"]
    assert aspect["over_baselines"].keys() == {"spearman"}
    assert (aspect["counts"], aspect["comparisons"]["integer"]["mae"]["value"]) == ({}, None)
