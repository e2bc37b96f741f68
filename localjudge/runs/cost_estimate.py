"""What a job costs: by its dry run, tokens, disk and rows that do not fit; before it, its prompts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from localjudge.errors import ModelError, UsageError
from localjudge.judge import Judge
from localjudge.models.model import Model
from localjudge.prompts.task_stream import TaskStream
from localjudge.records import Row
from localjudge.rows.columns import Columns
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary
from localjudge.system.quantities import file_size, hours
from localjudge.system.steps import Step, no_steps, with_progress

_MEASURE = (
    "judge some rows with the engine (--limit 100): it ends with its rows/s; then --engine-arg rate=ROWS/S"
)
BYTES_OF_A_TOKEN = 4
"""Bytes of English text in a token, roughly: the default rubric's prompts have 3.6 in Phi-3, 4.0 in Falcon."""


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
        cls, judge: Judge, plan: RunPlan, tasks: TaskStream, summary: Summary, folder: Path, rate: float | None
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
        context = f"the context of {judge.context:,} tokens" if judge.context else "the context"
        answer, prompts = judge.decoding.max_tokens, max(1, tasks.prompts)
        of_all, of_instruction = tasks.of_all / prompts, tasks.of_instruction / prompts
        behind = judge.task_builder.tokens_around[1] if tasks.prompts else 0
        of_row = tasks.tokens / prompts - of_all - of_instruction - behind
        lines = sum(file.stat().st_size for file in folder.glob("*.jsonl"))
        disk = 2 * lines + plan.scratch_bytes + tasks.scratch_bytes  # sorting writes the lines a second time
        free = shutil.disk_usage(folder).free
        quantities = {
            "rows": f"{plan.rows:,}, of which {plan.different:,} differ; {plan.groups:,} prefixes",
            "cannot be judged": f"{summary.failed:,}; {tasks.too_long:,} rows exceed {context}",
            "prompts": f"{tasks.prompt_tokens:,} tokens, {tasks.prompt_tokens / max(1, plan.rows):,.0f} in the "
            f"mean, {tasks.longest:,} the longest",
            "computed": f"{tasks.tokens - tasks.shared_tokens:,} of them with a prefix cache",
            "each prompt": f"{of_all:,.0f} tokens of all rows, {of_instruction:,.0f} of its instruction's "
            f"rows, {of_row:,.0f} of its own, {behind:,.0f} of the rubric after it",
            "answers": f"at most {answer * plan.different:,} tokens, {answer:,} each",
            "disk": f"{file_size(disk)} while it runs; {file_size(free)} are free",
            "time": f"{hours(plan.different / rate)} at this rate" if rate else _MEASURE,
        }
        if hint := judge.task_builder.order_hint(tasks.tokens / prompts):
            quantities["slow"] = hint
        return cls(quantities, disk < free)

    def __str__(self) -> str:
        return "\n".join(f"{subject:<17} {said}" for subject, said in self.quantities.items())


@dataclass(frozen=True, slots=True)
class PlannedPrompts:
    """The prompts of rows; duplicate rows have one.

    Attributes:
        prompts: their number, at least 1.
        tokens: the total number of their tokens.
        counted: True if a tokenizer counted the tokens, False if they are estimated from bytes.
    """

    prompts: int
    tokens: int
    counted: bool

    @classmethod
    def of(
        cls, model: str, inputs: Sequence[str], columns: Columns, rubric: str, step: Step = no_steps
    ) -> Self:
        """Return the prompts of files for a model, whose configuration and tokenizer are enough.

        Args:
            model: a model; if it is not on this machine, the tokens are estimated.
            inputs: files and globs; `examples` is the included rows.
            columns: the column of each field whose column has a custom name.
            rubric: the name or the file of the rubric.
            step: receives the steps.

        Raises:
            UsageError: the rows or the tokenizer cannot be used, or no row can be judged.
        """
        try:
            found = Model.locate(model)
        except ModelError:
            shown = Rubric.load(rubric)
            source = RowSource.from_files(inputs, columns, used=shown.fields)
            with step("reading rows") as report:
                sizes = [
                    len(shown.text(row).encode())
                    for row in with_progress(source.rows, report)
                    if isinstance(row, Row) and shown.refusal(row) is None
                ]
            planned = cls(len(sizes), sum(max(1, size // BYTES_OF_A_TOKEN) for size in sizes), counted=False)
        else:
            with ExitStack() as stack:
                judge = stack.enter_context(Judge(found, rubric=rubric, engine="dry-run"))
                source = RowSource.from_files(inputs, columns, used=judge.rubric.fields)
                with step("reading rows") as report:
                    made = RunPlan(judge, source.rows, report=report, expected=source.count())
                    plan = stack.enter_context(made)
                with step("encoding rows") as report:
                    tasks = plan.encode()
                    tasks.finish(report)
                planned = cls(tasks.prompts, tasks.tokens, counted=True)
        if not planned.prompts:
            raise UsageError(f"{', '.join(inputs)}: no row can be judged, so there is no prompt to count")
        return planned

    @property
    def mean(self) -> int:
        """The mean length of a prompt in tokens, at least 1."""
        return max(1, round(self.tokens / self.prompts))

    def described(self, rate: float | None) -> str:
        """Return one line: what was counted, and how long it takes at so many rows per second."""
        how = "" if self.counted else f", ESTIMATED from {BYTES_OF_A_TOKEN} bytes a token"
        lasts = f" · {hours(self.prompts / rate)} at {rate:g} rows/s" if rate else ""
        return f"{self.prompts:,} prompts of {self.mean:,} tokens in the mean{how}{lasts}"

    def as_dict(self, rate: float | None) -> dict[str, Any]:
        """Return the same for programs; `seconds` is None without a rate."""
        return {
            "prompts": self.prompts,
            "prompt_tokens": self.tokens,
            "counted": self.counted,
            "seconds": self.prompts / rate if rate else None,
        }
