"""The run directory: what a run is, its rows as they finish, and what it came to.

    run.json           settings, rubric, model and its files' digests, engine, versions; written at the start
    judgements.jsonl   a line a row; appended as rows finish, put into the input's order at the end
    set-aside.jsonl    lines of rows that have left the input, should they come back
    summary.json       counts and means; written last

A run can be killed at any moment. Rows that finished together are appended in one write; a line that was torn
off is dropped when the run continues; and a row counts as done by its id and the digest of everything that
decides its judgement, so a changed row is judged again and an unchanged one is not.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from localjudge.errors import RunLockedError, RunMismatchError, UsageError
from localjudge.judge import Judge
from localjudge.records import Failure, Outcome, Row, to_line
from localjudge.rows import EXAMPLES, STDIN, Columns
from localjudge.summary import Summary

MANIFEST = "run.json"
JUDGEMENTS = "judgements.jsonl"
SET_ASIDE = "set-aside.jsonl"
SUMMARY = "summary.json"
_FORMAT = 1


class Run(AbstractContextManager["Run"]):
    """A run directory, open for writing by this process alone.

    Args:
        folder: made if it is not there; continued if it holds the same run.
        judge: what decides the judgements.
        inputs: the names of the inputs, for the record.
        columns: the columns of fields that go by names of their own, for the record.

    Raises:
        RunMismatchError: the folder holds another run, or something else.
        RunLockedError: another process is writing it.
    """

    def __init__(
        self, folder: Path, judge: Judge, inputs: Iterable[str], columns: Columns | None = None
    ) -> None:
        self.folder = folder
        self._judge = judge
        self._inputs = [name if name in (STDIN, EXAMPLES) else str(Path(name).resolve()) for name in inputs]
        self._columns = dict(columns or {})
        self.summary = Summary(judge.rubric.aspects)
        # Where the lines of each row stand that was done before: its identity's digest to offsets.
        self._done: dict[bytes, list[int]] = defaultdict(list)
        # The place of each row in the input, and the offset of its line.
        self._places, self._offsets = array("q"), array("q")

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise UsageError(f"--out {self.folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RunLockedError(f"--out {self.folder}: another localjudge is writing this run") from None
        try:
            self._write_manifest()
            self._read_back()
            self._stream: IO[bytes] = (self.folder / JUDGEMENTS).open("ab")
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._lock.close()

    @property
    def already_done(self) -> int:
        """Rows that an earlier start has done, as far as they have not been met in the input yet."""
        return sum(map(len, self._done.values()))

    def score(
        self,
        rows: Iterable[tuple[int, Row | Failure]],
        report: Callable[[list[Outcome]], None] = lambda outcomes: None,
    ) -> Summary:
        """Judge the rows that are not done yet, and put everything into the input's order.

        Args:
            rows: every row of the input, the done ones too, each with its place in the input; in any order.
            report: called with the outcomes as they are written.
        """
        places: dict[bytes, list[int]] = defaultdict(list)
        for outcomes in self._judge.outcomes(self._undone(rows, places)):
            self._append(outcomes, places)
            report(outcomes)
        self._put_in_order()
        self._write(SUMMARY, {**self.summary.as_dict(), "engine": dict(self._judge.engine.statistics())})
        return self.summary

    def _undone(
        self, rows: Iterable[tuple[int, Row | Failure]], places: dict[bytes, list[int]]
    ) -> Iterator[Row | Failure]:
        """The rows that no line accounts for. Notes the place of every row in the input."""
        for place, row in rows:
            key = row.key if isinstance(row, Failure) else self._judge.key(row)
            identity = _identity(row.id, row.system, key)
            if offsets := self._done.get(identity):
                self._places.append(place)
                self._offsets.append(offsets.pop(0))
                if not offsets:
                    del self._done[identity]
                continue
            places[identity].append(place)
            yield row

    def _append(self, outcomes: list[Outcome], places: dict[bytes, list[int]]) -> None:
        lines = []
        offset = self._stream.seek(0, os.SEEK_END)
        for outcome in outcomes:
            identity = _identity(outcome.id, outcome.system, outcome.key)
            self._places.append(places[identity].pop(0))
            if not places[identity]:
                del places[identity]
            self._offsets.append(offset)
            line = json.dumps(to_line(outcome, self._judge.rubric.aspects), ensure_ascii=False).encode() + b"\n"
            offset += len(line)
            lines.append(line)
        self._stream.write(b"".join(lines))
        self._stream.flush()

    def _read_back(self) -> None:
        """Take note of the lines that are there, set aside or not; cut off one that was torn."""
        file, aside = self.folder / JUDGEMENTS, self.folder / SET_ASIDE
        if aside.exists():
            with file.open("ab") as stream:
                stream.write(aside.read_bytes())
            aside.unlink()
        if not file.exists():
            return
        whole = 0
        with file.open("rb+") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                try:
                    record = json.loads(line)
                    self._done[_identity(record["id"], record["system"], record["key"])].append(whole)
                except (ValueError, KeyError, TypeError):
                    raise RunMismatchError(
                        f"{file}: byte {whole}: not a line of a run; move the file away"
                    ) from None
                whole += len(line)
            stream.truncate(whole)

    def _put_in_order(self) -> None:
        """Rewrite the lines in the input's order, and set those aside whose rows have left the input."""
        order = sorted(range(len(self._places)), key=self._places.__getitem__)
        scratch = self.folder / f"{JUDGEMENTS}.tmp"
        with (self.folder / JUDGEMENTS).open("rb") as stream:

            def line_at(offset: int) -> bytes:
                stream.seek(offset)
                return stream.readline()

            if left := {line_at(offset) for offsets in self._done.values() for offset in offsets}:
                _write_synced(self.folder / f"{SET_ASIDE}.tmp", sorted(left))
                (self.folder / f"{SET_ASIDE}.tmp").replace(self.folder / SET_ASIDE)
            _write_synced(scratch, (self._counted(line_at(self._offsets[rank])) for rank in order))
        scratch.replace(self.folder / JUDGEMENTS)

    def _counted(self, line: bytes) -> bytes:
        self.summary.add(json.loads(line))
        return line

    def _write_manifest(self) -> None:
        described = self._judge.describe()
        now = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "inputs": self._inputs,
            "columns": self._columns,
            **_environment(),
            "engine": dict(self._judge.engine.describe()),
            "engine_args": self._judge.engine_args,
        }
        file = self.folder / MANIFEST
        if not file.exists():
            if (self.folder / JUDGEMENTS).exists():
                raise RunMismatchError(
                    f"--out {self.folder}: has {JUDGEMENTS} but no {MANIFEST}; choose another folder"
                )
            self._write(MANIFEST, {"format": _FORMAT, **described, "starts": [now]})
            return
        manifest = read_manifest(self.folder)
        changes = _changes(manifest, described)
        if changes:
            raise RunMismatchError(
                f"--out {self.folder}: holds another run; it differs in {'; '.join(changes)}. "
                "Choose another folder, or give the settings of that run"
            )
        self._write(MANIFEST, {**manifest, "starts": [*manifest["starts"], now]})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        scratch = self.folder / f"{name}.tmp"
        scratch.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        scratch.replace(self.folder / name)


def _write_synced(file: Path, lines: Iterable[bytes]) -> None:
    with file.open("wb") as stream:
        stream.writelines(lines)
        stream.flush()
        os.fsync(stream.fileno())


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `run.json` says.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    file = folder / MANIFEST
    try:
        manifest: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunMismatchError(f"{folder}: no run directory, it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise RunMismatchError(f"{file}: cannot be read: {error}") from None
    whole = isinstance(manifest, dict) and {"settings", "rubric", "model", "starts"} <= set(manifest)
    if not whole or manifest.get("format") != _FORMAT:
        raise RunMismatchError(f"{file}: not of the format {_FORMAT} that this version of localjudge reads")
    return dict(manifest)


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, a torn last one left out."""
    file = folder / JUDGEMENTS
    if not file.exists():
        return
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(b"\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    raise RunMismatchError(f"{file}:{number}: not a line of a run") from None


def _identity(row_id: str, system: str | None, key: str) -> bytes:
    return hashlib.blake2b(json.dumps([row_id, system, key]).encode(), digest_size=16).digest()


def _changes(manifest: dict[str, Any], described: dict[str, Any]) -> list[str]:
    """What of the settings differs, in words."""
    changes = []
    for name, now in described["settings"].items():
        was = manifest["settings"].get(name)
        if was != now:
            if name in ("rubric", "model"):
                was = f"{manifest[name]['name']} ({str(was)[:8]})"
                now = f"{described[name]['name']} ({str(now)[:8]})"
            changes.append(f"{name}: {was} there, {now} now")
    return changes


def _environment() -> dict[str, Any]:
    return {
        "localjudge": version("localjudge"),
        "outlines_core": version("outlines-core"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
