"""The work of a run, its speed beside the predicted one, and what a job costs by its dry run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.engines.protocol import EngineInfo
from localjudge.errors import LocalJudgeError, UsageError
from localjudge.judge import Judge
from localjudge.models.capacity.capacity_plan import PlannedModel
from localjudge.models.capacity.device import Device
from localjudge.models.capacity.forecast import Forecast
from localjudge.models.capacity.throughput import EXPECTED_SHARE, AnswerTokens, Throughput, Workload, throughput
from localjudge.models.model import Model
from localjudge.prompts.task_stream import TaskStream
from localjudge.records import Judgement, Outcome, Row
from localjudge.rows.columns import Columns
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary
from localjudge.system.machine import Machine
from localjudge.system.quantities import figure
from localjudge.system.steps import Step, no_steps, with_progress

BYTES_OF_A_TOKEN = 4
"""Bytes of English text in a token, roughly: the default rubric's prompts have 3.6 in Phi-3, 4.0 in Falcon."""
SHORTEST_COMPARED = 60.0
"""Seconds of judging below which a run is not compared: its first and last batches are most of it."""


def workload(judge: Judge, tasks: TaskStream, written: float | None = None) -> Workload:
    """Return the work of a judge after its tasks are encoded.

    Args:
        judge: the judge.
        tasks: the tasks.
        written: tokens of the thoughts and the rationale of an answer in the mean; None for `EXPECTED_SHARE` of
            their limit.
    """
    decoding, scores = judge.decoding, len(judge.decoding.table.score_state)
    closing = decoding.table.smallest_limit - 1  # the smallest answer has a rationale of one token
    limit = decoding.max_tokens - closing
    answer = AnswerTokens(
        EXPECTED_SHARE * limit if written is None else written, limit, closing - scores, scores
    )
    times = judge.config.samples
    shared = tasks.shared_tokens + (times - 1) * tasks.tokens  # the samples of a row have one prompt
    return Workload(times * tasks.prompts, times * tasks.tokens, shared, times * tasks.squares, answer)


def workload_of(
    model: Model,
    inputs: Sequence[str],
    columns: Columns,
    written: float | None = None,
    step: Step = no_steps,
    **settings: Any,
) -> Workload:
    """Encode the rows of files and return the work of judging them.

    Args:
        model: the model; its configuration and tokenizer are enough.
        inputs: files and globs; `examples` is the included rows.
        columns: the column of each field whose column has a custom name.
        written: as in `workload`.
        step: receives the steps.
        settings: settings of a `JudgeConfig` by name.

    Raises:
        UsageError: the rows, the settings or the tokenizer cannot be used.
    """
    with ExitStack() as stack:
        settings["engine"] = "dry-run"
        judge = stack.enter_context(Judge(model, **settings))
        source = RowSource.from_files(inputs, columns, used=judge.rubric.fields)
        with step("reading rows") as report:
            plan = stack.enter_context(RunPlan(judge, source.rows, report=report, expected=source.count()))
        with step("encoding rows") as report:
            tasks = plan.encode()
            tasks.finish(report)
        work = workload(judge, tasks, written)
    if work.answer.written > work.answer.written_limit:
        raise UsageError(
            f"rationales of {written:g} tokens in the mean are longer than their limit, "
            f"{work.answer.written_limit}; give fewer, or raise `max_rationale_tokens`"
        )
    return work


def estimated_lengths(inputs: Sequence[str], columns: Columns, rubric: str, step: Step = no_steps) -> list[int]:
    """Return the length of each row's prompt in tokens, estimated from its bytes, without a tokenizer.

    Raises:
        UsageError: as for `workload_of`.
    """
    found = Rubric.load(rubric)
    rows = RowSource.from_files(inputs, columns, used=found.fields).rows
    with step("reading rows") as report:
        return [
            max(1, len(found.text(row).encode()) // BYTES_OF_A_TOKEN)
            for row in with_progress(rows, report)
            if isinstance(row, Row) and found.refusal(row) is None
        ]


class RunSpeed:
    """The speed of a run from now on, and the tokens of its answers."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._answers = self._tokens = 0

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Count outcomes; duplicate rows share one."""
        for outcome in outcomes:
            if isinstance(outcome, Judgement):
                self._answers += 1
                self._tokens += outcome.output_tokens

    def compared(self, judge: Judge, tasks: TaskStream) -> str | None:
        """Return one line that compares the speed so far with the prediction for the answers so far.

        Returns:
            The line; None if the run was short or no prediction can be made: for a cluster, for a device of
            unknown rates, or for an engine other than the one that is predicted on this device.
        """
        seconds, info = time.monotonic() - self._begin, judge.engine.info
        if seconds < SHORTEST_COMPARED or not self._answers or not tasks.prompts:
            return None
        with suppress(LocalJudgeError):
            if (device := _device(info)) is None:
                return None
            work = workload(judge, tasks)
            written = (
                self._tokens / self._answers / judge.config.samples - work.answer.fixed - work.answer.scores
            )
            work = workload(judge, tasks, max(1.0, written))
            model = PlannedModel.find(str(judge.model.path))
            split = info.details.get("tensor_parallel_size", 0)
            predicted = throughput(
                model.shape,
                model.weights,
                work,
                device,
                gpus=max(1, int(str(split))),
                batch=info.batch_size or 1,
                max_num_seqs=info.max_num_seqs,
            )
            if predicted is None or predicted.split != split:
                return None
            ran = work.rows / seconds
            return (
                f"judged {figure(ran)} prompts/s, {ran / predicted.rows_per_second:.0%} of the "
                f"{figure(predicted.rows_per_second)} predicted for {device.name} and answers of "
                f"{work.answer.total:.0f} tokens"
            )
        return None


def _device(info: EngineInfo) -> Device | None:
    """Return the device of an engine in this process; None if no prediction is made for the two."""
    if "ray" in info.details:
        return None
    if info.name == "transformers" and info.device.startswith("cpu"):
        return Device.cpu(info.dtype)
    if info.name == "vllm" and info.device == "cuda":
        return Device.here(info.dtype)
    return None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost of a job, after its dry run.

    Attributes:
        rows: number of rows to judge.
        different: number of different rows; duplicate rows are judged once.
        groups: number of different pairs of instruction and reference, which are the shared prompt prefixes.
        failing: number of rows that cannot be judged.
        too_long: number of rows that do not fit the context.
        context: context length of the model in tokens; None if there is no limit.
        prompt_tokens: total number of prompt tokens.
        computed: number of them that are computed with a prefix cache; duplicate rows are judged once.
        parts: mean numbers of tokens of a prompt: with which those of all rows begin, then those of its
            instruction, of its own, and of the template after the response.
        hint: a line about the order of the rubric's text; empty if it is good.
        longest: length of the longest prompt in tokens.
        answer_tokens: token limit of one answer.
        disk: disk space that the run needs in bytes, including its scratch file.
        free: free disk space in bytes.
        hours: estimated duration; None without a rate and a known GPU.
        basis: what the duration follows from, for people.
    """

    rows: int
    different: int
    groups: int
    failing: int
    too_long: int
    context: int | None
    prompt_tokens: int
    computed: int
    parts: tuple[float, ...]
    hint: str
    longest: int
    answer_tokens: int
    disk: int
    free: int
    hours: float | None
    basis: str

    @classmethod
    def from_run(
        cls,
        judge: Judge,
        plan: RunPlan,
        tasks: TaskStream,
        summary: Summary,
        folder: Path,
        rate: float | None,
        gpu: str | None,
    ) -> CostEstimate:
        """Return the estimate from a complete dry run.

        Args:
            judge: the judge of the dry run.
            plan: the plan of the dry run.
            tasks: the tasks of all its rows, encoded.
            summary: the summary of the dry run.
            folder: the run directory of the dry run.
            rate: expected rows/s of the real engine; None if unknown.
            gpu: the GPU of the real engine, if there is no rate; None for this machine's.
        """
        hours, basis = plan.different / rate / 3600 if rate else None, "at this rate"
        if not rate and (predicted := _predicted(judge, tasks, gpu)):
            hours = predicted.hours
            on = f"{predicted.gpus} {gpu}" if gpu else "this machine's GPU"
            basis = f"on {on} ({figure(predicted.rows_per_second)} rows/s predicted)"
        means = [each / max(1, tasks.prompts) for each in (tasks.of_all, tasks.of_instruction, tasks.tokens)]
        behind = judge.task_builder.tokens_around[1] if tasks.prompts else 0
        lines = sum(file.stat().st_size for file in folder.glob("*.jsonl"))
        return cls(
            rows=plan.rows,
            different=plan.different,
            groups=plan.groups,
            failing=summary.failed,
            too_long=tasks.too_long,
            context=judge.context,
            prompt_tokens=tasks.prompt_tokens,
            computed=tasks.tokens - tasks.shared_tokens,
            parts=(*means[:2], means[2] - means[0] - means[1] - behind, behind),
            hint=judge.task_builder.order_hint(means[2]),
            longest=tasks.longest,
            answer_tokens=judge.decoding.max_tokens,
            disk=2 * lines
            + plan.scratch_bytes
            + tasks.scratch_bytes,  # sorting the lines writes them a second time
            free=shutil.disk_usage(folder).free,
            hours=hours,
            basis=basis,
        )

    @property
    def fits_disk(self) -> bool:
        return self.disk < self.free


def _predicted(judge: Judge, tasks: TaskStream, gpu: str | None) -> Throughput | None:
    """Return the predicted speed on as few GPUs as the model fits; None without a GPU, or if it fits none."""
    try:
        if judge.model.is_gguf or (gpu is None and not Machine.here().gpus):
            return None
        device = Device.here("bfloat16") if gpu is None else Device.gpu(gpu)
        model = PlannedModel.find(str(judge.model.path))
        return Forecast.make(model.shape, model.weights, workload(judge, tasks), device).smallest
    except UsageError:  # rates or a shape that nobody knows
        return None
