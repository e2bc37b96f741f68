"""The command line: flags become a judge and a run, and nothing else happens here."""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from localjudge.errors import LocalJudgeError, UsageError

FAILED_ROWS = 3
"""The exit code of a run that finished with failures."""

app = typer.Typer(
    help="An LLM judge that never leaves the machine: a rationale and scores for every response, every time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files or globs (.jsonl, .jsonl.gz, .csv, .tsv, .parquet), '-' for JSONL on stdin, or 'examples'.",
        show_default=False,
    ),
]
RubricName = Annotated[str, typer.Option("--rubric", metavar="NAME|FILE", help="The rubric to judge by.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH_OR_ID",
        help="A model directory or the id of a model in the local cache.  [default: the small bundled one]",
        show_default=False,
    ),
]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option(
        "--column", metavar="FIELD=COLUMN", help="The column of a field, where it has a name of its own."
    ),
]
EngineInt = Annotated[int | None, typer.Option(metavar="N", help="As vLLM's.", show_default=False)]
EngineFloat = Annotated[float | None, typer.Option(metavar="SHARE", help="As vLLM's.", show_default=False)]
EngineText = Annotated[str | None, typer.Option(metavar="NAME", help="As vLLM's.", show_default=False)]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N rows.", show_default=False)
]


@app.command()
def score(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run directory.", show_default=False)],
    model: ModelName = None,
    engine: Annotated[
        str, typer.Option(metavar="auto|vllm|transformers", help="What runs the model.")
    ] = "auto",
    rubric: RubricName = "just-eval",
    column: ColumnNames = None,
    limit: Limit = None,
    max_rationale_tokens: Annotated[
        int, typer.Option(metavar="N", help="The most tokens of a rationale.")
    ] = 256,
    temperature: Annotated[float, typer.Option(metavar="T", help="0 takes the likeliest token.")] = 0.0,
    top_p: Annotated[
        float, typer.Option(metavar="P", help="The share of the probability to sample from.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the sampling.")] = 0,
    thinking_budget: Annotated[
        int | None,
        typer.Option(metavar="N", help="Let a reasoning model think for up to N tokens.", show_default=False),
    ] = None,
    keep_thoughts: Annotated[bool, typer.Option("--keep-thoughts", help="Keep what it thought.")] = False,
    on_overflow: Annotated[
        str,
        typer.Option(
            metavar="fail|truncate-candidate", help="What becomes of a row longer than the model's context."
        ),
    ] = "fail",
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Ask vLLM for results that do not depend on the batch."),
    ] = False,
    tensor_parallel_size: EngineInt = None,
    max_model_len: EngineInt = None,
    gpu_memory_utilization: EngineFloat = None,
    dtype: EngineText = None,
    quantization: EngineText = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other option of the engine's own, such as batch_size=8."),
    ] = None,
) -> None:
    """Judge every row and write a run directory. The same command again continues a run."""
    from localjudge.judge import Judge
    from localjudge.model import BUNDLED_NOTICE
    from localjudge.plan import Plan
    from localjudge.progress import Progress
    from localjudge.rows import find_inputs, parse_columns, read_rows
    from localjudge.run import Run

    columns = parse_columns(column or ())
    files = find_inputs(inputs)
    _settle_environment(deterministic)
    own_options = {
        "tensor_parallel_size": tensor_parallel_size,
        "max_model_len": max_model_len,
        "gpu_memory_utilization": gpu_memory_utilization,
        "dtype": dtype,
        "quantization": quantization,
    }
    judge = Judge(
        model,
        rubric=rubric,
        engine=engine,
        max_rationale_tokens=max_rationale_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        thinking_budget=thinking_budget,
        keep_thoughts=keep_thoughts,
        on_overflow=on_overflow,
        engine_args={name: str(value) for name, value in own_options.items() if value is not None}
        | _assignments(engine_arg or ()),
    )
    progress = Progress()
    progress.say(f"model {judge.model.name} · rubric {judge.rubric.name} · {len(files)} input(s) → {out}")
    if judge.model.is_bundled:
        progress.warn(BUNDLED_NOTICE)
    with Plan(judge, islice(read_rows(files, columns), limit)) as plan:
        if not plan.rows:
            raise UsageError(f"{', '.join(inputs)}: holds no rows")
        if plan.too_long:
            what = "fail" if on_overflow == "fail" else "lose the end of their candidate"
            progress.warn(f"{plan.too_long} of {plan.rows} rows do not fit the model's context; they {what}")
        judge.expect(plan.longest, out / "engine.log")
        with Run(out, judge, files, columns) as run:
            progress.say(judge.engine.headline())
            if deterministic and not judge.engine.describe().get("batch_invariant"):
                progress.warn("--deterministic: not in force, this engine or hardware has no such execution")
            if run.already_done:
                progress.say(f"continuing: {run.already_done} rows are done already")
            with progress.counting(plan.rows - run.already_done):
                summary = run.score(plan, progress.add)
    print_table(summary.table())
    progress.say(f"{summary.judged} judged, {summary.failed} failed · {out}")
    counted = judge.engine.statistics()
    if counted.get("cached_prompt_tokens"):
        share = counted["cached_prompt_tokens"] / counted["prompt_tokens"]
        progress.say(f"{share:.0%} of the prompt tokens came from the prefix cache")
    for reason, count in summary.reasons.most_common(10):
        progress.warn(f"{count} failed: {reason}")
    if summary.failed:
        raise typer.Exit(FAILED_ROWS)


@app.command()
def prompt(
    inputs: Inputs,
    rubric: RubricName = "just-eval",
    column: ColumnNames = None,
    limit: Limit = None,
    model: ModelName = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="With the token ids that the engine gets.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line a row: id, text, tokens.")] = False,
) -> None:
    """Print exactly what the judge will be sent."""
    from localjudge.records import Failure
    from localjudge.rows import find_inputs, parse_columns, read_rows
    from localjudge.rubric import Rubric
    from localjudge.summary import printable

    judged_by = Rubric.load(rubric)
    _settle_environment()
    encode = None
    if tokens:
        from localjudge.model import Model

        encode = Model.find(model).prompts.encode
    failed = False
    for row in islice(read_rows(find_inputs(inputs), parse_columns(column or ())), limit):
        try:
            if isinstance(row, Failure):
                raise ValueError(row.error.removeprefix(f"{row.source}: "))
            text = judged_by.text(row)
            ids = encode(text) if encode else None
        except ValueError as error:
            failed = True
            typer.echo(printable(f"{row.source}: {error}"), err=True)
            continue
        if as_json:
            typer.echo(json.dumps({"id": row.id, "text": text, "tokens": ids}, ensure_ascii=False))
        else:
            typer.echo(text)
            if ids is not None:
                typer.echo(f"{len(ids)} tokens: {' '.join(map(str, ids))}")
    if failed:
        raise typer.Exit(FAILED_ROWS)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.", show_default=False)],
    row_id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Show the judgement of this row.")
    ] = None,
) -> None:
    """Show a run: a table of its systems, or single judgements by their id."""
    from localjudge.progress import judgement_text
    from localjudge.rubric import Rubric
    from localjudge.run import read_lines, read_manifest
    from localjudge.summary import Summary, printable

    aspects = Rubric.model_validate(read_manifest(run)["rubric"]).aspects
    if not row_id:
        summary = Summary(aspects)
        for line in read_lines(run):
            summary.add(line)
        print_table(summary.table())
        for reason, count in summary.reasons.most_common(10):
            typer.echo(printable(f"{count} failed: {reason}"))
        return
    wanted = set(row_id)
    found = set()
    for line in read_lines(run):
        if line["id"] in wanted:
            found.add(line["id"])
            typer.echo(judgement_text(line, aspects))
    if missing := wanted - found:
        raise UsageError(f"{run}: no row with the id {', '.join(sorted(missing))}")


@app.command()
def repeat(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.", show_default=False)],
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="How many judgements, at most.")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the sample and its order.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The counts as JSON.")] = False,
) -> None:
    """Judge a sample of a run again, in another order and batch size, and count the scores that changed."""
    _settle_environment()
    from localjudge.repeat import repeat as judge_again

    repetition = judge_again(run, sample, seed)
    if as_json:
        typer.echo(json.dumps(repetition.as_dict()))
    else:
        print_table(repetition.table())


def main() -> None:
    """The program `localjudge`: a mistake ends with one line and an exit code, not with a traceback."""
    try:
        app()
    except LocalJudgeError as error:
        typer.echo(f"localjudge: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("localjudge: stopped; the same command continues", err=True)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a folder taken away
        typer.echo(f"localjudge: {error}; the same command continues", err=True)
        sys.exit(1)


def print_table(table: object) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table)


def _assignments(options: list[str] | tuple[()]) -> dict[str, str]:
    assigned = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError(f"--engine-arg {option}: write KEY=VALUE")
        assigned[key] = value
    return assigned


def _settle_environment(deterministic: bool = False) -> None:
    """No network and no chatter from the libraries below, unless the user has set it otherwise."""
    settings = {
        # Threads that spin while they wait make a run on a busy machine ten times slower.
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if deterministic:
        settings["VLLM_BATCH_INVARIANT"] = "1"
    for name, value in settings.items():
        os.environ.setdefault(name, value)
