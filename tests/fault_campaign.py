"""What commands leave when a file operation fails: the campaign of faults.

    python tests/fault_campaign.py                                      # all points
    python tests/fault_campaign.py --command merge --fault EIO --at 12  # one again, with all that was said

Each command runs once undisturbed, and its file operations are counted. Then it runs with a fault at one of
them (a *point*), and once more without a fault. The point holds if all of this is true:

- The first start says no traceback, and does not hang. If it says that it succeeded, the result is there.
- Whatever it leaves under a final name is the old content, or the new one, or lines of the new one.
- The second start ends with the files of the undisturbed run, up to times and starts. Only a command that never
  writes over its own result may refuse: if the result is whole, and the first start succeeded, was killed, or
  said so.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from fault_commands import COMMANDS, FaultedCommand, write_kept
from file_faults import FAULTS, built_library, counting, failing, logged_operations, preloading
from files_up_to_times import comparable, comparable_files, files_in
from labelling_person import LabellingPerson
from preloaded import Preloaded

LIMIT = 120
"""Seconds after which a start counts as one that hangs."""
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""The exit codes after a signal that stops."""
SAYS_WHOLE = "whole"
SAYS_NOTHING = "no pack was written"
"""The word of a message that says that the result is there although something failed after it."""
UNFINISHED = ("judgements.jsonl", "labels.jsonl", "summary.json")
"""Files that are written more than once in one start; a start that ends early leaves some of their lines."""


@dataclass(frozen=True, slots=True)
class Point:
    """A fault at one operation of a command; operations are counted from 1."""

    command: str
    fault: str
    at: int

    def __str__(self) -> str:
        return f"--command {self.command!r} --fault {self.fault!r} --at {self.at}"


@dataclass(frozen=True, slots=True)
class Start:
    """How one start of a command ended.

    Attributes:
        code: the exit code; that of a signal is negative; None if it had not ended after `LIMIT` seconds.
        said: what it printed to stderr.
        untrue: answers on its page that were not true.
    """

    code: int | None
    said: str
    untrue: Sequence[str] = ()

    @property
    def last_line(self) -> str:
        lines = self.said.strip().splitlines()
        return lines[-1] if lines else ""


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """A run of a command without a fault.

    Attributes:
        operations: its file operations in their order, each as its name and its path.
        before: the files before it.
        files: the files after it, up to times and starts.
    """

    operations: Sequence[str]
    before: Mapping[str, object]
    files: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a point.

    Attributes:
        operation: the operation at which the fault came, as its name and its path.
        broken: what does not hold, in words; empty if all holds.
        starts: the start with the fault, and the one after it.
    """

    point: Point
    operation: str
    broken: Sequence[str]
    starts: Sequence[Start]


@dataclass(slots=True)
class Campaign:
    """Commands under faults, in a folder of their own, as forks of a process with the preloaded library."""

    folder: Path
    programs: Preloaded
    _undisturbed: dict[str, Undisturbed] = field(default_factory=dict)
    _workers: SimpleQueue[Path] = field(default_factory=SimpleQueue)

    @property
    def kept(self) -> Path:
        return self.folder / "kept"

    def prepare(self, workers: int) -> None:
        """Write the inputs of all commands, and the folders in which this number of points runs at once."""

        def run(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
            command = self.programs.localjudge + list(arguments)
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

        write_kept(self.kept, run)
        for number in range(workers):
            worker = self.folder / f"worker-{number}"
            worker.mkdir()
            self._workers.put(worker)

    def undisturbed(self, name: str) -> Undisturbed:
        """Return what a command does without a fault.

        Raises:
            AssertionError: it fails, or does not end alike when it is repeated.
        """
        if name not in self._undisturbed:
            with self._worker() as worker:
                self._undisturbed[name] = self._run_undisturbed(COMMANDS[name], worker)
        return self._undisturbed[name]

    def points(self, name: str) -> list[Point]:
        """Return all points of a command."""
        count = len(self.undisturbed(name).operations)
        return [Point(name, fault, at) for at in range(1, count + 1) for fault in FAULTS]

    def sample(self, name: str, count: int, seed: int) -> list[Point]:
        """Return a random sample of a command's points.

        Each fault comes equally often. Half of the points are near a rename: what breaks, breaks there.
        """
        generator = random.Random(f"{seed} {name}")
        operations = self.undisturbed(name).operations
        places = range(1, len(operations) + 1)
        renames = {at for at in places if operations[at - 1].startswith("rename")}
        near = [at for at in places if renames & {at - 1, at, at + 1}]
        faults = list(FAULTS)
        generator.shuffle(faults)
        points = []
        for number in range(count):
            is_near = bool(near) and generator.random() < 0.5
            at = generator.choice(near if is_near else places)
            points.append(Point(name, faults[number % len(faults)], at))
        return points

    def result(self, point: Point) -> Result:
        """Run a command with a fault and again without, and return what came of it."""
        undisturbed = self.undisturbed(point.command)
        with self._worker() as worker:
            return self._result_in(worker, point, undisturbed)

    def results(self, points: Iterable[Point]) -> Iterator[Result]:
        """Yield the result of each point; as many run at once as there are folders for them."""
        with ThreadPoolExecutor(self._workers.qsize()) as pool:
            yield from pool.map(self.result, points)

    @contextmanager
    def _worker(self) -> Iterator[Path]:
        worker = self._workers.get()
        try:
            yield worker
        finally:
            self._workers.put(worker)

    def _run_undisturbed(self, command: FaultedCommand, worker: Path) -> Undisturbed:
        out, log = self._begin(command, worker), worker / "operations.log"
        log.unlink(missing_ok=True)
        before = comparable_files(out)
        start = self._start(command, worker, counting(out, log))
        assert start.code == command.code, f"{start.code}: {start.said}"
        assert not start.untrue, start.untrue
        operations = [each.replace(f"{worker}/", "") for each in logged_operations(log)]
        return Undisturbed(operations, before, comparable_files(out))

    def _begin(self, command: FaultedCommand, worker: Path) -> Path:
        """Empty the folder that a command writes, put there what is there before, and return it."""
        out = worker / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        command.prepare(self.kept, out)
        return out

    def _start(self, command: FaultedCommand, worker: Path, variables: Mapping[str, str]) -> Start:
        program = self.programs.client + list(command.program) + list(command.arguments)
        environment = os.environ | variables
        try:
            if command.is_labelled:
                person = LabellingPerson(
                    program, worker, environment, worker / "out" / "labels.jsonl",
                    keeps_failing=variables.get("FAULT_KIND") == "stay",
                )  # fmt: skip
                ended = person.label()
                return Start(ended.returncode, ended.stderr, person.untrue)
            ended = subprocess.run(
                program, cwd=worker, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
            )  # fmt: skip
            return Start(ended.returncode, ended.stderr)
        except subprocess.TimeoutExpired:
            return Start(None, "")

    def _result_in(self, worker: Path, point: Point, undisturbed: Undisturbed) -> Result:
        command, fault = COMMANDS[point.command], FAULTS[point.fault]
        out = self._begin(command, worker)
        first = self._start(command, worker, failing(out, fault, point.at))
        broken = broken_words(first, command.code) + broken_files(out, undisturbed)
        says_success = first.code == 0 and not command.is_labelled
        if says_success and missing_files(out, undisturbed):
            broken.append(
                f"it says that it succeeded; {', '.join(missing_files(out, undisturbed))} is not the result"
            )
        second = self._start(command, worker, {})
        broken += broken_words(second, command.code)
        refuses = second.code != command.code
        differing = different_files(comparable_files(out), undisturbed.files, with_scratch=not refuses)
        if differing:
            broken.append(f"the second start ends with other files: {', '.join(differing)}")
        if refuses:
            succeeded = first.code == command.code
            was_killed = first.code is not None and first.code < 0
            says_whole = SAYS_WHOLE in first.said and SAYS_NOTHING not in first.said
            said_so = succeeded or was_killed or says_whole
            if not command.is_written_once:
                broken.append(f"the second start refuses ({second.code})")
            elif not differing and not said_so:
                broken.append("the second start refuses, and the first did not say that the result is whole")
        return Result(point, undisturbed.operations[point.at - 1], broken, (first, second))


def broken_words(start: Start, code: int) -> list[str]:
    """Return what is wrong with what a start said, in words.

    Args:
        start: the start.
        code: the exit code of an undisturbed run.
    """
    if start.code is None:
        return ["it hangs"]
    broken = list(start.untrue)
    if "Traceback" in start.said:
        broken.append("a traceback")
    elif start.code > 0 and start.code not in (code, *STOPPED) and "localjudge: " not in start.said:
        broken.append(f"it fails ({start.code}) without a reason")
    return broken


def broken_files(out: Path, undisturbed: Undisturbed) -> list[str]:
    """Return each visible file that is neither old, nor new, nor the beginning of a journal, in words."""
    broken = []
    for name, content in files_in(out).items():
        if _is_scratch(name) or Path(name).name in UNFINISHED or name.endswith("/"):
            continue
        try:
            found = comparable(name, content)
        except ValueError:
            found = None
        allowed = [files[name] for files in (undisturbed.before, undisturbed.files) if name in files]
        if found not in allowed:
            broken.append(f"{name} is neither the old file nor the new one ({len(content)} bytes)")
    return broken


def missing_files(out: Path, undisturbed: Undisturbed) -> list[str]:
    """Return the names of the files of the result that are missing or different."""
    found = comparable_files(out)
    return [name for name, content in undisturbed.files.items() if found.get(name) != content]


def different_files(
    found: Mapping[str, object], wanted: Mapping[str, object], *, with_scratch: bool
) -> list[str]:
    """Return the names of the files that only one of two folders has, or whose contents differ.

    The line that a crash has cut from a file of labels stays beside it, in a file `.torn`.

    Args:
        found: the files of one folder.
        wanted: those of the other.
        with_scratch: whether scratch files count.
    """
    different = []
    for name in sorted(found.keys() | wanted.keys()):
        if name.endswith(".torn") or (_is_scratch(name) and not with_scratch):
            continue
        if name not in found or name not in wanted or found[name] != wanted[name]:
            different.append(name)
    return different


def _is_scratch(name: str) -> bool:
    """Whether a file is one of those that the program removes: hidden, or of a pack that is not finished."""
    return any(part.startswith(".") or part.endswith(".partial") for part in Path(name).parts)


def table_of_counts(results: Sequence[Result]) -> str:
    """Return how many points of each command and fault hold, as `held/all` where some do not."""
    every = Counter((each.point.command, each.point.fault) for each in results)
    broken = Counter((each.point.command, each.point.fault) for each in results if each.broken)
    commands = list(dict.fromkeys(each.point.command for each in results))
    lines = ["".join([f"{'':18}"] + [f"{fault:>13}" for fault in FAULTS] + [f"{'all':>11}"])]
    for command in commands:
        cells = [_held(every[command, fault], broken[command, fault]) for fault in FAULTS]
        total = _held(
            sum(every[command, fault] for fault in FAULTS), sum(broken[command, fault] for fault in FAULTS)
        )
        lines.append("".join([f"{command:18}"] + [f"{cell:>13}" for cell in cells] + [f"{total:>11}"]))
    lines.append(f"{sum(every.values())} points, {sum(broken.values())} broken")
    return "\n".join(lines)


def _held(every: int, broken: int) -> str:
    return str(every) if broken == 0 else f"{every - broken}/{every}"


def described(result: Result, *, with_all_that_was_said: bool = False) -> str:
    """Return what broke at a point, and how to run it again."""
    lines = [f"{result.point}  ({result.operation})"]
    lines += [f"    {each}" for each in result.broken]
    for number, start in enumerate(result.starts, 1):
        said = start.said if with_all_that_was_said else start.last_line[-300:]
        lines.append(f"    start {number}: exit code {start.code}: {said}")
    return "\n".join(lines)


@contextmanager
def campaign_in(folder: Path, workers: int) -> Iterator[Campaign]:
    """Build the library, start the process that forks, and yield a campaign with its inputs.

    Raises:
        FileNotFoundError: there is no compiler.
    """
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # of a job in the background, whose children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with Preloaded(preloading(built_library(folder))) as programs:
        campaign = Campaign(folder, programs)
        campaign.prepare(workers)
        yield campaign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", action="append", choices=COMMANDS, help="only this one; may be repeated")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    parser.add_argument("--at", type=int, help="only at this operation; prints all that the starts said")
    parser.add_argument("--sample", type=int, help="only a random sample of this many points of each command")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "LOCALJUDGE_CACHE": f"{name}/cache"}
        with campaign_in(Path(os.path.realpath(name)), options.workers) as campaign:
            for command in options.command or COMMANDS:
                points = campaign.points(command)
                if options.sample is not None:
                    points = campaign.sample(command, options.sample, options.seed)
                points = [
                    point
                    for point in points
                    if point.fault in (options.fault or FAULTS) and options.at in (None, point.at)
                ]
                count = len(campaign.undisturbed(command).operations)
                print(f"{command}: {count} operations, {len(points)} points", file=sys.stderr, flush=True)
                for result in campaign.results(points):
                    results.append(result)
                    if result.broken or options.at is not None:
                        print(described(result, with_all_that_was_said=options.at is not None), flush=True)
    print(table_of_counts(results))
    sys.exit(any(result.broken for result in results))


if __name__ == "__main__":
    main()
