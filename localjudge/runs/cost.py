"""What a job will take, as its dry run found it: rows, tokens, disk, and hours at a given rate."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from localjudge.judge import Judge
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.summary import Summary
from localjudge.system.quantities import file_size


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Of a job that was run dry.

    Attributes:
        rows: how many there are to judge.
        different: how many are work of their own.
        groups: how many instructions with their reference there are, whose prompts begin alike.
        failing: how many can never be judged as they are.
        too_long: how many do not fit the context.
        context: of the model, in tokens.
        prompt_tokens: of all prompts together.
        longest: tokens of the longest prompt.
        answer_tokens: the most of one answer.
        disk: bytes that the run needs while it is written, its scratch file included.
        free: bytes that are free there.
        hours: at the given rate; None without one.
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

    @classmethod
    def of(
        cls, judge: Judge, plan: RunPlan, summary: Summary, folder: Path, rate: float | None
    ) -> CostEstimate:
        """Of a dry run that has ended in this folder.

        Args:
            judge: that of the dry run.
            plan: its rows.
            summary: what it came to.
            folder: its run directory.
            rate: rows/s of the engine that it stands for.
        """
        lines = sum(file.stat().st_size for file in folder.glob("*.jsonl"))
        return cls(
            rows=plan.rows,
            different=plan.different,
            groups=plan.groups,
            failing=summary.failed,
            too_long=plan.too_long,
            context=judge.context,
            prompt_tokens=plan.prompt_tokens,
            longest=plan.longest,
            answer_tokens=judge.decoding.max_tokens,
            disk=2 * lines + plan.scratch_bytes,  # the lines stand twice while they are put in order
            free=shutil.disk_usage(folder).free,
            hours=plan.different / rate / 3600 if rate else None,
        )

    @property
    def fits_disk(self) -> bool:
        return self.disk < self.free

    def table(self) -> Table:
        """A row a subject, for a terminal."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        context = f"the context of {self.context:,} tokens" if self.context else "the context"
        mean = self.prompt_tokens / max(1, self.rows)
        answers = self.answer_tokens * self.different
        for subject, found in {
            "rows": f"{self.rows:,}, of which {self.different:,} differ; {self.groups:,} prefixes",
            "cannot be judged": f"{self.failing:,}; {self.too_long:,} rows exceed {context}",
            "prompts": f"{self.prompt_tokens:,} tokens, {mean:,.0f} in the mean, {self.longest:,} the longest",
            "answers": f"at most {answers:,} tokens, {self.answer_tokens:,} each",
            "disk": f"{file_size(self.disk)} while it runs; {file_size(self.free)} are free",
            "time": f"{self.hours:,.1f} hours" if self.hours else "give a rate: --engine-arg rate=ROWS/S",
        }.items():
            table.add_row(subject, found)
        return table
