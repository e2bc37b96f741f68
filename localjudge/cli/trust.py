"""Commands that measure how reliable a judge is: `agree`, `rank`, `jury` and `calibrate`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from localjudge.cli.options import (
    AsJson,
    RunFolder,
    check_out_file,
    input_extras,
    print_json,
    print_table,
    with_options,
)
from localjudge.errors import UsageError
from localjudge.system.requirements import require

if TYPE_CHECKING:
    from localjudge.analysis.scores import Of, Scores

RunFolders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")]
LabelFiles = Annotated[
    list[str],
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Label files: records with id, or instruction and candidate, and a column for each aspect.",
    ),
]
SomeLabelFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Labels of a random sample of the rows, to estimate means of the human score.",
    ),
]
LabelColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="THEIRS=OURS",
        help="The aspect that a label column holds, or the share of a label: correct=grade=correct.",
    ),
]
MovedInputs = Annotated[
    list[str] | None,
    typer.Option("--inputs", metavar="FILE", help="The input files of the run, if they were moved."),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Apply the output of `calibrate`; stored scores do not change.",
    ),
]
AllowNoGain = Annotated[
    list[str] | None,
    typer.Option("--allow-no-gain", metavar="ASPECT", help="Calibrate this aspect although no gain is shown."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """The options of every command that computes statistics of runs."""

    allow_dry_run: Annotated[
        bool, typer.Option("--allow-dry-run", help="Accept a dry run, whose scores mean nothing.")
    ] = False
    resamples: Annotated[
        int, typer.Option(min=100, metavar="N", help="The number of resamples for the intervals.")
    ] = 1000
    seed: Annotated[int, typer.Option(metavar="S", help="The seed of the resampling.")] = 0
    as_json: AsJson = False

    def check(self, runs: Iterable[Path]) -> None:
        """Refuse dry runs, unless they are allowed."""
        from localjudge.runs.notices import refuse_dry_run
        from localjudge.runs.run_manifest import read_manifest

        for run in () if self.allow_dry_run else runs:
            refuse_dry_run(read_manifest(run), run)

    def print(self, document: dict[str, Any], table: object) -> None:
        """Print the result as JSON or as a table."""
        if self.as_json:
            print_json(document)
        else:
            print_table(table)


@with_options
def agree(
    run: RunFolder,
    labels: LabelFiles,
    *,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    calibration: CalibrationFile = None,
    allow_no_gain: AllowNoGain = None,
    statistics: StatisticsOptions,
) -> None:
    """Compare a run with labels: agreement, inter-annotator agreement, and baselines such as length only."""
    require("agree", "trust", *input_extras([*labels, *(inputs or ())]))
    from localjudge.analysis.agreement import agree as compare
    from localjudge.analysis.analysis_tables import agreement_tables
    from localjudge.analysis.human_labels import parse_mapping, read_labels
    from localjudge.analysis.measured_texts import measure
    from localjudge.analysis.scores import read_scores

    statistics.check([run])
    scores = read_scores([run])
    known = read_labels(labels, scores, parse_mapping(mapping or (), scores.targets), inputs or ())
    applied = _calibrated(scores, calibration, allow_no_gain, known.digests)
    found = compare(
        scores, known, measure(scores, inputs or ()), applied, statistics.resamples, statistics.seed
    )
    statistics.print(found.as_dict(), agreement_tables(found))


@with_options
def rank(
    runs: RunFolders,
    *,
    labels: SomeLabelFiles = None,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="expected|integer",
            help="Which scores to compare.  [default: expected, if the run has them]",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The aspect, or the share of a label such as grade=correct, that decides the order.",
        ),
    ] = None,
    calibration: CalibrationFile = None,
    allow_no_gain: AllowNoGain = None,
    statistics: StatisticsOptions,
) -> None:
    """Compare systems: means or strengths, pairs without significant difference, and the effect of length."""
    require("rank", "trust", *input_extras([*(labels or ()), *(inputs or ())]))
    statistics.check(runs)
    if _compare_responses(runs):
        given = {"--labels": labels, "--map": mapping, "--scores": scores, "--calibration": calibration}
        if surplus := [option for option, value in given.items() if value]:
            raise UsageError(f"{surplus[0]}: is for runs that judge one response; these compare two")
        _rank_pairs(runs, inputs or (), by, statistics)
        return
    from localjudge.analysis.analysis_tables import ranking_tables
    from localjudge.analysis.human_labels import parse_mapping, read_labels
    from localjudge.analysis.measured_texts import measure
    from localjudge.analysis.ranking import rank as compare
    from localjudge.analysis.scores import read_scores

    if scores not in (None, "expected", "integer"):
        raise UsageError(f"--scores {scores}: give expected or integer")
    judged = read_scores(runs)
    known = None
    if labels:
        known = read_labels(labels, judged, parse_mapping(mapping or (), judged.targets), inputs or ())
    measures = measure(judged, inputs or ())
    if calibration and scores == "integer":
        raise UsageError(
            "--scores integer: calibrated scores are not integers; give only one of --scores and --calibration"
        )
    judged = _calibrated(judged, calibration, allow_no_gain, known.digests if known else ()) or judged
    of = cast("Of | None", scores)
    found = compare(judged, measures, known, of, by, statistics.resamples, statistics.seed)
    statistics.print(found.as_dict(), ranking_tables(found))


def _compare_responses(runs: Sequence[Path]) -> bool:
    """Return whether the runs compare two responses.

    Raises:
        UsageError: some do, and some judge one response.
    """
    from localjudge.runs.run_manifest import read_manifest

    kinds = {run: read_manifest(run).rubric.compares for run in runs}
    if len(set(kinds.values())) > 1:
        one, two = (next(run for run, compares in kinds.items() if compares is kind) for kind in (False, True))
        raise UsageError(f"{two}: compares two responses, and {one} judges one; give runs of one kind")
    return any(kinds.values())


def _rank_pairs(
    runs: Sequence[Path], inputs: Sequence[str], by: str | None, statistics: StatisticsOptions
) -> None:
    from localjudge.analysis.preference_ranking import rank_pairs
    from localjudge.analysis.preference_tables import preference_tables
    from localjudge.analysis.run_preferences import read_preferences

    found = rank_pairs(read_preferences(runs, inputs), by, statistics.resamples, statistics.seed)
    statistics.print(found.as_dict(), preference_tables(found))


@with_options
def jury(
    runs: RunFolders,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write the jury's scores as a run: median and mean, or the most frequent label.",
        ),
    ] = None,
    splits: Annotated[
        int, typer.Option(min=0, metavar="N", help="The number of rows with the largest differences to list.")
    ] = 10,
    statistics: StatisticsOptions,
) -> None:
    """Compare judges, or samples of one judge: agreement, outlier, and their combined scores as a run."""
    require("jury", "trust")
    from localjudge.analysis.analysis_tables import jury_tables
    from localjudge.analysis.jury import compare_judges
    from localjudge.analysis.jury_run import write_jury

    statistics.check(runs)
    found = compare_judges(runs, splits, statistics.resamples, statistics.seed)
    statistics.print(found.as_dict(), jury_tables(found))
    if out is not None:
        summary = write_jury(runs, out)
        print(f"{summary.judged} judged, {summary.failed} failed · {out}", file=sys.stderr)


@with_options
def calibrate(
    run: RunFolder,
    labels: LabelFiles,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The calibration file to write.")],
    *,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    statistics: StatisticsOptions,
) -> None:
    """Fit a monotone map from the judge's scores to human scores; measure its gain on unseen instructions."""
    require("calibrate", "trust", *input_extras([*labels, *(inputs or ())]))
    check_out_file(out)
    from localjudge.analysis.analysis_tables import calibration_table
    from localjudge.analysis.calibration import fit
    from localjudge.analysis.human_labels import parse_mapping, read_labels
    from localjudge.analysis.scores import read_scores

    statistics.check([run])
    scores = read_scores([run])
    known = read_labels(labels, scores, parse_mapping(mapping or (), scores.targets), inputs or ())
    found = fit(scores, known, statistics.resamples, statistics.seed)
    found.save(out)
    statistics.print(found.model_dump(mode="json"), calibration_table(found))


def _calibrated(
    scores: Scores, file: Path | None, without_gain: list[str] | None, labels: tuple[str, ...]
) -> Scores | None:
    if file is None:
        return None
    from localjudge.analysis.calibration import Calibration

    found = Calibration.load(file)
    if set(found.labels) & set(labels):
        print(
            f"localjudge: --calibration {file} was fitted on these labels, so the agreement is too high; its "
            "gain on unseen instructions is in the file",
            file=sys.stderr,
        )
    return found.apply_to(scores, without_gain or ())
