"""Tests of warning signs: a judge that does not work on the rows of a run does not look healthy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli, write_rows

from localjudge import Rubric, load_run
from localjudge.records import Judgement
from localjudge.runs.warning_signs import WarningSigns

SIX = Rubric.load("six-aspects")
PAIRWISE = Rubric.load("pairwise")


def signs(
    count: int,
    *,
    rationales: tuple[str, ...] = ("It is right.",),
    cut: int = 0,
    scores: tuple[int, ...] = (1, 2),
    likeliest: int = 1000,
    mass_is_lower_bound: bool = False,
) -> tuple[str, ...]:
    """Return the signs of a run whose rows take turns with these rationales and scores."""
    found, join = WarningSigns(SIX, mass_is_lower_bound), SIX.mode.join(SIX.aspects, 1)
    for n in range(count):
        judgement = Judgement(
            id=f"r{n}", key=str(n), texts={"rationale": rationales[n % len(rationales)]},
            scores=dict.fromkeys(SIX.aspects, scores[n % len(scores)]), rationale_cut=n < cut,
            mass={"depth": 0.25}, likeliest={"depth": n < likeliest},
            prompt_tokens=1, output_tokens=1,
        )  # fmt: skip
        found.add(join.joined([judgement]))
    return found.lines


def order_signs(verdicts: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the signs of pairs with these verdicts: on the input's order, and on the reverse."""
    found = WarningSigns(PAIRWISE)
    orders = [
        Judgement(
            id=f"p{n}", key=f"{n}{place}", row=2 * n + place + 1, swapped=bool(place),
            texts={"rationale": "Seen."}, scores={"better": label}, rationale_cut=False,
            prompt_tokens=1, output_tokens=1,
        )
        for n, pair in enumerate(verdicts) for place, label in enumerate(pair)
    ]  # fmt: skip
    for pair in PAIRWISE.mode.join(PAIRWISE.aspects, prompts=2).all(orders):
        found.add(pair)
    return tuple(line for line in found.lines if line.startswith(("order: ", "place: ", "equal scores: ")))


def test_a_judge_that_tells_responses_apart_and_gives_reasons_has_no_sign() -> None:
    assert signs(40, cut=9, likeliest=20) == ()
    assert order_signs([("A", "B"), ("B", "A")] * 10) == ()


def test_a_value_that_is_mostly_not_the_likeliest_token_is_a_sign() -> None:
    (line,) = signs(40, likeliest=19)
    assert line.startswith(
        "improbable answers: the model's likeliest token begins a valid answer in less than half of the "
        "judgements (in brackets, the share of its probability on valid answers): depth 19 of 40 (0.25); change"
    )


def test_of_a_server_that_lists_few_tokens_the_share_on_valid_answers_is_a_lower_bound() -> None:
    (line,) = signs(40, likeliest=0, mass_is_lower_bound=True)
    assert "depth 0 of 40 (at least 0.25)" in line


def test_a_few_rows_are_no_sign() -> None:
    assert signs(9, rationales=("[your rationale]",), cut=9, scores=(5,)) == ()
    assert order_signs([("A", "A")] * 9) == ()


def test_equal_scores_of_all_rows_are_named() -> None:
    (line,) = signs(120, scores=(4,))
    assert line.startswith("equal scores: safety 4, engagement 4, clarity 4, factuality 4, depth 4, help")
    assert line.endswith(" in all 120 judged rows; these aspects do not tell responses apart")


def test_equal_scores_of_few_rows_are_no_sign() -> None:
    """97 % of GPT-4's clarity scores are 5, so ten of them are usually equal."""
    assert signs(100, scores=(5,)) == ()


@pytest.mark.parametrize("copy", ["[your rationale]", "Your rationale", 'Say "[your rationale]".'])
def test_rationales_that_repeat_the_placeholder_of_the_prompt_are_counted(copy: str) -> None:
    (line,) = signs(12, rationales=(copy, "It is right."))
    assert line.startswith("copied rationales: 6 of 12 judged rows repeat the prompt's placeholder")
    assert signs(22, rationales=(copy, *["It is right."] * 10)) == (), "2 of 22"
    assert signs(10, rationales=(copy, *["It is right."] * 10)) == (), "one row"


def test_rationales_that_ran_into_their_limit_are_counted() -> None:
    (line,) = signs(12, cut=5)
    assert line.startswith("cut rationales: 5 of 12 judged rows ran into the limit; raise")


@pytest.mark.parametrize(
    ("verdicts", "counts"),
    [
        (
            [("A", "A"), ("B", "B"), ("A", "B"), ("B", "A")] * 3,
            "6 of the 12 pairs where each names one, and 6.3 are",
        ),
        (
            [("A", "B")] * 3 + [("A", "A")] * 3 + [("tie", "tie")] * 40,
            "3 of the 6 pairs where each names one, and 2.5 are",
        ),
        ([("A", "B")] * 4 + [("tie", "tie")] * 8, "4 of the 4 pairs where each names one, and 2.3 are"),
        ([("A", "A")] * 12, "0 of the 12 pairs where each names one, and 0.0 are"),
    ],
)
def test_orders_that_do_not_agree_beyond_chance_are_a_sign(
    verdicts: list[tuple[str, str]], counts: str
) -> None:
    line = order_signs(verdicts)[0]
    assert f": both orders name the same winner in {counts} expected if only the place decides (p = " in line


def test_ties_are_no_agreement() -> None:
    (line,) = order_signs([("tie", "tie")] * 12)
    assert line == "order: in better, none of 12 pairs has a winner in both orders"


def test_a_place_that_wins_most_pairs_is_a_sign() -> None:
    verdicts = [("A", "A")] * 12 + [("A", "B"), ("B", "A")] * 20
    (line,) = order_signs(verdicts)
    assert line == (
        "place: in better, of 12 pairs whose orders differ, 12 favour the response that is shown first "
        "(p < .001)"
    )
    assert order_signs(verdicts[8:]) == (), "4 of 4 pairs"
    assert order_signs([("A", "tie"), ("tie", "A")] * 6 + verdicts[12:])[0].startswith(
        "place: in better, of 12"
    )


def imported(cli: Cli, run: Path, candidates: list[str], scores: list[int]) -> Path:
    """Write a run of imported scores of one aspect."""
    rows = run.with_suffix(".jsonl")
    written = [
        {"id": f"q{n}", "instruction": f"Question {n}?", "candidate": candidate, "scores": {"wit": score}}
        for n, (candidate, score) in enumerate(zip(candidates, scores, strict=True))
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in written))
    assert cli("import", rows, "--out", run, "--aspect", "wit").code == 0
    return run


def test_the_notices_of_a_run_are_the_same_wherever_they_stand(cli: Cli, tmp_path: Path) -> None:
    run = imported(cli, tmp_path / "run", ["word"] * 120, [4] * 120)
    line = "equal scores: wit 4 in all 120 judged rows; this aspect does not tell responses apart"
    notices = load_run(run).notices
    assert notices[-1] == line
    assert json.loads((run / "summary.json").read_text())["warning_signs"] == [line]
    assert cli("show", run).out.splitlines()[: len(notices)] == [*notices]
    ranked = cli("rank", run)
    assert line in " ".join(ranked.out.split()), "above the name of a winner"
    assert json.loads(cli("rank", run, "--json").out)["notices"] == [*notices]
    assert line in cli("report", run, "--out", tmp_path / "page.html").err
    exported = cli("export", run, "--out", tmp_path / "table.jsonl")
    assert exported.code == 0
    assert line in exported.err
    column = {json.loads(row)["notice"] for row in (tmp_path / "table.jsonl").read_text().splitlines()}
    assert column == {"\n".join(notices)}


def test_an_incomplete_run_has_the_signs_of_its_lines(cli: Cli, tmp_path: Path) -> None:
    run = imported(cli, tmp_path / "run", ["word"] * 121, [4] * 121)
    lines = (run / "judgements.jsonl").read_text().splitlines(keepends=True)
    (run / "judgements.jsonl").write_text("".join(lines[:120]))
    notices = load_run(run).notices
    assert [notice.partition(":")[0] for notice in notices[-2:]] == ["incomplete", "equal scores"]
    assert json.loads(cli("rank", run, "--json").out)["notices"] == [*notices]
    assert cli("show", run).out.splitlines()[: len(notices)] == [*notices]


def test_score_ends_with_the_signs(cli: Cli, tmp_path: Path, model: Path, short_rubric: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 12)
    end = cli(
        "score", rows, "--out", tmp_path / "run", "--model", model, "--rubric", short_rubric,
        "--max-rationale-tokens", 1,
    )  # fmt: skip
    assert end.code == 0
    assert "cut rationales: 12 of 12 judged rows ran into the limit" in end.out
