"""Commands that compare a judge with labels: `agree` and `calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.options import RunFolders, check_out_file, refuse_input_as_out
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import READING, AllTables, StatisticsOptions, Where, common_mode
from localjudge.report.study_options import LabelOptions
from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.studies.calibration import Calibration


def agree(
    runs: RunFolders,
    *,
    people: LabelOptions,
    where: Where = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare a run with labels: agreement, also within instructions, and baselines.

    Several runs, such as shards, are taken together; they must have one judge.
    """
    from localjudge.matching.judged_rows import JudgedPairs, read_judged
    from localjudge.matching.row_selection import RowSelection
    from localjudge.matching.scores import check_parts
    from localjudge.report.agreement_document import agreement_document, pair_agreement_document
    from localjudge.report.agreement_tables import agreement_findings
    from localjudge.report.pair_agreement_tables import pair_agreement_findings
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.agree import agree as agree_with_labels
    from localjudge.studies.pair_agreement import agree_on_pairs

    people.require("agree")
    statistics.check(runs)
    mode = common_mode(runs)
    if mode.pairs is None:  # labels of pairs can be in the inputs
        people.require_labels()

    progress = Progress()
    resamples, seed = statistics.draws
    with unchanged(runs):
        with progress.step(READING) as report:
            judged = read_judged(runs, report=report, criteria="split", where=RowSelection(where))
            check_parts(judged)
            labels = people.labels_of(judged, equal_chances=False)
        with progress.step(statistics.computing):
            if isinstance(judged, JudgedPairs):
                pair_agreement = agree_on_pairs(judged, labels, resamples=resamples, seed=seed)
                document = pair_agreement_document(pair_agreement)
                findings = pair_agreement_findings(pair_agreement)
            else:
                agreement = agree_with_labels(judged, labels, resamples=resamples, seed=seed)
                document = agreement_document(agreement)
                findings = agreement_findings(agreement)
    statistics.print(document, findings, all_tables=all_tables)


def calibrate(
    runs: RunFolders,
    out: Annotated[Path, Flag("The calibration file to write.", "FILE")],
    *,
    interval: Annotated[
        float | None,
        Flag(
            "Also fit intervals that hold one person's label of a response in this share of cases, such as "
            "0.9; show, export and report print them with --intervals.",
            "LEVEL",
            least=0.5,
            most=0.99,
        ),
    ] = None,
    people: LabelOptions,
    statistics: StatisticsOptions,
) -> None:
    """Fit a monotone map from the judge's scores to labels; measure its gain on unseen instructions."""
    from localjudge.matching.judged_rows import read_scores
    from localjudge.matching.scores import check_parts
    from localjudge.report.calibration_document import calibration_document
    from localjudge.report.calibration_tables import calibration_findings
    from localjudge.runs.run_manifest import inputs_of_runs
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.calibrate import fit

    people.require_labels()
    people.require("calibrate")
    check_out_file(out)
    statistics.check(runs)
    refuse_input_as_out(out, people.files + inputs_of_runs(runs))
    progress = Progress()
    resamples, seed = statistics.draws
    with unchanged(runs):
        with progress.step(READING) as report:
            scores = read_scores(runs, report=report)
            check_parts(scores)
            labels = people.labels_of(scores, equal_chances=False)
        with progress.step(statistics.computing):
            calibration = fit(scores, labels, resamples=resamples, seed=seed, level=interval)
    if not calibration.has_gain:
        progress.warn(f"{out}: {_why_no_map(calibration)}", always=True)
    calibration.save(out)
    document = calibration_document(calibration, labels.notes)
    statistics.print(document, calibration_findings(calibration, labels.notes), all_tables=True)


def _why_no_map(calibration: Calibration) -> str:
    """Return why a calibration file has no map that can be applied, and what it is for."""
    if calibration.aspects:
        without = f"no gain is shown for {', '.join(calibration.aspects)}"
    else:
        without = "no aspect has two different scores on labelled rows"
    if calibration.intervals:
        use = "--intervals takes its intervals"
    else:
        use = "it records the maps and their errors"
    return f"will have no map that --calibration applies, because {without}; {use}"
