"""Judge a sample of a run again, in another order and batch size, and count the scores that change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from localjudge.config import JudgeConfig
from localjudge.engines.protocol import EngineInfo
from localjudge.errors import RunMismatchError, UsageError
from localjudge.judge import Judge
from localjudge.models.catalogue import BUNDLED
from localjudge.records import Judgement, Row
from localjudge.rows.inputs import STDIN, find_inputs
from localjudge.rows.pairs import paired_rows
from localjudge.runs.notices import SERVER
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.steps import Report, Step, no_steps, with_progress


@dataclass(frozen=True, slots=True)
class Repetition:
    """The result of a repetition.

    Attributes:
        notices: the notices of the run.
        rows: number of rows that were judged again.
        changed: number of changed scores for each aspect.
        changed_rows: number of rows with a changed score.
        changed_rationales: number of rows with a changed rationale.
    """

    notices: tuple[str, ...]
    rows: int
    changed: Mapping[str, int]
    changed_rows: int
    changed_rationales: int


def repeat(folder: Path, sample: int, seed: int = 0, step: Step = no_steps) -> Repetition:
    """Judge a sample of a run again.

    Args:
        folder: the run directory. Its inputs and its model must still exist at the same paths.
        sample: largest number of judgements.
        seed: seed of the sample and of its order.
        step: receives the steps.

    Raises:
        UsageError: the rows cannot be read again, or none of them was judged in this run.
        RunMismatchError: the settings of the judge differ from those of the run.
    """
    manifest = read_manifest(folder)
    start = manifest.last_start
    if STDIN in start.inputs:
        raise UsageError(f"{folder}: its rows came from stdin and cannot be read again; repeat a run of files")
    config = manifest.config_of(start)
    if config is None or start.engine is None:
        raise UsageError(f"{folder}: has scores of a jury or imported scores; repeat a run of a judge")
    with ExitStack() as stack:
        with step("preparing the model", "bytes") as report:
            judge = stack.enter_context(_judge(manifest, start.engine, config, report))
            judge.model.read_files(report)
        return _repetition(folder, manifest, judge, sample, seed, step)


def _repetition(
    folder: Path, manifest: RunManifest, judge: Judge, sample: int, seed: int, step: Step
) -> Repetition:
    start = manifest.last_start
    with step("loading the engine"):
        settings = judge.settings
    if settings != (recorded := manifest.settings.as_dict()):
        different = [name for name, value in settings.items() if recorded.get(name) != value]
        raise RunMismatchError(
            f"{folder}: cannot be repeated here; this start differs from the run in {', '.join(different)}"
        )
    with step("reading the run"):
        judged = {outcome.key: outcome for outcome in read_outcomes(folder) if isinstance(outcome, Judgement)}
        rows = [
            row
            for row in paired_rows(
                find_inputs(start.inputs),
                start.columns,
                start.max_row_bytes,
                manifest.rubric.fields,
                start.pairing,
            )
            if isinstance(row, Row) and judge.key(row) in judged
        ]
    if not rows:
        raise UsageError(
            f"{folder}: none of its rows is in {', '.join(start.inputs)} any more; restore the inputs"
        )
    chosen = random.Random(seed).sample(rows, min(sample, len(rows)))
    with step("judging again") as report:
        return _compare(judge, chosen, judged, read_notices(folder), report)


def _judge(manifest: RunManifest, engine: EngineInfo, was: JudgeConfig, report: Report) -> Judge:
    """Return the judge of a run, with batches of about half the size."""
    size = "batch_size" if engine.batch_size else "max_num_seqs"
    rows_at_once = engine.batch_size or engine.max_num_seqs or 1
    smaller = {size: str(max(1, rows_at_once // 2 - 1))}
    if engine.name != SERVER:
        smaller["dtype"] = engine.dtype
    # A model that only a server has is known by its name.
    path = None if manifest.model.name == BUNDLED else manifest.model.path or manifest.model.name
    adapter = manifest.model.adapter.path if manifest.model.adapter else None
    config = was.replace(
        model=path, adapter=adapter, engine=engine.name, engine_args={**was.engine_args, **smaller}
    )
    # `audit --check repeat` compares the digest of the model with the run's.
    return Judge(config, allow_changed_model=True, report=report)


def _compare(
    judge: Judge,
    rows: Sequence[Row],
    recorded: Mapping[str, Judgement],
    found: tuple[str, ...],
    report: Report,
) -> Repetition:
    changed = Counter(dict.fromkeys(judge.rubric.aspects, 0))
    judged = changed_rows = changed_rationales = 0
    for outcome in with_progress(judge.score(rows, "finished"), report, len(rows)):
        before = recorded[outcome.key]
        judged += 1
        after = outcome.scores if isinstance(outcome, Judgement) else {}
        moved = [aspect for aspect in judge.rubric.aspects if after.get(aspect) != before.scores[aspect]]
        changed.update(moved)
        changed_rows += bool(moved)
        changed_rationales += not isinstance(outcome, Judgement) or outcome.rationale != before.rationale
    return Repetition(found, judged, dict(changed), changed_rows, changed_rationales)
