"""The run directory: the manifest of a run, its outcomes in the order they finish, and its summary.

    run.json           settings, rubric, model and its files' digests, engine, versions; written at the start
    judgements.jsonl   one line per row; appended as rows finish, put into the input's order at the end
    set-aside.jsonl    lines of rows that are no longer in the input, kept in case the rows return
    noise.jsonl        the rows of a complete run that were judged again, with both results
    summary.json       counts and means; written last

A run can be killed at any moment. A line is found by its key, the digest of everything that decides its
judgement. So a changed row is judged again, an unchanged row is not, even under another id, and duplicate rows
are judged once and share the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localjudge.config import JudgeConfig
from localjudge.errors import RunBrokenError
from localjudge.judge import Judge
from localjudge.modes.row_outcome import RowOutcome
from localjudge.prompts.task import StopSubmitting, Task
from localjudge.records import Outcome, Row
from localjudge.records.keys import settings_digest
from localjudge.records.outcome_columns import from_bytes, to_bytes
from localjudge.runs.earlier_lines import LinesOfEarlierStarts
from localjudge.runs.earlier_starts import changed_weights, recorded_run, with_start
from localjudge.runs.journal import Journal
from localjudge.runs.noise import Noise
from localjudge.runs.noise_plan import NoisePlan
from localjudge.runs.notices import DRY_RUN, SERVER
from localjudge.runs.ownership import LEASE, Ownership
from localjudge.runs.repeat import judge_again
from localjudge.runs.repeated_rows import encoded_rows
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_files import (
    ENGINE_LOG,
    JUDGEMENTS,
    MANIFEST,
    NOISE,
    SET_ASIDE,
    SUMMARY,
    files_of_run,
)
from localjudge.runs.run_manifest import StartRecord, as_json, recorded_inputs
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.shard import WHOLE, Shard
from localjudge.runs.stop_request import NEVER, StoppedBySignal, StopRequest
from localjudge.runs.summary import Summary, read_summary
from localjudge.system.steps import Report, Step, no_steps, with_progress

_UNNAMED = RowSource()


class RunDirectory(AbstractContextManager["RunDirectory"]):
    """A run directory that only this process may write.

    Entering it checks that it can be written, before any long computation. Leaving it removes the files of a
    new run if no row was judged, so a failed start leaves nothing behind.

    Args:
        folder: the directory; it is created if it is missing.
        say: called with messages for the user, such as the reason for a wait.
        lease: seconds without a heartbeat after which an owner on another host counts as dead.

    Attributes:
        complete: True if every row has its line, in the input's order.
        done: number of rows of the input with an outcome; at most the number of rows.
        set_aside: number of lines that belong to no row of the input, found by this start.
        new_weights: the aspects whose weight or best label differs from that of the earlier starts, in words.
        changed_inputs: the inputs whose content has changed since the last start.
        tokenization_warning: what `Judge.tokenization_warning` says of the rows, after `begin`.
        tasks: the tasks of the rows that this start judges, after `begin`.

    Raises:
        RunLockedError: another process is writing the run.
        RunBrokenError: the disk is full.
        RunMismatchError: the folder has a foreign file with the name of one of a run.
        UsageError: the folder cannot be created or written.
    """

    def __init__(
        self, folder: Path, say: Callable[[str], None] = lambda text: None, lease: float = LEASE
    ) -> None:
        self.folder = folder
        self.complete = False
        self.done = 0
        self.set_aside = 0
        self.new_weights = ""
        self.changed_inputs: list[str] = []
        self.tokenization_warning: str | None = None
        self._ownership = Ownership(folder, say, lease=lease)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._ownership)
            self._files_before = files_of_run(self.folder)
            stack.callback(self._remove_if_in_vain)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def refuse_another(self, judge: Judge | JudgeConfig, shard: Shard = WHOLE) -> None:
        """Check that the folder is empty or holds the same run, by what is known before the engine opens.

        Args:
            judge: the judge, or its settings before it is made.
            shard: the part of the input.

        Raises:
            RunMismatchError: the folder holds another run, or something else.
        """
        if isinstance(judge, Judge):
            described = judge.describe(judge.known_settings)
        else:
            described = {"settings": judge.run_identity, "rubric": {"name": judge.rubric.name}}
        recorded_run(self.folder, described | {"shard": shard.recorded})

    def begin(
        self, judge: Judge, plan: RunPlan, source: RowSource = _UNNAMED, retry_failed: bool = False
    ) -> int:
        """Write the manifest, and find the outcomes of earlier starts.

        Args:
            judge: the judge.
            plan: the rows.
            source: the origin of the rows, for the manifest.
            retry_failed: judge failed rows again.

        Returns:
            The number of rows of this input that already have an outcome.

        Raises:
            RunMismatchError: the folder holds another run, or something else.
        """
        self._judge = judge
        self._plan = plan
        shard = {"shard": plan.shard.recorded}
        before = recorded_run(self.folder, judge.describe(judge.known_settings) | shard)
        lines = None
        if before is not None:
            # The engine's settings are those of the earlier starts, or the comparison below refuses this start.
            settings = judge.known_settings | before.settings.of_engine
            lines = self._find_lines(settings_digest(settings), retry_failed=retry_failed)
        self.tokenization_warning = judge.tokenization_warning(plan)
        if lines is None or judge.config.engine == DRY_RUN:  # a dry run measures the prompts of all rows
            self.tasks = plan.encode()
        else:
            self.tasks = plan.encode(lines.has)
        described = judge.describe(judge.settings) | shard  # loads the engine, while the prompts are encoded
        before = recorded_run(self.folder, described)
        if lines is None:
            lines = self._find_lines(settings_digest(judge.settings), retry_failed=retry_failed)
        start = self._start_record(source)
        self._manifest = with_start(before, described, now=start)
        if before is not None:
            self.changed_inputs = start.changed_inputs(before.last_start)
            self.new_weights = changed_weights(judge.rubric, before.rubric)
        self.write_json(MANIFEST, self._manifest.as_dict())
        # A run without a summary counts as incomplete.
        self._ownership.remove(SUMMARY)
        self._begin_journal(lines)
        return self.done

    def _start_record(self, source: RowSource) -> StartRecord:
        """Return the record of this start; only fields that are given are written."""
        optional = dict(source.recorded_readings)
        if source.pairing is not None:
            optional["pairing"] = source.pairing
            optional["missing"] = source.missing
        if self.tokenization_warning:
            optional["tokenization_warning"] = self.tokenization_warning
        return StartRecord.now(
            recorded_inputs(source.inputs),
            source.columns,
            max_row_bytes=source.max_row_bytes,
            input_rows=self._plan.input_rows,
            input_digest=self._plan.input_digest,
            rows=self._plan.rows,
            engine=self._judge.engine.info,
            config=self._judge.config.per_start_settings,
            **optional,
        )

    def score(
        self,
        report: Callable[[list[Outcome], int], None] = lambda outcomes, rows: None,
        stopping: StopRequest = NEVER,
        step: Step = no_steps,
        noise_rows: int | None = 0,
    ) -> Summary:
        """Judge the rows without an outcome, and put all lines into the input's order.

        Args:
            report: called with the outcomes that were written, and the number of rows that received them.
            stopping: asked before each row whether to stop; it is left before the lines are counted.
            step: encloses the rewriting and the counting of the lines.
            noise_rows: number of rows that `measure_noise` judges again; None for the default.

        Returns:
            The summary of the run. If it was stopped, the summary of the rows that are done; their lines then
            stay in the order in which they finished.

        Raises:
            StoppedBySignal: the grace period of a stop is over. The summary of the rows that are done is
                written.
        """
        self._stopped = False
        signal_stop: StoppedBySignal | None = None
        config = self._judge.config
        self._noise_plan = NoisePlan(self.folder, noise_rows, engine=config.engine, seed=config.seed)
        try:
            with stopping:
                for judged in self._judge.judge_tasks(self._undone(stopping.asked)):
                    outcomes = [outcome for _, outcome in judged]
                    rows = self._append(judged)
                    report(outcomes, rows)
                    self._record_named_models()
                if not self._stopped:
                    self._journal.sync()
                    with step("putting the lines in order") as report_lines:
                        self._write_lines(JUDGEMENTS, self._in_order(report_lines))
                    self.complete = True
        except StoppedBySignal as stopped:
            signal_stop = stopped
        self._record_named_models()
        with step("counting the rows") as report_lines:
            summary = read_summary(
                self.folder, report_lines, manifest=self._manifest, report_row=self._noise_plan.add
            )
        self._summary = summary
        self._engine_counts = dict(self._judge.engine.statistics())
        if self.complete:
            self._keep_noise()
        self._write_summary()
        if signal_stop is not None:
            raise signal_stop
        return summary

    @property
    def lacks_noise(self) -> bool:
        """Whether the run is complete, and rows are to be judged again that were not yet."""
        return self.complete and self._summary.noise is None and bool(self._noise_plan.chosen)

    def measure_noise(self, stopping: StopRequest = NEVER, step: Step = no_steps) -> bool:
        """Judge rows of the complete run again, in other batches, and record how far their scores move.

        The lines of the run and the counts of its summary stay as they are.

        Args:
            stopping: asked before each prompt whether to stop; nothing is recorded then.
            step: encloses the judging.

        Returns:
            Whether the noise was measured; False if it was stopped.

        Raises:
            EngineError: the engine failed. The run is complete all the same.
        """
        chosen = self._noise_plan.chosen
        rows = self._rows_by_key(chosen)
        try:
            with stopping, step("judging some rows again, for the noise", "prompts") as report:
                repeated = judge_again(
                    self._judge,
                    self._manifest,
                    chosen=chosen,
                    rows=rows,
                    prompts_of_run=self._plan.rows,
                    stop=stopping.asked,
                    report=report,
                )
        except StoppedBySignal:
            return False
        if len(repeated) < len(chosen):
            return False
        self._write_lines(NOISE, encoded_rows(repeated))
        self._record_named_models()
        self._summary.manifest = self._manifest
        self._summary.noise = Noise.from_rows(repeated, self._manifest.rubric.row_columns)
        self._write_summary()
        return True

    def _rows_by_key(self, outcomes: Sequence[RowOutcome]) -> dict[str, Row]:
        """Return the row of each prompt of these outcomes, by the key of its judgement."""
        keys: set[str] = set()
        for outcome in outcomes:
            keys.update(prompt.key for prompt in outcome.prompts)
        rows: dict[str, Row] = {}
        for place in range(self._plan.rows):
            key = self._key(place)
            if key not in keys or key in rows:
                continue
            row = self._plan.row(place)
            if isinstance(row, Row):
                rows[key] = row
        return rows

    def _record_named_models(self) -> None:
        """Write what the replies of a server say of the model into the manifest, if it lacks some of it."""
        if self._judge.config.engine != SERVER:
            return
        start = self._manifest.last_start
        engine = self._judge.engine.info
        assert start.engine is not None
        if start.engine.details["model"] == engine.details["model"]:
            return
        new_start = start.model_copy(update={"engine": engine})
        starts = self._manifest.starts[:-1] + [new_start]
        self._manifest = self._manifest.model_copy(update={"starts": starts})
        self.write_json(MANIFEST, self._manifest.as_dict())

    def _keep_noise(self) -> None:
        """Take over the noise that an earlier start has measured, if it is that of the rows as they are now."""
        measured = self._noise_plan.measured
        if measured:
            self._summary.noise = Noise.from_rows(measured, self._manifest.rubric.row_columns)
        else:
            self._ownership.remove(NOISE)

    def _write_summary(self) -> None:
        content = self._summary.as_dict(complete=self.complete, planned=self._plan.rows)
        content["engine"] = self._engine_counts
        self.write_json(SUMMARY, content)

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """Return a context with a scratch path for a file of the run; without an error, it gets its name.

        Raises:
            RunBrokenError: another process has taken the run over; the file is unchanged.
        """
        return self._ownership.writing(name)

    def remove(self, name: str) -> None:
        """Remove a file of the run if it exists and this process still owns the folder."""
        self._ownership.remove(name)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of the run."""
        with self.writing(name) as scratch:
            scratch.write_bytes(as_json(content))

    def _undone(self, stop: Callable[[], bool]) -> Iterator[Task]:
        """Yield the tasks whose rows have no line; a dry run encodes those of all rows."""
        done = self._journal.index()
        for task in self.tasks:
            if stop():
                self._stopped = True
                raise StopSubmitting
            if self._key(task.places[0]) not in done:
                yield task

    def _append(self, judged: list[tuple[Task, Outcome]]) -> int:
        """Write a line for each row of these tasks, and return their number."""
        self._ownership.check()
        columns = self._judge.rubric.columns
        outcomes: list[Outcome] = []
        for task, outcome in judged:
            outcomes += [outcome.copied_to(self._plan.row(place)) for place in task.places]
        self._journal.append((outcome.key, to_bytes(outcome, columns)) for outcome in outcomes)
        self.done += len(outcomes)
        return len(outcomes)

    def _in_order(self, report: Report) -> Iterator[bytes]:
        """Yield the line of each row of the input."""
        index = self._journal.index()
        columns = self._judge.rubric.columns
        rows = with_progress(self._plan.in_order(), report, total=self._plan.rows)
        for place, row in enumerate(rows):
            line_number = index.get(self._key(place))
            if line_number is None:
                raise RunBrokenError(f"{self.folder / JUDGEMENTS}: the line of {row.source} is missing")
            line = self._journal.line_at(line_number)
            try:
                outcome = from_bytes(line, columns)
            except ValueError:
                raise self._journal.was_cut from None
            row_outcome = outcome.copied_to(row)
            if row_outcome is outcome:
                yield line
            else:
                yield to_bytes(row_outcome, columns)

    def _find_lines(self, settings: bytes, *, retry_failed: bool) -> LinesOfEarlierStarts:
        """Read the lines of earlier starts.

        Args:
            settings: the digest of the judge's settings, 32 bytes.
            retry_failed: rows that failed need a new line.
        """
        self._settings = settings
        return LinesOfEarlierStarts(
            self.folder,
            self._judge.rubric.columns,
            key=self._key,
            rows=self._plan.rows,
            retry_failed=retry_failed,
        )

    def _begin_journal(self, lines: LinesOfEarlierStarts) -> None:
        """Open the journal with the lines of this input's rows, and count them; set other lines aside.

        A line is written to its new file before it is removed from the old one.
        """
        self.set_aside = lines.set_aside
        if self.set_aside:
            self._write_lines(SET_ASIDE, lines.all_set_aside())
        with self._ownership.placing():
            journal = Journal(
                self.folder / JUDGEMENTS, within=self._ownership.private_folder, lines=lines.staying()
            )
            self._journal = self._open.enter_context(journal)
        self.done = lines.rows.count_in(self._journal.index())
        aside = self.folder / SET_ASIDE
        if aside.exists():
            self._write_lines(SET_ASIDE, lines.still_set_aside())
            if not aside.stat().st_size:
                self._ownership.remove(SET_ASIDE)

    def _write_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Write a file of the run."""
        with self.writing(name) as scratch, scratch.open("xb") as stream:
            stream.writelines(lines)

    def _key(self, place: int) -> str:
        """Return the key of the row at this place of the plan."""
        return self._plan.key(place, self._settings)

    def _remove_if_in_vain(self) -> None:
        """Remove the files that this start made for a new run, if the run is not complete and has no line.

        The engine's log stays, which may say why.
        """
        if MANIFEST in self._files_before or self.complete or self.done:
            return
        for name in files_of_run(self.folder):
            if name not in self._files_before and name != ENGINE_LOG:
                self._ownership.remove(name)
