"""Criteria of a row's own: read from a column, judged one by one, and joined to the score of the row."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines, row_lines
from one_row import as_row
from preloaded import KILL, Preloaded
from report_page import OpenPage, head, held_rows, section
from scripted import scripted_checks

from localjudge import Judge, RowSource, Rubric, RubricError, UsageError, score_run
from localjudge.cli.options import FAILED_ROWS
from localjudge.modes import prompt_rows
from localjudge.modes.checklist import CHECKLIST, SCORE_COLUMN, ChecklistOutcome, Points
from localjudge.modes.mode import SystemCounts
from localjudge.records import Criterion, Failure, Judgement, Outcome, Row
from localjudge.rows.criteria import read_criteria
from localjudge.rows.program_rows import rows_of_program
from localjudge.rows.record import RecordError

HELD_PROGRAM = Path(__file__).parent / "held_program.py"
CHECKLIST_FILE = Path(__file__).parents[1] / "localjudge" / "rubrics" / "checklist.toml"
ASPECTS = Rubric.load("checklist").aspects
SETTINGS = ("--engine-arg", "batch_size=1", "--seed", "3")


def row(criteria: Any, **columns: Any) -> dict[str, Any]:
    return {
        "id": "r",
        "instruction": "Why is the sky blue?",
        "candidate": "Air.",
        "criteria": criteria,
    } | columns


def said(criterion: Criterion | None, met: float | None, number: int = 1) -> Outcome:
    """Return the outcome of a prompt: a judgement with this probability of yes, or a failure."""
    if met is None:
        return Failure(id="r", key="k", error="no answer", row=number, criterion=criterion)
    return Judgement(
        id="r", key="k", row=number, criterion=criterion, texts={}, scores={"met": met > 0.5},
        probabilities={"met": [1 - met, met]}, rationale_cut=False, prompt_tokens=1, output_tokens=1,
    )  # fmt: skip


def scored(points: list[float], met: list[float | None]) -> Points:
    asked = read_criteria([{"criterion": f"c{n}", "points": each} for n, each in enumerate(points)])
    return ChecklistOutcome.from_prompts(
        [said(*each) for each in zip(asked, met, range(1, len(asked) + 1), strict=True)], ASPECTS
    ).points


@pytest.fixture
def run(model: Path, cli: Cli, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that judges the same 12 rows of 1 to 6 criteria, and returns the run directory."""
    rows = [
        row(
            [{"criterion": f"Mentions {n}-{c}", "points": (-1) ** c * (c + 1)} for c in range(n % 6 + 1)],
            id=f"r{n}",
            instruction=f"Question {n % 4}?",
            candidate="word " * n,
            system="ab"[n % 2],
        )
        for n in range(12)
    ]
    rows[5]["criteria"] = []
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))

    def judged(folder: str, *arguments: str) -> Path:
        out = tmp_path / folder
        rows = ("score", tmp_path / "rows.jsonl", "--rubric", "checklist")
        ended = cli(*rows, "--out", out, "--model", model, *SETTINGS, *arguments)
        assert ended.code == FAILED_ROWS, ended.err
        return out

    return judged


def test_the_score_is_that_of_the_test_of_healthbench(model: Path) -> None:
    """The published test of its `calculate_score`: 7 and 10 of 22 points are met, and so is a fault of -6."""
    points = {"names the cause": 7, "names a source": 5, "is polite": 10, "gives a false number": -6}
    criteria = [{"criterion": text, "points": each, "tags": []} for text, each in points.items()]
    with scripted_checks(model, lambda _, criterion: float(criterion != "names a source")) as judge:
        (outcome,) = judge.check([row(criteria)])
    assert outcome.points.score == outcome.points.expected == pytest.approx((7 + 0 + 10 - 6) / (7 + 5 + 10))
    assert outcome.error is None


def test_a_row_is_not_clipped_and_a_mean_is() -> None:
    counts = SystemCounts()
    assert scored([1, -3], [0.0, 1.0]).score == -3
    asked = read_criteria([{"criterion": "good", "points": 1}, {"criterion": "bad", "points": -3}])
    for met in ([0.0, 1.0], [1.0, 0.0]):
        prompts = [said(*each) for each in zip(asked, met, strict=True)]
        row = ChecklistOutcome.from_prompts(prompts, ASPECTS)
        counts.add(row, *row.sides)
    assert counts.as_dict([])["mean"]["score"] == (-3 + 1) / 2
    assert CHECKLIST.mean_table({"x": counts}, [SCORE_COLUMN]).columns["score"] == [0.0]


def test_a_row_without_positive_points_has_no_score_but_is_judged() -> None:
    found = scored([-1, -2], [1.0, 0.0])
    assert (found.score, found.expected, found.low, found.judged) == (None, None, None, 2)
    assert scored([0, 0], [1.0, 0.0]).score is None


def test_a_failed_criterion_is_not_a_criterion_that_is_not_met() -> None:
    found = scored([4, 4, -2], [1.0, None, None])
    assert found.score is None
    assert found.expected is None
    assert (found.low, found.high) == ((4 - 2) / 8, (4 + 4) / 8)
    assert (found.judged, found.criteria) == (1, 3)


def test_scores_of_a_thousand_random_lists_equal_those_of_another_computation() -> None:
    """The oracle tries every outcome of the criteria that failed, and sums in numpy."""
    random_ = random.Random(5)
    for _ in range(1000):
        count = random_.randint(1, 7)
        points = [random_.choice([-8.0, -2.5, -1.0, 0.0, 0.5, 1.0, 3.0, 10.0]) for _ in range(count)]
        met = [random_.choice([0.0, 0.1, 0.49, 0.51, 0.9, 1.0, None]) for _ in range(count)]
        found, positive = scored(points, met), float(np.clip(points, 0, None).sum())
        missing = [place for place, each in enumerate(met) if each is None]
        if not positive:
            assert (found.score, found.expected, found.low, found.high) == (None,) * 4
            continue
        worlds = []
        for filled in product([0.0, 1.0], repeat=len(missing)):
            whole = [0.0 if each is None else float(each > 0.5) for each in met]
            for place, value in zip(missing, filled, strict=True):
                whole[place] = value
            worlds.append(float(np.dot(points, whole)) / positive)
        assert (found.low, found.high) == pytest.approx((min(worlds), max(worlds)), abs=2e-6)
        assert found.score == (None if missing else pytest.approx(worlds[0], abs=2e-6))
        mean = None if missing else float(np.dot(points, np.array(met, float))) / positive
        assert found.expected == (None if mean is None else pytest.approx(mean, abs=2e-6))


def test_a_tree_of_paperbench_gives_its_leaves_their_share() -> None:
    """By hand: 2 of 3 for the first part, and of that 1 of 4 and 3 of 4; 1 of 3 for the second."""
    tree = {
        "id": "root", "requirements": "The paper is reproduced.", "weight": 1, "sub_tasks": [
            {"id": "a", "requirements": "The method runs.", "weight": 2, "sub_tasks": [
                {"id": "a1", "requirements": "The loss is right.", "weight": 1, "sub_tasks": [],
                 "task_category": "Code Development"},
                {"id": "a2", "requirements": "The data is right.", "weight": 3, "sub_tasks": [],
                 "task_category": "Code Execution"},
            ]},
            {"id": "b", "requirements": "The result holds.", "weight": 1, "sub_tasks": [],
             "task_category": "Result Analysis"},
        ],
    }  # fmt: skip
    leaves = read_criteria(tree)
    assert [each.text for each in leaves] == ["The loss is right.", "The data is right.", "The result holds."]
    assert [each.points for each in leaves] == pytest.approx([2 / 3 * 1 / 4, 2 / 3 * 3 / 4, 1 / 3])
    assert leaves[0].tags == ["Code Development"]
    found = ChecklistOutcome.from_prompts(
        [said(each, float(each is not leaves[1]), each.part) for each in leaves], ASPECTS
    )
    assert found.points.score == pytest.approx(1 - 2 / 3 * 3 / 4, abs=1e-6)


def test_files_of_other_benchmarks_are_read_as_they_come() -> None:
    health = [{"criterion": "Names a doctor", "points": 5, "tags": ["level:example", "axis:accuracy"]}]
    prof = [
        {"criterion_description": "Uses 3 %", "criterion_weight": "Critical", "criterion_type": ["Reasoning"],
         "o3_fulfilment": True},
        {"criterion_description": "Is brief", "criterion_weight": "Additional", "criterion_type": "Style"},
    ]  # fmt: skip
    rewards = [{"title": "Pitfall", "description": "Forgets the dose", "weight": -2}]
    for given, known in (
        (health, [("Names a doctor", 5, None, ["level:example", "axis:accuracy"])]),
        (prof, [("Uses 3 %", 4, None, ["Reasoning"]), ("Is brief", 1, None, ["Style"])]),
        (rewards, [("Forgets the dose", -2, "Pitfall", [])]),
        (["a", "b"], [("a", 1, None, []), ("b", 1, None, [])]),
    ):
        found = [(each.text, each.points, each.name, each.tags) for each in read_criteria(given)]
        assert found == known


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "of type int"),
        ([], "an empty list"),
        ("Be polite", "of type str; give a list of texts or of"),
        ({"criterion": "x"}, "of type dict"),
        ('[{"criterion": "x"}]', "of type str; give a list of texts or of"),
        ([3], "criterion 1 is of type int"),
        (["a", " "], "criterion 2 has no text"),
        (["a\ud800"], "criterion 1 has a lone surrogate"),
        ([{"points": 1}], "criterion 1 has no text"),
        ([{"criterion": ["a"], "points": 1}], "criterion 1 is of type list; it must be a string"),
        ([{"criterion": "a"}], "criterion 1 has no usable points"),
        ([{"criterion": "a", "points": 1, "weight": 2}], "criterion 1 has points and weight"),
        ([{"criterion": "a", "points": "many"}], "criterion 1 has no usable points ('many'); give a number"),
        ([{"criterion": "a", "points": True}], "criterion 1 has no usable points; give a number from -1,000,0"),
        ([{"criterion": "a", "points": float("nan")}], "criterion 1 has no usable points"),
        ([{"criterion": "a", "points": 10**400}], "criterion 1 has no usable points"),
        ([{"criterion": "a", "points": 1e308}], "criterion 1 has no usable points"),
        (
            {"requirements": "a", "sub_tasks": [{"requirements": "b", "weight": 10**400}]},
            "its root, part 1 has no usable points",
        ),
        ([{"criterion": "a", "points": 1, "tags": [1]}], "criterion 1: its tags are not texts"),
        ([{"criterion": "a", "points": 1, "name": 4}], "the name of criterion 1 is of type int"),
        ({"requirements": "a", "sub_tasks": [3]}, "its root, part 1 has no usable points"),
        ({"requirements": "a", "sub_tasks": [{"weight": 0}]}, "its root: the weights"),
        ({"requirements": "a", "sub_tasks": [{"weight": 1}]}, "its root, part 1 has no text"),
        ({"requirements": "a", "sub_tasks": "b"}, "its root: its sub_tasks are of type str"),
    ],
)
def test_a_malformed_list_fails_its_row_with_one_line(given: Any, says: str) -> None:
    with pytest.raises(RecordError) as refused:
        read_criteria(given)
    assert str(refused.value).startswith(says)
    found = as_row(row(given), "file:1", used=Rubric.load("checklist").fields)
    assert isinstance(found, Failure)
    assert found.error.startswith(
        f"file:1: 'criteria', the criteria: {says}".encode("utf-8", "replace").decode()
    )
    assert "\n" not in found.error
    assert ";" in found.error or "must not" in found.error, "it says what to do"


def test_a_row_becomes_a_prompt_for_each_criterion_and_a_key_does_not_depend_on_points(model: Path) -> None:
    used = Rubric.load("checklist").fields
    given = ([row(["a", {"criterion": "b", "points": points}])] for points in (-2, 9))
    found = (prompt_rows(partial(rows_of_program, rows), used) for rows in given)
    rows, other = ([each for each in rows if isinstance(each, Row)] for rows in found)
    assert [(each.text, each.part, each.parts) for row in rows for each in row.criteria] == [
        ("a", 1, 2), ("b", 2, 2),
    ]  # fmt: skip
    assert len({each.group for each in rows}) == 1
    assert [each.digest for each in rows] == [each.digest for each in other]
    assert rows[0].digest != rows[1].digest
    assert rows[0].columns == {}
    text = Rubric.load("checklist").text(rows[1])
    assert "Criterion:\n```\nb\n```" in text
    assert (
        text[: text.index("Criterion:")] == Rubric.load("checklist").text(rows[0])[: text.index("Criterion:")]
    )


def test_partly_earns_half_of_the_points(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "levels.toml"
    levels = 'choices = { A = "not met", B = "partly", C = "met" }\nordered = true'
    file.write_text(CHECKLIST_FILE.read_text().replace("boolean = true", levels))
    with scripted_checks(model, lambda _, criterion: float(criterion), file) as judge:
        (outcome,) = judge.check([row([{"criterion": "0.5", "points": 6}, {"criterion": "1", "points": 2}])])
    assert [each.value for each in outcome.results] == ["partly", "met"]
    assert [each.mark for each in outcome.results] == ["~", "✓"]
    assert outcome.points.score == outcome.points.expected == (3 + 2) / 8


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("boolean = true", 'choices = ["a", "b"]'), "met has no order"),
        (("boolean = true", 'preference = ["A", "B"]'), "met is a preference"),
        (("[answer]", "[aspects.other]\nboolean = true\n[answer]"), "has 1; remove the others"),
        (("{$candidate}", "{$candidate_a} {$candidate_b}"), "checks one response"),
        (("aspects.met", "aspects.points"), "is the name of another column"),
    ],
)
def test_a_rubric_of_criteria_that_gives_no_points_is_refused(
    change: tuple[str, str], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "rubric.toml"
    file.write_text(CHECKLIST_FILE.read_text().replace(*change))
    with pytest.raises(RubricError, match=says):
        Rubric.load(file)


def test_only_a_rubric_of_criteria_checks_rows(model: Path) -> None:
    with Judge(model, rubric="no-reference") as judge, pytest.raises(UsageError, match="check with checklist"):
        judge.check([])


def test_the_file_of_rows_has_each_criterion_and_the_share_that_was_judged(
    run: Callable[..., Path], cli: Cli
) -> None:
    folder = run("whole")
    lines = row_lines(folder)
    prompts = list(read_lines(folder))
    assert len(lines) == 12
    assert [line["criteria_judged"] for line in lines] == [n % 6 + 1 if n != 5 else 0 for n in range(12)]
    assert len(prompts) == sum(max(1, line["criteria_judged"]) for line in lines)
    assert [(each["part"], each["parts"]) for each in prompts[1:3]] == [(1, 2), (2, 2)]
    assert [line["status"] for line in lines].count("failed") == 1
    assert lines[5]["error"].endswith(
        'an empty list; give a list of texts or of {"criterion": text, "points": number}'
    )
    listed = cli("show", folder, "--limit", "3").out
    assert "criteria" in listed
    shown = cli("show", folder, "--id", "r2").out
    assert shown.count("expected") == 1, "of the score; each criterion has the probabilities of no and yes"
    assert f"score {lines[2]['score']:.2f}" in shown
    by_score = cli("show", folder, "--sort", "score").out
    assert "r5" not in by_score


@pytest.mark.slow
def test_a_run_of_criteria_that_was_killed_continues_to_the_same_bytes(
    run: Callable[..., Path], preloaded: Preloaded, model: Path, tmp_path: Path
) -> None:
    whole, out = run("whole"), tmp_path / "broken"
    for prompts in (5, 8):
        with subprocess.Popen(
            [
                *preloaded.script(HELD_PROGRAM), str(prompts), "score", tmp_path / "rows.jsonl", "--out", out,
                "--model", model, "--rubric", "checklist", *SETTINGS,
            ],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            before = len(list(read_lines(out))) if (out / "run.json").exists() else 0
            while not (out / "judgements.jsonl").exists() or len(list(read_lines(out))) <= before:
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
                time.sleep(0.02)
            process.send_signal(KILL)
    assert 0 < len(list(read_lines(out))) < len(list(read_lines(whole)))
    run("broken")
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()


@pytest.mark.slow
def test_merged_shards_of_criteria_equal_the_whole_run(
    run: Callable[..., Path], model: Path, cli: Cli, tmp_path: Path
) -> None:
    whole = run("whole")
    shards = [tmp_path / f"shard-{index}" for index in (1, 2, 3)]
    for index, shard in enumerate(shards, 1):
        cli(
            "score",
            tmp_path / "rows.jsonl",
            "--out",
            shard,
            "--model",
            model,
            "--rubric",
            "checklist",
            *SETTINGS,
            "--shard",
            f"{index}/3",
        )
    assert cli("merge", *shards, "--out", tmp_path / "merged").code == FAILED_ROWS
    merged = tmp_path / "merged" / "judgements.jsonl"
    assert merged.read_bytes() == (whole / "judgements.jsonl").read_bytes()


def test_changed_points_need_no_new_judgement(
    run: Callable[..., Path], model: Path, cli: Cli, tmp_path: Path
) -> None:
    folder = run("whole")
    before = {line["key"] for line in read_lines(folder)}
    file = tmp_path / "rows.jsonl"
    file.write_text(file.read_text().replace('"points": 1}', '"points": 100}'))
    ended = cli("score", file, "--out", folder, "--model", model, "--rubric", "checklist", *SETTINGS)
    assert {line["key"] for line in read_lines(folder)} - before == set(), ended.err
    assert {line["points"] for line in read_lines(folder)} >= {100.0}
    assert 100.0 in [each["points"] for row in row_lines(folder) for each in row["criteria"]]


def test_the_join_does_not_depend_on_the_order_of_the_prompts() -> None:
    lists = [3, 1, 5, 2]
    prompts, number = [], 0
    for place, count in enumerate(lists):
        for criterion in read_criteria([f"{place}.{c}" for c in range(count)]):
            number += 1
            prompts.append(said(criterion, 0.9, number))
    random.Random(1).shuffle(prompts)
    rows = list(CHECKLIST.join(ASPECTS, 1).all(prompts))
    found = sorted(tuple(each.criterion.text for each in row.results) for row in rows)
    assert found == [tuple(f"{place}.{c}" for c in range(count)) for place, count in enumerate(lists)]


def test_a_row_of_a_program_has_criteria(model: Path) -> None:
    asked = read_criteria(["says air", "says water"])
    given = Row.from_response(instruction="Why?", candidate="Air.", id="p", criteria=asked)
    with scripted_checks(model, lambda response, criterion: float("air" in criterion)) as judge:
        (outcome,) = judge.check([given])
    assert [each.value for each in outcome.results] == [True, False]
    assert outcome.points.score == 0.5


@pytest.fixture
def two_systems(model: Path, tmp_path: Path) -> Path:
    """Return a run of 8 instructions and two systems: the judge finds what a response names."""
    rows = [
        row(
            [
                {"criterion": "names red", "points": 2, "tags": ["axis:colour"]},
                {"criterion": "names one", "points": 3, "tags": ["axis:number"]},
                {"criterion": "names a fault", "points": -1, "tags": ["axis:fault"]},
            ],
            id=f"r{n}",
            instruction=f"Question {n}?",
            candidate={"a": "red one", "b": "red fault"}[system] if n else "one",
            system=system,
        )
        for n in range(8)
        for system in "ab"
    ]
    with scripted_checks(model, lambda response, asked: 0.9 if asked.split()[-1] in response else 0.2) as judge:
        assert score_run(judge, RowSource.from_rows(rows, judge.rubric.fields), tmp_path / "two").complete
    return tmp_path / "two"


def judged_criteria(folder: Path) -> list[dict[str, Any]]:
    """Return the judged criteria of a run, one by one."""
    rows = row_lines(folder)
    return [
        {"id": row["id"], "system": row["system"], "criterion": each["criterion"], "met": each["met"]}
        for row in rows
        for each in row["criteria"]
    ]


def test_systems_are_ranked_by_score_and_by_tag(two_systems: Path, cli: Cli) -> None:
    def means(*arguments: str) -> dict[str, float]:
        ended = cli("rank", two_systems, "--json", "--scores", "integer", *arguments)
        assert ended.code == 0, ended.err
        found = json.loads(ended.out)
        (column,) = found["columns"]
        assert column == (arguments[1] if arguments else "score")
        return {each["name"]: each["means"][column]["value"] for each in found["systems"]}

    assert means() == pytest.approx({"a": (7 * 5 + 3) / 40, "b": (7 * (2 - 1) + 3) / 40}, abs=1e-6)
    assert means("--by", "axis:colour") == pytest.approx({"a": 7 / 8, "b": 7 / 8})
    assert means("--by", "axis:number") == pytest.approx({"a": 1, "b": 1 / 8})
    expected = json.loads(cli("rank", two_systems, "--json").out)
    assert expected["of"] == "expected"
    for arguments, says in (
        (("--by", "axis:x"), "no criterion has this tag; give one of score, axis:colour"),
        (("--by", "axis:fault"), "no row was judged"),
    ):
        ended = cli("rank", two_systems, *arguments)
        assert ended.code == 2
        assert says in ended.err


def test_labels_of_criteria_are_compared_with_the_judge(two_systems: Path, cli: Cli, tmp_path: Path) -> None:
    lines, file = judged_criteria(two_systems), tmp_path / "labels.jsonl"
    wrong = {("r3", "a", "names red"), ("r4", "b", "names a fault")}
    labels = [
        {"id": line["id"], "system": line["system"], "criterion": line["criterion"],
         "met": ["no", "yes"][line["met"] != ((line["id"], line["system"], line["criterion"]) in wrong)]}
        for line in lines
    ]  # fmt: skip
    file.write_text("".join(json.dumps(each) + "\n" for each in labels))
    ended = cli("agree", two_systems, "--labels", file, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["aspects"]["met"]["rows"] == len(lines) == 48
    assert found["aspects"]["met"]["instructions"] == 8
    assert found["aspects"]["met"]["comparisons"]["integer"]["exact"]["value"] == pytest.approx(
        46 / 48, abs=1e-4
    )
    assert any("each criterion counts as one row" in note for note in found["notes"])
    labels[0]["criterion"] = "another criterion"
    file.write_text("".join(json.dumps(each) + "\n" for each in labels))
    assert json.loads(cli("agree", two_systems, "--labels", file, "--json").out)["aspects"]["met"]["rows"] == 47
    del labels[0]["criterion"]
    file.write_text("".join(json.dumps(each) + "\n" for each in labels))
    ended = cli("agree", two_systems, "--labels", file)
    assert ended.code == 2
    assert f"{file}:1: no criterion; a label is of one criterion of a row" in ended.err


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_an_export_has_a_row_for_each_response(
    two_systems: Path, cli: Cli, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"out.{suffix}"
    assert cli("export", two_systems, "--out", out).code == 0
    if suffix == "parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(out).to_pylist()
    elif suffix == "csv":
        rows = list(csv.DictReader(out.read_text().splitlines()))
        for each in rows:
            each |= {"criteria": json.loads(each["criteria"]), "score": float(each["score"])}
    else:
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 16
    assert rows[2]["score"] == 1.0
    assert rows[3]["score"] == 0.2
    assert [each["met"] for each in rows[3]["criteria"]] == [True, False, True]
    assert [each["points"] for each in rows[3]["criteria"]] == [2, 3, -1]


def test_what_takes_one_judgement_of_a_row_refuses_criteria_in_one_line(two_systems: Path, cli: Cli) -> None:
    (two_systems / "rows.jsonl").write_text(json.dumps(row(["a"])) + "\n")
    for command in (
        ("calibrate", two_systems, "--labels", "x.jsonl", "--out", "x"),
        ("label", two_systems, "--out", "x.jsonl"),
        ("audit", two_systems / "rows.jsonl", "--rubric", "checklist", "--out", "x"),
    ):  # fmt: skip
        ended = cli(*command)
        assert ended.code == 2, command
        assert "checks one response by criteria of the row" in ended.err, command


def test_a_report_lists_a_row_with_its_criteria_and_a_table_of_the_tags(
    two_systems: Path, cli: Cli, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    labels = tmp_path / "labels.jsonl"
    lines = judged_criteria(two_systems)
    labels.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cli("report", two_systems, "--labels", labels, "--out", page).code == 0
    table, *_ = section(page, "systems")["tables"]
    assert [column["name"] for column in table["columns"]][:2] == ["system", "score"]
    assert [row[0] for row in table["rows"]] == ["a", "b"]
    assert head(page)["about"].startswith("16 rows of 2 systems on 8 instructions")
    _, _, prompts, *_, results = held_rows(page)[3]
    criteria = [(each["criterion"], each["probabilities"]["met"][-1]) for each in prompts]
    assert [(each["points"], each["text"], probability) for each, probability in criteria] == [
        (2, "names red", 0.9), (3, "names one", 0.2), (-1, "names a fault", 0.9),
    ]  # fmt: skip
    assert "score 0.20   expected 0.30" in results
    assert any(
        said.startswith("axis:fault ") and "no criterion has positive points" in said for said in results
    )

    _, tags, *_ = section(page, "systems")["tables"]
    ranked = json.loads(cli("rank", two_systems, "--json").out)["by_tag"]
    for tag, row in zip(ranked["rows"], tags["rows"], strict=True):
        by_tag = json.loads(cli("rank", two_systems, "--by", tag["name"], "--json").out)
        means = {each["name"]: each["means"][tag["name"]]["value"] for each in by_tag["systems"]}
        assert {name: each["value"] for name, each in tag["estimates"].items()} == pytest.approx(means)
        assert row[:2] == [tag["name"], 8]
        assert [each["value"] for each in row[2:4]] == pytest.approx([means["a"], means["b"]], abs=1e-4)
    assert [row["name"] for row in ranked["rows"]] == ["axis:colour", "axis:number"], "a fault earns nothing"
    assert ranked["rows"][1]["significant"] == ["a > b"]


def test_a_page_shows_finds_and_sorts_rows_by_their_criteria(
    two_systems: Path, cli: Cli, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert cli("report", two_systems, "--out", page).code == 0
    with OpenPage(page, tmp_path) as opened:
        assert opened.texts("#status") == ["16 of 16 rows"]
        assert opened.texts(".line .marks")[2:4] == ["2 of 3 met1.00", "2 of 3 met0.20"]
        opened.press("j", "j", "j")
        opened.wait("document.querySelector('.criteria')?.textContent.includes('axis:fault')")
        opened.wait("document.querySelector('#detail .points').textContent.startsWith('score 0.20')")
        assert opened.texts(".criteria .mark") == ["✓", "✗", "✗"], "a fault that is met costs points"
        opened.select("by-score", "no")
        opened.wait("document.querySelector('#status').textContent === '16 of 16 rows'")
        opened.select("by-order", "Score")
        assert opened.texts(".line .marks .mean")[:2] == ["1.00", "1.00"]
        opened.select("by-series", "b")
        opened.wait("document.querySelector('#status').textContent === '8 of 16 rows'")
