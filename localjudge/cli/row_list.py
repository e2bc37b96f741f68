"""The list of the rows of a run on a terminal, one line each.

A line has the id, the system and the scores, or why the row failed; where its texts can still be read, it ends
with their beginnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from localjudge.errors import UsageError
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.modes.row_outcome import RowOutcome
    from localjudge.records import Row
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.reread_texts import RowTextStore

_NO_SYSTEM = "(none)"
_SNIPPET = 40
"""Largest number of characters of a text in a line."""
_SHORTEST = 20
"""Least number of characters of a text in a line; on a narrower terminal the texts have a line of their own."""
_WIDEST_NAME = 40
"""Largest width to which an id or a system is padded, in characters; those of a pair, to twice this width."""


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A line of the list.

    Attributes:
        id: the id of the row.
        system: its system, or both systems of a pair.
        cells: the scores; of a failure, the reason.
        score: the sort key.
        digest: the digest of its texts; of a pair, that of its first order, `swapped` or not.
        swapped: whether that order is the reverse of the input's.
        failed: whether it failed.
    """

    id: str
    system: str
    cells: tuple[str, ...]
    score: float
    digest: str | None
    swapped: bool
    failed: bool

    @classmethod
    def from_outcome(cls, outcome: RowOutcome, sort: str | None) -> ListedRow:
        """Return the line of a row; `sort` is the column that it is sorted by."""
        if outcome.error is None:
            cells = tuple(outcome.cells().values())
        else:
            cells = (f"failed: {_flat(outcome.error)}",)
        return cls(
            id=_flat(outcome.id),
            system=_flat(" vs ".join(_systems(outcome))),
            cells=cells,
            score=_sort_key(outcome, sort),
            digest=outcome.first.digest,
            swapped=outcome.first.swapped,
            failed=outcome.error is not None,
        )


def _sort_key(outcome: RowOutcome, sort: str | None) -> float:
    """Return the expected score by which a row is sorted, or else the score; a row without either is lowest."""
    if sort is None:
        return 0.0
    if sort in outcome.expected:
        return outcome.expected[sort]
    return outcome.values.get(sort, -inf)


@dataclass(frozen=True, slots=True)
class RowList:
    """The rows or pairs to print, and the number of selected ones before the limit.

    `key` is the column of expected scores that the rows are sorted by; None if another column or nothing is.
    """

    rubric: Rubric
    rows: tuple[ListedRow, ...]
    matching: int
    key: str | None = None

    @classmethod
    def read(
        cls,
        run: Path,
        rubric: Rubric,
        *,
        system: str | None = None,
        failed: bool = False,
        sort: str | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> RowList:
        """Read the rows or pairs that are selected.

        Args:
            run: the run directory.
            rubric: its rubric.
            system: list only the rows of this system, or the pairs with it; "(none)" means rows without one.
            failed: list only the failures.
            sort: the aspect to sort by, which excludes the failures; None keeps the run's order. The key of a
                pair is the preference for its first response.
            descending: list the highest score first.
            limit: the largest number of rows to list.

        Raises:
            UsageError: there is no such aspect or system, or failures would be sorted by a score.
            RunMismatchError: the folder is not a run directory.
        """
        from localjudge.runs.reader import read_row_outcomes

        columns = [column.name for column in rubric.row_columns]
        if sort is not None and sort not in columns:
            raise UsageError(f"--sort {sort}: the aspects of {run} are {', '.join(columns)}")
        if sort is not None and failed:
            raise UsageError("--failed --sort: failures have no scores to sort by; give only one of the two")
        systems_of_run: set[str] = set()
        rows: list[ListedRow] = []
        matching = 0
        has_expected = False
        for outcome in read_row_outcomes(run):
            systems_of_row = _systems(outcome)
            systems_of_run.update(systems_of_row)
            if system is not None and system not in systems_of_row:
                continue
            if sort is not None and outcome.error is not None:
                continue
            if failed and outcome.error is None:
                continue
            matching += 1
            if sort is None and limit is not None and matching > limit:
                continue  # only counted
            rows.append(ListedRow.from_outcome(outcome, sort))
            if sort is not None and sort in outcome.expected:
                has_expected = True
        if system is not None and system not in systems_of_run:
            names = ", ".join(sorted(systems_of_run)) or "none"
            raise UsageError(
                f"--system {system}: {run} has no {rubric.mode.item} of this system; its systems are {names}"
            )
        if sort is not None:
            rows.sort(key=lambda row: row.score, reverse=descending)
        key = f"{sort}_expected" if has_expected else None
        return cls(rubric, tuple(rows[:limit]), matching, key=key)

    def lines(self, texts: RowTextStore, width: int | None) -> Iterator[str]:
        """Yield a heading and a line for each row, with aligned columns.

        Args:
            texts: the texts of the rows, as far as they can still be read.
            width: the terminal's width in characters; None without a terminal.
        """
        layout = self._layout()
        heading = layout.line("id", layout.system_heading, layout.aligned_heading())
        texts_of_rows = [texts.get(row.digest) for row in self.rows]
        if not any(texts_of_rows):
            yield heading.rstrip()
            for row in self.rows:
                yield layout.row_line(row)
            return

        text_names = self.rubric.mode.responses + ("instruction",)
        text_width = _SNIPPET
        if width is not None:
            text_width = min(_SNIPPET, _share(width - len(heading), len(text_names)))
        has_own_line = text_width < _SHORTEST
        if has_own_line:
            text_width = _share((width or 80) - 4, len(text_names))
            yield heading.rstrip()
        else:
            padded_names = [f"{name:<{text_width}}" for name in text_names]
            yield "  ".join([heading] + padded_names).rstrip()
        for row, text in zip(self.rows, texts_of_rows, strict=True):
            line = layout.row_line(row)
            if text is None or row.failed:
                yield line
                continue
            snippets = "  ".join(_snippets(text, row.swapped, width=text_width))
            if has_own_line:
                yield line
                yield f"    {snippets}".rstrip()
            else:
                yield f"{line}  {snippets}".rstrip()

    def _layout(self) -> _Layout:
        """Return the headings and the widths of the columns."""
        cell_headings = list(self.rubric.mode.list_columns or self.rubric.aspects)
        judged_cells = [row.cells for row in self.rows if not row.failed]
        cell_columns = zip(cell_headings, *judged_cells, strict=True)
        responses = len(self.rubric.mode.responses)
        system_heading = "systems" if responses > 1 else "system"
        widest = _WIDEST_NAME * responses
        return _Layout(
            system_heading=system_heading,
            cell_headings=cell_headings,
            key=self.key,
            id_width=min(widest, _longest("id", (row.id for row in self.rows))),
            system_width=min(widest, _longest(system_heading, (row.system for row in self.rows))),
            cell_widths=[max(map(len, column)) for column in cell_columns],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The headings of the columns of a list and their widths in characters.

    Attributes:
        system_heading: the heading of the systems.
        cell_headings: the headings of the cells.
        key: the heading of the expected score that the rows are sorted by; None without one.
        id_width: the width of the ids.
        system_width: the width of the systems.
        cell_widths: the widths of the cells.
    """

    system_heading: str
    cell_headings: Sequence[str]
    key: str | None
    id_width: int
    system_width: int
    cell_widths: Sequence[int]

    def line(self, id_: str, system: str, cells: str) -> str:
        """Return a line with the id and the system in their columns."""
        return f"{id_:<{self.id_width}}  {system:<{self.system_width}}  {cells}"

    def aligned_heading(self) -> str:
        """Return the headings of the score that the rows are sorted by, and of the cells."""
        headings = self._aligned(self.cell_headings)
        return headings if self.key is None else f"{self.key}  {headings}"

    def row_line(self, row: ListedRow) -> str:
        """Return the line of a row without its texts."""
        return self.line(row.id, row.system, self._row_cells(row))

    def _row_cells(self, row: ListedRow) -> str:
        """Return the cells of a row below their headings; of a failure, the reason."""
        if row.failed:
            return row.cells[0]
        cells = self._aligned(row.cells)
        if self.key is None:
            return cells
        score = "–" if row.score == -inf else f"{row.score:z.2f}"  # noqa: RUF001
        return f"{score:>{len(self.key)}}  {cells}"

    def _aligned(self, cells: Sequence[str]) -> str:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, self.cell_widths, strict=True)]
        return "  ".join(padded)


def _longest(heading: str, cells: Iterable[str]) -> int:
    """Return the length of the longest text of a column."""
    return max(len(heading), max((len(cell) for cell in cells), default=0))


def _share(width: int, texts: int) -> int:
    """Return the width of each of several texts in a line, with two spaces before each."""
    return width // texts - 2


def _snippets(text: Row, swapped: bool, *, width: int) -> Iterator[str]:
    """Yield the beginning of each response and of the instruction, padded to this width."""
    instruction = text.instruction or next(iter(text.fields.values()), "")
    for whole_text in text.texts_in_input_order(swapped) + (instruction,):
        words = (whole_text or "").split()
        snippet = _flat(" ".join(words)) or "(empty)"
        if len(snippet) > width:
            snippet = f"{snippet[: width - 1]}…"
        yield f"{snippet:<{width}}"


def _systems(outcome: RowOutcome) -> tuple[str, ...]:
    """Return the system of a row, or both systems of a pair."""
    return tuple(system or _NO_SYSTEM for system in outcome.systems)


def _flat(text: str) -> str:
    """Return the text as one printable line, so that its printed width is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
