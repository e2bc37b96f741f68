"""The command `serve`, a judge behind HTTP."""

from __future__ import annotations

import shlex
import signal
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.judge_options import JudgeOptions
from localjudge.cli.listening import accept_connections, end_on
from localjudge.cli.messages import Messages
from localjudge.cli.options import SERVER, check_out_file
from localjudge.cli.progress import Progress
from localjudge.errors import SettingError, UsageError
from localjudge.integrations.listener import ListenSettings
from localjudge.settings import Flag
from localjudge.system.durable import cache_folder
from localjudge.system.machine import Machine
from localjudge.system.requirements import require

if TYPE_CHECKING:
    from localjudge.engines.vllm.table_settings import Runner
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
    from localjudge.integrations.judge_service import JudgeService
    from localjudge.integrations.served_rewards import RewardFormula

    if print_vllm_flags:
        print(_vllm_command(judge, runner, table))
        return
    if runner or table:
        raise UsageError("--runner and --table belong to --print-vllm-flags; give it, too")

    require("serve", "serve")
    from localjudge.integrations.http_app import AccessRules, JudgeApp
    from localjudge.integrations.http_server import CLOSING_SECONDS, EndInBatch, JudgeServer

    config, cluster = judge.prepare("serve", ())
    formula = None if reward is None else RewardFormula.parse(reward, config.rubric)
    if failed_reward is not None and formula is None:
        raise UsageError(f"--failed-reward {failed_reward}: belongs to --reward; give both")
    reward_of_failure = _failed_reward(failed_reward)
    token = listen.checked_token()
    progress = Progress()
    end_on(signal.SIGTERM)
    with ExitStack() as stack:
        end_in_batch = stack.enter_context(EndInBatch())
        bound = stack.enter_context(listen.bind())
        with progress.step("preparing the model", "bytes") as report:
            opened_judge = stack.enter_context(judge.open_judge(config, cluster, report=report))
            opened_judge.model.read_files(report)
        with progress.step("loading the engine"):
            progress.say(opened_judge.engine.info.headline)
        for notice in opened_judge.notices:
            progress.warn(notice)
        if opened_judge.thinking_notice is not None:
            progress.warn(opened_judge.thinking_notice)
        service = stack.enter_context(
            JudgeService(opened_judge, most_waiting=max_waiting, patience=CLOSING_SECONDS)
        )
        end_in_batch.service = service
        app = JudgeApp(
            opened_judge,
            service,
            rules=AccessRules(token, max_body_bytes),
            formula=formula,
            failed_reward=reward_of_failure,
        )
        server = JudgeServer(app.asgi(), service)
        requests = "requests of this machine" if token is None else "requests with the token"
        progress.say(f"listening on {accept_connections(listen, bound)} for {requests}; Ctrl-C stops")
        server.run(sockets=[bound])
        if service.error is not None:
            raise service.error


def _vllm_command(options: JudgeOptions, runner: str | None, table: Path | None) -> str:
    """Return a vLLM command whose server applies the table of a model, a rubric and its limits, for a shell.

    Raises:
        UsageError: an option cannot be used, or the table cannot be written.
    """
    from localjudge.engines.engine_options import VllmOptions
    from localjudge.engines.vllm.head_type import choose_head
    from localjudge.engines.vllm.table_settings import serve_flags, table_digest

    config, _ = replace(options, engine="dry-run").prepare("serve", ())
    _check_no_secret("hf_overrides", config.engine_args.get("hf_overrides", ""))
    has_gpu = bool(Machine.here().gpus)
    vllm_runner = _runner(runner, has_gpu=has_gpu)
    judge = options.open_judge(config)
    vllm_options = VllmOptions.parse(config.engine_args)
    head = choose_head(judge.model, vllm_options, on_gpu=has_gpu or vllm_runner == "V2")
    if head.is_float32:
        Messages().say(
            "the server computes its last layer in float32 for all requests, which can change their texts; "
            "--engine-arg head_dtype=model leaves it in the model's type"
        )
    elif head.remark:
        Messages().say(f"the server computes its last layer in the model's type: {head.remark}")
    if table is None:
        table = cache_folder() / "served" / f"{table_digest(judge.decoding)}.npz"
        table.parent.mkdir(parents=True, exist_ok=True)
    check_out_file(table, "--table")
    overrides = vllm_options.arguments.get("hf_overrides", {}) | head.overrides
    try:
        flags = serve_flags(judge.decoding, table.resolve(), runner=vllm_runner, hf_overrides=overrides)
    except OSError as error:
        raise UsageError(f"--table {table}: {error.strerror}") from None
    command = ["vllm", "serve", str(judge.model.path)] + flags
    context = config.engine_args.get("max_model_len")
    if context is not None:
        command += ["--max-model-len", context]
    return shlex.join(command)


def _runner(runner: str | None, *, has_gpu: bool) -> Runner:
    """Return the model runner that is given, or that of this machine.

    Raises:
        UsageError: there is no such runner.
    """
    if runner is None:
        default: Runner = "V2" if has_gpu else "V1"
        Messages().say(f"runner {default}; give --runner if vLLM says that it takes the other one")
        return default
    if runner == "V1":
        return "V1"
    if runner == "V2":
        return "V2"
    raise UsageError(f"--runner {runner}: give V1 or V2")


def _check_no_secret(name: str, value: str) -> None:
    """Check that an option of the engine that is to be printed has no secret.

    Raises:
        SettingError: it has one.
    """
    from localjudge.secret_options import masked_option

    masked = masked_option(name, value)
    if masked.secrets:
        advice = (
            "a printed command is no place for a secret; leave it out here, and add it to the command yourself"
        )
        raise SettingError("engine_args", f"{name}={masked.shown}", advice)


def _failed_reward(text: str | None) -> FailedReward:
    """Return the reward of a row that cannot be judged, as a number, "null", or None for an error."""
    if text is None:
        return None
    if text == "null":
        return "null"
    try:
        number = float(text)
    except ValueError:
        number = None
    if number is None or not isfinite(number):
        raise UsageError(f"--failed-reward {text}: give a number, or null")
    return number
