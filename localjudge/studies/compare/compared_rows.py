"""The judged rows of two runs in numbers, to be compared: scores, or the preferences of pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.judged_rows import JudgedPairs, read_judged
from localjudge.matching.row_selection import RowSelection
from localjudge.matching.scores import ScoreKind, Scores
from localjudge.matching.system_names import UNNAMED
from localjudge.modes.pair_preference import RESULTS
from localjudge.rubrics.answer import shown
from localjudge.studies.compare.pair_sides import named_side, recorded_baselines, unnamed_sides
from localjudge.studies.compare.pair_subject import (
    PairSubject,
    SubjectProblem,
    UnclearSubject,
    names_of,
)


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """The numbers of a column, [n], and the ends of its scale, the lowest first.

    The ends of the score of a checklist are those of OLD's rows.
    """

    values: Floats
    ends: tuple[float, float]

    @property
    def width(self) -> float:
        """The width of the scale."""
        low, high = self.ends
        return high - low


@dataclass(frozen=True, slots=True)
class WrittenVerdicts:
    """What the judge wrote in one aspect.

    Attributes:
        numbers: the number of each verdict, [n]: that of its value or, without an order, the index of its
            label; of a pair, as in `localjudge.modes.pair_preference.RESULTS`.
        texts: the text of each such number.
        is_ordered: whether the aspect has an order.
    """

    numbers: Floats
    texts: Mapping[float, str]
    is_ordered: bool

    def text(self, row: int) -> str:
        """Return what the judge wrote on a row."""
        return self.texts[float(self.numbers[row])]


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The rows of both runs: the n rows that have a score, in numbers, and after them the other ones, m in all.

    Attributes:
        source: the scores or the pairs of both runs, OLD first.
        run: 0 for OLD and 1 for NEW, [m].
        line: the number of its first line in its run, [m]; a complete run has the input's order.
        identities: what identifies each row, [m]; a pair has the response whose preference counts first.
        group: the number of its instruction, [m]; -1 if no row with a score is of this instruction.
        systems: the system that it is about, or of a pair, the name of its preference, [m].
        errors: why it has no score, [m]; empty if it has one.
        counts: whether the result is of it, [m]; the other rows of OLD only take theirs out of NEW.
        chosen: whether it is of a system that is compared, [m].
        columns: each column: the score columns and their mean, or the preference for a response.
        lowest: the lowest possible number of each row in each column, [n, C]; in a checklist it follows from
            the points of the row.
        verdicts: what the judge wrote in each aspect; empty for a checklist.
        is_reversed: whether a pair has its responses in the reverse of its input's order, [n].
        score_kind: the kind of the scores; None for preferences.
        preferences: the names of the preferences that are compared; empty for scores.
        problem: why a gate does not know whose preference it reads; None if it does, and for scores.
        has_criteria: whether the one column is the score of a checklist.
        expected: the columns whose numbers are expected scores.
    """

    source: Scores | JudgedPairs
    run: Integers
    line: Integers
    identities: Sequence[Identity]
    group: Integers
    systems: Sequence[str]
    errors: Sequence[str]
    counts: Flags
    chosen: Flags
    columns: Mapping[str, ComparedColumn]
    lowest: Floats
    verdicts: Mapping[str, WrittenVerdicts]
    is_reversed: Flags
    score_kind: ScoreKind | None = None
    preferences: tuple[str, ...] = ()
    problem: SubjectProblem | None = None
    has_criteria: bool = False
    expected: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        folders: Sequence[Path],
        kind: ScoreKind | None = None,
        *,
        only: Collection[str] = (),
        where: str | None = None,
    ) -> ComparedRows:
        """Return the rows of two runs.

        Args:
            folders: the run directories, OLD first.
            kind: the kind of scores; by default the expected scores if both runs have them.
            only: the systems to compare, or whose preference is compared; empty for all.
            where: COLUMN=VALUE; only rows of OLD with this value count, and rows of NEW that belong to them.

        Raises:
            UsageError: there is no such system or row, or the runs cannot be compared.
        """
        selection = RowSelection(where, of_old=True)
        judged = read_judged(folders, by_run=False, criteria="joined", where=selection)
        if isinstance(judged, JudgedPairs):
            return cls._from_pairs(judged, only)
        if kind is None:
            return cls._from_scores(judged, judged.best, only=only)
        return cls._from_scores(judged, kind, only=only)

    @classmethod
    def _from_scores(cls, scores: Scores, kind: ScoreKind, only: Collection[str]) -> ComparedRows:
        rows = _RowsOfRuns.from_source(scores)
        systems = [identity.systems[0] or UNNAMED for identity in rows.identities]
        _check_systems(only, systems)
        columns: dict[str, ComparedColumn] = {}
        for name, (values, ends) in scores.table(kind).items():
            columns[name] = ComparedColumn(values, ends)
        lowest = np.tile([column.ends[0] for column in columns.values()], (len(scores.ids), 1))
        if scores.lowest is not None:
            lowest = scores.lowest[:, None]
            lowest_in_old = lowest[scores.run == 0].min(initial=0)
            for name, column in columns.items():
                columns[name] = ComparedColumn(column.values, (lowest_in_old, column.ends[1]))
        # The score of a row with criteria is not a verdict of the judge.
        has_criteria = scores.rubric.mode.criteria is not None
        expected: frozenset[str] = frozenset()
        if kind == "expected":
            expected = frozenset(scores.aspects) - scores.without_expected
        return cls(
            source=scores,
            run=rows.run,
            line=rows.line,
            identities=rows.identities,
            group=rows.group,
            systems=systems,
            errors=rows.errors,
            counts=rows.counts,
            chosen=np.array([not only or name in only for name in systems]),
            columns=columns,
            lowest=lowest.astype(np.float64),
            verdicts={} if has_criteria else _verdicts_of_scores(scores),
            is_reversed=np.zeros(len(scores.ids), dtype=np.bool_),
            score_kind=kind,
            has_criteria=has_criteria,
            expected=expected,
        )

    @classmethod
    def _from_pairs(cls, pairs: JudgedPairs, only: Collection[str]) -> ComparedRows:
        """Return the preferences of two runs of pairs: the probability that a response is better, 0 to 1.

        If the pairs name their systems, it is that of the system that `PairSubject` finds. Otherwise it is the
        preference for the first response of the pair in OLD, or in NEW if OLD lacks it.
        """
        rows = _RowsOfRuns.from_source(pairs)
        scored = len(pairs.run)
        named = {identity.systems for identity in rows.identities if None not in identity.systems}
        _check_systems(only, names_of(named))
        subject = PairSubject(named, recorded_baselines(pairs), chosen=only)
        problem = subject.problem
        if all(None not in systems for systems in pairs.systems):
            sides = [named_side(identity, subject) for identity in rows.identities]
        else:
            sides = unnamed_sides(rows.identities, pairs)
            problem = SubjectProblem(UnclearSubject.UNNAMED_PAIRS)
        is_reversed = np.array([side.is_reversed for side in sides[:scored]])
        columns: dict[str, ComparedColumn] = {}
        verdicts: dict[str, WrittenVerdicts] = {}
        texts = {number: result for result, number in RESULTS.items()}
        for name, aspect in pairs.aspects.items():
            preference = _of_subject(aspect.preference[:, 0], is_reversed)
            columns[name] = ComparedColumn(preference, (0, 1))
            result = _of_subject(aspect.result[:, 0], is_reversed)
            verdicts[name] = WrittenVerdicts(result, texts, is_ordered=False)
        return cls(
            source=pairs,
            run=rows.run,
            line=rows.line,
            identities=[side.identity for side in sides],
            group=rows.group,
            systems=[side.name for side in sides],
            errors=rows.errors,
            counts=rows.counts,
            chosen=np.array([side.is_chosen for side in sides]),
            columns=columns,
            lowest=np.zeros((scored, len(pairs.aspects))),
            verdicts=verdicts,
            is_reversed=is_reversed,
            preferences=tuple(dict.fromkeys(side.name for side in sides[:scored])),
            problem=problem,
        )

    def rows_of(self, run: int) -> list[int]:
        """Return the rows of a run that are compared, with a score or without, in the order of their lines."""
        chosen = np.flatnonzero((self.run == run) & self.chosen)
        in_order: list[int] = chosen[np.argsort(self.line[chosen], kind="stable")].tolist()
        return in_order

    @property
    def scored(self) -> int:
        """The number of rows with a score, n."""
        return len(self.is_reversed)

    def has_score(self, row: int) -> bool:
        """Return whether a row has a score."""
        return row < self.scored

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the C columns."""
        return tuple(self.columns)

    @property
    def values(self) -> Floats:
        """The numbers of all columns, [n, C]."""
        return np.column_stack([column.values for column in self.columns.values()])

    @property
    def width(self) -> Floats:
        """The width of the scale of each column, [C]."""
        return np.array([column.width for column in self.columns.values()], dtype=np.float64)

    @property
    def ends(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value of each column."""
        return {name: column.ends for name, column in self.columns.items()}

    @property
    def collapse(self) -> Floats:
        """The fall of a row in each column that is a collapse, [C]: half the scale.

        How far the score of a checklist can be below 0 depends on the points of single rows; there it is 0.5.
        """
        if self.has_criteria:
            return np.full(len(self.names), 0.5)
        return self.width / 2


@dataclass(frozen=True, slots=True)
class _RowsOfRuns:
    """What is known of all m rows of both runs, see `ComparedRows`; those with a score come first."""

    run: Integers
    line: Integers
    identities: list[Identity]
    group: Integers
    errors: list[str]
    counts: Flags

    @classmethod
    def from_source(cls, source: Scores | JudgedPairs) -> _RowsOfRuns:
        """Return the rows with a score, and after them the other ones."""
        unscored = source.unscored
        assert unscored is not None  # the rows were read from runs
        return cls(
            run=np.append(source.run, unscored.run),
            line=np.array([lines[0] for lines in source.lines + unscored.lines], dtype=np.int64),
            identities=source.identities + unscored.identities,
            group=np.append(source.group, unscored.group),
            errors=[""] * len(source.run) + unscored.errors,
            counts=np.append(source.counts, unscored.counts),
        )


def _check_systems(only: Collection[str], systems: Collection[str]) -> None:
    """Check that every chosen system is one of those of the rows.

    Raises:
        UsageError: one is not.
    """
    for name in only:
        if name not in systems:
            choices = ", ".join(sorted(set(systems)))
            raise UsageError(f"`system` {name}: no row is of this system; give one of {choices}")


def _verdicts_of_scores(scores: Scores) -> dict[str, WrittenVerdicts]:
    """Return what the judge wrote in each aspect of rows of one response."""
    verdicts: dict[str, WrittenVerdicts] = {}
    for index, column in enumerate(scores.columns):
        if column.aspect in verdicts:
            continue  # another share of a label of this aspect
        labels = scores.nominal.get(column.aspect)
        if labels:
            numbers = scores.verdicts(column.aspect)
            texts = {float(number): shown(label) for number, label in enumerate(labels)}
        else:
            numbers = scores.integer[:, index]
            texts = {float(number): shown(value) for value, number in column.numbers.items()}
        verdicts[column.aspect] = WrittenVerdicts(numbers, texts, is_ordered=not labels)
    return verdicts


def _of_subject(values: Floats, is_reversed: Flags) -> Floats:
    """Return preferences or results of the responses that count, from those of the input's first ones, [n]."""
    return np.where(is_reversed, 1 - values, values)
