"""Tables of a run, and of the models that can judge it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

from localjudge.models.capacity import ANSWER_TOKENS, MOST_GPUS, CapacityPlan, gpus_of_80
from localjudge.models.catalogue import Profile
from localjudge.report.tables import Cells, Table
from localjudge.runs.repeat import Repetition
from localjudge.runs.summary import Summary
from localjudge.system.quantities import memory_size


def summary_tables(summary: Summary) -> Iterator[Table | str]:
    """Yield the numbers of the systems, one system in each row, and what only rows of their mode have."""
    systems = {name or "(none)": counts for name, counts in summary.by_system().items()}
    found = summary.rubric.mode.mean_table(systems, summary.rubric.row_columns)
    counts = {found.rows: [each.judged for each in systems.values()]}
    if any(each.failed for each in systems.values()):
        counts["failed"] = [each.failed for each in systems.values()]
    if found.unscored and any(each.unscored(found.unscored) for each in systems.values()):
        counts["without score"] = [each.unscored(found.unscored) for each in systems.values()]
    columns: dict[str, Sequence[float | None]] = {**found.columns, **counts}
    if systems:
        rows: list[Cells] = [*zip(systems, *columns.values(), strict=True)]
        yield Table(found.title, (found.systems, *columns), rows)
    if found.tags and found.tags[1]:
        heading, tags = found.tags
        of_tags = [(tag, *means) for tag, means in tags.items()]
        yield Table("The same, of the criteria with each tag", (heading, *systems), of_tags)
    if lines := [*summary.signs.details.lines()]:
        yield "\n".join(lines)


def repetition_table(repetition: Repetition) -> Table:
    """Return how many scores of each aspect changed."""
    totals = {"any score": repetition.changed_rows, "rationale": repetition.changed_rationales}
    rows = [
        (name, count, f"{count / repetition.rows:.1%}")
        for name, count in {**repetition.changed, **totals}.items()
    ]
    return Table("", ("aspect", "changed", f"of {repetition.rows}"), rows)


def plan_text(plan: CapacityPlan) -> str:
    """Return the lines above the table of GPUs, for a terminal."""
    subject, shape = plan.subject, plan.subject.shape
    context = f" · context {shape.context:,}" if shape.context else ""
    return "\n".join(
        (
            f"{subject.name} · {shape.model_type} · {shape.quantization or shape.dtype}{context}",
            f"from {subject.source}",
            f"weights  {memory_size(subject.weights)}, {subject.how_counted}",
            f"a row    {memory_size(plan.needs.tried[0].row)} of KV cache for {plan.row_tokens:,} tokens "
            f"({plan.prompt_tokens:,} of the prompt, {ANSWER_TOKENS:,} of the answer)",
        )
    )


def plan_table(plan: CapacityPlan) -> Table:
    """Return a table with a row for each number of GPUs."""
    rows: list[Cells] = []
    for split in plan.needs.tried:
        said = split.refused or ("" if split.rows else "no room")
        sizes = map(memory_size, (split.weights, split.overhead, max(0, split.cache)))
        chosen = split is plan.needs.chosen
        rows.append((split.gpus, *sizes, None if said else split.rows, "← this" if chosen else said))
    return Table("", ("GPUs", "weights", "overhead", "cache", "rows in flight", ""), rows, words=[""])


def catalogue_table(profiles: Iterable[Profile]) -> Table:
    """Return a table with one row per model."""
    rows: list[Cells] = []
    for profile in profiles:
        active = f" ({profile.active_parameters:g})" if profile.active_parameters else ""
        size = f"{profile.parameters:g} B{active}", profile.shape.context, memory_size(profile.weight_bytes)
        gpus = gpus_of_80(profile) or f"> {MOST_GPUS}"
        rows.append((profile.id, fill(profile.licence, 18), *size, gpus, profile.thinking))
    columns = "model", "licence", "parameters", "context", "weights", "GPUs", "thinks"
    return Table("", columns, rows, words=["licence", "thinks"])
