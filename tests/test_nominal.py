"""Statistics of aspects without an order, of booleans and of mixed scales, against independent computations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import cohen_kappa_score

from localjudge import Judgement, Row, Rubric, UsageError
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.label_values import LabelColumn
from localjudge.matching.labels import read_labels
from localjudge.records.keys import row_key, settings_digest
from localjudge.report.ranking_lines import ranking_notes
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.run_manifest import RunSettings
from localjudge.statistics import agreement_statistics
from localjudge.studies.agree import Agreement, agree
from localjudge.studies.imported_scores import import_scores
from localjudge.studies.jury import compare_judges
from localjudge.studies.jury_run import write_jury
from localjudge.studies.rank import rank
from localjudge.studies.written_runs import write_run

EXACT: dict[str, Any] = {"rel": 1e-9, "abs": 1e-9}
FEW = 200
GRADES = ("correct", "incorrect", "not attempted")
TONES = {"cold": "cold", "warm": "warm"}
GRADE = Aspect(choices=dict(zip("ABC", GRADES, strict=True)))


def mixed_rubric() -> Rubric:
    """Return a rubric of a label, a boolean, ordered choices and a scale."""
    return Rubric.model_validate(
        {
            "name": "mixed",
            "aspects": {
                "grade": {"choices": dict(zip("ABC", GRADES, strict=True))},
                "polite": {"boolean": True},
                "tone": {"choices": ["cold", "neutral", "warm"], "ordered": True},
                "depth": {"scale": {"lowest": 0, "highest": 10}},
            },
            "prompt": {"template": "{$instruction} {$candidate} {$aspects} {$answer_format}"},
        }
    )


def make_run(
    folder: Path,
    scores: Sequence[Mapping[str, Any]],
    rubric: Rubric | None = None,
    probabilities: Sequence[Mapping[str, list[float]]] | None = None,
    judge: str = "one",
) -> Path:
    """Write a run of these scores, two systems on each instruction; rows are named r0, r1, …"""
    rubric = rubric or Rubric.load("correctness")
    given = [
        Row.from_response(
            id=f"r{number}",
            system="ab"[number % 2],
            instruction=f"Question {number // 2}?",
            reference="Yes, it is so.",
            candidate="It is so. " * (1 + number * 37 % 11),
        )
        for number in range(len(scores))
    ]
    settings = RunSettings(engine="test", rubric=rubric.digest, model=judge)
    digest = settings_digest(settings.as_dict())
    outcomes = [
        Judgement(
            **row.identity | {"key": row_key(digest, row.digest)},
            texts=dict.fromkeys(rubric.columns.texts, "Seen."),
            scores=dict(own),
            probabilities=dict(shares),
            expected={},
            rationale_cut=False,
            prompt_tokens=1,
            output_tokens=1,
        )
        for row, own, shares in zip(given, scores, probabilities or [{}] * len(scores), strict=True)
    ]
    file = folder.with_suffix(".jsonl")
    file.write_text(
        "".join(
            json.dumps(
                {
                    "id": row.id,
                    "system": row.system,
                    "instruction": row.instruction,
                    "reference": row.reference,
                    "candidate": row.candidate,
                }
            )
            + "\n"
            for row in given
        )
    )
    write_run(folder, outcomes, rubric=rubric, settings=settings, model=judge, inputs=[str(file)], columns={})
    return folder


def label_file(file: Path, column: str, labels: Sequence[Any]) -> Path:
    file.write_text(
        "".join(json.dumps({"id": f"r{n}", column: label}) + "\n" for n, label in enumerate(labels))
    )
    return file


def compared(run: Path, labels: Path, mapping: Mapping[str, str] | None = None) -> Agreement:
    scores = read_scores([run])
    return agree(scores, read_labels([str(labels)], scores, mapping), resamples=FEW)


def some_grades(count: int = 80, seed: int = 0) -> tuple[list[str], list[str], list[list[float]]]:
    """Return human grades, a judge's grades that often agree with them, and the judge's probabilities."""
    rng = np.random.default_rng(seed)
    human = rng.integers(0, 3, count)
    shares = rng.dirichlet([1, 1, 1], count) + 0.8 * np.eye(3)[human] * (rng.random(count) < 0.7)[:, None]
    shares /= shares.sum(axis=1, keepdims=True)
    judged = shares.argmax(axis=1)
    return [GRADES[n] for n in human], [GRADES[n] for n in judged], shares.tolist()


@pytest.mark.parametrize(
    ("aspect", "read"),
    [
        (GRADE, {"correct": 0, " Correct ": 0, "a": 0, "B": 1, "NOT ATTEMPTED": 2, "": None, "n/a": None}),
        (
            Aspect(boolean=True),
            {True: 1, False: 0, "yes": 1, "No": 0, "TRUE": 1, "0": 0, "1": 1, 0.5: 0.5, "": None},
        ),
        (Aspect(choices=TONES, ordered=True), {"Cold": 1, "warm": 2, 2: 2, "1": 1, 1.5: 1.5}),
        (Aspect(choices={"1": "good", "2": "none"}), {1: 0, 2.0: 1, "none": 1, "None": 1}),
    ],
)  # fmt: skip
def test_a_label_is_a_text_a_code_or_a_number_in_any_case(aspect: Aspect, read: dict[Any, Any]) -> None:
    column = LabelColumn.from_aspect("theirs", "ours", aspect)
    for value, number in read.items():
        assert column.read({"theirs": value}, "file:1") == [number]
    assert column.read({"theirs": list(read)}, "file:1") == list(read.values())
    assert column.read({"theirs": None}, "file:1") == []
    assert column.read({"theirs": [None]}, "file:1") == [None]


@pytest.mark.parametrize(
    ("aspect", "value", "known"),
    [
        (GRADE, "wrong", r"its labels are correct \(A\), incorrect \(B\), not attempted \(C\)$"),
        (GRADE, 1, r"its labels are correct \(A\)"),
        (GRADE, True, r"its labels are correct \(A\)"),
        (Aspect(boolean=True), "perhaps", "its labels are yes, no, true, false, or a number from 0 to 1$"),
        (Aspect(boolean=True), 2, "its labels are yes, no"),
        (Aspect(choices=TONES, ordered=True), 3, "cold, warm, or a number from 1 to 2$"),
        (Aspect(choices=TONES, ordered=True), "hot", "cold, warm, or a number from 1 to 2$"),
    ],
)
def test_an_unknown_label_is_named_with_its_line_and_the_known_labels(
    aspect: Aspect, value: Any, known: str
) -> None:
    with pytest.raises(
        UsageError, match=f"^file:7: 'theirs' holds '{value}', which is not a label of ours; "
    ) as e:
        LabelColumn.from_aspect("theirs", "ours", aspect).read({"theirs": value}, "file:7")
    assert e.match(known)


def test_agreement_on_labels_is_what_scikit_learn_computes(tmp_path: Path) -> None:
    human, judged, shares = some_grades()
    run = make_run(
        tmp_path / "run", [{"grade": one} for one in judged], probabilities=[{"grade": one} for one in shares]
    )
    found = compared(run, label_file(tmp_path / "labels.jsonl", "grade", human)).nominal["grade"]
    assert (found.rows, found.instructions, found.annotators, found.labels) == (80, 40, 1, GRADES)
    ours = found.comparisons["judge"]
    assert ours.accuracy.value == pytest.approx(np.mean(np.array(human) == judged), **EXACT)
    assert ours.kappa.value == pytest.approx(cohen_kappa_score(human, judged), **EXACT)
    for each in (ours.accuracy, ours.kappa):
        assert each.value is not None
        assert each.low is not None
        assert each.high is not None
        assert each.low < each.value < each.high


def test_the_baselines_of_labels_are_the_most_frequent_one_and_what_length_predicts(tmp_path: Path) -> None:
    human, judged, _ = some_grades()
    run = make_run(tmp_path / "run", [{"grade": one} for one in judged])
    found = compared(run, label_file(tmp_path / "labels.jsonl", "grade", human)).nominal["grade"]
    frequencies = np.array([human.count(label) for label in GRADES]) / 80
    constant = found.comparisons["most frequent"]
    assert 0.2 < (constant.accuracy.value or 0) <= frequencies.max(), "learned on other instructions"
    assert (constant.kappa.value, constant.kappa.low) == (0, None)
    # The grade is unrelated to the length here …
    assert abs(found.comparisons["length"].kappa.value or 0) < 0.3
    # … and follows from it here.
    lengths = [1 + number * 37 % 11 for number in range(80)]
    by_length = [GRADES[(length > 4) + (length > 8)] for length in lengths]
    told = compared(run, label_file(tmp_path / "length.jsonl", "grade", by_length)).nominal["grade"]
    assert told.comparisons["length"].accuracy.value == 1


def test_an_oracle_agrees_and_shuffled_labels_do_not(tmp_path: Path) -> None:
    human, _, _ = some_grades(400)
    labels = label_file(tmp_path / "labels.jsonl", "grade", human)
    shuffled = np.random.default_rng(1).permutation(human).tolist()
    for judged, low, high in ((human, 1.0, 1.0), (shuffled, -0.1, 0.1)):
        run = make_run(tmp_path / f"run{low}", [{"grade": one} for one in judged])
        kappa = compared(run, labels).nominal["grade"].comparisons["judge"].kappa.value
        assert kappa is not None
        assert low <= kappa <= high


def test_the_annotators_of_labels_have_a_nominal_alpha(tmp_path: Path) -> None:
    human, judged, _ = some_grades()
    second = some_grades(seed=3)[0]
    pairs = [
        [one, other if n % 3 == 0 else one] for n, (one, other) in enumerate(zip(human, second, strict=True))
    ]
    run = make_run(tmp_path / "run", [{"grade": one} for one in judged])
    found = compared(run, label_file(tmp_path / "labels.jsonl", "grade", pairs)).nominal["grade"]
    assert found.annotators == 2
    everything = [value for pair in pairs for value in pair]
    seen = sum(a != b for pair in pairs for a, b in permutations(pair))
    chance = sum(a != b for a, b in permutations(everything, 2)) / (len(everything) - 1)
    assert found.alpha.value == pytest.approx(1 - seen / chance, **EXACT)


def test_a_column_can_hold_the_share_of_one_label(tmp_path: Path) -> None:
    human, judged, _ = some_grades()
    run = make_run(tmp_path / "run", [{"grade": one} for one in judged])
    is_right = [one == "correct" for one in human]
    file = label_file(tmp_path / "labels.jsonl", "right", is_right)
    found = compared(run, file, {"right": "grade=correct"})
    assert (list(found.aspects), found.nominal) == (["grade=correct"], {})
    kappa = cohen_kappa_score(is_right, [one == "correct" for one in judged])
    comparison = found.aspects["grade=correct"].comparisons["integer"]
    assert comparison.kappa.value == pytest.approx(kappa, **EXACT)


def test_weighted_kappa_of_labels_is_that_of_the_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, (2, 40)).astype(float)
    weights = rng.multinomial(40, np.full(40, 1 / 40), size=20).astype(float)
    kappas = agreement_statistics.nominal_kappa(x, y, weights)
    for drawn, kappa in zip(weights, kappas, strict=True):
        again = np.repeat(x, drawn.astype(int)), np.repeat(y, drawn.astype(int))
        assert kappa == pytest.approx(cohen_kappa_score(*again), **EXACT)


def test_values_of_a_rubric_are_imported_with_their_types(tmp_path: Path, cli: Cli) -> None:
    rubric = tmp_path / "mixed.toml"
    rubric.write_text(
        'name = "mixed"\n[aspects]\ngrade = { choices = { A = "correct", B = "incorrect" } }\n'
        'polite = { boolean = true }\ntone = { choices = ["cold", "warm"], ordered = true }\n'
        "depth = { scale = { lowest = -2, highest = 2 } }\n[prompt]\n"
        "template = '{$instruction} {$candidate} {$aspects} {$answer_format}'\n"
    )
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "instruction,candidate,grade,polite,tone,depth\nWhy?,So.,b,yes,COLD,-2\nWhy?,No.,correct,FALSE,2,1\n"
    )
    end = cli("import", rows, "--rubric", rubric, "--out", tmp_path / "run")
    assert (end.code, "2 judged, 0 failed" in end.err) == (0, True)
    values = [
        [line[name] for name in ("grade", "polite", "tone", "depth")] for line in read_lines(tmp_path / "run")
    ]
    assert values == [["incorrect", True, "cold", -2], ["correct", False, "warm", 1]]
    labels = cli("agree", tmp_path / "run", "--labels", rows, "--json")
    assert labels.code == 0
    assert json.loads(labels.out)["nominal"]["grade"]["comparisons"]["judge"]["accuracy"]["value"] == 1


def test_an_imported_aspect_with_the_name_of_a_statistic_is_refused_in_one_line(
    tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"instruction": "i", "candidate": "c", "overall": 3}\n')
    ended = cli("import", str(file), "--aspect", "overall", "--out", str(tmp_path / "run"))
    assert ended.code == 2
    assert ended.err.strip() == (
        "localjudge: --aspect overall: aspects: 'overall' is the name of another column; choose another, "
        "such as overall_score; --map OURS=THEIRS reads a column of another name"
    )


def test_labels_without_a_rubric_are_imported_by_naming_them(tmp_path: Path, cli: Cli) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("instruction,candidate,verdict\nWhy?,So.,good\nWhy?,No.,bad\n")
    given = ("import", rows, "--aspect", "verdict", "--choices", "good, bad")
    assert cli(*given, "--out", tmp_path / "run").code == 0
    assert [line["verdict"] for line in read_lines(tmp_path / "run")] == ["good", "bad"]
    for options, says in (
        (
            ("--aspect", "verdict", "--choices", "good,poor"),
            "rows.csv:3: 'verdict' holds 'bad', which is not a label",
        ),
        (
            ("--aspect", "verdict", "--choices", "good"),
            "--choices good: choices: give two or more labels",
        ),
        (("--aspect", "verdict", "--rubric", "safety"), "--aspect: --rubric safety already names the aspects"),
        (("--choices", "good,bad"), "--aspect is missing"),
        (
            ("--aspect", "verdict", "--choices", "good,bad", "--scale", "1-5"),
            "--scale 1-5: labels have no scale",
        ),
    ):
        end = cli("import", rows, *options, "--out", tmp_path / "other")
        assert (end.code, says in end.err) == (2, True), end.err


def test_aspects_given_from_python_have_their_own_values(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"instruction": "Why?", "candidate": "So.", "ok": 0.25, "tone": "warm"}))
    tone = Aspect(choices=TONES)
    import_scores([str(file)], tmp_path / "run", {"ok": Aspect(boolean=True), "tone": tone})
    (line,) = read_lines(tmp_path / "run")
    assert (line["ok"], line["ok_expected"], line["tone"], line["tone_expected"]) == (False, 0.25, "warm", None)


@pytest.fixture
def grading_jury(tmp_path: Path) -> list[Path]:
    """Return the runs of three judges of the mixed rubric; the third gives random labels."""
    rng = np.random.default_rng(5)
    true = rng.integers(0, 3, 120)
    runs = []
    for name, wrong in (("first", 0.1), ("second", 0.2), ("third", 1.0)):
        given = np.where(rng.random(120) < wrong, rng.integers(0, 3, 120), true)
        scores = [
            {
                "grade": GRADES[label],
                "polite": bool(label),
                "tone": ("cold", "neutral", "warm")[label],
                "depth": int(label) * 5,
            }
            for label in given
        ]
        runs.append(make_run(tmp_path / name, scores, mixed_rubric(), judge=name))
    return runs


def test_a_jury_of_labels_has_their_nominal_alpha(grading_jury: list[Path], cli: Cli) -> None:
    found = compare_judges(grading_jury, resamples=FEW)
    assert [each.level for each in found.aspects.values()] == ["nominal", *["ordinal"] * 3]
    assert found.outlier == "third"
    table = [[line["grade"] for line in read_lines(run)] for run in grading_jury]
    rows = list(zip(*table, strict=True))
    grade = found.aspects["grade"]
    assert grade.unanimous == np.mean([len(set(row)) == 1 for row in rows])
    assert grade.split is None
    seen = sum(a != b for row in rows for a, b in permutations(row, 2)) / 2
    everything = [value for row in rows for value in row]
    chance = sum(a != b for a, b in permutations(everything, 2)) / (len(everything) - 1)
    assert grade.alpha.value == pytest.approx(1 - seen / chance, **EXACT)
    # A boolean differs by 1 at most, so any difference is a split.
    polite = [[line["polite"] for line in read_lines(run)] for run in grading_jury]
    assert found.aspects["polite"].split == np.mean([len(set(row)) > 1 for row in zip(*polite, strict=True)])
    shown = cli("jury", *grading_jury, "--resamples", FEW, "--all")
    assert (shown.code, max(len(line) for line in shown.out.splitlines() if "─" in line) <= 100) == (0, True)


def test_a_tie_between_labels_is_a_failure_unless_probabilities_decide(tmp_path: Path) -> None:
    sure, unsure = [0.8, 0.1, 0.1], [0.3, 0.4, 0.3]
    first = [{"grade": "correct"}] * 6
    second = [{"grade": "correct"}] * 3 + [{"grade": "incorrect"}] * 3
    for name, shares, ends in (("known", True, (6, 0)), ("unknown", False, (3, 3))):
        runs = [
            make_run(
                tmp_path / f"{name}{number}",
                scores,
                probabilities=[{"grade": own}] * 6 if shares else None,
                judge=f"judge {number}",
            )
            for number, (scores, own) in enumerate(((first, sure), (second, unsure)))
        ]
        summary = write_jury(runs, tmp_path / name)
        assert (summary.judged, summary.failed) == ends
    decided = [line["grade"] for line in read_lines(tmp_path / "known")]
    assert decided == ["correct"] * 6
    errors = [line["error"] for line in read_lines(tmp_path / "unknown")]
    assert errors == [None] * 3 + ["the jurors are tied on grade: correct, incorrect"] * 3


def test_systems_are_ordered_by_the_share_of_the_first_label_or_a_named_one(tmp_path: Path, cli: Cli) -> None:
    _, judged, shares = some_grades(120)
    run = make_run(
        tmp_path / "run", [{"grade": one} for one in judged], probabilities=[{"grade": one} for one in shares]
    )
    scores = read_scores([run])
    found = rank(scores, resamples=FEW)
    assert found.columns == ("grade=incorrect", "grade=not attempted", "grade=correct")
    table = np.array(shares)
    for system in found.systems:
        own = table["ab".index(system.name) :: 2]
        for place, label in enumerate(GRADES):
            assert system.means[f"grade={label}"].value == pytest.approx(own[:, place].mean(), **EXACT)
    best = [system.means["grade=correct"].value or 0 for system in found.systems]
    assert best == sorted(best, reverse=True)
    assert "the share of the first label, decides the order" in ranking_notes(found)[0]
    counted = rank(scores, of="integer", by="grade=incorrect", resamples=FEW)
    worst = [system.means["grade=incorrect"].value or 0 for system in counted.systems]
    assert worst == sorted(worst, reverse=True)
    assert sum(worst) / 2 == pytest.approx(judged.count("incorrect") / 120)
    assert counted.columns[-1] == "grade=incorrect"
    pairs = {pair.column: pair for pair in counted.pairs}
    wrong = [one == "incorrect" for one in judged]
    difference = np.mean(wrong[0::2]) - np.mean(wrong[1::2])
    assert pairs["grade=incorrect"].difference.value == pytest.approx(difference, **EXACT)
    end = cli("rank", run, "--by", "grade")
    assert (end.code, "--by grade: give one of grade=correct, grade=incorrect" in end.err) == (2, True)
    printed = cli("rank", run, "--resamples", FEW).out
    assert "\nShares of grade=correct by system, from the judge's probabilities" in printed


def test_aspects_of_different_values_have_no_overall_mean_and_the_first_one_decides(
    grading_jury: list[Path],
) -> None:
    found = rank(read_scores(grading_jury[:1]), resamples=FEW)
    assert (found.columns[-1], "overall" in found.columns) == ("polite", False)
    told = (
        "the ordered aspects (polite, tone, depth) have different values, so there is no overall mean; polite "
        "decides the order of the systems"
    )
    assert f"{told}; rank --by chooses another" in ranking_notes(found)
    named = rank(read_scores(grading_jury[:1]), resamples=FEW, by="depth")
    assert told.replace("; polite", "; depth") in ranking_notes(named)


def test_labels_of_a_sample_give_shares_of_the_human_label(tmp_path: Path) -> None:
    human, judged, _ = some_grades(120)
    run = make_run(tmp_path / "run", [{"grade": one} for one in judged])
    scores = read_scores([run])
    labels = read_labels([str(label_file(tmp_path / "labels.jsonl", "grade", human))], scores)
    for system in rank(scores, labels=labels, resamples=FEW).systems:
        own = human["ab".index(system.name) :: 2]
        assert system.human is not None
        for label in GRADES:
            assert system.human[f"grade={label}"].value == pytest.approx(own.count(label) / 60, **EXACT)


def test_a_calibration_maps_the_probability_of_a_label_to_its_human_share(tmp_path: Path, cli: Cli) -> None:
    human, judged, shares = some_grades(240)
    run = make_run(
        tmp_path / "run", [{"grade": one} for one in judged], probabilities=[{"grade": one} for one in shares]
    )
    labels = label_file(tmp_path / "labels.jsonl", "grade", human)
    out = tmp_path / "map.json"
    assert cli("calibrate", run, "--labels", labels, "--out", out, "--resamples", FEW).code == 0
    maps = json.loads(out.read_text())["aspects"]
    assert list(maps) == [f"grade={label}" for label in GRADES]
    right = np.array([one == "correct" for one in human], dtype=float)
    probability = np.array(shares)[:, 0]
    direct = IsotonicRegression(out_of_bounds="clip").fit(probability, right).predict(probability)
    ours = np.interp(probability, maps["grade=correct"]["x"], maps["grade=correct"]["y"])
    assert ours == pytest.approx(direct, **EXACT)


def test_shown_rows_align_labels_and_name_their_probabilities(tmp_path: Path, cli: Cli) -> None:
    _, judged, shares = some_grades(10)
    run = make_run(
        tmp_path / "run", [{"grade": one} for one in judged], probabilities=[{"grade": one} for one in shares]
    )
    heading, *listed = cli("show", run, "--limit", 10).out.splitlines()
    assert {len(line) for line in (heading, *listed)} == {len(heading)}
    assert [line.split(maxsplit=2)[2].split("  ")[0] for line in listed] == judged
    one = cli("show", run, "--id", "r0").out
    assert " · ".join(f"{label} {p:.2f}" for label, p in zip(GRADES, shares[0], strict=True)) in one
    by_share = cli("show", run, "--sort", "grade=correct", "--descending").out.splitlines()[1:]
    order = sorted(range(10), key=lambda row: -shares[row][0])
    assert [line.split()[0] for line in by_share] == [f"r{row}" for row in order]


def test_an_aspect_without_probabilities_does_not_hide_those_of_the_others(tmp_path: Path) -> None:
    human, judged, shares = some_grades()
    scores = [{"grade": one, "polite": True, "tone": "warm", "depth": 3} for one in judged]
    run = make_run(tmp_path / "run", scores, mixed_rubric(), probabilities=[{"grade": one} for one in shares])
    read = read_scores([run])
    assert read.best == "expected"
    assert sorted(read.without_expected) == ["depth", "polite", "tone"]
    assert read.column("grade=correct", "expected").tolist() == [each[0] for each in shares]
    assert read.column("depth", "expected").tolist() == [3] * 80
    found = compared(run, label_file(tmp_path / "labels.jsonl", "grade", human)).nominal["grade"]
    assert found.comparisons["judge"].accuracy.value is not None
    depth = compared(run, label_file(tmp_path / "depth.jsonl", "depth", [3, 4] * 40)).aspects["depth"]
    assert "expected" not in depth.comparisons
    ranking = rank(read, resamples=FEW)
    assert "polite, tone, depth: some judgements have no expected scores" in " ".join(ranking_notes(ranking))


def test_a_label_column_of_another_name_is_mapped_to_an_aspect_or_to_one_label(
    tmp_path: Path, cli: Cli
) -> None:
    human, judged, _ = some_grades(20)
    run = make_run(tmp_path / "run", [{"grade": one} for one in judged])
    whole = label_file(tmp_path / "whole.jsonl", "verdict", [one.upper() for one in human])
    share = label_file(tmp_path / "share.jsonl", "right", [int(one == "correct") for one in human])
    given = ("agree", run, "--resamples", FEW, "--json")
    found = json.loads(cli(*given, "--labels", whole, "--map", "grade=verdict").out)
    assert (list(found["aspects"]), list(found["nominal"])) == ([], ["grade"])
    found = json.loads(cli(*given, "--labels", share, "--map", "grade=correct=right").out)
    assert (list(found["aspects"]), list(found["nominal"])) == (["grade=correct"], [])
    end = cli(*given, "--labels", share, "--map", "grade=wrong=right")
    assert (end.code, "OURS is one of grade, grade=correct, grade=incorrect" in end.err) == (2, True)
    end = cli(*given, "--labels", share, "--map", "grade=right")
    assert (end.code, end.err.count("\n")) == (2, 1)
    assert "share.jsonl:1: 'right' holds" in end.err
