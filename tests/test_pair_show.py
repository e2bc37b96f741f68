"""Tests of what a run of pairs says of itself: its counts, its win rates, its notices, its pairs to read."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
from conftest import Cli, row_lines
from pair_runs import RUBRIC, judged_pairs, lines, order_effect, read_pairs, write_pairs, write_responses
from rich.console import Console

from localjudge.cli.shown_rows import ShownOutcome
from localjudge.rows.pairs import Pairing
from localjudge.runs.reader import notices_of_run, read_notices
from localjudge.runs.reread_texts import RowTextStore
from localjudge.runs.run_manifest import read_manifest


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of the seven pairs of three systems."""
    folder = tmp_path_factory.mktemp("pairs")
    return judged_pairs(write_responses(folder / "rows.jsonl"), model, folder / "run")


SAY = {
    frozenset("AB"): "both orders name the same response",
    frozenset(["tie"]): "both orders say a tie",
    frozenset("A"): "each order names another response",
    frozenset("B"): "each order names another response",
}
"""What `show` says of the labels of both orders."""


@pytest.fixture(scope="module")
def nameless(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of four pairs without systems, judged in one order; the last pair cannot be judged."""
    folder = tmp_path_factory.mktemp("nameless")
    return judged_pairs(write_pairs(folder / "rows.jsonl"), model, folder / "run", Pairing(orders=1))


def test_the_summary_counts_pairs_and_has_the_win_rate_of_each_system(run: Path) -> None:
    summary, pairs = json.loads((run / "summary.json").read_text()), row_lines(run)
    assert (summary["rows"], summary["judged"], summary["failed"]) == (14, 14, 0)
    won = defaultdict(list)
    for pair in pairs:
        won[pair["system_a"]].append(pair["better_preference"])
        won[pair["system_b"]].append(1 - pair["better_preference"])
    assert {each["system"]: (each["judged"], each["mean"]["better"]) for each in summary["systems"]} == {
        system: (len(all_of), pytest.approx(sum(all_of) / len(all_of), abs=1e-4))
        for system, all_of in won.items()
    }
    better = order_effect(run, "better")
    both = [pair["better_ab"] + pair["better_ba"] for pair in pairs]
    assert better.same_response == both.count("AB") + both.count("BA")
    assert better.decided == sum("tie" not in each for each in both)
    assert better.pairs[0, 0] == both.count("tietie")
    labels = [line["better"] for line in lines(run, "judgements.jsonl")]
    assert better.shown_first == (labels.count("A"), labels.count("A") + labels.count("B"))


def test_score_says_how_many_pairs_it_judges_in_which_orders(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(RUBRIC)
    rows = write_responses(tmp_path / "rows.jsonl")
    flags = ["--rubric", tmp_path / "r.toml", "--model", model, "--max-rationale-tokens", 3, "--pairs", "all"]
    end = cli("score", rows, "--out", tmp_path / "run", *flags)
    assert (end.code, "14 rows (7 pairs in both orders)" in end.err) == (0, True)
    assert "7 pairs in both orders judged, 0 failed" in end.err
    assert "missing responses: z to 1 of the instructions" in end.out
    assert "have the same winner in both orders" in end.out
    systems = [line.split() for line in end.out.splitlines() if line.startswith(("x ", "y ", "z "))]
    assert [(line[0], line[-1]) for line in systems] == [("x", "5"), ("y", "5"), ("z", "4")]


def test_pairs_without_systems_have_a_line_instead_of_a_table(cli: Cli, nameless: Path) -> None:
    end = cli("show", nameless)
    rate = fmean(pair["depth_preference"] for pair in row_lines(nameless) if not pair["error"])
    said = f"the input's first response is better: {rate:.2f}"
    assert said in " ".join(end.out.split())
    assert said in " ".join(json.loads((nameless / "summary.json").read_text())["details"])
    assert "win rate of" not in end.out
    assert "both orders" not in end.out
    assert "1 failed: " in end.out


def test_a_notice_says_that_one_order_was_judged_and_which_responses_are_missing(
    run: Path, nameless: Path
) -> None:
    assert [notice.split(":")[0] for notice in read_notices(nameless)] == ["one order"]
    assert notices_of_run(run) == (
        "missing responses: z to 1 of the instructions; these pairs could not be formed",
    )


def test_the_list_has_a_line_for_each_pair_of_a_system_sorted_by_the_preference(cli: Cli, run: Path) -> None:
    end = cli("show", run, "--sort", "better", "--system", "z")
    found = [pair for pair in row_lines(run) if "z" in (pair["system_a"], pair["system_b"])]
    found.sort(key=lambda pair: pair["better_preference"])
    lines = end.out.splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("id "))
    listed = lines[heading + 1 :]
    assert lines[heading].split() == [
        "id",
        "systems",
        "better",
        "depth",
        "candidate_a",
        "candidate_b",
        "instruction",
    ]
    texts = {"x": "word x", "y": "word y", "z": "word z"}
    for pair, line in zip(found, listed, strict=True):
        a, b = (line.index(texts[pair[f"system_{side}"]]) for side in "ab")
        assert a < b < line.index(f"Question {pair['id'][0]}?")
    assert [line.split("  ")[0] for line in listed] == [pair["id"] for pair in found]
    first = f"{found[0]['better']} {found[0]['better_preference']:.3f} "
    assert first + ("agree" if found[0]["better_orders_agree"] else "differ") in listed[0]
    assert "4 of 4 pairs" in end.err
    assert cli("show", run, "--system", "w").code == 2


def test_the_failed_pairs_are_listed_with_their_reasons(cli: Cli, nameless: Path) -> None:
    end = cli("show", nameless, "--failed")
    assert "1 of 1 pair" in end.err
    assert end.out.splitlines()[-1].startswith("p4  (none) vs (none)  failed: ")


def test_a_pair_is_read_with_both_responses_and_both_answers(cli: Cli, run: Path) -> None:
    pair = row_lines(run)[0]
    end = cli("show", run, "--id", pair["id"])
    for said in (
        "Question 1?",
        "a (x)",
        "b (y)",
        "shown: A = a (x), B = b (y)",
        "shown: A = b (y), B = a (x)",
        f"probability that a is better {pair['better_preference']:.3f} · "
        + SAY.get(frozenset([pair["better_ab"], pair["better_ba"]]), "one order says a tie"),
    ):
        assert said in " ".join(end.out.split())
    for order in ("ab", "ba"):
        assert re.search(rf"better +{pair[f'better_{order}']}   A \d", end.out)
    assert (
        "no pair with the id nothing; its ids are such as 1x vs 1y" in cli("show", run, "--id", "nothing").err
    )


def test_a_pair_that_failed_is_read_with_its_reason(cli: Cli, nameless: Path) -> None:
    end = cli("show", nameless, "--id", "p4")
    assert end.code == 0
    assert end.out.count("failed: ") == 1
    assert "wins" not in end.out


def test_the_text_of_a_response_cannot_control_the_terminal(cli: Cli, model: Path, tmp_path: Path) -> None:
    rows = write_pairs(tmp_path / "rows.jsonl", 2)
    rows.write_text(rows.read_text().replace("yes ", "yes \\u001b]0;taken\\u0007 \\u202e[red]"))
    judged_pairs(rows, model, tmp_path / "run", Pairing())
    end = cli("show", tmp_path / "run", "--id", "p1")
    assert not {"\x1b", "\x07", "\u202e"} & set(end.out)
    assert r"yes \u001b]0;taken\u0007 \u202e[red]" in end.out


@pytest.mark.parametrize(("width", "beside"), [(140, True), (60, False)])
def test_a_wide_terminal_shows_the_responses_side_by_side(
    run: Path, width: int, beside: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, pair = read_manifest(run), next(read_pairs(run))
    with RowTextStore(manifest, [each.digest for each in pair.prompts]) as texts:
        shown = ShownOutcome(pair, manifest.rubric.aspects, texts.get(pair.prompts[0].digest))
    Console(width=width).print(shown)
    said = capsys.readouterr().out.splitlines()
    assert any("word x" in line and "word y" in line for line in said) is beside
    assert max(map(len, said)) <= width


def test_the_merged_shards_of_pairs_have_the_summary_of_one_machine(
    cli: Cli, run: Path, model: Path, tmp_path: Path
) -> None:
    rows, rubric = run.parent / "rows.jsonl", run.parent / "rows.toml"
    flags = ["--rubric", rubric, "--model", model, "--max-rationale-tokens", 3, "--pairs", "all"]
    for shard in ("1/2", "2/2"):
        assert cli("score", rows, "--out", tmp_path / shard[0], "--shard", shard, *flags).code == 0
    assert cli("merge", tmp_path / "1", tmp_path / "2", "--out", tmp_path / "whole").code == 0
    own, whole = (json.loads((folder / "summary.json").read_text()) for folder in (run, tmp_path / "whole"))
    assert (whole["judged"], whole["systems"]) == (own["judged"], own["systems"])
    assert row_lines(tmp_path / "whole") == row_lines(run)
