"""The transformers engine on a CPU beside an earlier version, vLLM's CPU build, and the products alone.

    python models/smollm2.py --out smollm2
    mkdir earlier && git archive COMMIT | tar x -C earlier
    python benchmarks/transformers_speed.py rows.jsonl --model smollm2 --earlier earlier [--vllm PYTHON]
        [--tokens 64 256] [--dtypes float32 bfloat16] [--count 48]

All contenders judge the same distinct rows, greedily, with the rubric `just-eval`, in batches of 16; each is a
process of its own, and they take turns, round by round. The prefix cache of vLLM is empty at the beginning of a
round; transformers keeps nothing between batches. A limit of 0 means `six-aspects` without a rationale.

`floor` is what cannot be saved: the products of the model's linear layers with the tokens that were computed,
a prompt at a time and then, in each step that the run took, a token of each row in it; and one reading of the
keys and values at each step. Both are measured after each round.

In float32, the answers of both versions must be equal up to a token whose logit is less than 1e-4 below the
largest allowed one. So each answer that differs is computed again without a cache up to the first difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

BATCH = 16
FEW_TOKENS = 16
"""A pass with more tokens a row computes prompts, one with fewer a step of the answers."""
NEARLY_EQUAL = 1e-4


class Contender:
    """A process that judges rows when it is told to."""

    def __init__(self, python: str, tree: Path, engine: str, dtype: str, tokens: int, options: Any) -> None:
        words = [__file__, *options.inputs, "--model", options.model, "--count", str(options.count)]
        words += ["--serve", engine, "--dtypes", dtype, "--tokens", str(tokens)]
        environment = os.environ | {"PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        environment |= {
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
        self._process = subprocess.Popen(
            [python, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.call("open")

    def call(self, request: str) -> Any:
        """Return the answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(request, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a contender has died; its output is above")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(options: argparse.Namespace) -> None:
    """Judge rows whenever a line arrives, and print the seconds, the processor's seconds and the answers."""
    answers, sys.stdout = sys.stdout, sys.stderr
    from throughput import judged_rows

    import localjudge
    from localjudge.prompts.task import Prompt

    vllm = options.serve == "vllm"
    arguments: dict[str, Any] = {"dtype": options.dtypes[0]}
    arguments |= (
        {"max_num_seqs": BATCH, "enforce_eager": True, "max_model_len": 4096} if vllm else {"batch_size": BATCH}
    )
    rationale: dict[str, Any] = {"max_rationale_tokens": options.tokens[0]}
    if not options.tokens[0]:
        rationale = {"rubric": localjudge.Rubric.load("six-aspects", rationale="none")}
    judge = localjudge.Judge(options.model, engine=options.serve, engine_args=arguments, **rationale)
    rows = judged_rows(judge, options.inputs, options.count)
    prompts = [Prompt(n, judge.task_builder.task(row).tokens, n) for n, row in enumerate(rows)]
    engine: Any = judge.engine
    passes: list[tuple[int, int]] = []
    if not vllm:
        engine._model.register_forward_pre_hook(
            lambda _model, _words, inputs: passes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
        )
    for line in sys.stdin:
        found: Any = None
        words = line.split()
        if words[0] == "run":
            some = prompts[: int(words[1])]
            if vllm:
                engine.llm.reset_prefix_cache()
            passes.clear()
            begin, cpu = time.perf_counter(), time.process_time()
            finished = [each for some in engine.complete(some) for each in some]
            found = {
                "seconds": time.perf_counter() - begin,
                "cpu_seconds": time.process_time() - cpu,
                "answers": [list(each.tokens) for each in sorted(finished, key=lambda each: each.tag)],
            }
        elif words[0] == "prompts":
            found = [each.tokens for each in prompts]
        elif words[0] == "floor":
            found = floor(engine._model, [len(each.tokens) for each in prompts], [*passes])
        elif words[0] == "difference":
            found = difference(judge, json.loads(line.split(maxsplit=1)[1]))
        print(json.dumps(found), file=answers, flush=True)


def floor(model: Any, lengths: list[int], passes: list[tuple[int, int]]) -> dict[str, float]:
    """Return the seconds that the products and the reading of the cache take at the least.

    Args:
        model: the model.
        lengths: number of tokens of each prompt.
        passes: the rows and the tokens of each row of the passes that a run took.
    """
    import torch

    config = model.config
    *layers, head = (each for each in model.modules() if isinstance(each, torch.nn.Linear))

    @torch.inference_mode()
    def products(rows: int, *, logits: bool) -> float:
        inputs = {
            each.in_features: torch.randn(rows, each.in_features, dtype=model.dtype) for each in [*layers, head]
        }
        begin = time.perf_counter()
        for each in [*layers, *[head] * logits]:
            each(inputs[each.in_features])
        return time.perf_counter() - begin

    @torch.inference_mode()
    def reading(tokens: int) -> float:
        width = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        kept = torch.zeros(tokens * width, dtype=model.dtype)
        begin = time.perf_counter()
        kept.sum()
        return time.perf_counter() - begin

    typical = int(median(lengths))
    prompts = median(products(typical, logits=False) for _ in range(5)) / typical * sum(lengths)
    steps = [rows for rows, tokens in passes if tokens <= FEW_TOKENS]
    rows = round(sum(steps) / len(steps))
    step = median(products(rows, logits=True) for _ in range(9))
    step += median(reading(rows * typical) for _ in range(5))
    return {"prompts": prompts, "steps": step * len(steps)}


def difference(judge: Any, request: dict[str, Any]) -> float:
    """Return how far the logits of two tokens are apart after a prompt and an answer's beginning."""
    import torch

    tokens = torch.tensor([[*request["prompt"], *request["before"]]])
    with torch.inference_mode():
        logits = judge.engine._model(input_ids=tokens, use_cache=False, logits_to_keep=1).logits[0, -1].float()
    one, other = request["tokens"]
    return abs(float(logits[one] - logits[other]))


def differences(contender: Contender, prompts: list[list[int]], one: Any, other: Any) -> list[float]:
    """Return, for each pair of answers that differ, how far the first tokens that differ are apart."""
    found = []
    for prompt, mine, theirs in zip(prompts, one, other, strict=True):
        if mine != theirs:
            place = next(n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
            request = {"prompt": prompt, "before": mine[:place], "tokens": [mine[place], theirs[place]]}
            found.append(contender.call("difference " + json.dumps(request)))
    return found


def measure(dtype: str, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all contenders at one limit of a rationale."""
    here = Path(__file__).resolve().parent.parent
    contenders = {"now": Contender(sys.executable, here, "transformers", dtype, tokens, options)}
    if options.earlier:
        contenders["earlier"] = Contender(
            sys.executable, options.earlier, "transformers", dtype, tokens, options
        )
    if options.vllm:
        contenders["vllm"] = Contender(options.vllm, here, "vllm", dtype, tokens, options)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    floors = []
    now = contenders["now"]
    for _ in range(options.rounds):
        for name, each in contenders.items():
            runs[name].append(each.call(f"run {options.count}"))
        floors.append(sum(now.call("floor").values()))
    prompts = now.call("prompts")
    answers = {name: run[-1]["answers"] for name, run in runs.items()}
    figures: dict[str, Any] = {
        "rows": len(prompts),
        "prompt_tokens": round(sum(map(len, prompts)) / len(prompts)),
        "answer_tokens": round(sum(map(len, answers["now"])) / len(prompts)),
        "floor_seconds": round(median(floors), 2),
        "to_floor": round(
            median(run["seconds"] / least for run, least in zip(runs["now"], floors, strict=True)), 2
        ),
        "contenders": {},
    }
    for name, found in runs.items():
        figures["contenders"][name] = {
            "seconds": round(median(run["seconds"] for run in found), 2),
            "cpu_seconds": round(median(run["cpu_seconds"] for run in found), 2),
            "speed_to_now": round(
                median(a["seconds"] / b["seconds"] for a, b in zip(runs["now"], found, strict=True)), 3
            ),
            "cpu_speed_to_now": round(
                median(a["cpu_seconds"] / b["cpu_seconds"] for a, b in zip(runs["now"], found, strict=True)), 3
            ),
            "equal_answers": sum(a == b for a, b in zip(answers["now"], answers[name], strict=True)),
            "all_seconds": [round(run["seconds"], 2) for run in found],
        }
    if "earlier" in answers:
        apart = differences(now, prompts, answers["now"], answers["earlier"])
        figures["largest_difference_of_logits"] = round(max(apart, default=0.0), 7)
        if dtype == "float32" and figures["largest_difference_of_logits"] > NEARLY_EQUAL:
            print("answers differ where the logits do not nearly agree", file=sys.stderr)
    for each in contenders.values():
        each.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="files of rows")
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--earlier", type=Path, help="the tree of an earlier version")
    parser.add_argument("--vllm", help="the Python of an environment with vLLM for CPUs")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[64, 256], help="limits of a rationale; 0: none"
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--count", type=int, default=48, help="number of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="transformers_speed", help="name of the results")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return

    import results_table

    found = {
        f"{dtype}, {tokens} tokens": measure(dtype, tokens, options)
        for dtype in options.dtypes
        for tokens in options.tokens
    }
    columns = ["seconds", "cpu_seconds", "speed_to_now", "cpu_speed_to_now", "equal_answers"]
    for title, figures in found.items():
        rest = {name: value for name, value in figures.items() if name != "contenders"}
        results_table.table(
            f"{title}: {', '.join(f'{name} {value}' for name, value in rest.items())}".replace("_", " "),
            ["", *(column.replace("_", " ") for column in columns)],
            [[name, *(one[column] for column in columns)] for name, one in figures["contenders"].items()],
        )
    results_table.write(options.name, {"model": Path(options.model).name, "measured": found})


if __name__ == "__main__":
    main()
