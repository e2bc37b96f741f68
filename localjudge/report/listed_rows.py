"""The rows of a page as columns: a few numbers for each, and the places of its lines and its text.

A run of 50,000 judgements is a hundred megabytes of text. Memory holds only the numbers that are counted,
filtered or sorted. A row's lines and texts are read again when it is written to the page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats
from localjudge.errors import UsageError
from localjudge.matching.run_rows import FAILED, common_rubric, read_judged_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Judgement, Outcome, Row
from localjudge.records.outcome_columns import OVERALL, from_bytes
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.reread_texts import RowTextStore
from localjudge.runs.run_files import JUDGEMENTS
from localjudge.runs.run_manifest import read_manifest
from localjudge.studies.calibration import IntervalsOf
from localjudge.system.durable import LineStore

_TYPED = {
    "i2": ("Int16Array", "<i2"), "i4": ("Int32Array", "<i4"), "u1": ("Uint8Array", "u1"),
    "f8": ("Float32Array", "<f4"),
}  # fmt: skip
"""The page's array of a numpy type, and the type of its bytes."""
SNIPPET = 160
"""Number of characters of an instruction that the list shows."""
ORDERS_DIFFER = 8
"""The bit of a pair's flags, besides those of all rows: in some aspect the orders say different things."""
_DECIDES = "decides"
"""The kind of the number that decides about a row."""
_DIGITS = 6
"""Number of decimals on the page."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row as the page reads it.

    Attributes:
        instruction: the number of its instruction.
        text: the texts of its row, if they were found.
        values: what its view shows.
        characters: about how many characters its texts have.
    """

    instruction: int
    text: Row | None
    values: Sequence[Any]
    characters: int


@dataclass(frozen=True, slots=True)
class PageColumns:
    """N rows with R responses each, in A aspects, by instruction, in the order of the first row of each.

    Attributes:
        series: int16 (R, N), the index of the system of each response.
        group: int32 (N,), the number of the instruction; rows with equal instruction and reference share it.
        scores: int16 (A, M), the place of each answer among the values of its aspect, or of a pair's winner in
            `WINNERS`; -1 if it failed. M is N, or the number of criteria of all rows.
        expected: float64 (A, M), the expected score, or the preference for the first response; NaN if it is
            unknown, or the aspect has no order.
        confidence: float64 (A, M), the probability of the score; NaN if it is unknown.
        agree: float64 (A, M), 1 if both orders say the same, a tie or a response, 0 if not; NaN for one order.
        overall: float64 (N,), the number that decides which row is better; NaN if the row failed, or no aspect
            is ordered.
        length: int32 (R, N), characters of the responses; -1 if the texts were not found.
        flags: uint8 (N,), a sum of `FAILED` and the other bits.
        criteria: int32 (N + 1,), where the criteria of each row begin; None for rows without criteria.
    """

    series: NDArray[np.int16]
    group: NDArray[np.int32]
    scores: NDArray[np.int16]
    expected: NDArray[np.float64]
    confidence: NDArray[np.float64]
    agree: NDArray[np.float64]
    overall: NDArray[np.float64]
    length: NDArray[np.int32]
    flags: NDArray[np.uint8]
    criteria: NDArray[np.int32] | None


class _ListedAnswers:
    """Collects the answers of rows, and the number that decides about each.

    Args:
        rubric: the rubric of the first run.

    Attributes:
        details: what was counted of rows of the rubric's mode.
    """

    def __init__(self, rubric: Rubric) -> None:
        self._aspects = len(rubric.aspects)
        self.details = rubric.mode.details(rubric.aspects)
        self._place, self._size = array("h"), array("i")
        self._numbers = array("d")
        self._differ = array("B")

    def add(self, run: int, row: RowOutcome) -> Iterable[tuple[str, str, float]]:
        """Add the answers of a row of a run, and return its numbers and the one that decides about it."""
        answers = row.list_answers()
        self.details.add(row)
        self._differ.append(ORDERS_DIFFER * any(each.agree == 0 for each in answers))
        self._size.append(len(answers) // self._aspects)
        for each in answers:
            self._place.append(each.value_index)
            self._numbers.extend((each.expected, each.confidence, each.agree))
        return [*row.numbers(), (_DECIDES, OVERALL, row.overall)]

    def columns(self, order: NDArray[np.intp], by_criterion: bool) -> dict[str, Any]:
        """Return the columns of the answers.

        Args:
            order: the numbers of the rows in the order of the page, [N].
            by_criterion: rows have an answer for each of their criteria.
        """
        sizes = np.asarray(self._size, np.int64)
        ends = np.cumsum(sizes[order])
        begins = np.repeat((np.cumsum(sizes) - sizes)[order] - (ends - sizes[order]), sizes[order])
        chosen = begins + np.arange(len(begins))
        expected, confidence, agree = np.reshape(self._numbers, (-1, self._aspects, 3))[chosen].transpose(
            2, 1, 0
        )
        return {
            "scores": np.reshape(self._place, (-1, self._aspects))[chosen].T.astype(np.int16),
            "expected": expected,
            "confidence": confidence,
            "agree": agree,
            "differ": np.asarray(self._differ)[order],
            "criteria": np.append(0, ends).astype(np.int32) if by_criterion else None,
        }


class ListedRows:
    """The rows of a page: what is judged in runs with the same aspects and scale.

    The rows stand by instruction, and the instructions in the order of their first row. A row without a line
    for each of its prompts is not listed.

    Args:
        folders: the run directories.
        moved: the input files, if they were moved after the runs.

    Attributes:
        folders: the run directories.
        manifests: the content of each `run.json`.
        rubric: the rubric of the first run.
        read: the rows and their numbers in the order of the lines, for statistics.
        rows: the rows in the order of the page.
        lengths: int32 (N, R), characters of the R responses of each row; -1 if its texts were not found.
        snippets: the beginning of each instruction, or the id of its first row if the text was not found.
        series: the systems.
        columns: the numbers.
        details: what was counted of rows of their mode.
        notes: remarks on their names.
        problems: the reasons why texts are missing.
        intervals_of: what gives the intervals of an outcome's scores; None without intervals.

    Raises:
        UsageError: a folder is not a run, the runs differ in their mode, aspects or scale, or a run was written
            while it was read.
    """

    intervals_of: IntervalsOf | None = None
    details: Any

    def __init__(self, folders: Sequence[Path], moved: Sequence[str] = ()) -> None:
        self.folders = list(folders)
        self.manifests = [read_manifest(folder) for folder in folders]
        self.rubric = common_rubric(folders, self.manifests)
        self.mode = self.rubric.mode
        answers = _ListedAnswers(self.rubric)
        with ExitStack() as stack:
            files = [folder / JUDGEMENTS for folder in folders]
            self._lines = [stack.enter_context(LineStore.of_file(file)) for file in files]
            rows, numbers = self.read = read_judged_rows(folders, self.manifests, answers.add)
            for file, lines in zip(files, self._lines, strict=True):
                if not lines.is_in(file):
                    raise UsageError(f"{file}: was written again while it was read; repeat the command")
            _, self.notes = rows.names.names()
            order = np.argsort(rows.group, kind="stable")
            self.rows = rows.take(order)
            self._texts = [
                stack.enter_context(RowTextStore(manifest, self._digests(run), moved))
                for run, manifest in enumerate(self.manifests)
            ]
            self.problems = [
                f"{folder}: {problem}"
                for folder, texts in zip(folders, self._texts, strict=True)
                for problem in texts.problems
            ]
            self.lengths, self.snippets = self._measured()
            self.series, self.columns = self._columns(answers, order, numbers.column(_DECIDES, OVERALL)[order])
            self.details = answers.details
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[str]:
        return self.rows.ids

    @property
    def compares_systems(self) -> bool:
        """Whether systems are compared: of two responses, in a judged row with two systems that are known."""
        series = self.columns.series
        unnamed = [place for place, name in enumerate(self.series) if name in self.mode.unnamed]
        known = ~np.isin(series, unnamed).any(axis=0) & (self.columns.flags & FAILED == 0)
        return len(series) == 1 or bool((known & (series[0] != series[-1])).any())

    @property
    def found(self) -> int:
        """Number of rows whose texts were found in the inputs."""
        return int((self.lengths[:, 0] >= 0).sum())

    def _columns(
        self, answers: _ListedAnswers, order: NDArray[np.intp], overall: Floats
    ) -> tuple[list[str], PageColumns]:
        """Return the names of the systems, and the columns; the answers are in the order of the lines."""
        unnamed = self.mode.unnamed
        named = self.rows.system_names(unnamed)
        series = sorted({name for names in named for name in names}, key=lambda name: (name in unnamed, name))
        rank = {name: place for place, name in enumerate(series)}
        found = answers.columns(order, self.mode.criteria is not None)
        return series, PageColumns(
            series=np.array([[rank[name] for name in names] for names in named], np.int16)
            .reshape(-1, len(self.mode.responses))
            .T,
            group=self.rows.group.astype(np.int32),
            overall=overall,
            length=self.lengths.T,
            flags=self.rows.flags + found.pop("differ"),
            **found,
        )

    def arrays(self) -> Mapping[str, tuple[str, bytes]]:
        """Return the columns as the page's typed arrays; NaN means unknown."""
        found = {field.name: getattr(self.columns, field.name) for field in fields(self.columns)}
        return {name: typed(np.round(values, _DIGITS)) for name, values in found.items() if values is not None}

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the rows as the page reads them, in the order of the columns."""
        join = self.rubric.mode.join(self.rubric.aspects, 1)
        for number, group in enumerate(self.rows.group.tolist()):
            row, text = join.joined(self._outcomes(number)), self.text(number)
            responses, prompts = (
                self.responses(number, text),
                [self._prompt(row, each) for each in row.prompts],
            )
            intervals = self.intervals_of(row.first) if self.intervals_of else None
            shown = [text and responses, row.error, prompts, row.first.source, row.first.columns, intervals]
            size = sum(len(said or "") for said in responses)
            size += sum(len(said) for each in row.judged for said in each.texts.values())
            yield PageRow(group, text, [*shown, [*row.result_lines()]], size)

    def _prompt(self, row: RowOutcome, outcome: Outcome) -> dict[str, Any]:
        """Return what the page shows of a prompt and its answer; values that are not there are left out."""
        shown: dict[str, Any] = {"swapped": outcome.swapped or None, "error": outcome.error}
        if outcome.criterion:
            shown["criterion"] = outcome.criterion.model_dump(exclude={"part", "parts"})
        if isinstance(outcome, Judgement):
            values = {name: [*aspect.values.values()] for name, aspect in self.rubric.aspects.items()}
            shares = outcome.probabilities.items()
            shown |= {
                "scores": {name: known.index(outcome.scores[name]) for name, known in values.items()},
                "probabilities": {name: [round(share, 4) for share in each] for name, each in shares} or None,
                "texts": outcome.texts,
                "rationale_cut": outcome.rationale_cut or None,
                "candidate_cut": outcome.candidate_cut or None,
                "thoughts": outcome.thoughts,
            }
        return {name: value for name, value in shown.items() if value is not None}

    def _digests(self, run: int) -> list[str | None]:
        return [self.rows.shown[row][0] for row in np.flatnonzero(self.rows.run == run).tolist()]

    def text(self, row: int) -> Row | None:
        """Return the texts of a row, by its number; None if they were not found."""
        run = int(self.rows.run[row])
        return self._texts[run].get(self.rows.shown[row][0])

    def responses(self, row: int, text: Row | None) -> tuple[str | None, ...]:
        """Return the responses of a row in the input's order; None for those that were not found."""
        count = len(self.mode.responses)
        return (None,) * count if text is None else text.texts_in_input_order(self.rows.shown[row][1])

    def _outcomes(self, row: int) -> list[Outcome]:
        """Return the outcomes of a row's prompts, by its number."""
        run = int(self.rows.run[row])
        columns = self.manifests[run].rubric.columns
        return [from_bytes(self._lines[run][line], columns) for line in self.rows.lines[row]]

    def _measured(self) -> tuple[NDArray[np.int32], list[str]]:
        lengths, snippets = array("i"), dict[int, str]()
        for row, group in enumerate(self.rows.group.tolist()):
            text = self.text(row)
            lengths.extend(-1 if each is None else len(each) for each in self.responses(row, text))
            beginning = text and (text.instruction or next(iter(text.fields.values()), ""))
            snippets.setdefault(group, beginning[:SNIPPET] if beginning else self.ids[row])
        return np.asarray(lengths, np.int32).reshape(-1, len(self.mode.responses)), list(snippets.values())


def typed(values: NDArray[Any]) -> tuple[str, bytes]:
    """Return the page's typed array of these numbers, little-endian: its name, and its bytes."""
    name, code = _TYPED[values.dtype.kind + str(values.dtype.itemsize)]
    return name, values.astype(code).tobytes()
