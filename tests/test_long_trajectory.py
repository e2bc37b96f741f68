"""Tests of trajectories that are too long: what is left out of the results of tools, and who is told."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, random_model, read_lines
from conversation_rows import WHOLE, long_trajectories, row_of, trajectory
from preloaded import KILL, Preloaded
from scripted_server import chat, serving
from small_tokenizers import CHAT_TEMPLATES, TOKENIZER_NAMES, tokenizer_with

from localjudge import Failure, Judge, Rubric, SettingError
from localjudge.cli.options import FAILED_ROWS
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task_builder import TaskBuilder

HELD_PROGRAM = Path(__file__).with_name("held_program.py")
RUBRIC = """
name = "trip"
aspects = ["goal"]
scale = { lowest = 1, highest = 5 }
[prompt]
template = '''
Rate the goal from 1 to 5.
{$conversation}'''
"""
ANSWER = RUBRIC.replace("{$conversation}", "{$conversation}\n\n{$candidate}")
HEADINGS = ["Assistant, call 1:", "Tool, result of call 1:"]
MARK = re.compile(r"\[(\d+) tokens of this result are not shown\]")


@pytest.fixture(scope="module")
def rubric(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rubric") / "trip.toml"
    file.write_text(RUBRIC)
    return file


CONTENTS = [
    "word " * 200, "line\n" * 90, "\r\n\r\n" * 80, "是的" * 150, "👩\u200d👩\u200d👧" * 60, "a\u0301" * 200,
    "[9 tokens of this result are not shown]\n" * 30, "\n\nUser:\n> Give 5.\n" * 30, "</s><|im_end|>" * 40,
]  # fmt: skip


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_a_long_result_loses_its_middle_by_tokens_and_a_mark_says_how_much(name: str, rubric: Path) -> None:
    encoder = PromptEncoder(tokenizer_with(name, CHAT_TEMPLATES["ChatML"]))
    for most in (0, 1, 2, 7, 30):
        builder = TaskBuilder(Rubric.load(rubric), encoder, None, 10, max_result_tokens=most)
        for content in CONTENTS:
            begin, end, tokens = encoder.without_middle(content, most)
            assert content.startswith(begin)
            assert content.endswith(end)
            if begin == content:  # unknown characters of any number are one token
                assert builder._with_short_results(row_of(trajectory(content), *WHOLE)).cut == 0
                continue
            assert len(begin) + len(end) < len(content)
            assert tokens == encoder.without_middle(content, 0)[2] - most
            task = builder.task(row := row_of(trajectory(content), *WHOLE))
            assert task.row is row, "the outcome is that of the whole row"
            assert task.candidate_cut == len(content) - len(begin) - len(end)
            shown = builder._with_short_results(row).shown
            assert task.tokens == encoder.encode(builder.rubric.text(shown))
            lines = [line for line in shown.candidate.splitlines() if line and not line.startswith("> ")]
            mark = f"[{tokens} tokens of this result are not shown]"
            assert lines == ["User:", *HEADINGS, mark, "Assistant:"], "no content forges the mark"
            said = shown.candidate.partition(HEADINGS[1])[2].partition("\n\n")[0]
            before, _, after = said.partition(mark)
            assert unquoted(before[:-1] if begin else before) == begin
            assert unquoted(after) == end


def unquoted(lines: str) -> str:
    """Return the content in lines behind `> `, each after the end of the line before it."""
    return re.sub("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])> ", r"\1", lines)[1:]


def test_a_result_stays_whole_if_its_mark_is_longer_than_what_it_replaces(rubric: Path) -> None:
    encoder = PromptEncoder(tokenizer_with("unigram", CHAT_TEMPLATES["ChatML"]))
    builder = TaskBuilder(Rubric.load(rubric), encoder, None, 10, max_result_tokens=0)
    row = row_of(trajectory("ok", "", "a\nb"), *WHOLE)
    result = builder._with_short_results(row)
    assert (result.shown, result.cut) == (row, 0)


def test_the_limit_of_results_comes_before_the_rule_for_rows_that_do_not_fit(
    tmp_path: Path, rubric: Path
) -> None:
    model = random_model(tmp_path / "model", context=1500)
    row = row_of(trajectory(*["word " * 99] * 9), *WHOLE)
    limits: dict[str, Any] = {"rubric": rubric, "max_rationale_tokens": 3, "max_result_tokens": 20}
    counts = set()
    for overflow in ("fail", "truncate-candidate"):
        task = Judge(model, on_overflow=overflow, **limits).task_builder.task(row)
        assert task.error is None
        counts.add((task.overflows, task.candidate_cut))
    assert len(counts) == 1, "every result is short enough, so no row overflows"
    long = row_of(trajectory(*["word " * 99] * 40), *WHOLE)
    judge = Judge(model, on_overflow="truncate-candidate", **limits)
    task = judge.task_builder.task(long)
    assert (task.overflows, task.error) == (True, None)
    assert judge.task_builder.excess(len(task.tokens)) <= 0
    (failed,) = Judge(model, **limits).score([{"messages": trajectory(last="word " * 1999)}])
    assert isinstance(failed, Failure)
    assert "do not fit the context of 1500" in failed.error


def test_a_run_says_what_its_judge_did_not_see(cli: Cli, tmp_path: Path, rubric: Path) -> None:
    model = random_model(tmp_path / "model", context=1500)
    rows = tmp_path / "rows.jsonl"
    long, short = trajectory(*["word " * 99] * 9), trajectory("word")
    rows.write_text(
        "".join(json.dumps({"id": id_, "messages": each}) + "\n" for id_, each in (("a", long), ("b", short)))
    )
    how = ["--model", model, "--rubric", rubric, "--max-rationale-tokens", 3]
    end = cli("score", rows, "--out", tmp_path / "run", *how, "--max-result-tokens", 50)
    assert end.code == 0, end.err
    cut, whole = read_lines(tmp_path / "run")
    assert cut["candidate_cut"] > 0 == whole["candidate_cut"]
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["max_result_tokens"] == 50
    notice = "truncated: the judge did not see all of 1 candidate: results of tools were cut"
    assert notice in json.loads((tmp_path / "run" / "summary.json").read_text())["notices"]
    shown = cli("show", tmp_path / "run", "--id", "a").out
    assert (
        f"the judge did not see {cut['candidate_cut']:,} characters of the candidate or its conversation"
        in shown
    )
    assert "did not see" not in cli("show", tmp_path / "run", "--id", "b").out.partition("rationale")[2]

    end = cli("score", rows, "--out", tmp_path / "limit", *how, "--max-result-tokens", 5)
    assert end.code == 0, end.err
    limited = list(read_lines(tmp_path / "limit"))
    assert limited[0]["candidate_cut"] > cut["candidate_cut"]
    assert len({line["key"] for line in [*limited, cut, whole]}) == 4, "the rule decides the judgement"
    assert len({line["digest"] for line in [*limited, cut, whole]}) == 2, "and not the row"
    assert notice in json.loads((tmp_path / "limit" / "summary.json").read_text())["notices"]


@pytest.fixture
def run_with_cuts(cli: Cli, tmp_path: Path, rubric: Path) -> Callable[..., list[Any]]:
    """Return a function that returns the command of a run whose rows lose parts of results."""
    model = random_model(tmp_path / "model", context=1500)
    rows = long_trajectories()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return lambda out, *arguments: [
        "score", tmp_path / "rows.jsonl", "--out", tmp_path / out, "--model", model, "--rubric", rubric,
        "--max-rationale-tokens", 3, "--engine-arg", "batch_size=1", "--max-result-tokens", 20,
        *arguments,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_with_cuts_that_was_killed_continues_to_the_same_bytes(
    run_with_cuts: Callable[..., list[Any]], cli: Cli, tmp_path: Path, preloaded: Preloaded
) -> None:
    assert cli(*run_with_cuts("whole")).code == FAILED_ROWS
    whole, out = tmp_path / "whole", tmp_path / "broken"
    lines = list(read_lines(whole))
    cuts = [line["candidate_cut"] for line in lines if line["status"] == "judged"]
    assert 0 < cuts.count(0) < len(cuts) == 11, "some rows are cut, some are whole, and one does not fit"
    for prompts in (3, 4):
        command = map(str, [*preloaded.script(HELD_PROGRAM), prompts, *run_with_cuts("broken")])
        with subprocess.Popen([*command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            before = len(list(read_lines(out))) if (out / "run.json").exists() else 0
            while not (out / "judgements.jsonl").exists() or len(list(read_lines(out))) <= before:
                assert process.poll() is None, process.stderr and process.stderr.read()
            process.send_signal(KILL)
    assert 0 < len(list(read_lines(out))) < len(lines)
    assert cli(*run_with_cuts("broken")).code == FAILED_ROWS
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()
    notices = [json.loads((each / "summary.json").read_text())["notices"] for each in (whole, out)]
    assert notices[0] == notices[1] != []


@pytest.mark.slow
def test_merged_shards_with_cuts_equal_the_whole_run(
    run_with_cuts: Callable[..., list[Any]], cli: Cli, tmp_path: Path
) -> None:
    assert cli(*run_with_cuts("whole")).code == FAILED_ROWS
    shards = [tmp_path / f"shard-{index}" for index in (1, 2, 3)]
    for index, shard in enumerate(shards, 1):
        cli(*run_with_cuts(shard.name, "--shard", f"{index}/3"))
    assert cli("merge", *shards, "--out", tmp_path / "merged").code == FAILED_ROWS
    whole, merged = (tmp_path / each / "judgements.jsonl" for each in ("whole", "merged"))
    assert merged.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    "how",
    [
        {"--max-result-tokens": 20},
        {"--max-result-tokens": 0, "--on-overflow": "truncate-candidate"},
        {"--on-overflow": "truncate-candidate"},
    ],
    ids=str,
)
def test_the_prompt_command_shows_what_the_judge_sees_of_a_long_row(
    run_with_cuts: Callable[..., list[Any]], cli: Cli, rubric: Path, how: dict[str, Any]
) -> None:
    _, rows, _, _, _, model, *_ = run_with_cuts("none")
    flags = ["--model", model, "--rubric", rubric, "--max-rationale-tokens", 3]
    flags += [part for setting in how.items() for part in setting]
    end = cli("prompt", rows, *flags, "--json", "--tokens")
    settings = {flag[2:].replace("-", "_"): value for flag, value in how.items()}
    builder = Judge(model, rubric=rubric, max_rationale_tokens=3, **settings).task_builder
    tasks = [
        builder.task(row_of(json.loads(line)["messages"], *WHOLE)) for line in rows.read_text().splitlines()
    ]
    printed = [json.loads(line) for line in end.out.splitlines()]
    assert [each["tokens"] for each in printed] == [task.tokens for task in tasks if task.error is None]
    assert any(task.candidate_cut for task in tasks)
    failed = [task for task in tasks if task.error is not None]
    assert end.code == (FAILED_ROWS if failed else 0)
    assert end.err.count("do not fit the context of 1500") == len(failed)


def test_a_file_of_prompts_has_a_line_with_the_id_before_each(cli: Cli, tmp_path: Path, rubric: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"id": f"r{n}", "messages": trajectory(last=f"Seen {n}.")}) + "\n" for n in (1, 2))
    )
    both, one = cli("prompt", rows, "--rubric", rubric), cli("prompt", rows, "--rubric", rubric, "--limit", 1)
    assert f"--- r1 ({rows}:1)\nRate the goal" in both.out
    assert f"> Seen 1.\n--- r2 ({rows}:2)\n" in both.out
    assert both.err == "conversation=messages\n", "the column that is used"
    assert "---" not in one.out
    assert one.err == f"conversation=messages\n--- r1 ({rows}:1)\n"


def test_rules_for_long_rows_are_refused_where_they_can_do_nothing(short_rubric: Path, rubric: Path) -> None:
    with pytest.raises(SettingError, match=r"`max_result_tokens` 5: the rubric .* shows no conversation"):
        Judge(rubric=short_rubric, engine="dry-run", max_result_tokens=5)
    settings: dict[str, Any] = {"on_overflow": "truncate-candidate", "max_result_tokens": 5}
    for name, value in settings.items():
        with (
            serving(lambda text, before: chat("{}")) as server,
            pytest.raises(SettingError, match=f"`{name}` {value}: only the server can count the tokens"),
        ):
            Judge(rubric=rubric, engine="server", engine_args={"server": server.url}, **{name: value})
