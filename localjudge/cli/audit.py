"""The command `audit`: test the judge with the user's own rows, or judge rows of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localjudge.cli.judge_options import JudgeOptions, PairOptions
from localjudge.cli.options import (
    ANSWERS,
    ROWS,
    RUN,
    AsJson,
    Inputs,
    check_out,
    print_json,
    print_table,
    settle_environment,
    typed_command,
)
from localjudge.cli.statistics_options import AllTables
from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.quantities import as_number

if TYPE_CHECKING:
    from localjudge.judge import Judge
    from localjudge.rubrics.rubric import Rubric

BELOW_THRESHOLD = 3
"""Exit code of an audit with a check below its threshold."""


def audit(
    inputs: Inputs,
    out: Annotated[Path | None, Flag("The folder for the audit's runs.", "DIR", RUN)] = None,
    *,
    check: Annotated[
        Literal["repeat"] | None,
        Flag(
            "Judge a sample of the run INPUT again, in another order and batch size, and count the scores that "
            "changed.",
            "repeat",
        ),
    ] = None,
    sample: Annotated[int, Flag("The largest number of rows to sample.", "N", ROWS, least=1)] = 100,
    threshold: Annotated[
        list[str] | None,
        Flag(
            "Exit with 3 if a smaller share of this check held; all=SHARE sets it for all checks.", "NAME=SHARE"
        ),
    ] = None,
    seed: Annotated[int, Flag("The seed of the sample, its perturbations and the judge.", "S", ANSWERS)] = 0,
    pairs: PairOptions,
    judge: JudgeOptions,
    all_tables: AllTables = False,
    as_json: AsJson = False,
) -> None:
    """Audit the judge: change rows in ways with known effects, and count the scores that change as expected.

    With --check repeat, the settings are those of the run.
    """
    if check is not None:
        if len(inputs) != 1 or out or threshold or pairs != PairOptions() or judge != JudgeOptions(seed=seed):
            raise UsageError(
                "--check repeat: give one run directory as INPUT, and no other flags than --sample, --seed and "
                "--json; the settings of the judge are those of the run"
            )
        _repeat(Path(inputs[0]), sample, seed, as_json)
        return
    if out is None:
        raise UsageError("audit: give --out, the folder for the audit's runs")
    from localjudge.cli.printed_tables import printed_findings
    from localjudge.cli.progress import Progress
    from localjudge.report.tables.audit_tables import audit_findings
    from localjudge.runs import StopSignal
    from localjudge.studies.audit import read_audit
    from localjudge.studies.audit.audit_run import run_audit, sample_rows
    from localjudge.studies.audit.perturbations import perturbations_of

    config, cluster = judge.prepare("audit", inputs, "trust")
    if len(judge.adapter or ()) > 1:
        raise UsageError("audit: takes one --adapter; audit each adapter by itself")
    config.rubric.mode.require_whole_rows("audit")
    least = _thresholds(threshold or (), [each.name for each in perturbations_of(config.rubric)])
    orders = "one" if len(config.rubric.mode.responses) > 1 else "both"
    source = judge.source(inputs, config.rubric, pairs.pairing(config.rubric.fields, orders, seed))
    check_out(out)
    progress = Progress()
    for name in source.empty:
        progress.warn(f"{name}: holds no rows")
    with progress.step("sampling rows"):
        drawn = sample_rows(source.rows, sample, seed, config.rubric)
    stop = StopSignal(progress.say)

    def judge_by(other: Rubric) -> Judge:
        with progress.step("preparing the model", "bytes") as report:
            return judge.open_judge(config.replace(rubric=other), cluster, report)

    complete = run_audit(drawn, judge_by, config.rubric, out, seed, observer=progress, stopping=stop)
    if not complete:
        progress.say(f"stopped; to continue, run this again: {typed_command()}", always=True)
        raise typer.Exit(stop.exit_code)
    with progress.step("computing the results"):
        found = read_audit(out, drawn, seed, least)
    if as_json:
        print_json(found.model_dump(mode="json"), indent=2)
    else:
        print_table(printed_findings(audit_findings(found), all_tables))
    progress.notices(found.notices, in_table=True)
    for result in found.checks:
        if result.passed is False:
            progress.warn(
                f"below its threshold: {result.name} held for {result.held_text}, "
                f"threshold {result.threshold:.0%}"
            )
    if not found.passed:
        raise typer.Exit(BELOW_THRESHOLD)


def _repeat(run: Path, sample: int, seed: int, as_json: bool) -> None:
    """Judge a sample of a run again, and print how many scores changed."""
    settle_environment()
    from localjudge.cli.printed_tables import printed
    from localjudge.cli.progress import Progress
    from localjudge.report.tables.run_tables import repetition_table
    from localjudge.runs.repeat import repeat

    progress = Progress()
    repetition = repeat(run, sample, seed, progress.step)
    if as_json:
        print_json(repetition)
    else:
        print_table(printed([repetition_table(repetition)], repetition.notices))
    progress.notices(repetition.notices, in_table=True)


def _thresholds(options: list[str] | tuple[()], names: list[str]) -> dict[str, float]:
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
