"""What the placeholder in the form of the answer does to the scores: their mass, their level, what they tell.

    python benchmarks/placeholders.py labelled.jsonl --model DIR --label correct [--rows 60]

Each form shows the values of an aspect in its own way: `[1-5]`, as a rubric does, without the sentence on what
the brackets mean, in another order, without digits, or as an example. Each judges the same rows greedily: the
row's response, its reference, and the response to another instruction. Rows are one of each instruction, half
of them with the label 1.

- mass: the mean share of the model's own probability that the values hold; and how often its likeliest token
  begins a value.
- score: the mean expected score of the responses; for labels the probability of the best one.
- copied: the share of rationales that repeat their placeholder.
- shuffled: AUC of the references against the responses to another instruction. The prompt shows the reference,
  so this is the least that a judge must tell.
- label: AUC of the responses with the label 1 against those with 0.

An AUC of 0.5 is chance; after it stands its standard error (jackknife over rows).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import environment
import numpy as np
import results_table
from throughput import judged_rows

from localjudge import Judge, Row, Rubric
from localjudge.engines.protocol import Completion
from localjudge.prompts.task import Prompt
from localjudge.records import Response

PLACES = {"six-aspects": ("none", "before", "after", "each"), "correctness": ("none", "before")}
SENTENCE = ", with the placeholders in [] filled in"


@dataclass(frozen=True, slots=True)
class Form:
    """How a form shows what stands in a place: from the values of an aspect, and for a rationale."""

    value: Callable[[list[str]], str]
    rationale: str
    sentence: str


def _range(values: list[str]) -> str:
    return f"{values[0]}-{values[-1]}" if values[0].isdigit() else "/".join(values)


FORMS = {
    "[1-5]": Form(lambda v: f"[{_range(v)}]", "[your rationale]", SENTENCE),
    "[1-5] without the sentence": Form(lambda v: f"[{_range(v)}]", "[your rationale]", ""),
    "[5-1]": Form(lambda v: f"[{_range(v[::-1])}]", "[your rationale]", SENTENCE),
    "1-5": Form(_range, "your rationale", ""),
    "5-1": Form(lambda v: _range(v[::-1]), "your rationale", ""),
    "<1-5>": Form(lambda v: f"<{_range(v)}>", "<your rationale>", SENTENCE.replace("[]", "<>")),
    "<5-1>": Form(lambda v: f"<{_range(v[::-1])}>", "<your rationale>", SENTENCE.replace("[]", "<>")),
    "[score]": Form(lambda _: "[score]", "[your rationale]", SENTENCE),
    "...": Form(lambda _: "...", "...", ""),
    "an example, 2": Form(lambda v: v[1], "It lacks a detail.", ""),
    "an example, 4": Form(lambda v: v[-2], "It lacks a detail.", ""),
}


def main() -> None:
    options = _options()
    environment.settle(cache_gib=3)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for rubric, places in PLACES.items():
        for place in places:
            rows = options.rows if place == "none" else options.rows // 2
            found[f"{rubric}, rationale {place}"] = _measured(options, rubric, place, rows)
            results_table.table(
                f"{rubric}, rationale {place}: {rows} rows",
                ["", "mass", "likeliest", "score", "copied", "shuffled", "±", "label", "±"],
                [[form, *one.values()] for form, one in found[f"{rubric}, rationale {place}"].items()],
            )
    results_table.write(
        "placeholders",
        {
            "model": Path(options.model).name,
            "rows": options.rows,
            "rows_with_a_rationale": options.rows // 2,
            "text_tokens": options.max_rationale_tokens,
            "forms": found,
        },
        options.results,
    )


def _measured(options: argparse.Namespace, name: str, place: Any, count: int) -> dict[str, dict[str, Any]]:
    rubric = Rubric.load(name, rationale=place)
    judge = Judge(
        options.model,
        rubric=rubric,
        engine="vllm",
        max_rationale_tokens=options.max_rationale_tokens,
        engine_args={"max_num_seqs": "32", "enforce_eager": "true", "dtype": "float32"},
    )
    rows = _sample(judge, options, count)
    judged = [*rows]
    judged += [replace(row, responses=(Response(row.reference, None),)) for row in rows if row.reference]
    judged += [replace(row, responses=other.responses) for row, other in pairwise([rows[-1], *rows])]
    forms = list(FORMS.values())
    # Prompts of a row share all but the form, and so stand together.
    prompts = [
        Prompt(tag * len(forms) + at, judge.prompts.encode(_shown(rubric, row, form)), tag)
        for tag, row in enumerate(judged)
        for at, form in enumerate(forms)
    ]
    answers = {
        one.tag: one
        for finished in judge.engine.complete(prompts)
        for one in finished
        if isinstance(one, Completion)
    }
    labels = np.array([row.columns["scores"][options.label] == 1 for row in rows])
    found = {}
    for at, (title, form) in enumerate(FORMS.items()):
        own = [answers[tag * len(forms) + at] for tag in range(len(judged))]
        scores = np.array([_score(rubric, one) for one in own]).reshape(3, count)
        said = [_rationale(judge, one) for one in own]
        found[title] = {
            "mass": round(float(np.mean([one.mass for one in own])), 3),
            "likeliest": round(float(np.mean([one.likeliest for one in own])), 3),
            "score": round(float(scores.mean()), 2),
            "copied": round(mean(form.rationale.strip("[]<>") in each for each in said), 2)
            if place != "none"
            else None,
            **_auc("shuffled", scores[1], scores[2]),
            **_auc("label", *_parted(scores[0], labels)),
        }
    judge.close()
    return found


def _sample(judge: Judge, options: argparse.Namespace, count: int) -> list[Row]:
    """Return rows of different instructions, half of them with the label 1."""
    rows = judged_rows(judge, options.inputs, 10**6)
    Random(0).shuffle(rows)
    taken: dict[str, Row] = {}
    wanted = {0: count // 2, 1: count - count // 2}
    for row in rows:
        label = row.columns["scores"].get(options.label)
        if row.reference and row.instruction not in taken and wanted.get(label, 0):
            taken[row.instruction] = row
            wanted[label] -= 1
    if any(wanted.values()):
        raise SystemExit(f"too few rows with the label {options.label!r}: {wanted} are missing")
    return list(taken.values())


def _shown(rubric: Rubric, row: Row, form: Form) -> str:
    """Return the text of a prompt with another form of the answer."""
    layout = rubric.answer_layout
    own = layout.write(
        {text.name: "[your rationale]" for text in layout.texts}
        | {field.name: FORMS["[1-5]"].value([*field.values]) for field in layout.values}
    )
    other = layout.write(
        {text.name: form.rationale for text in layout.texts}
        | {field.name: form.value([*field.values]) for field in layout.values}
    )
    text = rubric.text(row)
    assert own in text, text
    assert SENTENCE in text
    head, _, tail = text.rpartition(own)
    return head.replace(SENTENCE, form.sentence) + other + tail


def _score(rubric: Rubric, one: Completion) -> float:
    """Return the mean expected score; without numbers, the probability of the best label."""
    assert one.probabilities is not None
    parts = []
    for shares, aspect in zip(one.probabilities, rubric.aspects.values(), strict=True):
        values = [*(aspect.numbers or {}).values()] or [
            value == aspect.best for value in aspect.values.values()
        ]
        parts.append(float(np.dot(shares[: len(values)], values)))
    return mean(parts)


def _rationale(judge: Judge, one: Completion) -> str:
    return judge.model.vocabulary.decode(one.tokens)


def _parted(values: Any, labels: Any) -> tuple[Any, Any]:
    return np.where(labels, values, np.nan), np.where(labels, np.nan, values)


def _auc(name: str, high: Sequence[float], low: Sequence[float]) -> dict[str, float]:
    """Return the AUC of two scores of the same rows, NaN where a row has none, and its standard error."""
    one, other = np.asarray(high), np.asarray(low)

    def auc(kept: Any) -> float:
        above, below = (each[kept][~np.isnan(each[kept])] for each in (one, other))
        apart = above[:, None] - below[None]
        return float((apart > 0).mean() + (apart == 0).mean() / 2)

    def without() -> Iterator[float]:
        for row in range(len(one)):
            yield auc(np.arange(len(one)) != row)

    left = np.array([*without()])
    error = float(np.sqrt((len(left) - 1) * left.var()))
    return {name: round(auc(slice(None)), 2), f"{name}_error": round(error, 2)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows with `scores`")
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--label", default="correct", help="the name of the label, 0 or 1, in `scores`")
    parser.add_argument("--rows", type=int, default=60, help="rows without a rationale; half with one")
    parser.add_argument("--max-rationale-tokens", type=int, default=32)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
