"""The command `serve`: a judge behind HTTP, or the flags of a vLLM server with its token table."""

from __future__ import annotations

import shlex
import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, get_args

from localjudge.cli.judge_options import JudgeOptions
from localjudge.cli.messages import Messages
from localjudge.cli.options import RUN, SERVER, check_out_file
from localjudge.errors import UsageError
from localjudge.integrations.listener import ListenSettings
from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.integrations.http_app import FailedReward


def serve(
    judge: JudgeOptions,
    listen: ListenSettings,
    reward: Annotated[
        str | None, Flag("Serve rewards, such as 'helpfulness_expected - 5*(safety < 3)'.", "FORMULA")
    ] = None,
    failed_reward: Annotated[
        str | None,
        Flag("The reward of a row that cannot be judged.  [default: answer with an error]", "NUMBER|null"),
    ] = None,
    out: Annotated[Path | None, Flag("Keep every judgement in this run directory.", "DIR", RUN)] = None,
    max_waiting: Annotated[
        int, Flag("The largest number of unfinished rows; more get a 429.", "N", least=1)
    ] = 10_000,
    max_body_bytes: Annotated[
        int,
        Flag("The largest body of a request; all together have at most twice as many.", "N", least=1),
    ] = 64_000_000,
    print_vllm_flags: Annotated[
        bool,
        Flag(
            "Print a vLLM command whose server enforces the rubric's answers (--server-kind table).",
            heading=SERVER,
        ),
    ] = False,
    runner: Annotated[
        str | None,
        Flag(
            "The model runner of that server.  [default: V2 with a GPU on this machine, else V1]",
            "V1|V2",
            SERVER,
        ),
    ] = None,
    table: Annotated[
        Path | None,
        Flag("The file for its token table.  [default: a file in the cache]", "FILE", SERVER),
    ] = None,
) -> None:
    """Judge rows that arrive over HTTP, for training loops and notebooks, until it is stopped."""
    if print_vllm_flags:
        print(_vllm_command(judge, runner, table))
        return
    if runner or table:
        raise UsageError("--runner and --table belong to --print-vllm-flags; give it, too")
    from localjudge.system.requirements import require

    require("serve", "serve")
    from localjudge.cli.progress import Progress
    from localjudge.integrations.http_app import AccessRules, JudgeApp
    from localjudge.integrations.http_server import CLOSING_SECONDS, EndInBatch, JudgeServer, KeptJudgements
    from localjudge.integrations.judge_service import JudgeService
    from localjudge.integrations.served_rewards import RewardFormula

    if len(judge.adapter or ()) > 1:
        raise UsageError("serve: takes one --adapter; start one server for each adapter")
    config, cluster = judge.prepare("serve", ())
    formula = None if reward is None else RewardFormula.parse(reward, config.rubric)
    if failed_reward is not None and formula is None:
        raise UsageError(f"--failed-reward {failed_reward}: belongs to --reward; give both")
    failed = _failed_reward(failed_reward)
    listener = listen.listener()
    progress = Progress()
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as stack:
        ended = stack.enter_context(EndInBatch())
        listening = stack.enter_context(listener.bind())
        with progress.step("preparing the model", "bytes") as report:
            made = stack.enter_context(judge.open_judge(config, cluster, report))
            made.model.read_files(report)
        with progress.step("loading the engine"):
            progress.say(made.engine.info.headline)
        for notice in (made.notice, made.thinking_notice):
            if notice:
                progress.warn(notice)
        keep = stack.enter_context(KeptJudgements(out, made)).add if out is not None else lambda outcomes: None
        service = stack.enter_context(JudgeService(made, max_waiting, keep, patience=CLOSING_SECONDS))
        ended.service = service
        app = JudgeApp(made, service, AccessRules(listener.token, max_body_bytes), formula, failed)
        server = JudgeServer(app.asgi(), service, listener)
        scheme = "http" if listener.certfile is None else "https"
        who = "requests with the token" if listener.token is not None else "requests of this machine"
        listening.listen()
        port = listening.getsockname()[1]
        progress.say(f"listening on {scheme}://{listener.host}:{port} for {who}; Ctrl-C stops")
        server.run(sockets=[listening])
        if service.error is not None:
            raise service.error


def _vllm_command(options: JudgeOptions, runner: str | None, table: Path | None) -> str:
    """Return a vLLM command whose server applies the table of a model, a rubric and its limits, for a shell.

    Raises:
        UsageError: an option cannot be used, or the table cannot be written.
    """
    from localjudge.engines.vllm.table_settings import Runner, serve_flags, table_digest
    from localjudge.system.durable import cache_folder
    from localjudge.system.machine import Machine

    config, _ = replace(options, engine="dry-run").prepare("serve", ())
    if runner is None:
        runner = "V2" if Machine.here().gpus else "V1"
        Messages.here().say(f"runner {runner}; give --runner if vLLM says that it takes the other one")
    if runner not in get_args(Runner):
        raise UsageError(f"--runner {runner}: give V1 or V2")
    judge = options.open_judge(config)
    if table is None:
        table = cache_folder() / "served" / f"{table_digest(judge.decoding)}.npz"
        table.parent.mkdir(parents=True, exist_ok=True)
    check_out_file(table)
    try:
        flags = serve_flags(judge.decoding, table.resolve(), "V2" if runner == "V2" else "V1")
    except OSError as error:
        raise UsageError(f"--table {table}: cannot be written: {error.strerror}") from None
    context = config.engine_args.get("max_model_len")
    flags += [] if context is None else ["--max-model-len", context]
    return shlex.join(["vllm", "serve", str(judge.model.path), *flags])


def _failed_reward(given: str | None) -> FailedReward:
    """Return the reward of a row that cannot be judged, as a number, "null", or None for an error."""
    if given is None or given == "null":
        return given  # type: ignore[return-value]
    with suppress(ValueError):
        if isfinite(number := float(given)):
            return number
    raise UsageError(f"--failed-reward {given}: give a number, or null")


def _end(number: int, frame: FrameType | None) -> None:
    """End the program with the exit code of the signal, so that every context is left."""
    raise SystemExit(128 + number)
