"""The rows of runs, read once for the statistics and the report: what each row is, and who wrote it."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers, RowArrays
from localjudge.errors import UsageError
from localjudge.matching import Identity, SystemNames
from localjudge.modes import ONE_ROW_PER_PROMPT
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Row
from localjudge.rows.columns import names_of, responses_of
from localjudge.rows.inputs import find_inputs
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import together
from localjudge.runs.reader import count_lines, notices_of_run, numbered_row_outcomes, read_notices
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import RunManifest
from localjudge.runs.warning_signs import WarningSigns
from localjudge.system.steps import Report, no_progress, with_progress

FAILED, RATIONALE_CUT, CANDIDATE_CUT = 1, 2, 4
"""The bits of the flags of a row."""
NumbersOf = Callable[[int, RowOutcome], Iterable[tuple[str, str, float]]]
"""Gives the numbers of a row of a run, as `RowOutcome.numbers` does: kind, column and number of each."""


class RowNumbers:
    """The numbers of n rows by kind and column; NaN where a row has none. A row can have any of the columns."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: defaultdict[tuple[str, str], tuple[array[int], array[float]]] = defaultdict(
            lambda: (array("i"), array("d"))
        )

    def add(self, numbers: Iterable[tuple[str, str, float]]) -> None:
        """Add the numbers of the next row."""
        for kind, name, number in numbers:
            rows, values = self._columns[kind, name]
            rows.append(self._rows)
            values.append(number)
        self._rows += 1

    def names(self, kind: str) -> list[str]:
        """Return the columns with numbers of this kind, in the order in which the rows have them."""
        return [name for known, name in self._columns if known == kind]

    def count(self, kind: str, name: str) -> int:
        """Return the number of rows with a number in a column."""
        return len(self._columns[kind, name][1]) if (kind, name) in self._columns else 0

    def column(self, kind: str, name: str) -> Floats:
        """Return the number of each row, [n]."""
        found = np.full(self._rows, np.nan)
        if (kind, name) in self._columns:
            rows, values = self._columns[kind, name]
            found[np.asarray(rows)] = values
        return found

    def table(self, kinds: Sequence[str], names: Sequence[str]) -> Floats:
        """Return the numbers of these columns of each kind, [n, kinds times columns]."""
        return np.column_stack([self.column(kind, name) for kind in kinds for name in names])


def rows_again(judged: RunRows, inputs: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
    """Yield the number of each judged row whose texts are found, and the row with its responses in its order.

    Args:
        judged: the rows.
        inputs: the files to read; if there are none, the files that the runs name and that still exist.

    Raises:
        UsageError: a file of `inputs` cannot be read.
    """
    find_inputs(inputs)
    shown = judged.shown
    for run, manifest in enumerate(judged.manifests):
        numbers = np.flatnonzero(judged.run == run).tolist()
        for place, row in rows_found(manifest, [shown[number][0] for number in numbers], inputs):
            _, is_swapped = shown[numbers[place]]
            yield numbers[place], replace(row, responses=row.responses[::-1]) if is_swapped else row


class RowSelection:
    """Which rows count: all, or those with a value in a column of the input; the systems are a column, too.

    Args:
        where: COLUMN=VALUE, a value that is not text as in JSON; None for all rows.
        of_old: choose among the rows of the first run; the others are read, but marked.

    Raises:
        UsageError: `where` is something else.
    """

    def __init__(self, where: str | None = None, of_old: bool = False) -> None:
        self._where, self.of_old = where, of_old
        self._column, _, self._value = (where or "").partition("=")
        if where is not None and not ("=" in where and self._column):
            raise UsageError(f"`where` {where}: write COLUMN=VALUE, such as topic=code")
        self._columns, self._values, self._rows = set[str](), set[str](), Counter[bool]()

    def takes(self, run: int, manifest: RunManifest, row: RowOutcome) -> bool:
        """Return whether a row counts."""
        if self._where is None or (self.of_old and run):
            return True
        columns = row.first.columns
        found = [columns[self._column]] if self._column in columns else _systems_in(self._column, manifest, row)
        written = [each if isinstance(each, str) else json.dumps(each) for each in found]
        self._columns.update(columns, ["system"] * any(row.systems))
        self._values.update(written[: 10 - len(self._values)])
        is_chosen = self._value in (written or ["null"])
        self._rows[is_chosen] += 1
        return is_chosen

    @property
    def notices(self) -> tuple[str, ...]:
        """On how many rows the numbers are, unless all rows count.

        Raises:
            UsageError: no row counts.
        """
        said = f"only rows with {self._where}: {self._rows[True]:,} of {self._rows.total():,}"
        if self._where is None or (self._values and self._rows[True]):
            return (said,) * (self._where is not None)
        what = "value; its values are" if self._values else "column; a run keeps what its prompt does not use:"
        seen = ", ".join(each[:60] for each in sorted(self._values or self._columns)[:10])
        raise UsageError(f"`where` {self._where}: no row has this {what} {seen or 'none'}")


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
        kept = self.group[scored]
        others = self.take(np.setdiff1d(np.arange(len(self)), scored))
        numbers = dict(zip(kept.tolist(), first_seen(kept).tolist(), strict=True))
        group = np.array([numbers.get(number, -1) for number in others.group.tolist()], dtype=np.int32)
        return replace(others, group=group, errors=[error or "no score" for error in others.errors])

    def with_scores(self, scored: NDArray[np.intp]) -> dict[str, Any]:
        """Return the fields of a record of the rows that have a score: their own, and the others as `unscored`.

        Their instructions are numbered without gaps.
        """
        kept = self.take(scored)
        return {
            **{each.name: getattr(kept, each.name) for each in fields(kept)},
            "group": first_seen(kept.group),
            "failed": len(self) - len(self.judged),
            "unscored": self.without_score(scored),
        }

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of the runs, and the warning signs in their rows, or in those of them that count."""
        of_runs = [read_notices(folder) for folder in self.folders]
        if self.selected:
            of_runs = [
                notices_of_run(folder) + signs.lines
                for folder, signs in zip(self.folders, self.signs, strict=True)
            ]
        return self.selected + together(run_names(self.folders), of_runs)

    def system_names(self, unnamed: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the names of the systems of each row in tables of all runs.

        Args:
            unnamed: the name for a system that is not known, for each response of a row.
        """
        found, _ = self.names.names()
        return [
            tuple(
                found.get((run, system)) or without
                for system, without in zip(identity.systems, unnamed, strict=True)
            )
            for run, identity in zip(self.run.tolist(), self.identities, strict=True)
        ]


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
    names = SystemNames(run_names(folders), [manifest.judge for manifest in manifests])
    values, numbers = RowNumbers(), dict[str, int]()
    signs = tuple(WarningSigns(manifest.rubric, manifest.mass_is_lower_bound) for manifest in manifests)
    runs, groups, flags, errors = array("i"), array("i"), array("B"), list[str]()
    lengths, overlap = array("d"), array("d")
    lines, shown = list[tuple[int, ...]](), list[tuple[str | None, bool]]()
    ids, identities, counts = list[str](), list[Identity](), list[bool]()
    join = ONE_ROW_PER_PROMPT.join(manifests[0].rubric.aspects, 1) if by_criterion else None
    outcomes = (
        (run, places, outcome)
        for run, (folder, manifest) in enumerate(zip(folders, manifests, strict=True))
        for places, outcome in numbered_row_outcomes(folder, manifest, join)
    )
    selection = where or RowSelection()
    for run, places, outcome in with_progress(outcomes, report, sum(map(count_lines, folders))):
        first, is_chosen = outcome.first, selection.takes(run, manifests[run], outcome)
        if not (is_chosen or selection.of_old):
            continue
        counts.append(is_chosen)
        values.add(numbers_of(run, outcome))
        runs.append(run)
        lines.append(places)
        ids.append(outcome.id)
        identities.append(identity := Identity.from_outcome(outcome))
        names.add(run, identity)
        groups.append(numbers.setdefault(first.group or f"{run}\0{first.source}", len(numbers)))
        shown.append((first.digest, first.swapped))
        read_first = (first.characters, first.opponent_characters)[: len(outcome.systems)]
        characters = read_first[::-1] if first.swapped else read_first
        lengths.extend(np.nan if length is None else length for length in characters)
        overlap.append(np.nan if first.reference_overlap is None else first.reference_overlap)
        flags.append(_flags(outcome))
        errors.append((outcome.error or "").replace(f"{first.source}: ", ""))
        signs[run].add(outcome)
    rows = RunRows(
        selected=selection.notices,  # first: refuses a selection without rows
        folders=tuple(folders),
        manifests=tuple(manifests),
        names=names,
        run=np.array(runs, dtype=np.int32),
        lines=lines,
        ids=ids,
        identities=identities,
        group=np.array(groups, dtype=np.int32),
        shown=shown,
        lengths=np.array(lengths).reshape(len(ids), -1),
        overlap=np.array(overlap),
        flags=np.array(flags, dtype=np.uint8),
        errors=errors,
        counts=np.array(counts, dtype=np.bool_),
        signs=signs,
    )
    return rows, values


def _systems_in(column: str, manifest: RunManifest, row: RowOutcome) -> list[str]:
    """Return the systems of a row that are in a column; the column `system` has both of a pair."""
    used, renamed = manifest.rubric.fields, manifest.last_start.columns
    return [
        system
        for field, system in zip(responses_of(used).values(), row.systems, strict=True)
        if system and any(column in (name, *names_of(name, renamed, used)) for name in ("system", field))
    ]


def _flags(outcome: RowOutcome) -> int:
    judged = outcome.judged
    return (
        FAILED * (outcome.error is not None)
        + RATIONALE_CUT * any(each.rationale_cut for each in judged)
        + CANDIDATE_CUT * any(each.candidate_cut > 0 for each in judged)
    )


def first_seen(group: Integers) -> Integers:
    """Return the numbers of groups without gaps, in the order of their first rows, [n]."""
    _, first, places = np.unique(group, return_index=True, return_inverse=True)
    numbers: Integers = np.argsort(np.argsort(first))[places].astype(np.int32)
    return numbers


def common_rubric(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> Rubric:
    """Return the rubric of the first run.

    Raises:
        UsageError: another run is of another mode, or has other aspects or another scale.
    """
    rubrics = [manifest.rubric for manifest in manifests]
    first = rubrics[0]
    for folder, rubric in zip(folders, rubrics, strict=True):
        if rubric.mode is not first.mode:
            both = f"{folders[0]}: {first.mode.judges}, and {folder} {rubric.mode.judges}"
            raise UsageError(f"{both}; give runs of one kind")
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
    paths = [folder.resolve() for folder in folders]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise UsageError(f"{', '.join(map(str, folders))}: the same run twice")
