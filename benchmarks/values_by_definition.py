"""The probabilities of values beside their definition: each value is given to the model, token by token.

    python benchmarks/values_by_definition.py rows.jsonl --model DIR [--engine vllm] [--rows 60]
    python benchmarks/values_by_definition.py --random-model 60 --engine vllm      # rows and model are made up

Each rubric has two aspects of one scale, and no rationale; both engines compute in float32. The definition is
computed by plain passes of the model in transformers, on a GPU if there is one (`tests/value_oracle.py`).
`largest difference` is of expected scores, or for labels, which have no order, of probabilities. Of it, up to
`--unexplored` of the scale comes from values that the model is not asked for; `--unexplored 0` asks for all.

`likeliest` is the share of written values that are the likeliest values. Decoding is greedy: it writes the
likeliest branch at each token, which is not the likeliest value where the branches of that value are many.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from random_model import load_tokenizer, tekken_tokenizer, write_llama
from throughput import judged_rows

from localjudge import Judge, Row, Rubric
from localjudge.constraint import value_paths
from localjudge.prompts.task import Prompt

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from value_oracle import total_variation, values_one_by_one

ASPECTS: dict[str, dict[str, Any]] = {
    "1 to 5": {"scale": {"lowest": 1, "highest": 5}},
    "1 to 9": {"scale": {"lowest": 1, "highest": 9}},
    "1 to 10": {"scale": {"lowest": 1, "highest": 10}},
    "0 to 100": {"scale": {"lowest": 0, "highest": 100}},
    "labels": {"choices": ["poor", "fair", "good", "very good", "very bad", "excellent"]},
}
FORMS: dict[str, dict[str, Any]] = {
    "JSON": {"rationale_place": "none"},
    "a form": {"form": "Safety: {safety}\nHelpfulness: {helpfulness}"},
}
NAMES = ("safety", "helpfulness")


def main() -> None:
    options = _options()
    value_paths.UNEXPLORED = options.unexplored
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    with tempfile.TemporaryDirectory() as folder:
        rows = None
        if options.random_model:
            tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else tekken_tokenizer()
            options.model, rows = _made_up(Path(folder), tokenizer, options.random_model)
            options.rows = len(rows)
        found = {
            f"{scale}, {form}": _measured(options, rows, scale, form)
            for scale in options.scales
            for form in options.forms
        }
    results_table.table(
        f"{options.engine}, {options.rows} rows: values beside their definition",
        ["", *(name.replace("_", " ") for name in next(iter(found.values())))],
        [[name, *one.values()] for name, one in found.items()],
    )
    results_table.write(
        f"values_by_definition-{options.name or options.engine}",
        {
            "model": Path(options.model).name,
            "rows": options.rows,
            "unexplored": options.unexplored,
            "found": found,
        },
        options.results,
    )


def _made_up(folder: Path, tokenizer: Any, count: int) -> tuple[str, list[Row]]:
    """Return a small model with random weights and a real vocabulary, and rows of random words."""
    draw = random.Random(0)
    words = (
        "the",
        "of",
        "water",
        "light",
        "answer",
        "because",
        "while",
        "river",
        "number",
        "good",
        "not",
        "very",
    )

    def text(length: int) -> str:
        return " ".join(draw.choices(words, k=length))

    rows = [
        Row.from_response(instruction=text(20), candidate=text(60), reference=text(40)) for _ in range(count)
    ]
    model = write_llama(folder / "model", tokenizer, hidden=128, layers=4, heads=4, spread=0.3)
    return str(model), rows


def _measured(options: argparse.Namespace, rows: list[Row] | None, scale: str, form: str) -> dict[str, Any]:
    rubric = Rubric.model_validate(
        {
            "name": "scale",
            "aspects": dict.fromkeys(NAMES, ASPECTS[scale]),
            "answer": FORMS[form],
            "prompt": {
                "template": "{$instruction}\n\nReference: {$reference}\n\nResponse: {$candidate}\n\n"
                "Judge the response:\n{$aspects}\n{$answer_format}"
            },
        }
    )
    engine_args = dict(pair.split("=", 1) for pair in options.engine_arg)
    judge = Judge(
        options.model, rubric=rubric, engine=options.engine, engine_args={"dtype": "float32", **engine_args}
    )
    judged = rows or judged_rows(judge, options.inputs, options.rows)
    tasks = list(judge.task_builder.tasks(judged))
    begin = time.perf_counter()
    prompts = (Prompt(tag, task.tokens, tag) for tag, task in enumerate(tasks))
    completions = {one.tag: one for several in judge.engine.complete(prompts) for one in several}
    seconds, table = time.perf_counter() - begin, judge.decoding.table
    details = judge.engine.info.details
    judge.close()

    definition = _Definition(options.model)
    numbers = _numbers(ASPECTS[scale], table.value_token.shape[1])
    largest = largest_mass = 0.0
    likeliest, first, means = [], [], []
    for tag, task in enumerate(tasks):
        one = completions[tag]
        exact, mass = values_one_by_one(table, one.tokens, definition.after(task.tokens))
        kept = np.asarray(one.probabilities, np.float64)
        apart = (
            total_variation(kept, exact)
            if numbers is None
            else float(np.abs((np.nan_to_num(kept) - exact) @ numbers).max())
        )
        largest = max(largest, apart)
        largest_mass = max(largest_mass, float(np.abs(np.asarray(one.mass) - mass).max()))
        written = [_written(table, one.tokens, aspect) for aspect in range(len(NAMES))]
        likeliest += [int(exact[aspect].argmax()) == value for aspect, value in enumerate(written)]
        first.append(exact[:, 0])
        if numbers is not None:
            means.append(exact @ numbers)
    return {
        "largest_difference": largest,
        "largest_difference_of_mass": largest_mass,
        "likeliest": round(float(np.mean(likeliest)), 4),
        "first_value": [round(float(value), 4) for value in np.mean(first, axis=0)],
        "expected": [round(float(value), 3) for value in np.mean(means, axis=0)] if means else None,
        "seconds": round(seconds, 1),
        "runner": details.get("runner", ""),
    }


def _numbers(aspect: dict[str, Any], places: int) -> np.ndarray[Any, Any] | None:
    if "scale" not in aspect:
        return None
    numbers = np.zeros(places)
    values = range(aspect["scale"]["lowest"], aspect["scale"]["highest"] + 1)
    numbers[: len(values)] = values
    return numbers


def _written(table: Any, answer: Sequence[int], aspect: int) -> int:
    """Return the place of the value that an answer has for an aspect: the longest that stands there."""
    start = table.states(answer).index(int(table.score_state[aspect]))
    values = [tuple(value[value >= 0].tolist()) for value in table.value_token[aspect]]
    fitting = [
        place
        for place, value in enumerate(values)
        if value and tuple(answer[start : start + len(value)]) == value
    ]
    return max(fitting, key=lambda place: len(values[place]))


class _Definition:
    """The model's own logits, by plain passes of transformers in float32."""

    def __init__(self, model: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.backends.cuda.matmul.allow_tf32 = False
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(self._device).eval()

    def after(self, prompt: Sequence[int]) -> Any:
        """Return a function from tokens of an answer to the logits after them, (V,)."""
        import torch

        def ask(tokens: Sequence[int], cache: Any = None) -> Any:
            with torch.inference_mode():
                return self._network(
                    torch.tensor([list(tokens)], device=self._device), past_key_values=cache, use_cache=True
                )

        beginning = ask(prompt[:-1]).past_key_values

        def logits(before: Sequence[int]) -> Any:
            answer = ask([prompt[-1], *before], copy.deepcopy(beginning))
            return answer.logits[0, -1].cpu()

        return logits


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", help="a model directory")
    parser.add_argument(
        "--random-model", type=int, metavar="ROWS", help="random weights, and so many random rows"
    )
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--engine-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--tokenizer", type=Path, help="of the random model: a folder with a tokenizer.json")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=[*FORMS])
    parser.add_argument("--scales", nargs="+", choices=ASPECTS, default=[*ASPECTS])
    parser.add_argument(
        "--unexplored",
        type=float,
        default=value_paths.UNEXPLORED,
        help="the largest probability of an aspect's values together that the model is not asked for",
    )
    parser.add_argument("--name", help="name of the results, instead of the engine")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    if not options.random_model and not (options.inputs and options.model):
        parser.error("give rows and --model, or --random-model")
    return options


if __name__ == "__main__":
    main()
