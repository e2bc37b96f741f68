"""Terminal tables of what a model needs, how fast it will judge, what a run will cost, and the known models."""

from __future__ import annotations

from rich import box
from rich.table import Table

from localjudge.errors import ModelError
from localjudge.models.capacity.capacity_plan import CapacityPlan
from localjudge.models.capacity.forecast import Forecast
from localjudge.models.capacity.memory import MOST_GPUS
from localjudge.models.capacity.profiles import Catalogue
from localjudge.models.shape import Shape
from localjudge.runs.cost import CostEstimate
from localjudge.system.quantities import figure, file_size, memory_size

_GIVE = "give a rate, --engine-arg rate=ROWS/S, or a GPU that it fits, --engine-arg gpu=h100"


def plan_text(plan: CapacityPlan) -> str:
    """Return the lines above the table of GPUs, for a terminal."""
    subject, use = plan.subject, plan.use
    how = f"counted from {'its files' if subject.counted else 'its shape'}"
    if subject.packed:
        how = f"unpacked to {subject.shape.dtype} from the {memory_size(subject.packed)} of its GGUF file"
    adapter = f"\nwith {subject.adapter.name}: {subject.adapter.description}" if subject.adapter else ""
    return "\n".join(
        (
            f"{subject.name} · {_description(subject.shape)}",
            f"from {subject.source}{adapter}",
            f"weights           {memory_size(subject.weights)}, {how}",
            f"KV cache a token  {plan.needs.token:,} bytes",
            f"KV cache a row    {memory_size(plan.needs.row)} for {use.row_tokens:,} tokens "
            f"({use.prompt_tokens:,} of the prompt, {use.answer_tokens:,} of the answer)",
        )
    )


def plan_table(plan: CapacityPlan) -> Table:
    """Return a table with a row for each number of GPUs, for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("GPUs", "weights", "overhead", "cache", "rows in flight"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for each in plan.needs.tried:
        said = each.refused or ("" if each.rows else "no room")
        chosen = plan.needs.chosen is not None and each.gpus == plan.needs.chosen.gpus
        table.add_row(
            str(each.gpus),
            memory_size(each.weights),
            memory_size(each.overhead),
            memory_size(max(0, each.cache)),
            "–" if said else str(each.rows),  # noqa: RUF001
            "← this" if chosen else said,
        )
    return table


def forecast_table(forecast: Forecast) -> Table:
    """Return a table with a row for each number of GPUs, or one for the CPU, for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    gpu = forecast.device.is_gpu
    table.add_column(forecast.device.name if gpu else "", justify="right" if gpu else "left", no_wrap=True)
    for heading in ("rows in flight", "rows/s", "hours", *(["GPU-hours"] if gpu else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for count, each in forecast.expected.items():
        if each is None:
            table.add_row(str(count), *("–",) * 4, "does not fit")  # noqa: RUF001
            continue
        copies = each.gpus // each.split if gpu else 1
        figures = [
            f"{min(each.rows_in_flight * copies, each.rows):,}",
            figure(each.rows_per_second),
            figure(each.hours),
        ]
        if gpu:
            split = f"split over {each.split}" if each.split > 1 else ""
            table.add_row(str(count), *figures, figure(each.hours * count), split)
        else:
            table.add_row(forecast.device.name, *figures, "")
    return table


def cost_table(cost: CostEstimate) -> Table:
    """Return the estimate as a terminal table, one quantity in each row."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    context = f"the context of {cost.context:,} tokens" if cost.context else "the context"
    mean = cost.prompt_tokens / max(1, cost.rows)
    answers = cost.answer_tokens * cost.different
    hours = cost.hours or 0.0
    lasts = f"{hours:,.1f} hours" if hours >= 0.05 else f"{figure(hours * 3600)} seconds"
    for subject, found in {
        "rows": f"{cost.rows:,}, of which {cost.different:,} differ; {cost.groups:,} prefixes",
        "cannot be judged": f"{cost.failing:,}; {cost.too_long:,} rows exceed {context}",
        "prompts": f"{cost.prompt_tokens:,} tokens, {mean:,.0f} in the mean, {cost.longest:,} the longest",
        "answers": f"at most {answers:,} tokens, {cost.answer_tokens:,} each",
        "disk": f"{file_size(cost.disk)} while it runs; {file_size(cost.free)} are free",
        "time": f"{lasts} {cost.basis}" if hours else _GIVE,
    }.items():
        table.add_row(subject, found)
    return table


def catalogue_table(catalogue: Catalogue) -> Table:
    """Return a table with one row per model, for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold", min_width=22)
    table.add_column("licence", overflow="fold", max_width=18)
    for heading in ("parameters", "context", "weights", "GPUs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("thinks", no_wrap=True)
    table.add_column("here", no_wrap=True)
    for entry in catalogue.entries:
        profile, shape = entry.profile, entry.profile.shape
        active = f" ({profile.active_parameters:g})" if profile.active_parameters else ""
        table.add_row(
            profile.id,
            profile.licence,
            f"{profile.parameters:g} B{active}",
            f"{shape.context:,}",
            memory_size(shape.weight_bytes),
            str(entry.needs.chosen.gpus) if entry.needs.chosen else f"> {MOST_GPUS}",
            profile.thinking,
            "yes" if entry.cached else "no",
        )
    return table


def _description(shape: Shape) -> str:
    packed = shape.quantization.method if shape.quantization else shape.dtype
    try:
        size = f"{shape.parameters / 1e9:.3g} B parameters · "
    except ModelError:
        size = ""
    context = f" · context {shape.context:,}" if shape.context else ""
    return f"{size}{shape.model_type} · {packed}{context}"
