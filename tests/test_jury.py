"""Tests of what a jury knows with and without labels: agreement, the outlier, the best juror."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli

from localjudge import Rubric
from localjudge.arrays import Integers, LabelArray
from localjudge.statistics.jury_agreement import JuryErrors, RatedAspect, jury_errors
from localjudge.studies.imported_scores import import_scores

FEW, ROWS = 200, 200
NAMES = ("first", "second", "third")
GRADES = {0: "correct", 1: "partly", 2: "incorrect"}


def errors_of(
    table: Sequence[Sequence[int]] | Integers, labels: Sequence[int] | Integers, nominal: bool = True
) -> JuryErrors:
    """Return the errors of jurors, [rows, k], against one label for each row; each row has its instruction."""
    codes = np.array(table, dtype=np.int32)
    rows = np.arange(len(codes), dtype=np.int32)
    rated = RatedAspect(
        "grade", "nominal" if nominal else "ordinal", codes, GRADES if nominal else {1: 1, 5: 5}
    )
    marks = LabelArray(rows, np.zeros_like(rows), np.array(labels, dtype=np.float64))
    scores = None if nominal else codes.astype(np.float64)
    return jury_errors(rated, scores, marks, rows, NAMES[: codes.shape[1]], FEW, 0)


def judged(random: np.random.Generator, labels: Integers, wrong: float) -> Integers:
    """Return labels of which a share is wrong."""
    return np.where(random.random(len(labels)) < wrong, (labels + 1) % 3, labels)


@pytest.fixture
def labels() -> Integers:
    return np.random.default_rng(1).integers(0, 3, 400)


def test_jurors_with_independent_errors_are_better_together_and_copies_are_not(labels: Integers) -> None:
    random = np.random.default_rng(0)
    jurors = np.column_stack([judged(random, labels, wrong) for wrong in (0.3, 0.3, 0.3)])
    apart = errors_of(jurors, labels)
    assert apart.difference.high is not None
    assert apart.difference.high < 0, "a majority of independent jurors is better than each of them"
    copies = errors_of(jurors[:, [0, 0, 0]], labels)
    assert (copies.difference.value, copies.difference.low) == (0, None)


@pytest.mark.parametrize("nominal", [True, False])
def test_the_error_of_a_jury_is_that_of_its_mean_or_of_its_majority(labels: Integers, nominal: bool) -> None:
    random = np.random.default_rng(2)
    shared = judged(random, labels, 0.3)
    jurors = np.column_stack([judged(random, shared, 0.1) for _ in NAMES])
    found = errors_of(jurors, labels, nominal)
    majority = [
        len({*row}) == 3 or np.bincount(row).argmax() != label
        for row, label in zip(jurors, labels, strict=True)
    ]
    mean = np.abs(jurors.mean(axis=1) - labels).mean()
    assert found.jury.value == pytest.approx(np.mean(majority) if nominal else mean, abs=0.02)


def test_perfect_jurors_have_no_error_and_one_instruction_has_no_best_juror(labels: Integers) -> None:
    assert errors_of(np.column_stack([labels] * 3), labels).jury.value == 0
    one = errors_of([[0, 0, 1]], [0])
    assert (one.best, one.best_juror.value, one.difference.value) == (None, None, None)


def test_the_best_juror_is_compared_on_instructions_that_did_not_choose_it() -> None:
    rows = 40
    half = np.random.default_rng(0).permutation(rows) < rows // 2
    # The first juror is right wherever the best juror is chosen, and wrong everywhere else.
    found = errors_of(np.column_stack([~half, np.tile([0, 1], 20), np.tile([1, 0], 20)]), [0] * rows)
    assert (found.best, found.compared) == ("first", 20)
    assert found.best_juror.value == 1
    assert found.difference.value is not None
    assert found.jury.value == pytest.approx(found.best_juror.value + found.difference.value)


def test_a_best_juror_among_equals_is_not_better_than_it_is() -> None:
    random = np.random.default_rng(3)
    means = []
    for _ in range(200):
        truth = random.integers(0, 3, 30)
        found = errors_of(np.column_stack([judged(random, truth, 0.3) for _ in NAMES]), truth)
        means.append(found.best_juror.value or 0.0)
    assert np.mean(means) == pytest.approx(0.3, abs=0.02), "the smallest of three errors would be 0.24"


def make_jury(folder: Path, judges: Sequence[str], rows: int = ROWS) -> tuple[list[Path], Path]:
    """Import three runs with mostly the same errors, by judges of these names; write the true labels."""
    random = np.random.default_rng(4)
    truth = random.integers(0, 2, rows)
    wrong = random.random(rows) < 0.3
    tables = [truth, *(truth ^ wrong ^ (random.random(rows) < 0.05) for _ in judges)]
    files = [folder / "labels.jsonl", *(folder / f"scores{number}.jsonl" for number in range(len(judges)))]
    for file, table in zip(files, tables, strict=True):
        lines = [
            {
                "id": f"r{n}",
                "instruction": f"Q{n}",
                "candidate": "It is.",
                "grade": ("correct", "incorrect")[label],
            }
            for n, label in enumerate(table)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in lines))
    runs = [folder / f"run{number}" for number in range(len(judges))]
    grade = {"grade": Rubric.load("correctness").aspects["grade"]}
    for file, run, judge in zip(files[1:], runs, judges, strict=True):
        import_scores([str(file)], run, grade, judge=judge)
    return runs, files[0]


def test_labels_compare_a_jury_of_one_judge_with_its_best_juror(tmp_path: Path, cli: Cli) -> None:
    runs, file = make_jury(tmp_path, ("elsewhere",) * 3)
    flags = ("jury", *runs, "--labels", file, "--resamples", FEW)
    found = json.loads(cli(*flags, "--json").out)
    grade = found["errors"]["grade"]
    assert grade["rows"] == ROWS
    assert grade["difference"]["low"] <= 0 <= grade["difference"]["high"]
    shown = " ".join(cli(*flags).out.split())
    assert shown.startswith("The jury compared with its best juror (a smaller error is better): ")
    assert "--all also prints: errors against the labels" in shown
    numbers = (f"{grade[name]['value']:.2f}" for name in ("jury", "best_juror", "difference"))
    jury, best, difference = numbers
    named = f"(grade: error {jury}, {grade['best']} {best}, difference {difference} ("
    assert f"no clear difference (0 is in the interval) on 1 of 1 aspect {named}" in shown


def test_a_jury_that_is_worse_than_its_best_juror_names_it(tmp_path: Path, cli: Cli) -> None:
    runs = [tmp_path / f"run{juror}" for juror in range(3)]
    for run, (lowest, kinds) in zip(runs, ((1, 2), (4, 2), (3, 3)), strict=True):
        file = tmp_path / f"{run.name}.jsonl"
        rows = [
            {"id": f"r{n}", "instruction": f"Q{n}", "candidate": "It is.", "wit": lowest + n % kinds}
            for n in range(40)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        import_scores([str(file)], run, ["wit"])
    shown = " ".join(cli("jury", *runs, "--labels", tmp_path / "run0.jsonl", "--resamples", FEW).out.split())
    assert re.search(
        r"worse on 1 of 1 aspect \(wit: error \S+, run0 \S+, difference 1\.\d\d \([^-]+\)\)", shown
    )


def test_a_jury_names_the_rows_of_each_number(tmp_path: Path, cli: Cli) -> None:
    runs = []
    for juror, (rows, without) in enumerate(((40, range(0)), (40, range(4)), (30, range(2, 7)))):
        file = tmp_path / f"scores{juror}.jsonl"
        records = [
            {"id": f"r{n}", "instruction": f"Q{n % 20}", "candidate": f"It is {n}.", "wit": 1 + n % (5 - juror)}
            for n in range(rows)
        ]
        for n in without:
            records[n]["wit"] = None
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        runs.append(tmp_path / f"run{juror}")
        import_scores([str(file)], runs[-1], ["wit"])
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps({"id": f"r{n}", "wit": 1 + n % 5}) + "\n" for n in range(20)))
    flags = ("jury", *runs, "--labels", labels, "--resamples", FEW)
    found = json.loads(cli(*flags, "--json").out)
    assert [(juror["rows"], juror["scored"], juror["lost"]) for juror in found["jurors"]] == [
        (40, 40, 0),
        (40, 36, 4),
        (30, 25, 5),
    ]
    assert (found["rows"], found["instructions"]) == (23, 20), "rows 7 to 29"
    errors = found["errors"]["wit"]
    assert (errors["rows"], errors["instructions"]) == (13, 13), "rows 7 to 19"
    assert (errors["compared"], errors["compared_instructions"]) == (7, 7)
    shown = " ".join(cli(*flags, "--all").out.split())
    assert (
        "23 rows of 20 instructions; scored by each: run0 40 of 40 rows, run1 36 of 40 rows, run2 25 of 30"
        in shown
    )
    assert "wit 7 of 13 rows (7 of 13 instructions)" in shown
    assert "4 of 40 rows of run1" not in shown, "a row without a score is no row that matches none"


def test_two_jurors_have_no_majorities_and_no_outlier(tmp_path: Path, cli: Cli) -> None:
    runs, _ = make_jury(tmp_path, ("one", "two"))
    shown = cli("jury", *runs, "--resamples", FEW, "--all").out
    assert shown.startswith("Agreement among the jurors (Krippendorff's nominal alpha, 0 is chance): ")
    assert "all equal" in shown
    assert not any(word in shown for word in ("majority", "tied", "Outlier"))


def test_what_cannot_be_tested_is_not_called_insignificant(tmp_path: Path, cli: Cli) -> None:
    runs = []
    for juror, scores in enumerate(([1, 3, 5], [1, 3, 5], [5, 3, 1])):
        file = tmp_path / f"scores{juror}.jsonl"
        rows = [
            {"id": f"r{n}", "instruction": f"Q{n}", "candidate": "It is.", "wit": score}
            for n, score in enumerate(scores)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        runs.append(tmp_path / f"run{juror}")
        import_scores([str(file)], runs[-1], ["wit"])
    shown = " ".join(cli("jury", *runs, "--labels", tmp_path / "scores0.jsonl", "--resamples", FEW).out.split())
    few = "it depends on fewer than 5 instructions"
    assert (
        f"Outlier among the jurors: not tested, because the gain in agreement has no interval: {few}" in shown
    )
    assert f"because the difference has no interval: {few}" in shown
