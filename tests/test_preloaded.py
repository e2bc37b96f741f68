"""Tests of tests/preloaded.py: a program that is a fork does what a new process does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Cli, write_rows
from preloaded import KILL, Preloaded

SCRIPT = """
import atexit, json, os, signal, sys, time
atexit.register(print, "at exit")
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["MARK"], sys.stdin.read()]), flush=True)
print(os.getpid(), file=sys.stderr)
if sys.argv[1] == "raise":
    raise ValueError("a bug")
if sys.argv[1] == "wait":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    print("waiting", flush=True)
    time.sleep(60)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def command(preloaded: Preloaded, tmp_path: Path) -> list[str]:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return preloaded.script(file)


def test_a_fork_has_its_own_arguments_folder_environment_streams_and_exit_code(
    command: list[str], tmp_path: Path
) -> None:
    for code, mark in ((0, "a"), (3, "b")):
        end = subprocess.run(
            [*command, str(code), "a b"], cwd=tmp_path, env=os.environ | {"MARK": mark}, input="é\n",
            capture_output=True, text=True,
        )  # fmt: skip
        assert end.returncode == code
        said, last = end.stdout.splitlines()
        assert (json.loads(said), last) == ([[str(code), "a b"], str(tmp_path), mark, "é\n"], "at exit")
    end = subprocess.run(
        [*command, "raise"], env=os.environ | {"MARK": ""}, input="", capture_output=True, text=True
    )
    assert (end.returncode, end.stderr.splitlines()[-1]) == (1, "ValueError: a bug")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9), (KILL, -9)]
)
def test_a_signal_reaches_the_fork_and_its_end_is_the_end_of_the_command(
    command: list[str], number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [*command, "wait"], env=os.environ | {"MARK": ""}, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        fork = int(process.stderr.readline())
        while process.stdout.readline() != "waiting\n":
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait() == code
        assert number == signal.SIGKILL or not Path(f"/proc/{fork}").exists(), "it has ended before the client"
    while Path(f"/proc/{fork}").exists():
        time.sleep(0.01)


@pytest.mark.slow
def test_a_fork_judges_as_this_process_does(cli: Cli, preloaded: Preloaded, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 6)
    score: list[str | Path] = ["score", rows, "--max-rationale-tokens", "6", "--out"]
    subprocess.run([*preloaded.localjudge, *score, tmp_path / "fork"], check=True, capture_output=True)
    assert cli(*score, tmp_path / "here").code == 0
    here, fork = ((tmp_path / run / "judgements.jsonl").read_bytes() for run in ("here", "fork"))
    assert here == fork
