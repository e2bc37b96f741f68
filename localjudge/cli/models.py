"""The commands `models`: list the models that can judge, plan what one needs, sign and verify a model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.help import explained, group_that_lists
from localjudge.cli.messages import Messages
from localjudge.cli.options import (
    SETTING,
    AdapterName,
    AsJson,
    ColumnNames,
    RubricName,
    input_extras,
    print_json,
    print_table,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.settings import Flag, JudgeSettings
from localjudge.system.quantities import GIB


def list_models(as_json: AsJson = False) -> None:
    """List the models that can judge, and what each needs on GPUs of 80 GB; `models` alone does the same."""
    settle_environment()
    from localjudge.cli.printed_tables import printed_table
    from localjudge.models.capacity.profiles import catalogue
    from localjudge.report.tables.capacity_tables import catalogue_table

    entries = catalogue()
    if as_json:
        print_json([each.as_dict() for each in entries])
    else:
        print_table(printed_table(catalogue_table(entries)))
        for profile in (each.profile for each in entries if each.profile.traps):
            print(f"{profile.name}: {profile.traps[0]}")  # the most serious known problem
        Messages.here().say("GPUs of 80 GB each; for details: localjudge models plan MODEL")


app = group_that_lists(
    "models",
    list_models,
    "List the models that can judge, plan what one needs, sign and verify a model.",
    "localjudge models list",
)


@explained(app, "localjudge models plan bundled --rows examples --gpu-memory 24")
def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A profile's name, a repository's id, a model directory, a GGUF file, or 'bundled'.",
        ),
    ],
    rows: Annotated[list[str] | None, Flag("Rows to judge, whose prompts are counted.", "FILE")] = None,
    rate: Annotated[
        float | None, Flag("Rows/s that you have measured: how long --rows take.", "ROWS/S")
    ] = None,
    gpu_memory: Annotated[float, Flag("The memory of each GPU.", "GIB")] = 80,
    gpus: Annotated[int, Flag("The largest number of GPUs to use.", "N", least=1, most=1024)] = 8,
    gpu_memory_utilization: Annotated[
        float, Flag("The share of a GPU's memory that vLLM may use.", "SHARE")
    ] = 0.9,
    prompt_tokens: Annotated[
        int | None,
        Flag("The number of tokens of a typical prompt.  [default: 1500, or the mean of --rows]", "N", least=1),
    ] = None,
    max_rationale_tokens: Annotated[int, SETTING] = JudgeSettings.max_rationale_tokens,
    thinking_budget: Annotated[int, Flag("The largest number of thinking tokens before it.", "N", least=0)] = 0,
    rubric: RubricName = "just-eval",
    columns: ColumnNames = None,
    adapter: AdapterName = None,
    as_json: AsJson = False,
) -> None:
    """Compute what a model needs (weights, KV cache, rows in flight, GPUs) and whether it fits this machine.

    With --rows, a typical prompt is as long as theirs in the mean. How long a run takes is measured, not
    predicted: `score --limit 100` ends with the rows/s of this machine.
    """
    if not 0 < gpu_memory_utilization <= 1:
        raise UsageError(f"--gpu-memory-utilization {gpu_memory_utilization}: give a share above 0, at most 1")
    if max_rationale_tokens < 1:
        raise UsageError(f"--max-rationale-tokens {max_rationale_tokens}: the smallest that works is 1")
    if not 0 < gpu_memory < 1e6:
        raise UsageError(f"--gpu-memory {gpu_memory:g}: give the GiB of one GPU, such as 80")
    if rate is not None and not (rows and 0 < rate < math.inf):
        raise UsageError(f"--rate {rate:g}: give rows/s above 0, with the rows in --rows")
    settle_environment()
    from localjudge.cli.printed_tables import printed_table
    from localjudge.models.adapter import Adapter
    from localjudge.models.capacity.capacity_plan import CapacityPlan, PlannedModel
    from localjudge.models.capacity.memory import PROMPT_TOKENS, PlannedUse
    from localjudge.report.tables.capacity_tables import plan_table, plan_text
    from localjudge.system.machine import Machine

    subject, prompts = PlannedModel.find(model), None
    if adapter:
        subject = subject.with_adapter(Adapter.find(adapter))
    if rows:
        from localjudge.cli.progress import Progress
        from localjudge.rows.columns import parse_columns
        from localjudge.runs.cost_estimate import PlannedPrompts
        from localjudge.system.requirements import require

        require("models plan", *input_extras(rows))
        taken = parse_columns(columns or ())
        prompts = PlannedPrompts.of(subject.name, rows, taken, rubric, Progress().step)
        prompt_tokens = prompt_tokens or prompts.mean
    use = PlannedUse(
        prompt_tokens or PROMPT_TOKENS,
        max_rationale_tokens,
        thinking_budget,
        gpu_memory_utilization,
    )
    memory = int(gpu_memory * GIB)
    made = CapacityPlan.make(subject, use, Machine.here(), gpu_memory=memory, gpus=gpus)
    if as_json:
        print_json(made.as_dict() | ({"rows": prompts.as_dict(rate)} if prompts else {}))
        return
    print(plan_text(made))
    print_table(printed_table(plan_table(made)))
    if made.flags:
        print(f"localjudge score … --model {subject.name} {' '.join(made.flags)}")
    print(f"this machine: {made.fits_here[1]}")
    for note in made.notes:
        print(f"note: {note}")
    if prompts:
        print(prompts.described(rate))


@explained(app, "localjudge models sign bundled --key private.pem --out bundled.sig")
def sign(
    model: Annotated[str, typer.Argument(metavar="DIR", help="A model directory or a GGUF file.")],
    key: Annotated[Path, Flag("A private key of an elliptic curve: P-256, P-384 or P-521.", "PEM")],
    out: Annotated[Path | None, Flag("The signature to write.  [default: DIR.sig]", "FILE")] = None,
) -> None:
    """Sign the files of a model, so that `models verify --signature` can tell whether they are still the same.

    The format is that of OpenSSF's model signing, and the key a file of yours: nothing uses the network.
    """
    settle_environment()
    from localjudge.cli.progress import Progress
    from localjudge.models.model import Model
    from localjudge.models.model_signature import sign_model, signature_file

    found = Model.locate(model)
    try:
        encrypted = b"ENCRYPTED" in key.read_bytes()
    except OSError as error:
        raise UsageError(f"--key {key}: {error.strerror}") from None
    asked = typer.prompt(f"pass phrase of {key}", hide_input=True, err=True) if encrypted else None
    signature = out or signature_file(found.path)
    sign_model(found.path, key, signature, asked.encode() if asked else None)
    Progress().say(f"signed: {signature}")


@explained(app, "localjudge models verify bundled --no-manifest")
def verify(
    model: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="A model directory, a GGUF file, the id of a model in the local cache, or 'bundled'.",
        ),
    ],
    no_manifest: Annotated[bool, Flag("Only check; write no manifest.")] = False,
    renew: Annotated[bool, Flag("Replace the existing manifest by a new one.")] = False,
    signature: Annotated[Path | None, Flag("Check this signature of the model; needs --key.", "FILE")] = None,
    key: Annotated[Path | None, Flag("The public key of the model's signer.", "PEM")] = None,
    adapter: AdapterName = None,
    as_json: AsJson = False,
) -> None:
    """Check that a model directory is complete and safe, and write a manifest of its files.

    The manifest, localjudge-manifest.json, has the size and SHA-256 of every file. Afterwards, `score` refuses
    the model if a file has changed. With --signature and --key, check first that the files, all and no others,
    are those that the owner of the key signed. Exits with 0 if nothing is wrong and with 2 otherwise.
    """
    if (signature is None) != (key is None):
        raise UsageError("--signature and --key belong together: give both or none")
    settle_environment()
    from localjudge.cli.printed_tables import print_checks
    from localjudge.cli.progress import Progress
    from localjudge.diagnostics.check_results import is_sound, ok
    from localjudge.diagnostics.verification import verify as look_at
    from localjudge.models.adapter import Adapter
    from localjudge.models.model import Model
    from localjudge.models.model_signature import check_model_signature

    if no_manifest and renew:
        raise UsageError("--renew writes a manifest and --no-manifest writes none; give only one of them")
    found = Model.locate(model)
    if adapter:
        found = replace(found, adapter=Adapter.find(adapter))
    progress = Progress()
    progress.say(f"{found.name} · {found.path}")
    checks = []
    if signature and key:
        with progress.step("checking the signature"):
            check_model_signature(found.path, signature, key)
        checks.append(ok("signature", f"{signature} fits, by {key}"))
    with progress.step("verifying", "bytes") as report:
        checks += look_at(found, write=not no_manifest, renew=renew, report=report)
    print_checks(checks, as_json)
    if not is_sound(checks):
        raise typer.Exit(2)
