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
from localjudge.runs.run_observer import RunObserver
from localjudge.runs.stop_request import NEVER, StopRequest
from localjudge.studies.audit.perturbations import (
    AGAIN,
    ORIGINAL,
    UNPERTURBED,
    perturbations_of,
)
from localjudge.studies.audit.row_changes import DoesNotApply, RowChangeContext, SkipReason
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
        skipped: for each perturbation, the number of rows by the reason why it did not apply to them.
    """

    rows: Sequence[Row]
    perturbed: Sequence[Row]
    skipped: Mapping[str, Counter[SkipReason]]


def sample_rows(rows: Iterable[Row | Failure], size: int, seed: int, rubric: Rubric) -> Sample:
    """Return a sample of the rows that can be judged, in input order, each with its perturbations.

    Args:
        rows: the rows of the input, pairs in one order; read once, with at most `size` of them in memory.
        size: the largest number of rows to sample.
        seed: the seed of the sample and of random perturbations.

    Raises:
        UsageError: there is no row to sample.
    """
    drawn = drawn_rows(rows, size, seed=seed, rubric=rubric)
    sampled = [replace(row, responses=row.responses[::-1]) for row in drawn]
    perturbations = perturbations_of(rubric)
    skipped = {perturbation.name: Counter[SkipReason]() for perturbation in perturbations}
    perturbed: list[Row] = []
    for number, row in enumerate(sampled):
        perturbed.append(_numbered(row, number=number, name=ORIGINAL, row_id=row.id))
        other_rows = [other for other in sampled if other.instruction != row.instruction]
        for perturbation in perturbations:
            name = perturbation.name
            if name in UNPERTURBED:
                continue
            random = Random(f"{seed} {number} {name}")
            other_row = random.choice(other_rows) if other_rows else None
            try:
                changed = perturbation.make(row, RowChangeContext(random, other_row, rubric))
            except DoesNotApply as error:
                skipped[name][error.reason] += 1
                continue
            perturbed.append(_numbered(changed, number=number, name=name, row_id=row.id))
    return Sample(sampled, perturbed, skipped)


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
    reservoir: list[tuple[int, Row]] = []  # rows with their numbers in the input
    usable = 0
    for number, row in enumerate(rows):
        if isinstance(row, Failure) or rubric.refusal(row) is not None:
            continue
        usable += 1
        if len(reservoir) < size:
            reservoir.append((number, row))
            continue
        slot = random.randrange(usable)  # Vitter's algorithm R
        if slot < size:
            reservoir[slot] = (number, row)
    if not reservoir:
        raise UsageError("an audit needs rows that can be judged; the input has none")
    reservoir.sort(key=lambda numbered: numbered[0])
    return [row for _, row in reservoir]


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
    in_another_order = Random(seed).sample(originals, len(originals))
    if not runs.judge(judge, RUNS[0], perturbed):
        return False
    return runs.judge(judge, AGAIN, in_another_order)


def _numbered(row: Row, *, number: int, name: str, row_id: str) -> Row:
    """Return a row of the input of the runs: with the number of the sampled row, and its perturbation."""
    changed = Response(row.candidate, name)
    unchanged = tuple(Response(text, _UNCHANGED) for text in row.texts[1:])
    return replace(
        row,
        responses=(changed,) + unchanged,
        id=f"{row_id}/{name}",
        columns={SAMPLED: number, "audited": row.source},
    )
