"""Two orders of a rubric's sentences: rows/s, tokens from the cache, and what the scores become.

    python benchmarks/rubric_order.py rows.jsonl --model DIR [--rubric FILE|NAME …] [--engine vllm]
        [--instructions 14] [--rationale-tokens 0] [--closing "Answer with the JSON alone." …] [--rounds 1]

The first rubric is the one that the others are compared with: by default six-aspects with the row before the
rules, and then the included six-aspects. Each judges the rows of the first instructions with an engine of its
own, whose caches are empty. Each `--closing` adds a rubric, the last one with another last line; `{form}` in it
is the form of the answer, and an empty text is no line.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import results_table

from localjudge import Judge, Judgement, Row, Rubric
from localjudge.rows.inputs import find_inputs, read_rows
from localjudge.runs.run_plan import RunPlan

ROW_FIRST = str(Path(__file__).parent / "rubrics" / "six-aspects-row-first.toml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rubric", nargs="+", default=[ROW_FIRST, "six-aspects"])
    parser.add_argument("--closing", nargs="+", default=[])
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--engine-arg", action="append", default=[])
    parser.add_argument("--instructions", type=int, default=14)
    parser.add_argument("--rationale-tokens", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--name", default="rubric_order")
    options = parser.parse_args()

    place = None if options.rationale_tokens else "none"
    rubrics = {Path(name).stem: Rubric.load(name, rationale=place) for name in options.rubric}
    last = [*rubrics.values()][-1]
    rubrics |= {f"{last.name}, closing {line!r}": closed_by(last, line) for line in options.closing}
    rows = rows_of(options)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in rubrics}
    for _ in range(options.rounds):
        for name, rubric in rubrics.items():  # in turn, so that what the machine does besides meets all alike
            found[name].append(measured(options, rubric, rows))
            print(name, {key: value for key, value in found[name][-1].items() if key != "each"}, flush=True)
    show(found, list(last.aspects))
    content = {
        "rows": len(rows),
        "engine": options.engine,
        "rationale_tokens": options.rationale_tokens,
        "rubrics": {
            name: [{key: value for key, value in each.items() if key != "each"} for each in rounds]
            for name, rounds in found.items()
        },
    }
    results_table.write(options.name, content)


def closed_by(rubric: Rubric, line: str) -> Rubric:
    """Return a rubric with another last line."""
    document = rubric.model_dump(mode="json", exclude_unset=True)
    before = document["prompt"]["template"].rpartition("\n\n")[0]
    document["prompt"]["template"] = f"{before}\n\n{line.replace('{form}', '{$answer_format}')}".rstrip("\n")
    return Rubric.model_validate(document)


def rows_of(options: argparse.Namespace) -> list[Row]:
    """Return the rows of the first instructions."""
    rows = [row for row in read_rows(find_inputs(options.inputs)) if isinstance(row, Row)]
    wanted = [*dict.fromkeys(row.group for row in rows)][: options.instructions]
    return [row for row in rows if row.group in wanted]


def measured(options: argparse.Namespace, rubric: Rubric, rows: list[Row]) -> dict[str, Any]:
    """Return the speed, the tokens and the scores of one rubric by an engine with empty caches."""
    more = {"max_rationale_tokens": options.rationale_tokens} if options.rationale_tokens else {}
    arguments = dict(each.split("=", 1) for each in options.engine_arg)
    with (
        Judge(options.model, rubric=rubric, engine=options.engine, engine_args=arguments, **more) as judge,
        RunPlan(judge, rows) as plan,
    ):
        judge.configure_engine(plan.longest(), None)
        judge.engine.info  # noqa: B018 (opens it)
        begin = time.perf_counter()
        outcomes = [*judge.score(row for row in plan if isinstance(row, Row))]
        seconds = time.perf_counter() - begin
        counted = judge.engine.statistics()
    judged = [outcome for outcome in outcomes if isinstance(outcome, Judgement)]
    cached = int(counted.get("cached_prompt_tokens", 0))
    rationales = [text for outcome in judged for text in outcome.texts.values()]
    return {
        "rows_per_second": len(judged) / seconds,
        "seconds": seconds,
        "prompt_tokens": int(counted["prompt_tokens"]),
        "computed_tokens": int(counted["prompt_tokens"]) - cached,
        "expected": {name: fmean(each.expected[name] for each in judged) for name in rubric.aspects},
        "mass": {name: fmean(each.mass[name] for each in judged) for name in rubric.aspects},
        "placeholders": fmean("[your" in text for text in rationales) if rationales else 0.0,
        "failed": len(outcomes) - len(judged),
        "each": [[each.expected[name] for name in rubric.aspects] for each in judged],
    }


def show(found: dict[str, list[dict[str, Any]]], aspects: list[str]) -> None:
    base = next(iter(found.values()))[0]
    rows = []
    for name, rounds in found.items():
        first, fastest = rounds[0], max(each["rows_per_second"] for each in rounds)
        moved = fmean(
            abs(one - other)
            for mine, its in zip(first["each"], base["each"], strict=True)
            for one, other in zip(mine, its, strict=True)
        )
        rows.append(
            [name, fastest, first["prompt_tokens"], first["computed_tokens"], moved, first["placeholders"]]
            + [f"{first['expected'][aspect]:.2f} {first['mass'][aspect]:.3f}" for aspect in aspects]
        )
    columns = ["rubric", "rows/s", "tokens", "computed", "moved", "placeholders", *aspects]
    results_table.table(
        "Orders of a rubric; for each aspect the mean expected score and the mass", columns, rows
    )


if __name__ == "__main__":
    main()
