"""A report of runs as one file for a browser: findings, and all rows.

runs → rows, texts → findings → page
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import pairs_of, read_judged_pairs, read_scores, scores_of
from localjudge.matching.run_rows import run_names
from localjudge.matching.scores import Scores
from localjudge.report.agreement_tables import agreement_findings, pair_agreement_findings
from localjudge.report.change_tables import change_findings
from localjudge.report.listed_rows import ListedRows
from localjudge.report.overview import head
from localjudge.report.page import write_page
from localjudge.report.ranking_tables import preference_findings, ranking_findings
from localjudge.report.study_options import ReportOptions
from localjudge.report.tables import Findings, joined
from localjudge.runs.reader import is_complete
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.run_state import unchanged
from localjudge.statistics.resampling import RESAMPLES
from localjudge.studies.agree import agree
from localjudge.studies.calibration import Calibration, read_intervals
from localjudge.studies.compare import compare_runs
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import match_runs
from localjudge.studies.pair_agreement import agree_on_pairs
from localjudge.studies.rank import rank
from localjudge.studies.rank.preference_ranking import rank_pairs
from localjudge.system.requirements import require
from localjudge.system.steps import Step, no_steps

_EVERYTHING = ReportOptions()


def write_report(
    runs: Sequence[Path],
    out: Path,
    options: ReportOptions = _EVERYTHING,
    step: Step = no_steps,
    resamples: int = RESAMPLES,
) -> list[str]:
    """Write a report of runs, and return the notices for its reader, one line each.

    Args:
        runs: the run directories, judged on the same aspects and scale; runs of pairs, by one judge.
        out: the file to write.
        options: what the report has besides the rows.
        step: receives the steps.
        resamples: number of resamples for the intervals.

    Raises:
        UsageError: a file or run directory cannot be used, or an option does not fit the runs.
    """
    require("a report", "trust")
    mode = read_manifest(runs[0]).rubric.mode
    for name in ("calibration", "intervals"):
        if getattr(options, name):
            one = f"`{name}`: is for runs with one judgement for each response; this rubric"
            mode.require_aspects(one)
    with ExitStack() as stack:
        with unchanged(runs):
            with step(f"reading the {mode.list_words.many}"):
                listed = stack.enter_context(ListedRows(runs, options.inputs or ()))
            with step("comparing the systems"):
                found = _ReportFindings(listed, options, resamples)
                about = head(listed, options.title, found.sections, found.notices)
        with step("writing the page", mode.list_words.many) as report:
            write_page(out, about, listed, report)
    return list(about["notices"])


class _ReportFindings:
    """What the studies say of the runs of a report.

    Args:
        listed: the rows of the report.
        options: what the report has besides the rows.
        resamples: number of resamples for the intervals.

    Attributes:
        sections: the findings of each section of the page; None for one that is not shown.
        notices: the notices of calibrated scores.
    """

    def __init__(self, listed: ListedRows, options: ReportOptions, resamples: int) -> None:
        self._listed, self._options, self._resamples = listed, options, resamples
        self._ranked: set[str] = set()
        self.notices: list[str] = []
        pairs = listed.mode.pairs is not None
        if options.intervals:
            listed.intervals_of = read_intervals(options.intervals, listed.folders)
        systems = joined(self._preferences() if pairs else [*map(self._ranking, self._by_judge())])
        if not pairs and systems and (without := [name for name in listed.series if name not in self._ranked]):
            systems = replace(systems, notes=[*systems.notes, f"no row of {', '.join(without)} has a score"])
        labelled = run_names(listed.folders) if options.labels else ()
        agreement = [
            (name, self._pair_agreement(run) if pairs else self._agreement(run, name))
            for run, name in zip(listed.folders, labelled, strict=False)
        ]
        self.sections = {
            "systems": systems,
            "changes": self._changes(),
            "agreement": joined(agreement),
        }

    def _by_judge(self) -> list[list[Path]]:
        """Return the runs of each judge, because means by different judges cannot be compared."""
        together: dict[tuple[object, ...], list[Path]] = {}
        for run, manifest in zip(self._listed.folders, self._listed.manifests, strict=True):
            together.setdefault(tuple(manifest.judge.values()), []).append(run)
        return list(together.values())

    def _ranking(self, runs: Sequence[Path]) -> tuple[str, Findings]:
        """Return the comparison of the systems of one judge's runs, after the names of the runs."""
        options, name = self._options, ", ".join(run_names(runs))
        scores = self._scores(runs)
        known = (
            options.labels_of(scores, False) if options.labels and self._listed.mode.criteria is None else None
        )
        file = options.calibration
        calibrated = Calibration.load(file).apply_to(scores, known) if file else scores
        # The overall human mean requires labels of every aspect.
        whole = known if known and set(known.aspects) >= set(calibrated.aspects) else None
        ranking = rank(calibrated, whole, resamples=self._resamples)
        self._ranked |= {system.name for system in ranking.systems}
        found = ranking_findings(ranking)
        if ranking.of == "calibrated":
            self.notices += ranking.notices
            note = "single judgements show uncalibrated scores"
            found = replace(found, notes=[*found.notes, note])
        return name, found

    def _scores(self, runs: Sequence[Path]) -> Scores:
        """Return the scores of one judge's runs, with the report's series as systems."""
        if len(runs) == len(self._listed.folders):
            return scores_of(*self._listed.read)
        return self._by_series(read_scores(runs, criteria="joined"))

    def _by_series(self, scores: Scores) -> Scores:
        listed = self._listed
        runs = [listed.folders.index(folder) for folder in scores.folders]
        names, _ = listed.rows.names.names()
        known = [
            names[runs[run], identity.systems[0]]
            for run, identity in zip(scores.run.tolist(), scores.identities, strict=True)
        ]
        systems = [label for label in listed.series if label in {*known}]
        places = {label: place for place, label in enumerate(systems)}
        system = np.array([places[label] for label in known], dtype=np.int32)
        tags = scores.by_tag and (self._by_series(scores.by_tag[0]), scores.by_tag[1])
        return replace(scores, systems=tuple(systems), system=system, by_tag=tags)

    def _preferences(self) -> list[tuple[str, Findings]]:
        """Return the comparison of the systems of pairs, and the effect of the order of the responses."""
        listed = self._listed
        lines = [*listed.details.lines()]
        if not listed.compares_systems or not all(map(is_complete, listed.folders)):
            return [("", Findings(lines, []))]
        ranking = rank_pairs(pairs_of(*listed.read), resamples=self._resamples)
        found = preference_findings(ranking)
        return [("", replace(found, answer=[*found.answer, *lines]))]

    def _agreement(self, run: Path, name: str) -> Findings:
        """Return the agreement of a run with its labels."""
        one = len(self._listed.folders) == 1 and self._listed.mode.criteria is None
        scores = scores_of(*self._listed.read) if one else read_scores([run], criteria="split")
        known = self._options.labels_of(scores, False)
        return agreement_findings(agree(scores, known, self._resamples, 0))

    def _pair_agreement(self, run: Path) -> Findings:
        """Return the agreement of a run of pairs with its labels."""
        judged = read_judged_pairs([run])
        return pair_agreement_findings(
            agree_on_pairs(judged, self._options.labels_of(judged, False), self._resamples, 0)
        )

    def _changes(self) -> Findings | None:
        """Return what `localjudge compare` finds in two complete runs, or why they cannot be compared.

        None unless there are two runs of whole inputs, and both are complete.
        """
        runs = self._listed.folders
        if len(runs) != 2 or not all(map(is_complete, runs)) or self._listed.manifests[0].shard:
            return None
        try:
            matched = match_runs(ComparedRows.read(runs))
            return change_findings(compare_runs(matched, resamples=self._resamples))
        except UsageError as error:
            return Findings([f"The runs cannot be compared: {error}"], [])
