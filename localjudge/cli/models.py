"""The commands `models …`: the judges one can run."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from localjudge.cli.options import AsJson, settle_environment

app = typer.Typer(
    help="The judges one can run: what there is, what each needs, whether a directory is whole.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def verify(
    model: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A model directory, the id of a model in the local cache, or 'bundled'."
        ),
    ],
    no_manifest: Annotated[bool, typer.Option("--no-manifest", help="Check only, and write nothing.")] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Write a new manifest in the place of the one that is there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that a model directory is whole and safe, and write down what it holds.

    The manifest, localjudge-manifest.json, keeps the size and SHA-256 of every file. From then on, judging by
    the model is refused when a file is another. Ends with 0 where nothing is wrong, and with 2 otherwise.
    """
    settle_environment()
    from rich.console import Console

    from localjudge.checks import checklist, is_sound
    from localjudge.model import Model
    from localjudge.model.digests import model_files
    from localjudge.model.verification import verify as look_at
    from localjudge.terminal import printable

    if no_manifest and renew:
        raise typer.BadParameter("--renew writes a manifest, --no-manifest writes none; give one of them")
    found = Model.locate(model)
    total = sum(file.stat().st_size for file in model_files(found.path))
    said, done = 0.0, 0

    def read(count: int) -> None:
        nonlocal said, done
        said, done = said or time.monotonic(), done + count
        if time.monotonic() - said > 5:
            said = time.monotonic()
            typer.echo(f"{done / 1e9:.1f} of {total / 1e9:.1f} GB read", err=True)

    typer.echo(printable(f"{found.name} · {found.path}"), err=True)
    checks = look_at(found, write=not no_manifest, renew=renew, read=read)
    if as_json:
        typer.echo(json.dumps([check.as_dict() for check in checks], ensure_ascii=False, indent=2))
    else:
        Console(highlight=False, soft_wrap=True).print(checklist(checks))
    if not is_sound(checks):
        raise typer.Exit(2)
