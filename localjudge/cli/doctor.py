"""The command `doctor`: check whether a run can start on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from localjudge.cli.options import (
    SETTING,
    AdapterName,
    AllowHost,
    AsJson,
    ModelName,
    ServerUrl,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.integrations.listener import ListenSettings
from localjudge.settings import EngineName, Flag


def doctor(
    model: ModelName = None,
    adapter: AdapterName = None,
    engine: Annotated[str, SETTING] = "auto",
    server: ServerUrl = None,
    allow_host: AllowHost = None,
    out: Annotated[Path | None, Flag("The run directory, to check its disk.", "DIR")] = None,
    serve: Annotated[bool, Flag("Check what `serve` needs, too.")] = False,
    *,
    listen: ListenSettings,
    as_json: AsJson = False,
) -> None:
    """Check whether a run can start on this machine, and print a fix for each problem.

    Accepts the flags of `score` that affect the start, and with --serve those of `serve`. Exits with 0 if a
    run can start and with 1 otherwise. Uses no network except to contact the given server.
    """
    from localjudge.cli.printed_tables import print_checks
    from localjudge.cli.progress import Progress
    from localjudge.doctor import examine
    from localjudge.engines.engine_options import ServerOptions
    from localjudge.engines.selection import check_combination
    from localjudge.verification import is_sound

    if engine not in get_args(EngineName):
        raise UsageError(f"--engine {engine}: give one of {', '.join(get_args(EngineName))}")
    check_combination(engine, None, adapts=adapter is not None)
    if not serve and listen != ListenSettings():
        raise UsageError(
            "--host, --port, --token-file, --certfile and --keyfile belong to --serve; give it, too"
        )
    served = None
    if engine == "server":
        served = ServerOptions.parse({"server": server or "", "allow_host": ",".join(allow_host or ())})
    settle_environment()
    with Progress().step("examining this machine"):
        checks = examine(model, engine, served, out, adapter, listen.listener if serve else None)
    print_checks(checks, as_json)
    if not is_sound(checks):
        raise typer.Exit(1)
