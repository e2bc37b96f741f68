"""List the models that can judge, plan what one needs, verify one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.commands import explained, group
from localjudge.cli.console import print_json, print_table, printed_table
from localjudge.cli.messages import Messages
from localjudge.cli.options import AsJson, ChatTemplate, given_template, settle_environment
from localjudge.cli.printed_checks import print_checks
from localjudge.cli.progress import Progress
from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.machine import Machine
from localjudge.system.quantities import GIB, memory_size

if TYPE_CHECKING:
    from localjudge.models.capacity import CapacityPlan
    from localjudge.models.catalogue import Profile
    from localjudge.report.tables import Table

app = group(__doc__, "localjudge models list")


@explained(app, "localjudge models list", "list")
def list_models(as_json: AsJson = False) -> None:
    """List the models that can judge, and what each needs on GPUs of 80 GB."""
    from localjudge.models.capacity import gpus_of_80
    from localjudge.models.catalogue import profiles

    settle_environment()

    catalogue = profiles()
    if as_json:
        print_json([profile.model_dump() | {"gpus_of_80": gpus_of_80(profile)} for profile in catalogue])
        return
    print_table(printed_table(_catalogue_table(catalogue)))
    for profile in catalogue:
        if profile.traps:
            print(f"{profile.name}: {profile.traps[0]}")  # the most serious known problem
    Messages().say("GPUs of 80 GB each; for details: localjudge models plan MODEL")


def _catalogue_table(profiles: Iterable[Profile]) -> Table:
    """Return a table with one row per model."""
    from localjudge.models.capacity import gpus_of_80
    from localjudge.models.memory_needs import MOST_GPUS
    from localjudge.report.tables import Cells, Table

    rows: list[Cells] = []
    for profile in profiles:
        parameters = f"{profile.parameters:g} B"
        if profile.active_parameters:
            parameters += f" ({profile.active_parameters:g})"
        row: Cells = (
            profile.id,
            fill(profile.licence, 18),
            parameters,
            profile.dimensions.context,
            memory_size(profile.weight_bytes),
            gpus_of_80(profile) or f"> {MOST_GPUS}",
            profile.thinking,
        )
        rows.append(row)
    columns = ("model", "licence", "parameters", "context", "weights", "GPUs", "thinks")
    return Table("", columns, rows, words=["licence", "thinks"])


@explained(app, "localjudge models plan bundled --gpu-memory 24")
def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A profile's name, a repository's id, a model directory, or 'bundled'.",
        ),
    ],
    gpu: Annotated[
        str | None, Flag("The GPU by its name, such as h100, a100-40, l4 or rtx4090, for its memory.", "NAME")
    ] = None,
    gpu_memory: Annotated[float | None, Flag("The memory of each GPU.  [default: 80]", "GIB")] = None,
    gpus: Annotated[int, Flag("The largest number of GPUs to use.", "N", least=1, most=1024)] = 8,
    prompt_tokens: Annotated[int, Flag("The number of tokens of a typical prompt.", "N", least=1)] = 1500,
    as_json: AsJson = False,
) -> None:
    """Compute whether a model fits, and on how many GPUs: its weights, the cache of a row, the rows at a time.

    How long a run takes is measured, not predicted: `score --limit 100` ends with the rows/s of this machine.
    `score --engine dry-run` counts the tokens of prompts.
    """
    from localjudge.models.capacity import CapacityPlan
    from localjudge.models.planned_model import PlannedModel

    memory = _memory_of_gpu(gpu, gpu_memory)
    settle_environment()

    subject = PlannedModel.find(model)
    capacity = CapacityPlan.make(
        subject, Machine.here(), gpu_memory=memory, gpus=gpus, prompt_tokens=prompt_tokens
    )
    if as_json:
        print_json(capacity.as_dict())
        return
    print(_plan_text(capacity))
    print_table(printed_table(_plan_table(capacity)))
    chosen = capacity.needs.chosen
    if chosen and capacity.fits_context:
        print(f"localjudge score … --model {subject.name} --tensor-parallel-size {chosen.gpus}")
    print(f"this machine: {capacity.how}")
    for note in capacity.notes:
        print(f"note: {note}")


def _memory_of_gpu(name: str | None, gib: float | None) -> int:
    """Return the bytes of each GPU, by its name or its GiB; 80 GiB without both.

    Raises:
        UsageError: both are given, the name is unknown, or the GiB are no size of a GPU.
    """
    from localjudge.models.gpus import gpu_memory

    if name is not None and gib is not None:
        raise UsageError(f"--gpu {name}: has its memory; give it or --gpu-memory {gib:g}, not both")
    if name is not None:
        return gpu_memory(name)
    if gib is None:
        return 80 * GIB
    if not 0 < gib < 1e6:
        raise UsageError(f"--gpu-memory {gib:g}: give the GiB of one GPU, such as 80")
    return int(gib * GIB)


def _plan_text(plan: CapacityPlan) -> str:
    """Return the lines above the table of GPUs, for a terminal."""
    from localjudge.models.memory_needs import ANSWER_TOKENS

    subject = plan.subject
    dimensions = subject.dimensions
    size = subject.size
    first_line = f"{subject.name} · {dimensions.model_type} · {dimensions.quantization or dimensions.dtype}"
    if dimensions.context:
        first_line += f" · context {dimensions.context:,}"
    weights = f"weights  {memory_size(size.stored)}, {size.how_counted}"
    if size.types:
        size_of_types = [f"{name} {memory_size(count)}" for name, count in size.types.items()]
        weights += f" ({', '.join(size_of_types)})"
    cache_of_row = memory_size(plan.needs.tried[0].row)
    lines = [
        first_line,
        f"from {subject.source}",
        weights,
        f"a row    {cache_of_row} of KV cache for {plan.row_tokens:,} tokens "
        f"({plan.prompt_tokens:,} of the prompt, {ANSWER_TOKENS:,} of the answer)",
    ]
    return "\n".join(lines)


def _plan_table(plan: CapacityPlan) -> Table:
    """Return a table with a row for each number of GPUs."""
    from localjudge.report.tables import Cells, Table

    rows: list[Cells] = []
    for split in plan.needs.tried:
        problem = split.refused
        if not problem and not split.rows:
            problem = "no room"
        row: Cells = (
            split.gpus,
            memory_size(split.weights),
            memory_size(split.overhead),
            memory_size(max(0, split.cache)),
            None if problem else split.rows,
            "← this" if split is plan.needs.chosen else problem,
        )
        rows.append(row)
    columns = ("GPUs", "weights", "overhead", "cache", "rows at a time", "")
    return Table(f"GPUs of {memory_size(plan.gpu_memory)} each", columns, rows, words=[""])


@explained(app, "localjudge models verify bundled --no-manifest")
def verify(
    model: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="A model directory, the id of a model in the local cache, or 'bundled'.",
        ),
    ],
    no_manifest: Annotated[bool, Flag("Only check; write no manifest.")] = False,
    renew: Annotated[bool, Flag("Replace the existing manifest by a new one.")] = False,
    chat_template: ChatTemplate = None,
    as_json: AsJson = False,
) -> None:
    """Check that a model directory is complete and safe, and write a manifest of its files.

    The manifest, localjudge-manifest.json, has the SHA-256 of every file. Afterwards, `score` refuses
    the model if a file has changed. Exits with 0 if nothing is wrong and with 2 otherwise.
    """
    from localjudge.models.model import Model
    from localjudge.verification import is_sound
    from localjudge.verification import verify as verify_model

    settle_environment()

    if no_manifest and renew:
        raise UsageError("--renew writes a manifest and --no-manifest writes none; give only one of them")
    located = replace(Model.locate(model), given_template=given_template(chat_template))
    progress = Progress()
    progress.say(f"{located.name} · {located.path}")
    with progress.step("verifying", "bytes") as report:
        checks = verify_model(located, write=not no_manifest, renew=renew, report=report)
    print_checks(checks, as_json=as_json)
    if not is_sound(checks):
        raise typer.Exit(2)
