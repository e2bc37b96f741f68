"""The commands for this machine and for one without a network: `doctor` and `pack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from localjudge.cli.options import (
    SETTING,
    AllowHost,
    AsJson,
    ChatTemplate,
    ModelName,
    ServerUrl,
    given_template,
    settle_environment,
)
from localjudge.cli.printed_checks import print_checks
from localjudge.cli.progress import Progress
from localjudge.errors import LocalJudgeError, UsageError
from localjudge.settings import EngineName, Flag
from localjudge.system.durable import WrittenError
from localjudge.system.quantities import file_size
from localjudge.system.requirements import require


def doctor(
    model: ModelName = None,
    chat_template: ChatTemplate = None,
    engine: Annotated[str, SETTING] = "auto",
    server: ServerUrl = None,
    allow_host: AllowHost = None,
    out: Annotated[Path | None, Flag("The run directory, to check its disk.", "DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a run can start on this machine, and print a fix for each problem.

    Its flags are those of `score` that affect the start. Exits with 0 if a run can start and with
    1 otherwise. Uses no network except to contact the given server.
    """
    from localjudge.doctor import examine
    from localjudge.engines.engine_options import ServerOptions
    from localjudge.verification import is_sound

    engines = get_args(EngineName)
    if engine not in engines:
        raise UsageError(f"--engine {engine}: give one of {', '.join(engines)}")
    server_options = None
    if engine == "server":
        allowed_hosts = ",".join(allow_host or ())
        server_options = ServerOptions.parse({"server": server or "", "allow_host": allowed_hosts})
    settle_environment()
    with Progress().step("examining this machine"):
        template = given_template(chat_template)
        checks = examine(model, engine, server_options, out, template=template)
    print_checks(checks, as_json=as_json)
    if not is_sound(checks):
        raise typer.Exit(1)


def pack(
    out: Annotated[Path, Flag("A new folder.", "DIR")],
    extra: Annotated[
        list[str] | None,
        Flag("Include this extra; give it again for another one.", "NAME"),
    ] = None,
    model: Annotated[
        list[str] | None, Flag("Include this model; the bundled model is always included.", "PATH_OR_ID")
    ] = None,
    rows: Annotated[
        list[Path] | None, Flag("Include this file of rows; the examples are always included.", "FILE")
    ] = None,
    python: Annotated[str | None, Flag("The other machine's Python.  [default: this one]", "3.N")] = None,
    platform: Annotated[
        list[str] | None, Flag("Its platform, such as manylinux_2_28_x86_64.  [default: this one]", "TAG")
    ] = None,
    part_size: Annotated[str, Flag("The largest size of a part: 60M, 1.5G, 512MiB.", "SIZE")] = "1G",
    sign: Annotated[
        Path | None,
        Flag("Sign the pack with this private key (PEM, elliptic curve or RSA), by openssl.", "KEY"),
    ] = None,
    pip_arg: Annotated[list[str] | None, Flag("Any option of pip, such as --constraint=FILE.", "ARG")] = None,
) -> None:
    """Pack wheels, models and rows for a machine without a network; its Python unpacks and installs them."""
    from localjudge.airgap.target_machine import Target

    require("pack", "pack")
    from localjudge.airgap.pack import make_pack, parse_size

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
                target=target,
                extras=extra or (),
                models=model or (),
                rows=rows or (),
                pip_args=pip_arg or (),
                say=progress.say,
                key=sign,
                report=report,
            )
    except WrittenError:
        raise
    except OSError as error:
        raise LocalJudgeError(f"--out {out}: {error}; no pack was written") from None
    if "cpu" not in manifest.extras and "vllm" not in manifest.extras:
        progress.warn("this pack cannot run a model; give --extra cpu or --extra vllm to include an engine")
    total = sum(part.size for part in manifest.parts)
    progress.say(f"{len(manifest.parts)} parts, {file_size(total)} · {out}")
    progress.say(f"manifest {manifest.sha256}")
    unpack_command = f"python{manifest.python} unpack.py"
    if sign is not None:
        unpack_command += " --key PUBLIC.pem"
    progress.say(f"there: {unpack_command}")
