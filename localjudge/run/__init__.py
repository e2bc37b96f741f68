"""The run directory: what a run is, its rows as they finish, and what it came to.

    run.json           settings, rubric, model and its files' digests, engine, versions; written at the start
    judgements.jsonl   a line a row; appended as rows finish, put into the input's order at the end
    set-aside.jsonl    lines of rows that have left the input, should they come back
    summary.json       counts and means; written last

A run can be killed at any moment. What counts as done is the work and not the row: a line is found again by the
digest of everything that decides its judgement. So a changed row is judged again and an unchanged one is not,
whatever it is called now, and rows that are the same work are judged once and given to each.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import SoftFileLease, Timeout

from localjudge.errors import RunBrokenError, RunLockedError, RunMismatchError, UsageError
from localjudge.feed import Task
from localjudge.judge import Judge
from localjudge.prompt import Halt
from localjudge.records import Failure, Outcome, Row, given_to, to_line
from localjudge.rows import EXAMPLES, STDIN, Columns
from localjudge.rubric import Rubric
from localjudge.run.journal import Journal, read_journal, to_bytes
from localjudge.run.manifest import FORMAT, MANIFEST, changes, new_start, read_manifest, write_json
from localjudge.run.plan import Plan
from localjudge.run.shard import WHOLE, Shard
from localjudge.run.summary import Summary

JUDGEMENTS = "judgements.jsonl"
SET_ASIDE = "set-aside.jsonl"
SUMMARY = "summary.json"
LOCK = ".lock"
LEASE = 30.0
"""Seconds without a sign of life after which the writer of a run on another host counts as dead."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Run(AbstractContextManager["Run"]):
    """A run directory, open for writing by this process alone.

    Args:
        folder: made if it is not there.
        say: told what a person should know, such as a wait.

    Attributes:
        complete: whether every row has its line, in the input's order.

    Raises:
        RunLockedError: another process is writing it.
        UsageError: there can be no such folder.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.folder = folder
        self.complete = False
        self._say = say
        self._open = ExitStack()

    def __enter__(self) -> Self:
        is_new = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lease = SoftFileLease(self.folder / LOCK, lease_duration=LEASE)
            self._acquire()
        except OSError as error:
            if error.errno in _FULL:
                raise
            raise UsageError(f"--out {self.folder}: {error.strerror or error}") from None
        if is_new:
            self._open.callback(self._remove_if_empty)
        self._open.callback(self._lease.release)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _remove_if_empty(self) -> None:
        """A start that fails before it has written anything leaves no folder behind."""
        with suppress(OSError):
            self.folder.rmdir()

    def refuse_another(self, judge: Judge, shard: Shard = WHOLE) -> None:
        """See that the folder is empty or holds the same run, as far as that is known without the engine.

        Raises:
            RunMismatchError: the folder holds another run, or something else.
        """
        self._compare(judge.describe(judge.asked) | {"shard": _shard(shard)})

    def refuse_other_settings(self, settings: Mapping[str, Any], rubric: Rubric, shard: Shard = WHOLE) -> None:
        """See that the folder is empty or holds a run with these settings, before there is a judge.

        Raises:
            RunMismatchError: the folder holds another run, or something else.
        """
        self._compare({"settings": settings, "rubric": {"name": rubric.name}, "shard": _shard(shard)})

    def begin(
        self,
        judge: Judge,
        plan: Plan,
        inputs: Iterable[str] = (),
        columns: Columns | None = None,
        retry_failed: bool = False,
    ) -> int:
        """Write down what the run is, and find what earlier starts have done.

        Args:
            judge: what decides the judgements.
            plan: the rows.
            inputs: the names of the inputs, for the record.
            columns: the columns of fields that go by names of their own, for the record.
            retry_failed: judge rows again that failed.

        Returns:
            The lines that are there already.

        Raises:
            RunMismatchError: the folder holds another run, or something else.
        """
        self._judge, self._plan = judge, plan
        described = judge.describe(judge.settings) | {"shard": _shard(plan.shard)}
        manifest = self._compare(described) or {"format": FORMAT, **described, "starts": []}
        now = {
            **new_start([_absolute(name) for name in inputs], columns or {}),
            "input_rows": plan.input_rows,
            "input_digest": plan.input_digest,
            "engine": dict(judge.engine.describe()),
            "engine_args": judge.engine_args,
        }
        write_json(self.folder / MANIFEST, {**manifest, "starts": [*manifest["starts"], now]})
        summary = Summary(judge.rubric.aspects)

        def counts(line: dict[str, Any]) -> bool:
            if retry_failed and line["status"] == "failed":
                return False
            summary.add(line)
            return True

        self._so_far = summary
        self._journal = self._open.enter_context(Journal(self.folder / JUDGEMENTS, counts))
        self._take_back()
        return len(self._journal)

    def score(
        self,
        report: Callable[[list[Outcome], int], None] = lambda outcomes, rows: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Summary:
        """Judge the rows that are not done yet, and put everything into the input's order.

        Args:
            report: called with the outcomes as they are written, and how many rows those are given to.
            stop: once it says true, no further row is begun.

        Returns:
            What the run came to; or, where it was stopped before its last row, what the lines that are there
            come to, which then stand as they finished.
        """
        self._stopped = False
        waiting: dict[str, list[tuple[int, Row | Failure]]] = defaultdict(list)
        try:
            for outcomes in self._judge.outcomes(self._undone(waiting, stop)):
                report(outcomes, self._append(outcomes, waiting))
        except KeyboardInterrupt:
            self._write_summary(self._so_far)
            raise
        if self._stopped:
            self._write_summary(self._so_far)
            return self._so_far
        self._journal.sync()
        summary = self._put_in_order()
        self.complete = True
        self._write_summary(summary)
        return summary

    def _undone(
        self, waiting: dict[str, list[tuple[int, Row | Failure]]], stop: Callable[[], bool]
    ) -> Iterator[Task | Failure]:
        """The work that no line accounts for. Notes which rows wait for it."""
        done = self._journal.index()
        last = None
        for number, task in self._plan:
            if stop():
                self._stopped = True
                raise Halt
            row = task if isinstance(task, Failure) else task.row
            key = row.key if isinstance(row, Failure) else self._judge.key(row)
            # Equal rows come one after the other: the others wait with the first, or find it done at the end.
            if key in waiting:
                waiting[key].append((number, row))
            elif key != last and key not in done:
                waiting[key].append((number, row))
                last = key
                yield task

    def _append(self, outcomes: list[Outcome], waiting: dict[str, list[tuple[int, Row | Failure]]]) -> int:
        """Write a line for each row that waits for these outcomes. How many those are."""
        if self._lease.compromise:
            raise RunBrokenError(f"{self.folder}: another localjudge has taken this run over")
        lines = []
        for outcome in outcomes:
            line = to_line(outcome, self._judge.rubric.aspects)
            lines += [given_to(line, row, number) for number, row in waiting.pop(outcome.key)]
        self._journal.append(lines)
        for line in lines:
            self._so_far.add(line)
        return len(lines)

    def _put_in_order(self) -> Summary:
        """Rewrite the lines in the input's order, and set those aside whose rows have left the input."""
        index = self._journal.index()
        summary = Summary(self._judge.rubric.aspects)
        with (self.folder / JUDGEMENTS).open("rb") as stream:

            def line_at(offset: int) -> bytes:
                stream.seek(offset)
                return stream.readline()

            def in_order() -> Iterator[bytes]:
                for number, row in self._plan.in_order():
                    key = row.key if isinstance(row, Failure) else self._judge.key(row)
                    offset = index.use(key)
                    if offset is None:
                        raise RunBrokenError(f"{self.folder / JUDGEMENTS}: the line of {row.source} is gone")
                    piece = line_at(offset)
                    line = json.loads(piece)
                    own = given_to(line, row, number)
                    summary.add(own)
                    yield piece if own is line else to_bytes(own)

            ordered = written(self.folder / JUDGEMENTS, in_order())
            if left := list(index.unused()):
                written(self.folder / SET_ASIDE, map(line_at, left)).replace(self.folder / SET_ASIDE)
        ordered.replace(self.folder / JUDGEMENTS)
        return summary

    def _take_back(self) -> None:
        """Lines that were set aside count again."""
        aside = self.folder / SET_ASIDE
        lines = read_journal(aside)
        while some := list(islice(lines, 1000)):
            self._journal.append(some)
        self._journal.sync()
        aside.unlink(missing_ok=True)

    def _compare(self, described: Mapping[str, Any]) -> dict[str, Any] | None:
        """What `run.json` says, None where there is none yet."""
        if not (self.folder / MANIFEST).exists():
            if (self.folder / JUDGEMENTS).exists():
                raise RunMismatchError(
                    f"--out {self.folder}: has {JUDGEMENTS} but no {MANIFEST}; choose another folder"
                )
            return None
        manifest = read_manifest(self.folder)
        if found := changes(manifest, described):
            raise RunMismatchError(
                f"--out {self.folder}: holds another run; it differs in {'; '.join(found)}. "
                "Choose another folder, or give the settings of that run"
            )
        return manifest

    def _acquire(self) -> None:
        """Take the lock: at once from a dead process of this host, from another host's after its lease."""
        try:
            self._lease.acquire(timeout=1)
            return
        except Timeout:
            owner = self._lease.owner
        if owner is not None and owner.hostname != socket.gethostname():
            self._say(
                f"{self.folder} is locked from {owner.hostname}; waiting {LEASE:.0f} s for a sign of life"
            )
            try:
                self._lease.acquire(timeout=LEASE + 5)
                return
            except Timeout:
                owner = self._lease.owner
        who = f" (process {owner.pid} on {owner.hostname})" if owner else ""
        raise RunLockedError(f"--out {self.folder}: another localjudge{who} is writing this run")

    def _write_summary(self, summary: Summary) -> None:
        counted = {"complete": self.complete, "planned": self._plan.rows, **summary.as_dict()}
        write_json(self.folder / SUMMARY, {**counted, "engine": dict(self._judge.engine.statistics())})


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, a torn last one left out.

    Raises:
        RunMismatchError: there is a line that is none of a run.
    """
    return read_journal(folder / JUDGEMENTS)


def written(file: Path, lines: Iterable[bytes]) -> Path:
    """A file beside this one that holds these lines, on the disk itself; none where that fails."""
    scratch = file.with_name(f"{file.name}.tmp")
    try:
        with scratch.open("wb") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return scratch


def _shard(shard: Shard) -> str | None:
    return None if shard == WHOLE else str(shard)


def _absolute(name: str) -> str:
    return name if name in (STDIN, EXAMPLES) else str(Path(name).resolve())
