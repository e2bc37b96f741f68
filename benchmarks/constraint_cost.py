"""The cost of the token table inside vLLM, against no constraint and against vLLM's own structured output.

A small random model with a real vocabulary of 131,072 tokens decodes greedily, and every answer reaches the
same limit, because the model never closes its rationale. Each contender has its own engine and process; they
take turns, round by round, and the figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

import environment
import results_table
from compared_engines import EngineRun, LocaljudgeEngine, SeparateProcess, VllmAlone
from random_model import random_prompts, tekken_tokenizer, write_llama

CONTENDERS = ("none", "idle", "ours", "ours+p", "xgrammar", "guidance", "outlines")
"""`idle` is a logits processor that does nothing; `ours+p` keeps the probabilities of the scores."""

LIMITS = (64, 128, 256)


def main() -> None:
    options = _options()
    environment.settle(cache_gib=1)
    # The logits of 64 rows are just large enough for the C library to map new memory in each step; this
    # prevents it. It costs memory: about 2 GB for each contender, and 5 GB where rows are staggered.
    os.environ.setdefault("MALLOC_MMAP_MAX_", "0")
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**40))
    with tempfile.TemporaryDirectory() as folder:
        found = _measure(Path(folder), options)
    results_table.write("constraint_cost", found, options.results)


def _measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    tokenizer = tekken_tokenizer()
    model = write_llama(
        folder / "model",
        tokenizer,
        hidden=options.hidden,
        layers=2,
        heads=options.hidden // 32,
        spread=0.5,
        seed=options.seed,
    )
    table_cost, vocabulary = _table_cost(model)
    results_table.table("the table", list(table_cost), [list(table_cost.values())])
    most = max(options.rows)
    engine = {
        "max_model_len": 1024,
        "max_num_seqs": most,
        "dtype": "float32",
        "disable_log_stats": False,
        "enforce_eager": options.enforce_eager,
    }
    log = options.log or folder / "vllm.log"
    limit = max(*LIMITS, options.tokens * 3 // 2)
    contenders = {name: _start(name, model, engine, limit, log) for name in options.contenders}
    try:
        prompts = _never_closed(contenders, options, vocabulary, (4 if options.staggered else 1) * most)
        for contender in contenders.values():
            contender.call("run", prompts[:8], [48] * 8)
        speeds = {}
        for rows in options.rows:
            limits = [options.tokens] * rows
            runs = _rounds(contenders, options.rounds, lambda one: one.call("run", prompts[:rows], limits))  # noqa: B023
            speeds[f"{rows} rows in step"] = _speeds(runs)
            _show(f"{rows} rows in flight, {options.tokens} tokens each", speeds[f"{rows} rows in step"])
        if options.staggered:
            draw = random.Random(options.seed)
            limits = [draw.randint(options.tokens // 2, options.tokens * 3 // 2) for _ in prompts]
            quick = {name: one for name, one in contenders.items() if name != "outlines"}
            runs = _rounds(quick, options.staggered, lambda one: one.call("run", prompts, limits))
            what = f"{most} rows in flight of {len(prompts)}, limits of {min(limits)} to {max(limits)}"
            speeds[what] = _speeds(runs)
            _show(what, speeds[what])
        parsed = _parse_shares(contenders, prompts[: options.parse_rows], vocabulary)
    finally:
        for contender in contenders.values():
            contender.close()
    results_table.table(
        "share of answers that parse, by their limit",
        ["", *map(str, LIMITS)],
        [[name, *shares.values()] for name, shares in parsed.items()],
    )
    return {
        "model": {"hidden": options.hidden, "layers": 2, "vocabulary": vocabulary.size, "dtype": "float32"},
        "prompt_tokens": options.prompt_tokens,
        "output_tokens": options.tokens,
        "rounds": options.rounds,
        "table": table_cost,
        "output_tokens_per_second": speeds,
        "parse_share_by_limit": parsed,
    }


def _never_closed(
    contenders: dict[str, SeparateProcess], options: argparse.Namespace, vocabulary: Any, count: int
) -> list[list[int]]:
    """Return prompts whose answers never close their rationale, so that each answer is as long as its limit."""
    prompts = random_prompts(count + count // 3, options.prompt_tokens, vocabulary, options.seed)
    ours = next((one for name, one in contenders.items() if name.startswith("ours")), None)
    if ours is not None:
        longest = [options.tokens * 3 // 2] * max(options.rows)
        answers: list[Any] = []
        while len(answers) < len(prompts):
            wave = prompts[len(answers) : len(answers) + len(longest)]
            answers += ours.call("run", wave, longest).answers
        prompts = [prompt for prompt, one in zip(prompts, answers, strict=True) if len(one) == longest[0]]
    return prompts[:count]


def _start(name: str, model: Path, engine: dict[str, Any], limit: int, log: Path) -> SeparateProcess:
    if name.startswith("ours"):
        return SeparateProcess(log, LocaljudgeEngine, model, engine, limit, probabilities=name == "ours+p")
    backend = None if name in ("none", "idle") else name
    return SeparateProcess(log, VllmAlone, model, engine, backend, idle=name == "idle")


def _rounds(
    contenders: dict[str, SeparateProcess], rounds: int, run: Callable[[SeparateProcess], EngineRun]
) -> dict[str, list[EngineRun]]:
    """Run every contender once per round, so that a disturbance of the machine affects all of them.

    Outlines' backend, by far the slowest, takes part in the first round only.
    """
    runs: dict[str, list[EngineRun]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, contender in contenders.items():
            if number == 0 or name != "outlines":
                runs[name].append(run(contender))
    return runs


def _speeds(runs: dict[str, list[EngineRun]]) -> dict[str, dict[str, Any]]:
    """Return for each contender its median speed, and the median ratio of our speed to it within a round."""
    found = {}
    for name, measured in runs.items():
        entry: dict[str, Any] = {
            "median": round(median(run.speed for run in measured), 1),
            "all": [round(run.speed, 1) for run in measured],
            "tokens": measured[0].tokens,
        }
        if "none" in runs:
            entry["of_none"] = _ratio(measured, runs["none"])
            entry["of_none_95%"] = _interval(measured, runs["none"])
        for own in ("ours", "ours+p"):
            if own in runs:
                entry[f"{own}_to_this"] = _ratio(runs[own], measured)
        found[name] = entry
    return found


def _ratio(above: list[EngineRun], below: list[EngineRun]) -> float:
    """Return the median ratio of speeds within a round, over the rounds that both took part in."""
    return round(median(one.speed / other.speed for one, other in zip(above, below, strict=False)), 3)


def _interval(above: list[EngineRun], below: list[EngineRun]) -> tuple[float, float] | None:
    """Return a 95 % interval of that median, from its order statistics; None below six rounds."""
    ratios = sorted(one.speed / other.speed for one, other in zip(above, below, strict=False))
    count = len(ratios)
    # The chance that at most `out` of the ratios lie below the true median.
    chances = accumulate(comb(count, out) / 2**count for out in range(count))
    out = sum(chance <= 0.025 for chance in chances) - 1
    return None if out < 0 else (round(ratios[out], 3), round(ratios[-1 - out], 3))


def _show(title: str, speeds: dict[str, dict[str, Any]]) -> None:
    columns = ("of_none", "of_none_95%", "ours_to_this", "ours+p_to_this")
    keys = [key for key in columns if key in next(iter(speeds.values()))]
    results_table.table(
        title,
        ["", "tokens/s", *(key.replace("_", " ") for key in keys)],
        [[name, entry["median"], *(entry[key] for key in keys)] for name, entry in speeds.items()],
    )


def _parse_shares(
    contenders: dict[str, SeparateProcess], prompts: list[list[int]], vocabulary: Any
) -> dict[str, dict[str, float]]:
    from jsonschema import Draft202012Validator

    from localjudge import Rubric

    validator = Draft202012Validator(Rubric.load().answer_layout.schema)

    def parses(tokens: list[int] | None) -> bool:
        text = b"".join(vocabulary.pieces.get(token, b"") for token in tokens or [])
        try:
            return bool(validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    shares: dict[str, dict[str, float]] = {}
    for name, contender in contenders.items():
        if name in ("idle", "ours"):
            continue  # the same answers as without a constraint, and as with probabilities
        shares[name] = {}
        for limit in LIMITS:
            answers = contender.call("run", prompts, [limit] * len(prompts)).answers
            shares[name][str(limit)] = sum(map(parses, answers)) / len(answers)
    return shares


def _table_cost(folder: Path) -> tuple[dict[str, float], Any]:
    """Measure seconds and MB of the table, and of Outlines' index alone."""
    import outlines_core
    from outlines_core.json_schema import build_regex_from_schema

    from localjudge import Rubric
    from localjudge.constraint.compiler import token_table
    from localjudge.models.model import Model

    model, rubric = Model(folder.name, folder), Rubric.load()
    _ = model.tokenizer, model.end_tokens, model.prompts
    begin = time.perf_counter()
    vocabulary = model.vocabulary
    read = time.perf_counter()
    table = token_table(rubric.answer_layout, vocabulary, model.prompts.spell)
    built = time.perf_counter()
    expression = build_regex_from_schema(json.dumps(rubric.answer_layout.schema), whitespace_pattern="")
    pieces: dict[bytes, list[int]] = {}
    for token, piece in vocabulary.pieces.items():
        pieces.setdefault(piece, []).append(token)
    start = time.perf_counter()
    outlines_core.Index(expression, outlines_core.Vocabulary(vocabulary.size, pieces))
    indexed = time.perf_counter()
    return {
        "states": len(table.distance),
        "shortest_answer_tokens": table.smallest_limit,
        "vocabulary_s": round(read - begin, 3),
        "build_s": round(built - read, 3),
        "outlines_index_alone_s": round(indexed - start, 3),
        "memory_mb": round(table.next_state.nbytes / 1e6, 1),
    }, vocabulary


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 128], help="rows in flight")
    parser.add_argument("--tokens", type=int, default=200, help="the limit of an answer")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--staggered", type=int, default=0, help="rounds with rows at different positions of their answers"
    )
    parser.add_argument("--parse-rows", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="file for vLLM's output")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
