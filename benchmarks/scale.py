"""The cost of a large job without its model: rows/s, memory and disk of dry runs, and host time per row.

    python benchmarks/scale.py [--rows 10000 100000 1000000] [--folder DIR]

The rows are synthetic and as long as real ones (2,900 characters on average), with four systems per
instruction. A dry run does everything that a run does (reading, prompts, table, judgements, ordering) except
the model's work. The largest job takes about 25 GB in the folder while it runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import results_table

from localjudge import Judge, Row, read_rows
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan

GPU_ROWS_PER_SECOND = 50
SYSTEMS = ("aster", "birch", "cedar", "dogwood")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--cost-rows", type=int, default=4000)
    parser.add_argument("--folder", type=Path, help="folder for temporary rows and runs")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        cost = host_cost(folder, options.cost_rows)
        results_table.table(
            f"Host time per row in one process, and its share of a GPU's time at {GPU_ROWS_PER_SECOND} rows/s",
            ["stage", "ms", "share"],
            [[stage, ms, f"{ms * GPU_ROWS_PER_SECOND / 1000:.1%}"] for stage, ms in cost.items()],
        )
        jobs = [dry_run(folder, count) for count in sorted(options.rows)]
    columns = ["rows", "rows/s", "peak MB", "input MB", "run MB", "seconds"]
    results_table.table("Dry runs", columns, [[job[column] for column in columns] for job in jobs])
    growth = jobs[-1]["peak MB"] - jobs[0]["peak MB"]
    print(f"memory grows by {growth:.0f} MB from {jobs[0]['rows']:,} to {jobs[-1]['rows']:,} rows")
    found = {
        "host_ms_per_row": cost,
        "gpu_rows_per_second": GPU_ROWS_PER_SECOND,
        "jobs": jobs,
        "growth_mb": growth,
    }
    results_table.write("scale", found, options.results)


def write_rows(file: Path, count: int, seed: int = 0) -> Path:
    """Write rows of invented words."""
    random = Random(seed)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "en", "i", "or", "ul")]
    words = ["".join(random.choices(syllables, k=random.randint(1, 3))) for _ in range(20_000)]

    def text(length: float) -> str:
        chosen = random.choices(words, k=max(3, int(random.lognormvariate(0, 0.5) * length)))
        return " ".join(chosen).capitalize() + "."

    with file.open("w") as stream:
        for number in range(count):
            if number % len(SYSTEMS) == 0:
                instruction, reference = text(40), text(190)
            row = {
                "id": f"r{number}",
                "system": SYSTEMS[number % len(SYSTEMS)],
                "instruction": instruction,
                "reference": reference,
                "candidate": text(190),
            }
            stream.write(json.dumps(row) + "\n")
    return file


def dry_run(folder: Path, count: int) -> dict[str, Any]:
    """Run one job in a separate process and measure it."""
    rows, out = write_rows(folder / f"{count}.jsonl", count), folder / f"run-{count}"
    command = [sys.executable, "-m", "localjudge", "score", str(rows), "--engine", "dry-run", "--out", str(out)]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_memory(process.pid))
        time.sleep(0.2)
    seconds = time.perf_counter() - begin
    if process.returncode:
        sys.exit(f"the dry run of {count} rows ended with {process.returncode}")
    job = {
        "rows": count,
        "rows/s": count / seconds,
        "peak MB": peak / 1e6,
        "input MB": rows.stat().st_size / 1e6,
        "run MB": sum(file.stat().st_size for file in out.iterdir()) / 1e6,
        "seconds": seconds,
    }
    print(json.dumps(job), file=sys.stderr, flush=True)
    for file in (rows, *out.iterdir()):
        file.unlink()
    return job


def peak_memory(process: int) -> int:
    """Return the peak memory of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    peaks = (int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return next(peaks, 0)


def host_cost(folder: Path, count: int) -> dict[str, float]:
    """Measure the milliseconds per row of each step that the host does."""
    file = write_rows(folder / "cost.jsonl", count)
    judge = Judge(engine="dry-run")
    judge.key(Row.from_response(instruction="", candidate=""))  # loads the engine
    rows: list[Row] = []
    texts: list[str] = []

    def read() -> None:
        rows.extend(row for row in read_rows([str(file)]) if isinstance(row, Row))

    def render() -> None:
        texts.extend(judge.rubric.text(row) for row in rows)

    def encode() -> None:
        for begin in range(0, count, 256):
            judge.prompts.encode_all(texts[begin : begin + 256])

    cost = {name: timed(stage) / count * 1000 for name, stage in
            {"read": read, "render": render, "encode": encode}.items()}  # fmt: skip
    with RunDirectory(folder / "cost") as run:
        begin = time.perf_counter()
        with RunPlan(judge, rows, scratch=folder) as plan:
            cost["lay out"] = (time.perf_counter() - begin) / count * 1000
            run.begin(judge, plan)
            run.tasks.finish()
            cost["judge, write and order"] = timed(run.score) / count * 1000
    return cost | {"together": sum(cost.values())}


def timed(stage: Callable[[], object]) -> float:
    begin = time.perf_counter()
    stage()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
