"""Criteria of a row by real weights: one question a prompt beside all criteria in one answer.

    python benchmarks/checklist.py --model smollm2 [--rows 40] [--batch-size 16] [--engine vllm]

The rows are made: a response names some of the things in a room, and each of 3 to 30 criteria asks whether it
names one thing, so the truth is known. The rubric `checklist` asks for each criterion in a prompt of its own,
`checklist-at-once` for all of them in one answer. Both use the same engine; each
engine has a file of results.

AUC is the probability that a criterion that is met gets a higher probability of yes than one that is not; 0.5
is chance. The mass is the share of the model's own probability on yes and no. Times include neither loading nor
the table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from scipy.stats import mannwhitneyu, spearmanr

from localjudge import Judge, Judgement
from localjudge.rows.criteria import read_criteria

SIZES = (3, 5, 8, 12, 18, 24, 30)
"""Numbers of criteria; the rows have them in turn."""
THINGS = (
    "lamp", "chair", "mirror", "carpet", "piano", "clock", "candle", "basket", "ladder", "curtain", "bottle",
    "hammer", "blanket", "kettle", "painting", "drawer", "umbrella", "violin", "bucket", "pillow", "radio",
    "vase", "bicycle", "camera", "teapot", "notebook", "guitar", "helmet", "lantern", "scissors", "globe",
    "telescope", "toaster", "suitcase", "statue", "keyboard",
)  # fmt: skip
INSTRUCTION = "Describe the room that you see."
FORMS = {"one question a prompt": "checklist", "all in one answer": "checklist-at-once"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a model directory, as of models/smollm2.py")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    rows, truth = made(options.rows, options.seed)
    limit = "max_num_seqs" if options.engine == "vllm" else "batch_size"
    engine_args = {limit: str(options.batch_size), "dtype": "float32"}
    forms = {name: judged(rows, options, rubric, engine_args) for name, rubric in FORMS.items()}
    met = np.concatenate([truth[row["id"]] for row in rows])
    found: dict[str, Any] = {}
    for name, (seconds, answers, masses) in forms.items():
        shares = np.concatenate([answers[row["id"]] for row in rows])
        found[name] = {
            "seconds": round(seconds, 1),
            "rows_per_second": round(len(rows) / seconds, 3),
            "criteria_per_second": round(len(shares) / seconds, 2),
            "mean_mass": round(float(np.mean(masses)), 4),
            "auc": round(
                float(mannwhitneyu(shares[met], shares[~met]).statistic / (met.sum() * (~met).sum())), 4
            ),
            "said_yes": round(float((shares > 0.5).mean()), 4),
        }
    one, other = (np.concatenate([each[1][row["id"]] for row in rows]) for each in forms.values())
    both = {
        "equal_answers": round(float(((one > 0.5) == (other > 0.5)).mean()), 4),
        "spearman_of_probabilities": round(float(spearmanr(one, other).statistic), 4),
        "mean_difference_of_row_scores": round(difference(rows, *(each[1] for each in forms.values())), 4),
    }
    shown = [[name, *(str(value) for value in each.values())] for name, each in found.items()]
    results_table.table(f"{len(rows)} rows, {len(met)} criteria", ["form", *next(iter(found.values()))], shown)
    results_table.table("both forms", list(both), [[str(value) for value in both.values()]])
    faster = round(
        found["all in one answer"]["rows_per_second"] / found["one question a prompt"]["rows_per_second"], 2
    )
    content = {"model": options.model.name, "rows": len(rows), "criteria": len(met), "met": int(met.sum())}
    content |= {"engine": options.engine, "forms": found, "both": both, "all_in_one_speed": faster}
    results_table.write("checklist" + "_vllm" * (options.engine == "vllm"), content, options.results)


def made(count: int, seed: int) -> tuple[list[dict[str, Any]], dict[str, np.ndarray[Any, Any]]]:
    """Return the rows, and which of its criteria each row meets, [criteria]."""
    generator = np.random.default_rng(seed)
    rows, truth = [], {}
    for number in range(count):
        asked = [THINGS[place] for place in generator.permutation(len(THINGS))[: SIZES[number % len(SIZES)]]]
        met = generator.random(len(asked)) < 0.5
        others = [thing for thing in THINGS if thing not in asked][:3]
        named = [thing for thing, there in zip(asked, met, strict=True) if there] + others
        seen = ", ".join(f"a {named[place]}" for place in generator.permutation(len(named)))
        points = generator.choice([-3, 1, 2, 5], len(asked))
        rows.append(
            {
                "id": f"row {number}",
                "instruction": INSTRUCTION,
                "candidate": f"In the room there is {seen}.",
                "criteria": [
                    {"criterion": f"The response mentions a {thing}.", "points": int(worth)}
                    for thing, worth in zip(asked, points, strict=True)
                ],
            }
        )
        truth[f"row {number}"] = met
    return rows, truth


Form = tuple[float, dict[str, np.ndarray[Any, Any]], list[float]]
"""Seconds, the probabilities of yes by row, [criteria], and the masses of all answers."""


def judged(
    rows: Sequence[Mapping[str, Any]], options: argparse.Namespace, rubric: str, engine_args: Mapping[str, str]
) -> Form:
    """Judge the rows by a rubric."""
    with Judge(str(options.model), rubric=rubric, engine=options.engine, engine_args=engine_args) as judge:
        list(judge.check(rows[:1]))
        begin = time.perf_counter()
        outcomes = list(judge.check(rows))
        seconds = time.perf_counter() - begin
    if failed := [each.error for each in outcomes if each.error is not None]:
        raise SystemExit(f"{rubric}: {failed[0]}")
    shares = {each.id: np.array([result.probability for result in each.results]) for each in outcomes}
    results = [result.outcome for each in outcomes for result in each.results]
    return (
        seconds,
        shares,
        [mass for each in results if isinstance(each, Judgement) for mass in each.mass.values()],
    )


def difference(rows: Sequence[Mapping[str, Any]], one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the mean absolute difference of the expected scores of the rows with positive points."""
    found = []
    for row in rows:
        points = np.array([each.points for each in read_criteria(row["criteria"])])
        if positive := points.clip(0).sum():
            found.append(abs(float(points @ (one[row["id"]] - other[row["id"]]))) / positive)
    return float(np.mean(found))


if __name__ == "__main__":
    main()
