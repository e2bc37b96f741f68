"""The command `serve-flags`: the flags with which a vLLM server enforces a rubric's answers itself."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, get_args

import typer

from localjudge.cli.messages import Messages
from localjudge.cli.options import (
    SETTING,
    Guard,
    RationalePlace,
    RubricName,
    check_out_file,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.settings import Flag


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
