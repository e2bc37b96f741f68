"""Commands for judging: `score` and `prompt`. They make a judge and a run from flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

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
    from localjudge.report.summary_tables import summary_tables
    from localjudge.runs.pipeline import score_run
    from localjudge.runs.shard import Shard

    config, cluster = judge.prepare("score", inputs)
    pairing = pairs.pairing(config.rubric.fields, orders, judge.seed)
    part = Shard.parse(shard, os.environ)
    progress = Progress()
    stop = StopSignal(progress.say)

    source = judge.source(inputs, config.rubric, pairing, limit, system_from, out)
    check_out(out)
    refuse_files_of_run(out, judge.files + pairs.files)
    result = score_run(
        config,
        source,
        out,
        shard=part,
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
    summary, cost, counted = result.summary, result.cost, result.statistics
    if result.planned:  # an empty shard has said so
        parts = [str(cost)] if cost else summary_tables(summary)
        print_table(printed(parts, result.notices))
    progress.notices(result.notices, in_table=True)
    progress.say(f"{summary.counted} · {out}")
    if counted.get("cached_prompt_tokens"):
        share = counted["cached_prompt_tokens"] / counted["prompt_tokens"]
        progress.say(f"{share:.0%} of the prompt tokens came from the prefix cache")
    for reason, count in summary.reasons.most_common(10):
        progress.warn(f"{count:,} failed: {reason}")
    if cost and not cost.fits_disk:
        progress.warn(f"{out}: not enough free disk space for this run")
    if result.noise_stopped:
        progress.say(
            f"stopped: the run is complete, but its noise was not measured; to measure it, run this again: "
            f"{typed_command()}",
            always=True,
        )
        raise typer.Exit(stop.exit_code)
    if summary.failed:
        raise typer.Exit(FAILED_ROWS)


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
    from localjudge.records import Failure
    from localjudge.rows.columns import CONVERSATIONS
    from localjudge.rows.conversation import NO_CONVERSATION
    from localjudge.rows.inputs import Inputs, find_inputs
    from localjudge.rows.row_limit import RowLimit

    judged_by = asked.load()
    settings = {each.name: getattr(asked, each.name) for each in fields(PromptSettings)}
    config = JudgeConfig.from_settings(model=asked.model, rubric=judged_by, **settings)
    named = rows.named(judged_by.fields)
    files = find_inputs(inputs)
    messages = Messages()
    checked = Inputs(files, named, judged_by.fields, max_row_bytes=rows.max_row_bytes)
    checked.check()
    if reading:
        from localjudge.report.reading_tables import reading_tables

        if as_json:
            for name, found_reading in checked.readings.items():
                print_json({"file": name, "reading": found_reading.model_dump(mode="json")})
        else:
            print_table(printed(reading_tables(checked)))
        return
    for line in filter(None, (checked.how, checked.left_out)):
        messages.say(line)
    if checked.has_hidden_turns and CONVERSATIONS.isdisjoint(judged_by.fields):
        messages.warn(f"the rubric {judged_by.name} {NO_CONVERSATION}")
    settle_environment(allow_download=asked.allow_download)
    cuts, judge = asked.on_overflow != "fail" or asked.max_result_tokens is not None, None
    if tokens or cuts:
        from localjudge.judge import Judge  # which imports the engines

        judge = Judge(config, allow_download=asked.allow_download)
    # A terminal gets filtered text; a pipe gets every byte.
    texts = sys.stdout if sys.stdout.isatty() else unfiltered(sys.stdout)
    system = judged_by.system
    found = iter(prompt_rows(lambda _: checked.rows(), judged_by.fields, limit=RowLimit(limit)))
    first = [*islice(found, 2)]
    alone = len(first) < 2 and not system
    heading: Callable[[str], None] = messages.say if alone else partial(print, file=texts)
    if system and not as_json:
        heading("--- system, before each row")
        print(system, file=texts)
    failed = False
    for row in chain(first, found):
        try:
            if isinstance(row, Failure):
                raise ValueError(row.error.removeprefix(f"{row.source}: "))
            shown = row
            if judge and cuts:
                task = judge.task_builder.task(row)
                if task.error is not None:
                    raise ValueError(task.error.removeprefix(f"{row.source}: "))
                shown = task.shown or row
            text = judged_by.text(shown)
            ids = judge.task_builder.encoded(shown) if judge and tokens else None
        except ValueError as error:
            failed = True
            messages.error(f"{row.source}: {error}")
            continue
        if as_json:
            print_json({"id": row.id, **({"system": system} if system else {}), "text": text, "tokens": ids})
        else:
            heading(printable(f"--- {row.id} ({row.source})"))
            print(text, file=texts)
            if ids is not None:
                print(f"{len(ids)} tokens: {' '.join(map(str, ids))}")
    if failed:
        raise typer.Exit(FAILED_ROWS)
