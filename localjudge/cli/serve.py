"""The commands `serve`, a judge behind HTTP, and `serve-flags`, the flags of a vLLM server that judges."""

from __future__ import annotations

import shlex
import signal
from contextlib import ExitStack, suppress
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from localjudge.cli.judge_options import JudgeOptions
from localjudge.cli.listen_options import ListenOptions
from localjudge.cli.messages import Messages
from localjudge.cli.options import (
    RUN,
    SETTING,
    Guard,
    RationalePlace,
    RubricName,
    check_out_file,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.integrations.http_app import FailedReward


def serve(
    judge: JudgeOptions,
    listen: ListenOptions,
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
) -> None:
    """Judge rows that arrive over HTTP, for training loops and notebooks, until it is stopped."""
    from localjudge.system.requirements import require

    require("serve", "serve")
    from localjudge.cli.progress import Progress
    from localjudge.integrations.http_app import AccessRules, JudgeApp
    from localjudge.integrations.http_server import CLOSING_SECONDS, EndInBatch, JudgeServer
    from localjudge.integrations.judge_service import JudgeService
    from localjudge.integrations.kept_judgements import KeptJudgements
    from localjudge.integrations.listener import LOOPBACK
    from localjudge.integrations.reward_formula import RewardFormula

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
        if made.notice:
            progress.warn(made.notice)
        keep = stack.enter_context(KeptJudgements(out, made)).add if out is not None else lambda outcomes: None
        service = stack.enter_context(JudgeService(made, max_waiting, keep, patience=CLOSING_SECONDS))
        ended.service = service
        hosts = None if listener.token is not None else LOOPBACK
        app = JudgeApp(made, service, AccessRules(listener.token, max_body_bytes, hosts), formula, failed)
        server = JudgeServer(app.asgi(), service, listener)
        scheme = "http" if listener.certfile is None else "https"
        who = "requests with the token" if listener.token is not None else "requests of this machine"
        listening.listen()
        port = listening.getsockname()[1]
        progress.say(f"listening on {scheme}://{listener.host}:{port} for {who}; Ctrl-C stops")
        server.run(sockets=[listening])
        if service.error is not None:
            raise service.error


def serve_flags(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model directory or the id of a model in the local cache.")
    ],
    rubric: RubricName = "just-eval",
    guard: Guard = False,
    rationale: RationalePlace = None,
    answer_spelling: Annotated[str, SETTING] = "compact",
    max_rationale_tokens: Annotated[int, SETTING] = 256,
    thinking_budget: Annotated[int | None, SETTING] = None,
    runner: Annotated[
        str | None,
        Flag("The server's model runner.  [default: V2 with a GPU on this machine, else V1]", "V1|V2"),
    ] = None,
    table: Annotated[
        Path | None, Flag("The file for the token table.  [default: a file in the cache]", "FILE")
    ] = None,
) -> None:
    """Print a vLLM command whose server enforces a rubric's answers, for `score --server-kind table`.

    The flags belong to this model, rubric and limits; a judge with others is refused.
    """
    from localjudge.engines.vllm.score_collector import TableSettings
    from localjudge.engines.vllm.served_table import Runner
    from localjudge.engines.vllm.served_table import serve_flags as flags_of
    from localjudge.judge import Judge
    from localjudge.rubrics.rubric import Rubric
    from localjudge.system.cache import cache_folder
    from localjudge.system.machine import Machine

    settle_environment()
    if runner is None:
        runner = "V2" if Machine.here().gpus else "V1"
        Messages.here().say(f"runner {runner}; give --runner if vLLM says that it takes the other one")
    if runner not in get_args(Runner):
        raise UsageError(f"--runner {runner}: give V1 or V2")
    judge = Judge(
        model,
        rubric=Rubric.load(rubric, guard=guard, rationale=rationale),
        engine="dry-run",
        answer_spelling=answer_spelling,
        max_rationale_tokens=max_rationale_tokens,
        thinking_budget=thinking_budget,
    )
    if table is None:
        digest = TableSettings.from_decoding(judge.decoding, Path()).digest(judge.decoding.table)
        table = cache_folder() / "served" / f"{digest}.npz"
        table.parent.mkdir(parents=True, exist_ok=True)
    check_out_file(table)
    try:
        flags = flags_of(judge.decoding, table.resolve(), "V2" if runner == "V2" else "V1")
    except OSError as error:
        raise UsageError(f"--table {table}: cannot be written: {error.strerror}") from None
    print(shlex.join(["vllm", "serve", str(judge.model.path), *flags]))


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
