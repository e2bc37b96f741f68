"""The command `pack`: everything that a machine without a network needs, in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.options import settle_environment
from localjudge.errors import LocalJudgeError
from localjudge.system.quantities import file_size
from localjudge.system.requirements import require


def pack(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    extra: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Include this extra; give it again for another one.  [default: the extras installed here]",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH_OR_ID", help="Include this model; the bundled model is always included."),
    ] = None,
    adapter: Annotated[list[str] | None, typer.Option(metavar="DIR", help="Include this LoRA adapter.")] = None,
    rows: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Include this file of rows; the examples are always included."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="3.N", help="The other machine's Python.  [default: this one]"),
    ] = None,
    platform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TAG",
            help="Its platform, such as manylinux_2_28_x86_64.  [default: this one]",
        ),
    ] = None,
    part_size: Annotated[
        str, typer.Option(metavar="SIZE", help="The largest size of a part: 60M, 1.5G, 512MiB.")
    ] = "1G",
    sign: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY", help="Sign the pack with this private key (PEM, elliptic curve or RSA), by openssl."
        ),
    ] = None,
    pip_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="ARG", help="Any option of pip, such as --constraint=FILE."),
    ] = None,
) -> None:
    """Pack wheels, models and rows for a machine without a network; its Python unpacks and installs them."""
    require("pack", "pack")
    from localjudge.airgap.pack import make_pack, parse_size
    from localjudge.airgap.wheels import Target
    from localjudge.cli.progress import Progress

    settle_environment()
    progress = Progress()
    size = parse_size(part_size)
    target = Target.from_options(python, platform or ())
    if not target.is_here:
        progress.warn(
            "pip evaluates conditions on the system or the Python version for this machine, not the target"
        )
    try:
        with progress.step("packing", "bytes") as report:
            manifest = make_pack(
                out,
                size,
                target,
                extra,
                model or (),
                rows or (),
                pip_arg or (),
                progress.say,
                adapter or (),
                sign,
                report,
            )
    except OSError as error:
        raise LocalJudgeError(f"--out {out}: {error}; no pack was written") from None
    if not {"cpu", "vllm"} & set(manifest.extras):
        progress.warn("this pack cannot run a model; give --extra cpu or --extra vllm to include an engine")
    total = sum(part.size for part in manifest.parts)
    progress.say(f"{len(manifest.parts)} parts, {file_size(total)} · {out}")
    progress.say(f"manifest {manifest.sha256}")
    there = f"python{manifest.python} unpack.py"
    progress.say(f"there: {there} --key PUBLIC.pem" if sign else f"there: {there}")
