"""The command `audit`: the judge on trial with the user's own rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.options import (
    AllowChangedModel,
    AllowDownload,
    AsJson,
    ColumnNames,
    Deterministic,
    EngineArgs,
    EngineFloat,
    EngineInt,
    EngineName,
    EngineText,
    Guard,
    Inputs,
    MaxRowBytes,
    ModelName,
    OnOverflow,
    RationaleTokens,
    RubricName,
    Temperature,
    ThinkingBudget,
    TopP,
    check_out,
    engine_args,
    input_extras,
    print_json,
    print_table,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.rows.formats import MAX_ROW_BYTES

if TYPE_CHECKING:
    from localjudge.judge import Judge
    from localjudge.rubrics.rubric import Rubric

BELOW_THRESHOLD = 3
"""The exit code of an audit below a threshold that was set."""


def audit(
    inputs: Inputs,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder of the audit's runs.", show_default=False)
    ],
    sample: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many rows to audit with, at most.")
    ] = 100,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SHARE", help="End with 3 if less of this trial held; all=SHARE sets it for every one."
        ),
    ] = None,
    model: ModelName = None,
    allow_download: AllowDownload = False,
    allow_changed_model: AllowChangedModel = False,
    engine: EngineName = "auto",
    rubric: RubricName = "just-eval",
    column: ColumnNames = None,
    max_row_bytes: MaxRowBytes = MAX_ROW_BYTES,
    max_rationale_tokens: RationaleTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the rows, their perturbations and the judge.")] = 0,
    thinking_budget: ThinkingBudget = None,
    on_overflow: OnOverflow = "fail",
    guard: Guard = False,
    deterministic: Deterministic = False,
    tensor_parallel_size: EngineInt = None,
    max_model_len: EngineInt = None,
    gpu_memory_utilization: EngineFloat = None,
    dtype: EngineText = None,
    quantization: EngineText = None,
    engine_arg: EngineArgs = None,
    as_json: AsJson = False,
) -> None:
    """Put the judge on trial: perturb rows in ways whose effect is known, and see what it makes of them."""
    settle_environment(deterministic=deterministic, allow_download=allow_download)
    from localjudge.audit import read_audit, run_audit, sample_rows
    from localjudge.audit.perturbations import PERTURBATIONS
    from localjudge.cli.progress import Progress
    from localjudge.engines.selection import check_engine, engine_extras
    from localjudge.judge import Judge, settings_without_model
    from localjudge.rows.columns import parse_columns
    from localjudge.rows.inputs import check_inputs, find_inputs, read_rows
    from localjudge.rubrics.rubric import Rubric
    from localjudge.system.requirements import require

    least = _thresholds(threshold or (), [each.name for each in PERTURBATIONS])
    columns = parse_columns(column or ())
    options = engine_args(
        {
            "tensor_parallel_size": tensor_parallel_size,
            "max_model_len": max_model_len,
            "gpu_memory_utilization": gpu_memory_utilization,
            "dtype": dtype,
            "quantization": quantization,
        },
        engine_arg,
    )

    def make_judge(by: Rubric) -> Judge:
        return Judge(
            model,
            rubric=by,
            engine=engine,
            max_rationale_tokens=max_rationale_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            thinking_budget=thinking_budget,
            on_overflow=on_overflow,
            engine_args=options,
            allow_download=allow_download,
            allow_changed_model=allow_changed_model,
        )

    judged_by = Rubric.load(rubric, guard=guard)
    settings_without_model(
        judged_by, max_rationale_tokens, temperature, top_p, seed, thinking_budget, on_overflow
    )
    require("audit", *engine_extras(engine), *input_extras(inputs))
    check_engine(engine, options)
    files = find_inputs(inputs)
    empty = check_inputs(files, columns, needs_reference=judged_by.needs_reference)
    check_out(out)
    drawn = sample_rows(read_rows(files, columns, max_row_bytes), sample, seed, judged_by)
    progress = Progress()
    for name in empty:
        progress.warn(f"{name}: holds no rows")
    judge = make_judge(judged_by)
    progress.say(f"model {judge.model.name} · rubric {judged_by.name} · {len(drawn.rows)} rows → {out}")
    if judge.notice:
        progress.warn(judge.notice)
    run_audit(drawn, judge, make_judge, out, seed)
    found = read_audit(out, drawn, seed, least)
    if as_json:
        print_json(found.model_dump(mode="json"), indent=2)
    else:
        for table in found.tables():
            print_table(table)
    for trial in found.checks:
        if trial.passed is False:
            progress.warn(
                f"below its threshold: {trial.name} held {trial.held_text}, not {trial.threshold:.0%}"
            )
    if not found.passed:
        raise typer.Exit(BELOW_THRESHOLD)


def _thresholds(options: list[str] | tuple[()], names: list[str]) -> dict[str, float]:
    """`["plea=0.9"]` as `{"plea": 0.9}`; `all` stands for every trial that is not named itself."""
    named: dict[str, float] = {}
    for option in options:
        name, equals, text = option.partition("=")
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not equals or name not in (*names, "all") or not 0 <= share <= 1:
            raise UsageError(
                f"--threshold {option}: write NAME=SHARE, a share from 0 to 1 of all, {', '.join(names)}"
            )
        named[name] = share
    everywhere = named.pop("all", None)
    return {name: everywhere for name in names if everywhere is not None} | named
