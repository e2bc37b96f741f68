"""Compare two runs: what a new model, prompt or judge changed, on the same instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.matching.labels import Labels
from localjudge.statistics.paired_test import Change, tested_changes
from localjudge.statistics.resampling import RESAMPLES, cell_means
from localjudge.studies.compare.compared_cells import by_instruction
from localjudge.studies.compare.compared_runs import ComparedRuns
from localjudge.studies.compare.label_agreement import Labelled, compare_labels
from localjudge.studies.compare.matched_runs import MatchedRuns
from localjudge.studies.compare.moved_rows import MovedRow, most_fallen_rows, most_moved_rows
from localjudge.studies.compare.row_noise import RowNoise, row_noise
from localjudge.studies.compare.run_difference import Differs
from localjudge.studies.compare.two_judges import TwoJudges, compare_two_judges


@dataclass(frozen=True, slots=True)
class SystemChanges:
    """The changes of one system, adjusted for all columns of all systems.

    Attributes:
        system: its name.
        instructions: number of its instructions where both runs have a score.
        columns: the change of each column.
    """

    system: str
    instructions: int
    columns: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed from one run to another.

    Attributes:
        runs: what was compared of the two runs.
        columns: the change of each column; empty if no row has a score in both runs.
        imputed: the mean change of each column where each row of OLD without a score in NEW falls to its lowest
            score; empty if there is none, or if only the common rows are of interest.
        by_system: the changes of each system; empty for one system, and without changes.
        moved: the rows that changed most.
        fallen: for each column, the rows that fell most in it, those that fell further first.
        judges: the agreement of two judges; None for one judge, and without changes.
        labelled: for each aspect with labels, how much better NEW agrees with them than OLD.
        noise: for each column, the rows that move no further than the noise; without those whose noise is not
            known.
    """

    runs: ComparedRuns
    columns: Mapping[str, Change]
    imputed: Mapping[str, float]
    by_system: tuple[SystemChanges, ...]
    moved: tuple[MovedRow, ...]
    fallen: Mapping[str, tuple[MovedRow, ...]]
    judges: TwoJudges | None
    labelled: Mapping[str, Labelled]
    noise: Mapping[str, RowNoise]


def compare_runs(
    matched: MatchedRuns,
    labels: Labels | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    only_common: bool = False,
) -> Changes:
    """Compare two runs.

    Args:
        matched: the rows of both runs.
        labels: labels of the rows of both; only for two judges.
        resamples: number of flips of the test of a change, and of resamples for other intervals.
        seed: seed of both.
        only_common: leave rows of OLD without a score in NEW out of account.
    """
    rows = matched.rows
    # A gate can read a run that has lost the score of every row; then nothing is left to compare.
    has_common = bool(matched.cells.in_both.any())
    columns: dict[str, Change] = {}
    by_system: tuple[SystemChanges, ...] = ()
    judges = None
    if has_common:
        columns = _changes_of_all(matched, resamples=resamples, seed=seed)
        if len(matched.cells.systems) > 1:
            by_system = _changes_by_system(matched, resamples=resamples, seed=seed)
        if matched.difference.differs is Differs.JUDGE:
            judges = compare_two_judges(matched, resamples=resamples, seed=seed)
    labelled: dict[str, Labelled] = {}
    if labels:
        labelled = compare_labels(matched, labels, resamples=resamples, seed=seed)
    return Changes(
        runs=ComparedRuns.from_matched(matched, labels, only_common=only_common),
        columns=columns,
        imputed={} if only_common else _imputed_changes(matched),
        by_system=by_system,
        moved=most_moved_rows(matched),
        fallen={name: most_fallen_rows(matched, name) for name in rows.names},
        judges=judges,
        labelled=labelled,
        noise=row_noise(matched),
    )


def _changes_of_all(matched: MatchedRuns, *, resamples: int, seed: int) -> dict[str, Change]:
    """Return the change of each column, on the instructions where both runs have a score."""
    rows = matched.rows
    in_both = matched.cells.in_both
    group = matched.cells.group[in_both]
    old = by_instruction(matched.cells.old[in_both], group)
    new = by_instruction(matched.cells.new[in_both], group)
    changes = tested_changes(old, new, width=rows.width, flips=resamples, seed=seed)
    return dict(zip(rows.names, changes, strict=True))


def _changes_by_system(matched: MatchedRuns, *, resamples: int, seed: int) -> tuple[SystemChanges, ...]:
    """Return the changes of each system, tested together."""
    rows = matched.rows
    cells = matched.cells
    in_both = cells.in_both
    group = cells.group[in_both]
    system = cells.system[in_both]
    count = len(cells.systems)
    instructions = int(cells.group.max()) + 1
    # An instruction with a system is one cell; the columns of all systems stand beside each other.
    cell = group * count + system
    old = cell_means(cells.old[in_both], cell, cells=instructions * count).reshape(instructions, -1)
    new = cell_means(cells.new[in_both], cell, cells=instructions * count).reshape(instructions, -1)
    tested = tested_changes(old, new, width=np.tile(rows.width, count), flips=resamples, seed=seed)
    by_system = []
    for index, name in enumerate(cells.systems):
        of_system = tested[index * len(rows.names) : (index + 1) * len(rows.names)]
        changes = SystemChanges(
            system=name,
            instructions=len(np.unique(group[system == index])),
            columns=dict(zip(rows.names, of_system, strict=True)),
        )
        by_system.append(changes)
    return tuple(by_system)


def _imputed_changes(matched: MatchedRuns) -> dict[str, float]:
    """Return the mean change of each column with lost rows at their lowest score; empty if none is lost."""
    if not matched.scored.is_lost.any():
        return {}
    means = by_instruction(matched.change, matched.cells.group).mean(axis=0)
    return dict(zip(matched.rows.names, means.tolist(), strict=True))
