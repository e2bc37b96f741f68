"""Tests of `compare`: what differs between two runs, what changed, and the gate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import Cli, random_model, row_lines
from pair_runs import judged_pairs, write_responses
from report_page import OpenPage, head, section
from sklearn.metrics import cohen_kappa_score

from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.statistics.non_inferiority import lower_bound, studentised_bound
from localjudge.studies.imported_scores import import_scores

FEW = 300
ASPECTS = ("helpfulness", "clarity")


def judged(
    folder: Path, rows: Sequence[Mapping[str, Any]], judge: str = "a judge", aspects: Any = ASPECTS
) -> Path:
    """Return a run of these rows: their instruction, system, candidate and scores."""
    file = folder.with_suffix(".jsonl")
    file.write_text("".join(json.dumps({"id": str(at), **row}) + "\n" for at, row in enumerate(rows)))
    import_scores([str(file)], folder, aspects, judge=judge)
    return folder


def rows_of(scores: Sequence[float], text: str = "an answer", system: str = "north") -> list[dict[str, Any]]:
    return [
        {
            "id": str(at),
            "instruction": f"question {at}",
            "candidate": f"{text} {at}",
            "system": system,
            "helpfulness": score,
            "clarity": 4,
        }
        for at, score in enumerate(scores)
    ]


def scores(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(2, 5, count).tolist()


def compared(cli: Cli, *args: object) -> dict[str, Any]:
    end = cli("compare", *args, "--resamples", FEW, "--json")
    assert end.code in (0, 3), end.err
    document: dict[str, Any] = json.loads(end.out)
    return document


def test_new_responses_by_one_judge_are_compared_on_the_same_instructions(tmp_path: Path, cli: Cli) -> None:
    before = scores(60)
    after = [score - (at % 3 == 0) for at, score in enumerate(before)]
    old = judged(tmp_path / "old", rows_of(before))
    new = judged(tmp_path / "new", rows_of(after, "another answer", "south")[::-1])
    found = compared(cli, old, new)
    assert (found["differs"], found["instructions"], found["rows"]) == ("responses", 60, 60)
    assert "old → new · north → south · 60 rows" in cli("compare", old, new, "--resamples", FEW).out
    change = found["columns"]["helpfulness"]
    assert change["difference"]["value"] == pytest.approx(np.mean(after) - np.mean(before))
    assert change["difference"]["high"] < 0
    assert change["p"] < 0.05
    assert change["equal"] == 40
    assert found["columns"]["clarity"]["p"] is None
    out = " ".join(cli("compare", old, new, "--resamples", FEW).out.split())
    assert "Changed: helpfulness, overall fell" in out
    assert "The same on all instructions: clarity" in out
    assert "helpfulness -0.33 (" in out
    assert "On 60 instructions, 60 rows of north → south" in out


def test_a_change_that_is_not_significant_comes_with_what_would_have_been_found(
    tmp_path: Path, cli: Cli
) -> None:
    old = judged(tmp_path / "old", rows_of(scores(40)))
    new = judged(tmp_path / "new", rows_of(scores(40, 1), "another answer"))
    found, out = compared(cli, old, new), cli("compare", old, new, "--resamples", FEW).out
    assert found["columns"]["helpfulness"]["p"] > 0.05
    detectable = max(each["detectable"] or 0 for each in found["columns"].values())
    said = f"80 % of such comparisons would have found a change of {detectable:.2f} in helpfulness or overall"
    assert said in " ".join(out.split())


def test_two_judges_of_the_same_responses_are_compared_row_by_row(tmp_path: Path, cli: Cli) -> None:
    first, second = scores(50), scores(50, 1)
    old = judged(tmp_path / "old", rows_of(first))
    new = judged(tmp_path / "new", rows_of(second)[::-1], "another judge")
    found = compared(cli, old, new)
    assert found["differs"] == "judge"
    assert "model a judge → another judge" in found["how"]
    assert "Higher scores are leniency, not a better judge" in cli("compare", old, new, "--resamples", FEW).out
    kappa = cohen_kappa_score(first, second, labels=[1, 2, 3, 4, 5], weights="quadratic")
    assert found["judges"]["kappa"]["helpfulness"]["value"] == pytest.approx(kappa)
    assert not found["judges"]["order"], "one system has no order"


def test_the_share_in_order_is_that_of_agree_in_whatever_order_the_rows_of_the_runs_are(
    tmp_path: Path, cli: Cli
) -> None:
    random, labels = np.random.default_rng(3), tmp_path / "labels.jsonl"
    texts = [(f"question {at}", f"answer {at} {place}") for at in range(12) for place in range(3)]
    truth, quality = random.integers(1, 6, 36) * 18, {"quality": Aspect(scale=Scale(lowest=1, highest=100))}

    def lines(scores: Sequence[float], names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        return [
            {"instruction": instruction, "candidate": candidate, "quality": int(score)}
            for (instruction, candidate), score in zip(names, scores, strict=True)
        ]

    labels.write_text("".join(json.dumps(row) + "\n" for row in lines(truth.tolist(), texts)))
    runs = []
    for name in ("old", "new"):
        order, noisy = random.permutation(36), np.clip(truth + random.normal(0, 30, 36), 1, 100)
        rows = lines(noisy[order].tolist(), [texts[at] for at in order])
        runs.append(judged(tmp_path / name, rows, f"judge {name}", quality))
    found = compared(cli, *runs, "--labels", labels)["labelled"]["quality"]
    for name, run in zip(("old", "new"), runs, strict=True):
        alone = json.loads(cli("agree", run, "--labels", labels, "--resamples", FEW, "--json").out)
        of_agree = alone["aspects"]["quality"]["within"]["comparisons"]["integer"]["in_order"]
        assert found[name]["in_order"] == of_agree["value"], name


def test_columns_without_an_interval_share_one_reason_and_systems_what_they_did(
    tmp_path: Path, cli: Cli
) -> None:
    rows = [row for system in ("north", "south") for row in rows_of([2, 3, 4], f"{system}'s", system)]
    higher = [{**row, "helpfulness": row["helpfulness"] + 1, "clarity": 5} for row in rows]
    runs = [judged(tmp_path / "old", rows), judged(tmp_path / "new", higher, "another judge")]
    said = " ".join(cli("compare", *runs, "--resamples", FEW).out.partition("By system")[0].split())
    assert said.count("no interval") == said.count("exact sign test adjusted for 3 columns: p = ") == 1
    assert "The change has no interval in helpfulness, clarity, overall, because it " in said
    assert "adjusted for all: north, south: helpfulness rose on 3 of 3 (sign test p = 1.00), clarity" in said
    cli("report", *runs, "--out", tmp_path / "page.html")
    (first, *_) = section(tmp_path / "page.html", "systems")["leads"]
    assert first.startswith("old: ")
    assert "· old" not in first, "the run of a system is named once"


def test_systems_that_two_judges_put_in_opposite_order_are_named(tmp_path: Path, cli: Cli) -> None:
    random = np.random.default_rng(2)
    levels = [[2, 3, 4, 4], [4, 3, 2, 2], [2, 3, 4, 4]]
    runs = [
        judged(
            tmp_path / f"run{at}",
            [
                {**row, "system": f"s{system}" if system else None, "candidate": f"{row['candidate']} {system}"}
                for system, level in enumerate(of_judge)
                for row in rows_of((level + random.integers(-1, 2, 40)).tolist())
            ],
            f"judge {at}",
        )
        for at, of_judge in enumerate(levels)
    ]
    found = compared(cli, runs[0], runs[1])["judges"]["order"]["helpfulness"]
    contrary = {(pair["first"], pair["second"]): (pair["old"], pair["new"]) for pair in found["contrary"]}
    assert set(contrary) == {*product(["s1", "s2", "s3"], ["(none)"]), ("s1", "s2"), ("s1", "s3")}
    assert (found["alike"], found["undecided"]) == (0, 1), "s2 and s3 are equally good"
    old, new = contrary["s2", "(none)"]
    assert new["high"] < 0 < old["low"]
    said = " ".join(cli("compare", runs[0], runs[1], "--resamples", FEW).out.split())
    assert "In helpfulness, the judges put 5 pairs of systems in opposite order: s1 minus s2" in said
    same = compared(cli, runs[0], runs[2])["judges"]["order"]
    assert (same["helpfulness"]["alike"], same["helpfulness"]["contrary"]) == (5, [])
    assert same["clarity"] == {"alike": 0, "undecided": 6, "contrary": []}, "equal scores have no order"


def test_labels_show_where_a_judge_puts_systems_in_the_opposite_order(tmp_path: Path, cli: Cli) -> None:
    random = np.random.default_rng(3)
    systems = ("low", "middle", "high")

    def rows(levels: Sequence[float]) -> list[dict[str, Any]]:
        return [
            {"id": f"{at}-{system}", "instruction": f"q{at}", "candidate": f"a{at} {system}", "system": system}
            | {"helpfulness": int(np.clip(round(level + random.normal(0, 0.5)), 1, 5)), "clarity": 3}
            for at in range(40)
            for system, level in zip(systems, levels, strict=True)
        ]

    old, new = (
        judged(tmp_path / "old", rows([2, 3, 4])),
        judged(tmp_path / "new", rows([4, 3, 2]), "another judge"),
    )
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows([2, 3, 4])))
    order = compared(cli, old, new, "--labels", labels)["labelled"]["helpfulness"]["order"]
    assert (order["old"]["alike"], order["old"]["contrary"]) == (3, [])
    assert (order["new"]["alike"], len(order["new"]["contrary"])) == (0, 3)
    said = " ".join(cli("compare", old, new, "--labels", labels, "--resamples", FEW).out.split())
    assert "In helpfulness, new contradicts people in 3 pairs of systems: high minus low" in said


def test_labels_say_which_judge_agrees_better(tmp_path: Path, cli: Cli) -> None:
    truth = scores(80)
    noisy = [
        score + one for score, one in zip(truth, np.random.default_rng(3).integers(-1, 2, 80), strict=True)
    ]
    old = judged(tmp_path / "old", rows_of([int(score) for score in noisy]))
    new = judged(tmp_path / "new", rows_of(truth), "a better judge")
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows_of(truth)))
    found = compared(cli, old, new, "--labels", labels)["labelled"]["helpfulness"]
    assert found["new"]["exact"] == found["new"]["spearman"] == pytest.approx(1)
    assert found["old"]["exact"] == pytest.approx(np.mean(np.equal(noisy, truth)))
    assert found["difference"]["exact"]["low"] > 0
    assert found["difference"]["mae"]["high"] < 0
    assert "in_order" not in found["difference"], "no instruction has two responses"
    said = " ".join(cli("compare", old, new, "--labels", labels).out.split())
    agreement = "Agreement of new with people, compared with that of old, in "
    assert f"{agreement}helpfulness: better in 3 of 3 measures (Spearman, by 0" in said
    said = " ".join(cli("compare", new, old, "--labels", labels).out.split())
    assert "helpfulness: worse in 3 of 3 measures (Spearman, by 0." in said, "the word says the sign"
    flat = judged(tmp_path / "flat", rows_of([3] * 80), "a judge that says 3")
    said = " ".join(cli("compare", new, flat, "--labels", labels).out.split())
    worse = "worse in 2 of 3 measures (mean absolute error, by 0."
    assert worse in said, "equal scores do not correlate"
    few = [judged(tmp_path / f"few{at}", rows_of([3, at]), f"judge {at}") for at in (2, 3)]
    said = " ".join(cli("compare", *few, "--labels", labels).out.split())
    assert "because the difference has no interval: it depends on fewer than" in said

    both = tmp_path / "both.jsonl"
    both.write_text(
        "".join(json.dumps(row | {"clarity": 3 + at % 2}) + "\n" for at, row in enumerate(rows_of(truth)))
    )
    labels.write_text(
        "".join(json.dumps({k: v for k, v in row.items() if k != "clarity"}) + "\n" for row in rows_of(truth))
    )
    one, two = (
        compared(cli, old, new, "--labels", file)["labelled"]["helpfulness"]["difference"]["exact"]
        for file in (labels, both)
    )
    assert one["value"] == two["value"]
    assert two["low"] < one["low"], "the intervals are adjusted for all statistics of all aspects"

    same = judged(tmp_path / "same", rows_of(truth, "another answer"), "a better judge")
    end = cli("compare", new, same, "--labels", labels)
    assert (end.code, "compares two judges" in end.err) == (2, True)


def test_runs_that_differ_in_judge_and_responses_are_refused(tmp_path: Path, cli: Cli) -> None:
    old = judged(tmp_path / "old", rows_of(scores(10)))
    new = judged(tmp_path / "new", rows_of(scores(10), "another answer"), "another judge")
    end = cli("compare", old, new)
    assert end.code == 2
    assert "so did 10 responses of 10" in end.err


def test_the_report_of_two_runs_says_what_compare_says(tmp_path: Path, cli: Cli) -> None:
    before = scores(60)
    old = judged(tmp_path / "old", rows_of(before))
    after = [score - (at % 3 == 0) for at, score in enumerate(before)]
    new = judged(tmp_path / "new", rows_of(after, "another"))
    page = tmp_path / "page.html"
    assert cli("report", old, new, "--out", page).code == 0
    shown = section(page, "changes")
    assert any("helpfulness -0.33" in lead for lead in shown["leads"])
    means, moved = shown["tables"]
    change = compared(cli, old, new)["columns"]["helpfulness"]
    row = next(row for row in means["rows"] if row[0] == "helpfulness")
    assert row[3]["value"] == pytest.approx(change["difference"]["value"])
    assert len(moved["rows"]) == len(compared(cli, old, new)["moved"])

    with OpenPage(page, tmp_path) as opened:
        opened.run("document.querySelector('#changes-body th a').click()")
        chosen = "document.querySelector('.line[aria-selected=true] .who')?.textContent"
        opened.wait(f"{chosen}?.includes({json.dumps(moved['rows'][0][0])})")

    def of_both(after: int, text: str) -> list[dict[str, Any]]:
        return [
            {**row, "id": row["instruction"]}
            for name, score in (("x", 4), ("y", after))
            for row in rows_of([4] * 5 + [score], f"{text} of {name}", name)
        ]

    systems = [judged(tmp_path / "of 4", of_both(4, "old")), judged(tmp_path / "of 1", of_both(1, "new"))]
    assert cli("report", *systems, "--out", page).code == 0
    with OpenPage(page, tmp_path) as opened:
        said = " ".join(opened.texts("#changes-body .axes"))
        assert (
            "A hollow point has no interval, because it is the same on all instructions; or because it" in said
        )
        opened.run("document.querySelector('#changes-body th a').click()")
        opened.wait(f"{chosen}?.includes('question 5') && {chosen}.startsWith('y')")

    other = judged(tmp_path / "other", rows_of(before, "another"), "another judge")
    assert cli("report", old, other, "--out", page).code == 0
    assert "cannot be compared" in section(page, "changes")["leads"][0]
    assert cli("report", old, "--out", page).code == 0
    assert head(page)["sections"]["changes"] is None


def test_runs_without_a_common_row_are_refused(tmp_path: Path, cli: Cli) -> None:
    old = judged(tmp_path / "old", rows_of(scores(5)))
    other = [{**row, "instruction": f"other {row['instruction']}"} for row in rows_of(scores(5))]
    end = cli("compare", old, judged(tmp_path / "new", other))
    assert (end.code, "has no row of" in end.err) == (2, True)


def test_the_gate_passes_where_nothing_changed_and_says_why_a_few_rows_do_not_pass(
    tmp_path: Path, cli: Cli
) -> None:
    many, few = (judged(tmp_path / f"of{count}", rows_of(scores(count))) for count in (59, 20))
    again = judged(tmp_path / "again", rows_of(scores(59)))
    assert cli("compare", many, again, "--margin", "helpfulness=0.2").code == 0
    assert cli("compare", many, again, "--improve", "helpfulness").code == 3
    end = cli("compare", few, few.rename(tmp_path / "f"), "--margin", "helpfulness=0.2")
    assert end.code == 2, "the folder has moved"
    copy = judged(tmp_path / "copy", rows_of(scores(20)))
    end = cli("compare", tmp_path / "f", copy, "--margin", "helpfulness=0.2")
    assert (end.code, "FAILED" in end.out) == (3, True)


def test_a_row_that_failed_counts_as_the_lowest_score_and_is_printed(tmp_path: Path, cli: Cli) -> None:
    before = rows_of([5] * 100)
    old = judged(tmp_path / "old", before)
    after = [row | ({"helpfulness": None} if at in (7, 8) else {}) for at, row in enumerate(before)]
    new = judged(tmp_path / "new", after[:-8])
    found = compared(cli, old, new, "--margin", "helpfulness=0.5")
    failed, absent = "failed in new: no score of helpfulness", "not in new"
    reasons = {"7": failed, "8": failed} | {str(at): absent for at in range(92, 100)}
    assert {row["id"]: row["reason"] for row in found["missing"]} == reasons
    assert not found["gate"][0]["passes"]
    gate = found["gate"][0]
    assert (gate["measured"], gate["change"], gate["lost"]) == (0, pytest.approx(-0.4), 10)
    assert (gate["chance"], gate["needed"]) == (None, None), "the scatter is not that of scores"
    assert found["columns"]["helpfulness"]["difference"]["value"] == 0
    said = " ".join(cli("compare", old, new).out.split())
    assert "10 of 100 rows of old have no score in new" in said
    assert f"{failed} (id 7, 8); {absent} (id 92, 93, 94, 95, 96 and 3 more)" in said


def test_the_files_for_a_ci_job_say_what_failed(tmp_path: Path, cli: Cli) -> None:
    old = judged(tmp_path / "old", rows_of([4] * 30 + [5] * 30))
    new = judged(tmp_path / "new", rows_of([1] * 30 + [5] * 30, "a | worse <answer>"))
    page, cases = tmp_path / "page.md", tmp_path / "cases.xml"
    gate = ("--margin", "helpfulness=0.2", "--margin", "clarity=0.2")
    end = cli("compare", old, new, *gate, "--markdown", page, "--junit", cases)
    assert end.code == 3
    assert page.read_text().startswith("## old → new · FAILED\n\n| condition | system | ")
    assert "\n| helpfulness drop &#60; 0.2 | north | " in page.read_text(), "no text is markup"
    assert "helpfulness -1.50 (" in page.read_text()
    suite = ElementTree.parse(cases).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure") is not None for case in suite] == [True, False]


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        (["--margin", "helpfulness"], "write COLUMN=DROP"),
        (["--margin", "helpfulness=0"], "must be above 0"),
        (["--margin", "kindness=0.1"], "give one of helpfulness, clarity, overall"),
        (["--junit", "cases.xml"], "has no condition"),
        (["--junit", "cases.xml", "--max-failed", "0"], "must be a share between 0 and 1"),
    ],
)
def test_a_gate_that_cannot_be_used_is_refused(
    tmp_path: Path, cli: Cli, gate: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = judged(tmp_path / "run", rows_of(scores(6)))
    other = judged(tmp_path / "other", rows_of(scores(6)))
    end = cli("compare", run, other, *gate)
    assert end.code == 2
    assert why in end.err


def test_a_dry_or_an_incomplete_run_is_refused_by_the_gate(tmp_path: Path, cli: Cli) -> None:
    old = judged(tmp_path / "old", rows_of(scores(60)))
    new = judged(tmp_path / "new", rows_of(scores(60)))
    (new / "summary.json").unlink()
    end = cli("compare", old, new, "--margin", "helpfulness=0.2")
    assert (end.code, "is not complete" in end.err) == (2, True)
    assert cli("compare", old, new).code == 0, "without a gate it is only said"


def test_the_bound_is_that_of_betting_where_nothing_varies() -> None:
    """The largest bet on 59 equal instructions turns 1 into 20."""
    bound = lower_bound(np.zeros(59), 4.0)
    assert (1 + 0.2 / (4 - 0.2)) ** 59 >= 20 > (1 + 0.2 / (4 - 0.2)) ** 58
    assert bound > -0.2 > lower_bound(np.zeros(58), 4.0)
    assert (1 - bound / (4 + bound)) ** 59 == pytest.approx(20)


def test_rare_drops_pass_a_gate_in_at_most_one_of_twenty_samples() -> None:
    random = np.random.default_rng(5)
    changes = random.choice([0.0, -4.0], p=[0.95, 0.05], size=(4000, 60))  # the mean is the margin
    assert (lower_bound(changes, 4.0) > -0.2).mean() < 0.06
    assert (studentised_bound(changes, 4.0, 0.0, 0.95) > -0.2).mean() > 0.1, "as Student's t alone does not"


@pytest.fixture(scope="module")
def pair_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    return judged_pairs(write_responses(folder / "rows.jsonl", "xy", 8), model, folder / "run")


def test_two_judges_of_the_same_pairs_are_compared_by_their_verdicts(
    pair_run: Path, tmp_path: Path, cli: Cli
) -> None:
    other = random_model(tmp_path / "model", seed=1)
    new = judged_pairs(write_responses(tmp_path / "rows.jsonl", "xy", 8), other, tmp_path / "new")
    found = compared(cli, pair_run, new)
    assert (found["differs"], found["rows"], list(found["columns"])) == ("judge", 7, ["better", "depth"])
    assert "preference for x over y" in " ".join(found["notes"])
    wins = [{row["id"]: row["depth_preference"] for row in row_lines(run)} for run in (pair_run, new)]
    expected = np.mean([wins[1][name] - wins[0][name] for name in wins[0]])
    assert found["columns"]["depth"]["difference"]["value"] == pytest.approx(expected)


def test_a_changed_system_is_compared_by_its_wins_over_the_other(
    pair_run: Path, model: Path, tmp_path: Path, cli: Cli
) -> None:
    file = write_responses(tmp_path / "rows.jsonl", "xy", 8)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [row | {"system": "a", "candidate": "new"} if row["system"] == "x" else row for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in changed))
    new = judged_pairs(file, model, tmp_path / "new")
    found = compared(cli, pair_run, new, "--margin", "better=0.9")
    assert (found["differs"], found["rows"]) == ("responses", 7)
    assert "preference for x over y and for a over y" in " ".join(found["notes"])
    assert found["gate"][0]["condition"] == "x over y → a over y: better fell by less than 0.9"


def test_a_share_of_a_label_is_a_column(tmp_path: Path, cli: Cli) -> None:
    grade = {"grade": Aspect.model_validate({"choices": ["correct", "wrong"]})}

    def graded(name: str, right: int) -> Path:
        rows = [
            {**row, "grade": "correct" if at < right else "wrong"} for at, row in enumerate(rows_of([4] * 80))
        ]
        return judged(tmp_path / name, rows, aspects=grade)

    found = compared(cli, graded("old", 70), graded("new", 40), "--margin", "grade=correct=0.1")
    assert found["columns"]["grade=correct"]["difference"]["value"] == pytest.approx(-30 / 80)
    assert not found["gate"][0]["passes"]
