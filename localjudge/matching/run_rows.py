"""The rows of runs, read once for the statistics and the report: what each row is, and who wrote it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers, RowArrays
from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.row_numbers import RowNumbers
from localjudge.matching.row_selection import RowSelection
from localjudge.matching.system_names import SystemNames
from localjudge.modes import ONE_ROW_PER_PROMPT
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Outcome, Row
from localjudge.rows.inputs import find_inputs
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import together
from localjudge.runs.reader import count_lines, notices_of_run, numbered_row_outcomes, read_notices
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import RunManifest
from localjudge.runs.warning_signs import WarningSigns
from localjudge.system.steps import Report, no_progress, with_progress

# The bits of the flags of a row.
FAILED = 1
RATIONALE_CUT = 2
CANDIDATE_CUT = 4
NumbersOf = Callable[[int, RowOutcome], Iterable[tuple[str, str, float]]]
"""Gives the numbers of a row of a run, as `RowOutcome.numbers` does: kind, column and number of each."""


@dataclass(frozen=True, slots=True)
class RunRows(RowArrays):
    """The n rows of one or more runs, judged or failed, in the order of their lines.

    Attributes:
        folders: the run directories.
        manifests: their manifests.
        names: the systems of all runs.
        run: the index of each row's run, [n].
        lines: the lines of its prompts, from 0.
        ids: its id.
        identities: what identifies it.
        group: the number of its instruction, from 0, in the order of the first row of each, [n]. Equal
            instructions (with equal references) share a number across systems and runs.
        shown: the digest of the texts of its first prompt, and whether that prompt shows the responses of a
            pair in the reverse of the input's order.
        lengths: the characters of its responses in the input's order, [n, responses]; NaN if they were not
            readable.
        overlap: the overlap of its response's words with those of the reference, [n]; NaN without one.
        flags: a sum of `FAILED` and the other bits, [n].
        errors: why it has no score; empty if it has one.
        counts: whether it counts, [n]; only rows of OLD that are compared do not.
        signs: the warning signs of each run.
        selected: which rows count, if not all do; a notice.
    """

    folders: tuple[Path, ...]
    manifests: tuple[RunManifest, ...]
    names: SystemNames
    run: Integers
    lines: list[tuple[int, ...]]
    ids: list[str]
    identities: list[Identity]
    group: Integers
    shown: list[tuple[str | None, bool]]
    lengths: Floats
    overlap: Floats
    flags: NDArray[np.uint8]
    errors: list[str]
    counts: Flags
    signs: tuple[WarningSigns, ...]
    selected: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def where(self) -> str:
        """Paths of the runs, for a message."""
        return ", ".join(map(str, self.folders))

    @property
    def judged(self) -> NDArray[np.intp]:
        """The numbers of the rows that did not fail."""
        return np.flatnonzero(self.flags & FAILED == 0)

    def without_score(self, scored: NDArray[np.intp]) -> Self:
        """Return the other rows than those that have a score, each with the reason in `errors`.

        Their instructions have the numbers of those of the rows with a score, in their order; -1 for another
        one.
        """
        unscored = self.take(np.setdiff1d(np.arange(len(self)), scored))
        group_of_scored = self.group[scored]
        new_numbers = dict(zip(group_of_scored.tolist(), first_seen(group_of_scored).tolist(), strict=True))
        group = np.array([new_numbers.get(number, -1) for number in unscored.group.tolist()], dtype=np.int32)
        return replace(unscored, group=group, errors=[error or "no score" for error in unscored.errors])

    def with_scores(self, scored: NDArray[np.intp]) -> dict[str, Any]:
        """Return the fields of a record of the rows that have a score, with the other rows as `unscored`.

        Their instructions are numbered without gaps.
        """
        rows = self.take(scored)
        values = {field.name: getattr(rows, field.name) for field in fields(rows)}
        values["group"] = first_seen(rows.group)
        values["failed"] = len(self) - len(self.judged)
        values["unscored"] = self.without_score(scored)
        return values

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of the runs, and the warning signs in their rows, or in those of them that count."""
        notices = []
        for folder, signs in zip(self.folders, self.signs, strict=True):
            if self.selected:
                notices.append(notices_of_run(folder) + signs.lines)
            else:
                notices.append(read_notices(folder))
        return self.selected + together(run_names(self.folders), notices)

    def system_names(self, unnamed: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the names of the systems of each row in tables of all runs.

        Args:
            unnamed: the name for a system that is not known, for each response of a row.
        """
        names, _ = self.names.names()
        names_of_rows = []
        for run, identity in zip(self.run.tolist(), self.identities, strict=True):
            names_of_row = []
            for system, default in zip(identity.systems, unnamed, strict=True):
                name = names.get((run, system))
                names_of_row.append(name or default)
            names_of_rows.append(tuple(names_of_row))
        return names_of_rows


class RowsBuilder:
    """Collects the rows of runs, which are added one by one, in the order of their lines.

    Args:
        folders: the run directories.
        manifests: their manifests.
    """

    def __init__(self, folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
        self._folders = tuple(folders)
        self._manifests = tuple(manifests)
        self._names = SystemNames(run_names(folders), [manifest.judge for manifest in manifests])
        self._signs = tuple(
            WarningSigns(manifest.rubric, manifest.mass_is_lower_bound) for manifest in manifests
        )
        self._number_of_group: dict[str, int] = {}
        # The fields of `RunRows`, a value for each row; of `lengths`, one for each response.
        self._run = array("i")
        self._lines: list[tuple[int, ...]] = []
        self._ids: list[str] = []
        self._identities: list[Identity] = []
        self._group = array("i")
        self._shown: list[tuple[str | None, bool]] = []
        self._lengths = array("d")
        self._overlap = array("d")
        self._flags = array("B")
        self._errors: list[str] = []
        self._counts: list[bool] = []

    def add(self, run: int, outcome: RowOutcome, *, lines: tuple[int, ...], counts: bool) -> None:
        """Add a row.

        Args:
            run: the number of its run.
            outcome: its outcome.
            lines: the lines of its prompts, from 0.
            counts: whether it counts.
        """
        first = outcome.first
        identity = Identity.from_outcome(outcome)
        self._run.append(run)
        self._lines.append(lines)
        self._ids.append(outcome.id)
        self._identities.append(identity)
        self._group.append(self._group_number(run, first))
        self._shown.append((first.digest, first.swapped))
        self._lengths.extend(_number_or_nan(length) for length in outcome.response_lengths)
        self._overlap.append(_number_or_nan(first.reference_overlap))
        self._flags.append(_flags(outcome))
        self._errors.append((outcome.error or "").replace(f"{first.source}: ", ""))
        self._counts.append(counts)
        self._names.add(run, identity)
        self._signs[run].add(outcome)

    def _group_number(self, run: int, first: Outcome) -> int:
        """Return the number of the instruction of a row; an unreadable row has one of its own."""
        group = first.group or f"{run}\0{first.source}"
        return self._number_of_group.setdefault(group, len(self._number_of_group))

    def rows(self, selected: tuple[str, ...]) -> RunRows:
        """Return the rows that were added.

        Args:
            selected: which rows count, if not all do; a notice.
        """
        return RunRows(
            folders=self._folders,
            manifests=self._manifests,
            names=self._names,
            run=np.array(self._run, dtype=np.int32),
            lines=self._lines,
            ids=self._ids,
            identities=self._identities,
            group=np.array(self._group, dtype=np.int32),
            shown=self._shown,
            lengths=np.array(self._lengths).reshape(len(self._ids), -1),
            overlap=np.array(self._overlap),
            flags=np.array(self._flags, dtype=np.uint8),
            errors=self._errors,
            counts=np.array(self._counts, dtype=np.bool_),
            signs=self._signs,
            selected=selected,
        )


def _number_or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _flags(outcome: RowOutcome) -> int:
    """Return the flags of a row."""
    judged = outcome.judged
    flags = 0
    if outcome.error is not None:
        flags |= FAILED
    if any(prompt.rationale_cut for prompt in judged):
        flags |= RATIONALE_CUT
    if any(prompt.candidate_cut > 0 for prompt in judged):
        flags |= CANDIDATE_CUT
    return flags


def read_judged_rows(
    folders: Sequence[Path],
    manifests: Sequence[RunManifest],
    numbers_of: NumbersOf = lambda run, row: row.numbers(),
    report: Report = no_progress,
    by_criterion: bool = False,
    where: RowSelection | None = None,
) -> tuple[RunRows, RowNumbers]:
    """Return the rows of runs of one mode, and their numbers.

    Args:
        folders: the run directories.
        manifests: their manifests.
        numbers_of: gives the numbers of each row, in the order of the rows.
        report: receives the number of rows that were read, and the number of all lines.
        by_criterion: a row with criteria counts as one for each.
        where: the rows that count; by default all.

    Raises:
        RunMismatchError: a line does not belong to its run.
        UsageError: a run is given twice, or no row counts.
    """
    selection = where or RowSelection()
    builder = RowsBuilder(folders, manifests)
    numbers = RowNumbers()
    outcomes = _outcomes(folders, manifests, by_criterion=by_criterion)
    total = sum(count_lines(folder) for folder in folders)
    for run, lines, outcome in with_progress(outcomes, report, total=total):
        counts = selection.includes(run, manifests[run], row=outcome)
        if counts or selection.of_old:
            numbers.add(numbers_of(run, outcome))
            builder.add(run, outcome, lines=lines, counts=counts)
    selection.refuse_none()
    return builder.rows(selection.notices), numbers


def _outcomes(
    folders: Sequence[Path], manifests: Sequence[RunManifest], *, by_criterion: bool
) -> Iterator[tuple[int, tuple[int, ...], RowOutcome]]:
    """Yield the outcomes of the rows of runs, each after the number of its run and of its lines, from 0.

    The arguments are those of `read_judged_rows`.
    """
    join = None
    if by_criterion:
        join = ONE_ROW_PER_PROMPT.join(manifests[0].rubric.aspects, 1)
    for run, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
        for lines, outcome in numbered_row_outcomes(folder, manifest, join=join):
            yield run, lines, outcome


def rows_again(judged: RunRows, inputs: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
    """Yield the number of each judged row whose texts are found, and the row with its responses in its order.

    Args:
        judged: the rows.
        inputs: the files to read; if there are none, the files that the runs name and that still exist.

    Raises:
        UsageError: a file of `inputs` cannot be read.
    """
    find_inputs(inputs)
    for run, manifest in enumerate(judged.manifests):
        numbers = np.flatnonzero(judged.run == run).tolist()
        digests = [judged.shown[number][0] for number in numbers]
        for index, row in rows_found(manifest, digests, moved=inputs):
            number = numbers[index]
            _, is_swapped = judged.shown[number]
            if is_swapped:
                row = replace(row, responses=row.responses[::-1])
            yield number, row


def first_seen(group: Integers) -> Integers:
    """Return the numbers of groups without gaps, in the order of their first rows, [n]."""
    _, first_rows, index = np.unique(group, return_index=True, return_inverse=True)
    number_of_index = np.argsort(np.argsort(first_rows))
    numbers: Integers = number_of_index[index].astype(np.int32)
    return numbers


def common_rubric(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> Rubric:
    """Return the rubric of the first run.

    Raises:
        UsageError: another run is of another mode, or has other aspects or another scale.
    """
    first = manifests[0].rubric
    for folder, manifest in zip(folders, manifests, strict=True):
        rubric = manifest.rubric
        if rubric.mode is not first.mode:
            raise UsageError(
                f"{folders[0]}: {first.mode.judges}, and {folder} {rubric.mode.judges}; give runs of one kind"
            )
        if rubric.score_columns != first.score_columns:
            raise UsageError(
                f"{folder}: judged on {_described(rubric)}, but {folders[0]} on {_described(first)}; "
                "give runs with the same aspects and scale"
            )
    return first


def _described(rubric: Rubric) -> str:
    return ", ".join(f"{name} ({aspect})" for name, aspect in rubric.aspects.items())


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return names for the runs: the shortest path endings that differ."""
    parts = [folder.resolve().parts for folder in folders]
    longest = max(len(of_path) for of_path in parts)
    for length in range(1, longest + 1):
        names = ["/".join(of_path[-length:]) for of_path in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError(f"{', '.join(map(str, folders))}: the same run twice")
