"""The command `audit`: test the judge with the user's own rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.options import (
    AllowChangedModel,
    AllowDownload,
    AnswerSpelling,
    AsJson,
    ColumnNames,
    Deterministic,
    EngineArgs,
    EngineFloat,
    EngineInt,
    EngineName,
    EngineText,
    GpusPerWorker,
    Guard,
    Inputs,
    MaxRowBytes,
    ModelName,
    NumWorkers,
    OnOverflow,
    RationaleTokens,
    RayAddress,
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
    typed_command,
)
from localjudge.errors import UsageError
from localjudge.rows.formats import MAX_ROW_BYTES

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
            metavar="NAME=SHARE",
            help="End with 3 if a smaller share of this check held; all=SHARE sets it for every check.",
        ),
    ] = None,
    model: ModelName = None,
    allow_download: AllowDownload = False,
    allow_changed_model: AllowChangedModel = False,
    engine: EngineName = "auto",
    rubric: RubricName = "just-eval",
    column: ColumnNames = None,
    max_row_bytes: MaxRowBytes = MAX_ROW_BYTES,
    answer_spelling: AnswerSpelling = "compact",
    max_rationale_tokens: RationaleTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the rows, their perturbations and the judge.")] = 0,
    thinking_budget: ThinkingBudget = None,
    on_overflow: OnOverflow = "fail",
    guard: Guard = False,
    deterministic: Deterministic = False,
    ray: RayAddress = None,
    num_workers: NumWorkers = None,
    gpus_per_worker: GpusPerWorker = None,
    tensor_parallel_size: EngineInt = None,
    max_model_len: EngineInt = None,
    gpu_memory_utilization: EngineFloat = None,
    dtype: EngineText = None,
    quantization: EngineText = None,
    engine_arg: EngineArgs = None,
    as_json: AsJson = False,
) -> None:
    """Audit the judge: change rows in ways whose effect is known, and count how often it reacts rightly."""
    from localjudge.audit import read_audit, run_audit, sample_rows
    from localjudge.audit.perturbations import PERTURBATIONS
    from localjudge.cli.progress import Progress
    from localjudge.config import JudgeConfig
    from localjudge.engines.cluster import Cluster
    from localjudge.engines.selection import check_engine, engine_extras
    from localjudge.judge import Judge
    from localjudge.rows.columns import parse_columns
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.interruption import StopSignal
    from localjudge.runs.scoring import RowSource
    from localjudge.system.requirements import require

    least = _thresholds(threshold or (), [each.name for each in PERTURBATIONS])
    columns = parse_columns(column or ())
    cluster = Cluster.parse(ray, num_workers, gpus_per_worker)
    settle_environment(deterministic=deterministic, allow_download=allow_download, ray=ray)
    named = {
        "tensor_parallel_size": tensor_parallel_size,
        "max_model_len": max_model_len,
        "gpu_memory_utilization": gpu_memory_utilization,
        "dtype": dtype,
        "quantization": quantization,
    }
    config = JudgeConfig.of(
        model=model,
        rubric=Rubric.load(rubric, guard=guard),
        engine=engine,
        engine_args=engine_args(named, engine_arg),
        answer_spelling=answer_spelling,
        max_rationale_tokens=max_rationale_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        thinking_budget=thinking_budget,
        on_overflow=on_overflow,
    )
    require("audit", *engine_extras(engine, cluster), *input_extras(inputs))
    check_engine(engine, config.engine_args, cluster)
    needs_reference = config.rubric.needs_reference
    source = RowSource.of_files(inputs, columns, needs_reference=needs_reference, max_row_bytes=max_row_bytes)
    check_out(out)
    progress = Progress()
    for name in source.empty:
        progress.warn(f"{name}: holds no rows")
    drawn = sample_rows(source.rows, sample, seed, config.rubric)
    stop = StopSignal(progress.say)

    def judge_by(other: Rubric) -> Judge:
        return Judge(
            config.with_(rubric=other),
            cluster=cluster,
            allow_changed_model=allow_changed_model,
            allow_download=allow_download,
        )

    complete = run_audit(drawn, judge_by, config.rubric, out, seed, observer=progress, stopping=stop)
    if not complete:
        progress.say(f"stopped; to go on, run this again: {typed_command()}")
        raise typer.Exit(stop.exit_code)
    found = read_audit(out, drawn, seed, least)
    if as_json:
        print_json(found.model_dump(mode="json"), indent=2)
    else:
        for table in found.tables():
            print_table(table)
    for check in found.checks:
        if check.passed is False:
            progress.warn(
                f"below its threshold: {check.name} held {check.held_text}, not {check.threshold:.0%}"
            )
    if not found.passed:
        raise typer.Exit(BELOW_THRESHOLD)


def _thresholds(options: list[str] | tuple[()], names: list[str]) -> dict[str, float]:
    """`["plea=0.9"]` as `{"plea": 0.9}`; `all` stands for every check that is not named itself."""
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
