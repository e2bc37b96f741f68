"""What was compared of two runs: which rows, of which systems, and how they were matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.matching.labels import Labels
from localjudge.matching.scores import ScoreKind
from localjudge.studies.compare.matched_runs import MatchedRuns
from localjudge.studies.compare.rows_without_score import UncomparedRows
from localjudge.studies.compare.run_difference import RunDifference


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows of OLD with a score each system has.

    Attributes:
        scored: all of them.
        absent: those that are not in NEW at all; without systems that have none.
        failed: those that are in NEW, but have no score there; without systems that have none.
    """

    scored: Mapping[str, int]
    absent: Mapping[str, int]
    failed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """What was compared of two runs.

    Attributes:
        names: the names of OLD and NEW.
        difference: what differs between the runs.
        systems: the systems whose columns are compared; of pairs, the names of the preferences.
        item: what a row is called.
        score_kind: the kind of the scores that are compared; None for preferences.
        preferences: the names of the preferences that are compared; empty for scores.
        instructions: number of instructions where both runs have a score.
        rows: number of rows of OLD with a score in both runs.
        counts: the rows of OLD with a score of each system.
        only_common: whether only the rows with a score in both runs are of interest.
        uncompared: the rows that are compared with nothing.
        ignores_ids: whether rows are matched by their order, because the runs have no id in common.
        alignment_notes: remarks on the rows of two judges that were aligned.
        label_notes: remarks on the labels.
        notices: the notices of the runs.
    """

    names: tuple[str, ...]
    difference: RunDifference
    systems: tuple[str, ...]
    item: str
    score_kind: ScoreKind | None
    preferences: tuple[str, ...]
    instructions: int
    rows: int
    counts: RowCounts
    only_common: bool
    uncompared: UncomparedRows
    ignores_ids: bool
    alignment_notes: tuple[str, ...]
    label_notes: tuple[str, ...]
    notices: tuple[str, ...]

    @classmethod
    def from_matched(cls, matched: MatchedRuns, labels: Labels | None, *, only_common: bool) -> ComparedRuns:
        """Return what is compared of two matched runs; the arguments are those of `compare_runs`."""
        rows = matched.rows
        return cls(
            names=matched.names,
            difference=matched.difference,
            systems=matched.cells.systems,
            item=rows.source.manifests[0].rubric.mode.item,
            score_kind=rows.score_kind,
            preferences=rows.preferences,
            instructions=len(np.unique(matched.cells.group[matched.cells.in_both])),
            rows=len(matched.scored.pairs),
            counts=_row_counts(matched),
            only_common=only_common,
            uncompared=matched.uncompared,
            ignores_ids=matched.ignores_ids,
            alignment_notes=matched.alignment_notes,
            label_notes=labels.notes if labels else (),
            notices=rows.source.notices,
        )


def _row_counts(matched: MatchedRuns) -> RowCounts:
    """Return how many rows of OLD with a score each system has, and how many of them NEW lacks."""
    systems = [matched.cells.systems[index] for index in matched.cells.system[matched.scored.cell].tolist()]
    absent: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    lost_rows = np.flatnonzero(matched.scored.is_lost).tolist()
    for row, missing in zip(lost_rows, matched.uncompared.missing, strict=True):
        if missing.is_absent:
            absent[systems[row]] += 1
        else:
            failed[systems[row]] += 1
    return RowCounts(scored=Counter(systems), absent=absent, failed=failed)
