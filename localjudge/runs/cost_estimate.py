"""What a job costs, by its dry run: tokens, disk, rows that do not fit, and hours at a measured rate."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from localjudge.judge import Judge
from localjudge.prompts.task_stream import TaskStream
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary


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
        seconds: how long it takes at the given rate; None without one.
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
    seconds: float | None

    @classmethod
    def from_run(
        cls,
        judge: Judge,
        plan: RunPlan,
        tasks: TaskStream,
        summary: Summary,
        folder: Path,
        rate: float | None,
    ) -> CostEstimate:
        """Return the estimate from a complete dry run.

        Args:
            judge: the judge of the dry run.
            plan: the plan of the dry run.
            tasks: the tasks of all its rows, encoded.
            summary: the summary of the dry run.
            folder: the run directory of the dry run.
            rate: rows/s of the real engine, as measured; None if it is not known.
        """
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
            seconds=plan.different / rate if rate else None,
        )

    @property
    def fits_disk(self) -> bool:
        return self.disk < self.free
