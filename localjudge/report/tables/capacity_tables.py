"""Tables of what a model needs, and of the known models."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from localjudge.models.capacity.capacity_plan import CapacityPlan
from localjudge.models.capacity.memory import MOST_GPUS
from localjudge.models.capacity.profiles import CatalogueEntry
from localjudge.models.shape import Shape
from localjudge.report.tables import Cells, Table
from localjudge.system.quantities import memory_size


def plan_text(plan: CapacityPlan) -> str:
    """Return the lines above the table of GPUs, for a terminal."""
    subject, use = plan.subject, plan.use
    adapter = f"\nwith {subject.adapter.name}: {subject.adapter.description}" if subject.adapter else ""
    return "\n".join(
        (
            f"{subject.name} · {_description(subject.shape)}",
            f"from {subject.source}{adapter}",
            f"weights           {memory_size(subject.weights)}, {subject.how_counted}",
            f"KV cache a token  {plan.needs.token:,} bytes",
            f"KV cache a row    {memory_size(plan.needs.row)} for {use.row_tokens:,} tokens "
            f"({use.prompt_tokens:,} of the prompt, {use.answer_tokens:,} of the answer)",
        )
    )


def plan_table(plan: CapacityPlan) -> Table:
    """Return a table with a row for each number of GPUs."""
    rows: list[Cells] = []
    for each in plan.needs.tried:
        said = each.refused or ("" if each.rows else "no room")
        chosen = plan.needs.chosen is not None and each.gpus == plan.needs.chosen.gpus
        sizes = map(memory_size, (each.weights, each.overhead, max(0, each.cache)))
        rows.append((each.gpus, *sizes, None if said else each.rows, "← this" if chosen else said))
    return Table("", ("GPUs", "weights", "overhead", "cache", "rows in flight", ""), rows, words=[""])


def catalogue_table(entries: Iterable[CatalogueEntry]) -> Table:
    """Return a table with one row per model."""
    rows: list[Cells] = []
    for entry in entries:
        profile, shape, chosen = entry.profile, entry.profile.shape, entry.needs.chosen
        active = f" ({profile.active_parameters:g})" if profile.active_parameters else ""
        size = f"{profile.parameters:g} B{active}", shape.context, memory_size(profile.weight_bytes)
        gpus, here = chosen.gpus if chosen else f"> {MOST_GPUS}", "yes" if entry.cached else "no"
        rows.append((profile.id, fill(profile.licence, 18), *size, gpus, profile.thinking, here))
    columns = "model", "licence", "parameters", "context", "weights", "GPUs", "thinks", "here"
    return Table("", columns, rows, words=["licence", "thinks", "here"])


def _description(shape: Shape) -> str:
    context = f" · context {shape.context:,}" if shape.context else ""
    return f"{shape.model_type} · {shape.quantization or shape.dtype}{context}"
