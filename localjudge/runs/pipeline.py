"""The pipeline: from rows to a run directory.

    files → checks → folder → model → plan → engine → lines as rows finish → lines in input order, summary

The command line, the audit and Python programs all use `score_run`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from localjudge.runs.cost_estimate import CostEstimate
from localjudge.runs.notices import DRY_RUN
from localjudge.runs.reader import read_notices
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import ENGINE_LOG, SET_ASIDE, refuse_inputs_inside
from localjudge.runs.run_observer import RunObserver
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.shard import WHOLE, Shard
from localjudge.runs.stop_request import NEVER, StopRequest
from localjudge.runs.summary import Summary
from localjudge.system.quantities import counted, figure, hours

_OVERFLOWS = {"fail": "fail", "truncate-candidate": "lose the end of their candidate"}
_SYSTEMS_NAMED = 12
"""Largest number of systems that a warning names."""


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
    folder = Path(folder)
    if observer is None:
        observer = RunObserver()
    for name in source.empty:
        observer.warn(f"{name}: holds no rows")
    refuse_inputs_inside(folder, source.files)
    with RunDirectory(folder, observer.say) as run, ExitStack() as stack:
        if isinstance(judge, JudgeConfig):
            run.refuse_another(judge, shard)
        with observer.step("preparing the model", "bytes") as report:
            if isinstance(judge, JudgeConfig):
                new_judge = Judge(
                    judge,
                    cluster=cluster,
                    allow_changed_model=allow_changed_model,
                    allow_download=allow_download,
                    report=report,
                )
                judge = stack.enter_context(new_judge)
            judge.model.read_files(report)
        _introduce(judge, source, folder=folder, observer=observer)
        run.refuse_another(judge, shard)
        with observer.step("reading rows") as report:
            plan = stack.enter_context(
                RunPlan(judge, source.rows, scratch=folder, shard=shard, report=report, expected=source.count())
            )
            _say_pairs(plan, source, observer=observer)
            _warn_of_rows(plan, source, observer=observer)
            judge.configure_engine(plan.longest(), folder / ENGINE_LOG)
        with observer.step("loading the engine"):
            done_before = run.begin(judge, plan, source=source, retry_failed=retry_failed)
        start = _Start(
            judge=judge, source=source, plan=plan, run=run, done_before=done_before, observer=observer
        )
        start.say_engine()
        start.warn_of_earlier_starts()
        start.warn_of_overflow()
        summary = start.judge_rows(stopping, noise_rows)
        start.finish_encoding()
        start.warn_of_prompts()
        statistics = dict(judge.engine.statistics())
        cost = start.estimate_cost(summary, statistics)
        if noise_rows and start.is_dry_run:
            observer.say("a dry run has no noise; no row is judged again")
        noise_stopped = False
        if run.lacks_noise:
            noise_stopped = not start.measure_noise(stopping)
    return RunResult(
        folder=folder,
        summary=summary,
        complete=run.complete,
        done=run.done,
        planned=plan.rows,
        notices=read_notices(folder),
        statistics=statistics,
        cost=cost,
        noise_stopped=noise_stopped,
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of a run whose engine is open, with the steps that follow.

    Attributes:
        judge: the judge.
        source: the rows.
        plan: the rows in the order of judging.
        run: the run directory.
        done_before: number of rows that earlier starts have judged.
        observer: receives messages, warnings and outcomes.
    """

    judge: Judge
    source: RowSource
    plan: RunPlan
    run: RunDirectory
    done_before: int
    observer: RunObserver

    @property
    def is_dry_run(self) -> bool:
        """Whether no model is asked."""
        return self.judge.config.engine == DRY_RUN

    def say_engine(self) -> None:
        """Say which engine judges, and warn if its answers are not deterministic."""
        engine = self.judge.engine.info
        self.observer.say(engine.headline)
        if engine.batch_invariant is False:
            self.observer.warn("`deterministic`: not supported by this engine or hardware")

    def warn_of_earlier_starts(self) -> None:
        """Say what the run has of earlier starts, and how this one differs from them."""
        run = self.run
        if run.set_aside:
            file = run.folder / SET_ASIDE
            self.observer.warn(
                f"{run.set_aside:,} earlier lines belong to no row of this input; they are kept in {file}",
                always=True,
            )
        if run.tokenization_warning:
            self.observer.warn(run.tokenization_warning)
        for name in run.changed_inputs:
            self.observer.warn(
                f"{name}: has changed since the last start; it is read by the reading of that start"
            )
        if run.new_weights:
            self.observer.warn(
                f"{run.folder}: means now use the weights and the best labels of this rubric: "
                f"{run.new_weights}",
                always=True,
            )
        if self.done_before:
            verb = "is" if self.done_before == 1 else "are"
            undone = self.plan.rows - self.done_before
            self.observer.say(
                f"continuing: {counted(self.done_before, 'row')} {verb} done already, {undone} are to do"
            )

    def warn_of_overflow(self) -> None:
        """Warn if a row that is encoded already does not fit the model's context."""
        row = self.run.tasks.first_too_long
        if row is not None:
            self.observer.warn(
                f"{row}: does not fit the model's context; such rows {self._overflow}, and are counted at the "
                "end"
            )

    @property
    def _overflow(self) -> str:
        """What rows that do not fit the context do, as a verb phrase."""
        return _OVERFLOWS[self.judge.config.on_overflow]

    def judge_rows(self, stopping: StopRequest, noise_rows: int | None) -> Summary:
        """Judge the rows without a line, and return the summary of the run."""
        engine = self.judge.engine
        begin = time.monotonic()
        self.observer.watch(lambda: getattr(engine, "answer_tokens", 0))
        with self.observer.counting(self.plan.rows - self.done_before):
            summary = self.run.score(
                self.observer.add, stopping, step=self.observer.step, noise_rows=noise_rows
            )
        seconds = time.monotonic() - begin
        judged = self.run.done - self.done_before
        if judged > 0 and not self.is_dry_run:
            self._say_speed(judged, seconds)
        return summary

    def _say_speed(self, judged: int, seconds: float) -> None:
        """Say how fast this start has judged its rows, and what slowed it down."""
        self.observer.say(_speed(judged, seconds, planned=self.plan.rows, source=self.source))
        recomputed = _recomputed_beginnings(self.judge)
        if recomputed and judged > 1:
            self.observer.say(recomputed)

    def finish_encoding(self) -> None:
        """Encode the rows of a complete run that had a line already; only a dry run has any."""
        if self.run.complete:
            with self.observer.step("encoding the rows that are done") as report:
                self.run.tasks.finish(report)

    def warn_of_prompts(self) -> None:
        """Warn of prompts that did not fit the context, and of thoughts that could not be had."""
        tasks = self.run.tasks
        if tasks.too_long:
            self.observer.warn(
                f"{tasks.too_long:,} of {tasks.encoded:,} encoded rows do not fit the context; they "
                f"{self._overflow}"
            )
        if self.judge.no_thoughts_notice:
            self.observer.warn(self.judge.no_thoughts_notice)

    def estimate_cost(self, summary: Summary, statistics: Mapping[str, Any]) -> CostEstimate | None:
        """Return the estimated cost of the job, after a complete dry run; None otherwise.

        Args:
            summary: the summary of the run.
            statistics: the counts of the engine; of a dry run, with the rows/s of the real engine as `rate`.
        """
        if not self.is_dry_run or not self.run.complete:
            return None
        return CostEstimate.from_run(
            self.judge,
            self.plan,
            tasks=self.run.tasks,
            summary=summary,
            folder=self.run.folder,
            rate=statistics["rate"],
        )

    def measure_noise(self, stopping: StopRequest) -> bool:
        """Judge some rows of the complete run again. Return False if it was stopped."""
        try:
            return self.run.measure_noise(stopping, self.observer.step)
        except EngineError as error:
            self.observer.warn(
                f"the noise was not measured, because the engine failed: {error}; the run is complete, and the "
                "same command measures it"
            )
            return True


def _speed(judged: int, seconds: float, *, planned: int, source: RowSource) -> str:
    """Return one line: the rows per second of this start, and how long all rows of a limited input take.

    Args:
        judged: number of rows that this start has judged.
        seconds: the time that it took.
        planned: number of rows in the plan.
        source: the rows, whose number may be larger than that of the plan.
    """
    rate = judged / max(seconds, 1e-3)
    line = f"{figure(rate)} rows/s on this machine"
    rows = source.count_all()
    if rows and rows > planned:
        line += f"; all {rows:,} rows of the input take about {hours(rows / rate)}"
    return line


def _recomputed_beginnings(judge: Judge) -> str:
    """Return a line on shared beginnings of prompts that the engine did not keep; empty if it keeps them."""
    reason = judge.engine.info.details.get(BEGINNINGS, KEPT)
    if reason == KEPT:
        return ""
    counts = judge.engine.statistics()
    reused = counts.get("cached_prompt_tokens", 0)
    prompt_tokens = counts.get("prompt_tokens", 0)
    return (
        "beginnings that prompts share were computed again: "
        f"{reused:,} of {counted(prompt_tokens, 'prompt token')} reused; {reason}"
    )


def _introduce(judge: Judge, source: RowSource, *, folder: Path, observer: RunObserver) -> None:
    """Say what is judged by which model and rubric, and what a reader must know of these."""
    rubric = judge.rubric.name
    if judge.rubric.prompt.guard:
        rubric += ", guarded"
    inputs = f"{len(source.inputs)} input(s)" if source.inputs else "rows of a program"
    checked = source.checked
    if checked is not None and checked.how:
        inputs += f", {checked.how}"
    observer.say(f"model {judge.model.name} · rubric {rubric} · {inputs} → {folder}")
    if checked is not None:
        if checked.left_out:
            observer.say(checked.left_out)
        forms_pairs = source.pairing is not None and source.pairing.forms
        reads_conversations = not CONVERSATIONS.isdisjoint(judge.rubric.fields)
        if checked.has_hidden_turns and not forms_pairs and not reads_conversations:
            observer.warn(f"the rubric {judge.rubric.name} {NO_CONVERSATION}")
    for notice in (judge.notice, judge.template_notice, judge.thinking_notice):
        if notice:
            observer.warn(notice)
    if judge.model_changes:
        observer.warn(f"the model has changed since it was verified: {in_words(judge.model_changes)}")


def _say_pairs(plan: RunPlan, source: RowSource, *, observer: RunObserver) -> None:
    """Say of how many pairs the rows are, if they are of pairs."""
    if source.pairing is None:
        return
    orders = source.pairing.orders
    pairs = pairs_in_words(plan.rows // orders, orders)
    observer.say(f"{counted(plan.rows, 'row')} ({pairs})")


def _warn_of_rows(plan: RunPlan, source: RowSource, *, observer: RunObserver) -> None:
    """Warn of rows that are missing, left out or not told apart.

    Raises:
        UsageError: there is no row.
    """
    if not plan.input_rows:
        inputs = ", ".join(source.inputs)
        raise UsageError(f"{inputs or 'rows'}: holds no rows")
    if not plan.rows:
        observer.warn(
            f"shard {plan.shard} has no rows: instructions are not divided, and the "
            f"{counted(plan.input_rows, 'row')} of the input are in the others; merge needs this run, too"
        )
    if source.limit.left_out:
        observer.warn(_left_out_systems(source))
    if source.missing:
        systems = ", ".join(f"{name} to {count}" for name, count in source.missing.items())
        observer.warn(
            f"some pairs could not be formed, because responses are missing: {systems} of the instructions"
        )
    if plan.repeated_ids:
        observer.warn(_repeated_ids(plan))


def _left_out_systems(source: RowSource) -> str:
    """Return a line on the systems that have rows only after the limit."""
    names = source.limit.left_out
    kind = "rows" if source.pairing is None else "pairs"
    systems = ", ".join(names[:_SYSTEMS_NAMED])
    unnamed = len(names) - _SYSTEMS_NAMED
    if unnamed > 0:
        systems += f" and {unnamed:,} more"
    return (
        f"`limit` {source.limit.count}: only later {kind} are of {systems}; to compare all systems, raise it "
        "or sort the input by instruction"
    )


def _repeated_ids(plan: RunPlan) -> str:
    """Return a line on the rows with the id and the system of an earlier row."""
    row = plan.repeated_id()
    system = f" and the system {row.system!r}" if row.system else ""
    return (
        f"{plan.repeated_ids:,} of {plan.rows:,} rows have the id and the system of an earlier row, such as "
        f"the id {row.id!r}{system} at {row.source}; name the columns that tell rows apart with --column "
        "id=COLUMN, --column system=COLUMN or --system-from filename"
    )
