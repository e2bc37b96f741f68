"""Tests of ownership: a former owner that resumes at any moment changes nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import read_lines, write_rows

from localjudge import Judge, read_rows
from localjudge.errors import RunLockedError
from localjudge.runs import ownership
from localjudge.runs.journal import Journal
from localjudge.runs.ownership import Ownership
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import LOCK, mark
from localjudge.runs.run_plan import RunPlan

LEASE = 0.4


def go(out: Path, judge: Judge, file: Path) -> None:
    with RunDirectory(out, lease=LEASE) as run, RunPlan(judge, read_rows([str(file)])) as plan:
        run.begin(judge, plan, RowSource(inputs=[str(file)]))
        run.score()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name[0] != "."}


def stop_before(name: str, place: int) -> None:
    """Suspend this process before a call of `os` on an owner's folder; the number selects the call."""
    real, calls = getattr(os, name), iter(range(1, 1000))

    def stopping(*paths: Any, **named: Any) -> Any:
        if any(".owner-" in str(path) for path in paths) and next(calls) == place:
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(*paths, **named)

    setattr(os, name, stopping)


def stop_after_check(place: int) -> None:
    """Suspend this process between an append and the check before it."""
    real, calls = Journal._check, iter(range(1, 1000))

    def stopping(journal: Journal) -> None:
        real(journal)
        if next(calls) == place:
            os.kill(os.getpid(), signal.SIGSTOP)

    Journal._check = stopping  # type: ignore[assignment,method-assign]


MOMENTS: dict[str, Callable[[], None]] = {
    "before its folder is there": lambda: stop_before("mkdir", 1),
    **{f"before rename {place}": partial(stop_before, "replace", place) for place in range(1, 8)},
    **{f"before append {place}": partial(stop_after_check, place) for place in (1, 2)},
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_owner_that_wakes_after_a_takeover_changes_nothing(
    tmp_path: Path, short_rubric: Path, moment: str
) -> None:
    judge = Judge(engine="dry-run", rubric=short_rubric)
    rows, out, whole = tmp_path / "a.jsonl", tmp_path / "out", tmp_path / "whole"
    write_rows(rows, 12)
    go(whole, judge, rows)
    # The next start of this run must set lines aside and restore others.
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines[:6]))
    go(out, judge, rows)
    rows.write_text("".join(lines[4:6]))
    go(out, judge, rows)
    rows.write_text("".join([*lines[:5], *lines[6:]]))

    def former() -> None:
        MOMENTS[moment]()
        try:
            go(out, judge, rows)
        except Exception as error:
            (tmp_path / "said").write_text(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=former)
    process.start()
    assert process.pid
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG)
    assert stopped, "it came to its end before that moment"
    time.sleep(LEASE)
    go(out, judge, rows)
    after = contents(out)
    assert [line["id"] for line in read_lines(out)] == [f"r{n}" for n in (*range(5), *range(6, 12))]
    assert "set-aside.jsonl" in after
    os.kill(process.pid, signal.SIGCONT)
    process.join(60)
    assert "another localjudge has taken this run over" in (tmp_path / "said").read_text()
    assert contents(out) == after
    assert sorted(after) == sorted(file.name for file in out.iterdir()), "nothing hidden is left"
    write_rows(rows, 12)
    go(out, judge, rows)
    assert contents(out)["judgements.jsonl"] == contents(whole)["judgements.jsonl"], "no line was lost"


def takeover(folder: Path, cut: str, age: int) -> tuple[list[float], int, list[str]]:
    """Start two owners of a damaged lock; return the seconds until one owned it, the refusals, the messages."""
    folder.mkdir()
    lock, said = folder / LOCK, list[str]()
    with Ownership(folder, said.append, 1.5):
        whole = lock.read_bytes()
    sizes = {"empty": 0, "40 bytes": 40, "60 bytes": 60}
    mark(folder)  # as a start that was cut off leaves it
    lock.write_bytes(bytes(len(whole)) if cut == "zeroed" else whole[: sizes[cut]])
    os.utime(lock, (time.time() - age,) * 2)
    owners: list[float] = []
    refused: list[str] = []
    began = time.monotonic()

    def start() -> None:
        try:
            with Ownership(folder, said.append, 1.5) as owner:
                waited = time.monotonic() - began
                time.sleep(3)
                owner.check()
                owners.append(waited)
        except RunLockedError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return owners, len(refused), said


@pytest.mark.slow
def test_a_lock_that_names_no_owner_is_taken_over_after_a_lease_by_one_of_two_starts(tmp_path: Path) -> None:
    cases = list(product(("empty", "40 bytes", "60 bytes", "zeroed"), (0, 60)))
    with ThreadPoolExecutor(len(cases)) as pool:  # each waits for seconds, so they wait together
        found = pool.map(lambda case: takeover(tmp_path / f"{case[0]} {case[1]}", *case), cases)
    for case, (owners, refused, said) in zip(cases, found, strict=True):
        assert (len(owners), refused) == (1, 1), (case, said)
        assert case[1] or owners[0] >= 1.5, "a lock that was just written may have an owner"
        assert sum("names no owner, and no process writes it" in line for line in said) == 1, (case, said)


def test_an_owner_in_this_pid_namespace_is_named_at_once_by_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = f"{socket.gethostname()}?pidns-f0000152"
    monkeypatch.setattr("localjudge.runs.ownership.os.stat", lambda path: SimpleNamespace(st_ino=0xF0000152))
    assert ownership._is_here(host)
    assert not ownership._is_here(host[:-1] + "3")
    assert not ownership._is_here(socket.gethostname())
    assert ownership._host(host) == socket.gethostname()
