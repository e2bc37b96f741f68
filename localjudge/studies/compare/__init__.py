"""Compare two runs: what a new model, prompt or judge changed, on the same instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats
from localjudge.matching.labels import Labels
from localjudge.records.outcome_columns import OVERALL
from localjudge.statistics.paired_test import Change, tested_changes
from localjudge.statistics.resampling import RESAMPLES, cell_means
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.by_system_or_tag import EstimateRow, EstimateTable
from localjudge.studies.compare.matched_runs import Differs, MatchedRuns, RowWithoutScore, by_instruction
from localjudge.studies.compare.row_noise import RowNoise, row_noise
from localjudge.studies.compare.two_judges import Labelled, TwoJudges, compare_labels, compare_two_judges

_MOST_LISTED = 10
"""The most rows that are listed one by one."""
_MOST_FALLEN = 3
"""The most rows of a column that are listed because they fell."""
NOTHING_IN_COMMON = "no row has a score in both runs"


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A row that changed by much: its numbers and its verdicts in OLD and in NEW.

    `moved` is the mean change of its columns, as a share of their scales.
    """

    id: str
    system: str
    moved: float
    numbers: Mapping[str, tuple[float, float]]
    verdicts: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed from one run to another.

    Attributes:
        names: the names of OLD and NEW.
        differs: what differs between the runs: the responses, the judge, or nothing.
        how: what differs, in words.
        whose: the system whose columns are compared, or how many; empty for one without a name.
        item: what a row is called.
        instructions: number of instructions where both runs have a score.
        rows: number of rows of OLD with a score in both runs.
        rows_by_system: number of rows of OLD with a score, of each system.
        absent_by_system: number of these that are not in NEW at all.
        lost_by_system: number of these that are in NEW, but have no score there.
        only_common: whether only the rows with a score in both runs are of interest.
        columns: the change of each column; empty if no row has a score in both runs.
        imputed: the mean change of each column where each row of OLD without a score in NEW falls to its lowest
            score; empty if there is none, or if only the common rows are of interest.
        by_system: the change of each column for each system; None for one system, and without changes.
        moved: the rows that changed most.
        fallen: for each column, the rows that fell most in it, those that fell further first.
        missing: the rows of OLD that have a score, but none in NEW.
        failed: the rows of OLD that failed, which are compared with nothing.
        unmatched: the rows of NEW without a score that belong to no row of OLD; they count in nothing.
        only_new: number of rows of NEW with a score that belong to no row of OLD; they count in nothing.
        judges: the agreement of two judges; None for one judge, and without changes.
        labelled: for each aspect with labels, how much better NEW agrees with them than OLD.
        noise: for each column, the rows that move no further than the noise; without those whose noise is not
            known.
        notes: remarks for the reader.
        notices: the notices of the runs.
    """

    names: tuple[str, ...]
    differs: Differs
    how: str
    whose: str
    item: str
    instructions: int
    rows: int
    rows_by_system: Mapping[str, int]
    absent_by_system: Mapping[str, int]
    lost_by_system: Mapping[str, int]
    only_common: bool
    columns: Mapping[str, Change]
    imputed: Mapping[str, float]
    by_system: EstimateTable | None
    moved: tuple[MovedRow, ...]
    fallen: Mapping[str, tuple[MovedRow, ...]]
    missing: tuple[RowWithoutScore, ...]
    failed: tuple[RowWithoutScore, ...]
    unmatched: tuple[RowWithoutScore, ...]
    only_new: int
    judges: TwoJudges | None
    labelled: Mapping[str, Labelled]
    noise: Mapping[str, RowNoise]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def compare_runs(
    matched: MatchedRuns,
    labels: Labels | None = None,
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
    rows, both = matched.rows, matched.in_both
    old, new = (by_instruction(cells[both], matched.group[both]) for cells in (matched.old, matched.new))
    # A gate can read a run that has lost the score of every row; then nothing is left to compare.
    tested = tested_changes(old, new, rows.width, resamples, seed) if len(old) else []
    by_system = _by_system(matched, resamples, seed) if len(old) and len(matched.systems) > 1 else None
    two_judges = len(old) and matched.differs == "judge"
    notes = [rows.note, *matched.notes]
    imputed = dict[str, float]()
    if matched.is_lost.any() and not only_common:
        means = by_instruction(matched.change, matched.group).mean(axis=0)
        imputed = dict(zip(rows.names, means.tolist(), strict=True))
    system_of_row = [matched.systems[place] for place in matched.system[matched.cell].tolist()]
    absent, lost = Counter[str](), Counter[str]()
    lost_rows = np.flatnonzero(matched.is_lost).tolist()
    for row, missing in zip(lost_rows, matched.missing, strict=True):
        (absent if missing.is_absent else lost)[system_of_row[row]] += 1
    return Changes(
        names=matched.names,
        differs=matched.differs,
        how=matched.how,
        whose=matched.whose,
        item=rows.source.manifests[0].rubric.mode.item,
        instructions=len(old),
        rows=len(matched.row_pairs),
        rows_by_system=dict(Counter(system_of_row)),
        absent_by_system=dict(absent),
        lost_by_system=dict(lost),
        only_common=only_common,
        columns=dict(zip(rows.names, tested, strict=False)),
        imputed=imputed,
        by_system=by_system,
        moved=_moved(matched),
        fallen={name: _fallen(matched, at) for at, name in enumerate(rows.names)},
        missing=matched.missing,
        failed=matched.failed,
        unmatched=matched.unmatched,
        only_new=matched.only_new,
        judges=compare_two_judges(matched, resamples, seed) if two_judges else None,
        labelled=compare_labels(matched, labels, resamples, seed) if labels else {},
        noise=row_noise(matched),
        notes=(*notes, *(labels.notes if labels else ())),
        notices=rows.source.notices,
    )


def _by_system(matched: MatchedRuns, resamples: int, seed: int) -> EstimateTable:
    """Return the changes of each system."""
    rows, names, chosen = matched.rows, matched.systems, matched.in_both
    group, place = matched.group[chosen], matched.system[chosen]
    groups = int(matched.group.max()) + 1
    old, new = (
        cell_means(cells[chosen], group * len(names) + place, groups * len(names)).reshape(groups, -1)
        for cells in (matched.old, matched.new)
    )
    changes = iter(tested_changes(old, new, np.tile(rows.width, len(names)), resamples, seed))
    lines = []
    for number, name in enumerate(names):
        columns = {column: next(changes) for column in rows.names}
        instructions = len(np.unique(group[place == number]))
        moved = tuple(
            f"{name} {change.direction}"
            if change.is_significant
            else f"{name} {change.moved} (sign test {change.sign_test})"
            for name, change in columns.items()
            if change.is_significant or (change.p is None and change.rose + change.fell)
        )
        estimates = {name: change.difference for name, change in columns.items()}
        lines.append(
            EstimateRow(name, instructions, estimates, moved if instructions else (NOTHING_IN_COMMON,))
        )
    return EstimateTable("system", "changes", tuple(lines))


def _moved(matched: MatchedRuns) -> tuple[MovedRow, ...]:
    """Return the rows that changed most."""
    moved = _mean_changes(matched)
    order = np.argsort(-moved, kind="stable")[:_MOST_LISTED].tolist()
    return tuple(_moved_row(matched, at, float(moved[at])) for at in order if moved[at] > 0)


def _mean_changes(matched: MatchedRuns) -> Floats:
    """Return the mean change of the columns of each row, as a share of their scales, [m]; never below 0."""
    rows = matched.rows
    used = _columns_of_rows(matched)
    old, new = (rows.values[matched.row_pairs[:, run]][:, used] for run in (0, 1))
    mean: Floats = (np.abs(new - old) / rows.width[used]).mean(axis=1)
    return mean


def _fallen(matched: MatchedRuns, column: int) -> tuple[MovedRow, ...]:
    """Return the rows that fell most in a column."""
    rows = matched.rows
    old, new = (rows.values[matched.row_pairs[:, run], column] for run in (0, 1))
    fall = old - new
    order = np.argsort(-fall, kind="stable")[:_MOST_FALLEN].tolist()
    width = float(rows.width[column])
    return tuple(
        _moved_row(matched, at, float(fall[at]) / width, (column,)) for at in order if fall[at] > NO_DIFFERENCE
    )


def _columns_of_rows(matched: MatchedRuns) -> list[int]:
    """Return the places of the columns that are not the mean of the others."""
    return [at for at, name in enumerate(matched.rows.names) if name != OVERALL]


def _moved_row(matched: MatchedRuns, at: int, moved: float, columns: Sequence[int] | None = None) -> MovedRow:
    """Return a row with its numbers and verdicts in both runs.

    Args:
        matched: the rows of both runs.
        at: the place of the row in `matched.row_pairs`.
        moved: how far it moved.
        columns: the places of the columns that are shown; None for all but the mean of the others.
    """
    rows = matched.rows
    old, new = matched.row_pairs[at].tolist()
    shown = _columns_of_rows(matched) if columns is None else columns
    return MovedRow(
        id=rows.identities[old].id or "",
        system=rows.systems[old],
        moved=moved,
        numbers={
            rows.names[place]: (float(rows.values[old, place]), float(rows.values[new, place]))
            for place in shown
        },
        verdicts={name: (rows.verdict(name, old), rows.verdict(name, new)) for name in rows.written},
    )
