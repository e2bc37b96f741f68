"""Endurance test of runs that are killed, stopped, out of disk space, or started several times at once.

    python benchmarks/endurance.py [--kills 100] [--rows 3000] [--takeovers 50] [--tmpfs]

Every run is a separate process that judges synthetic rows with the dry-run engine through the command line's
code. It receives a signal at a random moment, from before its first line to the final ordering, and is started
again; when it completes, its judgements are compared, byte for byte, with those of an uninterrupted run. For
the takeovers the lease is half a second: an owner is stopped at a random moment, another process takes its run
over, and the first one continues at another random moment.
`--tmpfs` mounts a small file system that fills up (needs root).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import results_table
import torch

import localjudge.runs.run_directory
from localjudge import Judge
from localjudge.cli import main as localjudge_main

LEASE = 0.5
"""Lease in seconds, for the takeovers."""
RUBRIC = """
name = "short"
aspects = ["tact", "wit"]
scale = { lowest = 1, highest = 3 }
[prompt]
template = "Q: {$instruction} R: {$reference} A: {$candidate}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--takeovers", type=int, default=50)
    parser.add_argument("--tmpfs", action="store_true")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    Judge(engine="dry-run").settings  # noqa: B018 (imports once what every run imports)
    with tempfile.TemporaryDirectory() as name:
        job = InterruptedJob(Path(name), options.rows)
        found: dict[str, Any] = {"rows": options.rows, "seconds_unbroken": job.seconds}
        for number in (signal.SIGKILL, signal.SIGTERM):
            found[number.name] = job.hit(number, options.kills)
        found["owners"] = job.started_at_once(8)
        found["takeovers"] = job.taken_over(options.takeovers)
        found["shards"] = job.sharded(16, killed=3)
        if options.tmpfs:
            found["full_disk"] = job.out_of_disk()
    for what, came in found.items():
        print(f"{what}: {json.dumps(came)}")
    results_table.write("endurance", found, options.results)


class InterruptedJob:
    """Rows to judge, and the judgements of an uninterrupted run."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder, self._random = folder, Random(0)
        self._rows, rubric = folder / "rows.jsonl", folder / "rubric.toml"
        rubric.write_text(RUBRIC)
        with self._rows.open("w") as stream:
            for number in range(rows):
                row = {
                    "id": f"r{number}",
                    "system": "ab"[number % 2],
                    "instruction": f"Question {number // 3}?",
                    "reference": "Yes.",
                    # Some rows are duplicates, and some cannot be judged.
                    "candidate": None if number % 97 == 0 else f"Answer {self._random.randrange(rows)}.",
                }
                stream.write(json.dumps(row) + "\n")
        self._flags = ["--rubric", str(rubric), "--engine", "dry-run"]
        begin = time.perf_counter()
        assert self._end(self._start(folder / "whole")) == 3
        self.seconds = time.perf_counter() - begin
        self._uninterrupted = (folder / "whole" / "judgements.jsonl").read_bytes()

    def hit(self, number: signal.Signals, times: int) -> dict[str, Any]:
        """Send a signal to runs this many times, at random moments; count the outcomes."""
        codes: Counter[str] = Counter()
        moments: Counter[str] = Counter()
        hits = completed = equal = 0
        while hits < times:
            out = self._folder / f"{number.name}-{completed}"
            while True:
                process = self._start(out)
                time.sleep(self._random.uniform(0, 1.1 * self.seconds))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
                code = self._end(process)
                codes[str(code)] += 1
                if code == 3:
                    break
                hits += 1
                moments[self._moment(out)] += 1
            completed += 1
            equal += (out / "judgements.jsonl").read_bytes() == self._uninterrupted
        return {
            "hits": hits, "runs_completed": completed, "equal_to_the_unbroken": equal, "exit_codes": codes,
            "after_the_hit_the_folder_held": moments,
        }  # fmt: skip

    def started_at_once(self, processes: int) -> dict[str, Any]:
        """Start this many processes on one folder at the same time; return their outcomes."""
        out = self._folder / "started-at-once"
        codes = Counter(str(self._end(each)) for each in [self._start(out) for _ in range(processes)])
        return {"exit_codes": codes, "equal_to_the_unbroken": self._equal(out)}

    def taken_over(self, times: int) -> dict[str, Any]:
        """Suspend owners, start others on their runs, and resume the first; return the outcomes of both."""
        ended: Counter[str] = Counter()
        equal = 0
        with_usual_lease = localjudge.runs.run_directory.RunDirectory
        localjudge.runs.run_directory.RunDirectory = partial(with_usual_lease, lease=LEASE)  # type: ignore[assignment, misc]
        for number in range(times):
            out = self._folder / f"taken-over-{number}"
            former = self._start(out)
            time.sleep(self._random.uniform(0, self.seconds))
            os.kill(former, signal.SIGSTOP)
            owner = self._start(out)
            time.sleep(LEASE + self._random.uniform(0, 1.2 * self.seconds))
            os.kill(former, signal.SIGCONT)
            ended[f"former {self._end(former)}, owner {self._end(owner)}"] += 1
            equal += self._equal(out)
        localjudge.runs.run_directory.RunDirectory = with_usual_lease  # type: ignore[misc]
        return {"exit_codes": ended, "equal_to_the_unbroken": equal}

    def sharded(self, count: int, killed: int) -> dict[str, Any]:
        """Judge in shards, kill and restart some of them, and merge."""
        shards = [self._folder / f"shard-{index}" for index in range(1, count + 1)]
        hit = set(self._random.sample(range(1, count + 1), killed))
        for index, shard in enumerate(shards, 1):
            process = self._start(shard, "--shard", f"{index}/{count}")
            if index in hit:
                time.sleep(self._random.uniform(0.3, 0.7) * self.seconds)
                os.kill(process, signal.SIGKILL)
            self._end(process)
        out = self._folder / "merged"
        refused = self._end(self._fork("merge", *map(str, shards), "--out", str(out)))
        for index in hit:
            self._end(self._start(shards[index - 1], "--shard", f"{index}/{count}"))
        merged = self._end(self._fork("merge", *map(str, shards), "--out", str(out)))
        return {
            "shards": count, "killed": sorted(hit), "exit_code_with_these_missing": refused,
            "exit_code": merged, "equal_to_the_unbroken": self._equal(out),
        }  # fmt: skip

    def out_of_disk(self) -> dict[str, Any]:
        """Run on a disk that fills up, repeatedly, with a little more space each time."""
        disk = self._folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], check=True)
        codes: list[int] = []
        space = 200
        try:
            while not codes or codes[-1] != 3:
                codes.append(self._end(self._start(disk / "run")))
                space += 500
                subprocess.run(["mount", "-o", f"remount,size={space}k", disk], check=True)
            equal = self._equal(disk / "run")
        finally:
            subprocess.run(["umount", disk], check=True)
        return {"exit_codes": codes, "kilobytes_at_the_end": space - 500, "equal_to_the_unbroken": equal}

    def _equal(self, out: Path) -> bool:
        return (out / "judgements.jsonl").read_bytes() == self._uninterrupted

    def _moment(self, out: Path) -> str:
        if not (out / "run.json").exists():
            return "no run yet"
        file = out / "judgements.jsonl"
        lines = file.read_bytes().count(b"\n") if file.exists() else 0
        return (
            "no line"
            if not lines
            else "some lines"
            if lines < self._uninterrupted.count(b"\n")
            else "all lines"
        )

    def _start(self, out: Path, *more: str) -> int:
        return self._fork("score", str(self._rows), "--out", str(out), *self._flags, *more)

    def _fork(self, *arguments: str) -> int:
        """Fork the program after its imports, so that a signal hits the run and not an import."""
        process = os.fork()
        if process:
            return process
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.argv = ["localjudge", *arguments]
        code = 1
        try:
            localjudge_main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            os._exit(code)

    def _end(self, process: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    main()
