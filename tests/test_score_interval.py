"""Tests of the interval of a single score: what it covers, what it refuses, and where it is printed."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from report_page import held_rows

from localjudge import JudgeConfig, RowSource, UsageError, load_run, score_run
from localjudge.arrays import LabelArray
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import read_labels
from localjudge.records import Judgement
from localjudge.statistics.score_interval import ScoreInterval, instructions_needed
from localjudge.studies import calibrate

SCALE = (1, 5)
Rows = tuple[Any, Any, Any, Any]
"""The expected score, the spread, the label and the instruction of each row."""


def judged(rng: np.random.Generator, instructions: int, *, bias: float = 0.0, sees: float = 1.0) -> Rows:
    """Return expected scores, spreads, labels and instructions: one to four rows of each, which are alike."""
    group = np.repeat(np.arange(instructions), rng.integers(1, 5, instructions))
    quality = 3 + rng.normal(size=instructions)[group] + 0.3 * rng.normal(size=len(group))
    label = np.clip(np.round(quality), 1, 5)
    doubt = np.exp(0.5 * rng.normal(size=len(group)))
    expected = np.clip(3 + sees * (quality - 3) + bias + 0.5 * doubt * rng.normal(size=len(group)), 1, 5)
    return expected, doubt / 2, label, group


def fit(rows: Rows, level: float) -> ScoreInterval:
    """Fit the interval of rows that one annotator labelled."""
    expected, spread, label, group = rows
    return ScoreInterval.fit(SCALE, expected, spread, by_one(label), group, level)


def by_one(label: Any) -> LabelArray:
    return LabelArray(np.arange(len(label)), np.zeros(len(label), dtype=np.int32), label)


def covered(found: ScoreInterval, rows: Rows) -> float:
    """Return the share of labels in their intervals; each instruction has the same weight."""
    expected, spread, label, group = rows
    ends = np.array([found.ends(*each) for each in zip(expected.tolist(), spread.tolist(), strict=True)])
    inside = (ends[:, 0] <= label) & (label <= ends[:, 1])
    return float((np.bincount(group, inside) / np.bincount(group)).mean())


@pytest.mark.parametrize("kind", [{}, {"bias": -1.2}, {"sees": 0.0}], ids=["good", "strict", "chance"])
@pytest.mark.parametrize(("level", "instructions"), [(0.8, 9), (0.9, 19), (0.9, 60)])
def test_labels_of_new_instructions_lie_in_the_interval_as_often_as_promised(
    kind: dict[str, Any], level: float, instructions: int
) -> None:
    rng = np.random.default_rng(7)
    shares = [
        covered(fit(judged(rng, instructions, **kind), level), judged(rng, 40, **kind)) for _ in range(250)
    ]
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) >= level - 2.5 * error


def test_an_interval_is_the_smallest_that_its_instructions_allow() -> None:
    """By the definition: the weight of rows whose residual is smaller stays below the share of each side."""
    expected, spread, label, group = judged(np.random.default_rng(1), 40)
    found, residual = fit((expected, spread, label, group), 0.9), np.zeros(len(label))
    for row in range(len(label)):
        residual[row] = (label[row] - expected[row]) / (spread[row] + 1)
    for side, end in ((residual, found.above), (-residual, found.below)):
        up_to, before = (
            sum(1 / (group == group[row]).sum() for row in np.flatnonzero(chosen)) / 41
            for chosen in (side <= end, side < end)
        )
        assert before < 0.95 <= up_to + 1e-9


def test_the_order_of_rows_and_a_repeated_instruction_change_nothing() -> None:
    expected, spread, label, group = judged(np.random.default_rng(2), 30)
    found = fit((expected, spread, label, group), 0.8)
    order = np.random.default_rng(3).permutation(len(label))
    again = fit((expected[order], spread[order], label[order], group[order]), 0.8)
    assert again == found.model_copy(update={"width": again.width, "constant_width": again.constant_width})
    twice = np.concatenate([np.arange(len(label)), np.flatnonzero(group < 10)])
    repeated = fit((expected[twice], spread[twice], label[twice], group[twice]), 0.8)
    assert (repeated.below, repeated.above) == (found.below, found.above)


def test_an_interval_ends_at_labels_and_holds_one_at_least() -> None:
    rows = np.arange(40)
    label: Any = rows % 5 + 1.0
    found = fit((label + 0.2, np.zeros(40), label, rows), 0.9)
    assert found.ends(2.2, 0.0) == (2, 2)
    assert found.ends(2.7, 0.0) == (3, 3), "the nearest one"
    assert found.ends(5.0, 0.0) == (5, 5)
    halves = fit((label, np.zeros(40), label + (rows % 2) / 2, rows), 0.9)
    assert halves.ends(2.0, 0.0) == (2.0, 2.5), "labels that are no whole numbers"
    assert (instructions_needed(0.8), instructions_needed(0.9), instructions_needed(0.95)) == (9, 19, 39)


@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (1, 12)], ids=["one", "four", "one to twelve"])
def test_a_single_label_of_several_annotators_lies_in_the_interval_as_often_as_promised(
    sizes: tuple[int, int],
) -> None:
    """The three differ by more than the judge errs, and not each labels each row."""
    rng, shares = np.random.default_rng(8), []
    for _ in range(150):
        group = np.repeat(np.arange(80), rng.integers(sizes[0], sizes[1] + 1, 80))
        quality = 3 + rng.normal(size=80)[group]
        row, annotator = np.nonzero(rng.random((len(group), 3)) < 0.7)
        label = np.clip(np.round(quality[row] + (annotator - 1) + rng.normal(size=len(row))), 1, 5)
        expected, spread = np.clip(quality, 1, 5), np.full(len(group), 0.3)
        fits = group[row] < 40
        found = ScoreInterval.fit(
            SCALE, expected, spread, LabelArray(row[fits], annotator[fits], label[fits]), group, 0.9
        )
        assert (found.annotators, found.rows) == (3, len(np.unique(row[fits])))
        ends = np.array([found.ends(*each) for each in zip(expected.tolist(), spread.tolist(), strict=True)])
        inside = (ends[row, 0] <= label) & (label <= ends[row, 1])
        of_group = np.bincount(group[row[~fits]], inside[~fits], minlength=80)[40:]
        count = np.bincount(group[row[~fits]], minlength=80)[40:]
        shares.append((of_group[count > 0] / count[count > 0]).mean())
    assert np.mean(shares) >= 0.9 - 2.5 * np.std(shares) / np.sqrt(len(shares))


def test_labels_on_another_scale_lie_in_intervals_that_the_judges_scale_does_not_cut() -> None:
    rng, shares = np.random.default_rng(9), []
    for _ in range(150):
        expected, spread, label, group = judged(rng, 40)
        of_ten = np.clip(np.round(2 * label + rng.normal(size=len(label))), 0, 10)
        found = fit((expected, spread, of_ten, group), 0.9)
        assert (found.lowest, found.highest) == (None, None)
        other, spread, label, group = judged(rng, 40)
        of_ten = np.clip(np.round(2 * label + rng.normal(size=len(label))), 0, 10)
        shares.append(covered(found, (other, spread, of_ten, group)))
    assert np.mean(shares) >= 0.9 - 2.5 * np.std(shares) / np.sqrt(len(shares))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with rows of 24 instructions, their run, and labels near the expected scores."""
    folder = tmp_path_factory.mktemp("intervals")
    rows = [
        {"id": f"r{n}", "system": "ab"[n % 2], "instruction": f"Name {n // 2 + 2} trees.",
         "reference": "Oak, elm and birch.", "candidate": ("Oak and elm are trees. " * (n % 5)) + "Birch."}
        for n in range(48)
    ]  # fmt: skip
    (folder / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    config = JudgeConfig.from_settings(max_rationale_tokens=4)
    score_run(
        config, RowSource.from_files([str(folder / "rows.jsonl")], used=config.rubric.fields), folder / "run"
    )
    run = load_run(folder / "run")
    labels = [
        {"id": each.id, "depth": min(5, max(1, round(each.expected["depth"] + n % 3 - 1)))}
        for n, each in enumerate(run)
        if isinstance(each, Judgement)
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(each) + "\n" for each in labels))
    (folder / "few.jsonl").write_text("".join(json.dumps(each) + "\n" for each in labels[:36]))
    return folder


@pytest.fixture
def intervals(folder: Path, tmp_path: Path, cli: Cli) -> Path:
    ended = cli(
        "calibrate", folder / "run", "--labels", folder / "labels.jsonl", "--interval", "0.9",
        "--out", tmp_path / "map.json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "Intervals for one person's label of a response, 90%" in ended.out
    return tmp_path / "map.json"


def test_the_interval_of_a_score_stands_beside_it_wherever_it_is_shown(
    folder: Path, intervals: Path, tmp_path: Path, cli: Cli
) -> None:
    run, given = folder / "run", ("--intervals", intervals)
    assert cli("export", run, "--out", tmp_path / "all.jsonl", *given).code == 0
    lines = {each["id"]: each for each in map(json.loads, (tmp_path / "all.jsonl").read_text().splitlines())}
    found = ScoreInterval.model_validate(json.loads(intervals.read_text())["intervals"]["depth"])
    column = next(each for each in load_run(run).rubric.score_columns if each.name == "depth")
    for each in load_run(run):
        assert isinstance(each, Judgement)
        low, high = lines[each.id]["depth_interval"]
        assert (low, high) == found.ends(each.expected["depth"], column.spread(each))
        assert lines[each.id]["safety_interval"] is None, "it has no labels"
    low, high = lines["r7"]["depth_interval"]
    shown = cli("show", run, "--id", "r7", *given)
    (line,) = (line for line in shown.out.splitlines() if line.strip().startswith("depth"))
    assert f"[{low}, {high}]" in line
    assert cli("export", run, "--out", tmp_path / "all.csv", *given).code == 0
    with (tmp_path / "all.csv").open() as file:
        table = {each["id"]: each for each in csv.DictReader(file)}
    assert json.loads(table["r7"]["depth_interval"]) == [low, high]
    assert cli("report", run, "--out", tmp_path / "page.html", *given).code == 0
    assert f'"depth": [{low}, {high}]' in json.dumps(held_rows(tmp_path / "page.html"))


def test_a_table_for_parquet_has_its_ends_as_numbers(
    folder: Path, intervals: Path, tmp_path: Path, cli: Cli
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "all.parquet"
    assert cli("export", folder / "run", "--out", out, "--intervals", intervals).code == 0
    ends = parquet.read_table(out).column("depth_interval").to_pylist()
    assert all(1 <= low <= high <= 5 for low, high in ends)


def test_intervals_are_refused_in_one_line_where_they_would_promise_too_much(
    folder: Path, intervals: Path, tmp_path: Path, cli: Cli
) -> None:
    run, labels = folder / "run", folder / "few.jsonl"
    few = cli("calibrate", run, "--labels", labels, "--interval", "0.9", "--out", tmp_path / "few.json")
    assert few.code == 2
    assert "90% takes probabilities, and labels of 19 instructions or more; depth has labels of 18" in few.err
    assert not (tmp_path / "few.json").exists()
    assert cli("calibrate", run, "--labels", labels, "--out", tmp_path / "few.json").code == 0
    none = cli("show", run, "--id", "r7", "--intervals", tmp_path / "few.json")
    assert (none.code, "has none; make it with localjudge calibrate --interval 0.9" in none.err) == (2, True)
    rows = folder / "rows.jsonl"
    other = tmp_path / "other"
    assert cli("score", rows, "--out", other, "--limit", "1", "--max-rationale-tokens", "5").code == 0
    refused = cli("export", other, "--out", tmp_path / "x.jsonl", "--intervals", intervals)
    assert (refused.code, "or with another rubric or other settings" in refused.err) == (2, True)
    alone = cli("show", run, "--intervals", intervals)
    assert (alone.code, "--intervals: give --id" in alone.err) == (2, True)


def test_intervals_hold_the_single_labels_that_their_sentence_names(
    folder: Path, tmp_path: Path, cli: Cli
) -> None:
    """Three annotators, on the judge's scale and on one of ten; the labels of the fit are counted singly."""
    run = load_run(folder / "run")
    rng = np.random.default_rng(10)
    for highest in (5, 10):
        rows = [
            {"id": each.id, "annotator": who, "depth": int(rng.integers(1, highest + 1))}
            for each in run for who in "abc"
        ]  # fmt: skip
        labels, out = tmp_path / f"{highest}.jsonl", tmp_path / f"{highest}.json"
        labels.write_text("".join(json.dumps(each) + "\n" for each in rows))
        end = cli("calibrate", folder / "run", "--labels", labels, "--interval", "0.9", "--out", out)
        assert end.code == 0, end.err
        said = " ".join(end.out.split())
        assert "Of the labels that the same annotators will give" in said
        assert "at least 90% lie in these intervals" in said
        assert ("lie outside the judge's scale" in said) == (highest == 10)
        assert cli("export", folder / "run", "--out", tmp_path / "x.jsonl", "--intervals", out).code == 0
        ends = {
            each["id"]: each["depth_interval"]
            for each in map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
        }
        inside = [ends[each["id"]][0] <= each["depth"] <= ends[each["id"]][1] for each in rows]
        assert np.mean(inside) >= 0.9
        (tmp_path / "x.jsonl").unlink()


def test_a_calibration_of_another_version_is_refused_with_what_to_do(
    folder: Path, intervals: Path, tmp_path: Path, cli: Cli
) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps(json.loads(intervals.read_text()) | {"format": 2}))
    end = cli("show", folder / "run", "--id", "r7", "--intervals", old)
    assert (end.code, "make it again with localjudge calibrate" in end.err) == (2, True), end.err


def test_a_calibration_of_equal_scores_has_intervals_and_no_map(folder: Path, tmp_path: Path) -> None:
    scores = read_scores([folder / "run"])
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        "".join(json.dumps({"id": row, "depth": 1 + n % 5}) + "\n" for n, row in enumerate(scores.ids))
    )
    assert scores.expected is not None
    equal = replace(scores, expected=np.full_like(scores.expected, 3.0))
    known = read_labels([str(labels)], equal)
    found = calibrate.fit(equal, known, 100, level=0.9)
    assert (found.aspects, [*found.intervals], found.has_gain) == ({}, ["depth"], False)
    with pytest.raises(UsageError, match="nothing to fit"):
        calibrate.fit(equal, known, 100)
