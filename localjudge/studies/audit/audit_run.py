"""The runs of an audit: judge a sample of the user's rows, original and perturbed.

    DIR/rows.jsonl    the original and the perturbed rows, as an input; `system` is the perturbation (of a pair,
                      `system_a`, which has the response that is changed)
    DIR/rows/         their run
    DIR/again/        the run of the same rows in another order

Each is a normal run directory: the same command continues it, and `show` and `report` read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from localjudge.errors import UsageError
from localjudge.judge import Judge
from localjudge.records import Failure, Response, Row
from localjudge.rubrics.rubric import Rubric
from localjudge.runs import NEVER, RunObserver, StopRequest
from localjudge.studies.audit.perturbations import (
    AGAIN,
    ORIGINAL,
    UNPERTURBED,
    DoesNotApply,
    PerturbationContext,
    perturbations_of,
)
from localjudge.studies.audit.sample_runs import SAMPLED, SampleRuns, refuse_another

RUNS = ("rows", AGAIN)
_UNCHANGED = "unchanged"
"""The system of the other response of a pair."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows of an audit and their perturbed copies.

    Attributes:
        rows: the sampled rows; of a pair, the response that is changed stands first.
        perturbed: these rows, unchanged and perturbed.
        skipped: for each perturbation, the reasons why it did not apply, with the number of rows.
    """

    rows: Sequence[Row]
    perturbed: Sequence[Row]
    skipped: Mapping[str, Counter[str]]


def sample_rows(rows: Iterable[Row | Failure], size: int, seed: int, rubric: Rubric) -> Sample:
    """Return a sample of the rows that can be judged, in input order, each with its perturbations.

    Args:
        rows: the rows of the input, pairs in one order; read once, with at most `size` of them in memory.
        size: the largest number of rows to sample.
        seed: the seed of the sample and of random perturbations.

    Raises:
        UsageError: there is no row to sample.
    """
    chosen = [
        replace(row, responses=row.responses[::-1]) for row in drawn_rows(rows, size, seed=seed, rubric=rubric)
    ]
    perturbations = perturbations_of(rubric)
    skipped: dict[str, Counter[str]] = {each.name: Counter() for each in perturbations}
    perturbed = []
    for number, row in enumerate(chosen):
        perturbed.append(_labelled(row, number, ORIGINAL, row.id))
        for each in perturbations:
            if each.name in UNPERTURBED:
                continue
            others = [other for other in chosen if other.instruction != row.instruction]
            own = Random(f"{seed} {number} {each.name}")
            setting = PerturbationContext(own, own.choice(others) if others else None, rubric)
            try:
                perturbed.append(_labelled(each.make(row, setting), number, each.name, row.id))
            except DoesNotApply as reason:
                skipped[each.name][str(reason)] += 1
    return Sample(chosen, perturbed, skipped)


def drawn_rows(rows: Iterable[Row | Failure], size: int, *, seed: int, rubric: Rubric) -> list[Row]:
    """Return a sample of the rows that can be judged, in input order.

    Args:
        rows: the rows of the input, pairs in one order; read once, with at most `size` of them in memory.
        size: the largest number of rows.
        seed: the seed of the sample.
        rubric: the rubric that judges them.

    Raises:
        UsageError: there is no row to sample.
    """
    random = Random(seed)
    kept: list[tuple[int, Row]] = []
    usable = 0
    for place, row in enumerate(rows):
        if isinstance(row, Failure) or rubric.refusal(row) is not None:
            continue
        usable += 1
        if len(kept) < size:
            kept.append((place, row))
            continue
        slot = random.randrange(usable)  # Vitter's algorithm R
        if slot < size:
            kept[slot] = (place, row)
    if not kept:
        raise UsageError("an audit needs rows that can be judged; the input has none")
    kept.sort(key=lambda item: item[0])
    return [row for _, row in kept]


def run_audit(
    sample: Sample,
    judge: Judge,
    out: Path,
    seed: int,
    *,
    observer: RunObserver | None = None,
    stopping: StopRequest = NEVER,
) -> bool:
    """Judge the sample, and its original rows again.

    Args:
        sample: the rows.
        judge: the audited judge.
        out: the folder of the runs; it is created if it is missing, and existing runs are continued.
        seed: seed of the order in which the rows are judged again.
        observer: receives steps, warnings and outcomes.
        stopping: a context that is active while rows are judged; when it requests a stop, rows in flight are
            finished.

    Returns:
        True if both runs are complete; False if they were stopped.

    Raises:
        UsageError: the folder holds something else, or an audit with other settings; nothing was written.
    """
    refuse_another(judge, out, RUNS)
    runs = SampleRuns.of(sample.perturbed, judge.rubric, out, observer=observer, stopping=stopping)
    perturbed = list(runs.inputs.rows())
    originals = [row for row in perturbed if isinstance(row, Row) and row.system == ORIGINAL]
    elsewhere = Random(seed).sample(originals, len(originals))
    return runs.judge(judge, RUNS[0], perturbed) and runs.judge(judge, AGAIN, elsewhere)


def _labelled(row: Row, number: int, name: str, row_id: str) -> Row:
    return replace(
        row,
        responses=(Response(row.candidate, name), *(Response(text, _UNCHANGED) for text in row.texts[1:])),
        id=f"{row_id}/{name}",
        columns={SAMPLED: number, "audited": row.source},
    )
