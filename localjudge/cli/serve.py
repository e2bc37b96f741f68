"""The command `serve`: a judge behind HTTP."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from localjudge.cli.judge_options import JudgeOptions
from localjudge.cli.options import with_options
from localjudge.errors import UsageError
from localjudge.system.requirements import require

TOKEN = "LOCALJUDGE_TOKEN"
_GRACE = 20


@with_options
def serve(
    judge: JudgeOptions,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="The port to listen on.")] = 8700,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"A file with the token that requests must send; the variable {TOKEN} has one, too.",
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(metavar="FORMULA", help="Serve rewards, such as 'helpfulness_expected - 5*(safety < 3)'."),
    ] = None,
    failed_reward: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="The reward of a row that cannot be judged.  [default: answer with an error]"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep every judgement in this run directory.")
    ] = None,
    max_waiting: Annotated[
        int, typer.Option(min=1, metavar="N", help="The largest number of unfinished rows; more get a 429.")
    ] = 10_000,
    max_body_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="The largest body of a request.")
    ] = 64_000_000,
    certfile: Annotated[Path | None, typer.Option(metavar="FILE", help="A TLS certificate.")] = None,
    keyfile: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="The seed of the sampling.")] = 0,
) -> None:
    """Judge rows that arrive over HTTP, for training loops and notebooks, until it is stopped."""
    require("serve", "serve")
    import uvicorn

    from localjudge.cli.progress import Progress
    from localjudge.judge import Judge
    from localjudge.serve.http_app import LOOPBACK, AccessRules, JudgeApp
    from localjudge.serve.judge_service import JudgeService
    from localjudge.serve.kept_judgements import KeptJudgements
    from localjudge.serve.reward_formula import RewardFormula

    config, cluster = judge.prepare("serve", (), seed=seed)
    formula = None if reward is None else RewardFormula.parse(reward, config.rubric)
    if failed_reward is not None and formula is None:
        raise UsageError(f"--failed-reward {failed_reward}: belongs to --reward; give both")
    if (certfile is None) is not (keyfile is None):
        raise UsageError("--certfile and --keyfile belong together; give both")
    token = _token(token_file)
    if host not in LOOPBACK and token is None:
        raise UsageError(
            f"--host {host}: other machines could use this judge; give --token-file FILE, or set {TOKEN}"
        )
    progress = Progress()
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as stack:
        listening = stack.enter_context(_bound(host, port))
        with progress.step("preparing the model", "bytes") as report:
            made = stack.enter_context(
                Judge(
                    config,
                    cluster=cluster,
                    allow_changed_model=judge.allow_changed_model,
                    allow_download=judge.allow_download,
                    report=report,
                )
            )
            made.model.read_files(report)
        with progress.step("loading the engine"):
            progress.say(made.engine.info.headline)
        if made.notice:
            progress.warn(made.notice)
        keep = stack.enter_context(KeptJudgements(out, made)).add if out is not None else lambda outcomes: None
        service = stack.enter_context(JudgeService(made, max_waiting, keep))
        hosts = None if token is not None else LOOPBACK
        app = JudgeApp(made, service, AccessRules(token, max_body_bytes, hosts), formula, failed_reward)
        server = uvicorn.Server(
            uvicorn.Config(
                app.asgi(),
                ssl_certfile=certfile,
                ssl_keyfile=keyfile,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        service.on_error = lambda: setattr(server, "should_exit", True)
        scheme = "http" if certfile is None else "https"
        who = "requests with the token" if token is not None else "requests of this machine"
        listening.listen()
        progress.say(f"listening on {scheme}://{host}:{listening.getsockname()[1]} for {who}; Ctrl-C stops")
        server.run(sockets=[listening])
        if service.error is not None:
            raise service.error


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket with this address; one that is taken is reported before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        raise UsageError(f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}") from None
    return found


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file}: cannot be read: {error}") from None
    if not token:
        raise UsageError(f"--token-file {file}: is empty; write a token into it")
    return token


def _end(number: int, frame: FrameType | None) -> None:
    """End the program with the exit code of the signal, so that every context is left."""
    raise SystemExit(128 + number)
