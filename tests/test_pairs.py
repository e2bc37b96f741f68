"""Pairs: two responses compared in both orders, from rows that hold both or from the rows of systems."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, row_lines
from one_row import as_row
from pair_runs import read_pairs
from preloaded import KILL, Preloaded
from scripted import Taste, scripted_comparison

from localjudge import Judge, Rubric, RubricError, UsageError, load_run
from localjudge.modes.pair import PairOutcome
from localjudge.modes.pair_preference import Odds, Preference
from localjudge.records import Failure, Judgement, Row
from localjudge.rows.pairs import Pairing
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.run_manifest import read_manifest

USED = ("instruction", "candidate_a", "candidate_b")
SYSTEMS = ("one", "two", "three")
HELD_PROGRAM = Path(__file__).parent / "held_program.py"


def pair_rows(count: int) -> list[dict[str, Any]]:
    """Return pairs: the first response has more words than the second in two of three of them."""
    return [
        {
            "id": f"p{n}",
            "instruction": f"Question {n}?",
            "candidate_a": "word " * (5 + n % 3),
            "candidate_b": "word " * 6,
            "system_a": "one",
            "system_b": "two",
        }
        for n in range(count)
    ]


def system_rows(instructions: int, systems: Sequence[str] = SYSTEMS) -> list[dict[str, Any]]:
    return [
        {"id": f"{system}-{n}", "instruction": f"Question {n}?", "candidate": f"{system} {n}", "system": system}
        for n in range(instructions)
        for system in systems
    ]


def write(file: Path, rows: Iterable[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def formed(rows: list[dict[str, Any]], **pairing: Any) -> list[tuple[str, str, bool]]:
    """Return the systems of each row of two responses, in the order shown, and whether it is swapped."""
    how = Pairing(forms=True, **pairing)
    found = list(how.rows(rows_of_program(rows, how.used(USED))))
    assert all(isinstance(row, Row) for row in found)
    return [(str(row.system), str(row.opponent), row.swapped) for row in found]


def compared(model: Path, taste: Taste, rows: Iterable[dict[str, Any]]) -> dict[str, PairOutcome]:
    return {pair.id: pair for pair in scripted_comparison(model, taste).compare(rows)}


def test_a_judge_that_always_prefers_the_first_place_gives_a_tie_for_every_pair(model: Path) -> None:
    pairs = compared(model, lambda first, second: 1.0, pair_rows(6))
    assert len(pairs) == 6
    for pair in pairs.values():
        better = pair.preferences["better"]
        assert (better.value, better.winner, better.agree) == (0.5, "tie", False)
        assert better.shown_first == (1.0, 1.0), "the response that is shown first wins in both orders"


def test_a_judge_that_compares_the_responses_names_the_same_winner_in_both_orders(model: Path) -> None:
    def longer(first: str, second: str) -> float:
        return 0.5 if len(first) == len(second) else float(len(first) > len(second))

    pairs = compared(model, longer, pair_rows(3))
    found = {name: pair.preferences["better"] for name, pair in pairs.items()}
    assert {name: (each.winner, each.agree) for name, each in found.items()} == {
        "p0": ("b", True), "p1": ("tie", True), "p2": ("a", True),
    }  # fmt: skip
    assert found["p0"].value == 0
    assert found["p1"].value == pytest.approx(0.5)


def test_labels_that_name_different_responses_are_a_tie_and_the_preference_is_the_mean(model: Path) -> None:
    def prefers_the_place_more_than_the_text(first: str, second: str) -> float:
        return 0.9 if len(first) < len(second) else 0.7

    (pair,) = compared(model, prefers_the_place_more_than_the_text, pair_rows(1)).values()
    better = pair.preferences["better"]
    assert [each.scores["better"] for each in pair.prompts if isinstance(each, Judgement)] == ["A", "A"]
    assert better.value == pytest.approx((0.9 + 0.3) / 2)
    assert (better.winner, better.agree, better.orders_say) == (
        "tie",
        False,
        "each order names another response",
    )
    assert better.shown_first == pytest.approx((0.9, 0.7))


@pytest.mark.parametrize(
    ("odds", "winner"),
    [((0.5, 0.2, 0.3), "a"), ((0.3, 0.4, 0.3), "tie"), ((0.5, 0.0, 0.5), "tie"), ((0.2, 0.39, 0.41), "b")],
)
def test_the_winner_is_the_most_probable_result(odds: tuple[float, float, float], winner: str) -> None:
    assert Odds(*odds).winner == winner
    assert Odds(*odds).preference == pytest.approx(odds[0] + odds[1] / 2)


def labelled(own: str, reverse: str | None, labels: tuple[str, ...]) -> Preference:
    """Return the preference of a pair whose orders write these labels."""
    orders = [
        Judgement(
            id="p", key=str(swapped), row=1 + swapped, swapped=swapped, texts={}, scores={"better": label},
            rationale_cut=False, prompt_tokens=1, output_tokens=1,
        )
        for swapped, label in ((False, own), (True, reverse))
        if label is not None
    ]  # fmt: skip
    aspect = Aspect(preference={label: label for label in labels})
    return PairOutcome.from_orders(orders, {"better": aspect}).preferences["better"]


@pytest.mark.parametrize(
    ("own", "reverse", "labels", "winner", "agree", "same"),
    [
        ("A", "B", ("A", "tie", "B"), "a", True, True),
        ("B", "A", ("A", "tie", "B"), "b", True, True),
        ("tie", "tie", ("A", "tie", "B"), "tie", True, None),
        ("A", "A", ("A", "tie", "B"), "tie", False, False),
        ("A", "tie", ("A", "tie", "B"), "tie", False, None),
        ("B", None, ("A", "tie", "B"), "b", None, None),
        ("A", "B", ("A", "B"), "a", True, True),
        ("A", "A", ("A", "B"), None, False, False),
        ("A", None, ("A", "B"), "a", None, None),
        ("A+", "B", ("A+", "A", "B", "B+"), "a", True, True),
        ("A+", "A", ("A+", "A", "B", "B+"), None, False, False),
    ],
)
def test_the_verdict_of_a_pair_is_what_both_orders_write(
    own: str, reverse: str | None, labels: tuple[str, ...], winner: str | None, agree: bool, same: bool
) -> None:
    found = labelled(own, reverse, labels)
    assert (found.winner, found.agree, found.same_response) == (winner, agree, same)


def test_a_pair_of_which_an_order_failed_is_a_failure_and_no_tie() -> None:
    aspects = Rubric.load("pairwise").aspects
    judged = Judgement(
        id="p", key="k", row=1, texts={"rationale": "Fine."}, scores={"better": "A"}, rationale_cut=False,
        prompt_tokens=1, output_tokens=1,
    )  # fmt: skip
    failed = Failure(id="p", key="l", row=2, swapped=True, error="x:1: the engine died")
    pair = PairOutcome.from_orders([failed, judged], aspects)
    assert (pair.preferences, pair.error) == ({}, "x:1: the engine died")
    line = pair.line(Rubric.load("pairwise").columns)
    assert (line["status"], line["better"], line["better_preference"]) == ("failed", None, None)
    assert (line["better_ab"], line["better_ba"]) == ("A", None), "the order that was judged is kept"
    whole = PairOutcome.from_orders([judged, judged.model_copy(update={"swapped": True})], aspects)
    assert whole.line(Rubric.load("pairwise").columns).keys() == line.keys()
    assert whole.preferences["better"].value == 0.5, "without probabilities, each label counts whole"


def test_a_graded_preference_has_its_tie_in_the_middle_and_is_mirrored_in_the_other_order() -> None:
    aspects = Rubric.load("pairwise-reference").aspects
    assert list(aspects["better"].numbers.values()) == [2, 1, 0, -1, -2]
    shares = [0.1, 0.2, 0.3, 0.25, 0.15]
    judgement = Judgement(
        id="p", key="k", texts={"rationale": "Fine."}, scores={"better": "tie"}, rationale_cut=False,
        probabilities={"better": shares}, prompt_tokens=1, output_tokens=1,
    )  # fmt: skip
    own = Odds.from_judgement(judgement, "better", aspects["better"])
    assert (own.a, own.tie, own.b) == pytest.approx((0.3, 0.3, 0.4))
    swapped = Odds.from_judgement(judgement.model_copy(update={"swapped": True}), "better", aspects["better"])
    assert (swapped.a, swapped.tie, swapped.b) == pytest.approx((0.4, 0.3, 0.3))


@pytest.mark.parametrize(
    "columns",
    [
        {"input": "Q", "output_1": "A", "output_2": "B", "label": 1},
        {"question": "Q", "response_A": "A", "response_B": "B", "pair_id": "7", "label": "A>B"},
        {"prompt": "Q", "chosen": "A", "rejected": "B", "chosen_model": "m", "rejected_model": "n", "id": 7},
        {"instruction": "Q", "output_1": "A", "output_2": "B", "generator_1": "m", "generator_2": "n"},
        {"prompt": "Q", "response_a": "A", "response_b": "B", "model_a": "m", "model_b": "n"},
        {"instruction": "Q", "input": "more", "response1": "A", "response2": "B"},
    ],
    ids=["LLMBar", "JudgeBench", "RewardBench", "AlpacaEval", "Arena", "PandaLM"],
)
def test_pairs_are_read_in_the_layouts_that_people_have(columns: dict[str, Any]) -> None:
    row = as_row(columns, "here:1", used=USED)
    assert isinstance(row, Row)
    assert (row.instruction, row.texts) == ("Q\n\nmore" if "response1" in columns else "Q", ("A", "B"))
    systems = (row.system, row.opponent)
    assert systems == (
        ("m", "n") if {"chosen_model", "generator_1", "model_a"} & set(columns) else (None, None)
    )
    assert row.id == ("7" if {"pair_id", "id"} & set(columns) else "here:1")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"instruction": "Q", "candidate_a": "A"}, "no candidate_b; its columns are instruction, candidate_a"),
        (
            {"instruction": "Q", "candidate_a": "A", "candidate_b": None},
            "no candidate_b: no value at 'candidate_b'",
        ),
        (
            {"instruction": "Q", "output_1": "A", "chosen": "B", "candidate_b": "C"},
            "'output_1' and 'chosen' are both possible columns for the candidate_a",
        ),
    ],
)
def test_a_row_that_is_no_pair_fails_with_its_reason(columns: dict[str, Any], problem: str) -> None:
    row = as_row(columns, "here:1", used=USED)
    assert isinstance(row, Failure)
    assert problem in row.error


def test_all_pairs_of_systems_are_formed_instruction_by_instruction_in_both_orders() -> None:
    expected = []
    for _ in range(2):
        for pair in combinations(SYSTEMS, 2):
            expected += [(*pair, False), (*pair[::-1], True)]
    assert formed(system_rows(2)) == expected
    assert formed(system_rows(2), orders=1) == expected[::2]


def test_a_baseline_is_the_second_of_each_pair() -> None:
    assert formed(system_rows(1), baseline="one", orders=1) == [
        ("two", "one", False),
        ("three", "one", False),
    ]


def test_listed_pairs_are_formed_as_they_are_listed() -> None:
    listed = (("three", "one"),)
    assert formed(system_rows(2), systems=listed, orders=1) == [("three", "one", False)] * 2


@pytest.mark.parametrize(("most", "systems"), [(1, 3), (2, 4), (3, 6)])
def test_a_limited_number_of_pairs_compares_all_pairs_of_systems_equally_often(most: int, systems: int) -> None:
    names = [f"s{n}" for n in range(systems)]
    rows = system_rows(30, names)
    found = formed(rows, per_instruction=most, orders=1, seed=3)
    assert len(found) == 30 * most
    counts = Counter(frozenset(pair[:2]) for pair in found)
    assert len(counts) == systems * (systems - 1) // 2
    assert max(counts.values()) - min(counts.values()) <= 1
    assert found == formed(rows, per_instruction=most, orders=1, seed=3)
    assert found != formed(rows, per_instruction=most, orders=1, seed=4)


def test_a_number_of_pairs_alone_forms_pairs_of_all_systems() -> None:
    pairing = Pairing.parse(USED, "one", None, None, 2, 0)
    assert pairing == Pairing(orders=1, forms=True, per_instruction=2)


def test_the_files_of_alpaca_eval_and_arena_hard_form_pairs_as_they_come(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    for name in ("m", "n"):
        outputs = [{"instruction": f"Q{n}?", "output": name * n, "generator": name} for n in (1, 2)]
        (tmp_path / f"{name}-outputs.json").write_text(json.dumps(outputs))
        write(
            tmp_path / f"{name}-answers.jsonl",
            (
                {
                    "uid": f"u{n}",
                    "model": name,
                    "messages": [
                        {"role": "user", "content": f"Q{n}?"},
                        {"role": "assistant", "content": {"answer": name * n}},
                    ],
                }
                for n in (1, 2)
            ),
        )
    for kind, ids in (("outputs.json", "{0}-outputs.json:{1} vs "), ("answers.jsonl", "u{1} vs u{1}")):
        out = tmp_path / kind.split(".")[0]
        end = cli(
            "score", tmp_path / f"m-{kind}", tmp_path / f"n-{kind}", "--baseline", "n", "--out", out,
            "--model", model, "--rubric", "pairwise", "--max-rationale-tokens", "4",
        )  # fmt: skip
        assert end.code == 0, end.err
        pairs = list(read_pairs(out))
        assert [pair.systems for pair in pairs] == [("m", "n")] * 2
        assert all(ids.format("m", n) in pair.id for n, pair in enumerate(pairs, 1))


def test_a_system_without_a_response_is_counted() -> None:
    how = Pairing(forms=True)
    rows = [row for row in system_rows(4) if row["id"] not in ("two-1", "two-3", "one-3")]
    paired = how.rows(rows_of_program(rows, how.used(USED)))
    assert len(list(paired)) == 2 * (3 + 1 + 3)
    assert paired.missing == {"one": 1, "two": 2}


def test_a_formed_pair_keeps_the_other_columns_of_both_rows() -> None:
    rows = [row | {"dataset": "d", "tokens": len(row["id"])} for row in system_rows(1, ("a", "bbb"))]
    how = Pairing(forms=True, orders=1)
    (row,) = how.rows(rows_of_program(rows, how.used(USED)))
    assert isinstance(row, Row)
    assert (row.id, row.source) == ("a-0 vs bbb-0", "row 1 and row 2")
    assert row.columns == {"dataset": "d", "tokens": [3, 5]}


def test_columns_of_the_rows_that_form_pairs_are_named_by_their_own_fields(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    rows = [
        {"instruction": row["instruction"], "model output": row["candidate"], "team": row["system"]}
        for row in system_rows(2, ("one", "two"))
    ]
    score = ("score", write(tmp_path / "a.jsonl", rows), "--rubric", "pairwise", "--pairs", "all")
    named = ("--column", "candidate=model output", "--column", "system=team")
    end = cli(
        *score, *named, "--out", tmp_path / "run", "--model", model, "--max-rationale-tokens", "4"
    )  # fmt: skip
    assert end.code == 0, end.err
    assert {pair.systems for pair in read_pairs(tmp_path / "run")} == {("one", "two")}

    unnamed = cli(*score, *named[:2], "--out", tmp_path / "other", "--engine", "dry-run")
    assert unnamed.code == 2
    assert "no system; its columns are instruction, model output, team" in unnamed.err
    assert "name them with --column system=COLUMN" in unnamed.err


def test_rows_without_a_system_form_no_pairs_and_their_other_columns_are_named() -> None:
    nameless = {"instruction": "Q", "candidate": "c", "team": "red"}
    how = Pairing(forms=True)
    (failure, *_) = how.rows(rows_of_program([nameless, *system_rows(1)], how.used(USED)))
    assert isinstance(failure, Failure)
    assert "its other columns are team; name it with --column system=COLUMN" in failure.error
    for rows, there in (([nameless], "none"), (system_rows(2, ("one",)), "one")):
        with pytest.raises(
            UsageError, match=f"rows are: {there}. Name their column with `columns` system=COLUMN"
        ):
            list(how.rows(rows_of_program(rows, how.used(USED))))


@pytest.mark.parametrize(
    ("pairing", "problem"),
    [
        ({"baseline": "four"}, "`baseline`: no row is of the system 'four'; there are one, two, three"),
        ({"systems": (("one", "four"),)}, "`pairs`: no row is of the system 'four'"),
    ],
)
def test_a_system_that_is_not_there_is_named(pairing: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        formed(system_rows(1), **pairing)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--rubric", "just-eval", "--pairs", "all"], "--pairs: is for rubrics that compare two responses"),
        (["--rubric", "just-eval", "--orders", "one"], "--orders: is for rubrics that compare two responses"),
        (["--orders", "three"], "--orders three: give one or both"),
        (["--pairs", "all", "--baseline", "one"], "give only one of the two"),
        (["--pairs", "gone.jsonl"], "gone.jsonl: No such file"),
        ([], "no candidate_a, no candidate_b; its columns are id, instruction, candidate, system"),
    ],
)
def test_flags_that_do_not_fit_are_refused_in_one_line(
    cli: Cli, tmp_path: Path, flags: list[str], problem: str
) -> None:
    rows = write(tmp_path / "a.jsonl", system_rows(2))
    end = cli("score", rows, "--rubric", "pairwise", *flags, "--out", tmp_path / "run", "--engine", "dry-run")
    assert (end.code, problem in end.err, end.err.count("\n")) == (2, True, 1), end.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("{$candidate_b}", "nothing"), "placeholder {$candidate_b} is missing; it compares two responses"),
        (("{$candidate_b}", "{$candidate_b} {$candidate}"), "{$candidate} stands beside {$candidate_a}"),
        (('preference = ["A", "tie", "B"]', "boolean = true"), "better is not a preference"),
        (('preference = ["A", "tie", "B"]', 'preference = ["A"]'), "preference: give two or more labels"),
    ],
)
def test_a_rubric_that_is_half_a_comparison_is_refused(
    tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    shipped = Path(sys.modules["localjudge"].__file__ or "").parent / "rubrics" / "pairwise.toml"
    text = shipped.read_text().split("[aspects.better.levels]")
    text[1] = text[1][text[1].index("[answer]") :]
    file = tmp_path / "own.toml"
    file.write_text("".join(text).replace(*change))
    with pytest.raises(RubricError) as refused:
        Rubric.load(file)
    assert problem in str(refused.value)


SETTINGS = ["--rubric", "pairwise", "--max-rationale-tokens", "6", "--engine-arg", "batch_size=3"]


@pytest.fixture
def run(cli: Cli, tmp_path: Path, model: Path) -> Callable[..., Path]:
    """Judge the pairs of three systems on six instructions."""
    rows = write(tmp_path / "rows.jsonl", system_rows(6))

    def judged(name: str, *flags: str, code: int = 0) -> Path:
        out = tmp_path / name
        end = cli("score", rows, "--out", out, "--model", model, "--pairs", "all", *SETTINGS, *flags)
        assert end.code == code, end.err
        return out

    return judged


def test_a_run_has_a_line_for_each_order_and_a_line_for_each_pair(run: Callable[..., Path]) -> None:
    out = run("run")
    lines, pairs = (
        list(read_lines(out)),
        row_lines(out),
    )
    assert (len(lines), len(pairs)) == (36, 18)
    for place, pair in enumerate(pairs):
        own, reverse = lines[2 * place : 2 * place + 2]
        assert (own["swapped"], reverse["swapped"]) == (False, True)
        assert (own["system"], own["opponent"]) == (reverse["opponent"], reverse["system"])
        assert (pair["system_a"], pair["system_b"]) == (own["system"], own["opponent"])
        assert (pair["key_ab"], pair["key_ba"]) == (own["key"], reverse["key"])
        a, tie, _ = (
            (one + other) / 2
            for one, other in zip(
                own["better_probabilities"], reverse["better_probabilities"][::-1], strict=True
            )
        )
        assert pair["better_preference"] == pytest.approx(a + tie / 2, abs=1e-5)
    assert [pair.id for pair in read_pairs(out)] == [pair["id"] for pair in pairs]
    assert read_manifest(out).orders == 2


def test_one_order_is_judged_if_it_is_asked_for(run: Callable[..., Path]) -> None:
    out = run("run", "--orders", "one")
    assert len(list(read_lines(out))) == 18
    assert [pair.preferences["better"].agree for pair in read_pairs(out)] == [None] * 18
    both = run("run")
    assert len(list(read_lines(both))) == 36, "the same run continues with the other order"


@pytest.mark.slow
def test_a_run_killed_between_the_orders_of_pairs_and_started_again_equals_an_unbroken_one(
    run: Callable[..., Path], preloaded: Preloaded, tmp_path: Path, model: Path
) -> None:
    whole, out = run("whole"), tmp_path / "broken"
    for prompts in (5, 8):
        with subprocess.Popen(
            [
                *preloaded.script(HELD_PROGRAM), str(prompts), "score", tmp_path / "rows.jsonl", "--out", out,
                "--model", model, "--pairs", "all", *SETTINGS,
            ],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            before = len(list(read_lines(out))) if (out / "run.json").exists() else 0
            while not (out / "judgements.jsonl").exists() or len(list(read_lines(out))) <= before:
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
                time.sleep(0.02)
            process.send_signal(KILL)
    survived = len(list(read_lines(out)))
    assert 0 < survived < 36
    assert len(list(read_pairs(out))) <= survived // 2, "a pair of which one order is judged is not there yet"
    run("broken")
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()


@pytest.mark.slow
def test_both_orders_of_a_pair_are_in_one_shard_and_merged_shards_equal_the_whole_run(
    run: Callable[..., Path], cli: Cli, tmp_path: Path
) -> None:
    whole = run("whole")
    shards = [run(f"shard-{index}", "--shard", f"{index}/3") for index in (1, 2, 3)]
    assert sum(len(list(read_pairs(shard))) for shard in shards) == 18
    assert cli("merge", *shards, "--out", tmp_path / "merged").code == 0
    merged = tmp_path / "merged" / "judgements.jsonl"
    assert merged.read_bytes() == (whole / "judgements.jsonl").read_bytes()


def test_an_unreadable_row_fails_in_both_orders_and_the_pairs_after_it_stay_together(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    rows = write(tmp_path / "rows.jsonl", pair_rows(4))
    broken = [*rows.read_text().splitlines()]
    broken[1] = "{"
    rows.write_text("\n".join(broken))
    end = cli("score", rows, "--out", tmp_path / "run", "--model", model, *SETTINGS)
    assert end.code == 3
    pairs = list(read_pairs(tmp_path / "run"))
    assert [pair.error is None for pair in pairs] == [True, False, True, True]
    assert [pair.id for pair in pairs if pair.error is None] == ["p0", "p2", "p3"]
    assert load_run(tmp_path / "run").complete


def test_both_responses_are_cut_to_the_same_length_where_they_do_not_fit(model: Path) -> None:
    long = {"instruction": "Q?", "candidate_a": "x" * 5000, "candidate_b": "y" * 20}
    judge = Judge(model, rubric="pairwise", max_rationale_tokens=8, on_overflow="truncate-candidate")
    (pair,) = judge.compare([long])
    own, reverse = pair.prompts
    assert isinstance(own, Judgement)
    assert isinstance(reverse, Judgement)
    assert own.candidate_cut == reverse.candidate_cut > 0
    row = as_row(long, "row 1", used=USED)
    assert isinstance(row, Row)
    kept = 5000 - own.candidate_cut
    assert [len(text) for text in row.cut(kept).texts] == [kept, 20]


def test_scores_of_pairs_are_not_imported_and_one_line_says_what_to_do_instead(
    cli: Cli, tmp_path: Path
) -> None:
    pair = {"prompt": "Q", "response_a": "A", "response_b": "B", "better": 1}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    end = cli("import", tmp_path / "pairs.jsonl", "--aspect", "better", "--out", tmp_path / "run")
    assert end.code == 2
    assert end.err.splitlines() == [
        f"localjudge: {tmp_path}/pairs.jsonl: scores of two responses are not imported, but exports of a run "
        "with its --rubric, as JSON lines or Parquet; judge the pairs with --rubric pairwise, and compare with "
        "these labels: localjudge agree RUN --labels FILE"
    ]
    assert not (tmp_path / "run").exists()


def test_a_rubric_of_one_response_compares_nothing(model: Path) -> None:
    with pytest.raises(UsageError, match="the rubric just-eval judges one response"):
        list(Judge(model).compare(pair_rows(1)))
    (outcome,) = Judge(model, rubric="pairwise").score([{"instruction": "Q?", "candidate": "A"}])
    assert isinstance(outcome, Failure)
    assert "no candidate_a" in outcome.error
