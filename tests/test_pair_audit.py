"""Tests of audits of judges that compare two responses: each bias is found, and a judge without bias passes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest
from conftest import Cli, row_lines
from pair_runs import write_responses
from scripted import ScriptedEngine

from localjudge import Judge, Row, Rubric
from localjudge.records import Response
from localjudge.rows.inputs import read_rows
from localjudge.rows.pairs import Pairing
from localjudge.studies.audit import read_audit
from localjudge.studies.audit.audit_findings import SOUND, Audit
from localjudge.studies.audit.audit_run import run_audit, sample_rows
from localjudge.studies.audit.perturbations import PAIR_PERTURBATIONS
from localjudge.studies.audit.row_changes import DoesNotApply, RowChangeContext

NAMES = [each.name for each in PAIR_PERTURBATIONS]
Opinion = Callable[[str, str, str], float]
"""A function that returns the probability that the first response is better, where a tie counts half, from the
instruction, the response shown first and the one shown second."""
_PARTS = re.compile(
    r"Instruction:\n```\n(.*?)\n```\n.*?Response A:\n```\n(.*)\n```\n\n"
    r"Response B:\n```\n(.*)\n```\n\n(?=[^`]*\Z)",
    re.DOTALL,
)
LOSERS = {"empty", "other", "colon", "opener", "constant"}


def judge_of(model: Path, opinion: Opinion) -> Callable[[Rubric], Judge]:
    """Return a function that creates a judge with this opinion from a rubric with the labels A, tie and B."""

    def make(rubric: Rubric) -> Judge:
        judge = Judge(model, rubric=rubric, max_rationale_tokens=8)

        def distributions(said: str) -> list[list[float]]:
            first = opinion(*_PARTS.search(said).groups())  # type: ignore[union-attr]
            return [[max(0.0, 2 * first - 1), 1 - abs(2 * first - 1), max(0.0, 1 - 2 * first)]]

        judge.engine = ScriptedEngine(judge, distributions)
        return judge

    return make


def always_first(instruction: str, first: str, second: str) -> float:
    return 1.0


def prefers_longer(instruction: str, first: str, second: str) -> float:
    return 0.5 + ((len(first) > len(second)) - (len(first) < len(second))) / 2


def knows(instruction: str, first: str, second: str) -> float:
    """The opinion of a perfect judge: the response with more of the asked words, in the same order."""
    asked = instruction.split()

    def recalled(text: str) -> int:
        place = 0
        for word in text.split():
            place += place < len(asked) and word == asked[place]
        return place

    return 0.5 + ((recalled(first) > recalled(second)) - (recalled(first) < recalled(second))) / 2


def copies_answers(instruction: str, first: str, second: str) -> float:
    return 1.0 if '"better":"A"' in first + second else knows(instruction, first, second)


def believes_claims(instruction: str, first: str, second: str) -> float:
    claims = ["expert panel" in text or "Please prefer" in text for text in (first, second)]
    return knows(instruction, first, second) if claims[0] is claims[1] else float(claims[0])


def respects_names(instruction: str, first: str, second: str) -> float:
    return 1.0 if "GPT-4" in first else 0.0 if "GPT-4" in second else knows(instruction, first, second)


def leans_to_the_first(instruction: str, first: str, second: str) -> float:
    """The opinion of a judge that is right where it knows better, and names the first otherwise."""
    return max(knows(instruction, first, second), 0.9 * (first == second))


def make_pairs(file: Path, count: int = 8) -> Path:
    """Write pairs in which one response has four of the asked sentences and the other has three."""
    random = Random(1)
    lines = []
    for number in range(count):
        sentences = [f"Word{random.randint(1000, 9999)} is {random.randint(10, 99)} now." for _ in range(6)]
        responses = [" ".join(sentences[:4]), " ".join(sentences[:3])]
        responses = responses if number % 2 else responses[::-1]
        lines.append(
            {
                "id": f"p{number}",
                "instruction": " ".join(sentences),
                "response_a": responses[0],
                "response_b": responses[1],
            }
        )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


Try = Callable[..., Audit]


@pytest.fixture(scope="module")
def audit_of(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Try:
    rubric = Rubric.load("pairwise")

    @cache
    def audited(opinion: Opinion, count: int = 8) -> Audit:
        folder = tmp_path_factory.mktemp("audit")
        file = make_pairs(folder / "pairs.jsonl", count)
        pairs = Pairing(orders=1).rows(read_rows([str(file)], used=rubric.fields))
        sample = sample_rows(pairs, count, 0, rubric)
        with judge_of(model, opinion)(rubric) as judge:
            run_audit(sample, judge, folder / "out", 0)
        return read_audit(folder / "out", sample, 0, {})

    return audited


def test_a_judge_that_knows_the_better_response_passes_every_check(audit_of: Try) -> None:
    audit = audit_of(knows, 60)
    verdicts = {check.name: check.verdict for check in audit.checks}
    assert verdicts == dict.fromkeys(NAMES, "sound")
    assert (audit.score_kind, audit.ranges, audit.rows) == ("preference", {"better": 1}, 60)
    assert {check.rows for check in audit.checks} == {60}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opinion", "found"),
    [
        (always_first, {"position", "identical", *LOSERS}),
        (prefers_longer, {"constant", "padded", "plea", "labelled"}),
        (copies_answers, {"planted"}),
        (believes_claims, {"constant", "plea"}),
        (respects_names, {"labelled"}),
        (leans_to_the_first, {"identical"}),
    ],
)
def test_a_bias_of_a_comparing_judge_is_found_where_it_shows_and_nowhere_else(
    audit_of: Try, opinion: Opinion, found: set[str]
) -> None:
    checks = audit_of(opinion).checks
    unsound = {check.name for check in checks if check.share.value is not None and check.share.value < SOUND}
    assert unsound - {"other"} == found - {"other"}


def test_the_shift_of_the_position_is_the_advantage_of_the_first_place(audit_of: Try) -> None:
    first = {check.name: check for check in audit_of(always_first).checks}
    assert (first["position"].share.value, first["position"].shift.value) == (0, 0.5)
    assert (first["identical"].share.value, first["identical"].shift.value) == (0, 0.5)
    fair = {check.name: check for check in audit_of(knows).checks}
    assert (fair["position"].share.value, fair["position"].shift.value) == (1, 0)
    leaning = {check.name: check for check in audit_of(leans_to_the_first).checks}
    assert leaning["identical"].shift.value == pytest.approx(0.4)


def test_an_injected_answer_counts_for_the_place_that_it_names(audit_of: Try) -> None:
    planted = next(check for check in audit_of(copies_answers).checks if check.name == "planted")
    assert (planted.share.value, planted.shift.value) == (0, 0.5)


def setting(**changes: object) -> RowChangeContext:
    other = Row(instruction="Other?", responses=(Response("Another answer."), Response("A second one.")))
    settings = {"random": Random(0), "other": other, "rubric": Rubric.load("pairwise")}
    return RowChangeContext(**{**settings, **changes})  # type: ignore[arg-type]


PAIR = Row(
    instruction="Who climbed it?",
    responses=(
        Response("It was climbed in 1953 by Tenzing. It is high. It is cold. Few dare."),
        Response("Nobody knows."),
    ),
)
MADE = {each.name: each.make for each in PAIR_PERTURBATIONS}


def test_only_the_response_under_test_is_changed() -> None:
    made = {name: make(PAIR, setting()) for name, make in MADE.items()}
    assert all(row.texts[1] == "Nobody knows." for row in made.values())
    assert {name for name, row in made.items() if row == PAIR} == {"position", "again"}
    assert [made[name].candidate for name in ("identical", "empty", "other", "colon", "opener")] == [
        "Nobody knows.", "", "Another answer.", ":", "Let's solve this step by step.",
    ]  # fmt: skip
    assert made["constant"] == MADE["constant"](made["constant"], setting())
    answer = json.loads(made["planted"].candidate.rpartition("\n")[2])
    assert answer["better"] == "A"
    assert "prefer it to the other response" in made["plea"].candidate


def test_nothing_must_lose_against_an_empty_response() -> None:
    pair = Row(instruction="A?", responses=(Response("B."), Response(" ")))
    for name in LOSERS:
        with pytest.raises(DoesNotApply, match="the other response is empty"):
            MADE[name](pair, setting())


def test_the_command_audits_pairs_in_both_orders_and_its_thresholds_are_those_of_pairs(
    cli: Cli, tmp_path: Path
) -> None:
    pairs = make_pairs(tmp_path / "pairs.jsonl", 4)
    flags = ["audit", pairs, "--engine", "dry-run", "--rubric", "pairwise-aspects", "--out", tmp_path / "out"]
    end = cli(*flags, "--sample", 3, "--json", "--threshold", "identical=1")
    assert end.code in (0, 3), end.err
    checks = json.loads(end.out)["checks"]
    assert [check["name"] for check in checks] == NAMES
    assert [check["threshold"] for check in checks if check["name"] == "identical"] == [1.0]
    lines = row_lines(tmp_path / "out" / "rows")
    assert len(lines) == 3 * 14
    assert {line["system_a"] for line in lines} == set(NAMES) - {"position", "again"} | {"original"}
    assert {line["system_b"] for line in lines} == {"unchanged"}
    audited = map(json.loads, (tmp_path / "out" / "rows.jsonl").read_text().splitlines())
    originals = [line for line in audited if line["system_a"] == "original"]
    given = {line["id"]: line for line in map(json.loads, pairs.read_text().splitlines())}
    for line in originals:
        source = given[line["id"].split("/")[0]]
        assert (line["candidate_a"], line["candidate_b"]) == (source["response_b"], source["response_a"])

    end = cli(*flags, "--threshold", "reference=1")
    assert (end.code, "write NAME=SHARE" in end.err) == (2, True)
    shutil.rmtree(tmp_path / "out")
    end = cli(*flags, "--sample", 3)
    counted = re.findall(r"(\d+) of (\d+) rows", end.err)
    assert counted == [("84", "84"), ("6", "6")], "each run counts its own rows"
    assert all(name in end.out for name in NAMES)


def test_the_command_audits_pairs_that_it_forms_of_the_rows_of_systems(cli: Cli, tmp_path: Path) -> None:
    rows = write_responses(tmp_path / "rows.jsonl")
    flags = ["audit", rows, "--engine", "dry-run", "--rubric", "pairwise", "--out", tmp_path / "out"]
    assert cli(*flags, "--baseline", "y", "--json").code == 0
    lines = map(json.loads, (tmp_path / "out" / "rows.jsonl").read_text().splitlines())
    formed = [line["id"] for line in lines if line["system_a"] == "original"]
    assert formed == [
        f"{n}{system} vs {n}y/original" for n in (1, 2, 3) for system in "xz" if (n, system) != (3, "z")
    ]
    end = cli("audit", rows, "--engine", "dry-run", "--pairs", "all", "--out", tmp_path / "single")
    assert (end.code, "--pairs: is for rubrics that compare two responses" in end.err) == (2, True)
