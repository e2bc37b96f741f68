"""The cost of a job, estimated by a dry run: rows, tokens, disk space, and hours at a given rate."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.judge import Judge
from localjudge.models.capacity.capacity_plan import PlannedModel
from localjudge.models.capacity.device import Device
from localjudge.models.capacity.forecast import Forecast
from localjudge.models.capacity.throughput import Throughput
from localjudge.prompts.task_stream import TaskStream
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary
from localjudge.runs.workload import workload
from localjudge.system.machine import Machine
from localjudge.system.quantities import figure


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
        lines = sum(file.stat().st_size for file in folder.glob("*.jsonl"))
        return cls(
            rows=plan.rows,
            different=plan.different,
            groups=plan.groups,
            failing=summary.failed,
            too_long=tasks.too_long,
            context=judge.context,
            prompt_tokens=tasks.prompt_tokens,
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
