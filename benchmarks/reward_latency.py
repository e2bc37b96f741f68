"""Seconds from a request to its rewards: one client asks `localjudge serve` for 1, 16 and 256 rows.

    python benchmarks/reward_latency.py rows.jsonl --model DIR [--engine vllm] [--rows 1 16 256] [--rounds 3]

The rubric is `six-aspects` without a rationale, the reward the mean of the six expected scores. Each row is
asked once; a small request goes before, so that the model and, in vLLM, the beginning that all prompts share
are warm, as in a training loop.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median

import results_table
from endpoint import address, posted
from throughput import judged_rows

from localjudge import Judge, Rubric

WARM = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 256], help="rows of a request")
    parser.add_argument("--rounds", type=int, default=3, help="requests of each size")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    rubric = Rubric.load("six-aspects", rationale="none")
    reward = " + ".join(f"{name}_expected" for name in rubric.aspects)
    arguments = {"enforce_eager": True, "max_model_len": 4096} if options.engine == "vllm" else {}
    with Judge(options.model, rubric=rubric, engine=options.engine, engine_args=arguments) as judge:
        most = WARM + options.rounds * sum(options.rows)
        rows = judged_rows(judge, options.inputs, most)
        if len(rows) < most:
            parser.error(f"{len(rows)} rows fit; {most} are needed: give more, or ask for fewer")
        names = ("id", "instruction", "reference", "candidate")
        records = iter([{name: getattr(row, name) for name in names} for row in rows])
        tokens = median(len(judge.task_builder.task(row).tokens) for row in rows)
        seconds: dict[str, list[float]] = {str(count): [] for count in options.rows}
        with address(judge, f"({reward}) / {len(rubric.aspects)}") as url:

            def asked(count: int) -> float:
                some = [next(records) for _ in range(count)]
                begin = time.perf_counter()
                rewards = posted(f"{url}/v1/rewards", some)["rewards"]
                assert len(rewards) == count
                return time.perf_counter() - begin

            asked(WARM)
            for _ in range(options.rounds):
                for count in options.rows:
                    seconds[str(count)].append(round(asked(count), 3))
        engine = judge.engine.info
    results_table.table(
        f"{engine.name}, {engine.dtype}, prompts of {tokens:.0f} tokens",
        ["rows", "seconds", "seconds a row"],
        [[n, f"{median(each):.2f}", f"{median(each) / int(n):.3f}"] for n, each in seconds.items()],
    )
    results_table.write(
        f"reward_latency-{engine.name}",
        {"model": Path(options.model).name, "dtype": engine.dtype, "prompt_tokens": tokens, "seconds": seconds},
        options.results,
    )


if __name__ == "__main__":
    main()
