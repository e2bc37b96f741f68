"""The work of a run, and the speed of the run beside the speed that `models plan` predicts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from localjudge.engines.protocol import EngineInfo
from localjudge.errors import LocalJudgeError, UsageError
from localjudge.judge import Judge
from localjudge.models.capacity.capacity_plan import PlannedModel
from localjudge.models.capacity.device import Device
from localjudge.models.capacity.throughput import EXPECTED_SHARE, AnswerTokens, Workload, throughput
from localjudge.models.model import Model
from localjudge.prompts.task_stream import TaskStream
from localjudge.records import Judgement, Outcome, Row
from localjudge.rows.columns import Columns
from localjudge.rows.criteria import CRITERION
from localjudge.rows.inputs import check_inputs, count_lines_of, find_inputs
from localjudge.rows.pairs import Pairing, paired_rows
from localjudge.rows.record import MAX_ROW_BYTES
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_plan import RunPlan
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
        source = find_inputs(inputs)
        used = judge.rubric.fields
        check_inputs(source, columns, used)
        pairing = Pairing.usual(used)
        rows = paired_rows(source, columns, MAX_ROW_BYTES, used, pairing)
        with step("reading rows") as report:
            expected = count_lines_of(source) if pairing is None and CRITERION not in used else None
            plan = stack.enter_context(RunPlan(judge, rows, report=report, expected=expected))
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
    found, source = Rubric.load(rubric), find_inputs(inputs)
    check_inputs(source, columns, found.fields)
    rows = paired_rows(source, columns, MAX_ROW_BYTES, found.fields, Pairing.usual(found.fields))
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
        """Return one line with the speed until now and the predicted one, for the answers that came.

        Returns:
            The line; None where no prediction can be made (a cluster, a device of unknown rates, another engine
            than is predicted for this device), or where the run was short.
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
