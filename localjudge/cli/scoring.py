"""Commands for judging: `score` and `prompt`. They make a judge and a run from flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.console import print_json, print_table, printed
from localjudge.cli.judge_options import PairOptions, PromptOptions, RowOptions, ScoreOptions
from localjudge.cli.messages import Messages
from localjudge.cli.options import (
    FAILED_ROWS,
    PAIRS,
    ROWS,
    RUN,
    Inputs,
    Limit,
    check_out,
    settle_environment,
    typed_command,
)
from localjudge.cli.progress import Progress
from localjudge.runs.run_files import refuse_files_of_run
from localjudge.runs.stop_request import StopSignal
from localjudge.settings import Flag, PromptSettings
from localjudge.system.terminal import printable, unfiltered

if TYPE_CHECKING:
    from localjudge.judge import Judge
    from localjudge.records import Failure, Row
    from localjudge.rows.inputs import Inputs as ReadInputs
    from localjudge.runs.pipeline import RunResult

Orders = Annotated[str, Flag("Judge each pair in its own order only, or in both orders.", "one|both", PAIRS)]


def score(
    inputs: Inputs,
    out: Annotated[Path, Flag("The run directory.", "DIR", RUN)],
    *,
    judge: ScoreOptions,
    system_from: Annotated[
        str | None, Flag("Use each file's name as the system of its rows.", "filename", ROWS)
    ] = None,
    pairs: PairOptions,
    orders: Orders = "both",
    limit: Limit = None,
    shard: Annotated[
        str | None, Flag("Judge only part I of N; 'slurm' takes both from the array task.", "I/N", RUN)
    ] = None,
    retry_failed: Annotated[
        bool, Flag("Judge again the rows that failed in an earlier start.", heading=RUN)
    ] = False,
    noise_rows: Annotated[
        int | None,
        Flag(
            "When all rows are done, judge N of them again in other batches, and say how far scores move.  "
            "[default: 2 % of the rows, at most 200, from 800 rows on; 0 on a server]",
            "N",
            RUN,
            least=0,
        ),
    ] = None,
) -> None:
    """Judge every row and write a run directory. To continue a stopped run, run the same command again."""
    from localjudge.runs.pipeline import score_run
    from localjudge.runs.shard import Shard

    config, cluster = judge.prepare("score", inputs)
    pairing = pairs.pairing(config.rubric.fields, orders, seed=judge.seed)
    parsed_shard = Shard.parse(shard, os.environ)
    progress = Progress()
    stop = StopSignal(progress.say)

    source = judge.source(inputs, config.rubric, pairing=pairing, limit=limit, system_from=system_from, out=out)
    check_out(out)
    refuse_files_of_run(out, judge.files + pairs.files)
    result = score_run(
        config,
        source,
        out,
        shard=parsed_shard,
        retry_failed=retry_failed,
        cluster=cluster,
        allow_changed_model=judge.allow_changed_model,
        allow_download=judge.allow_download,
        noise_rows=noise_rows,
        observer=progress,
        stopping=stop,
    )
    if not result.complete:
        progress.say(
            f"stopped with {result.done:,} of {result.planned:,} rows done; "
            f"to continue, run this again: {typed_command()}",
            always=True,
        )
        raise typer.Exit(stop.exit_code)
    _print_result(result, out, progress=progress)
    if result.noise_stopped:
        progress.say(
            f"stopped: the run is complete, but its noise was not measured; to measure it, run this again: "
            f"{typed_command()}",
            always=True,
        )
        raise typer.Exit(stop.exit_code)
    if result.summary.failed:
        raise typer.Exit(FAILED_ROWS)


def _print_result(result: RunResult, out: Path, *, progress: Progress) -> None:
    """Print the summary of a run that has ended, or the costs of a dry run, and the most frequent failures."""
    from localjudge.report.summary_tables import summary_tables

    summary = result.summary
    cost = result.cost
    if result.planned:  # an empty shard has said so
        parts = [str(cost)] if cost else summary_tables(summary)
        print_table(printed(parts, result.notices))
    progress.notices(result.notices, in_table=True)
    progress.say(f"{summary.counted} · {out}")
    cached_tokens = result.statistics.get("cached_prompt_tokens")
    if cached_tokens:
        share = cached_tokens / result.statistics["prompt_tokens"]
        progress.say(f"{share:.0%} of the prompt tokens came from the prefix cache")
    for reason, count in summary.reasons.most_common(10):
        progress.warn(f"{count:,} failed: {reason}")
    if cost and not cost.fits_disk:
        progress.warn(f"{out}: not enough free disk space for this run")


def prompt(
    inputs: Inputs,
    rows: RowOptions,
    asked: PromptOptions,
    limit: Limit = None,
    reading: Annotated[
        bool, Flag("Print how the files are read instead: the column of each field, its kind, an example.")
    ] = False,
    tokens: Annotated[bool, Flag("Print the token ids for the engine, too.")] = False,
    as_json: Annotated[
        bool, Flag("Print one JSON line per row: id, system prompt (if any), text, tokens.", name="--json")
    ] = False,
) -> None:
    """Print the exact prompts for the judge.

    With --max-result-tokens or --on-overflow, rows are cut as score cuts them. A line with the id stands before
    each of several prompts; one prompt alone is printed byte for byte, and --json has the exact text of each.
    """
    from localjudge.config import JudgeConfig
    from localjudge.modes import prompt_rows
    from localjudge.rows.columns import CONVERSATIONS
    from localjudge.rows.conversation import NO_CONVERSATION
    from localjudge.rows.inputs import Inputs, find_inputs
    from localjudge.rows.row_limit import RowLimit

    rubric = asked.load()
    settings = {setting.name: getattr(asked, setting.name) for setting in fields(PromptSettings)}
    config = JudgeConfig.from_settings(model=asked.model, rubric=rubric, **settings)
    columns = rows.named(rubric.fields)
    files = find_inputs(inputs)
    messages = Messages()
    checked_inputs = Inputs(files, columns, used=rubric.fields, max_row_bytes=rows.max_row_bytes)
    checked_inputs.check()
    if reading:
        _print_readings(checked_inputs, as_json=as_json)
        return
    for line in (checked_inputs.how, checked_inputs.left_out):
        if line:
            messages.say(line)
    if checked_inputs.has_hidden_turns and CONVERSATIONS.isdisjoint(rubric.fields):
        messages.warn(f"the rubric {rubric.name} {NO_CONVERSATION}")
    settle_environment(allow_download=asked.allow_download)
    cuts_rows = asked.on_overflow != "fail" or asked.max_result_tokens is not None
    judge = None
    if tokens or cuts_rows:
        from localjudge.judge import Judge  # which imports the engines

        judge = Judge(config, allow_download=asked.allow_download)
    # A terminal gets filtered text; a pipe gets every byte.
    texts_file = sys.stdout if sys.stdout.isatty() else unfiltered(sys.stdout)
    rows_of_prompts = iter(prompt_rows(lambda _: checked_inputs.rows(), rubric.fields, limit=RowLimit(limit)))
    first_rows = list(islice(rows_of_prompts, 2))
    is_alone = len(first_rows) < 2 and not rubric.system
    print_heading: Callable[[str], None] = messages.say if is_alone else partial(print, file=texts_file)
    if rubric.system and not as_json:
        print_heading("--- system, before each row")
        print(rubric.system, file=texts_file)
    has_failed = False
    for row in chain(first_rows, rows_of_prompts):
        try:
            shown_row = _shown_row(row, judge if cuts_rows else None)
            text = rubric.text(shown_row)
            token_ids = None
            if judge is not None and tokens:
                token_ids = judge.task_builder.encoded(shown_row)
        except ValueError as error:
            has_failed = True
            messages.error(f"{row.source}: {error}")
            continue
        if as_json:
            document: dict[str, object] = {"id": row.id}
            if rubric.system:
                document["system"] = rubric.system
            print_json(document | {"text": text, "tokens": token_ids})
            continue
        print_heading(printable(f"--- {row.id} ({row.source})"))
        print(text, file=texts_file)
        if token_ids is not None:
            print(f"{len(token_ids)} tokens: {' '.join(map(str, token_ids))}")
    if has_failed:
        raise typer.Exit(FAILED_ROWS)


def _print_readings(inputs: ReadInputs, *, as_json: bool) -> None:
    """Print how the files are read."""
    from localjudge.report.reading_tables import reading_tables

    if not as_json:
        print_table(printed(reading_tables(inputs)))
        return
    for name, reading in inputs.readings.items():
        print_json({"file": name, "reading": reading.model_dump(mode="json")})


def _shown_row(row: Row | Failure, cutting_judge: Judge | None) -> Row:
    """Return the row that a prompt shows: cut to the limits of a judge, if rows are cut.

    Raises:
        ValueError: it is a failure, or cannot be judged; the message has the reason without its source.
    """
    from localjudge.records import Failure

    if isinstance(row, Failure):
        raise ValueError(row.error.removeprefix(f"{row.source}: "))
    if cutting_judge is None:
        return row
    task = cutting_judge.task_builder.task(row)
    if task.error is not None:
        raise ValueError(task.error.removeprefix(f"{row.source}: "))
    return task.shown or row
