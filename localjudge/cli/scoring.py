"""Commands that judge: `score`, and `prompt` and `repeat` beside it. Flags become a judge and a run."""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.options import (
    FAILED_ROWS,
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
    Limit,
    MaxRowBytes,
    ModelName,
    OnOverflow,
    RationaleTokens,
    RubricName,
    RunFolder,
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
from localjudge.formats import MAX_ROW_BYTES

if TYPE_CHECKING:
    from localjudge.run.plan import Plan


def score(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run directory.", show_default=False)],
    model: ModelName = None,
    allow_download: AllowDownload = False,
    allow_changed_model: AllowChangedModel = False,
    engine: EngineName = "auto",
    rubric: RubricName = "just-eval",
    column: ColumnNames = None,
    system_from: Annotated[
        str | None,
        typer.Option(metavar="filename", help="Each file holds one system's rows.", show_default=False),
    ] = None,
    limit: Limit = None,
    max_row_bytes: MaxRowBytes = MAX_ROW_BYTES,
    max_rationale_tokens: RationaleTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the sampling.")] = 0,
    thinking_budget: ThinkingBudget = None,
    keep_thoughts: Annotated[bool, typer.Option("--keep-thoughts", help="Keep what it thought.")] = False,
    on_overflow: OnOverflow = "fail",
    guard: Guard = False,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only part I of N, or 'slurm' for this task's.", show_default=False),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Judge rows again that failed at an earlier start.")
    ] = False,
    deterministic: Deterministic = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="auto|local|ADDRESS",
            help="Judge on the workers of a Ray cluster: a running one, or one on this machine.",
            show_default=False,
        ),
    ] = None,
    num_workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|MIN:MAX", help="How many.  [default: as many as there is room for]", show_default=False
        ),
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(metavar="G", help="The GPUs of each.  [default: those of its engine]", show_default=False),
    ] = None,
    tensor_parallel_size: EngineInt = None,
    max_model_len: EngineInt = None,
    gpu_memory_utilization: EngineFloat = None,
    dtype: EngineText = None,
    quantization: EngineText = None,
    engine_arg: EngineArgs = None,
) -> None:
    """Judge every row and write a run directory. The same command again continues a run."""
    from localjudge.cluster import Cluster
    from localjudge.engines import check_engine, engine_extras
    from localjudge.judge import Judge, settings_without_model
    from localjudge.model.manifest import in_words
    from localjudge.progress import Progress
    from localjudge.requirements import require
    from localjudge.rows import FILENAME, check_inputs, find_inputs, parse_columns, read_rows
    from localjudge.rubric import Rubric
    from localjudge.run import SET_ASIDE, Run, read_notices
    from localjudge.run.estimate import Estimate
    from localjudge.run.notices import headed
    from localjudge.run.plan import Plan
    from localjudge.run.shard import Shard
    from localjudge.run.stop import Stop

    columns = parse_columns(column or ())
    if system_from is not None:
        if system_from != "filename" or "system" in columns:
            raise UsageError(f"--system-from {system_from}: there is filename, without --column system=…")
        columns["system"] = FILENAME
    part = Shard.parse(shard, os.environ)
    cluster = Cluster.parse(ray, num_workers, gpus_per_worker)
    settle_environment(deterministic=deterministic, allow_download=allow_download, ray=ray)
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
    judged_by = Rubric.load(rubric, guard=guard)
    settings = settings_without_model(
        judged_by, max_rationale_tokens, temperature, top_p, seed, thinking_budget, on_overflow
    )
    require("score", *engine_extras(engine, cluster), *input_extras(inputs))
    check_engine(engine, options, cluster)
    files = find_inputs(inputs)
    empty = check_inputs(files, columns, needs_reference=judged_by.needs_reference)
    check_out(out)
    progress = Progress()
    for name in empty:
        progress.warn(f"{name}: holds no rows")
    with Run(out, progress.say) as run:
        run.refuse_other_settings(settings, judged_by, part)
        judge = Judge(
            model,
            rubric=judged_by,
            engine=engine,
            max_rationale_tokens=max_rationale_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            thinking_budget=thinking_budget,
            keep_thoughts=keep_thoughts,
            on_overflow=on_overflow,
            engine_args=options,
            cluster=cluster,
            allow_changed_model=allow_changed_model,
            allow_download=allow_download,
        )
        by = judge.rubric.name + ", guarded" * judge.rubric.prompt.guard
        progress.say(f"model {judge.model.name} · rubric {by} · {len(files)} input(s) → {out}")
        if judge.notice:
            progress.warn(judge.notice)
        if judge.model_changes:
            progress.warn(f"the model is not what was verified: {in_words(judge.model_changes)}")
        run.refuse_another(judge, part)
        found = read_rows(files, columns, max_row_bytes)
        with Plan(judge, islice(found, limit), scratch=out, shard=part) as plan:
            if not plan.input_rows:
                raise UsageError(f"{', '.join(inputs)}: holds no rows")
            if plan.too_long:
                what = "fail" if on_overflow == "fail" else "lose the end of their candidate"
                progress.warn(
                    f"{plan.too_long} of {plan.rows} rows do not fit the model's context; they {what}"
                )
            if plan.repeated_ids:
                progress.warn(_repeated(plan))
            judge.expect(plan.longest, out / "engine.log")
            done = run.begin(judge, plan, files, columns, retry_failed, max_row_bytes)
            progress.say(judge.engine.headline())
            if deterministic and not judge.engine.describe().get("batch_invariant"):
                progress.warn("--deterministic: not in force, this engine or hardware has no such execution")
            if run.set_aside:
                progress.say(
                    f"{run.set_aside} earlier lines are of no row of this input; {out / SET_ASIDE} keeps them"
                )
            if done:
                progress.say(f"continuing: {done} rows are done already, {plan.rows - done} are to do")
            with progress.counting(plan.rows - done), Stop(progress.say) as stop:
                summary = run.score(progress.add, stop.asked)
            if not run.complete:
                progress.say(
                    f"stopped with {run.done} of {plan.rows} rows done; "
                    f"to go on, run this again: {typed_command()}"
                )
                raise typer.Exit(stop.exit_code)
            rate = judge.engine.statistics().get("rate")
            estimate = Estimate.of(judge, plan, summary, out, rate) if engine == "dry-run" else None
    print_table(headed(read_notices(out), estimate.table() if estimate else summary.table()))
    progress.say(f"{summary.judged} judged, {summary.failed} failed · {out}")
    counted = judge.engine.statistics()
    if counted.get("cached_prompt_tokens"):
        share = counted["cached_prompt_tokens"] / counted["prompt_tokens"]
        progress.say(f"{share:.0%} of the prompt tokens came from the prefix cache")
    for reason, count in summary.reasons.most_common(10):
        progress.warn(f"{count} failed: {reason}")
    if estimate and not estimate.fits_disk:
        progress.warn(f"{out}: the disk has not the room for this run")
    if summary.failed:
        raise typer.Exit(FAILED_ROWS)


def _repeated(plan: Plan) -> str:
    row = plan.repeated_id()
    system = f" and the system {row.system!r}" if row.system else ""
    return (
        f"{plan.repeated_ids} of {plan.rows} rows have the id and the system of an earlier row, such as the id "
        f"{row.id!r}{system} at {row.source}; name the columns that tell rows apart with --column id=COLUMN, "
        "--column system=COLUMN or --system-from filename"
    )


def prompt(
    inputs: Inputs,
    rubric: RubricName = "just-eval",
    guard: Guard = False,
    column: ColumnNames = None,
    limit: Limit = None,
    max_row_bytes: MaxRowBytes = MAX_ROW_BYTES,
    model: ModelName = None,
    allow_download: AllowDownload = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="With the token ids that the engine gets.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line a row: id, text, tokens.")] = False,
) -> None:
    """Print exactly what the judge will be sent."""
    from localjudge.records import Failure
    from localjudge.rows import check_inputs, find_inputs, parse_columns, read_rows
    from localjudge.rubric import Rubric
    from localjudge.terminal import unfiltered

    columns = parse_columns(column or ())
    judged_by = Rubric.load(rubric, guard=guard)
    files = find_inputs(inputs)
    check_inputs(files, columns, needs_reference=judged_by.needs_reference)
    settle_environment(allow_download=allow_download)
    encode = None
    if tokens:
        from localjudge.model import Model
        from localjudge.model.manifest import changes_since_verified

        found = Model.find(model, allow_download=allow_download)
        changes_since_verified(found)
        encode = found.prompts.encode
    # A terminal shows what it can safely; a pipe gets every byte.
    texts = sys.stdout if sys.stdout.isatty() else unfiltered(sys.stdout)
    failed = False
    for row in islice(read_rows(files, columns, max_row_bytes), limit):
        try:
            if isinstance(row, Failure):
                raise ValueError(row.error.removeprefix(f"{row.source}: "))
            text = judged_by.text(row)
            ids = encode(text) if encode else None
        except ValueError as error:
            failed = True
            print(f"{row.source}: {error}", file=sys.stderr)
            continue
        if as_json:
            print_json({"id": row.id, "text": text, "tokens": ids})
        else:
            print(f"--- {row.id} ({row.source})", file=sys.stderr)
            print(text, file=texts)
            if ids is not None:
                print(f"{len(ids)} tokens: {' '.join(map(str, ids))}")
    if failed:
        raise typer.Exit(FAILED_ROWS)


def repeat(
    run: RunFolder,
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="How many judgements, at most.")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the sample and its order.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Judge a sample of a run again, in another order and batch size, and count the scores that changed."""
    settle_environment()
    from localjudge.run.repeat import repeat as judge_again

    repetition = judge_again(run, sample, seed)
    if as_json:
        print_json(repetition.as_dict())
    else:
        print_table(repetition.table())
