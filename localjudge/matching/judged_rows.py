"""The judged rows of runs as columns of numbers: scores of responses, or the judge's verdicts on pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from localjudge.arrays import Floats, RowArrays
from localjudge.errors import UsageError
from localjudge.matching import UNNAMED
from localjudge.matching.run_rows import RowNumbers, RowSelection, RunRows, common_rubric, read_judged_rows
from localjudge.matching.scores import RowTags, Scores
from localjudge.modes import pair_preference as kinds
from localjudge.modes.row_outcome import EXPECTED, LOWEST, MOST_TAGS, TAG, VALUE, RowOutcome
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import refuse_single
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.quantities import counted
from localjudge.system.steps import Report, no_progress

Criteria = Literal["joined", "split"]
"""How many rows a row with criteria is: one, with the score of its criteria, or one for each criterion."""


@dataclass(frozen=True, slots=True)
class PairVerdicts(RowArrays):
    """The judge's verdicts on n pairs in one aspect. All values of a pair that failed are NaN.

    Attributes:
        preference: the probability that the first response is better, a tie counting half: of both orders
            averaged, and of each order, [n, 3]; NaN for an order that was not judged.
        result: the verdict by the same columns, a number of `RESULTS`. That of both orders is the pair's, or
            the most probable result of both averaged if the aspect has no label for a tie.
        shown_first: the probability that the response shown first is better, in the input's order and in the
            reverse, [n, 2]; NaN for an order that was not judged.
        same_response: 1 if both orders name the same response, 0 if they name different ones, [n]; NaN if an
            order says a tie or was not judged.
    """

    preference: Floats
    result: Floats
    shown_first: Floats
    same_response: Floats

    @classmethod
    def from_numbers(cls, numbers: RowNumbers, aspect: str) -> PairVerdicts:
        """Return the verdicts on all pairs whose numbers were read."""
        return cls(
            preference=numbers.table([VALUE, *kinds.ORDER_PREFERENCES], [aspect]),
            result=numbers.table([kinds.RESULT, *kinds.ORDER_RESULTS], [aspect]),
            shown_first=numbers.table([kinds.SHOWN_IN_ORDER, kinds.SHOWN_IN_REVERSE], [aspect]),
            same_response=numbers.column(kinds.SAME_RESPONSE, aspect),
        )


@dataclass(frozen=True, slots=True)
class JudgedPairs(RunRows):
    """The n judged pairs of one or more runs. No value is NaN, unless it is said here.

    Attributes:
        columns: the other columns of the row of each pair.
        aspects: the verdicts in each aspect.
        failed: number of pairs that could not be judged, which are in `unscored`.
    """

    columns: Sequence[Mapping[str, Any]]
    aspects: Mapping[str, PairVerdicts]
    failed: int
    unscored: RunRows

    @property
    def systems(self) -> list[tuple[str | None, ...]]:
        """The systems of the first and the second response of each pair, as its run calls them."""
        return [each.systems for each in self.identities]

    @property
    def manifest(self) -> RunManifest:
        """The manifest of the first run."""
        return self.manifests[0]

    @property
    def orders(self) -> int:
        """The number of orders in which each pair was judged."""
        return self.manifest.orders


def read_judged(
    folders: Sequence[Path],
    by_run: bool = True,
    report: Report = no_progress,
    criteria: Criteria | None = None,
    tag: str | None = None,
    where: RowSelection | None = None,
) -> Scores | JudgedPairs:
    """Return what statistics compute with: the verdicts of runs of pairs, or the scores of other runs.

    The arguments are those of `read_scores`.
    """
    if read_manifest(folders[0]).rubric.mode.pairs is not None:
        return read_judged_pairs(folders, report, where)
    return read_scores(folders, by_run, report, criteria, tag, where)


def read_judged_pairs(
    folders: Sequence[Path], report: Report = no_progress, where: RowSelection | None = None
) -> JudgedPairs:
    """Return the judged pairs of runs.

    Args:
        folders: run directories with the same aspects.
        report: receives the number of rows that were read, and of all lines.
        where: the rows that count; by default all.

    Raises:
        UsageError: a run compares no responses, the aspects differ, or no pair was judged.
    """
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        refuse_single(folder, manifest.rubric)
    common_rubric(folders, manifests)
    columns: list[Mapping[str, Any]] = []

    def numbers_of(run: int, pair: RowOutcome) -> Iterable[tuple[str, str, float]]:
        columns.append(pair.first.columns)
        return pair.numbers()

    return pairs_of(*read_judged_rows(folders, manifests, numbers_of, report, where=where), columns)


def pairs_of(rows: RunRows, numbers: RowNumbers, columns: Sequence[Mapping[str, Any]] = ()) -> JudgedPairs:
    """Return the judged pairs among rows that were read.

    Args:
        rows: the pairs.
        numbers: their numbers.
        columns: the other columns of each; empty if they are not needed.

    Raises:
        UsageError: no pair was judged.
    """
    judged, aspects = rows.judged, rows.manifests[0].rubric.aspects
    if not len(judged):
        raise UsageError(f"{rows.where}: no pair was judged")
    return JudgedPairs(
        **rows.with_scores(judged),
        columns=[columns[row] for row in judged.tolist()] if columns else [],
        aspects={name: PairVerdicts.from_numbers(numbers, name).take(judged) for name in aspects},
    )


def read_scores(
    folders: Sequence[Path],
    by_run: bool = True,
    report: Report = no_progress,
    criteria: Criteria | None = None,
    tag: str | None = None,
    where: RowSelection | None = None,
) -> Scores:
    """Return the scores of these runs in one `Scores`.

    Args:
        folders: run directories with the same aspects and scale.
        by_run: name the systems of several runs by `SystemNames`; otherwise, a name is one system in all runs.
        report: receives the number of rows that were read, and of all lines.
        criteria: how many rows a row with criteria is; None to refuse runs of such rows.
        tag: the tag of the criteria that the score of a row with criteria is of; None or "score" for all.
        where: the rows that count; by default all.

    Raises:
        UsageError: a folder is not a run, compares responses or has no judgement, the runs' aspects or scales
            differ, or no criterion has the tag.
    """
    manifests = [read_manifest(folder) for folder in folders]
    if criteria is None:
        require_aspects(folders, manifests)
    else:
        require_one_response(folders, manifests)
    has_criteria = common_rubric(folders, manifests).mode.criteria is not None
    is_split = has_criteria and criteria == "split"
    rows, numbers = read_judged_rows(folders, manifests, report=report, by_criterion=is_split, where=where)
    return scores_of(rows, numbers, by_run, is_split, tag)


def scores_of(
    rows: RunRows, numbers: RowNumbers, by_run: bool = True, is_split: bool = False, tag: str | None = None
) -> Scores:
    """Return the scores of rows that were read.

    Args:
        rows: the rows.
        numbers: their numbers.
        by_run: as for `read_scores`.
        is_split: whether a row with criteria was read as one for each.
        tag: as for `read_scores`.

    Raises:
        UsageError: no row has scores, or no criterion has the tag.
    """
    rubric = rows.manifests[0].rubric
    if rubric.mode.criteria is not None and not is_split:
        return _scores_of_criteria(rubric.mode.criteria.score.name, rows, numbers, by_run, tag)
    columns = rubric.score_columns
    found = _scores(columns, [[column.name for column in columns]], rows, numbers, by_run)
    note = "each criterion counts as one row; within an instruction, its criteria are compared, too"
    return replace(found, notes=(note,)) if is_split else found


_ADVICE = "; give runs that judge one response by aspects (agree and rank take others, too)"


def require_aspects(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that the rows of all runs have one response with a value in each aspect.

    Args:
        folders: the run directories.
        manifests: their manifests.

    Raises:
        UsageError: the rows of a run compare two responses, or have criteria of their own.
    """
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.rubric.mode.require_aspects(f"{folder}:", _ADVICE)


def require_one_response(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that the rows of all runs have one response; the arguments are those of `require_aspects`.

    Raises:
        UsageError: the rows of a run compare two responses: their numbers are not scores of a system.
    """
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.rubric.mode.require_one_response(f"{folder}:", _ADVICE)


def _scores_of_criteria(
    whole: str, rows: RunRows, numbers: RowNumbers, by_run: bool, tag: str | None
) -> Scores:
    """Return the scores of rows in one column: of all their criteria, or of those with a tag.

    Args:
        whole: the name of the score of all criteria.
        rows: the rows.
        numbers: their numbers.
        by_run: as for `read_scores`.
        tag: as for `read_scores`.
    """
    counts = {
        name.removeprefix(TAG): numbers.count(VALUE, name) for name in numbers.names(LOWEST) if name != whole
    }
    tags = sorted(counts, key=lambda name: -counts[name])
    name = tag or whole
    if name not in (whole, *tags):
        raise UsageError(f"`by` {tag}: no criterion has this tag; give one of {', '.join([whole, *tags])}")

    def scores_of(column: str, names: Sequence[str], by_run: bool) -> Scores:
        """Return the scores of one column, from the rows' numbers with each of these names."""
        lowest = floor(min(np.nanmin(numbers.column(LOWEST, each)) for each in names))
        columns = (ScoreColumn(column, column, {"lowest": lowest, "highest": 1}, 1.0),)
        found = _scores(columns, [[each] for each in names], rows, numbers, by_run)
        lowest_of_rows = [numbers.column(LOWEST, each) for each in names]
        has_score = [np.isfinite(numbers.column(VALUE, each)) for each in names]
        of_scored = [values[kept] for values, kept in zip(lowest_of_rows, has_score, strict=True)]
        return replace(found, lowest=np.concatenate(of_scored))

    scores = scores_of(name, [whole if name == whole else TAG + name], by_run)
    notes = []
    if without := len(rows.judged) - len(scores.ids):
        notes.append(f"{counted(without, 'row')} without positive points among these criteria have no score")
    if (np.bincount(scores.system, scores.integer[:, 0]) < 0).any():
        notes.append("means are not clipped here; show clips them to 0 to 1, as HealthBench does")
    known = [each for each in tags if counts[each]]
    most, more, by_tag = known[:MOST_TAGS], len(known) - MOST_TAGS, None
    if most:
        of_row = np.repeat(np.arange(len(most)), [counts[each] for each in most])
        row_tags = RowTags(f"tag ({more} more)" if more > 0 else "tag", tuple(most), of_row)
        by_tag = scores_of(whole, [TAG + each for each in most], True), row_tags
    return replace(scores, notes=tuple(notes), by_tag=by_tag)


def _scores(
    columns: tuple[ScoreColumn, ...],
    blocks: Sequence[Sequence[str]],
    rows: RunRows,
    numbers: RowNumbers,
    by_run: bool,
) -> Scores:
    """Return the scores of the rows that have all numbers of a block; those of each block follow each other.

    Args:
        columns: the C columns.
        blocks: the names of the C numbers of each block.
        rows: the rows.
        numbers: their numbers.
        by_run: as for `read_scores`.

    Raises:
        UsageError: no row has scores.
    """
    tables = [numbers.table([VALUE, EXPECTED], block) for block in blocks]
    placed = [np.flatnonzero(np.isfinite(table[:, : len(columns)]).all(axis=1)) for table in tables]
    scored = np.concatenate(placed)
    if not len(scored):
        raise UsageError(f"{rows.where}: no row was judged")
    both = np.concatenate([table[place] for table, place in zip(tables, placed, strict=True)])
    values, expected = np.split(both, 2, axis=1)
    measured = np.isfinite(expected).all(axis=0)
    named = rows.system_names([UNNAMED]) if by_run else [each.systems for each in rows.identities]
    systems = [named[row][0] or UNNAMED for row in scored.tolist()]
    order = sorted(set(systems), key=lambda name: (name == UNNAMED, name))
    place_of = {name: number for number, name in enumerate(order)}
    return Scores(
        **rows.with_scores(scored),
        columns=columns,
        systems=tuple(order),
        system=np.array([place_of[name] for name in systems], dtype=np.int32),
        integer=values,
        expected=np.where(measured, expected, values) if measured.any() else None,
        without_expected=frozenset(
            column.name for column, known in zip(columns, measured.tolist(), strict=True) if not known
        ),
        notices=(*rows.notices, *(rows.names.names()[1] if by_run else ())),
    )
