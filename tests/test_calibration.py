"""Tests of what a calibration is approved for, and of what is said of calibrated scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli

from localjudge.studies.calibrate import fit_map
from localjudge.studies.calibration import AspectMap
from localjudge.studies.imported_scores import import_scores

FEW = 200


def fitted(score: Any, human: Any) -> AspectMap:
    """Fit a map of rows of which two each belong to an instruction."""
    group = np.arange(len(score), dtype=np.int32) // 2
    return fit_map(np.array(score, dtype=float), np.array(human, dtype=float), group, FEW, 0)


def generous(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels of a judge that sees the quality and is too generous."""
    rng = np.random.default_rng(1)
    human = rng.integers(1, 6, count)
    return np.minimum(human + rng.integers(1, 3, count), 5), human


def test_random_scores_are_not_approved_although_a_constant_is_better_than_they_are() -> None:
    rng = np.random.default_rng(3)
    score, human = rng.integers(1, 6, 120), rng.integers(4, 6, 120)
    found = fitted(score, human)
    assert found.gain.low is not None
    assert found.gain.low > 0, "the raw scores are worse than any constant"
    assert found.over_constant.low is not None
    assert found.over_constant.low <= 0
    assert not found.has_gain
    score, human = generous(120)
    assert fitted(score, human).has_gain
    assert not fitted(rng.permutation(score), human).has_gain


def test_random_scores_are_seldom_approved() -> None:
    rng = np.random.default_rng(5)
    shown = sum(fitted(rng.integers(1, 6, 60), rng.integers(3, 6, 60)).has_gain for _ in range(60))
    assert shown <= 5


def test_the_gain_over_the_constant_is_the_difference_of_the_squared_errors() -> None:
    found = fitted(*generous(80))
    assert found.mse_as_judged is not None
    assert found.mse_calibrated is not None
    assert found.mse_constant is not None
    assert found.gain.value == pytest.approx(found.mse_as_judged - found.mse_calibrated)
    assert found.over_constant.value == pytest.approx(found.mse_constant - found.mse_calibrated)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of two systems by a generous judge, with its labels in the file `labels.jsonl` beside it."""
    score, human = generous(120)
    records = [
        {"id": f"r{n}", "system": "ab"[n % 2], "instruction": f"Question {n // 2}?", "reference": "Yes.",
         "candidate": f"It is {n}.", "wit": int(value)}
        for n, value in enumerate(score)
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    labels = [json.dumps({"id": f"r{n}", "wit": int(value)}) for n, value in enumerate(human)]
    (tmp_path / "labels.jsonl").write_text("\n".join(labels[:80]) + "\n")
    (tmp_path / "new.jsonl").write_text("\n".join(labels[80:]) + "\n")
    (tmp_path / "edited.jsonl").write_text("\n" + "\n\n".join(labels[:80][::-1]))
    import_scores([str(tmp_path / "rows.jsonl")], tmp_path / "run", ["wit"])
    return tmp_path / "run"


@pytest.fixture
def calibration(run: Path, tmp_path: Path, cli: Cli) -> Path:
    ended = cli("calibrate", run, "--labels", tmp_path / "labels.jsonl", "--out", tmp_path / "map.json")
    assert ended.code == 0
    return tmp_path / "map.json"


def test_the_map_of_a_share_is_printed_at_the_scores_where_it_was_read(tmp_path: Path, cli: Cli) -> None:
    rows = [
        {"id": f"{n}", "instruction": f"Question {n}?", "reference": "", "candidate": f"{n}", "ok": n % 2}
        for n in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_scores([str(tmp_path / "rows.jsonl")], tmp_path / "run", ["ok"], scale=(0, 1))
    labels = [json.dumps({"id": f"{n}", "ok": int(n % 2 and n % 20 > 0)}) for n in range(40)]
    (tmp_path / "labels.jsonl").write_text("\n".join(labels))
    given = "--labels", tmp_path / "labels.jsonl", "--out", tmp_path / "map.json"
    said = cli("calibrate", tmp_path / "run", *given).out
    assert "0.00→0.00 0.25→0.25 0.50→0.50 0.75→0.75 1.00→1.00" in said


def test_a_blank_line_in_the_label_file_does_not_hide_that_the_map_was_fitted_on_it(
    run: Path, calibration: Path, tmp_path: Path, cli: Cli
) -> None:
    for file in ("labels.jsonl", "edited.jsonl"):
        ended = cli("rank", run, "--labels", tmp_path / file, "--calibration", calibration)
        assert ended.code == 0
        assert "fitted on labels of 80 of these 80 labelled" in " ".join(ended.out.split())
    ended = cli("rank", run, "--labels", tmp_path / "new.jsonl", "--calibration", calibration)
    assert (ended.code, "fitted on labels" in ended.out) == (0, False)


def test_a_calibrated_mean_has_no_interval_and_no_test_and_the_human_mean_of_new_labels_has(
    run: Path, calibration: Path, tmp_path: Path, cli: Cli
) -> None:
    found = json.loads(cli("rank", run, "--calibration", calibration, "--json").out)
    assert [system["means"]["wit"]["low"] for system in found["systems"]] == [None, None]
    assert (found["pairs"][0]["difference"]["low"], found["pairs"][0]["p"]) == (None, None)
    assert any("they are not human means" in note for note in found["notes"])
    text = cli("rank", run, "--calibration", calibration).out
    assert "Differences are not tested: calibrated means have no intervals" in text
    assert "95 %" not in text
    labels = ("--labels", tmp_path / "new.jsonl")
    found = json.loads(cli("rank", run, *labels, "--calibration", calibration, "--json").out)
    assert [system["means"]["wit"]["low"] for system in found["systems"]] == [None, None]
    assert all(system["human"]["wit"]["low"] is not None for system in found["systems"])
    assert found["pairs"][0]["p"] is not None
