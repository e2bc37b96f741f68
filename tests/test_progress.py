"""Tests of progress: live lines, lines of a log, `--quiet`, `--log-json`; who learns how far a step is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from conftest import Cli, write_rows

from localjudge import JudgeConfig, RowSource, RunObserver, score_run
from localjudge.airgap.pack_parts import write_parts
from localjudge.cli.progress import JudgingProgress, Progress, StepProgress
from localjudge.matching.judged_rows import read_scores
from localjudge.models.digests import read_digests
from localjudge.report.run_export import export
from localjudge.runs.merge import merge
from localjudge.runs.repeat import repeat
from localjudge.runs.shard import Shard
from localjudge.system.steps import Report, with_progress
from localjudge.system.terminal import guarded_streams

Reports = list[tuple[str, str, list[tuple[int, int | None]]]]


class Watcher(RunObserver):
    """Records the steps and what they report."""

    def __init__(self) -> None:
        self.steps: Reports = []

    @contextmanager
    def step(self, text: str, unit: str = "rows", /) -> Iterator[Report]:
        reports: list[tuple[int, int | None]] = []
        self.steps.append((text, unit, reports))
        yield lambda done, total=None: reports.append((done, total))

    def last(self, name: str) -> tuple[int, int | None]:
        """Return the last report of a step."""
        return next(reports[-1] for text, _, reports in self.steps if text == name)


def clock(*times: float) -> Callable[[], float]:
    """Return a clock with these times; the last one stays."""
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_the_remaining_time_follows_from_the_mean_rate_of_the_step() -> None:
    step = StepProgress("merging", clock=clock(100.0, 110.0))
    assert (step.remaining, step.text()) == (None, "merging · elapsed 0:10")
    step.report(250, 1000)
    assert (step.rate, step.remaining) == (25.0, 30.0)
    assert step.text() == "merging · 250 of 1,000 rows · elapsed 0:10 · remaining 0:30 · 25.0 rows/s"
    step.report(1000, 1000)
    assert step.remaining is None


def test_bytes_are_shown_as_sizes() -> None:
    step = StepProgress("verifying", "bytes", clock(0.0, 60.0))
    step.report(12_000_000_000, 100_000_000_000)
    assert step.text() == "verifying · 12.0 GB of 100.0 GB · elapsed 1:00 · remaining 7:20 · 200.0 MB/s"


def test_tokens_of_unfinished_answers_show_that_an_engine_works() -> None:
    judging = JudgingProgress("judging", "rows", clock(0.0, 10.0), total=20, answer_tokens=lambda: 1280)
    assert judging.text() == "0 of 20 rows · 1,280 tokens · 0.0 rows/s · 128 tokens/s · elapsed 0:10"
    assert judging.numbers()["output_tokens"] == 1280


def test_the_rate_of_a_judging_ends_with_its_last_row() -> None:
    judging = JudgingProgress("judging", "rows", clock(0.0, 10.0, 500.0), total=20)
    judging.add([], 20)
    assert judging.text() == "20 of 20 rows · 2.0 rows/s · 0 tokens/s · elapsed 0:10"


@pytest.mark.parametrize("setting", [{}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_pipe_gets_no_live_line_and_nothing_about_a_short_step(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    with guarded_streams(), Progress().step("merging") as report:
        report(7, 20)
    assert capfd.readouterr() == ("", "")


@contextmanager
def stderr_to_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[str]]:
    """Let stderr be a pipe, and yield its other end."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as lines, open(writing, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        yield lines


def line_with(lines: IO[str], words: str) -> str:
    """Wait for a line with these words."""
    return next(line for line in lines if words in line)


def test_a_log_gets_a_line_about_a_long_step_at_each_interval_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stderr_to_pipe(monkeypatch) as lines:
        with Progress(interval=0.01, clock=clock(0.0, 10.0)).step("merging") as report:
            report(5, 20)
            for _ in range(2):
                told = line_with(lines, "5 of 20 rows")
                assert told == "merging · 5 of 20 rows · elapsed 0:10 · remaining 0:30 · 0.5 rows/s\n"
            report(20, 20)
        assert line_with(lines, "20 of 20") == "merging · 20 of 20 rows · elapsed 0:10 · 2.0 rows/s\n"


def test_a_log_of_json_gets_the_numbers_of_a_step_at_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    with stderr_to_pipe(monkeypatch) as lines:
        with Progress("json", interval=0.01, clock=clock(0.0, 10.0)).step("merging") as report:
            report(5, 20)
            told = json.loads(line_with(lines, '"done": 5'))
            assert told.pop("time").endswith("+00:00")
            assert told == {
                "event": "progress", "step": "merging", "unit": "rows", "done": 5, "total": 20,
                "per_second": 0.5, "elapsed_seconds": 10.0, "remaining_seconds": 30.0,
            }  # fmt: skip
            report(20, 20)
        end = json.loads(line_with(lines, '"finish"'))
    assert (end["step"], end["done"], end["remaining_seconds"]) == ("merging", 20, None)


def test_a_step_within_a_step_is_shown_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with stderr_to_pipe(monkeypatch) as lines:
        progress = Progress(interval=0.01)
        with progress.step("outer"):
            assert line_with(lines, "outer")
            with progress.step("inner"):
                assert line_with(lines, "inner")
                assert line_with(lines, " · ").startswith("inner")
            assert line_with(lines, "outer")


LIBRARY = """
import sys
from pathlib import Path
from localjudge.cli.progress import Progress
from localjudge.engines.engine_log import output_to
from localjudge.system.terminal import guarded_streams

with guarded_streams(), Progress(interval=0.01).step("loading") as report:
    with output_to(Path("engine.log")):
        print("from a library", file=sys.stderr)
        sys.stdin.read()
"""


def test_a_log_learns_of_a_step_while_libraries_write_to_theirs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIBRARY]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stderr=pipe, text=True) as process:
        assert process.stdin
        assert process.stderr
        assert line_with(process.stderr, "loading · elapsed")
        process.stdin.close()
        rest = process.stderr.read()
    assert process.returncode == 0
    assert "library" not in rest
    assert (tmp_path / "engine.log").read_text() == "from a library\n"


WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a shell
from localjudge.cli import main
from localjudge.runs import merge as merging

def merge(folders, out, report):
    report(7, 20)
    sys.stdin.read()

merging.merge = merge
sys.argv = ["localjudge", "merge", "part", "--out", "whole"]
main()
"""


@contextmanager
def on_a_terminal(tmp_path: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Start a command that waits in a step; yield it and its terminal."""
    ours, theirs = os.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", **variables}
    with subprocess.Popen(
        [sys.executable, "-c", WAITING],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        with open(ours, "r+b", buffering=0) as terminal:
            yield process, terminal


def until(terminal: Any, words: bytes) -> bytes:
    """Return what a terminal shows until these words."""
    shown = b""
    while words not in shown:
        shown += terminal.read(4096)
    return shown


def rest_of(terminal: Any) -> bytes:
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while piece := terminal.read(4096):
            shown += piece
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path, variables: dict[str, str]) -> None:
    with on_a_terminal(tmp_path, **variables) as (process, terminal):
        shown = until(terminal, "merging · 7 of 20 rows · ".encode())
        process.send_signal(signal.SIGINT)
        shown += rest_of(terminal)
    assert process.returncode == 130
    assert b"\x1b[?25l" not in shown, "the cursor was hidden"
    line, end = shown.rsplit(b"\x1b[2K", 1)
    assert "merging" in line.decode()
    assert end.decode().startswith("localjudge: stopped; to continue, run this again")


@pytest.mark.slow
def test_a_terminal_of_40_columns_has_one_line_that_fits(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, COLUMNS="40") as (process, terminal):
        shown = until(terminal, b"merging")
        process.send_signal(signal.SIGINT)
        shown += rest_of(terminal)
    lines = [piece.split("\r")[0] for piece in shown.decode().split("\x1b[2K") if piece.startswith("merging")]
    assert lines
    assert all(len(line) <= 40 for line in lines)


def test_quiet_prints_nothing_but_results_and_errors(cli: Cli, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    flags = ("--engine", "dry-run")
    loud = cli("score", rows, "--out", tmp_path / "loud", *flags)
    quiet = cli("score", rows, "--out", tmp_path / "quiet", *flags, "--quiet")
    assert (loud.code, quiet.code, quiet.err) == (0, 0, "")
    assert "3 of 3 rows" in loud.err
    assert "dry run" in quiet.out, "a table keeps the notices of its run"
    assert cli("--quiet", "show", tmp_path / "loud").out == cli("show", tmp_path / "quiet").out
    for command in (("export", tmp_path / "loud", "--to", "csv", "--out", tmp_path / "loud.csv"),
                    ("show", tmp_path / "loud", "--limit", 1), ("models", "list")):  # fmt: skip
        end = cli(*command, "--quiet")
        assert (end.code, end.err) == (0, "")
    wrong = cli("show", tmp_path / "none", "--quiet")
    assert (wrong.code, wrong.err.count("\n"), wrong.err[:12]) == (2, 1, "localjudge: ")


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of a log; every line is one."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(set(each) >= {"time", "event"} for each in found)
    return found


def test_json_has_each_step_the_notices_and_the_exit_code(cli: Cli, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    with rows.open("a") as stream:
        stream.write("not JSON\n")
    end = cli("score", rows, "--out", tmp_path / "run", "--engine", "dry-run", "--log-json")
    found = events(end.err)
    assert (end.code, found[-1]["event"], found[-1]["exit_code"]) == (3, "end", 3)
    assert found[-1]["elapsed_seconds"] > 0
    begun = [each["step"] for each in found if each["event"] == "begin"]
    assert begun[:4] == ["preparing the model", "reading rows", "loading the engine", "judging"]
    assert sorted(begun) == sorted(each["step"] for each in found if each["event"] == "finish")
    judged = next(each for each in found if each["event"] == "finish" and each["step"] == "judging")
    assert (judged["done"], judged["total"], judged["failed"]) == (4, 4, 1)
    said = [(each["event"], each["text"]) for each in found if "text" in each]
    assert ("notice", "dry run: no model was asked, and the scores mean nothing") in said
    assert any(kind == "warning" and "1 failed: not JSON" in text for kind, text in said)
    assert "{" not in end.out, "results stay on stdout as they are"


@pytest.mark.parametrize(
    ("arguments", "code", "event", "text"),
    [
        (("show", "none"), 2, "error", "none: not a run directory: it has no run.json"),
        (("show", "--nosuch"), 2, "message", "Error: No such option: --nosuch"),
        (("prompt", "examples", "--limit", "1"), 0, "message", "--- "),
    ],
)
def test_json_holds_errors_usage_and_messages_of_any_command(
    cli: Cli, arguments: tuple[str, ...], code: int, event: str, text: str
) -> None:
    for typed in ((*arguments, "--log-json"), ("--log-json", *arguments)):
        end = cli(*typed)
        *_, told, last = events(end.err)
        assert (end.code, last["event"], last["exit_code"]) == (code, "end", code)
        assert (told["event"], told["text"][: len(text)]) == (event, text)


def test_a_file_may_have_the_name_of_an_option_behind_two_dashes(cli: Cli) -> None:
    end = cli("show", "--", "--quiet")
    assert end.err == "localjudge: --quiet: not a run directory: it has no run.json\n"


def test_quiet_and_json_exclude_each_other(cli: Cli, tmp_path: Path) -> None:
    end = cli("show", tmp_path, "--quiet", "--log-json")
    assert (end.code, "give only one of them" in end.err) == (2, True)


def test_counted_items_are_reported_when_they_are_done() -> None:
    reports: list[tuple[int, int | None]] = []
    items = with_progress("ab", lambda done, total=None: reports.append((done, total)), 2)
    assert (next(items), reports) == ("a", [])
    assert (list(items), reports) == (["b"], [(1, 2), (2, 2)])


def test_the_rows_of_json_lines_are_counted_before_they_are_read_and_no_others(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 7)
    (tmp_path / "open.jsonl").write_text(rows.read_text().rstrip())
    (tmp_path / "rows.csv").write_text("instruction,reference,candidate\nQ,R,C\n")
    used = ["instruction", "reference", "candidate"]

    def count(*names: str, **settings: Any) -> int | None:
        return RowSource.from_files([str(tmp_path / name) for name in names], used=used, **settings).count()

    assert count("rows.jsonl", "open.jsonl") == 14
    assert count("rows.jsonl", "rows.csv") is None
    assert count("rows.jsonl", limit=3) is None
    assert RowSource.from_rows([{"instruction": "Q", "candidate": "C"}]).count() is None


def test_digests_report_the_bytes_of_the_files_that_are_not_remembered(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name, size in (("a.safetensors", 20_000_000), ("b.json", 5)):
        (model / name).write_bytes(bytes(size))
        os.utime(model / name, (1, 1))
    reports: list[tuple[int, int | None]] = []
    digests = read_digests(model, report=lambda done, total=None: reports.append((done, total)))
    assert len(digests) == 2
    assert [done for done, _ in reports] == [8_388_608, 16_777_216, 20_000_000, 20_000_005]
    assert {total for _, total in reports} == {20_000_005}


def test_a_run_its_merge_its_export_and_its_repetition_tell_how_far_they_are(
    tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 8)
    config = JudgeConfig.from_settings(model=str(model), rubric=str(short_rubric), max_rationale_tokens=4)
    watcher = Watcher()
    for part in ("1/2", "2/2"):
        source = RowSource.from_files([str(rows)], used=config.rubric.fields)
        shard = Shard.parse(part, {})
        score_run(config, source, tmp_path / part[0], shard=shard, observer=watcher)
    assert [text for text, _, _ in watcher.steps[:4]] == [
        "preparing the model", "reading rows", "loading the engine", "putting the lines in order",
    ]  # fmt: skip
    assert watcher.last("reading rows") == (8, 8)
    parts = [tmp_path / "1", tmp_path / "2"]
    with watcher.step("merging") as report:
        merge(parts, tmp_path / "whole", report)
    with watcher.step("exporting") as report:
        export(tmp_path / "whole", "csv", out=tmp_path / "whole.csv", with_texts=True, report=report)
    repeat(tmp_path / "whole", 3, step=watcher.step)
    assert watcher.last("merging") == watcher.last("exporting") == (8, 8)
    with watcher.step("reading scores") as report:
        read_scores(parts, report=report)
    assert watcher.last("reading scores") == (8, 8)
    assert watcher.last("judging again") == (3, 3)
    with watcher.step("packing") as report:
        write_parts({"rows/rows.jsonl": rows}, tmp_path / "pack", 2000, report)
    assert watcher.last("packing") == (rows.stat().st_size, rows.stat().st_size)
