"""The runs of an audit: judge a sample of the user's rows, original and perturbed.

    DIR/rows.jsonl    the original and the perturbed rows, as an input; `system` is the perturbation
    DIR/rows/         their run
    DIR/again/        the run of the same rows in another order
    DIR/reordered/    the run with the aspects of the rubric in another order

Each is a normal run directory: the same command continues it, and `show` and `report` read it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from localjudge.audit.perturbations import (
    AGAIN,
    ORIGINAL,
    PERTURBATIONS,
    REORDERED,
    DoesNotApply,
    Setting,
    reordered,
)
from localjudge.cli.progress import Progress
from localjudge.errors import UsageError
from localjudge.judge import Judge
from localjudge.records import Failure, Row
from localjudge.rows.inputs import read_rows
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan
from localjudge.system.durable import replacing

ROWS = "rows.jsonl"
RUNS = ("rows", AGAIN, REORDERED)
_SAMPLED = "sampled_row"


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows of an audit and their perturbed copies.

    Attributes:
        rows: the sampled rows.
        perturbed: these rows, unchanged and perturbed.
        skipped: for each perturbation, the reasons why it did not apply, with the number of rows.
    """

    rows: Sequence[Row]
    perturbed: Sequence[Row]
    skipped: Mapping[str, Counter[str]]


def sample_rows(rows: Iterable[Row | Failure], size: int, seed: int, rubric: Rubric) -> Sample:
    """Return a sample of the rows that can be judged, in input order, each with its perturbations.

    Args:
        rows: the rows of the input; read once, with at most `size` of them in memory.
        size: the largest number of rows to sample.
        seed: the seed of the sample and of random perturbations.

    Raises:
        UsageError: there is no row to sample.
    """
    random = Random(seed)
    kept: list[tuple[int, Row]] = []
    usable = 0
    for place, row in enumerate(rows):
        if isinstance(row, Failure) or (rubric.needs_reference and row.reference is None):
            continue
        usable += 1
        if len(kept) < size:
            kept.append((place, row))
        elif (slot := random.randrange(usable)) < size:  # Vitter's algorithm R
            kept[slot] = (place, row)
    if not kept:
        raise UsageError("an audit needs rows that can be judged; there is none in the input")
    chosen = [row for _, row in sorted(kept, key=lambda item: item[0])]
    skipped: dict[str, Counter[str]] = {each.name: Counter() for each in PERTURBATIONS}
    perturbed = []
    for number, row in enumerate(chosen):
        perturbed.append(_labelled(row, number, ORIGINAL, row.id))
        for each in PERTURBATIONS:
            if each.name in (AGAIN, REORDERED):
                continue
            others = [other for other in chosen if other.instruction != row.instruction]
            own = Random(f"{seed} {number} {each.name}")
            setting = Setting(own, own.choice(others) if others else None, rubric)
            try:
                perturbed.append(_labelled(each.make(row, setting), number, each.name, row.id))
            except DoesNotApply as reason:
                skipped[each.name][str(reason)] += 1
    if reordered(rubric) is None:
        skipped[REORDERED]["the rubric has only one aspect"] = len(chosen)
    return Sample(chosen, perturbed, skipped)


def run_audit(
    sample: Sample, judge: Judge, make_judge: Callable[[Rubric], Judge], out: Path, seed: int
) -> None:
    """Judge the sample, in three runs.

    Args:
        sample: the rows.
        judge: the judge to audit.
        make_judge: returns the same judge with another rubric.
        out: the folder of the runs; created if it is missing; existing runs are continued.
        seed: the seed of the order in which the rows are judged again.
    """
    file = _write_rows(sample.perturbed, out)
    perturbed = list(read_rows([str(file)]))
    originals = [row for row in perturbed if isinstance(row, Row) and row.system == ORIGINAL]
    elsewhere = Random(seed).sample(originals, len(originals))
    _run(judge, perturbed, out / RUNS[0], file)
    _run(judge, elsewhere, out / AGAIN, file)
    other_rubric = reordered(judge.rubric)
    if other_rubric is None:
        return
    if put_away := getattr(judge.engine, "close", None):
        put_away()
    del judge.engine  # a GPU can hold only one engine at a time
    _run(make_judge(other_rubric), originals, out / REORDERED, file)


def sampled_row(line: Mapping[str, Any]) -> int:
    """Return the number of the sampled row behind a judged row."""
    return int(line["columns"][_SAMPLED])


def _run(judge: Judge, rows: Sequence[Row | Failure], folder: Path, file: Path) -> None:
    progress = Progress()
    with RunDirectory(folder, progress.say) as run, RunPlan(judge, rows, scratch=folder) as plan:
        judge.expect(plan.longest, folder / "engine.log")
        done = run.begin(judge, plan, [str(file)])
        progress.say(f"{folder.name}: {plan.rows} rows, {done} of them done already")
        with progress.counting(plan.rows - done):
            run.score(progress.add)


def _labelled(row: Row, number: int, name: str, row_id: str) -> Row:
    return replace(row, id=f"{row_id}/{name}", system=name, columns={_SAMPLED: number, "audited": row.source})


def _write_rows(rows: Iterable[Row], out: Path) -> Path:
    fields = ("id", "system", "instruction", "reference", "candidate")
    file = out / ROWS
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replacing(file) as scratch, scratch.open("w", encoding="utf-8") as stream:
            for row in rows:
                record = {name: getattr(row, name) for name in fields} | dict(row.columns)
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    return file
