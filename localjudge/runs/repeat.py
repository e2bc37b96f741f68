"""Judge a sample of a run again, in another order and batch size, and count the scores that change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from localjudge.config import JudgeConfig
from localjudge.engines.protocol import EngineInfo
from localjudge.errors import RunMismatchError, UsageError
from localjudge.judge import Judge
from localjudge.models.catalogue import BUNDLED
from localjudge.records import Judgement, Row
from localjudge.rows.formats import STDIN
from localjudge.runs.earlier_starts import differing_settings
from localjudge.runs.notices import SERVER
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.steps import Step, no_steps, with_progress


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
    start, aspects = manifest.last_start, manifest.rubric.aspects
    if STDIN in start.inputs:
        raise UsageError(f"{folder}: its rows came from stdin and cannot be read again; repeat a run of files")
    config = manifest.config_of(start)
    if config is None or start.engine is None:
        raise UsageError(f"{folder}: has scores of a jury or imported scores; repeat a run of a judge")
    with ExitStack() as stack:
        with step("preparing the model", "bytes") as report:
            again = _in_smaller_batches(config, manifest, start.engine)
            # The digest of the model is compared with the run's below.
            judge = stack.enter_context(Judge(again, allow_changed_model=True, report=report))
            judge.model.read_files(report)
        with step("loading the engine"):
            settings, recorded = judge.settings, manifest.settings.as_dict()
        different = differing_settings(recorded, settings)
        if different:
            raise RunMismatchError(
                f"{folder}: cannot be repeated here; this start differs from the run in {', '.join(different)}"
            )
        with step("reading the run"):
            judged = {each.key: each for each in read_outcomes(folder) if isinstance(each, Judgement)}
            source = RowSource.from_files(
                start.inputs,
                start.columns,
                used=manifest.rubric.fields,
                max_row_bytes=start.max_row_bytes,
                pairing=start.pairing,
            )
            rows = [row for row in source.rows if isinstance(row, Row) and judge.key(row) in judged]
        if not rows:
            inputs = ", ".join(start.inputs)
            raise UsageError(f"{folder}: none of its rows is in {inputs} any more; restore the inputs")
        chosen = random.Random(seed).sample(rows, min(sample, len(rows)))
        changed, changed_rows, changed_rationales = Counter(dict.fromkeys(aspects, 0)), 0, 0
        with step("judging again") as report:
            for now in with_progress(judge.score(chosen, "finished"), report, len(chosen)):
                before = judged[now.key]
                scores = now.scores if isinstance(now, Judgement) else {}
                moved = [aspect for aspect in aspects if scores.get(aspect) != before.scores[aspect]]
                changed.update(moved)
                changed_rows += bool(moved)
                changed_rationales += not isinstance(now, Judgement) or now.rationale != before.rationale
    return Repetition(read_notices(folder), len(chosen), dict(changed), changed_rows, changed_rationales)


def _in_smaller_batches(was: JudgeConfig, manifest: RunManifest, engine: EngineInfo) -> JudgeConfig:
    """Return the settings of a run's judge, with batches of about half the size."""
    size = "batch_size" if engine.batch_size else "max_num_seqs"
    rows_at_once = engine.batch_size or engine.max_num_seqs or 1
    smaller = {size: str(max(1, rows_at_once // 2 - 1))}
    if engine.name != SERVER:
        smaller["dtype"] = engine.dtype
        if engine.head_dtype is not None:
            smaller["head_dtype"] = "float32" if engine.head_dtype == "float32" else "model"
    # A model that only a server has is known by its name.
    path = None if manifest.model.name == BUNDLED else manifest.model.path or manifest.model.name
    options = {**was.engine_args, **smaller}
    return was.replace(model=path, engine=engine.name, engine_args=options)
