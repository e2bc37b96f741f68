"""The price of exact probabilities where values share tokens: passes of the model, and rows per second.

    python benchmarks/exact_values.py rows.jsonl --model DIR [--engine transformers] [--rows 16]

A rubric of one aspect judges the same rows greedily, without a rationale and with one. `not asked` leaves out
all values that the answer did not take, `asked` is what a run does (the bound is in
`localjudge.constraint.value_paths`), and `all asked` has a bound of 0. They take turns with one engine; figures
are medians. Asked for are picks: states of the token table in which tokens tell values apart.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import environment
import numpy as np
import results_table
from throughput import judged_rows

from localjudge import Judge, Rubric
from localjudge.constraint import value_paths
from localjudge.engines.protocol import Completion
from localjudge.prompts.task import Prompt, Task

ASPECTS: dict[str, dict[str, Any]] = {
    "1 to 5": {"scale": {"lowest": 1, "highest": 5}},
    "1 to 10": {"scale": {"lowest": 1, "highest": 10}},
    "0 to 100": {"scale": {"lowest": 0, "highest": 100}},
    "-10 to 10": {"scale": {"lowest": -10, "highest": 10}},
    "labels": {"choices": ["warm", "warmer", "warmest", "cold"]},
}
BOUNDS = {"not asked": 1.0, "asked": value_paths.UNEXPLORED, "all asked": 0.0}


def main() -> None:
    options = _options()
    environment.settle(cache_gib=2)
    found = {
        f"{name}, {place}": _measured(options, aspect, place)
        for place in ("none", "before")
        for name, aspect in ASPECTS.items()
    }
    results_table.table(
        f"{options.engine}, {options.rows} rows; rows/s beside those of answers that are not asked further",
        ["", "output tokens", "picks asked", "of at most", "rows/s", "all: picks", "all: rows/s", "apart"],
        [[name, *one.values()] for name, one in found.items()],
    )
    results_table.write(
        f"exact_values-{options.engine}",
        {
            "model": Path(options.model).name,
            "rows": options.rows,
            "rounds": options.rounds,
            "unexplored": value_paths.UNEXPLORED,
            "found": found,
        },
        options.results,
    )


def _measured(options: argparse.Namespace, aspect: dict[str, Any], place: str) -> dict[str, Any]:
    rubric = Rubric.model_validate(
        {
            "name": "scale",
            "aspects": {"quality": aspect},
            "answer": {"rationale_place": place},
            "prompt": {
                "template": "{$instruction}\n\nResponse: {$candidate}\n\nJudge the response:\n{$aspects}\n"
                "Answer in this form: {$answer_format}"
            },
        }
    )
    judge = Judge(
        options.model,
        rubric=rubric,
        engine=options.engine,
        max_rationale_tokens=64,
        engine_args=dict(each.split("=", 1) for each in options.engine_arg),
    )
    rows = judged_rows(judge, options.inputs, options.rows)
    tasks = list(judge.task_builder.tasks(rows))
    seconds: dict[str, list[float]] = {name: [] for name in BOUNDS}
    answers: dict[str, dict[int, Completion]] = {}
    asked = dict.fromkeys(BOUNDS, 0)
    plain = value_paths.ValuePaths.unexplored
    for turn in range(options.rounds + 1):  # the first one warms up
        for name, bound in BOUNDS.items():

            def counted(*given: Any, name: str = name) -> list[value_paths.Branch]:
                branches = plain(*given)
                asked[name] += len(branches)
                return branches

            value_paths.UNEXPLORED = bound
            value_paths.ValuePaths.unexplored = counted  # type: ignore[assignment, method-assign]
            if options.engine == "vllm":
                judge.engine.reset()
            asked[name], begin = 0, time.perf_counter()
            answers[name] = _completions(judge, tasks)
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    value_paths.ValuePaths.unexplored = plain  # type: ignore[method-assign]
    judge.close()
    several = not judge.decoding.table.first_token_decides.all()
    apart = [
        float(np.abs(answers["asked"][tag].probabilities - one.probabilities).sum() / 2)  # type: ignore[operator]
        for tag, one in answers["all asked"].items()
    ]
    paired = {
        name: median(other / one for one, other in zip(seconds[name], seconds["not asked"], strict=True))
        for name in ("asked", "all asked")
    }
    return {
        "output_tokens": round(float(np.mean([len(one.tokens) for one in answers["asked"].values()])), 1),
        "picks_asked": round(asked["asked"] / len(tasks), 2),
        "picks_at_most": value_paths.ValuePaths(judge.decoding.table).most_branches,
        "rows_per_second": round(paired["asked"], 3),
        "all_picks_asked": round(asked["all asked"] / len(tasks), 2),
        "all_rows_per_second": round(paired["all asked"], 3),
        "largest_total_variation": round(max(apart), 6) if several else 0.0,
    }


def _completions(judge: Judge, tasks: list[Task]) -> dict[int, Completion]:
    prompts = (Prompt(tag, task.tokens, tag) for tag, task in enumerate(tasks))
    finished = (one for completions in judge.engine.complete(prompts) for one in completions)
    return {one.tag: one for one in finished if isinstance(one, Completion)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--engine-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
