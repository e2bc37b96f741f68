"""The last layer of a 16-bit model in float32 or in the model's type: equal values, errors and seconds.

    python models/smollm2.py --out smollm2
    python benchmarks/head_dtype.py rows.jsonl --model smollm2 [--engine vllm] [--rows 64] [--timed-rows 16]

Judges in bfloat16 differ only in `head_dtype`, which is `float32` or `model`.

- Errors: a rubric of one aspect, whose answer is one digit from 1 to 5. The probabilities and the expected
  score are compared with those of a judge whose whole model is in float32, on the same rows.
- Seconds: `six-aspects` without a rationale, and `just-eval` with one of up to 64 tokens. The two
  judges alternate, each with empty caches. The ratio is total seconds by total seconds over all rounds; from
  8 rounds on it has a jackknife interval over rounds.

A score is counted as having equal values if two of its values have exactly equal probabilities.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environment
import numpy as np
import results_table
from numpy.typing import NDArray
from throughput import judged_rows

from localjudge import Judge, Judgement, Row, Rubric
from localjudge.statistics.jackknife import jackknife_interval

HEADS = ("model", "float32")
BATCH = 16
RATIONALE_TOKENS = 64
ONE_VALUE = Rubric.model_validate(
    {
        "name": "one-value",
        "aspects": {"score": {"scale": {"lowest": 1, "highest": 5}}},
        "answer": {"form": "{score}"},
        "prompt": {
            "template": "Question: {$instruction}\nReference: {$reference}\nAnswer: {$candidate}\n"
            "Score the answer from 1 to 5 with one digit: {$answer_format}"
        },
    }
)
WORKLOADS = {
    "six values": Rubric.load("six-aspects", rationale="none"),
    # Not six-aspects: SmolLM2 copies the placeholder of its rationale, which has few tokens.
    "a rationale and six values": Rubric.load("just-eval"),
}


def main() -> None:
    options = _options()
    environment.settle(cache_gib=2)
    errors = _errors(options)
    results_table.table(
        f"{options.engine}: one value, {options.rows} rows, beside the whole model in float32",
        ["last layer", "equal values", "mean error of the expected score", "of a probability", "largest"],
        [[head, *found.values()] for head, found in errors.items()],
    )
    workloads = {name: _in_turns(options, rubric) for name, rubric in WORKLOADS.items()}
    results_table.table(
        f"{options.engine}: {options.timed_rows} rows, {options.rounds} rounds",
        [
            "",
            "scores",
            "equal values",
            "in float32",
            "seconds",
            "in float32",
            "ratio",
            "low",
            "high",
            "same texts",
        ],
        [[name, *_cells(found)] for name, found in workloads.items()],
    )
    results_table.write(
        f"head_dtype-{options.engine}",
        {
            "model": Path(options.model).name,
            "engine": options.engine,
            "rows": options.rows,
            "timed_rows": options.timed_rows,
            "rounds": options.rounds,
            "errors": errors,
            "workloads": workloads,
        },
        options.results,
    )


def _errors(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return for each type the scores with equal values, and the errors beside the whole model in float32."""
    with _opened(options, ONE_VALUE, dtype="float32") as judge:
        exact = _judgements(judge, judged_rows(judge, options.inputs, options.rows))
    found = {}
    for head in HEADS:
        with _opened(options, ONE_VALUE, dtype="bfloat16", head_dtype=head) as judge:
            judgements = _judgements(judge, judged_rows(judge, options.inputs, options.rows))
        differences = np.abs(_probabilities(judgements) - _probabilities(exact))
        found[head] = {
            "with_equal_values": _with_equal_values(judgements),
            "mean_error_of_expected_score": float(np.abs(_expected(judgements) - _expected(exact)).mean()),
            "mean_error_of_probability": float(differences.mean()),
            "largest_error_of_probability": float(differences.max()),
        }
    return found


def _in_turns(options: argparse.Namespace, rubric: Rubric) -> dict[str, Any]:
    """Return the seconds of both types on the same rows, and what differs between their judgements."""
    seconds: dict[str, list[float]] = {head: [] for head in HEADS}
    judgements: dict[str, list[Judgement]] = {}
    with (
        _opened(options, rubric, dtype="bfloat16", head_dtype="model") as model,
        _opened(options, rubric, dtype="bfloat16", head_dtype="float32") as float32,
    ):
        judges = {"model": model, "float32": float32}
        rows = judged_rows(model, options.inputs, options.timed_rows)
        for turn in range(options.rounds + 1):
            order = HEADS if turn % 2 == 1 else HEADS[::-1]
            for head in order:
                judges[head].engine.reset()
                begin = time.perf_counter()
                judgements[head] = _judgements(judges[head], rows)
                is_warm = turn > 0
                if is_warm:
                    seconds[head].append(time.perf_counter() - begin)
        headlines = {head: judge.engine.info.headline for head, judge in judges.items()}
    pairs = zip(*judgements.values(), strict=True)
    tokens = [each.output_tokens for each in judgements["model"]]
    return {
        "headlines": headlines,
        "mean_output_tokens": round(float(np.mean(tokens)), 1),
        "scores": sum(len(each.scores) for each in judgements["model"]),
        "with_equal_values": {head: _with_equal_values(each) for head, each in judgements.items()},
        "rows_with_the_same_rationale": sum(one.rationale == other.rationale for one, other in pairs),
        "seconds": seconds,
        "ratio": _ratio(seconds),
    }


def _ratio(seconds: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """Return the seconds in float32 as a share of the others, with its interval; None for no interval."""
    model, float32 = (np.array(seconds[head]) for head in HEADS)
    ratio = float(float32.sum() / model.sum())
    without_each_round = (float32.sum() - float32) / (model.sum() - model)
    low, high = jackknife_interval(ratio, without_each_round)
    has_interval = bool(np.isfinite(low))
    return {
        "value": round(ratio, 3),
        "low": round(float(low), 3) if has_interval else None,
        "high": round(float(high), 3) if has_interval else None,
    }


def _cells(found: dict[str, Any]) -> list[Any]:
    """Return the cells of a workload in the table on the screen."""
    medians = [float(np.median(found["seconds"][head])) for head in HEADS]
    equal = found["with_equal_values"]
    counts = [found["scores"], equal["model"], equal["float32"]]
    return counts + medians + [*found["ratio"].values()] + [found["rows_with_the_same_rationale"]]


def _with_equal_values(judgements: Sequence[Judgement]) -> int:
    """Return the number of scores with two values of equal probability."""
    return sum(len(set(shares)) < len(shares) for each in judgements for shares in each.probabilities.values())


def _probabilities(judgements: Sequence[Judgement]) -> NDArray[np.float64]:
    """Return the probabilities of the one score, [rows, values]."""
    return np.array([each.probabilities["score"] for each in judgements])


def _expected(judgements: Sequence[Judgement]) -> NDArray[np.float64]:
    """Return the expected score, [rows]."""
    return np.array([each.expected["score"] for each in judgements])


@contextmanager
def _opened(options: argparse.Namespace, rubric: Rubric, **engine_args: str) -> Iterator[Judge]:
    own = {"batch_size": str(BATCH)}
    if options.engine == "vllm":
        own = {"max_num_seqs": str(BATCH), "enforce_eager": "true", "max_model_len": "4096"}
    with Judge(
        options.model,
        rubric=rubric,
        engine=options.engine,
        max_rationale_tokens=RATIONALE_TOKENS,
        engine_args=own | engine_args,
    ) as judge:
        yield judge


def _judgements(judge: Judge, rows: list[Row]) -> list[Judgement]:
    """Return the judgements of the rows, in their order."""
    judgements = [each for each in judge.score(rows) if isinstance(each, Judgement)]
    if len(judgements) != len(rows):
        raise SystemExit(f"{len(rows) - len(judgements)} of {len(rows)} rows failed")
    return judgements


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--rows", type=int, default=64, help="rows of the errors")
    parser.add_argument("--timed-rows", type=int, default=16, help="rows of a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
