"""The commands that find what a judge can be trusted with: `audit` and `escalate`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from localjudge.cli.console import print_json, print_table, printed_findings
from localjudge.cli.judge_options import PairOptions, ScoreOptions
from localjudge.cli.options import (
    ANSWERS,
    BELOW_THRESHOLD,
    ROWS,
    RUN,
    AsJson,
    Inputs,
    RunFolders,
    check_out,
    settle_environment,
    typed_command,
)
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import AllTables
from localjudge.errors import UsageError
from localjudge.report.study_options import LabelOptions
from localjudge.runs.run_files import refuse_files_of_run, refuse_inputs_inside
from localjudge.runs.stop_request import StopSignal
from localjudge.settings import Flag
from localjudge.system.durable import after_writing, write_text
from localjudge.system.quantities import as_number, counted, percent

if TYPE_CHECKING:
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.row_source import RowSource


def audit(
    inputs: Inputs,
    out: Annotated[Path | None, Flag("The folder for the audit's runs.", "DIR", RUN)] = None,
    *,
    check: Annotated[
        Literal["repeat", "options", "aspects"] | None,
        Flag(
            "repeat: judge a sample of the run INPUT again, in another order and batch size, and count the "
            "scores that changed. options, aspects: judge rows again with the values of each aspect, or the "
            "aspects, in another order in the prompt, and measure what changes.",
            "repeat|options|aspects",
        ),
    ] = None,
    sample: Annotated[int, Flag("The largest number of rows to sample.", "N", ROWS, least=1)] = 100,
    threshold: Annotated[
        list[str] | None,
        Flag(
            "Exit with 3 if a smaller share of this check held, or if the verdicts of a smaller share of rows "
            "stayed in this order; all=SHARE sets it for all.",
            "NAME=SHARE",
        ),
    ] = None,
    seed: Annotated[int, Flag("The seed of the sample, its perturbations and the judge.", "S", ANSWERS)] = 0,
    pairs: PairOptions,
    judge: ScoreOptions,
    all_tables: AllTables = False,
    as_json: AsJson = False,
) -> None:
    """Audit the judge: change rows in ways with known effects, and count the scores that change as expected.

    With --check repeat, the settings are those of the run; --check options and --check aspects measure what the
    order of the prompt's lists changes.
    """
    from localjudge.report.audit_document import audit_document
    from localjudge.report.audit_tables import audit_findings
    from localjudge.report.shares import share_in_words
    from localjudge.studies.audit import read_audit
    from localjudge.studies.audit.audit_run import run_audit, sample_rows
    from localjudge.studies.audit.perturbations import perturbations_of

    if check == "repeat":
        if len(inputs) != 1 or out or threshold or pairs != PairOptions() or judge != ScoreOptions(seed=seed):
            raise UsageError(
                "--check repeat: give one run directory as INPUT, and no other flags than --sample, --seed and "
                "--json; the settings of the judge are those of the run"
            )
        _repeat(Path(inputs[0]), sample, seed, as_json)
        return
    if out is None:
        raise UsageError("audit: give --out, the folder for the audit's runs")
    if check is not None:
        _audit_orders(
            inputs,
            out,
            check=check,
            sample=sample,
            thresholds=threshold or (),
            seed=seed,
            pairs=pairs,
            options=judge,
            all_tables=all_tables,
            as_json=as_json,
        )
        return

    config, cluster = judge.prepare("audit", inputs, "trust")
    config.rubric.mode.require_whole_rows("audit: its rubric")
    least = _thresholds(threshold or (), [each.name for each in perturbations_of(config.rubric)])
    progress = Progress()
    source = _rows_to_sample(
        inputs, config.rubric, out, options=judge, pairs=pairs, seed=seed, progress=progress
    )
    with progress.step("sampling rows"):
        drawn = sample_rows(source.rows, sample, seed, config.rubric)
    stop = StopSignal(progress.say)

    with progress.step("preparing the model", "bytes") as report:
        made = judge.open_judge(config, cluster, report)
    with made:
        complete = run_audit(drawn, made, out, seed, observer=progress, stopping=stop)
    if not complete:
        _end_of_stop(stop, progress)
    with progress.step("computing the results"):
        found = read_audit(out, drawn, seed, least)
    if as_json:
        print_json(audit_document(found), indent=2)
    else:
        print_table(printed_findings(audit_findings(found), all_tables))
    progress.notices(found.notices, in_table=True)
    for result in found.checks:
        if result.threshold is not None and not result.passed:
            progress.warn(
                f"below its threshold: {result.name} held for {share_in_words(result.share)}, "
                f"threshold {percent(result.threshold)}"
            )
    if not found.passed:
        raise typer.Exit(BELOW_THRESHOLD)


def _audit_orders(
    inputs: Sequence[str],
    out: Path,
    *,
    check: Literal["options", "aspects"],
    sample: int,
    thresholds: Sequence[str],
    seed: int,
    pairs: PairOptions,
    options: ScoreOptions,
    all_tables: bool,
    as_json: bool,
) -> None:
    """Judge a sample of rows in the rubric's own order and in others, and print what changes."""
    from localjudge.judge import Judge
    from localjudge.report.order_audit_document import order_audit_document
    from localjudge.report.order_tables import order_findings
    from localjudge.studies.audit.audit_run import drawn_rows
    from localjudge.studies.audit.order_effects import read_orders
    from localjudge.studies.audit.order_runs import other_orders, run_orders

    config, cluster = options.prepare("audit", inputs, "trust")
    mode = config.rubric.mode
    mode.require_whole_rows("audit: its rubric")
    orders = other_orders(config.rubric, check, seed)
    least = _thresholds(thresholds, [order.name for order in orders])
    progress = Progress()
    source = _rows_to_sample(
        inputs, config.rubric, out, options=options, pairs=pairs, seed=seed, progress=progress
    )
    with progress.step("sampling rows"):
        rows = drawn_rows(source.rows, sample, seed=seed, rubric=config.rubric)
    names = ", ".join(order.name for order in orders)
    progress.say(
        f"{len(orders) + 2} runs of {counted(len(rows), mode.item)} each: the rubric's own order, the same "
        f"again, {names}; the model is loaded once for the first two, and for each further run"
    )
    stop = StopSignal(progress.say)

    def open_judge(rubric: Rubric) -> Judge:
        with progress.step("preparing the model", "bytes") as report:
            return options.open_judge(config.replace(rubric=rubric), cluster, report)

    complete = run_orders(
        rows, config.rubric, orders, open_judge, out, seed=seed, observer=progress, stopping=stop
    )
    if not complete:
        _end_of_stop(stop, progress)
    with progress.step("computing the results"):
        found = read_orders(out, rows, orders, check=check, seed=seed, thresholds=least)
    if as_json:
        print_json(order_audit_document(found), indent=2)
    else:
        print_table(printed_findings(order_findings(found), all_tables))
    progress.notices(found.notices, in_table=True)
    for order in found.orders:
        if order.threshold is None:
            continue
        for aspect, share in order.below.items():
            progress.warn(
                f"below its threshold: {order.name}: the verdict on {aspect} stayed in "
                f"{round(share * found.rows):,} of {counted(found.rows, mode.item)} ({percent(share)}), "
                f"threshold {percent(order.threshold)}"
            )
    if not found.passed:
        raise typer.Exit(BELOW_THRESHOLD)


def _rows_to_sample(
    inputs: Sequence[str],
    rubric: Rubric,
    out: Path,
    *,
    options: ScoreOptions,
    pairs: PairOptions,
    seed: int,
    progress: Progress,
) -> RowSource:
    """Return the rows of the input, pairs in one order, after checks of `out`."""
    orders = "both" if rubric.mode.pairs is None else "one"
    source = options.source(inputs, rubric, pairs.pairing(rubric.fields, orders, seed))
    check_out(out)
    refuse_inputs_inside(out, source.files)
    refuse_files_of_run(out, options.files + pairs.files)
    for name in source.empty:
        progress.warn(f"{name}: holds no rows")
    return source


def _end_of_stop(stop: StopSignal, progress: Progress) -> NoReturn:
    """Say how a stopped audit is continued, and end the program."""
    progress.say(f"stopped; to continue, run this again: {typed_command()}", always=True)
    raise typer.Exit(stop.exit_code)


def _repeat(run: Path, sample: int, seed: int, as_json: bool) -> None:
    """Judge a sample of a run again, and print how many values changed and how far the scores moved."""
    from localjudge.report.repetition_document import repetition_document
    from localjudge.report.repetition_tables import repetition_findings
    from localjudge.runs.repeat import repeat
    from localjudge.runs.run_manifest import read_manifest

    settle_environment()

    progress = Progress()
    repetition = repeat(run, sample, seed, progress.step)
    if as_json:
        print_json(repetition_document(repetition))
    else:
        mode = read_manifest(run).rubric.mode
        print_table(printed_findings(repetition_findings(repetition.noise, mode, repetition.notices)))
    progress.notices(repetition.notices, in_table=True)


def _thresholds(options: Sequence[str], names: list[str]) -> dict[str, float]:
    """Parse `["plea=0.9"]` as `{"plea": 0.9}`; `all` sets every check without a threshold of its own."""
    named: dict[str, float] = {}
    for option in options:
        name, equals, text = option.partition("=")
        share = as_number(text)
        if not equals or name not in (*names, "all") or share is None or not 0 <= share <= 1:
            raise UsageError(
                f"--threshold {option}: write NAME=SHARE, with a share from 0 to 1; the names are all, "
                f"{', '.join(names)}"
            )
        named[name] = share
    everywhere = named.pop("all", None)
    return {name: everywhere for name in names if everywhere is not None} | named


def escalate(
    runs: RunFolders,
    *,
    agreement: Annotated[
        float,
        Flag("The share of the rows it keeps that must agree with people.", "RATE", least=0.5, most=0.99),
    ] = 0.9,
    by: Annotated[str | None, Flag("The aspect.  [default: the rubric's only one]", "ASPECT")] = None,
    within: Annotated[int, Flag("Scores that differ by N or less agree.", "N", least=0)] = 0,
    to: Annotated[
        str | None,
        Flag(
            "The large judge: a model, or its run on the rows that are passed on. Without it, only "
            "what would be kept is printed.",
            "MODEL|DIR",
        ),
    ] = None,
    rest: Annotated[
        Path | None, Flag("Write the rows that are passed on as JSONL, to judge them with score.", "FILE")
    ] = None,
    out: Annotated[Path | None, Flag("The run directory to write.", "DIR")] = None,
    people: LabelOptions,
) -> None:
    """Keep a small judge's verdicts where they agree with people at a rate; give the rest to a large judge."""
    import numpy as np
    from numpy.typing import NDArray

    from localjudge.matching.labels import label_targets, parse_mapping
    from localjudge.report.selection_lines import selection_line
    from localjudge.rows.row import record_of
    from localjudge.runs.notices import refuse_dry_run
    from localjudge.runs.pipeline import score_run
    from localjudge.runs.reread_texts import rows_found
    from localjudge.runs.row_source import RowSource
    from localjudge.runs.run_files import MANIFEST
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.studies.escalated_run import write_escalated
    from localjudge.studies.escalation import JudgeVerdicts, Selection, select

    people.require_labels()
    people.require("escalate")
    run, *others = runs
    if others:
        raise UsageError("escalate: takes one run; merge shards first: localjudge merge DIR... --out DIR")
    if (to is None) != (out is None):
        raise UsageError("--to and --out: give both, or none of them to see the plan")
    if out is not None:
        check_out(out)
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"--out {out}: is not empty; choose another folder")
    if rest is not None:
        _check_rest(rest)

    progress = Progress()
    manifest = read_manifest(run)
    refuse_dry_run(manifest, run)
    aspects = [*manifest.rubric.aspects]
    if by is None and len(aspects) > 1:
        raise UsageError(f"--by is missing: name the aspect that decides, one of {', '.join(aspects)}")
    verdicts = JudgeVerdicts.read(run, by or aspects[0], within)
    manifest = verdicts.manifest
    ours = parse_mapping(people.mapping or (), label_targets(manifest.rubric))

    def selected(judged: JudgeVerdicts, among: NDArray[np.bool_] | None = None) -> Selection:
        known = judged.labels(people.labels or (), ours, people.moved)
        found = select(judged, known, agreement, among)
        progress.say(selection_line(found, agreement), always=True)
        return found

    small = selected(verdicts)
    item = manifest.rubric.mode.item
    rows = [row for _, row in rows_found(manifest, small.passed_on, people.moved)]
    verdicts.state.refuse_change()
    passed = counted(len(small.passed_on), item)
    progress.say(f"passed on: {passed}, {len(rows):,} of them found in the inputs")
    if rest is not None:
        records = [record_of(row, manifest.rubric.fields) for row in rows]
        _write_rest(rest, "".join(json.dumps(record) + "\n" for record in records))
    if to is None or out is None:
        return
    if not small.passed_on:
        progress.say(f"no {item} is passed on, so no large judge is needed", always=True)
        large = None
    else:
        folder = Path(to)
        if not (folder / MANIFEST).is_file():
            small.check_labels(agreement)
            if not rows:
                raise UsageError(
                    f"{run}: {passed} passed on, none found in its inputs; give them with --inputs"
                )
            folder = out.with_name(f"{out.name}-large")
            config = manifest.config_of(manifest.last_start)
            if config is None:
                raise UsageError(f"{run}: was not judged by localjudge; judge the rows of --rest with score")
            config = config.replace(model=to, engine="auto", engine_args={})
            start = manifest.last_start
            pairs = None if start.pairing is None else start.pairing.model_copy(update={"forms": False})
            prompts = rows if pairs is None else pairs.rows(rows)
            source = RowSource(
                rows=prompts,
                inputs=start.inputs,
                columns=start.columns,
                max_row_bytes=start.max_row_bytes,
                pairing=start.pairing,
                readings=start.reading_of(start.inputs),
            )
            score_run(config, source, folder, observer=progress)
        second = JudgeVerdicts.read(folder, verdicts.aspect, within)
        large = selected(second, small.has_passed_on(second.rows))
    summary = write_escalated(small, large, out)
    with after_writing(out):
        for reason, count in summary.reasons.most_common(10):
            progress.say(f"{count:,} {reason}")
        progress.say(f"{summary.judged:,} kept, {summary.failed:,} for people · {out}")


def _check_rest(rest: Path) -> None:
    """Check that the file of the rows that are passed on can be written, or is a file of an earlier start.

    Raises:
        UsageError: it is something else than a file, or its folder does not exist or cannot be written.
    """
    if os.path.lexists(rest) and not os.path.isfile(rest):
        raise UsageError(f"--rest {rest}: exists and is not a file; choose another file")
    if not os.access(rest.parent, os.W_OK):
        why = "cannot be written" if rest.parent.is_dir() else "does not exist"
        raise UsageError(f"--rest {rest}: its folder {why}; choose another one")


def _write_rest(rest: Path, text: str) -> None:
    """Write the rows that are passed on, unless an earlier start of the same command has written them.

    Raises:
        UsageError: the file has something else.
    """
    if not os.path.exists(rest):
        write_text(rest, text)
    elif rest.read_bytes() != text.encode():
        raise UsageError(f"--rest {rest}: exists; choose another file, or remove it")
