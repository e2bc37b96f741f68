"""Tests of run directories: killed, continued or refused; every row has exactly one outcome."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, random_model, read_lines, write_rows
from jsonschema import Draft202012Validator
from preloaded import KILL, Preloaded
from scripted_server import Reply, chat, serving

from localjudge import Failure, Judge, Judgement, Response, Row, Rubric, UsageError, read_rows
from localjudge.errors import RunBrokenError, RunLockedError, RunMismatchError
from localjudge.records import Outcome
from localjudge.records.outcome_columns import from_line
from localjudge.rows.record import FIRST_RECORDS
from localjudge.runs.reader import count_lines
from localjudge.runs.repeat import repeat
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.stop_request import StoppedBySignal, StopSignal

Make = Callable[..., Judge]

HELD_PROGRAM = Path(__file__).with_name("held_program.py")
JUDGED: list[str] = []
"""The ids of the rows that `go` judged, in the order in which they finished."""


@pytest.fixture
def make(model: Path, short_rubric: Path) -> Make:
    """Return a judge with the small model and the short rubric, in batches of three."""

    def judge(**changes: Any) -> Judge:
        settings: dict[str, Any] = {
            "model": model, "rubric": short_rubric, "max_rationale_tokens": 6,
            "engine_args": {"batch_size": "3"},
        }  # fmt: skip
        return Judge(**{**settings, **changes})

    return judge


def go(
    out: Path,
    judge: Judge,
    file: Path | Iterable[Row | Failure],
    limit: int | None = None,
    report: Callable[[], None] = lambda: None,
    **begin: Any,
) -> list[dict[str, Any]]:
    """Score a file or rows, and return the lines; `JUDGED` receives the ids that this start judged."""

    def note(outcomes: list[Outcome], rows: int) -> None:
        JUDGED.extend(outcome.id for outcome in outcomes)
        report()

    rows = list(read_rows([str(file)]) if isinstance(file, Path) else file)[:limit]
    with RunDirectory(out) as run, RunPlan(judge, rows) as plan:
        run.begin(judge, plan, RowSource(inputs=[str(file)] if isinstance(file, Path) else []), **begin)
        run.score(note)
    return list(read_lines(out))


@pytest.fixture(autouse=True)
def done() -> list[str]:
    JUDGED.clear()
    return JUDGED


def start_held(program: Sequence[str], *args: object, prompts: int) -> subprocess.Popen[bytes]:
    """Start a run that gives its engine this many prompts, and the rest when its standard input is closed."""
    return subprocess.Popen(
        [*program, str(prompts), "score", *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_for_lines(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has written judgements."""
    while not ((out / "judgements.jsonl").exists() and (out / "judgements.jsonl").stat().st_size):
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_run_killed_in_the_middle_and_started_again_equals_an_unbroken_one(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, model: Path, short_rubric: Path, temperature: float
) -> None:
    rows, out, whole = write_rows(tmp_path / "a.jsonl", 60), tmp_path / "broken", tmp_path / "whole"
    settings = [
        "--model", model, "--rubric", short_rubric, "--temperature", temperature, "--max-rationale-tokens", 24,
        "--engine-arg", "batch_size=3",
    ]  # fmt: skip
    program = preloaded.script(HELD_PROGRAM)
    with start_held(program, rows, "--out", out, *settings, prompts=30) as process:
        wait_for_lines(out, process)
        process.send_signal(KILL)
    assert process.returncode == -9
    survived = (out / "judgements.jsonl").read_bytes().count(b"\n")
    assert 0 < survived <= 30
    assert not (out / "summary.json").exists()
    for folder in (out, whole):
        assert cli("score", rows, "--out", folder, *settings).code == 0
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (out, whole)]
    for summary in summaries:
        summary.pop("engine", None)  # the cost of the last start only
    assert summaries[0] == summaries[1]
    assert [line["id"] for line in read_lines(out)] == [f"r{n}" for n in range(60)]
    assert len(json.loads((out / "run.json").read_text())["starts"]) == 2


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_writes(
    tmp_path: Path, make: Make, model: Path, short_rubric: Path
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 60), tmp_path / "out"
    settings = ["--max-rationale-tokens", 6, "--engine-arg", "batch_size=3"]
    settings += ["--model", model, "--rubric", short_rubric]
    program = [sys.executable, str(HELD_PROGRAM)]
    with start_held(program, rows, "--out", out, *settings, prompts=30) as process:
        wait_for_lines(out, process)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunLockedError, match=r"another localjudge \(process \d+ on .*\) is writing"):
            go(out, make(), rows)
        process.kill()
    assert len(go(out, make(), rows)) == 60, "the lock goes with the process that held it"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_asked_to_stop_finishes_what_it_has_begun(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, model: Path, short_rubric: Path, number: signal.Signals,
    code: int,
) -> None:  # fmt: skip
    rows, out, whole = write_rows(tmp_path / "a.jsonl", 90), tmp_path / "stopped", tmp_path / "whole"
    settings = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 24]
    settings += ["--engine-arg", "batch_size=3"]
    program = preloaded.script(HELD_PROGRAM)
    with start_held(program, rows, "--out", out, *settings, prompts=45) as process:
        wait_for_lines(out, process)
        process.send_signal(number)
        assert process.stdin
        assert process.stderr
        said = b""
        while b"stopping" not in said:
            said += process.stderr.readline()
        process.stdin.close()
        said += process.stderr.read()
    assert process.returncode == code
    assert b"stopping: finishing what is in flight" in said
    again = shlex.join(map(str, [HELD_PROGRAM, "score", rows, "--out", out, *settings]))
    assert f"of 90 rows done; to continue, run this again: {again}\n".encode() in said
    summary = json.loads((out / "summary.json").read_text())
    lines = (out / "judgements.jsonl").read_bytes()
    assert lines.endswith(b"\n")
    assert (summary["complete"], summary["planned"]) == (False, 90)
    assert 0 < summary["rows"] == lines.count(b"\n") <= 45
    for folder in (out, whole):
        assert cli("score", rows, "--out", folder, *settings).code == 0
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()
    assert json.loads((out / "summary.json").read_text())["complete"] is True


def test_a_run_that_is_stopped_before_its_first_line_says_how_to_go_on_and_leaves_nothing(
    tmp_path: Path, short_rubric: Path
) -> None:
    rows, out = tmp_path / "a b.jsonl", tmp_path / "out"
    os.mkfifo(rows)  # it waits for the first row of the pipe, so it is still planning
    flags = ["--out", out, "--rubric", short_rubric, "--engine", "dry-run"]
    command = [sys.executable, "-m", "localjudge", "score", *map(str, (rows, *flags))]
    run = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Processes that a shell starts in the background ignore SIGINT, and so do theirs.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    row = json.dumps({"instruction": "Q", "reference": "R", "candidate": "A"})
    first = (row + "\n") * 20 * FIRST_RECORDS  # more than is read at once
    with run as process, rows.open("r+b", buffering=0) as pipe:
        pipe.write(first.encode())  # which decide the reading, before the run begins
        while not out.exists():
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        said = process.stderr.read().decode().splitlines()
    again = shlex.join(command)
    assert (process.returncode, said[-1]) == (130, f"localjudge: stopped; to continue, run this again: {again}")
    assert not out.exists()


def test_a_second_signal_stops_at_once() -> None:
    said: list[str] = []
    with StopSignal(said.append, grace=60) as stop:
        signal.raise_signal(signal.SIGTERM)
        assert (stop.asked(), stop.exit_code) == (True, 143)
        with pytest.raises(StoppedBySignal):
            signal.raise_signal(signal.SIGINT)
    assert len(said) == 1


def test_the_grace_ends() -> None:
    with StopSignal(lambda text: None, grace=0.05):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StoppedBySignal):
            time.sleep(5)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_while_its_server_hangs_leaves_its_summary(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, short_rubric: Path, number: signal.Signals
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 6), tmp_path / "out"
    ended = threading.Event()

    def hanging(text: str, before: int) -> Reply:
        if "Question 4?" in text:
            ended.wait()
        return chat('{"rationale":"Seen.","scores":{"tact":"2","wit":"1"}}')

    flags = ["--engine", "server", "--model", "tiny", "--rubric", short_rubric]
    with serving(hanging) as server:
        command = [*preloaded.localjudge, "score", rows, "--out", out, *flags, "--server", server.url]
        with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE) as process:
            while not (out / "judgements.jsonl").exists() or count_lines(out) < 5:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(number)
            time.sleep(0.3)
            process.send_signal(number)  # the grace period need not be waited for
            assert process.wait(20) == 128 + number
        ended.set()
        summary = json.loads((out / "summary.json").read_text())
        assert (summary["complete"], summary["rows"], summary["planned"]) == (False, 5, 6)
        assert cli("score", rows, "--out", out, *flags, "--server", server.url).code == 0
    assert json.loads((out / "summary.json").read_text())["rows"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100])
def test_a_journal_that_another_program_cuts_meanwhile_ends_the_run_with_one_line(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, model: Path, short_rubric: Path, size: int
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 60), tmp_path / "out"
    settings = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 8]
    settings += ["--engine-arg", "batch_size=3"]
    program = preloaded.script(HELD_PROGRAM)
    with start_held(program, rows, "--out", out, *settings, prompts=30) as process:
        wait_for_lines(out, process)
        os.truncate(out / "judgements.jsonl", size)
        said = process.communicate()[1].decode().splitlines()
    assert process.returncode == 1, said
    assert "Traceback" not in "".join(said)
    assert said[-1].startswith(f"localjudge: {out / 'judgements.jsonl'}: another program has cut it")
    assert cli("score", rows, "--out", out, *settings).code == 0
    assert [line["id"] for line in read_lines(out)] == [f"r{n}" for n in range(60)]


@pytest.mark.slow
def test_a_disk_that_fills_loses_nothing_and_the_run_goes_on_once_there_is_room(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 90, candidate="So.")
    out, whole = tmp_path / "full", tmp_path / "whole"
    settings = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    assert cli("score", rows, "--out", whole, *settings).code == 0
    size = (whole / "judgements.jsonl").stat().st_size
    program = preloaded.script(Path(__file__).with_name("limited_program.py"))
    score = [*program, str(size - 9000), "score", str(rows), "--out", str(out), *map(str, settings)]
    ended = subprocess.run(score, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        1, "localjudge: [Errno 27] File too large; free some space, and the same command continues",
    )  # fmt: skip
    lines = (out / "judgements.jsonl").read_bytes()
    assert lines.endswith(b"\n")
    assert 0 < lines.count(b"\n") < 90
    assert cli("score", rows, "--out", out, *settings).code == 0
    assert (out / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()


def test_a_folder_that_is_taken_away_stops_the_run(tmp_path: Path, make: Make) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 30), tmp_path / "out"
    with pytest.raises(RunBrokenError, match="removed or renamed while the run was writing it"):
        go(out, make(), rows, report=lambda: (out / "judgements.jsonl").unlink(missing_ok=True))


@pytest.mark.parametrize("torn", [b'{"id": "r4", "system": "a", "sta', b"{", b'{"id": "\xe6\x98'])
def test_a_torn_last_line_is_dropped_and_its_row_judged_again(
    tmp_path: Path, make: Make, done: list[str], torn: bytes
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 6)
    go(tmp_path / "out", make(), rows)
    file = tmp_path / "out" / "judgements.jsonl"
    whole = file.read_bytes()
    kept = whole.splitlines(keepends=True)[:3]
    file.write_bytes(b"".join(kept) + torn)
    done.clear()
    go(tmp_path / "out", make(), rows)
    assert sorted(done) == ["r3", "r4", "r5"]
    assert [line["id"] for line in read_lines(tmp_path / "out")] == [f"r{n}" for n in range(6)]


def test_continuing_a_finished_run_judges_nothing_and_changes_nothing(
    tmp_path: Path, make: Make, done: list[str]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 5)
    go(tmp_path / "out", make(), rows)
    before = (tmp_path / "out" / "judgements.jsonl").read_bytes()
    done.clear()
    go(tmp_path / "out", make(), rows)
    assert done == []
    assert (tmp_path / "out" / "judgements.jsonl").read_bytes() == before


def test_a_limited_run_is_continued_by_the_full_one(tmp_path: Path, make: Make, done: list[str]) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 6)
    first = go(tmp_path / "out", make(), rows, limit=3)
    assert [line["id"] for line in first] == ["r0", "r1", "r2"]
    done.clear()
    everything = go(tmp_path / "out", make(), rows)
    assert sorted(done) == ["r3", "r4", "r5"]
    assert everything[:3] == first
    assert [line["id"] for line in everything] == [f"r{n}" for n in range(6)]


def test_a_changed_row_is_judged_again_and_its_old_line_is_gone(
    tmp_path: Path, make: Make, done: list[str]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 4)
    before = go(tmp_path / "out", make(), rows)
    rows.write_text(rows.read_text().replace("Question 2?", "Question 2, changed?"))
    done.clear()
    after = go(tmp_path / "out", make(), rows)
    assert done == ["r2"]
    assert [line["id"] for line in after] == ["r0", "r1", "r2", "r3"]
    assert [one["key"] == other["key"] for one, other in zip(before, after, strict=True)] == [
        True,
        True,
        False,
        True,
    ]


def test_judgements_of_rows_that_left_the_input_are_set_aside_and_come_back(
    tmp_path: Path, make: Make, done: list[str]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 4)
    everything = go(tmp_path / "out", make(), rows)
    assert go(tmp_path / "out", make(), rows, limit=1) == everything[:1]
    done.clear()
    assert go(tmp_path / "out", make(), rows) == everything
    assert done == [], "nothing had to be judged again"


def test_a_row_under_another_name_is_the_same_work_and_gets_a_line_of_its_own(
    tmp_path: Path, make: Make, done: list[str]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 2, note="old")
    before = go(tmp_path / "out", make(), rows)
    rows.write_text(rows.read_text().replace('"system": "a"', '"system": "c"').replace("old", "new"))
    done.clear()
    after = go(tmp_path / "out", make(), rows)
    assert done == []
    assert [line["system"] for line in after] == ["c", "b"]
    assert after == [
        line | {"system": name, "columns": {"note": "new"}} for line, name in zip(before, "cb", strict=True)
    ]


def test_judging_again_in_other_batches_changes_no_score_of_a_small_model(tmp_path: Path, make: Make) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 9)
    go(tmp_path / "out", make(), rows)
    repetition = repeat(tmp_path / "out", sample=5)
    assert repetition.noise.rows == 5
    assert repetition.noise.changed == {"tact": 0, "wit": 0}
    rows.write_text("")
    with pytest.raises(UsageError, match="holds no rows"):
        repeat(tmp_path / "out", sample=5)


def test_lines_follow_the_input_and_not_the_order_in_which_they_finished(
    tmp_path: Path, make: Make, done: list[str]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 20)
    lines = go(tmp_path / "out", make(), rows)
    assert [line["id"] for line in lines] == [f"r{n}" for n in range(20)] != done
    go(tmp_path / "out", make(), list(read_rows([str(rows)]))[::-1])
    assert [line["id"] for line in read_lines(tmp_path / "out")] == [f"r{n}" for n in reversed(range(20))]


def test_rows_that_are_the_same_work_are_judged_once_and_given_to_each(
    tmp_path: Path, make: Make, done: list[str]
) -> None:
    row = Row.from_response(instruction="Why?", candidate="So.", reference="Yes.", id="one", source="a:1")
    twins = [
        row,
        Row.from_response(instruction="Else?", candidate="No.", reference="Yes.", id="x"),
        replace(row, responses=(Response("So.", "s"),), id="two", source="b:7"),
        row,
    ]
    lines = go(tmp_path / "out", make(), twins)
    assert sorted(done) == ["one", "x"]
    assert [line["id"] for line in lines] == ["one", "x", "two", "one"]
    own = ("id", "row", "source", "system")
    same = [{name: value for name, value in line.items() if name not in own} for line in lines]
    assert same[0] == same[2] == same[3] != same[1]
    assert [line["row"] for line in lines] == [1, 2, 3, 4]
    assert [line["source"] for line in lines] == ["a:1", "", "b:7", "a:1"]


def test_twins_that_cannot_be_judged_each_fail_with_their_own_place(tmp_path: Path, make: Make) -> None:
    judge = make(model=random_model(tmp_path / "small", context=200))
    long = Row.from_response(
        instruction="Why?", candidate="word " * 300, reference="Yes.", id="one", source="a:1"
    )
    lines = go(tmp_path / "out", judge, [long, replace(long, id="two", source="b:2")])
    assert [line["error"].split(":")[:2] for line in lines] == [["a", "1"], ["b", "2"]]
    later = go(tmp_path / "out", judge, [replace(long, id="three", source="c:3")])
    assert later[0]["error"].startswith("c:3: a prompt of ")


def test_equal_ids_are_each_accounted_for(tmp_path: Path, make: Make, done: list[str]) -> None:
    row = Row.from_response(instruction="Why?", candidate="So.", reference="Yes.", id="twin", source="here")
    rows: list[Row | Failure] = [
        row,
        row,
        Row.from_response(instruction="Why?", candidate="No.", reference="Yes.", id="twin"),
        row,
        Failure(id="twin", key="k", error="e"),
    ]
    first = go(tmp_path / "out", make(), rows[:3])
    assert len(done) == 2
    done.clear()
    everything = go(tmp_path / "out", make(), rows)
    assert len(done) == 1, "the fifth"
    assert everything[:3] == first
    assert [line["status"] for line in everything] == ["judged"] * 4 + ["failed"]
    assert go(tmp_path / "out", make(), rows) == everything


def test_failed_rows_are_tried_again_if_that_is_asked_for(tmp_path: Path, make: Make, done: list[str]) -> None:
    rows = [
        Row.from_response(instruction="Why?", candidate="So.", reference="Yes.", id="good"),
        Row.from_response(instruction="Why?", candidate="So.", reference=None, id="bad"),
    ]
    go(tmp_path / "out", make(), rows)
    done.clear()
    go(tmp_path / "out", make(), rows)
    assert done == []
    lines = go(tmp_path / "out", make(), rows, retry_failed=True)
    assert done == ["bad"]
    assert [line["status"] for line in lines] == ["judged", "failed"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 0.5}, "temperature: 0.0 there, 0.5 now"),
        ({"seed": 1}, "seed: 0 there, 1 now"),
        ({"top_p": 0.5}, "top_p: 1.0 there, 0.5 now"),
        ({"max_rationale_tokens": 7}, "max_rationale_tokens: 6 there, 7 now"),
        ({"rubric": "no-reference"}, r"rubric: short \(\w{8}\) there, no-reference \(\w{8}\) now"),
        ({"engine_args": {"dtype": "bfloat16"}}, "dtype: float32 there, bfloat16 now"),
        ({"seed": 2, "top_p": 0.1}, "top_p: 1.0 there, 0.1 now; seed: 0 there, 2 now"),
    ],
)
def test_another_run_in_the_same_folder_is_refused_naming_what_differs(
    tmp_path: Path, make: Make, change: dict[str, Any], words: str
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 2)
    go(tmp_path / "out", make(), rows)
    before = {file: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with pytest.raises(RunMismatchError, match=words) as caught:
        go(tmp_path / "out", make(**change), rows)
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 2
    assert {file: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_another_model_in_the_same_folder_is_refused_and_the_same_model_elsewhere_is_not(
    tmp_path: Path, make: Make, model: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 2)
    go(tmp_path / "out", make(), rows)
    with pytest.raises(RunMismatchError, match=r"model: .* there, .* now"):
        go(tmp_path / "out", make(model=random_model(tmp_path / "other", seed=1)), rows)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    go(tmp_path / "out", make(model=copy), rows)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("judgements.jsonl", "notes\n", "has judgements.jsonl but no run.json"),
        ("run.json", "{", "not a manifest of run format 11, or damaged"),
        (
            "run.json",
            '{"format": 2}',
            "has run format 2, and .* reads format 11; read it with the version that",
        ),
        ("run.json", '{"format": 11}', "not a manifest of run format 11, or damaged; restore the file"),
        ("run.json", "[]", "not a manifest of run format 11, or damaged; restore the file"),
    ],
)
def test_a_folder_that_holds_something_else_is_left_alone(
    tmp_path: Path, make: Make, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RunMismatchError, match=words):
        go(tmp_path, make(), [])
    assert (tmp_path / name).read_text() == content


def test_a_foreign_line_among_the_judgements_is_refused_and_not_cut_off(tmp_path: Path, make: Make) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 2)
    go(tmp_path / "out", make(), rows)
    file = tmp_path / "out" / "judgements.jsonl"
    file.write_bytes(b"not ours\n" + file.read_bytes())
    with pytest.raises(RunMismatchError, match="jsonl:1: not a line of a run, or damaged; delete"):
        go(tmp_path / "out", make(), rows)
    assert file.read_bytes().startswith(b"not ours\n")


def test_failures_are_lines_of_the_same_columns_with_null_scores(tmp_path: Path, make: Make) -> None:
    file = write_rows(tmp_path / "a.jsonl", 2, extra={"deep": [1, "\ud800"]})
    with file.open("ab") as stream:
        stream.write(b'{"id": "bad", "system": "a"}\n{"id": "empty", "instruction": "a", "candidate": ""')
        stream.write(b', "reference": ""}\n{"id": "none", "instruction": "a", "candidate": "b"}\n\xff\n')
        stream.write(b'{"\\ud800": 1}\n')
    lines = go(tmp_path / "out", make(), file)
    errors = [
        "no instruction",
        "no reference, which",
        "no reference, which",
        "not UTF-8",
        "no instruction",
    ]
    assert [line["status"] for line in lines] == ["judged"] * 2 + ["failed"] * 5
    assert len({tuple(line) for line in lines}) == 1
    for number, (line, error) in enumerate(zip(lines[2:], errors, strict=True), 3):
        assert line["error"].startswith(f"{file}:{number}: {error}")
        empty = (
            "rationale",
            "tact",
            "wit",
            "tact_expected",
            "wit_probabilities",
            "output_tokens",
            "rationale_cut",
        )
        assert [line[name] for name in empty] == [None] * 7
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["rows"], summary["judged"], summary["failed"]) == (7, 2, 5)
    assert sum(summary["failures"].values()) == 5
    by_system = {each["system"]: each for each in summary["systems"]}
    assert {name: (each["judged"], each["failed"]) for name, each in by_system.items()} == {
        "a": (1, 1), "b": (1, 0), None: (0, 4),
    }  # fmt: skip
    assert by_system[None]["mean"] == {"tact": None, "wit": None}, "no mean of nothing"
    assert go(tmp_path / "out", make(), file) == lines


def test_a_prompt_beyond_the_models_context_is_a_failure(tmp_path: Path, make: Make) -> None:
    judge = make(model=random_model(tmp_path / "small", context=200))
    rows = [
        Row.from_response(
            instruction="Why?", candidate="word " * count, reference="Yes.", id=str(count), source="here"
        )
        for count in (1, 300, 2)
    ]
    one, long, two = go(tmp_path / "out", judge, rows)
    assert (one["status"], two["status"]) == ("judged", "judged")
    assert long["error"].startswith("here: a prompt of ")
    assert long["error"].endswith("do not fit the context of 200")


def test_thousands_of_failures_in_a_row_are_each_written(tmp_path: Path, make: Make) -> None:
    bad = [Failure(id=str(n), key=str(n), error="e", source="s") for n in range(2500)]
    lines = go(
        tmp_path / "out",
        make(),
        [*bad, Row.from_response(instruction="Why?", candidate="So.", reference="Yes.", id="last"), *bad],
    )
    assert [line["id"] for line in lines] == [*map(str, range(2500)), "last", *map(str, range(2500))]


def test_a_line_holds_the_judgement_that_the_judge_gives(tmp_path: Path, make: Make) -> None:
    file = write_rows(tmp_path / "a.jsonl", 4, extra="kept")
    lines = go(tmp_path / "out", make(), file)
    given = {outcome.id: outcome for outcome in make().score(read_rows([str(file)]))}
    rubric = make().rubric
    for line in lines:
        outcome = from_line(line, rubric.columns)
        assert outcome == given[line["id"]]
        assert isinstance(outcome, Judgement)
        assert line["columns"] == {"extra": "kept"}
        scores = {aspect: str(line[aspect]) for aspect in rubric.aspects}
        Draft202012Validator(rubric.answer_layout.schema).validate(
            {"rationale": line["rationale"], "scores": scores}
        )
        for aspect in rubric.aspects:
            probabilities = line[f"{aspect}_probabilities"]
            assert sum(probabilities) == pytest.approx(1, abs=1e-5)
            mean = sum(p * value for p, value in zip(probabilities, (1, 2, 3), strict=True))
            assert line[f"{aspect}_expected"] == pytest.approx(mean, abs=1e-3)


def test_the_run_says_what_a_stranger_needs_to_repeat_it(tmp_path: Path, make: Make, model: Path) -> None:
    rows, judge = write_rows(tmp_path / "a.jsonl", 1), make(seed=5, temperature=0.5)
    go(tmp_path / "out", judge, rows)
    manifest = json.loads((tmp_path / "out" / "run.json").read_text())
    assert Rubric.model_validate(manifest["rubric"]) == judge.rubric
    assert manifest["prompt_sha256"] == judge.rubric.template_digest
    assert set(manifest["model"]["files"]) == {file.name for file in model.iterdir()}
    assert manifest["settings"].items() >= {"seed": 5, "temperature": 0.5, "max_rationale_tokens": 6}.items()
    assert set(manifest["starts"][0]["engine"]) >= {"name", "versions", "device", "dtype", "batch_size"}
    assert set(manifest["starts"][0]) >= {"started", "inputs", "localjudge", "python", "outlines_core"}
    assert manifest["notice"] is None
    assert "small bundled model" in make(model=None).describe()["notice"], "what its scores mean"


def test_the_python_interface_takes_plain_dicts_and_gives_each_row_one_outcome(make: Make) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "Why?", "output": "Yes.", "gold": "So.", "id": 7},
        {"prompt": "Why?"},
        {},
    ]
    outcomes = {outcome.id: outcome for outcome in make().score(rows)}
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "7": "judged", "row 2": "failed", "row 3": "failed",
    }  # fmt: skip


def test_a_compressed_input_that_breaks_off_is_judged_up_to_there(tmp_path: Path, make: Make) -> None:
    plain = write_rows(tmp_path / "a.jsonl", 400).read_bytes()
    file = tmp_path / "b.jsonl.gz"
    file.write_bytes(gzip.compress(plain)[:1500])
    lines = go(tmp_path / "out", make(max_rationale_tokens=1, engine_args={"batch_size": "32"}), file)
    assert {line["status"] for line in lines[:-1]} == {"judged"}
    assert lines[-1]["error"].startswith(f"{file}:{len(lines)}: the rest of the file cannot be read")
