"""The commands that listen for requests: `serve`, a judge behind HTTP, and `label`, a page for people."""

from __future__ import annotations

import secrets
import shlex
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from localjudge.cli.judge_options import JudgeOptions, PairOptions
from localjudge.cli.messages import Messages
from localjudge.cli.options import SERVER, ColumnNames, RubricName, check_out_file
from localjudge.cli.progress import Progress, one_run
from localjudge.errors import SettingError, UsageError
from localjudge.integrations.listener import LOOPBACK, ListenSettings
from localjudge.report.study_options import MovedInputs
from localjudge.settings import Flag
from localjudge.system.durable import cache_folder
from localjudge.system.machine import Machine
from localjudge.system.quantities import counted
from localjudge.system.requirements import require

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
    failed = _failed_reward(failed_reward)
    token = listen.checked_token()
    progress = Progress()
    _end_on(signal.SIGTERM)
    with ExitStack() as stack:
        ended = stack.enter_context(EndInBatch())
        listening = stack.enter_context(listen.bind())
        with progress.step("preparing the model", "bytes") as report:
            made = stack.enter_context(judge.open_judge(config, cluster, report))
            made.model.read_files(report)
        with progress.step("loading the engine"):
            progress.say(made.engine.info.headline)
        for notice in made.notices:
            progress.warn(notice)
        if made.thinking_notice is not None:
            progress.warn(made.thinking_notice)
        service = stack.enter_context(JudgeService(made, max_waiting, CLOSING_SECONDS))
        ended.service = service
        app = JudgeApp(made, service, AccessRules(token, max_body_bytes), formula, failed)
        server = JudgeServer(app.asgi(), service)
        who = "requests with the token" if token is not None else "requests of this machine"
        progress.say(f"listening on {_listen(listen, listening)} for {who}; Ctrl-C stops")
        server.run(sockets=[listening])
        if service.error is not None:
            raise service.error


def _listen(listen: ListenSettings, listening: socket.socket) -> str:
    """Accept connections, and return the address to open."""
    listening.listen()
    return f"http://{listen.host}:{listening.getsockname()[1]}"


def _vllm_command(options: JudgeOptions, runner: str | None, table: Path | None) -> str:
    """Return a vLLM command whose server applies the table of a model, a rubric and its limits, for a shell.

    Raises:
        UsageError: an option cannot be used, or the table cannot be written.
    """
    from localjudge.engines.engine_options import VllmOptions
    from localjudge.engines.vllm.head_type import choose_head
    from localjudge.engines.vllm.table_settings import Runner, serve_flags, table_digest

    config, _ = replace(options, engine="dry-run").prepare("serve", ())
    _check_no_secret("hf_overrides", config.engine_args.get("hf_overrides", ""))
    has_gpu = bool(Machine.here().gpus)
    if runner is None:
        runner = "V2" if has_gpu else "V1"
        Messages().say(f"runner {runner}; give --runner if vLLM says that it takes the other one")
    if runner not in get_args(Runner):
        raise UsageError(f"--runner {runner}: give V1 or V2")
    judge = options.open_judge(config)
    vllm_options = VllmOptions.parse(config.engine_args)
    head = choose_head(judge.model, vllm_options, on_gpu=has_gpu or runner == "V2")
    overrides = {**vllm_options.arguments.get("hf_overrides", {}), **head.overrides}
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
    try:
        flags = serve_flags(
            judge.decoding, table.resolve(), "V2" if runner == "V2" else "V1", hf_overrides=overrides
        )
    except OSError as error:
        raise UsageError(f"--table {table}: {error.strerror}") from None
    context = config.engine_args.get("max_model_len")
    flags += [] if context is None else ["--max-model-len", context]
    return shlex.join(["vllm", "serve", str(judge.model.path), *flags])


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


def _failed_reward(given: str | None) -> FailedReward:
    """Return the reward of a row that cannot be judged, as a number, "null", or None for an error."""
    if given is None or given == "null":
        return given  # type: ignore[return-value]
    with suppress(ValueError):
        if isfinite(number := float(given)):
            return number
    raise UsageError(f"--failed-reward {given}: give a number, or null")


def _end_on(*signals: signal.Signals) -> None:
    """Leave every context when one of these signals ends the program; those that are ignored stay so."""
    for each in signals:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, lambda number, frame: sys.exit(128 + number))


def label(
    rows: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...|RUN...", help="Files as for score, or a run directory or those of all its shards."
        ),
    ],
    pairs: PairOptions,
    listen: ListenSettings,
    *,
    rubric: RubricName = "six-aspects",
    out: Annotated[Path, Flag("The label file; it is continued.", "FILE")] = Path("labels.jsonl"),
    annotator: Annotated[str | None, Flag("The annotator.  [default: the page asks]", "NAME")] = None,
    sample: Annotated[int | None, Flag("Label about N rows.  [default: all]", "N", least=1)] = None,
    prefer: Annotated[
        Literal["system", "score", "orders", "jurors", "mass", "interval"] | None,
        Flag(
            "Draw some rows more often: those of rare systems or scores, or those that the judge of RUN "
            "doubts, by its orders, jurors, mass or interval. rank, agree and calibrate correct for it by "
            "weights.",
            "system|score|orders|jurors|mass|interval",
        ),
    ] = None,
    overlap: Annotated[
        float, Flag("The share of instructions that everyone labels.", "SHARE", least=0, most=1)
    ] = 0.0,
    show_judge: Annotated[bool, Flag("Show the judge's answer; the labels then say so.")] = False,
    seed: Annotated[int, Flag("The seed of the sample.", "S")] = 0,
    columns: ColumnNames = None,
    inputs: MovedInputs = None,
) -> None:
    """Label a sample of rows on a page of this machine, blind, with the keyboard alone.

    The default rubric has the aspects of just-eval, the default of score, each with a description for people.
    """
    from localjudge.labelling.label_file import LabelFile
    from localjudge.labelling.sample import candidates_of_rows, candidates_of_run
    from localjudge.labelling.session import LabelSession
    from localjudge.rows.columns import parse_columns
    from localjudge.rows.formats import input_extras
    from localjudge.rows.row_store import RowStore
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.row_source import RowSource
    from localjudge.runs.run_files import MANIFEST
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.runs.run_state import unchanged

    require("label", "serve", "trust", *input_extras([*rows, *(inputs or ())]))
    import uvicorn

    from localjudge.integrations.http_server import server_config
    from localjudge.labelling.label_app import LabelApp

    progress, runs = Progress(), [Path(each) for each in rows]
    others = [each for each in runs if not (each / MANIFEST).is_file()]
    is_run = not others
    if 0 < len(others) < len(runs):
        raise UsageError(f"{others[0]}: is not a run directory; give the shards of a run alone, or files alone")
    if show_judge and not is_run:
        raise UsageError("--show-judge: needs the judgements of a run; give a run directory")
    given = listen.checked_token()
    _end_on(signal.SIGTERM, signal.SIGHUP)
    with ExitStack() as stack:
        store = stack.enter_context(RowStore())
        if is_run:
            run = stack.enter_context(one_run(runs))
            found = read_manifest(run).rubric
            found.mode.require_whole_rows("label: its rubric")
            with unchanged([run]):
                candidates = candidates_of_run(run, store, sample, prefer, show_judge, inputs or ())
        else:
            found = Rubric.load(rubric)
            found.mode.require_whole_rows("label: its rubric")
            pairing = pairs.pairing(found.fields, "both" if found.mode.pairs is None else "one", seed)
            used = found.fields if pairing is None else pairing.used(found.fields)
            named = parse_columns(columns or (), used)
            source = RowSource.from_files(rows, named, used=found.fields, pairing=pairing)
            candidates = candidates_of_rows(source.rows, store, sample, prefer)
        if lost := candidates.unreadable:
            progress.warn(f"{counted(len(lost), 'row')} cannot be read and are left out; first: {lost[0]}")
        file = stack.enter_context(LabelFile(out))
        if file.torn is not None:
            progress.warn(f"{out}: a crash had cut its last line, which was moved to {file.torn}")
        session = LabelSession(found, candidates, file, overlap, seed)
        rows_of = f"{counted(len(session), 'row')} to label of {len(store):,}"
        progress.say(f"{rows_of} · {out}: {len(file.lines):,} answered")
        token = given or secrets.token_urlsafe(16)
        app = LabelApp(session, token, f"Labels: {found.name}", annotator, listen.host in LOOPBACK)
        listening = stack.enter_context(listen.bind())
        progress.say(f"open {_listen(listen, listening)}/?token={token}", always=True)
        progress.say("Ctrl-C ends; every label is in the file as soon as the next row is shown")
        with suppress(KeyboardInterrupt):  # the usual end
            uvicorn.Server(server_config(app.asgi())).run(sockets=[listening])
        file.refresh()
        if file.lost:
            progress.warn(f"{out}: another program has removed {counted(file.lost, 'answer')} from it")
        agree = (
            f"localjudge agree {shlex.join(rows)}"
            if is_run
            else "score the same rows, then: localjudge agree RUN"
        )
        progress.say(f"{out}: {counted(len(file.lines), 'answer')} · {agree} --labels {out}")
