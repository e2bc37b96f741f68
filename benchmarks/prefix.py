"""The share of prompt tokens that come from the prefix cache: in input order, in our order, and at most.

    python benchmarks/prefix.py rows.jsonl [more.jsonl] [--model DIR] [--cache-tokens 24576] [--block-size 32]

The input has rows of several systems for the same instructions and references, one system after the other. The
engine's cache is too small for all of them, as in a real sweep. The maximum is not measured: it counts
every block of a prompt that is also in the prefix of an earlier prompt.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import results_table

from localjudge import Judge, Row
from localjudge.rows.inputs import find_inputs, read_rows
from localjudge.runs.run_plan import RunPlan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--model")
    parser.add_argument("--cache-tokens", type=int, default=24_576)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--max-num-seqs", type=int, default=16)
    options = parser.parse_args()

    rows = [row for row in read_rows(find_inputs(options.inputs)) if isinstance(row, Row)]
    rows.sort(key=lambda row: row.system or "")
    judge = judge_of(options)
    rows = [row for row in rows if fits(judge, row)]
    prompts = [judge.task_builder.task(row).tokens for row in rows]
    with RunPlan(judge, rows) as plan:
        ours = [row for row in plan if isinstance(row, Row)]
    shares = {
        "input order": cached_share(options, rows),
        "ours": cached_share(options, ours),
        "most possible": most_possible(prompts, options.block_size),
    }
    systems = len({row.system for row in rows})
    found = {
        "rows": len(rows),
        "systems": systems,
        "prompt_tokens": sum(map(len, prompts)),
        "cache_tokens": options.cache_tokens,
        "block_size": options.block_size,
        "cached_share": shares,
        "below_the_most_possible": shares["most possible"] - shares["ours"],
    }
    results_table.table(
        f"Share of prompt tokens from the prefix cache, {len(rows)} rows of {systems} systems",
        ["order", "share"],
        [[name, share] for name, share in shares.items()],
    )
    results_table.write("prefix", found)


def judge_of(options: argparse.Namespace) -> Judge:
    """Create a judge whose engine has an empty cache."""
    return Judge(
        options.model,
        engine="vllm",
        max_rationale_tokens=8,
        engine_args={
            "block_size": str(options.block_size),
            "num_gpu_blocks_override": str(options.cache_tokens // options.block_size),
            "max_num_seqs": str(options.max_num_seqs),
            "enforce_eager": "true",
        },
    )


def fits(judge: Judge, row: Row) -> bool:
    return judge.task_builder.task(row).error is None


def cached_share(options: argparse.Namespace, rows: Iterable[Row]) -> float:
    judge = judge_of(options)
    judge.configure_engine(max(len(judge.task_builder.task(row).tokens) for row in rows), None)
    for _ in judge.score(rows):
        pass
    counted = judge.engine.statistics()
    return float(counted["cached_prompt_tokens"] / counted["prompt_tokens"])


def most_possible(prompts: list[list[int]], block: int) -> float:
    """Return the share that an unlimited cache would serve, in any order of the rows.

    A cache serves whole blocks and never the whole prompt, because the last token is always computed.
    """
    seen: set[tuple[int, int]] = set()
    served = 0
    for tokens in prompts:
        prefix = 0
        for end in range(block, len(tokens), block):
            prefix = hash((prefix, *tokens[end - block : end]))
            served += block if (end, prefix) in seen else 0
            seen.add((end, prefix))
    return served / sum(map(len, prompts))


if __name__ == "__main__":
    main()
