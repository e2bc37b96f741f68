"""Tests of shards: each row is in one shard, prefixes stay together, a merge gives the run of one machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows
from hypothesis import given
from hypothesis import strategies as st
from test_label import served
from test_run_files import contents

from localjudge import Judge, UsageError, load_run
from localjudge.errors import RunMismatchError
from localjudge.runs.journal import read_journal
from localjudge.runs.merge import merge
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import files_of_run
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.shard import WHOLE, Shard

ARRAY = {
    f"SLURM_ARRAY_TASK_{name}": value for name, value in zip(("ID", "COUNT", "MIN", "MAX"), "3403", strict=True)
}


@pytest.fixture
def flags(model: Path, short_rubric: Path) -> list[str]:
    return ["--model", str(model), "--rubric", str(short_rubric), "--engine", "dry-run"]


@given(st.integers(0, 2**64 - 1), st.integers(1, 50))
def test_every_group_is_of_exactly_one_shard(group: int, count: int) -> None:
    assert sum(Shard(index, count).holds(group) for index in range(1, count + 1)) == 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "3/", "a/b", "-1/4", "1/0", "3/16/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"`shard` {text}"):
        Shard.parse(text, {})


def test_a_task_of_a_slurm_array_is_a_shard_counted_from_one() -> None:
    assert Shard.parse("slurm", ARRAY) == Shard(4, 4)
    from_one = {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "4"}
    assert Shard.parse("slurm", ARRAY | from_one) == Shard(3, 4)
    assert Shard.parse(None, ARRAY) == WHOLE, "only where it is asked for"


@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_COUNT": "1"},
        {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "2"},
    ],
)
def test_a_part_of_an_array_does_not_say_of_how_many_shards_it_is(changed: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"give the size of the whole array: --shard \$SLURM_ARRAY_TASK_ID/"):
        Shard.parse("slurm", ARRAY | changed)
    with pytest.raises(
        UsageError, match="not a task of a Slurm array; SLURM_ARRAY_TASK_COUNT, SLURM_ARRAY_TASK_MIN"
    ):
        Shard.parse("slurm", {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MAX": "4"})


def test_merged_shards_equal_the_run_of_one_machine(cli: Cli, tmp_path: Path, flags: list[str]) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 60)
    with rows.open("a") as stream:
        stream.write("{\n" + rows.read_text().splitlines()[0] + "\n")
    assert cli("score", rows, "--out", tmp_path / "whole", *flags).code == 3
    shards = [tmp_path / f"s{index}" for index in range(1, 5)]
    for index, shard in enumerate(shards, 1):
        assert cli("score", rows, "--out", shard, "--shard", f"{index}/4", *flags).code in (0, 3)
    counts = [len(list(read_lines(shard))) for shard in shards]
    assert sum(counts) == 62
    assert min(counts) > 0
    end = cli("merge", *shards[::-1], "--out", tmp_path / "merged")
    assert (end.code, "61 judged, 1 failed" in end.err) == (3, True)
    for name in ("judgements.jsonl",):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    summaries = [json.loads((tmp_path / run / "summary.json").read_text()) for run in ("merged", "whole")]
    summaries[1].pop("engine")
    assert summaries[0] == summaries[1]
    again = cli("score", rows, "--out", tmp_path / "merged", *flags)
    assert "continuing: 62 rows are done already" in again.err, "a merged run is a run"
    printed = []
    for runs in ([tmp_path / "whole"], shards):
        assert cli("export", *runs, "--out", tmp_path / "rows.csv").code == 0
        shown = [cli("show", *runs, *flag).out for flag in ((), ("--failed",))]
        printed.append([*shown, (tmp_path / "rows.csv").read_text()])
    assert printed[0] == printed[1], "several shards are read as one run"
    assert "give each shard once" in cli("label", shards[0], *shards, "--out", tmp_path / "labels").err
    assert "merge shards first" in cli("escalate", *shards, "--labels", rows).err
    named = ", ".join(map(str, shards))
    assert cli("show", *shards, "--id", "elsewhere").err.startswith(f"localjudge: {named}: no row with the id")
    other = cli("label", shards[0], tmp_path / "elsewhere", "--out", tmp_path / "labels").err
    assert f"{tmp_path / 'elsewhere'}: is not a run directory" in other


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_labelling_shards_leaves_no_copy_of_them(
    end: signal.Signals, cli: Cli, tmp_path: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, scratch = write_rows(tmp_path / "a.jsonl", 8), tmp_path / "scratch"
    scratch.mkdir()
    shards = [tmp_path / f"s{index}" for index in (1, 2)]
    for index, shard in enumerate(shards, 1):
        assert cli("score", rows, "--out", shard, "--shard", f"{index}/2", *flags).code in (0, 3)
    monkeypatch.setenv("TMPDIR", str(scratch))
    before = signal.signal(end, signal.SIG_DFL)  # the command inherits it; under nohup, SIGHUP is ignored
    with served(*shards, "--out", tmp_path / "labels.jsonl") as (process, _):
        signal.signal(end, before)
        assert [*scratch.glob(".localjudge-*/merged-shards")]
        process.send_signal(end)
        assert process.wait(20) == 128 + end
    assert not [*scratch.glob(".localjudge-*")]


def test_a_shard_without_rows_says_so_instead_of_an_empty_table_and_is_merged(
    cli: Cli, tmp_path: Path, flags: list[str]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 1)
    shards = [tmp_path / f"s{index}" for index in (1, 2)]
    ends = [
        cli("score", rows, "--out", shard, "--shard", f"{index}/2", *flags)
        for index, shard in enumerate(shards, 1)
    ]
    ((empty, folder),) = (each for each in zip(ends, shards, strict=True) if "0 judged" in each[0].err)
    assert (empty.code, empty.out) == (0, "")
    assert "/2 has no rows: instructions are not divided, and the 1 row of the input" in empty.err
    assert cli("show", folder).out.splitlines()[-1] == "no rows"
    assert cli("merge", *shards, "--out", tmp_path / "merged").code == 0


def test_merging_names_what_is_missing_or_does_not_belong(
    cli: Cli, tmp_path: Path, flags: list[str], short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 12)
    run = {name: tmp_path / name for name in ("one", "two", "other", "fewer", "whole", "broken")}
    for name, more in {
        "one": ["--shard", "1/3"], "two": ["--shard", "2/3"], "other": ["--shard", "3/3", "--seed", "1"],
        "fewer": ["--shard", "3/3", "--limit", "11"], "whole": [], "broken": ["--shard", "3/3"],
    }.items():  # fmt: skip
        assert cli("score", rows, "--out", run[name], *more, *flags).code == 0
    (run["broken"] / "summary.json").unlink()
    for others, words in {
        ("one", "two"): "shards: 3/3 is missing; run these again",
        ("one", "two", "broken"): f"shards: 3/3 ({run['broken']}) is not complete",
        ("one", "two", "other"): "seed: 0 there, 1 now",
        ("one", "two", "fewer"): "input: other rows, or in another order (12 rows there, 11 here)",
        ("one", "one", "two"): f"{run['one']}: is shard 1/3, and so is {run['one']}; give each shard once",
        ("one", "whole"): f"{run['whole']}: is not a shard",
    }.items():
        end = cli("merge", *(run[name] for name in others), "--out", tmp_path / "merged")
        assert (end.code, words in end.err) == (2, True), end.err
    assert not (tmp_path / "merged" / "run.json").exists()
    end = cli("merge", run["one"], run["two"], "--out", run["whole"])
    assert end.code == 2


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda lines: [*lines[:1], b"{}\n", *lines[2:]],
            "jsonl:2: not a line of a run, or damaged",
        ),
        (lambda lines: [*lines[:-1], lines[-1][:-30]], "shards: 1/2 (ONE) is not complete"),
        (
            lambda lines: [lines[0].replace(b'"tact": ', b'"tact": "x'), *lines[1:]],
            "jsonl:1: not a line",
        ),
        (lambda lines: [lines[1], *lines[1:]], "row ROW of the input has no line, or two"),
        (lambda lines: [*lines, lines[-1]], "shards: 1/2 (ONE) is not complete"),
        (lambda lines: lines[:-1], "shards: 1/2 (ONE) is not complete"),
    ],
)
def test_a_shard_that_was_damaged_is_named_by_its_line_and_its_own_command_repairs_it(
    cli: Cli, tmp_path: Path, flags: list[str], damage: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 12)
    shards = [tmp_path / "one", tmp_path / "two"]
    commands = [("score", rows, "--out", out, "--shard", f"{n}/2", *flags) for n, out in enumerate(shards, 1)]
    for command in commands:
        assert cli(*command).code == 0
    file = shards[0] / "judgements.jsonl"
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    file.write_bytes(b"".join(damage(lines)))
    end = cli("merge", *shards, "--out", tmp_path / "merged")
    row = str(json.loads(lines[0])["row"])
    words = words.replace("ONE", str(shards[0])).replace("ROW", row)
    assert (end.code, words in end.err, len(end.err.splitlines())) == (2, True, 1), end.err
    assert not (tmp_path / "merged").exists()
    shown = cli("show", shards[0])
    assert shown.code in (0, 2)
    assert shown.err.count("\n") <= 1
    if "delete this line" in end.err:
        assert end.err == shown.err
        bad = int(end.err.split("judgements.jsonl:")[1].split(":")[0])
        damaged = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(damaged[: bad - 1] + damaged[bad:]))
    assert cli(*commands[0]).code == 0
    assert file.read_bytes() == before
    assert cli("merge", *shards, "--out", tmp_path / "merged").code == 0


def test_a_folder_of_one_shard_is_refused_to_another(cli: Cli, tmp_path: Path, flags: list[str]) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 6)
    assert cli("score", rows, "--out", tmp_path / "out", "--shard", "1/2", *flags).code == 0
    for others, words in ((["--shard", "2/2"], "1/2 there, 2/2 now"), ([], "1/2 there, the whole input now")):
        end = cli("score", rows, "--out", tmp_path / "out", *others, *flags)
        assert (end.code, words in end.err) == (2, True)


def begin_again(rows: Path, shard: Path, index: int, judge: Judge) -> None:
    """Begin to judge the failed rows of one shard of two again, and leave it as a kill does."""
    source = RowSource.from_files([str(rows)], used=judge.rubric.fields)
    with RunDirectory(shard) as run, RunPlan(judge, source.rows, shard=Shard(index, 2)) as plan:
        run.begin(judge, plan, source, retry_failed=True)


@pytest.mark.parametrize("after", ["the check of the shards", "a journal was read"])
def test_a_shard_whose_failed_row_is_judged_again_meanwhile_is_not_merged_without_it(
    cli: Cli, tmp_path: Path, flags: list[str], model: Path, short_rubric: Path,
    monkeypatch: pytest.MonkeyPatch, after: str,
) -> None:  # fmt: skip
    rows, shards, out = (
        write_rows(tmp_path / "a.jsonl", 12),
        [tmp_path / "one", tmp_path / "two"],
        tmp_path / "out",
    )
    with rows.open("a") as stream:
        stream.write('{"id": "last", "instruction": "Why?", "reference": "So.", "candidate": null}\n')
    commands = [
        ("score", rows, "--out", shard, "--shard", f"{index}/2", *flags)
        for index, shard in enumerate(shards, 1)
    ]
    codes = [cli(*command).code for command in commands]
    assert sorted(codes) == [0, 3]
    failed = codes.index(3)
    judge = Judge(model, engine="dry-run", rubric=short_rubric)
    changed = shards[failed]
    calls = iter(range(10))

    def meanwhile(file: Path, columns: Any) -> Any:
        is_first = next(calls) == 0
        if is_first and after == "the check of the shards":
            begin_again(rows, changed, failed + 1, judge)
        yield from read_journal(file, columns)
        if is_first and after != "the check of the shards":
            begin_again(rows, changed, failed + 1, judge)

    monkeypatch.setattr("localjudge.runs.merge.read_journal", meanwhile)
    end = cli("merge", *shards, "--out", out)
    assert (end.code, "again" in end.err) == (2, True), end.err
    assert not out.exists()
    monkeypatch.undo()
    end = cli("merge", *shards, "--out", out)
    assert (end.code, f"({changed}) is not complete" in end.err) == (2, True), end.err
    assert cli(*commands[failed]).code == 3
    assert cli("merge", *shards, "--out", out).code == 3
    assert len((out / "judgements.jsonl").read_bytes().splitlines()) == 13


def killed_merge(place: int, shards: list[Path], out: Path) -> None:
    """Merge, and end this process before a file operation in the folder; the number selects it."""
    calls = iter(range(1000))

    def counted(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if str(out) in " ".join(map(str, arguments)) and next(calls) == place:
            os._exit(137)
        return real(*arguments, **named)

    for name in ("open", "mkdir", "replace", "rename", "link", "unlink", "remove", "rmdir"):
        setattr(os, name, partial(counted, getattr(os, name)))
    merge(shards, out)


def merge_without_manifest(shards: list[Path], out: Path) -> None:
    """Merge, and end this process right before `run.json` gets its name."""
    rename = os.replace

    def killed(source: Any, target: Any) -> None:
        if Path(target) == out / "run.json":
            os._exit(137)
        rename(source, target)

    os.replace = killed  # type: ignore[assignment]
    merge(shards, out)


def merge_killed_at_its_end(shards: list[Path], out: Path) -> None:
    """Merge in another process, which is killed when all files but `run.json` are written."""
    merging = partial(merge_without_manifest, shards, out)
    process = multiprocessing.get_context("fork").Process(target=merging)
    process.start()
    process.join()
    assert process.exitcode == 137
    assert "run.json" not in files_of_run(out)


def test_a_merge_that_was_killed_is_continued_after_its_shards_were_scored_again(
    cli: Cli, tmp_path: Path, flags: list[str]
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 12), tmp_path / "out"
    shards = [tmp_path / "one", tmp_path / "two"]

    def score_all() -> None:
        for index, shard in enumerate(shards, 1):
            assert cli("score", rows, "--out", shard, "--shard", f"{index}/2", *flags).code == 0

    score_all()
    merge_killed_at_its_end(shards, out)
    write_rows(rows, 20)
    score_all()
    assert cli("merge", *shards, "--out", out).code == 0
    assert load_run(out).complete
    assert len([*load_run(out)]) == 20
    whole = contents(out)
    write_rows(rows, 25)
    score_all()
    end = cli("merge", *shards, "--out", out)
    assert (end.code, f"{out}: holds a run" in end.err) == (2, True), "this merge was not killed"
    assert contents(out) == whole


@pytest.mark.slow
def test_a_merge_killed_before_any_file_operation_is_never_read_as_whole_and_can_be_repeated(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    shards = [tmp_path / "one", tmp_path / "two"]
    for n, out in enumerate(shards, 1):
        flags = ["--shard", f"{n}/2", "--rubric", "pairwise", "--pairs", "all", "--engine", "dry-run"]
        assert cli("score", "examples", "--limit", "6", "--model", model, "--out", out, *flags).code == 0
    names = ("judgements.jsonl", "summary.json", "run.json")
    assert cli("merge", *shards, "--out", tmp_path / "whole").code == 0
    whole = {name: (tmp_path / "whole" / name).read_bytes() for name in names}
    for place in range(1000):
        out = tmp_path / f"merged{place}"
        process = multiprocessing.get_context("fork").Process(target=killed_merge, args=(place, shards, out))
        process.start()
        process.join()
        with suppress(RunMismatchError):
            if load_run(out).complete:
                assert {name: (out / name).read_bytes() for name in names} == whole
        merge(shards, out)
        assert {name: (out / name).read_bytes() for name in names} == whole
        if process.exitcode == 0:
            break
    assert place > 10
