"""The commands `models`: list the models that can judge, plan what one needs, verify a model directory."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from localjudge.cli.help import ExplainedCommand, group_that_lists
from localjudge.cli.options import AsJson, print_checks, print_json, print_table, settle_environment
from localjudge.errors import UsageError
from localjudge.system.quantities import GIB, file_size


def list_models(as_json: AsJson = False) -> None:
    """List the models that can judge, and what each needs on GPUs of 80 GB; `models` alone does the same."""
    settle_environment()
    from localjudge.models.catalogue import Catalogue

    catalogue = Catalogue.here()
    if as_json:
        print_json(catalogue.as_list())
    else:
        print_table(catalogue.table())
        for note in catalogue.notes:
            print(note)
        print("GPUs of 80 GB each; for details: localjudge models plan MODEL", file=sys.stderr)


app = group_that_lists(
    "models",
    list_models,
    "List the models that can judge, plan what one needs, verify a model directory.",
    "localjudge models list",
)


@app.command(cls=ExplainedCommand, epilog="localjudge models plan qwen3-8b --gpu-memory 24")
def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A profile's name, a repository's id, a model directory, or 'bundled'.",
        ),
    ],
    gpu_memory: Annotated[float, typer.Option(metavar="GIB", help="The memory of each GPU.")] = 80,
    gpus: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="The largest number of GPUs to use.")
    ] = 8,
    gpu_memory_utilization: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of a GPU's memory that vLLM may use.")
    ] = 0.9,
    kv_cache_dtype: Annotated[
        str, typer.Option(metavar="auto|fp8", help="The type of the KV cache, as in vLLM.")
    ] = "auto",
    prompt_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="The number of tokens of a typical prompt.")
    ] = 1500,
    max_rationale_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="The largest number of tokens of a rationale.")
    ] = 256,
    thinking_budget: Annotated[
        int, typer.Option(min=0, metavar="N", help="The largest number of thinking tokens before it.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Compute what a model needs (weights, KV cache, rows in flight, GPUs) and whether it fits this machine."""
    if kv_cache_dtype not in ("auto", "fp8"):
        raise UsageError(f"--kv-cache-dtype {kv_cache_dtype}: give auto or fp8")
    if not 0 < gpu_memory_utilization <= 1:
        raise UsageError(f"--gpu-memory-utilization {gpu_memory_utilization}: give a share above 0, at most 1")
    if not 0 < gpu_memory < 1e6:
        raise UsageError(f"--gpu-memory {gpu_memory:g}: give the GiB of one GPU, such as 80")
    settle_environment()
    from localjudge.models.capacity import CapacityPlan, PlannedModel
    from localjudge.models.memory import Use
    from localjudge.system.machine import Machine

    use = Use(prompt_tokens, max_rationale_tokens, thinking_budget, gpu_memory_utilization, kv_cache_dtype)
    subject = PlannedModel.find(model)
    made = CapacityPlan.make(subject, use, Machine.here(), gpu_memory=int(gpu_memory * GIB), gpus=gpus)
    if as_json:
        print_json(made.as_dict())
        return
    print(made.text())
    print_table(made.table())
    if made.flags:
        print(f"localjudge score … --model {subject.name} {' '.join(made.flags)}")
    print(f"this machine: {made.fits_here[1]}")
    for note in made.notes:
        print(f"note: {note}")


@app.command(cls=ExplainedCommand, epilog="localjudge models verify bundled --no-manifest")
def verify(
    model: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A model directory, the id of a model in the local cache, or 'bundled'."
        ),
    ],
    no_manifest: Annotated[bool, typer.Option("--no-manifest", help="Only check; write no manifest.")] = False,
    renew: Annotated[bool, typer.Option("--renew", help="Replace the existing manifest by a new one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check that a model directory is complete and safe, and write a manifest of its files.

    The manifest, localjudge-manifest.json, has the size and SHA-256 of every file. Afterwards, `score` refuses
    the model if a file has changed. Exits with 0 if nothing is wrong and with 2 otherwise.
    """
    settle_environment()
    from localjudge.diagnostics.check_results import is_sound
    from localjudge.diagnostics.verification import verify as look_at
    from localjudge.models.digests import model_files
    from localjudge.models.model import Model

    if no_manifest and renew:
        raise UsageError("--renew writes a manifest and --no-manifest writes none; give only one of them")
    found = Model.locate(model)
    total = sum(file.stat().st_size for file in model_files(found.path).values())
    said, done = 0.0, 0

    def read(count: int) -> None:
        nonlocal said, done
        said, done = said or time.monotonic(), done + count
        if time.monotonic() - said > 5:
            said = time.monotonic()
            print(f"{file_size(done)} of {file_size(total)} read", file=sys.stderr)

    print(f"{found.name} · {found.path}", file=sys.stderr)
    checks = look_at(found, write=not no_manifest, renew=renew, read=read)
    print_checks(checks, as_json)
    if not is_sound(checks):
        raise typer.Exit(2)
