"""The command `audit`, which measures what changes the scores of a judge."""

from __future__ import annotations

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
    check_out,
    settle_environment,
    typed_command,
)
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import AllTables
from localjudge.errors import UsageError
from localjudge.runs.run_files import refuse_files_of_run, refuse_inputs_inside
from localjudge.runs.stop_request import StopSignal
from localjudge.settings import Flag
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
        has_other_flags = out or threshold or pairs != PairOptions() or judge != ScoreOptions(seed=seed)
        if len(inputs) != 1 or has_other_flags:
            raise UsageError(
                "--check repeat: give one run directory as INPUT, and no other flags than --sample, --seed and "
                "--json; the settings of the judge are those of the run"
            )
        _repeat(Path(inputs[0]), sample, seed=seed, as_json=as_json)
        return
    if out is None:
        raise UsageError("audit: give --out, the folder for the audit's runs")
    if check is not None:
        _audit_orders(
            inputs,
            out,
            check=check,
            sample=sample,
            threshold=threshold or (),
            seed=seed,
            pairs=pairs,
            options=judge,
            all_tables=all_tables,
            as_json=as_json,
        )
        return

    config, cluster = judge.prepare("audit", inputs, "trust")
    config.rubric.mode.require_whole_rows("audit: its rubric")
    check_names = [perturbation.name for perturbation in perturbations_of(config.rubric)]
    thresholds = _thresholds(threshold or (), check_names)
    progress = Progress()
    source = _rows_to_sample(
        inputs, config.rubric, out, options=judge, pairs=pairs, seed=seed, progress=progress
    )
    with progress.step("sampling rows"):
        drawn = sample_rows(source.rows, sample, seed=seed, rubric=config.rubric)
    stop = StopSignal(progress.say)

    with progress.step("preparing the model", "bytes") as report:
        opened_judge = judge.open_judge(config, cluster, report=report)
    with opened_judge:
        is_complete = run_audit(drawn, opened_judge, out=out, seed=seed, observer=progress, stopping=stop)
    if not is_complete:
        _end_of_stop(stop, progress)
    with progress.step("computing the results"):
        results = read_audit(out, drawn, seed=seed, thresholds=thresholds)
    if as_json:
        print_json(audit_document(results), indent=2)
    else:
        print_table(printed_findings(audit_findings(results), all_tables=all_tables))
    progress.notices(results.notices, in_table=True)
    for result in results.checks:
        if result.threshold is not None and not result.passed:
            progress.warn(
                f"below its threshold: {result.name} held for {share_in_words(result.share)}, "
                f"threshold {percent(result.threshold)}"
            )
    if not results.passed:
        raise typer.Exit(BELOW_THRESHOLD)


def _audit_orders(
    inputs: Sequence[str],
    out: Path,
    *,
    check: Literal["options", "aspects"],
    sample: int,
    threshold: Sequence[str],
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
    orders = other_orders(config.rubric, check, seed=seed)
    order_names = [order.name for order in orders]
    thresholds = _thresholds(threshold, order_names)
    progress = Progress()
    source = _rows_to_sample(
        inputs, config.rubric, out, options=options, pairs=pairs, seed=seed, progress=progress
    )
    with progress.step("sampling rows"):
        rows = drawn_rows(source.rows, sample, seed=seed, rubric=config.rubric)
    progress.say(
        f"{len(orders) + 2} runs of {counted(len(rows), mode.item)} each: the rubric's own order, the same "
        f"again, {', '.join(order_names)}; the model is loaded once for the first two, and for each further run"
    )
    stop = StopSignal(progress.say)

    def open_judge(rubric: Rubric) -> Judge:
        with progress.step("preparing the model", "bytes") as report:
            return options.open_judge(config.replace(rubric=rubric), cluster, report=report)

    is_complete = run_orders(
        rows,
        config.rubric,
        orders=orders,
        open_judge=open_judge,
        out=out,
        seed=seed,
        observer=progress,
        stopping=stop,
    )
    if not is_complete:
        _end_of_stop(stop, progress)
    with progress.step("computing the results"):
        results = read_orders(out, rows, orders=orders, check=check, seed=seed, thresholds=thresholds)
    if as_json:
        print_json(order_audit_document(results), indent=2)
    else:
        print_table(printed_findings(order_findings(results), all_tables=all_tables))
    progress.notices(results.notices, in_table=True)
    for order in results.orders:
        if order.threshold is None:
            continue
        for aspect, share in order.below.items():
            kept_rows = round(share * results.rows)
            progress.warn(
                f"below its threshold: {order.name}: the verdict on {aspect} stayed in "
                f"{kept_rows:,} of {counted(results.rows, mode.item)} ({percent(share)}), "
                f"threshold {percent(order.threshold)}"
            )
    if not results.passed:
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
    pairing = pairs.pairing(rubric.fields, orders, seed=seed)
    source = options.source(inputs, rubric, pairing=pairing)
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


def _repeat(run: Path, sample: int, *, seed: int, as_json: bool) -> None:
    """Judge a sample of a run again, and print how many values changed and how far the scores moved."""
    from localjudge.report.repetition_document import repetition_document
    from localjudge.report.repetition_tables import repetition_findings
    from localjudge.runs.repeat import repeat
    from localjudge.runs.run_manifest import read_manifest

    settle_environment()

    progress = Progress()
    repetition = repeat(run, sample, seed=seed, step=progress.step)
    if as_json:
        print_json(repetition_document(repetition))
    else:
        mode = read_manifest(run).rubric.mode
        findings = repetition_findings(repetition.noise, mode, notices=repetition.notices)
        print_table(printed_findings(findings, all_tables=False))
    progress.notices(repetition.notices, in_table=True)


def _thresholds(options: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Parse `["plea=0.9"]` as `{"plea": 0.9}`; `all` sets every check without a threshold of its own."""
    named: dict[str, float] = {}
    for option in options:
        name, _, text = option.partition("=")
        share = as_number(text)
        is_name = name in names or name == "all"
        if not is_name or share is None or not 0 <= share <= 1:
            raise UsageError(
                f"--threshold {option}: write NAME=SHARE, with a share from 0 to 1; the names are all, "
                f"{', '.join(names)}"
            )
        named[name] = share
    share_of_all = named.pop("all", None)
    if share_of_all is None:
        return named
    return dict.fromkeys(names, share_of_all) | named
