"""The pipeline: from rows to a run directory.

    files → checks → folder → model → plan → engine → lines as rows finish → lines in input order, summary

The command line, the audit and Python programs all use `score_run`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.config import JudgeConfig
from localjudge.engines.engine_options import Cluster
from localjudge.engines.protocol import BEGINNINGS, KEPT
from localjudge.errors import EngineError, UsageError
from localjudge.judge import Judge
from localjudge.models.digests import in_words
from localjudge.modes.pair_preference import pairs_in_words
from localjudge.rows.columns import CONVERSATIONS
from localjudge.rows.conversation import NO_CONVERSATION
from localjudge.runs import NEVER, RunObserver, StopRequest
from localjudge.runs.cost_estimate import CostEstimate
from localjudge.runs.reader import read_notices
from localjudge.runs.row_source import WHOLE, RowSource, Shard
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import ENGINE_LOG, SET_ASIDE, refuse_inputs_inside
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary
from localjudge.system.quantities import counted, figure, hours

_OVERFLOWS = {"fail": "fail", "truncate-candidate": "lose the end of their candidate"}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a call of `score_run`.

    Attributes:
        folder: the run directory.
        summary: counts and means of all lines of the run, including those of earlier starts.
        complete: whether every row has its line; False if the run was stopped.
        done: number of rows that were judged or failed.
        planned: number of rows in the input or the shard.
        notices: warnings that a person must read before the scores.
        statistics: counts of the engine in this start.
        cost: estimated cost of the job after a dry run; None otherwise.
        noise_stopped: whether a stop was requested while rows were judged again to measure the noise.
    """

    folder: Path
    summary: Summary
    complete: bool
    done: int
    planned: int
    notices: tuple[str, ...]
    statistics: dict[str, Any]
    cost: CostEstimate | None
    noise_stopped: bool = False


def score_run(
    judge: JudgeConfig | Judge,
    source: RowSource,
    folder: str | Path,
    *,
    shard: Shard = WHOLE,
    retry_failed: bool = False,
    cluster: Cluster | None = None,
    allow_changed_model: bool = False,
    allow_download: bool = False,
    noise_rows: int | None = 0,
    observer: RunObserver | None = None,
    stopping: StopRequest = NEVER,
) -> RunResult:
    """Judge every row of a source and write a run directory. The same call continues a run that was stopped.

    Args:
        judge: the settings, or an existing judge, whose engine stays open.
        source: the rows.
        folder: the run directory; it is created if it does not exist.
        shard: the part of the input to judge.
        retry_failed: judge rows again that failed in an earlier start.
        cluster: a Ray cluster for the engines; only if `judge` is settings.
        allow_changed_model: accept a model that has changed since it was verified; only if `judge` is settings.
        allow_download: download a model that is not on this machine; only if `judge` is settings.
        noise_rows: number of rows to judge again when all are done, to measure how far their scores move in
            other batches; None for 2 % of the rows, at most 200, of a run of 800 rows or more.
        observer: receives messages, warnings and outcomes.
        stopping: entered while rows are judged; after it requests a stop, only the rows in flight are finished.

    Raises:
        UsageError: the folder, the rows, the settings or the model cannot be used.
        RunMismatchError: the folder belongs to another run.
        RunLockedError: another process writes to the folder.
        EngineError: the engine failed; finished lines are kept, and the same call continues the run.
    """
    observer, folder = observer or RunObserver(), Path(folder)
    for name in source.empty:
        observer.warn(f"{name}: holds no rows")
    refuse_inputs_inside(folder, source.files)
    with RunDirectory(folder, observer.say) as run, ExitStack() as stack:
        if isinstance(judge, JudgeConfig):
            run.refuse_another(judge, shard)
        with observer.step("preparing the model", "bytes") as read:
            if isinstance(judge, JudgeConfig):
                made = Judge(
                    judge,
                    cluster=cluster,
                    allow_changed_model=allow_changed_model,
                    allow_download=allow_download,
                    report=read,
                )
                judge = stack.enter_context(made)
            judge.model.read_files(read)
        _introduce(judge, source, folder, observer)
        run.refuse_another(judge, shard)
        with observer.step("reading rows") as read:
            plan = stack.enter_context(RunPlan(judge, source.rows, folder, shard, read, source.count()))
            if source.pairing is not None:
                orders = source.pairing.orders
                observer.say(f"{counted(plan.rows, 'row')} ({pairs_in_words(plan.rows // orders, orders)})")
            _warn_of(plan, source, observer)
            judge.configure_engine(plan.longest(), folder / ENGINE_LOG)
        with observer.step("loading the engine"):
            done = run.begin(judge, plan, source, retry_failed)
        observer.say(judge.engine.info.headline)
        if judge.engine.info.batch_invariant is False:
            observer.warn("`deterministic`: not supported by this engine or hardware")
        if run.set_aside:
            aside = folder / SET_ASIDE
            observer.warn(
                f"{run.set_aside:,} earlier lines belong to no row of this input; they are kept in {aside}",
                always=True,
            )
        if run.tokenization_warning:
            observer.warn(run.tokenization_warning)
        for name in run.changed_inputs:
            observer.warn(f"{name}: has changed since the last start; it is read by the reading of that start")
        if run.new_weights:
            changed = f"means now use the weights and the best labels of this rubric: {run.new_weights}"
            observer.warn(f"{folder}: {changed}", always=True)
        if done:
            are = "is" if done == 1 else "are"
            observer.say(f"continuing: {counted(done, 'row')} {are} done already, {plan.rows - done} are to do")
        tasks = run.tasks
        what = _OVERFLOWS[judge.config.on_overflow]
        if tasks.first_too_long is not None:
            observer.warn(
                f"{tasks.first_too_long}: does not fit the model's context; such rows {what}, and are counted "
                "at the end"
            )
        engine, begun = judge.engine, time.monotonic()
        observer.watch(lambda: getattr(engine, "answer_tokens", 0))
        with observer.counting(plan.rows - done):
            summary = run.score(observer.add, stopping, observer.step, noise_rows)
        seconds, is_dry_run = time.monotonic() - begun, judge.config.engine == "dry-run"
        if run.done > done and not is_dry_run:
            observer.say(_speed(run.done - done, plan.rows, source, seconds))
            not_kept = _beginnings_not_kept(judge)
            if not_kept and run.done - done > 1:
                observer.say(not_kept)
        if run.complete:
            with observer.step("encoding the rows that are done") as report:
                tasks.finish(report)  # only a dry run has any
        if tasks.too_long:
            observer.warn(
                f"{tasks.too_long:,} of {tasks.encoded:,} encoded rows do not fit the context; they {what}"
            )
        if judge.no_thoughts_notice:
            observer.warn(judge.no_thoughts_notice)
        statistics = dict(judge.engine.statistics())
        cost = None
        if is_dry_run and run.complete:
            cost = CostEstimate.from_run(judge, plan, tasks, summary, folder, statistics["rate"])
        if noise_rows and is_dry_run:
            observer.say("a dry run has no noise; no row is judged again")
        noise_stopped = run.lacks_noise and not _measure_noise(run, observer, stopping)
        result = (run.complete, run.done, plan.rows)
    return RunResult(folder, summary, *result, read_notices(folder), statistics, cost, noise_stopped)


def _measure_noise(run: RunDirectory, observer: RunObserver, stopping: StopRequest) -> bool:
    """Judge some rows of a complete run again. Return False if it was stopped."""
    try:
        return run.measure_noise(stopping, observer.step)
    except EngineError as error:
        observer.warn(
            f"the noise was not measured, because the engine failed: {error}; the run is complete, and the "
            "same command measures it"
        )
        return True


def _speed(judged: int, planned: int, source: RowSource, seconds: float) -> str:
    """Return one line: the rows per second of this start, and how long all rows of a limited input take."""
    rate = judged / max(seconds, 1e-3)
    rows = source.count_all() or planned
    rest = f"; all {rows:,} rows of the input take about {hours(rows / rate)}" if rows > planned else ""
    return f"{figure(rate)} rows/s on this machine{rest}"


def _beginnings_not_kept(judge: Judge) -> str:
    """Return a line on shared beginnings of prompts that the engine did not keep; empty if it keeps them."""
    reason = judge.engine.info.details.get(BEGINNINGS, KEPT)
    if reason == KEPT:
        return ""
    counts = judge.engine.statistics()
    reused, all_tokens = counts.get("cached_prompt_tokens", 0), counts.get("prompt_tokens", 0)
    return (
        "beginnings that prompts share were computed again: "
        f"{reused:,} of {counted(all_tokens, 'prompt token')} reused; {reason}"
    )


def _introduce(judge: Judge, source: RowSource, folder: Path, observer: RunObserver) -> None:
    by = judge.rubric.name + ", guarded" * judge.rubric.prompt.guard
    inputs = f"{len(source.inputs)} input(s)" if source.inputs else "rows of a program"
    checked = source.checked
    if checked and checked.how:
        inputs += f", {checked.how}"
    observer.say(f"model {judge.model.name} · rubric {by} · {inputs} → {folder}")
    if checked and checked.left_out:
        observer.say(checked.left_out)
    forms = source.pairing is not None and source.pairing.forms
    if checked and not forms and checked.has_hidden_turns and CONVERSATIONS.isdisjoint(judge.rubric.fields):
        observer.warn(f"the rubric {judge.rubric.name} {NO_CONVERSATION}")
    for notice in (judge.notice, judge.template_notice, judge.thinking_notice):
        if notice:
            observer.warn(notice)
    if judge.model_changes:
        observer.warn(f"the model has changed since it was verified: {in_words(judge.model_changes)}")


def _warn_of(plan: RunPlan, source: RowSource, observer: RunObserver) -> None:
    if not plan.input_rows:
        raise UsageError(f"{', '.join(source.inputs) or 'rows'}: holds no rows")
    if not plan.rows:
        others = f"{counted(plan.input_rows, 'row')} of the input are in the others; merge needs this run, too"
        observer.warn(f"shard {plan.shard} has no rows: instructions are not divided, and the {others}")
    if names := source.limit.left_out:
        later, more = "rows" if source.pairing is None else "pairs", len(names) - 12
        some = ", ".join(names[:12]) + f" and {more:,} more" * (more > 0)
        observer.warn(
            f"`limit` {source.limit.count}: only later {later} are of {some}; to compare all systems, raise it "
            "or sort the input by instruction"
        )
    if source.missing:
        systems = ", ".join(f"{name} to {count}" for name, count in source.missing.items())
        observer.warn(
            f"some pairs could not be formed, because responses are missing: {systems} of the instructions"
        )
    if plan.repeated_ids:
        observer.warn(_repetition(plan))


def _repetition(plan: RunPlan) -> str:
    row = plan.repeated_id()
    system = f" and the system {row.system!r}" if row.system else ""
    return (
        f"{plan.repeated_ids:,} of {plan.rows:,} rows have the id and the system of an earlier row, such as "
        f"the id {row.id!r}{system} at {row.source}; name the columns that tell rows apart with --column "
        "id=COLUMN, --column system=COLUMN or --system-from filename"
    )
