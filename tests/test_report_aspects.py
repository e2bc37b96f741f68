"""Tests of reports of labels, booleans and several scales, with a rationale for each aspect or none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import read_lines, write_rows
from report_page import OpenPage, data, head, held_rows, section

from localjudge import Judge, read_rows
from localjudge.report.run_report import write_report
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan

KINDS = """
name = "kinds"

[aspects.grade]
choices = { A = "correct", B = "incorrect", C = "not attempted" }

[aspects.polite]
boolean = true

[aspects.tilt]
scale = { lowest = -2, highest = 2 }

[aspects.quality]
choices = { W = "poor", X = "fair", Y = "good" }
ordered = true
"""
LABELS = """
name = "labels"

[aspects.grade]
choices = { A = "correct", B = "incorrect", C = "not attempted" }
"""
TEMPLATE = """
[answer]
rationale_place = "{place}"

[prompt]
template = "Q: {{$instruction}} A: {{$candidate}} {{$aspects}} {{$answer_format}}"
"""
LABELS_OF_GRADE = ["correct", "incorrect", "not attempted"]


def score(folder: Path, model: Path, rubric: str, place: str) -> Path:
    """Judge twelve rows of two systems on six instructions, without a model: any score, any text."""
    folder.mkdir()
    (folder / "rubric.toml").write_text(rubric + TEMPLATE.format(place=place))
    lines = [json.loads(line) for line in write_rows(folder / "rows.jsonl", 12).read_text().splitlines()]
    for number, line in enumerate(lines):
        line["instruction"] = f"Question {number // 2}?"
        del line["reference"]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judge = Judge(model, engine="dry-run", rubric=folder / "rubric.toml", max_rationale_tokens=8)
    rows = [str(folder / "rows.jsonl")]
    with RunDirectory(folder / "run") as run, RunPlan(judge, read_rows(rows)) as plan:
        run.begin(judge, plan, RowSource(inputs=rows))
        assert run.score().failed == 0
    return folder / "run"


@pytest.fixture(scope="module")
def kinds(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of four kinds of aspects, with a rationale before each."""
    return score(tmp_path_factory.mktemp("kinds") / "kinds", model, KINDS, "each")


@pytest.fixture(scope="module")
def labels(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of labels only, without a rationale."""
    return score(tmp_path_factory.mktemp("labels") / "labels", model, LABELS, "none")


def report(run: Path) -> Path:
    page = run.parent / "report.html"
    write_report([run], page, resamples=100)
    return page


@pytest.fixture(scope="module")
def kinds_page(kinds: Path) -> Path:
    return report(kinds)


@pytest.fixture(scope="module")
def labels_page(labels: Path) -> Path:
    return report(labels)


def test_each_aspect_has_its_own_values_and_a_score_is_one_of_them(kinds: Path, kinds_page: Path) -> None:
    aspects, ids = head(kinds_page)["aspects"], head(kinds_page)["ids"]
    assert [(aspect["kind"], aspect["values"]) for aspect in aspects] == [
        ("labels", LABELS_OF_GRADE),
        ("boolean", ["no", "yes"]),
        ("scale", ["-2", "-1", "0", "1", "2"]),
        ("ordered", ["poor", "fair", "good"]),
    ]
    assert all(len(aspect["colours"]) == len(aspect["values"]) for aspect in aspects)
    scores = np.frombuffer(data(kinds_page, "scores"), "<i2").reshape(4, -1)
    lines = {line["id"]: line for line in read_lines(kinds)}
    for place, row_id in enumerate(ids):
        grade, polite, tilt, quality = (
            aspect["values"][score] for aspect, score in zip(aspects, scores[:, place], strict=True)
        )
        line = lines[row_id]
        assert (grade, quality) == (line["grade"], line["quality"])
        assert (polite == "yes", int(tilt)) == (line["polite"], line["tilt"])


def test_an_aspect_without_an_order_has_no_expected_score_but_a_confidence(
    kinds: Path, kinds_page: Path
) -> None:
    expected = np.frombuffer(data(kinds_page, "expected"), "<f4").reshape(4, -1)
    confidence = np.frombuffer(data(kinds_page, "confidence"), "<f4").reshape(4, -1)
    assert np.isnan(expected[0]).all()
    assert not np.isnan(expected[[1, 3]]).any()
    for line in read_lines(kinds):
        place = head(kinds_page)["ids"].index(line["id"])
        given = line["grade_probabilities"][LABELS_OF_GRADE.index(line["grade"])]
        assert confidence[0, place] == pytest.approx(given, abs=0.0006)


def test_a_page_of_several_scales_shows_no_overall_score_and_orders_by_the_first_ordered_aspect(
    kinds: Path, kinds_page: Path
) -> None:
    assert head(kinds_page)["decides"] == "polite"
    overall = np.frombuffer(data(kinds_page, "overall"), "<f4")
    for line in read_lines(kinds):
        place = head(kinds_page)["ids"].index(line["id"])
        assert overall[place] == pytest.approx(line["polite_expected"], abs=0.0006)


def test_a_rubric_of_labels_only_has_a_share_of_each_label(labels_page: Path) -> None:
    main, others, *_ = section(labels_page, "systems")["tables"]
    assert [column["name"] for column in main["columns"]][1] == "grade=correct"
    assert (others["caption"], others["folded"]) == ("Shares of the other labels", False)
    assert [column["name"] for column in others["columns"][1:]] == [
        f"grade={name}" for name in LABELS_OF_GRADE[1:]
    ]
    assert np.isnan(np.frombuffer(data(labels_page, "overall"), "<f4")).all()


def test_the_rationale_of_each_aspect_is_held_under_its_name(
    kinds: Path, kinds_page: Path, labels_page: Path
) -> None:
    held = dict(zip(head(kinds_page)["ids"], held_rows(kinds_page), strict=True))
    for line in read_lines(kinds):
        (prompt,) = held[line["id"]][2]
        names = [f"{name}_rationale" for name in ("grade", "polite", "tilt", "quality")]
        assert prompt["texts"] == {name: line[name] for name in names}
    assert all(prompt["texts"] == {} for _, _, (prompt,), *_ in held_rows(labels_page))


def test_runs_with_their_rationales_in_different_places_stand_in_one_report(
    labels: Path, model: Path, tmp_path: Path
) -> None:
    before = score(tmp_path / "before", model, LABELS, "before")
    page = tmp_path / "report.html"
    write_report([labels, before], page, resamples=100)
    assert sum("rationale" in prompt["texts"] for _, _, (prompt,), *_ in held_rows(page)) == 12
    assert head(page)["rationale"]


@pytest.fixture(scope="module")
def opened(kinds_page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenPage]:
    with OpenPage(kinds_page, tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def test_the_list_shows_a_chip_for_each_aspect_with_its_label(kinds: Path, opened: OpenPage) -> None:
    first = next(read_lines(kinds))
    assert opened.texts("#line-0 .chip") == [
        first["grade"],
        "yes" if first["polite"] else "no",
        str(first["tilt"]),
        first["quality"],
    ]


def test_the_distribution_has_the_share_of_each_value_by_system(
    kinds: Path, kinds_page: Path, opened: OpenPage
) -> None:
    grades = [line["grade"] for line in read_lines(kinds) if line["system"] == "a"]
    shares = [f"{value}: {grades.count(value) / len(grades):.0%}" for value in LABELS_OF_GRADE]
    said = opened.run("document.querySelector('#profile-table .profile').getAttribute('aria-label')")
    assert said.replace("\N{NO-BREAK SPACE}", "") == ", ".join(shares)
    values = [LABELS_OF_GRADE, ["no", "yes"], *(aspect["values"] for aspect in head(kinds_page)["aspects"][2:])]
    assert opened.texts("#profile-key .chip") == [each for own in values for each in own]
    assert opened.texts("#profile-key span") == ["grade", "polite", "tilt", "quality"]


def test_bars_of_scores_on_different_scales_have_an_axis_each(opened: OpenPage) -> None:
    said = re.sub(r"from \S+ to \S+ in ", "", opened.texts(".axes")[1])
    assert said == "The line below a value runs tilt; quality; the other columns.", "grade has shares"


def test_a_judgement_shows_each_rationale_below_its_aspect_and_probabilities_by_label(
    kinds: Path, opened: OpenPage
) -> None:
    first = next(read_lines(kinds))
    assert opened.texts(".scores tbody th") == ["grade", "polite", "tilt", "quality"]
    assert opened.texts(".reasoned + tr .prose") == [
        first[f"{name}_rationale"] for name in ("grade", "polite", "tilt", "quality")
    ]
    assert opened.texts(".scores tr:first-child .shares .name") == LABELS_OF_GRADE
    assert "Rationale" not in opened.texts("#detail h5")


@pytest.mark.parametrize(
    ("aspect", "offered"),
    [
        ("grade", LABELS_OF_GRADE),
        ("polite", ["no", "yes"]),
        ("quality", ["poor", "fair", "good", "fair or worse", "fair or better"]),
    ],
)
def test_the_filter_offers_the_values_of_the_aspect(opened: OpenPage, aspect: str, offered: list[str]) -> None:
    opened.select("by-aspect", aspect)
    assert opened.texts("#by-score option") == ["any", *offered]


def test_a_filter_by_a_negative_bound_finds_the_scores_up_to_it(kinds: Path, opened: OpenPage) -> None:
    opened.select("by-aspect", "tilt")
    opened.select("by-score", "-1 or less")
    below = [line for line in read_lines(kinds) if line["tilt"] <= -1]
    assert opened.texts("#status") == [f"{len(below)} of 12 judgements"]
    opened.run("document.getElementById('reset').click()")


def test_a_page_of_labels_only_offers_no_overall_score_and_shows_no_empty_part(
    labels_page: Path, tmp_path: Path
) -> None:
    with OpenPage(labels_page, tmp_path) as opened:
        assert opened.texts("#by-order option") == ["Instruction", "grade", "Lowest confidence", "Length"]
        assert opened.texts("#nav a") == ["Systems", "Distribution", "Judgements"]
        assert opened.texts(".marks .mean") == []
        assert opened.texts(".scores thead th") == ["aspect", "score", "probabilities"]
        assert opened.texts("#detail h5") == ["Candidate"]
        assert opened.texts("#detail .reference") == []
        assert "rationale cut" not in opened.texts("#by-state option")
