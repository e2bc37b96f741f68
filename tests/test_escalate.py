"""Tests of `escalate`: what a small judge keeps, what a large one gets, and what is left for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pair_runs
import pytest
from conftest import Cli, random_model, row_lines
from scipy.stats import binom

from localjudge import Row, Rubric
from localjudge.arrays import Flags, Floats, Integers
from localjudge.records import Failure, Judgement, Response
from localjudge.records.keys import row_key, settings_digest
from localjudge.rows.pairs import Pairing
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.journal import read_journal
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.run_manifest import RunSettings
from localjudge.statistics.confidence_threshold import ERROR, fewest_labels, threshold
from localjudge.studies.written_runs import write_run

LABELS = ("right", "wrong")
GRADE = Rubric(
    name="grade",
    aspects={"grade": Aspect.model_validate({"choices": [*LABELS]})},
    prompt={"template": "{$instruction} {$candidate} {$aspects} {$answer_format}"},  # type: ignore[arg-type]
)

BETTER = Rubric(
    name="better",
    aspects={"better": Aspect.model_validate({"preference": ["A", "B"]})},
    prompt={"template": "{$instruction} {$candidate_a} {$candidate_b} {$aspects} {$answer_format}"},  # type: ignore[arg-type]
)


def judged(
    folder: Path, confidence: Floats, agreed: Flags, truth: Flags, instruction: Integers | None = None
) -> Path:
    """Write a run of a judge that names the right label where `agreed`, with this confidence.

    A row has an instruction of its own, or the one of this number. A confidence of NaN is a row that failed.
    """
    settings = RunSettings(engine="elsewhere", rubric=GRADE.digest, model=folder.name)
    outcomes: list[Judgement | Failure] = []
    own = np.arange(len(truth)) if instruction is None else instruction
    for at, (sure, agrees, right, asked) in enumerate(zip(confidence, agreed, truth, own, strict=True)):
        row = Row.from_response(
            instruction=f"question {asked}",
            candidate=f"answer {at}",
            system="north",
            id=str(at),
            source=f"rows.jsonl:{at + 1}",
            reads_reference=False,
        )
        says_right = bool(right) == bool(agrees)
        key = row_key(settings_digest(settings.as_dict()), row.digest)
        if np.isnan(sure):
            outcomes.append(Failure(**row.identity, key=key, error=f"{row.source}: no answer"))
            continue
        outcomes.append(
            Judgement(
                **row.identity,
                key=key,
                texts=dict.fromkeys(GRADE.columns.texts, "because"),
                scores={"grade": LABELS[not says_right]},
                expected={},
                probabilities={"grade": [sure, 1 - sure] if says_right else [1 - sure, sure]},
                rationale_cut=False,
                candidate_cut=0,
                prompt_tokens=10,
                output_tokens=5,
            )
        )
    write_run(folder, outcomes, rubric=GRADE, settings=settings, model=folder.name, inputs=[], columns={})
    return folder


def judged_pairs(
    folder: Path, confidence: Floats, agreed: Flags, first_wins: Flags, reverse: bool = False
) -> Path:
    """Write a run of pairs; where the judge is less sure than a half, it names the first response twice.

    `reverse` gives the responses of every pair in the other order.
    """
    settings = RunSettings(engine="elsewhere", rubric=BETTER.digest, model=folder.name)
    outcomes = []
    for at, (sure, agrees, wins) in enumerate(zip(confidence, agreed, first_wins, strict=True)):
        pair = Row(
            instruction=f"question {at}",
            responses=(Response(f"long answer {at}", "north"), Response(f"answer {at}", "south")),
            id=str(at),
            source=f"pairs.jsonl:{at + 1}",
            reads_reference=False,
        )
        pair = replace(pair, responses=pair.responses[::-1]) if reverse else pair
        winner = "north" if bool(wins) == bool(agrees) else "south"
        for row in (pair, pair.reversed()):
            says_a = (row.responses[0].system == winner) if sure >= 0.5 else True
            shares = [sure, 1 - sure] if says_a else [1 - sure, sure]
            outcomes.append(
                Judgement(
                    **row.identity,
                    key=row_key(settings_digest(settings.as_dict()), row.digest),
                    texts=dict.fromkeys(BETTER.columns.texts, "because"),
                    scores={"better": "A" if says_a else "B"},
                    expected={},
                    probabilities={"better": shares},
                    rationale_cut=False,
                    candidate_cut=0,
                    prompt_tokens=10,
                    output_tokens=5,
                )
            )
    write_run(
        folder,
        outcomes,
        rubric=BETTER,
        settings=settings,
        model=folder.name,
        inputs=[],
        columns={},
        pairing=Pairing(),
    )
    return folder


def write_labels(file: Path, truth: Flags, known: int | Integers, instruction: Integers | None = None) -> Path:
    """Write labels of the first rows, or of these rows."""
    labelled = np.arange(known) if isinstance(known, int) else known
    own = np.arange(len(truth)) if instruction is None else instruction
    rows = [
        {"instruction": f"question {own[at]}", "candidate": f"answer {at}", "grade": LABELS[not truth[at]]}
        for at in labelled.tolist()
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def drawn(count: int, seed: int, good: float = 0.99) -> tuple[Floats, Flags, Flags]:
    """Return confidences, agreement and truth: sure verdicts are right, others near chance."""
    random = np.random.default_rng(seed)
    sure = random.random(count) < 0.6
    confidence = np.where(sure, random.uniform(0.9, 1, count), random.uniform(0.5, 0.7, count))
    return confidence, random.random(count) < np.where(sure, good, 0.6), random.random(count) < 0.5


def test_a_threshold_is_the_lowest_that_passes_the_exact_test_in_its_turn() -> None:
    confidence, agreed, _ = drawn(400, 0)
    every = np.arange(400)
    found = threshold(confidence, agreed, every, 0.9)
    assert found is not None
    assert found < 0.95
    kept = confidence >= found
    assert binom.sf(agreed[kept].sum() - 1, kept.sum(), 0.9) <= ERROR
    assert threshold(confidence, np.zeros_like(agreed), every, 0.9) is None
    assert threshold(confidence, np.ones_like(agreed), every, 0.9) == confidence.min()


def test_too_few_labels_keep_nothing() -> None:
    assert (fewest_labels(0.9, 0.05), fewest_labels(0.9)) == (29, 36)
    agreed = np.ones(36, dtype=np.bool_)
    every = np.arange(36)
    assert threshold(np.linspace(0.5, 1, 36), agreed, every, 0.9) == 0.5
    assert threshold(np.linspace(0.5, 1, 35), agreed[:35], every[:35], 0.9) is None
    four = np.repeat(every[:35], 4)
    assert threshold(np.linspace(0.5, 1, 140), np.ones(140, bool), four, 0.9) is None, (
        "140 rows, 35 instructions"
    )
    four = np.repeat(every, 4)
    assert threshold(np.linspace(0.5, 1, 144), np.ones(144, bool), four, 0.9) == 0.5


def test_a_judge_just_below_the_rate_is_kept_in_few_of_many_samples() -> None:
    random, kept = np.random.default_rng(1), 0
    for _ in range(1000):
        confidence, agreed = random.random(120), random.random(120) < 0.9
        kept += threshold(confidence, agreed, np.arange(120), 0.9) is not None
    assert kept / 1000 < ERROR + 0.015, "three standard errors"


@pytest.mark.parametrize("sizes", [(4, 4), (1, 8)], ids=["four rows", "one to eight rows"])
@pytest.mark.parametrize("alike", [1.0, 0.5], ids=["alike", "half alike"])
def test_rows_of_an_instruction_that_are_right_together_do_not_count_as_many(
    sizes: tuple[int, int], alike: float
) -> None:
    random, kept = np.random.default_rng(2), 0
    for _ in range(400):
        group = np.repeat(np.arange(90), random.integers(sizes[0], sizes[1] + 1, 90))
        of_instruction = random.random(90)[group]
        own = random.random(len(group))
        agreed = np.where(random.random(len(group)) < alike, of_instruction, own) < 0.9
        confidence = random.random(90)[group]
        kept += threshold(confidence, agreed, group, 0.9) is not None
    assert kept / 400 < ERROR + 0.025, "three standard errors"


def test_equal_confidences_are_kept_together() -> None:
    confidence = np.repeat([0.9, 0.6], 100)
    agreed = np.repeat([True, False], 100)
    found = threshold(confidence, agreed, np.arange(200), 0.9)
    assert found == 0.9


def unequal() -> tuple[Integers, Integers]:
    """Return the instruction of each row, eighty with one and ten with sixty, and a random half of the rows."""
    instruction = np.concatenate([np.arange(80), np.repeat(np.arange(80, 90), 60)])
    return instruction, np.sort(np.random.default_rng(6).permutation(680)[:340])


@pytest.mark.parametrize("wrong", [True, False], ids=["wrong where an instruction has many", "right"])
def test_the_rate_is_that_of_the_rows_however_many_an_instruction_has(
    tmp_path: Path, cli: Cli, wrong: bool
) -> None:
    instruction, labelled = unequal()
    agreed = (instruction < 80) if wrong else np.ones(680, dtype=np.bool_)
    truth = np.random.default_rng(5).random(680) < 0.5
    run = judged(tmp_path / "run", np.full(680, 0.9), agreed, truth, instruction)
    labels = write_labels(tmp_path / "labels.jsonl", truth, labelled, instruction)
    end = cli("escalate", run, "--labels", labels, "--agreement", "0.5")
    assert end.code == 0, end.err
    said = " ".join(end.err.split())
    if wrong:
        assert "run keeps nothing" in said, "88 % of the rows do not agree"
    else:
        assert "run keeps 680 of 680 rows (100%)" in said
        assert "340 of 340 such labelled rows agree, and count as 1" in said
        assert "at least 50% of the rows that it keeps agree with people" in said


def test_the_sure_verdicts_stay_and_the_large_judge_speaks_for_the_rest(tmp_path: Path, cli: Cli) -> None:
    confidence, agreed, truth = drawn(600, 2)
    small = judged(tmp_path / "small", confidence, agreed, truth)
    random = np.random.default_rng(3)
    unsure = confidence < 0.8
    better = np.where(unsure, random.uniform(0.6, 1, 600), confidence)
    large = judged(tmp_path / "large", better, (better > 0.7) | (random.random(600) < 0.5), truth)
    labels = write_labels(tmp_path / "labels.jsonl", truth, 500)
    end = cli("escalate", small, "--labels", labels, "--to", large, "--out", tmp_path / "out")
    assert end.code == 0, end.err
    assert "small keeps" in end.err
    assert "large keeps" in end.err
    lines = [json.loads(line) for line in (tmp_path / "out" / "judgements.jsonl").read_text().splitlines()]
    assert len(lines) == 600
    speaks: dict[str, list[dict[str, Any]]] = {"small": [], "large": [], "people": []}
    for line in lines:
        speaks[line["columns"]["judge"] if line["error"] is None else "people"].append(line)
    assert all(speaks.values())
    kept, large_kept, people = ([int(line["id"]) for line in each] for each in speaks.values())
    assert confidence[kept].min() > confidence[large_kept + people].max()
    assert better[large_kept].min() > better[people].max()
    assert {line["error"] for line in speaks["people"]} == {"for people: no judge is sure enough"}
    for line in speaks["people"]:
        of_judge = line["columns"]["confidence"]
        assert of_judge == pytest.approx(
            {"small": confidence[int(line["id"])], "large": better[int(line["id"])]}
        )
    reasons = json.loads((tmp_path / "out" / "summary.json").read_text())["failures"]
    assert reasons == {"for people: no judge is sure enough": len(people)}
    assert f"{len(people)} for people: no judge is sure enough" in end.err
    rank = cli("rank", tmp_path / "out", "--resamples", "100")
    assert (rank.code, "several judges" in rank.out) == (0, True)


def test_pairs_are_escalated_whole_and_a_judge_that_read_them_reversed_still_names_the_same_response(
    tmp_path: Path, cli: Cli
) -> None:
    confidence, agreed, truth = drawn(600, 2)
    confidence[:20] = 0.4  # each order names another response: no verdict
    small = judged_pairs(tmp_path / "small", confidence, agreed, truth)
    random = np.random.default_rng(3)
    better = np.where(confidence < 0.8, random.uniform(0.6, 1, 600), confidence)
    right = (better > 0.7) | (random.random(600) < 0.5)
    large = judged_pairs(tmp_path / "large", better, right, truth, reverse=True)
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        "".join(
            json.dumps(
                {
                    "instruction": f"question {at}",
                    "candidate_a": f"long answer {at}",
                    "candidate_b": f"answer {at}",
                    "better": "A" if wins else "B",
                }
            )
            + "\n"
            for at, wins in enumerate(truth[:500].tolist())
        )
    )
    end = cli("escalate", small, "--labels", labels, "--to", large, "--out", tmp_path / "out")
    assert end.code == 0, end.err
    assert "pairs" in end.err
    lines = [json.loads(line) for line in (tmp_path / "out" / "judgements.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [str(at) for at in range(600) for _ in "ab"]
    assert [line["swapped"] for line in lines] == [False, True] * 600
    pairs = row_lines(tmp_path / "out")
    of_judge: dict[str, list[int]] = {"small": [], "large": [], "people": []}
    for at, pair in enumerate(pairs):
        judge = pair["columns"]["judge"] if pair["status"] == "judged" else "people"
        of_judge[judge].append(at)
        rightly = {"small": agreed, "large": right}.get(judge)
        if rightly is not None:
            assert pair["better"] == ("a" if truth[at] == rightly[at] else "b")
    assert all(of_judge.values())
    assert min(of_judge["small"]) >= 20, "a pair without a verdict is never kept"
    rank = cli("rank", tmp_path / "out", "--resamples", "100")
    assert (rank.code, "several judges" in rank.out) == (0, True), rank.err


def test_a_small_judge_that_is_never_sure_enough_keeps_nothing_and_says_so(tmp_path: Path, cli: Cli) -> None:
    confidence, _, truth = drawn(200, 4)
    agreed = np.random.default_rng(5).random(200) < 0.6
    small = judged(tmp_path / "small", confidence, agreed, truth)
    end = cli("escalate", small, "--labels", write_labels(tmp_path / "labels.jsonl", truth, 200))
    assert end.code == 0
    surest = np.argsort(-confidence)[:60]
    shares = (
        f"{agreed.mean():.0%} of these rows agree, and {agreed[surest].mean():.0%} of the 30% with the highest"
    )
    assert "small keeps nothing" in end.err
    assert shares in " ".join(end.err.split())
    few = cli("escalate", small, "--labels", write_labels(tmp_path / "few.jsonl", truth, 20))
    assert "at least 36 rows of different instructions must have labels, and these count as 20" in " ".join(
        few.err.split()
    )


def test_a_model_judges_the_rows_that_are_passed_on_also_of_systems_that_answer_alike(
    tmp_path: Path, model: Path, cli: Cli
) -> None:
    rows, rubric = tmp_path / "rows.jsonl", tmp_path / "grade.toml"
    texts = [
        {"id": str(at), "system": system, "instruction": f"question {at}", "candidate": f"answer {at}"}
        for at in range(12)
        for system in ("north", "south")
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in texts))
    rubric.write_text(
        'name = "grade"\n[aspects.grade]\nchoices = ["right", "wrong"]\n[answer]\nrationale_place = "none"\n'
        '[prompt]\ntemplate = "{$instruction} {$candidate} {$aspects} {$answer_format}"\n'
    )
    assert cli("score", rows, "--rubric", rubric, "--model", model, "--out", tmp_path / "small").code == 0
    other_of = dict(zip(LABELS, LABELS[::-1], strict=True))
    said = [json.loads(line) for line in (tmp_path / "small" / "judgements.jsonl").read_text().splitlines()]
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        "".join(
            json.dumps({"id": each["id"], "system": each["system"], "grade": other_of[each["grade"]]}) + "\n"
            for each in said
        )
    )
    other, rest = random_model(tmp_path / "other", seed=1), tmp_path / "rest.jsonl"
    to = ("--to", other, "--out", tmp_path / "out", "--agreement", "0.5")
    end = cli("escalate", tmp_path / "small", "--labels", labels, *to, "--rest", rest)
    assert end.code == 0, end.err
    passed = {(each["id"], each["system"]) for each in texts}
    for written in (rest, tmp_path / "out-large" / "judgements.jsonl"):
        found = [json.loads(line) for line in written.read_text().splitlines()]
        assert len(found) == 24, "no verdict agrees, so all rows are passed on"
        assert {(each["id"], each["system"]) for each in found} == passed
    assert "has no such row" not in end.err
    assert (tmp_path / "out" / "judgements.jsonl").read_text().count('"judge": "small"') == 0


def test_a_model_judges_the_pairs_of_systems_that_are_passed_on_in_both_orders(
    tmp_path: Path, model: Path, cli: Cli
) -> None:
    responses = pair_runs.write_responses(tmp_path / "responses.jsonl", instructions=7)
    small = pair_runs.judged_pairs(responses, model, tmp_path / "small")
    labels, rest = tmp_path / "labels.jsonl", tmp_path / "rest.jsonl"
    texts = [
        {"instruction": f"Question {n}?", "candidate_a": "word x " * n, "candidate_b": "word y " * n}
        for n in range(1, 8)
    ]
    labels.write_text("".join(json.dumps({**pair, "better": "A"}) + "\n" for pair in texts))
    to = ("--to", random_model(tmp_path / "other", seed=1), "--out", tmp_path / "out", "--agreement", "0.5")
    end = cli("escalate", small, "--by", "better", "--labels", labels, *to, "--rest", rest)
    assert end.code == 0, end.err
    pairs = len(row_lines(small))
    assert len(rest.read_text().splitlines()) == pairs, (
        "seven of seven do not agree, so all pairs are passed on"
    )
    for folder in (tmp_path / "out-large", tmp_path / "out"):
        assert len(pair_runs.lines(folder, "judgements.jsonl")) == 2 * pairs
        assert len(row_lines(folder)) == pairs


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--to", "x"), "give both"),
        (("--within", "1"), "without an order"),
        (("--by", "tone"), "give one of grade"),
    ],
)
def test_what_cannot_be_escalated_is_refused(
    tmp_path: Path, cli: Cli, flags: tuple[str, ...], why: str
) -> None:
    confidence, agreed, truth = drawn(5, 0)
    small = judged(tmp_path / "small", confidence, agreed, truth)
    end = cli("escalate", small, "--labels", write_labels(tmp_path / "labels.jsonl", truth, 5), *flags)
    assert (end.code, why in end.err) == (2, True), end.err


def test_what_cannot_work_is_found_before_the_large_judge_is_looked_for(tmp_path: Path, cli: Cli) -> None:
    confidence, agreed, truth = drawn(300, 0)
    small = judged(tmp_path / "small", confidence, agreed, truth)
    no_model = tmp_path / "no-model"
    to = ("--to", no_model, "--out", tmp_path / "out")
    few = write_labels(tmp_path / "few.jsonl", truth, np.flatnonzero(confidence > 0.8))
    end = cli("escalate", small, "--labels", few, *to)
    assert (end.code, "small keeps" in end.err) == (2, True), end.err
    assert "0 of different instructions, and 90% agreement needs 36" in end.err
    labels = write_labels(tmp_path / "labels.jsonl", truth, 300)
    rest = tmp_path / "rest.jsonl"
    rest.write_text("mine\n")
    end = cli("escalate", small, "--labels", labels, *to, "--rest", rest)
    assert end.code == 2
    assert end.err.endswith(f"localjudge: --rest {rest}: exists; choose another file, or remove it\n")
    assert rest.read_text() == "mine\n"
    end = cli("escalate", small, "--labels", labels, *to, "--rest", tmp_path / "none" / "rest.jsonl")
    assert (end.code, "its folder does not exist" in end.err) == (2, True), end.err
    end = cli("escalate", small, "--labels", labels, "--to", no_model, "--out", rest)
    assert (end.code, "is a file" in end.err) == (2, True), end.err
    end = cli("escalate", small, "--labels", labels, *to)
    assert (end.code, "none found in its inputs; give them with --inputs" in end.err) == (2, True), end.err


def test_a_judge_that_keeps_all_needs_no_large_one(tmp_path: Path, cli: Cli) -> None:
    truth = np.random.default_rng(5).random(60) < 0.5
    small = judged(tmp_path / "small", np.linspace(0.6, 1, 60), np.ones(60, dtype=np.bool_), truth)
    labels = write_labels(tmp_path / "labels.jsonl", truth, 60)
    end = cli("escalate", small, "--labels", labels, "--to", tmp_path / "no-model", "--out", tmp_path / "out")
    assert (end.code, "no row is passed on, so no large judge is needed" in end.err) == (0, True), end.err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["judged"] == 60


def test_rows_that_a_judge_failed_are_passed_on_and_counted_by_their_reason(tmp_path: Path, cli: Cli) -> None:
    confidence, agreed, truth = drawn(300, 7)
    failed = np.arange(300) % 10 == 0
    small = judged(tmp_path / "small", np.where(failed, np.nan, confidence), agreed, truth)
    large = judged(tmp_path / "large", np.where(failed, np.nan, 0.6), agreed, truth)
    labels = write_labels(tmp_path / "labels.jsonl", truth, 300)
    end = cli("escalate", small, "--labels", labels, "--to", large, "--out", tmp_path / "out")
    assert end.code == 0, end.err
    reasons = json.loads((tmp_path / "out" / "summary.json").read_text())["failures"]
    assert reasons["for people: no judge is sure enough (small: no answer; large: no answer)"] == 30
    assert len(reasons) == 2


def test_labels_on_another_scale_are_refused(tmp_path: Path, cli: Cli) -> None:
    assert cli("score", "examples", "--out", tmp_path / "run", "--limit", "6").code == 0
    judged_rows = [
        json.loads(line) for line in (tmp_path / "run" / "judgements.jsonl").read_text().splitlines()
    ]
    labels = tmp_path / "ten.jsonl"
    labels.write_text(
        "".join(
            json.dumps({"id": row["id"], "system": row["system"], "helpfulness": 2 * row["helpfulness"]}) + "\n"
            for row in judged_rows
        )
    )
    end = cli("escalate", tmp_path / "run", "--labels", labels, "--by", "helpfulness", "--agreement", "0.5")
    assert (end.code, "are outside the judge's scale 1 to 5" in end.err) == (2, True), end.err


def test_a_column_with_the_share_of_one_of_two_labels_is_read_as_agree_reads_it(
    tmp_path: Path, cli: Cli
) -> None:
    confidence, agreed, truth = drawn(300, 3)
    small = judged(tmp_path / "small", confidence, agreed, truth)
    labels = write_labels(tmp_path / "labels.jsonl", truth, 300)
    shares = tmp_path / "shares.jsonl"
    given = [json.loads(line) for line in labels.read_text().splitlines()]
    for row in given:
        row["is_right"] = "yes" if row.pop("grade") == "right" else "no"
    shares.write_text("".join(json.dumps(row) + "\n" for row in given))
    flags = ("--labels", shares, "--map", "grade=right=is_right")
    expected = cli("escalate", small, "--labels", labels)
    end = cli("escalate", small, *flags)
    assert (end.code, end.err) == (0, expected.err), end.err
    assert "keeps" in end.err
    assert cli("agree", small, *flags).code == 0


def changing_when_read(run: Path, reader: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader of runs that renews `run.json` of this one before it reads, as a start does."""

    def read_after_renewal(*arguments: Any, **named: Any) -> Any:
        (run / "run.json").write_bytes((run / "run.json").read_bytes() + b"\n")
        return reader(*arguments, **named)

    return read_after_renewal


def test_a_small_run_that_changes_while_it_is_read_is_refused_before_its_rows_are_passed_on(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    confidence, agreed, truth = drawn(600, 2)
    small = judged(tmp_path / "small", confidence, agreed, truth)
    labels, rest = write_labels(tmp_path / "labels.jsonl", truth, 500), tmp_path / "rest.jsonl"
    monkeypatch.setattr("localjudge.runs.reader.read_journal", changing_when_read(small, read_journal))
    to = ("--rest", rest, "--to", tmp_path / "model", "--out", tmp_path / "out")
    end = cli("escalate", small, "--labels", labels, *to)
    assert (end.code, f"{small}: its score command has changed it" in end.err) == (2, True), end.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["labels.jsonl", "small"]


@pytest.mark.parametrize("changed", ["small", "large"])
def test_no_verdict_of_a_run_that_changes_after_its_verdicts_were_chosen_is_written(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    confidence, agreed, truth = drawn(600, 2)
    small = judged(tmp_path / "small", confidence, agreed, truth)
    large = judged(tmp_path / "large", np.full(600, 0.9), np.full(600, True), truth)
    labels, out = write_labels(tmp_path / "labels.jsonl", truth, 500), tmp_path / "out"
    command = ("escalate", small, "--labels", labels, "--to", large, "--out", out)
    reader = changing_when_read(tmp_path / changed, read_row_outcomes)
    with monkeypatch.context() as patched:
        patched.setattr("localjudge.studies.escalated_run.read_row_outcomes", reader)
        end = cli(*command)
    assert (end.code, f"{tmp_path / changed}: its score command has changed it" in end.err) == (2, True), (
        end.err
    )
    assert not out.exists()
    assert cli(*command).code == 0, "the same command writes it later"
