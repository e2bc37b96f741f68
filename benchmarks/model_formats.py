"""One model alone and with a LoRA adapter, in both engines.

    python models/smollm2.py --out smollm2
    python benchmarks/model_formats.py smollm2 [--adapter DIR] [--rows rows.jsonl] [--count 12]

All contenders judge the same rows in bfloat16, greedily: the directory with the transformers engine and with
vLLM if it is installed, and the directory with the adapter in the same engines. They take turns, round by
round, each in its own process; the figures are medians, and the ratios are to the directory in the transformers
engine.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import results_table
from compared_engines import SeparateProcess
from throughput import judged_rows

PLAIN = "directory, transformers"


class FormRows:
    """A judge of one form of the model.

    Args:
        model: the directory.
        adapter: the directory of the adapter, if any.
        engine: the engine's name.
        options: the rows, their number, and the largest number of tokens of a rationale.
    """

    def __init__(self, model: str, adapter: str | None, engine: str, options: argparse.Namespace) -> None:
        from localjudge import Judge

        begin = time.perf_counter()
        arguments: dict[str, Any] = {"dtype": "bfloat16"}
        if engine == "vllm":
            arguments |= {"max_num_seqs": 16, "enforce_eager": True, "max_model_len": 4096}
        self._judge = Judge(
            model,
            adapter=adapter,
            engine=engine,
            engine_args=arguments,
            max_rationale_tokens=options.max_rationale_tokens,
        )
        self._rows = judged_rows(self._judge, options.rows, options.count)
        _ = self._judge.engine
        self.opening = time.perf_counter() - begin

    def run(self) -> tuple[float, dict[str, Any]]:
        """Judge all rows; return the seconds, and the scores of each row."""
        begin = time.perf_counter()
        found = {outcome.id: outcome for outcome in self._judge.score(self._rows)}
        return time.perf_counter() - begin, {
            name: outcome.scores if outcome.status == "judged" else None for name, outcome in found.items()
        }

    def cost(self) -> tuple[float, float]:
        """Return the seconds until the engine was open, and the peak memory of this process in GiB."""
        return self.opening, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def close(self) -> None:
        self._judge.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="the model directory")
    parser.add_argument("--adapter", help="a LoRA adapter of the model")
    parser.add_argument("--rows", nargs="+", default=["examples"], help="files of rows; default: the examples")
    parser.add_argument("--count", type=int, default=12, help="maximum number of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-rationale-tokens", type=int, default=64)
    parser.add_argument("--log", type=Path, help="file for the engines' output")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

    forms: dict[str, tuple[str, str | None, str]] = {
        PLAIN: (options.directory, None, "transformers"),
    }
    engines = ["transformers", *["vllm"] * bool(find_spec("vllm"))]
    if "vllm" in engines:
        forms["directory, vllm"] = (options.directory, None, "vllm")
    if options.adapter:
        forms |= {f"adapter, {engine}": (options.directory, options.adapter, engine) for engine in engines}
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "engines.log"
        judges = {name: SeparateProcess(log, FormRows, *form, options) for name, form in forms.items()}
        seconds: dict[str, list[float]] = {name: [] for name in forms}
        scores: dict[str, dict[str, Any]] = {}
        for _ in range(options.rounds):
            for name, judge in judges.items():
                took, scores[name] = judge.call("run")
                seconds[name].append(took)
        costs = {name: judge.call("cost") for name, judge in judges.items()}
        for judge in judges.values():
            judge.close()

    rows = len(scores[PLAIN])
    found = {
        name: {
            "rows_per_second": round(rows / median(took), 3),
            "to_directory": round(
                median(plain / own for plain, own in zip(seconds[PLAIN], took, strict=True)), 3
            ),
            "judged": sum(each is not None for each in scores[name].values()),
            "rows_with_the_same_scores": sum(scores[name][row] == scores[PLAIN][row] for row in scores[PLAIN]),
            "opening_seconds": round(costs[name][0], 1),
            "peak_memory_gib": round(costs[name][1], 2),
            "seconds": [round(each, 2) for each in took],
        }
        for name, took in seconds.items()
    }
    columns = [column for column in found[PLAIN] if column != "seconds"]
    results_table.table(
        f"{rows} rows, rationales of up to {options.max_rationale_tokens} tokens",
        ["", *(column.replace("_", " ") for column in columns)],
        [[name, *(one[column] for column in columns)] for name, one in found.items()],
    )
    results_table.write(
        "model_formats",
        {
            "model": Path(options.directory).name,
            "rows": rows,
            "max_rationale_tokens": options.max_rationale_tokens,
            "contenders": found,
        },
        options.results,
    )


if __name__ == "__main__":
    main()
