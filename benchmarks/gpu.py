"""A judge of real size on a GPU, with dummy weights: the cost of the table, and the limits of the GPU.

    python benchmarks/gpu.py [--rows 1024] [--rounds 2] [--max-num-seqs 256]
    python benchmarks/gpu.py --shape tiny --device-check off --rows 16      # a test on a CPU

The model has the shape of Qwen3-8B; the prompts are those of the default rubric, with several systems per
instruction. Our constraint, no constraint, and vLLM's own structured output take turns in one engine on the
same prompts, from an empty prefix cache. A model with dummy weights closes its rationale at random, so ours
goes first, and each row of the others gets as many tokens as ours took for it. Without a constraint the end
token is ignored, so that the work is equal.

The floor is the shortest time in which the GPU could do the necessary work, at the speeds measured on it for a
large matrix product and a large copy. It is the larger of two times: operations (weights and attention, for the
prompt tokens that were not cached and for the output tokens) divided by operations per second, and bytes
(weights once per step, with at least as many steps as the rows in flight allow; keys and values read and
written) divided by bytes per second.

Then the rubrics of two orders of the same sentences, with six systems per instruction: what all rows share
after the row's text, and before it. Each starts from an empty prefix cache; the answers have no rationale, or
at most 64 tokens of one, and each round takes the rubrics in turn.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import tempfile
import time
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import results_table
from compared_engines import EngineRun, LocaljudgeEngine, VllmAlone, structured_outputs
from random_model import tekken_tokenizer, write_shape

_QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
_TINY = {
    "head_dim": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 4096,
    "max_window_layers": 2,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
}
ORDERS = {
    "just-eval": "just-eval",
    "just-eval-first": "just-eval-first",
    "six-aspects, row first": str(Path(__file__).parent / "rubrics" / "six-aspects-row-first.toml"),
    "six-aspects": "six-aspects",
}
SYSTEMS_OF_ORDERS = 6
SHAPES = {"qwen3-8b": _QWEN3_8B, "tiny": {**_QWEN3_8B, **_TINY}}

_WORDS = (
    *(
        "the",
        "of",
        "to",
        "in",
        "that",
        "it",
        "is",
        "was",
        "for",
        "on",
        "with",
        "as",
        "by",
        "at",
        "from",
        "this",
    ),
    *("answer", "question", "people", "water", "light", "work", "time", "year", "number", "part", "place"),
    *("world", "under", "over", "because", "while", "first", "second", "value", "reason", "step", "result"),
    *("example", "method", "history", "science", "river", "city", "engine", "letter", "market", "music"),
)


def main() -> None:
    options = _options()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    peak = None
    if options.device_check == "on":
        # In a separate process, so that no memory of it stays on the GPU.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peak = pool.apply(measure_peak)
        results_table.table("the GPU, measured", list(peak), [list(peak.values())])
    with tempfile.TemporaryDirectory() as folder:
        measure(options, Path(folder), peak)


def measure(options: argparse.Namespace, folder: Path, peak: dict[str, float] | None) -> None:
    """Measure, print and write; what is complete is written at once, because time on a GPU may end early."""
    shape = SHAPES[options.shape]
    model = write_shape(folder / options.shape, tekken_tokenizer(), shape)
    prompts = judge_prompts(model, "just-eval", options.rows, options.systems, options.seed)
    ordered = {
        name: judge_prompts(model, rubric, options.order_rows, SYSTEMS_OF_ORDERS, options.seed)
        for name, rubric in ORDERS.items()
        if options.order_rows
    }
    limit = options.tokens
    begin = time.perf_counter()
    ours = LocaljudgeEngine(
        model,
        {
            "load_format": "dummy",
            "dtype": "bfloat16",
            "skip_tokenizer_init": False,  # vLLM's structured output needs it
            "structured_outputs_config": structured_outputs(options.against),
            "max_model_len": max(map(len, [*prompts, *chain(*ordered.values())])) + limit,
            "max_num_seqs": options.max_num_seqs,
            **({"gpu_memory_utilization": options.gpu_memory_utilization} if peak else {}),
            **dict(pair.split("=", 1) for pair in options.engine_arg),
        },
        limit,
    )
    load = time.perf_counter() - begin
    in_flight = ours.engine.in_flight
    contenders: dict[str, LocaljudgeEngine | VllmAlone] = {
        "ours": ours,
        "none": VllmAlone(model, {}, None, in_flight=in_flight, llm=ours.llm),
        options.against: VllmAlone(model, {}, options.against, in_flight=in_flight, llm=ours.llm),
    }
    limits = [limit] * len(prompts)
    for contender in contenders.values():
        contender.run(prompts[: options.max_num_seqs // 4], [64] * len(prompts))
    runs: dict[str, list[EngineRun]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        work = limits
        for name, contender in contenders.items():
            runs[name].append(contender.run(prompts, work))
            if contender is ours:
                # The others produce as many tokens for each row as ours, including the end token.
                work = [min(len(answer or []) + 1, limit) for answer in runs[name][-1].answers]
            print(f"{name}: {runs[name][-1].seconds:.1f} s", flush=True)

    found: dict[str, Any] = {
        "shape": options.shape,
        "parameters": _parameters(shape)["all"],
        "rows": len(prompts),
        "prompt_tokens": sum(map(len, prompts)),
        "limit": limit,
        "engine": ours.engine.info.model_dump(mode="json"),
        "load_s": round(load, 1),
        "peak": peak,
        "contenders": {name: summary(measured, prompts) for name, measured in runs.items()},
        "ours_to_none": _ratio(runs["ours"], runs["none"]),
        f"ours_to_{options.against}": _ratio(runs["ours"], runs[options.against]),
        "answers_complete": _complete_share(ours, runs["ours"][-1]),
        "orders": {"rows": options.order_rows, "systems": SYSTEMS_OF_ORDERS},
    }
    if peak:
        for name, measured in runs.items():
            last = sorted(measured, key=lambda run: run.seconds)[len(measured) // 2]
            least = floor(shape, prompts, last, options.max_num_seqs, peak)
            found["contenders"][name]["floor"] = least | {"share": round(least["seconds"] / last.seconds, 3)}
    results_table.table(
        f"{options.shape}, {len(prompts)} rows; ours runs at {found['ours_to_none']} of unconstrained speed",
        ["", "rows/s", "prompt tokens/s", "output tokens/s", "cached prompt share", "share of the floor"],
        [
            [
                name,
                one["rows_per_second"],
                one["prompt_tokens_per_second"],
                one["output_tokens_per_second"],
                one["cached_prompt_share"],
                one.get("floor", {}).get("share"),
            ]
            for name, one in found["contenders"].items()
        ],
    )
    results = f"gpu-{options.shape}" if options.shape != "qwen3-8b" else "gpu"
    results_table.write(results, found, options.results)
    for rationale, most in (("no rationale", 0), ("64 tokens", 64)):
        if not ordered:
            break
        by_rubric = _of_orders(options, shape, ours, ordered, most, peak)
        results_table.table(
            f"{options.order_rows} rows of {SYSTEMS_OF_ORDERS} systems, {rationale}",
            ["rubric", "prompt tokens", "of them computed", "seconds", "rows/s"],
            [
                [name, one["prompt_tokens"], one["computed"], one["seconds"], one["rows_per_second"]]
                for name, one in by_rubric.items()
            ],
        )
        found["orders"][rationale] = by_rubric
        results_table.write(results, found, options.results)


def _of_orders(
    options: argparse.Namespace,
    shape: dict[str, Any],
    ours: LocaljudgeEngine,
    ordered: dict[str, list[list[int]]],
    rationale: int,
    peak: dict[str, float] | None,
) -> dict[str, Any]:
    """Return the speed with the prompts of each rubric, and at most so many tokens of a rationale."""
    runs: dict[str, list[EngineRun]] = {name: [] for name in ordered}
    for _ in range(options.rounds):
        for name, prompts in ordered.items():
            runs[name].append(ours.run(prompts, [ours.table.smallest_limit + rationale] * len(prompts)))
    found = {}
    for name, prompts in ordered.items():
        seconds, tokens = median(run.seconds for run in runs[name]), sum(map(len, prompts))
        found[name] = {
            "prompt_tokens": tokens,
            "computed": tokens - runs[name][-1].cached,
            "seconds": round(seconds, 2),
            "rows_per_second": round(len(prompts) / seconds, 2),
            "output_tokens": runs[name][-1].tokens,
        }
        if peak:
            least = floor(shape, prompts, runs[name][-1], options.max_num_seqs, peak)
            found[name]["floor_s"] = least["seconds"]
    return found


def judge_prompts(folder: Path, rubric: str, rows: int, systems: int, seed: int) -> list[list[int]]:
    """Return prompts of a rubric for random text of realistic length."""
    from localjudge import Row, Rubric
    from localjudge.models.model import Model

    draw = random.Random(seed)
    model = Model(folder.name, folder)
    asked = Rubric.load(rubric)

    def text(shortest: int, longest: int) -> str:
        return " ".join(draw.choices(_WORDS, k=draw.randint(shortest, longest)))

    prompts: list[list[int]] = []
    while len(prompts) < rows:
        instruction, reference = text(20, 80), text(80, 250)
        for _ in range(min(systems, rows - len(prompts))):
            row = Row.from_response(instruction=instruction, candidate=text(80, 350), reference=reference)
            prompts.append(model.prompts.encode(asked.text(row)))
    return prompts


def summary(runs: list[EngineRun], prompts: list[list[int]]) -> dict[str, Any]:
    seconds = median(run.seconds for run in runs)
    prompt_tokens = sum(map(len, prompts))
    return {
        "seconds": [round(run.seconds, 2) for run in runs],
        "rows_per_second": round(len(prompts) / seconds, 2),
        "prompt_tokens_per_second": round(prompt_tokens / seconds, 1),
        "output_tokens_per_second": round(runs[-1].tokens / seconds, 1),
        "output_tokens": runs[-1].tokens,
        "cached_prompt_share": round(runs[-1].cached / prompt_tokens, 4),
        "preemptions": runs[-1].preemptions,
    }


def floor(
    shape: dict[str, Any], prompts: list[list[int]], run: EngineRun, in_flight: int, peak: dict[str, float]
) -> dict[str, float]:
    """Return the shortest time that this run's work can take on this GPU, see the top of this file."""
    weights = _parameters(shape)
    outputs = [len(answer or []) for answer in run.answers]
    lengths = list(zip(map(len, prompts), outputs, strict=True))
    computed = sum(map(len, prompts)) - run.cached + sum(outputs)
    # A token attends to all tokens before it. The cache saves about the same share of pairs as of tokens.
    share = 1 - run.cached / sum(map(len, prompts))
    decoded_pairs = sum(output * prompt + output * output / 2 for prompt, output in lengths)
    pairs = share * sum(prompt * prompt / 2 for prompt, _ in lengths) + decoded_pairs
    per_pair = 4 * shape["num_attention_heads"] * shape["head_dim"] * shape["num_hidden_layers"]
    operations = 2 * weights["layers"] * computed + 2 * weights["head"] * sum(outputs) + per_pair * pairs

    key_values = 2 * 2 * shape["num_key_value_heads"] * shape["head_dim"] * shape["num_hidden_layers"]
    steps = max(max(outputs, default=0), math.ceil(sum(outputs) / in_flight))
    moved = steps * 2 * (weights["layers"] + weights["head"]) + key_values * (decoded_pairs + computed)
    by_operations = operations / peak["operations_per_second"]
    by_bytes = moved / peak["bytes_per_second"]
    return {
        "seconds": round(max(by_operations, by_bytes), 3),
        "by_operations_s": round(by_operations, 3),
        "by_bytes_s": round(by_bytes, 3),
        "steps": steps,
    }


def measure_peak(size: int = 8192, gibibytes: int = 4) -> dict[str, float]:
    """Measure operations per second of a bfloat16 matrix product, and bytes per second of a copy."""
    import torch

    def fastest(work: Any, times: int = 30) -> float:
        seconds = []
        for _ in range(times):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end) / 1e3)
        return min(seconds[5:])

    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    multiplied = fastest(lambda: torch.matmul(left, right, out=product))
    source = torch.empty(gibibytes * 2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = fastest(lambda: target.copy_(source))
    return {
        "operations_per_second": 2 * size**3 / multiplied,
        "bytes_per_second": 2 * source.numel() / copied,  # read once, written once
    }


def _parameters(shape: dict[str, Any]) -> dict[str, int]:
    """Count the weights that each token uses: in the layers, in the head, and all with the embeddings."""
    hidden, width = shape["hidden_size"], shape["head_dim"]
    heads, shared = shape["num_attention_heads"] * width, shape["num_key_value_heads"] * width
    layer = hidden * (2 * heads + 2 * shared) + 3 * hidden * shape["intermediate_size"]
    layers, head = layer * shape["num_hidden_layers"], hidden * shape["vocab_size"]
    return {"layers": layers, "head": head, "all": layers + 2 * head}


def _ratio(above: list[EngineRun], below: list[EngineRun]) -> float:
    """Return the median over the rounds of the ratio of output tokens per second."""
    return round(median(one.speed / other.speed for one, other in zip(above, below, strict=True)), 3)


def _complete_share(ours: LocaljudgeEngine, run: EngineRun) -> float:
    """Return the share of answers that the rubric can parse."""
    from localjudge import Rubric

    rubric, complete = Rubric.load(), 0
    for tokens in run.answers:
        try:
            rubric.parse(ours.model.vocabulary.decode(tokens or []))
            complete += 1
        except ValueError:
            continue
    return complete / len(run.answers)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-8b")
    parser.add_argument(
        "--device-check", choices=("on", "off"), default="on", help="measure the peak speeds of the GPU"
    )
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--systems", type=int, default=4, help="rows that share instruction and reference")
    parser.add_argument(
        "--order-rows", type=int, default=516, help="rows for both orders of sentences; 0: none"
    )
    parser.add_argument("--tokens", type=int, default=290, help="token limit of an answer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--against", default="xgrammar", choices=("xgrammar", "guidance", "outlines"))
    parser.add_argument(
        "--engine-arg", action="append", default=[], metavar="KEY=VALUE", help="vLLM's own options"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
