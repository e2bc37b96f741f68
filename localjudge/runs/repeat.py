"""Judge a sample of the rows of a run again, in another order and in batches of half the size.

`RunDirectory.measure_noise` does so at the end of a run, with the engine that is open; `repeat` does it later,
with an engine of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from localjudge.config import JudgeConfig
from localjudge.engines.protocol import EngineInfo
from localjudge.errors import EngineError, RunMismatchError, UsageError
from localjudge.judge import Judge
from localjudge.models.catalogue import BUNDLED
from localjudge.modes.row_outcome import RowOutcome
from localjudge.prompts.task import StopSubmitting, Task
from localjudge.records import Outcome, Row
from localjudge.rows.formats import STDIN
from localjudge.runs.earlier_starts import differing_settings
from localjudge.runs.noise import Noise
from localjudge.runs.notices import SERVER
from localjudge.runs.reader import read_notices, read_row_outcomes
from localjudge.runs.repeated_rows import RepeatedRow
from localjudge.runs.row_sample import RowSample
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.secret_options import without_masked
from localjudge.system.steps import Report, Step, no_progress, no_steps


def judge_again(
    judge: Judge,
    manifest: RunManifest,
    *,
    chosen: Sequence[RowOutcome],
    rows: Mapping[str, Row],
    prompts_of_run: int,
    stop: Callable[[], bool] = lambda: False,
    report: Report = no_progress,
) -> list[RepeatedRow]:
    """Judge rows again by the engine of a judge, which begins as a new one would, in half as large batches.

    The seed of a prompt is that of its row, so it is the same as in the run.

    Args:
        judge: the judge.
        manifest: the manifest of the run.
        chosen: the outcomes of the rows, in the order in which they are judged again.
        rows: the row of each of their prompts, by the key of its judgement.
        prompts_of_run: number of prompts of the run: no batch of it was larger.
        stop: returns whether to stop: no more prompts are submitted.
        report: receives the number of prompts that were judged again.

    Returns:
        The rows with both outcomes; only those whose prompts were all judged again, if it was stopped.

    Raises:
        EngineError: the engine failed.
    """
    keys: dict[str, None] = {}  # in order, each once
    for row in chosen:
        keys.update(dict.fromkeys(prompt.key for prompt in row.prompts))
    new_outcomes: dict[str, Outcome] = {}

    def tasks() -> Iterator[Task]:
        for task in judge.task_builder.tasks(rows[key] for key in keys):
            if stop():
                raise StopSubmitting
            yield task

    batch_size = min(judge.engine.info.at_once, max(1, prompts_of_run))
    judge.engine.reset(max(1, batch_size // 2))
    try:
        for judged in judge.judge_tasks(tasks()):
            for _, outcome in judged:
                new_outcomes[outcome.key] = outcome
            report(len(new_outcomes), len(keys))
    finally:
        with suppress(EngineError):  # an engine that has died says so by itself
            judge.engine.reset()
    repeated = []
    for row in chosen:
        if all(prompt.key in new_outcomes for prompt in row.prompts):
            again = _joined(row, new_outcomes, manifest=manifest)
            repeated.append(RepeatedRow.of(row, again))
    return repeated


def _joined(row: RowOutcome, new_outcomes: Mapping[str, Outcome], *, manifest: RunManifest) -> RowOutcome:
    """Return the outcome of a row from the new outcomes of its prompts."""
    outcomes = [new_outcomes[prompt.key].model_copy(update=prompt.identity) for prompt in row.prompts]
    joined: RowOutcome = next(manifest.join().all(outcomes))
    return joined


@dataclass(frozen=True, slots=True)
class Repetition:
    """The result of a repetition.

    Attributes:
        notices: the notices of the run.
        noise: how far the scores of the sample moved.
    """

    notices: tuple[str, ...]
    noise: Noise


def repeat(folder: Path, sample: int, seed: int = 0, step: Step = no_steps) -> Repetition:
    """Judge a sample of a run again, by the engine and the settings that the run had.

    Args:
        folder: the run directory. Its inputs and its model must still exist at the same paths.
        sample: largest number of rows.
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
            recorded_config = _as_recorded(config, manifest, engine=start.engine)
            # The digest of the model is compared with the run's below.
            judge = stack.enter_context(Judge(recorded_config, allow_changed_model=True, report=report))
            judge.model.read_files(report)
        with step("loading the engine"):
            settings = judge.settings
        different = differing_settings(manifest.settings.as_dict(), settings)
        if different:
            raise RunMismatchError(
                f"{folder}: cannot be repeated here; this start differs from the run in {', '.join(different)}"
            )
        with step("reading the run"):
            rows = _rows_by_key(judge, manifest)
            drawn = RowSample(most=sample, seed=seed)
            for row in read_row_outcomes(folder, manifest):
                if all(prompt.key in rows for prompt in row.prompts):
                    drawn.add(row)
        chosen = drawn.first(sample)
        if not chosen:
            inputs = ", ".join(start.inputs)
            raise UsageError(f"{folder}: none of its rows is in {inputs} any more; restore the inputs")
        with step("judging again") as report:
            repeated = judge_again(
                judge, manifest, chosen=chosen, rows=rows, prompts_of_run=len(rows), report=report
            )
    noise = Noise.from_rows(repeated, manifest.rubric.row_columns)
    return Repetition(notices=read_notices(folder), noise=noise)


def _rows_by_key(judge: Judge, manifest: RunManifest) -> dict[str, Row]:
    """Return the row of each prompt of the inputs of a run, by the key of its judgement."""
    start = manifest.last_start
    source = RowSource.from_files(
        start.inputs,
        start.columns,
        used=manifest.rubric.fields,
        max_row_bytes=start.max_row_bytes,
        pairing=start.pairing,
    )
    return {judge.key(row): row for row in source.rows if isinstance(row, Row)}


def _as_recorded(config: JudgeConfig, manifest: RunManifest, *, engine: EngineInfo) -> JudgeConfig:
    """Return the settings of a run's judge, with the batches that its engine had.

    Secrets among the options of the engine, which a run does not record, are left out.

    Args:
        config: the recorded settings.
        manifest: the manifest of the run.
        engine: the engine of the run.
    """
    options = without_masked(config.engine_args)
    size_option = "batch_size" if engine.batch_size else "max_num_seqs"
    options[size_option] = str(engine.at_once)
    if engine.name != SERVER:
        options["dtype"] = engine.dtype
        if engine.head_dtype is not None:
            options["head_dtype"] = "float32" if engine.head_dtype == "float32" else "model"
    model: str | None
    if manifest.model.name == BUNDLED:
        model = None
    elif manifest.model.path:
        model = manifest.model.path
    else:  # a model that only a server has is known by its name
        model = manifest.model.name
    return config.replace(model=model, engine=engine.name, engine_args=options)
