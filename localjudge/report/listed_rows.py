"""The rows of a page as columns: a few numbers for each, and where its lines and its texts are.

A run of 50,000 judgements is a hundred megabytes of text. Memory holds only the numbers that are counted,
filtered or sorted. A row's lines and texts are read again when it is written to the page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localjudge.errors import UsageError
from localjudge.matching.run_rows import FAILED, common_rubric, read_judged_rows
from localjudge.records import Outcome, Row
from localjudge.records.outcome_columns import from_bytes
from localjudge.report.listed_answers import AnswerArrays, ListedAnswers
from localjudge.report.page_columns import PageColumns
from localjudge.report.page_row import PageRow
from localjudge.runs.reread_texts import RowTextStore
from localjudge.runs.run_files import JUDGEMENTS
from localjudge.runs.run_manifest import read_manifest
from localjudge.studies.calibration import IntervalsOf
from localjudge.system.durable import LineStore

SNIPPET = 160
"""Number of characters of an instruction that the list shows."""


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
        mode: its mode.
        rows_by_line: the rows in the order of the lines, for statistics.
        numbers_by_line: their numbers, in the same order.
        rows: the rows in the order of the page.
        lengths: int32 (N, R), characters of the R responses of each row; -1 if its texts were not found.
        snippets: the beginning of each instruction, or the id of its first row if the text was not found.
        series: the systems.
        columns: the numbers.
        details: what was counted of rows of their mode.
        notes: remarks on their names.
        problems: the reasons why texts are missing.

    Raises:
        UsageError: a folder is not a run, the runs differ in their mode, aspects or scale, or a run was written
            while it was read.
    """

    def __init__(self, folders: Sequence[Path], moved: Sequence[str] = ()) -> None:
        self.folders = list(folders)
        self.manifests = [read_manifest(folder) for folder in folders]
        self.rubric = common_rubric(folders, self.manifests)
        self.mode = self.rubric.mode
        with ExitStack() as stack:
            files = [folder / JUDGEMENTS for folder in folders]
            self._lines = [stack.enter_context(LineStore.of_file(file)) for file in files]
            answers = ListedAnswers(self.rubric)
            self.rows_by_line, self.numbers_by_line = read_judged_rows(
                folders, self.manifests, numbers_of=answers.add
            )
            self.details = answers.details
            for file, lines in zip(files, self._lines, strict=True):
                if not lines.is_in(file):
                    raise UsageError(f"{file}: was written again while it was read; repeat the command")
            _, self.notes = self.rows_by_line.names.names()
            order = np.argsort(self.rows_by_line.group, kind="stable")
            self.rows = self.rows_by_line.take(order)
            self._texts = [
                stack.enter_context(RowTextStore(manifest, self._digests(run), moved=moved))
                for run, manifest in enumerate(self.manifests)
            ]
            self.problems = self._problems()
            self.lengths, self.snippets = self._lengths_and_snippets()
            names = self.rows.system_names(self.mode.unnamed)
            self.series = self._series(names)
            self.columns = self._columns(names, answers.arrays(order))
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
        if len(series) == 1:
            return True
        unnamed = [index for index, name in enumerate(self.series) if name in self.mode.unnamed]
        has_names = ~np.isin(series, unnamed).any(axis=0)
        is_judged = self.columns.flags & FAILED == 0
        differs = series[0] != series[-1]
        return bool((has_names & is_judged & differs).any())

    @property
    def rows_with_text(self) -> int:
        """Number of rows whose texts were found in the inputs."""
        return int((self.lengths[:, 0] >= 0).sum())

    def page_rows(self, intervals_of: IntervalsOf | None = None) -> Iterator[PageRow]:
        """Yield the rows as the page reads them, in the order of the columns.

        Args:
            intervals_of: returns the intervals of an outcome's scores; None for a page without intervals.
        """
        join = self.mode.join(self.rubric.aspects, 1)
        for number, instruction in enumerate(self.rows.group.tolist()):
            text = self.text(number)
            yield PageRow.from_outcome(
                join.joined(self._outcomes(number)),
                instruction=instruction,
                text=text,
                responses=self.responses(number, text),
                intervals_of=intervals_of,
            )

    def text(self, row: int) -> Row | None:
        """Return the texts of a row, by its number; None if they were not found."""
        run = int(self.rows.run[row])
        digest, _ = self.rows.shown[row]
        return self._texts[run].get(digest)

    def responses(self, row: int, text: Row | None) -> tuple[str | None, ...]:
        """Return the responses of a row in the input's order; None for those that were not found."""
        if text is None:
            return (None,) * len(self.mode.responses)
        _, is_swapped = self.rows.shown[row]
        return text.texts_in_input_order(is_swapped)

    def _outcomes(self, row: int) -> list[Outcome]:
        """Return the outcomes of a row's prompts, by its number."""
        run = int(self.rows.run[row])
        lines = self._lines[run]
        columns = self.manifests[run].rubric.columns
        return [from_bytes(lines[line], columns) for line in self.rows.lines[row]]

    def _digests(self, run: int) -> list[str | None]:
        """Return the digests of the texts of a run's rows."""
        digests = []
        for row in np.flatnonzero(self.rows.run == run).tolist():
            digest, _ = self.rows.shown[row]
            digests.append(digest)
        return digests

    def _problems(self) -> list[str]:
        """Return the reasons why texts are missing, each after its run directory."""
        problems = []
        for folder, texts in zip(self.folders, self._texts, strict=True):
            problems += [f"{folder}: {problem}" for problem in texts.problems]
        return problems

    def _lengths_and_snippets(self) -> tuple[NDArray[np.int32], list[str]]:
        """Return the lengths of the responses, and the beginning of each instruction; texts are read once."""
        lengths = array("i")
        snippets: dict[int, str] = {}
        for row, group in enumerate(self.rows.group.tolist()):
            text = self.text(row)
            for response in self.responses(row, text):
                lengths.append(-1 if response is None else len(response))
            if group not in snippets:
                snippet = _snippet(text)
                snippets[group] = snippet if snippet else self.ids[row]
        table = np.asarray(lengths, np.int32).reshape(-1, len(self.mode.responses))
        return table, list(snippets.values())

    def _series(self, names: Sequence[tuple[str, ...]]) -> list[str]:
        """Return the systems in the order of their names; those that are not known are the last.

        Args:
            names: the names of the systems of each row.
        """
        unnamed = self.mode.unnamed
        systems: set[str] = set()
        for names_of_row in names:
            systems.update(names_of_row)
        return sorted(systems, key=lambda name: (name in unnamed, name))

    def _columns(self, names: Sequence[tuple[str, ...]], answers: AnswerArrays) -> PageColumns:
        """Return the columns.

        Args:
            names: the names of the systems of each row.
            answers: the answers in the order of the page.
        """
        index_of_system = {name: index for index, name in enumerate(self.series)}
        indices = array("h")
        for names_of_row in names:
            indices.extend(index_of_system[name] for name in names_of_row)
        series = np.asarray(indices, np.int16).reshape(-1, len(self.mode.responses))
        has_criteria = self.mode.criteria is not None
        return PageColumns(
            series=series.T,
            group=self.rows.group.astype(np.int32),
            scores=answers.scores,
            expected=answers.expected,
            confidence=answers.confidence,
            agree=answers.agree,
            overall=answers.overall,
            length=self.lengths.T,
            flags=self.rows.flags + answers.flags,
            criteria=answers.row_starts if has_criteria else None,
        )


def _snippet(text: Row | None) -> str:
    """Return the beginning of a row's instruction, or of the first field of its template; empty without one."""
    if text is None:
        return ""
    if text.instruction:
        return text.instruction[:SNIPPET]
    first_field = next(iter(text.fields.values()), "")
    return first_field[:SNIPPET]
