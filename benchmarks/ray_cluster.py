"""Rows per second of a Ray cluster on this machine, with one worker and with several, against one process.

    python benchmarks/ray_cluster.py [rows.jsonl ...] [--model DIR] [--workers 2] [--rows 200] [--rounds 2]

Each worker has its own core, and so has the single process. They take turns and judge the same rows with the
same engine. The table also shows the CPU time of the workers' engines, of the driver (rows, prompts, judgements
and its part of Ray), and of Ray's other processes.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

import results_table

from localjudge.cli.options import settle_environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*", default=[], help="files of rows; generated rows by default")
    parser.add_argument("--model")
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-rationale-tokens", type=int, default=32)
    parser.add_argument("--note", help="what else the machine was doing, for the record")
    options = parser.parse_args()
    settle_environment()

    contenders = {"one process": 0, "1 worker": 1, f"{options.workers} workers": options.workers}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, workers in contenders.items():
            rounds[name].append(measure(options, workers))
    found = {
        name: {figure: median(each[figure] for each in taken) for figure in taken[0]}
        for name, taken in rounds.items()
    }
    alone, one, several = (found[name]["rows_per_second"] for name in contenders)
    ratios = {"1 worker / one process": one / alone, f"{options.workers} workers / 1 worker": several / one}
    results_table.table(
        f"{options.rows} rows, engine {options.engine}",
        ["", "rows/s", "start, s", "workers' ms/row", "driver's ms/row", "rest of Ray's ms/row"],
        [
            [
                name,
                *(
                    each[key]
                    for key in ("rows_per_second", "start_seconds", "worker_ms", "driver_ms", "ray_ms")
                ),
            ]
            for name, each in found.items()
        ],
    )
    results_table.table("Ratios", ["", "ratio"], [[name, ratio] for name, ratio in ratios.items()])
    results_table.write(
        "ray_cluster",
        {
            "engine": options.engine,
            "rows": options.rows,
            "rounds": options.rounds,
            "max_rationale_tokens": options.max_rationale_tokens,
            "note": options.note,
            "medians": found,
            "ratios": ratios,
            "each": rounds,
        },
    )


def measure(options: argparse.Namespace, workers: int) -> dict[str, float]:
    """Open an engine, warm it up with a few rows, and time it."""
    from localjudge import Judge
    from localjudge.engines.engine_options import Cluster

    judge = Judge(
        options.model,
        engine=options.engine,
        max_rationale_tokens=options.max_rationale_tokens,
        engine_args={"dtype": "float32"} if options.engine != "dry-run" else {},
        cluster=Cluster("local", (workers, workers)) if workers else None,
    )
    begin = time.perf_counter()
    engine: Any = judge.engine
    start = time.perf_counter() - begin
    warm = 0
    while warm < 32 or (workers and len(engine._pool.ready) < workers):  # until all workers are ready
        warm += sum(1 for _ in judge.score(islice(rows(options), 32)))
    before, begin = cpu_seconds(), time.perf_counter()
    judged = sum(outcome.status == "judged" for outcome in judge.score(rows(options)))
    seconds, after = time.perf_counter() - begin, cpu_seconds()
    if workers:
        engine.close()
    assert judged == options.rows, f"{options.rows - judged} rows failed"
    cpu = {role: 1000 * (after[role] - before[role]) / judged for role in after}
    return {"rows_per_second": judged / seconds, "start_seconds": start, **cpu}


def rows(options: argparse.Namespace) -> Any:
    from localjudge.rows.inputs import find_inputs, read_rows

    if options.inputs:
        return islice(read_rows(find_inputs(options.inputs)), options.rows)
    return (
        {
            "id": str(n),
            "instruction": f"Question {n}?",
            "reference": "Yes.",
            "candidate": "word " * (n * 37 % 200),
        }
        for n in range(options.rows)
    )


def cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds of this process and its descendants so far: workers, driver, rest of Ray."""
    parents, used, workers = {}, {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, fields = (
                (folder / "cmdline").read_bytes(),
                (folder / "stat").read_text().rpartition(")")[2].split(),
            )
        except OSError:
            continue
        process = int(folder.name)
        parents[process] = int(fields[1])
        used[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if b"ray::Worker" in title:
            workers.add(process)
    total = {"worker_ms": 0.0, "driver_ms": 0.0, "ray_ms": 0.0}
    for process, seconds in used.items():
        ancestor = process
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            role = "driver_ms" if process == ancestor else "worker_ms" if process in workers else "ray_ms"
            total[role] += seconds
    return total


if __name__ == "__main__":
    main()
