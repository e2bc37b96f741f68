"""The share of prompt tokens that come from the prefix cache: in input order, in our order, and at most.

    python benchmarks/prefix.py rows.jsonl [more.jsonl] [--model DIR] [--cache-tokens 24576] [--block-size 32]
        [--rubric FILE|NAME …] [--engine-arg dtype=float32 …]
    python benchmarks/prefix.py rows.jsonl --count --tokenizer DIR [DIR …] --rubric FILE|NAME [FILE|NAME …]
        [--pairs all]

The input has rows of several systems for the same instructions and references, one system after the other. The
engine's cache is too small for all of them, as in a real sweep. The maximum is not measured: it counts
every block of a prompt that is also in the prefix of an earlier prompt.

With `--count` no engine runs: for each rubric and tokenizer (without chat template) it counts the tokens of a
prompt, and those that are computed if the rows of an instruction follow each other and everything is kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import pairwise, product, takewhile
from pathlib import Path
from typing import Any

import results_table
from transformers import PreTrainedTokenizerFast

from localjudge import Judge, Row, Rubric
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task_builder import TaskBuilder
from localjudge.rows.inputs import find_inputs, read_rows
from localjudge.rows.pairs import Pairing
from localjudge.rubrics.rubric import DEFAULT_RUBRIC
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_plan import RunPlan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--model")
    parser.add_argument("--cache-tokens", type=int, default=24_576)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--rubric", nargs="+", default=[DEFAULT_RUBRIC])
    parser.add_argument("--engine-arg", action="append", default=[])
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--pairs", choices=["all"])
    parser.add_argument("--tokenizer", nargs="+", default=[])
    options = parser.parse_args()

    if options.count:
        count(options)
        return
    rows = [row for row in read_rows(find_inputs(options.inputs)) if isinstance(row, Row)]
    rows.sort(key=lambda row: row.system or "")
    results_table.write("prefix", {name: measured(options, name, rows) for name in options.rubric})


def count(options: argparse.Namespace) -> None:
    found = {}
    for name, folder in product(options.rubric, options.tokenizer):
        rubric = Rubric.load(name)
        encoder = PromptEncoder(PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json"))
        builder = TaskBuilder(rubric, encoder, None, 0)
        pairing = Pairing.parse(rubric.fields, "both", options.pairs, None, None, 0)
        source = RowSource.from_files(options.inputs, used=rubric.fields, pairing=pairing)
        rows = [row for row in source.rows if isinstance(row, Row) and rubric.refusal(row) is None]
        rows.sort(key=lambda row: row.group)
        prompts = [task.tokens for task in builder.tasks(rows) if task.tokens]
        if prompts:
            pairs = pairwise([[], *prompts])
            computed = sum(len(prompt) - shared(before, prompt) for before, prompt in pairs)
            means = [sum(map(len, prompts)) / len(prompts), computed / len(prompts)]
            found[f"{Path(name).stem}, {Path(folder).name}"] = [len(prompts), *means]
    results_table.table(
        f"Tokens of a prompt, {', '.join(Path(name).name for name in options.inputs)}",
        ["rubric, tokenizer", "prompts", "tokens", "computed"],
        [[name, *map(round, means)] for name, means in found.items()],
    )


def shared(one: list[int], other: list[int]) -> int:
    """Return the number of tokens with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def measured(options: argparse.Namespace, rubric: str, rows: list[Row]) -> dict[str, Any]:
    judge = judge_of(options, rubric)
    rows = [row for row in rows if fits(judge, row)]
    prompts = [judge.task_builder.task(row).tokens for row in rows]
    with RunPlan(judge, rows) as plan:
        ours = [row for row in plan if isinstance(row, Row)]
    shares = {
        "input order": cached_share(options, rubric, rows),
        "ours": cached_share(options, rubric, ours),
        "most possible": most_possible(prompts, options.block_size),
    }
    systems = len({row.system for row in rows})
    found: dict[str, Any] = {
        "rows": len(rows),
        "systems": systems,
        "prompt_tokens": sum(map(len, prompts)),
        "cache_tokens": options.cache_tokens,
        "block_size": options.block_size,
        "cached_share": shares,
        "below_the_most_possible": shares["most possible"] - shares["ours"],
    }
    results_table.table(
        f"{rubric}: share of prompt tokens from the prefix cache, {len(rows)} rows of {systems} systems",
        ["order", "share"],
        [[name, share] for name, share in shares.items()],
    )
    return found


def judge_of(options: argparse.Namespace, rubric: str) -> Judge:
    """Create a judge whose engine has an empty cache."""
    return Judge(
        options.model,
        rubric=rubric,
        engine="vllm",
        max_rationale_tokens=8,
        engine_args={
            "block_size": str(options.block_size),
            "num_gpu_blocks_override": str(options.cache_tokens // options.block_size),
            "max_num_seqs": str(options.max_num_seqs),
            "enforce_eager": "true",
            **dict(argument.split("=", 1) for argument in options.engine_arg),
        },
    )


def fits(judge: Judge, row: Row) -> bool:
    return judge.task_builder.task(row).error is None


def cached_share(options: argparse.Namespace, rubric: str, rows: Iterable[Row]) -> float:
    judge = judge_of(options, rubric)
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
