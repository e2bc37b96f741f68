"""What a job costs, by its dry run: tokens, disk, rows that do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.judge import Judge
from localjudge.prompts.task_stream import TaskStream
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary
from localjudge.system.quantities import file_size, hours

_MEASURE = (
    "judge some rows with the engine (--limit 100): it ends with its rows/s; then --engine-arg rate=ROWS/S"
)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost of a job, after its dry run.

    Attributes:
        quantities: what was counted, in words, by its subject.
        fits_disk: whether the run fits the free space of its disk.
    """

    quantities: Mapping[str, str]
    fits_disk: bool

    @classmethod
    def from_run(
        cls,
        judge: Judge,
        plan: RunPlan,
        *,
        tasks: TaskStream,
        summary: Summary,
        folder: Path,
        rate: float | None,
    ) -> CostEstimate:
        """Return the estimate from a complete dry run. Duplicate rows are judged once.

        Args:
            judge: the judge of the dry run.
            plan: the plan of the dry run.
            tasks: the tasks of all its rows, encoded.
            summary: the summary of the dry run.
            folder: the run directory of the dry run.
            rate: rows/s of the real engine, as measured; None if it is not known.
        """
        max_answer = judge.decoding.max_tokens
        disk = _bytes_written(folder, plan, tasks=tasks)
        free = shutil.disk_usage(folder).free
        context = "the context"
        if judge.context:
            context = f"the context of {judge.context:,} tokens"
        time = _MEASURE
        if rate:
            time = f"{hours(plan.different / rate)} at this rate"
        quantities = {
            "rows": f"{plan.rows:,}, of which {plan.different:,} differ; {plan.groups:,} prefixes",
            "cannot be judged": f"{summary.failed:,}; {tasks.too_long:,} rows exceed {context}",
            "prompts": f"{tasks.prompt_tokens:,} tokens, {tasks.prompt_tokens / max(1, plan.rows):,.0f} in the "
            f"mean, {tasks.longest:,} the longest",
            "computed": f"{tasks.tokens - tasks.shared_tokens:,} of them with a prefix cache",
            "each prompt": _parts_of_prompt(judge, tasks),
            "answers": f"at most {max_answer * plan.different:,} tokens, {max_answer:,} each",
            "disk": f"{file_size(disk)} while it runs; {file_size(free)} are free",
            "time": time,
        }
        hint = judge.task_builder.order_hint(tasks.tokens / max(1, tasks.prompts))
        if hint:
            quantities["slow"] = hint
        return cls(quantities, fits_disk=disk < free)

    def __str__(self) -> str:
        return "\n".join(f"{subject:<17} {quantity}" for subject, quantity in self.quantities.items())


def _parts_of_prompt(judge: Judge, tasks: TaskStream) -> str:
    """Return the tokens of a prompt on average, by the rows that share them."""
    prompts = max(1, tasks.prompts)
    of_all_rows = tasks.of_all / prompts
    of_instruction = tasks.of_instruction / prompts
    after_row = judge.task_builder.tokens_around[1] if tasks.prompts else 0
    of_row = tasks.tokens / prompts - of_all_rows - of_instruction - after_row
    return (
        f"{of_all_rows:,.0f} tokens of all rows, {of_instruction:,.0f} of its instruction's rows, "
        f"{of_row:,.0f} of its own, {after_row:,.0f} of the rubric after it"
    )


def _bytes_written(folder: Path, plan: RunPlan, *, tasks: TaskStream) -> int:
    """Return the size of the files of a run and of its scratch files, in bytes."""
    lines = sum(file.stat().st_size for file in folder.glob("*.jsonl"))
    return 2 * lines + plan.scratch_bytes + tasks.scratch_bytes  # sorting writes the lines a second time
