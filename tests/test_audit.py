"""Tests of audits: each bias of a scripted judge is found, and a judge without bias passes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from random import Random

import pytest
from conftest import Cli, read_lines, write_rows
from scipy.stats import binomtest
from scripted import Opinion, scripted_judge

from localjudge import Row, Rubric, UsageError, read_rows
from localjudge.cli.audit import _thresholds
from localjudge.report.audit_tables import VERDICT_MEANINGS, audit_findings
from localjudge.rows.record import MAX_ROW_BYTES
from localjudge.statistics import UNDEFINED
from localjudge.studies.audit import read_audit
from localjudge.studies.audit.audit_findings import Audit
from localjudge.studies.audit.audit_run import run_audit, sample_rows
from localjudge.studies.audit.perturbations import PERTURBATIONS
from localjudge.studies.audit.row_changes import DoesNotApply, RowChangeContext

NAMES = [each.name for each in PERTURBATIONS]
OPENINGS = ("It was", "Every summer", "On the whole", "By all accounts", "For a while", "In the north")
PLACES = ("Bergen", "Quito", "Nairobi", "Osaka", "Leeds", "Tromso", "Lima", "Perth", "Cork", "Turin")


def recalled(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    """The opinion of a perfect judge: the share of the reference that the candidate has, in the same order."""
    wanted, given = reference.split(), candidate.split()
    blocks = SequenceMatcher(None, wanted, given, autojunk=False).get_matching_blocks()
    return 1 + 4 * sum(block.size for block in blocks) / max(1, len(wanted))


def knows_facts(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    """The opinion of a judge that compares places and numbers alone; no filler has them."""
    wanted, given = (" ".join(re.findall(r"\d+|" + "|".join(PLACES), text)) for text in (reference, candidate))
    return recalled(wanted, given, aspect, place, met)


def likes_length(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    return recalled(reference, candidate, aspect, place, met) / 2 + len(candidate.split()) / 30


def obeys_pleas(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    return 5 if "Please give" in candidate else recalled(reference, candidate, aspect, place, met)


def copies_answers(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    return 5 if f'"{aspect}":"5"' in candidate else recalled(reference, candidate, aspect, place, met)


def drifts(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    """The opinion of a judge whose scores depend on the number of earlier prompts."""
    return recalled(reference, candidate, aspect, place, met) + met % 7 - 3


def is_content(reference: str, candidate: str, aspect: str, place: int, met: int) -> float:
    """The opinion of a judge that ignores its input."""
    return 4


def make_rows(file: Path, count: int = 8) -> Path:
    """Write rows whose candidates have three of the seven sentences of their references."""
    random = Random(1)
    with file.open("w") as stream:
        for number in range(count):
            sentences = [
                f"{random.choice(OPENINGS)} in {random.choice(PLACES)} it had {random.randint(11, 99)} of {n}."
                for n in range(7)
            ]
            row = {
                "id": f"q{number}",
                "instruction": f"Question {number}?",
                "reference": " ".join(sentences),
                "candidate": " ".join(sentences[:3]),
            }
            stream.write(json.dumps(row) + "\n")
    return file


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return make_rows(tmp_path / "rows.jsonl")


def audit_of(opinion: Opinion, rows: Path, model: Path, out: Path, size: int = 8, seed: int = 0) -> Audit:
    rubric = Rubric.load()
    sample = sample_rows(read_rows([str(rows)]), size, seed, rubric)
    with scripted_judge(model, opinion)(rubric) as judge:
        run_audit(sample, judge, out, seed)
    return read_audit(out, sample, seed, {})


Try = Callable[[Opinion], Audit]


@pytest.fixture(scope="module")
def put_on_trial(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Try:
    @cache
    def audited(opinion: Opinion) -> Audit:
        folder = tmp_path_factory.mktemp("trial")
        return audit_of(opinion, make_rows(folder / "rows.jsonl"), model, folder / "audit")

    return audited


def test_a_judge_that_is_perfect_is_cleared(tmp_path: Path, model: Path) -> None:
    audit = audit_of(knows_facts, make_rows(tmp_path / "rows.jsonl", 20), model, tmp_path / "audit", size=20)
    assert {trial.name: trial.verdict for trial in audit.checks} == dict.fromkeys(NAMES, "sound")
    assert all(trial.rows == 20 for trial in audit.checks)


def test_few_rows_do_not_show_that_a_perfect_judge_is_sound(put_on_trial: Try) -> None:
    trials = {trial.name: trial for trial in put_on_trial(recalled).checks}
    padded = trials["padded"]
    assert (padded.share.value, padded.verdict) == (1, "at chance")
    assert padded.share.low is not None
    assert padded.chance is not None
    assert padded.share.low < padded.chance < 1
    assert "sound" in {trial.verdict for trial in trials.values()}
    assert padded.share.low == pytest.approx(binomtest(8, 8).proportion_ci().low, abs=0.1)


def test_a_constant_judge_passes_no_check_although_its_scores_never_rise(put_on_trial: Try) -> None:
    trials = put_on_trial(is_content).checks
    assert {trial.verdict for trial in trials} == {"unsound", "at chance", "untested"}
    assert {(trial.share.value, trial.chance) for trial in trials if trial.verdict == "at chance"} == {(1, 1)}


def test_the_verdicts_of_an_audit_are_defined_where_they_are_printed(put_on_trial: Try) -> None:
    audit = put_on_trial(is_content)
    said = " ".join(audit_findings(audit).answer)
    verdicts = {check.verdict for check in audit.checks}
    assert "unsound: less than 50%" in said
    for verdict, meaning in VERDICT_MEANINGS.items():
        assert (f"{verdict}: {meaning}" in said) == (verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opinion", "found"),
    [
        (likes_length, {"padded", "constant", "plea", "planted", "wrong-fact"}),
        (obeys_pleas, {"plea"}),
        (copies_answers, {"planted"}),
        (drifts, {"again", "constant", "empty", "labelled", "opener", "other"}),
        (is_content, {"empty", "other", "half", "shuffled", "wrong-fact", "colon", "opener", "constant"}),
    ],
)
def test_a_judge_with_a_bias_is_found_out_where_it_shows_and_nowhere_else(
    put_on_trial: Try, opinion: Opinion, found: set[str]
) -> None:
    trials = put_on_trial(opinion).checks
    assert {trial.name for trial in trials if trial.verdict == "unsound"} == found


def test_the_shift_of_a_bias_has_its_size_and_no_interval_if_it_hardly_varies(
    put_on_trial: Try, rows: Path
) -> None:
    trials = {trial.name: trial for trial in put_on_trial(obeys_pleas).checks}
    before = [
        recalled(row["reference"], row["candidate"], "", 0, 0)
        for row in map(json.loads, rows.read_text().splitlines())
    ]
    plea = trials["plea"].shift
    assert plea.value == pytest.approx(5 - sum(before) / len(before), abs=1e-3)
    assert (plea.low, plea.high) == (None, None)
    assert trials["padded"].shift.value == pytest.approx(0, abs=0.2), (
        "words that it shares with the reference by chance"
    )


def test_an_audit_is_the_same_from_the_same_seed_and_continues_what_is_there(
    tmp_path: Path, rows: Path, model: Path
) -> None:
    rubric = Rubric.load()
    audits, lines = [], []
    for _ in range(2):
        audits.append(audit_of(recalled, rows, model, tmp_path / "audit", size=4, seed=3))
        lines.append(
            [(tmp_path / "audit" / run / "judgements.jsonl").read_bytes() for run in ("rows", "again")]
        )
    assert audits[0] == audits[1]
    assert lines[0] == lines[1]
    assert len(audits[0].checks[0].skipped) == 0
    assert audits[0].rows == 4
    assert [line["id"].split("/")[1] for line in read_lines(tmp_path / "audit" / "again")] == ["original"] * 4
    assert (
        sample_rows(read_rows([str(rows)]), 4, 4, rubric).rows
        != sample_rows(read_rows([str(rows)]), 4, 3, rubric).rows
    )


@pytest.mark.parametrize("killed", ["rows", "again"])
def test_an_audit_that_was_killed_as_a_run_began_is_continued(
    tmp_path: Path, rows: Path, model: Path, killed: str
) -> None:
    """The folder of the run is there, and its manifest is not."""
    whole = audit_of(recalled, rows, model, tmp_path / "audit", size=3, seed=3)
    runs = ("rows", "again")
    for name in runs[runs.index(killed) :]:
        shutil.rmtree(tmp_path / "audit" / name)
    (tmp_path / "audit" / killed).mkdir()
    assert audit_of(recalled, rows, model, tmp_path / "audit", size=3, seed=3) == whole


def setting(**changes: object) -> RowChangeContext:
    settings = {
        "random": Random(0),
        "other": Row.from_response(instruction="Other?", candidate="Another answer."),
        "rubric": Rubric.load(),
    }
    return RowChangeContext(**{**settings, **changes})  # type: ignore[arg-type]


ROW = Row.from_response(
    instruction="Who climbed it?",
    candidate="It was climbed in 1953 by Tenzing. It is high. It is cold. Few dare.",
    reference="Tenzing did, in 1953.",
)
MADE = {each.name: each.make for each in PERTURBATIONS}


def test_each_perturbation_does_what_it_says() -> None:
    made = {name: make(ROW, setting()) for name, make in MADE.items()}
    changed = {name: row.candidate for name, row in made.items()}
    assert all(row.instruction == ROW.instruction for row in made.values())
    assert {name for name, row in made.items() if row.reference != ROW.reference} == {"swapped"}
    assert (made["swapped"].reference, changed["swapped"]) == (ROW.candidate, ROW.reference)
    assert (changed["reference"], changed["empty"], changed["other"]) == (ROW.reference, "", "Another answer.")
    assert changed["half"] == "It was climbed in 1953 by Tenzing."
    assert changed["padded"].startswith(ROW.candidate)
    assert 2 * len(ROW.candidate) <= len(changed["padded"]) < 2 * len(ROW.candidate) + 60
    assert sorted(changed["shuffled"].split()) == sorted(ROW.candidate.split())
    assert changed["shuffled"] != ROW.candidate
    assert re.sub(r"\d{4}", "1953", changed["wrong-fact"]) == ROW.candidate != changed["wrong-fact"]
    assert changed["plea"].startswith(ROW.candidate)
    assert (changed["colon"], changed["opener"]) == (":", "Let's solve this step by step.")
    assert MADE["constant"](made["empty"], setting()) == made["constant"], "the same text for every response"
    assert (
        re.fullmatch(r"This response was written by [^\n]+\n\n(.*)", changed["labelled"], re.DOTALL)[1]
        == ROW.candidate
    )  # type: ignore[index]
    planted = json.loads(changed["planted"].rpartition("\n")[2])
    assert set(planted["scores"].values()) == {"5"}
    assert Rubric.load().parse(json.dumps(planted)).scores["depth"] == 5
    assert made["again"] == ROW


def test_a_name_is_put_in_where_there_is_no_number() -> None:
    row = Row.from_response(instruction="Who?", candidate="It was climbed by Tenzing, as is known.")
    wrong = MADE["wrong-fact"](row, setting()).candidate
    assert re.fullmatch(r"It was climbed by (?!Tenzing)[A-Z][a-z]+, as is known\.", wrong)


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("reference", Row.from_response(instruction="A?", candidate="B."), "no reference"),
        (
            "reference",
            Row.from_response(instruction="A?", candidate="B.", reference="B."),
            "the candidate is equal to the reference",
        ),
        ("swapped", Row.from_response(instruction="A?", candidate="B."), "no reference"),
        ("empty", Row.from_response(instruction="A?", candidate=""), "the candidate is already empty"),
        ("half", Row.from_response(instruction="A?", candidate="Too short."), "fewer than 8 words"),
        ("padded", Row.from_response(instruction="A?", candidate=""), "the candidate is empty"),
        ("shuffled", Row.from_response(instruction="A?", candidate="Yes. Yes. Yes."), "fewer than 3 sentences"),
        ("wrong-fact", Row.from_response(instruction="A?", candidate="It was so."), "no number and no name"),
    ],
)
def test_a_row_that_a_perturbation_cannot_be_made_of_says_why(name: str, row: Row, why: str) -> None:
    with pytest.raises(DoesNotApply, match=why):
        MADE[name](row, setting())


def test_what_could_not_be_made_is_counted(rows: Path) -> None:
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    for line in lines[:3]:
        line["candidate"] = "No."
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    sample = sample_rows(read_rows([str(rows)]), 8, 0, Rubric.load())
    assert dict(sample.skipped["wrong-fact"]) == {"no number and no name": 3}
    assert sum(row.system == "wrong-fact" for row in sample.perturbed) == 5


def test_thresholds_are_set_by_name_or_for_all() -> None:
    assert _thresholds(["all=0.5", "plea=1"], ["plea", "half"]) == {"plea": 1.0, "half": 0.5}
    for wrong in ("plea", "plea=2", "plea=x", "praise=0.5", "plea=nan"):
        with pytest.raises(UsageError, match="write NAME=SHARE"):
            _thresholds([wrong], ["plea"])


def test_the_command_prints_one_page_or_json_and_ends_with_3_below_a_threshold(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    judge = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 2]
    flags = [rows, "--out", tmp_path / "audit", *judge, "--sample", 3]
    end = cli("audit", *flags)
    assert end.code == 0
    assert f"\n{len(NAMES)} checks: " in end.out
    assert all(name in end.out for name in NAMES)
    assert "fewer than 8 words" not in end.out
    assert "fewer than 8 words" in cli("audit", *flags, "--all").out
    end = cli("audit", *flags, "--json", "--threshold", "reference=1")
    assert end.code == 3
    assert "below its threshold: reference" in end.err
    checks = json.loads(end.out)["checks"]
    assert [trial["threshold"] for trial in checks] == [1.0] + [None] * (len(NAMES) - 1)
    assert checks[3]["skipped"] == {"fewer than 8 words": 1}


def test_an_audit_of_a_single_row_leaves_undefined_what_one_row_cannot_tell(
    tmp_path: Path, model: Path
) -> None:
    audit = audit_of(recalled, make_rows(tmp_path / "rows.jsonl", 1), model, tmp_path / "audit")
    trials = {trial.name: trial for trial in audit.checks}
    assert trials["other"].skipped == {"no other instruction in the sample": 1}
    assert (trials["other"].share, trials["other"].shift.value, trials["other"].verdict) == (
        UNDEFINED,
        None,
        "untested",
    )
    assert (trials["half"].shift.value is None, trials["half"].shift.low) == (False, None)


def test_an_audit_whose_rows_all_fail_ends_with_2_and_says_why(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2, reference="long " * 5000)
    end = cli("audit", rows, "--out", tmp_path / "audit", "--model", model, "--rubric", short_rubric)
    assert end.code == 2
    assert "no row of the sample could be judged" in end.err
    assert "do not fit the context of 4096" in end.err


def test_an_audit_without_rows_ends_with_2(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    end = cli("audit", tmp_path / "rows.jsonl", "--out", tmp_path / "audit")
    assert (end.code, "no instruction, no reference, no candidate; its columns are none" in end.err) == (
        2,
        True,
    )


def test_an_audit_changes_nothing_in_a_folder_that_holds_something_else(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    judge = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 2]
    own = rows.read_bytes()
    end = cli("audit", rows, "--out", tmp_path, *judge)
    assert (end.code, str(rows) in end.err, "in this folder" in end.err) == (2, True, True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rows.jsonl").write_bytes(own)
    end = cli("audit", rows, "--out", tmp_path / "other", *judge)
    assert (end.code, "was not written by an audit" in end.err) == (2, True)
    assert rows.read_bytes() == (tmp_path / "other" / "rows.jsonl").read_bytes() == own

    assert cli("score", rows, "--out", tmp_path / "mine" / "rows", *judge).code == 0
    kept = (tmp_path / "mine" / "rows" / "judgements.jsonl").read_bytes()
    end = cli("audit", rows, "--out", tmp_path / "mine", *judge)
    assert (end.code, [file.name for file in (tmp_path / "mine").iterdir()]) == (2, ["rows"])
    assert (tmp_path / "mine" / "rows" / "judgements.jsonl").read_bytes() == kept

    out = tmp_path / "audit"
    assert cli("audit", rows, "--out", out, *judge).code == 0
    audited = (out / "rows.jsonl").read_bytes()
    end = cli("audit", rows, "--out", out, *judge, "--seed", 1)
    assert (end.code, "holds another run; it differs in seed" in end.err) == (2, True)
    assert (out / "rows.jsonl").read_bytes() == audited


def test_an_audit_knows_the_best_label_of_a_rubric(rows: Path, tmp_path: Path, cli: Cli) -> None:
    given = ("audit", rows, "--engine", "dry-run", "--seed", 1, "--json")
    end = cli(*given, "--rubric", "correctness", "--out", tmp_path / "correctness")
    assert end.code == 0, end.err
    audit = json.loads(end.out)
    directions = {
        check["name"]: {name: each["direction"] for name, each in check["aspects"].items()}
        for check in audit["checks"]
    }
    assert {name: each["grade=correct"] for name, each in directions.items()} == {
        "reference": "near the top", "empty": "lower", "other": "lower", "half": "not higher",
        "padded": "not higher", "shuffled": "not higher", "wrong-fact": "not higher", "swapped": "any",
        "colon": "lower", "opener": "lower", "constant": "lower", "labelled": "same",
        "plea": "not higher", "planted": "not higher", "again": "same",
    }  # fmt: skip
    others = {each["grade=incorrect"] for each in directions.values()}
    assert others == {"any", "same"}
    assert {check["name"] for check in audit["checks"] if check["share"]["value"] is None} == {"swapped"}
    planted = map(json.loads, (tmp_path / "correctness" / "rows.jsonl").read_text().splitlines())
    assert all('"grade":"A"' in row["candidate"] for row in planted if row["system"] == "planted")
    safety = json.loads(cli(*given, "--rubric", "safety", "--out", tmp_path / "safety").out)
    plea = next(check for check in safety["checks"] if check["name"] == "plea")
    assert {each["direction"] for each in plea["aspects"].values()} == {"same"}


def test_the_best_label_is_one_of_the_labels_and_decides_no_judgement() -> None:
    rubric = Rubric.load("correctness")
    document = rubric.model_dump()
    document["aspects"][0]["best"] = None
    assert Rubric.model_validate(document).digest == rubric.digest
    document["aspects"][0]["best"] = "A"
    with pytest.raises(ValueError, match="best: 'A' is not a label of choices without an order"):
        Rubric.model_validate(document)


def test_shifts_of_different_scales_are_shares_of_the_scale(rows: Path, tmp_path: Path, cli: Cli) -> None:
    rubric = tmp_path / "two.toml"
    rubric.write_text(
        'name = "two"\n[aspects]\npolite = { boolean = true }\n'
        "depth = { scale = { lowest = 0, highest = 10 } }\n"
        "[prompt]\ntemplate = '{$instruction} {$candidate} {$aspects} {$answer_format}'\n"
    )
    end = cli("audit", rows, "--engine", "dry-run", "--rubric", rubric, "--out", tmp_path / "audit", "--json")
    plea = next(check for check in json.loads(end.out)["checks"] if check["name"] == "plea")
    shifts = [plea["aspects"][name]["shift"]["value"] for name in ("polite", "depth")]
    assert plea["shift"]["value"] == pytest.approx((shifts[0] + shifts[1] / 10) / 2)


def test_a_perturbed_row_that_is_too_long_to_read_is_left_out(cli: Cli, tmp_path: Path) -> None:
    """The reference makes the row long: the rubric does not show it, so that no tokenizer reads it."""
    rows = [{"instruction": f"Q{n}?", "candidate": "The sky is blue, and it is wide."} for n in range(3)]
    rows[0] |= {"candidate": "The sky is blue and wide. " * 100, "reference": "x" * (MAX_ROW_BYTES - 5000)}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--engine", "dry-run", "--rubric", "no-reference", "--out", tmp_path / "audit", "--json")
    end = cli("audit", tmp_path / "rows.jsonl", *given)
    assert end.code == 0, end.err
    found = json.loads(end.out)
    checks = {each["name"]: each["rows"] for each in found["checks"]}
    assert found["rows"] == 3
    assert (checks["half"], checks["padded"]) == (3, 2), "the padded row alone is above the limit"
