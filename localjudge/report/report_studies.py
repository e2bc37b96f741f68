"""The studies of the runs of a report, and what they find for each section of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import pairs_of, read_judged_pairs, read_scores, scores_of
from localjudge.matching.run_rows import run_names
from localjudge.matching.scores import Scores
from localjudge.report.agreement_tables import agreement_findings
from localjudge.report.change_tables import change_findings
from localjudge.report.listed_rows import ListedRows
from localjudge.report.pair_agreement_tables import pair_agreement_findings
from localjudge.report.preference_tables import preference_findings
from localjudge.report.ranking_tables import ranking_findings
from localjudge.report.run_findings import RunFindings, join_findings
from localjudge.report.study_options import ReportOptions
from localjudge.report.tables import Findings
from localjudge.runs.reader import is_complete
from localjudge.studies.agree import agree
from localjudge.studies.calibration import Calibration
from localjudge.studies.compare import compare_runs
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import match_runs
from localjudge.studies.pair_agreement import agree_on_pairs
from localjudge.studies.rank import Ranking, rank
from localjudge.studies.rank.preference_ranking import rank_pairs


@dataclass(frozen=True, slots=True)
class ReportFindings:
    """What the studies say of the runs of a report.

    Attributes:
        sections: the findings of each section of the page; None for one that is not shown.
        notices: the notices of calibrated scores.
    """

    sections: Mapping[str, Findings | None]
    notices: Sequence[str]


@dataclass(frozen=True, slots=True)
class _JudgeRanking:
    """The comparison of the systems of one judge's runs.

    Attributes:
        runs: the names of the runs.
        ranking: the comparison.
    """

    runs: str
    ranking: Ranking

    @property
    def is_calibrated(self) -> bool:
        """Whether the systems are compared by calibrated scores."""
        return self.ranking.of == "calibrated"

    def findings(self) -> RunFindings:
        """Return the comparison in sentences and tables."""
        findings = ranking_findings(self.ranking)
        if self.is_calibrated:
            notes = list(findings.notes)
            notes.append("single judgements show uncalibrated scores")
            findings = replace(findings, notes=notes)
        return RunFindings(self.runs, findings)


@dataclass(frozen=True, slots=True)
class ReportStudies:
    """The studies of the runs of a report.

    Attributes:
        listed: the rows of the report.
        options: what the report has besides the rows.
        resamples: number of resamples for the intervals.
    """

    listed: ListedRows
    options: ReportOptions
    resamples: int

    def findings(self) -> ReportFindings:
        """Return the findings of all sections."""
        systems: Findings | None
        notices: list[str] = []
        if self.listed.mode.pairs is not None:
            systems = self._preferences()
        else:
            rankings = [self._ranking(runs) for runs in self._runs_by_judge()]
            systems = self._rankings(rankings)
            for ranking in rankings:
                if ranking.is_calibrated:
                    notices += ranking.ranking.notices
        agreement = join_findings(self._agreements())
        sections = {"systems": systems, "changes": self._changes(), "agreement": agreement}
        return ReportFindings(sections, notices)

    def _preferences(self) -> Findings:
        """Return the comparison of the systems of pairs, and the effect of the order of the responses."""
        listed = self.listed
        lines = list(listed.details.lines())
        if not listed.compares_systems or not self._are_complete():
            return Findings(lines, [])
        pairs = pairs_of(listed.rows_by_line, listed.numbers_by_line)
        findings = preference_findings(rank_pairs(pairs, resamples=self.resamples))
        return replace(findings, answer=list(findings.answer) + lines)

    def _rankings(self, rankings: Sequence[_JudgeRanking]) -> Findings | None:
        """Return the comparisons of the systems by each judge, and the systems without a score."""
        findings = join_findings([ranking.findings() for ranking in rankings])
        if findings is None:
            return None
        ranked: set[str] = set()
        for ranking in rankings:
            ranked.update(system.name for system in ranking.ranking.systems)
        without_score = [name for name in self.listed.series if name not in ranked]
        if not without_score:
            return findings
        notes = list(findings.notes)
        notes.append(f"no row of {', '.join(without_score)} has a score")
        return replace(findings, notes=notes)

    def _runs_by_judge(self) -> list[list[Path]]:
        """Return the runs of each judge, because means by different judges cannot be compared."""
        runs_of_judge: dict[tuple[object, ...], list[Path]] = {}
        for run, manifest in zip(self.listed.folders, self.listed.manifests, strict=True):
            judge = tuple(manifest.judge.values())
            runs_of_judge.setdefault(judge, []).append(run)
        return list(runs_of_judge.values())

    def _ranking(self, runs: Sequence[Path]) -> _JudgeRanking:
        """Return the comparison of the systems of one judge's runs."""
        scores = self._scores(runs)
        labels = None
        if self.options.labels and self.listed.mode.criteria is None:
            labels = self.options.labels_of(scores, equal_chances=False)
        if self.options.calibration is not None:
            calibration = Calibration.load(self.options.calibration)
            scores = calibration.apply_to(scores, labels)
        # The overall human mean requires labels of every aspect.
        if labels is not None and not set(labels.aspects) >= set(scores.aspects):
            labels = None
        ranking = rank(scores, labels, resamples=self.resamples)
        return _JudgeRanking(", ".join(run_names(runs)), ranking)

    def _scores(self, runs: Sequence[Path]) -> Scores:
        """Return the scores of one judge's runs, with the report's series as systems."""
        listed = self.listed
        if len(runs) == len(listed.folders):
            return scores_of(listed.rows_by_line, listed.numbers_by_line)
        return self._by_series(read_scores(runs, criteria="joined"))

    def _by_series(self, scores: Scores) -> Scores:
        """Return scores with the report's series as systems, those by tag included."""
        listed = self.listed
        run_of_report = [listed.folders.index(folder) for folder in scores.folders]
        names, _ = listed.rows.names.names()
        names_of_rows = []
        for run, identity in zip(scores.run.tolist(), scores.identities, strict=True):
            names_of_rows.append(names[run_of_report[run], identity.systems[0]])
        names_of_scored = set(names_of_rows)
        systems = tuple(name for name in listed.series if name in names_of_scored)
        index_of_system = {name: index for index, name in enumerate(systems)}
        system = np.array([index_of_system[name] for name in names_of_rows], dtype=np.int32)
        by_tag = None
        if scores.by_tag is not None:
            scores_by_tag, tags = scores.by_tag
            by_tag = (self._by_series(scores_by_tag), tags)
        return replace(scores, systems=systems, system=system, by_tag=by_tag)

    def _agreements(self) -> list[RunFindings]:
        """Return the agreement of each run with its labels; none without labels."""
        if not self.options.labels:
            return []
        folders = self.listed.folders
        agreements = []
        for run, name in zip(folders, run_names(folders), strict=True):
            if self.listed.mode.pairs is not None:
                findings = self._pair_agreement(run)
            else:
                findings = self._agreement(run)
            agreements.append(RunFindings(name, findings))
        return agreements

    def _agreement(self, run: Path) -> Findings:
        """Return the agreement of a run with its labels."""
        listed = self.listed
        if len(listed.folders) == 1 and listed.mode.criteria is None:
            scores = scores_of(listed.rows_by_line, listed.numbers_by_line)
        else:
            scores = read_scores([run], criteria="split")
        labels = self.options.labels_of(scores, equal_chances=False)
        return agreement_findings(agree(scores, labels, resamples=self.resamples))

    def _pair_agreement(self, run: Path) -> Findings:
        """Return the agreement of a run of pairs with its labels."""
        pairs = read_judged_pairs([run])
        labels = self.options.labels_of(pairs, equal_chances=False)
        return pair_agreement_findings(agree_on_pairs(pairs, labels, resamples=self.resamples))

    def _changes(self) -> Findings | None:
        """Return what `localjudge compare` finds in two complete runs, or why they cannot be compared.

        None unless there are two runs of whole inputs, and both are complete.
        """
        runs = self.listed.folders
        if len(runs) != 2 or not self._are_complete() or self.listed.manifests[0].shard:
            return None
        try:
            matched = match_runs(ComparedRows.read(runs))
            return change_findings(compare_runs(matched, resamples=self.resamples))
        except UsageError as error:
            return Findings([f"The runs cannot be compared: {error}"], [])

    def _are_complete(self) -> bool:
        """Whether all runs are complete."""
        return all(is_complete(run) for run in self.listed.folders)
