"""Stress test of the promise that every answer parses, for any model, tokenizer, temperature and limit.

    python benchmarks/guarantee.py TOKENIZER TOKENIZER … [--engine transformers] [--answers 10000]

With `transformers`: for each tokenizer, random models whose weights have several standard deviations, each at
every temperature and every limit. With `vllm`: mixed limits and temperatures, 256 rows in flight, and a KV
cache so small that rows are preempted and computed again. Each answer is validated by jsonschema.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environment
import results_table
from compared_engines import LocaljudgeEngine
from random_model import load_tokenizer, random_prompts, write_llama

TEMPERATURES = (0.0, 1.0, 5.0)
RATIONALES = (1, 2, 7, 64, 256)
SPREADS = (0.02, 0.2, 0.5, 1.0, 3.0)
"""Standard deviations of the weights: predictions from almost uniform to almost certain."""


@dataclass(slots=True)
class AnswerCounts:
    """Counts of the answers so far."""

    answers: int = 0
    parsed: int = 0
    over_limit: int = 0
    without_answer: int = 0
    tokens: int = 0

    def add(self, tokens: list[int] | None, limit: int, vocabulary: Any, validator: Any) -> None:
        self.answers += 1
        if tokens is None:
            self.without_answer += 1
            return
        self.tokens += len(tokens)
        self.over_limit += len(tokens) > limit
        with suppress(ValueError, KeyError):
            self.parsed += validator.is_valid(json.loads(vocabulary.decode(tokens)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", type=Path, help="folders that hold a tokenizer.json")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--answers", type=int, help="10,000 with transformers, 5,000 with vllm")
    parser.add_argument("--models", type=int, default=10, help="random models for each tokenizer")
    parser.add_argument("--in-flight", type=int, default=256, help="rows in flight, with vllm")
    parser.add_argument("--kv-blocks", type=int, default=300, help="blocks of 32 tokens, with vllm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    environment.settle(cache_gib=1)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if options.engine == "transformers":
            found = with_transformers(options, Path(folder))
        else:
            found = with_vllm(options, Path(folder))
    found["seconds"] = round(time.perf_counter() - begin, 1)
    counted = ["answers", "parsed", "over_limit", "without_answer", "tokens", "preemptions", "seconds"]
    results_table.table(f"the guarantee, {options.engine}", counted, [[found.get(name) for name in counted]])
    results_table.write(f"guarantee-{options.engine}", found, options.results)
    if found["parsed"] != found["answers"] or found["over_limit"]:
        sys.exit(1)


def with_transformers(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from localjudge import Rubric
    from localjudge.constraint.compiler import closing_margin_for, token_table
    from localjudge.engines.engine_options import TransformersOptions
    from localjudge.engines.protocol import Decoding
    from localjudge.engines.transformers.transformers_engine import TransformersEngine
    from localjudge.models.model import Model
    from localjudge.prompts.task import Prompt

    _silence_transformers()
    asked = options.answers or 10_000
    settings = list(itertools.product(TEMPERATURES, RATIONALES))
    engines = len(options.tokenizers) * options.models * len(settings)
    shares = _shares(asked, engines)
    count, validator = AnswerCounts(), _validator()
    for tokenizer_folder in options.tokenizers:
        table = vocabulary = None
        for number in range(options.models):
            path = folder / f"{tokenizer_folder.name}-{number}"
            spread = SPREADS[number % len(SPREADS)]
            write_llama(path, load_tokenizer(tokenizer_folder), spread=spread, seed=options.seed + number)
            model = Model(path.name, path)
            if table is None:
                vocabulary = model.vocabulary
                table = token_table(
                    Rubric.load().answer_layout, vocabulary, model.prompts.spell, decodes_opening=True
                )
            for temperature, rationale in settings:
                rows = next(shares)
                decoding = Decoding(table, rationale, closing_margin_for(rationale), temperature)
                chosen = TransformersOptions(
                    batch_size=max(1, rows), device=None, dtype="float32", head_dtype="auto"
                )
                engine = TransformersEngine(model, decoding, chosen)
                prompts = random_prompts(rows, 8, vocabulary, seed=options.seed + number)
                for completions in engine.complete(Prompt(n, tokens, n) for n, tokens in enumerate(prompts)):
                    for one in completions:
                        count.add(
                            None if one.error else list(one.tokens), decoding.limit, vocabulary, validator
                        )
            print(f"{tokenizer_folder.name}, model {number + 1}: {count}", file=sys.stderr)
    return {
        "engine": "transformers",
        "tokenizers": [path.name for path in options.tokenizers],
        "models_per_tokenizer": options.models,
        "weight_spreads": SPREADS,
        "temperatures": TEMPERATURES,
        "max_rationale_tokens": RATIONALES,
        **_as_dict(count),
    }


def with_vllm(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    _silence_transformers()
    asked = options.answers or 5_000
    count, validator, preemptions = AnswerCounts(), _validator(), 0
    shares = _shares(asked, len(options.tokenizers))
    draw = random.Random(options.seed)
    for tokenizer_folder in options.tokenizers:
        path = folder / tokenizer_folder.name
        write_llama(path, load_tokenizer(tokenizer_folder), hidden=64, spread=0.5, seed=options.seed)
        ours = LocaljudgeEngine(
            path,
            {
                "dtype": "float32",
                "enforce_eager": True,
                "max_model_len": 512,
                "max_num_seqs": options.in_flight,
                "max_num_batched_tokens": 512,
                "block_size": 32,
                "num_gpu_blocks_override": options.kv_blocks,
            },
            limit=400,
        )
        rows = next(shares)
        limits = [ours.table.limit(draw.choice(RATIONALES)) for _ in range(rows)]
        temperatures = [draw.choice(TEMPERATURES) for _ in range(rows)]
        prompts = random_prompts(rows, 40, ours.model.vocabulary, seed=options.seed)
        measured = ours.run(prompts, limits, temperatures)
        preemptions += measured.preemptions
        for tokens, limit in zip(measured.answers, limits, strict=True):
            count.add(tokens, limit, ours.model.vocabulary, validator)
        print(f"{tokenizer_folder.name}: {count}, {preemptions} preemptions", file=sys.stderr)
        ours.close()
    return {
        "engine": "vllm",
        "tokenizers": [path.name for path in options.tokenizers],
        "temperatures": TEMPERATURES,
        "max_rationale_tokens": RATIONALES,
        "in_flight": options.in_flight,
        "kv_blocks": options.kv_blocks,
        "preemptions": preemptions,
        **_as_dict(count),
    }


def _shares(whole: int, parts: int) -> Iterator[int]:
    """Split a number into `parts` whole numbers that are as equal as possible."""
    return (whole * (part + 1) // parts - whole * part // parts for part in range(parts))


def _validator() -> Any:
    from jsonschema import Draft202012Validator

    from localjudge import Rubric

    return Draft202012Validator(Rubric.load().answer_layout.schema)


def _as_dict(count: AnswerCounts) -> dict[str, int]:
    return {name: getattr(count, name) for name in AnswerCounts.__slots__}


def _silence_transformers() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


if __name__ == "__main__":
    main()
