"""The rows of a run on a terminal: as a list, one line each, and each of them to read.

A line of the list has the id, the system and the scores, or why the row failed; where its texts can still be
read, it ends with their beginnings. To read, a row has its texts, each prompt's answer, and what was made of
them; a wide terminal shows two responses, and the answers to both orders of a pair, side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from localjudge.errors import UsageError
from localjudge.system.quantities import bars
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.modes.row_outcome import RowOutcome
    from localjudge.records import Judgement, Outcome, Row
    from localjudge.rubrics.aspect import Aspect
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.reread_texts import RowTextStore

_NO_SYSTEM = "(none)"
_SNIPPET = 40
"""Largest number of characters of a text in a line."""
_SHORTEST = 20
"""Least number of characters of a text in a line; on a narrower terminal the texts have a line of their own."""
_WIDEST_NAME = 40
"""Largest width to which an id or a system is padded, in characters; those of a pair, to twice this width."""
_LONGEST = 4000
"""Largest number of characters of a text that is printed."""
_WIDEST = 100
"""Largest width of a text in characters."""
_MOST_BARS = 20
_SIDE_BY_SIDE = 100
"""Least width of a terminal, in characters, that shows two texts side by side."""


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A line of the list.

    Attributes:
        id: the id of the row.
        system: its system, or both systems of a pair.
        cells: the scores; of a failure, the reason.
        score: the sort key.
        digest: the digest of its texts; of a pair, that of its first order, `swapped` or not.
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
        error = outcome.error
        return cls(
            id=_flat(outcome.id),
            system=_flat(" vs ".join(_systems(outcome))),
            cells=tuple(outcome.cells().values()) if error is None else ("failed: " + _flat(error),),
            score=outcome.expected.get(sort, outcome.values.get(sort, -inf)) if sort else 0.0,
            digest=outcome.first.digest,
            swapped=outcome.first.swapped,
            failed=error is not None,
        )


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
        systems: set[str] = set()
        rows: list[ListedRow] = []
        matching, by_expected = 0, False
        for outcome in read_row_outcomes(run):
            systems.update(_systems(outcome))
            is_listed = outcome.error is None if sort else not failed or outcome.error is not None
            if not is_listed or (system is not None and system not in _systems(outcome)):
                continue
            matching += 1
            if sort or limit is None or matching <= limit:
                rows.append(ListedRow.from_outcome(outcome, sort))
                by_expected |= sort in outcome.expected
        if system is not None and system not in systems:
            there = ", ".join(sorted(systems)) or "none"
            lacks = f"{run} has no {rubric.mode.item} of this system"
            raise UsageError(f"--system {system}: {lacks}; its systems are {there}")
        if sort:
            rows.sort(key=lambda row: row.score, reverse=descending)
        return cls(rubric, tuple(rows[:limit]), matching, f"{sort}_expected" if by_expected else None)

    def lines(self, texts: RowTextStore, width: int | None) -> Iterator[str]:
        """Yield a heading and a line for each row, with aligned columns.

        Args:
            texts: the texts of the rows, as far as they can still be read.
            width: the terminal's width in characters; None without a terminal.
        """
        names_of_cells = self.rubric.mode.list_columns or [*self.rubric.aspects]
        cells = [names_of_cells, *(row.cells for row in self.rows if not row.failed)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

        def aligned(texts: Sequence[str]) -> str:
            return "  ".join(f"{text:>{size}}" for text, size in zip(texts, widths, strict=False))

        key = f"{self.key}  " if self.key else ""
        responses = len(self.rubric.mode.responses)
        system = "system" + "s" * (responses > 1)
        widest = _WIDEST_NAME * responses
        ids = min(widest, max(len(text) for text in ("id", *(row.id for row in self.rows))))
        systems = min(widest, max(len(text) for text in (system, *(row.system for row in self.rows))))
        heading = f"{'id':<{ids}}  {system:<{systems}}  {key}{aligned(names_of_cells)}"
        found = [texts.get(row.digest) for row in self.rows]
        names = (*self.rubric.mode.responses, "instruction") if any(found) else ()
        share = _SNIPPET if width is None else (width - len(heading)) // max(1, len(names)) - 2
        fits = share >= _SHORTEST
        yield "  ".join([heading, *(f"{name:<{min(share, _SNIPPET)}}" for name in names if fits)]).rstrip()
        for row, text in zip(self.rows, found, strict=True):
            says = row.cells[0] if row.failed else aligned(row.cells)
            if key and not row.failed:
                known = "–" if row.score == -inf else f"{row.score:z.2f}"  # noqa: RUF001
                says = f"{known:>{len(key) - 2}}  {says}"
            line = f"{row.id:<{ids}}  {row.system:<{systems}}  {says}"
            if text is None or row.failed:
                yield line
            elif fits:
                yield "  ".join([line, *_snippets(text, row.swapped, names, min(share, _SNIPPET))]).rstrip()
            else:
                yield line
                each = ((width or 80) - 4) // len(names) - 2
                yield "    " + "  ".join(_snippets(text, row.swapped, names, each)).rstrip()


def _snippets(text: Row, swapped: bool, names: Sequence[str], width: int) -> Iterator[str]:
    """Yield the beginning of each text, padded to this width."""
    responses = text.texts_in_input_order(swapped)
    instruction = text.instruction or next(iter(text.fields.values()), "")
    for said in (*responses, instruction):
        flat = _flat(" ".join((said or "").split())) or "(empty)"
        yield f"{flat if len(flat) <= width else flat[: width - 1] + '…':<{width}}"


def _systems(outcome: RowOutcome) -> tuple[str, ...]:
    """Return the system of a row, or both systems of a pair."""
    return tuple(system or _NO_SYSTEM for system in outcome.systems)


def _flat(text: str) -> str:
    """Return the text as one printable line, so that its printed width is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


@dataclass(frozen=True, slots=True)
class ShownOutcome:
    """The outcome of a row as a renderable of rich.

    The responses of a pair are a and b in the input's order. The judge calls the response that it read first A,
    so the heading of each order says which one that is.

    Attributes:
        row: the outcome of the row.
        aspects: the aspects of its rubric.
        text: the texts of the row, if they were found.
        intervals: the interval of an aspect's label.
        mass_is_lower_bound: whether the masses are sums over the few tokens that a server lists.
    """

    row: RowOutcome
    aspects: Mapping[str, Aspect]
    text: Row | None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    mass_is_lower_bound: bool = False

    @property
    def title(self) -> str:
        """The id of the row, its system and its place."""
        row = self.row
        source = row.first.source
        same = source == row.id.replace(" vs ", " and ")  # a row without an id has its place as one
        system = row.first.system if len(row.systems) == 1 else None
        return " · ".join(filter(None, (row.id, system, None if same else source)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        row, wide = self.row, options.max_width >= _SIDE_BY_SIDE and len(self.row.systems) > 1
        if self.text:
            yield from (_Block(name, said) for name, said in _given(self.text))
            responses = self.text.texts_in_input_order(row.first.swapped)
            names = zip(row.response_names, responses, strict=False)
            yield _beside([_Block(name, said or "") for name, said in names], wide)
        yield _beside([Group(*self._answer(prompt)) for prompt in row.prompts], wide)
        if lines := [*row.result_lines()]:
            yield Styled("\n".join(lines) + "\n", style="bold")

    def _answer(self, prompt: Outcome) -> Iterator[RenderableType]:
        """Yield the judge's answer to one prompt."""
        from localjudge.records import Failure
        from localjudge.rubrics.answer import shown

        if heading := self.row.heading(prompt):
            yield Styled(printable(heading), style="bold")
        if isinstance(prompt, Failure):
            if prompt.failed_answer is not None:
                yield _Block("failed answer", prompt.failed_answer)
            yield Styled(f"failed: {printable(prompt.error)}\n")
            return
        yield from (_Block(name.replace("_", " "), said) for name, said in prompt.texts.items())
        if prompt.rationale_cut:
            yield Styled("[a rationale was cut at its limit]")
        if cut := prompt.candidate_cut:
            yield Styled(f"[the judge did not see {cut:,} characters of the candidate or its conversation]")
        longest = max(14, *map(len, prompt.scores))
        widest = max(3, *(len(shown(score)) for score in prompt.scores.values()))
        for name, score in prompt.scores.items():
            parts = [f"{name:<{longest}} {shown(score):>{widest}}", *self._numbers(prompt, name)]
            yield Padding(Styled("   ".join(parts)), (0, 0, 0, 2), expand=False)
        yield ""

    def _numbers(self, judgement: Judgement, name: str) -> Iterator[str]:
        """Yield the expected value, interval and probabilities of a score, and a low sum of these."""
        from localjudge.rubrics.answer import shown

        aspect, shares = self.aspects[name], judgement.probabilities.get(name)
        has_labels = aspect.numbers is None or aspect.boolean or aspect.preference is not None
        if name in judgement.expected and not has_labels:
            yield f"expected {judgement.expected[name]:.2f}"
        if name in self.intervals:
            yield "[{:g}, {:g}]".format(*self.intervals[name])
        if shares and has_labels:
            labels = map(shown, aspect.values.values())
            yield " · ".join(f"{label} {share:.2f}" for label, share in zip(labels, shares, strict=True))
        elif shares and len(shares) <= _MOST_BARS:
            yield bars(shares)
        of_values = dict(zip(aspect.values.values(), shares or (), strict=False))
        if of_values and max(of_values.values()) > of_values.get(judgement.scores[name], 1):
            yield f"likeliest {shown(max(of_values, key=of_values.__getitem__))}"
        if not judgement.likeliest.get(name, True):
            bound = "at least" if self.mass_is_lower_bound else "only"
            yield f"{bound} {judgement.mass[name]:.0%} of the probability on valid answers"


def _given(text: Row) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of what was answered."""
    yield from text.fields.items()
    if text.instruction or not text.fields:
        yield "instruction", text.instruction
    if text.reference is not None:
        yield "reference", text.reference


@dataclass(frozen=True, slots=True)
class _Block:
    """A heading and a text below it, wrapped; a very long text is cut, and says so."""

    heading: str
    said: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        more = f" … {len(self.said) - _LONGEST:,} more characters" if len(self.said) > _LONGEST else ""
        lines = printable(self.said[:_LONGEST] + more).splitlines() or ["(empty)"]
        width = min(_WIDEST, options.max_width) - 2
        wrapped = [fill(line, width=width, break_on_hyphens=False) for line in lines]
        yield Styled(self.heading, style="bold")
        yield Styled(indent("\n".join(wrapped), "  "))
        yield ""


def _beside(parts: Sequence[RenderableType], wide: bool) -> RenderableType:
    """Return the parts side by side on a wide terminal, and one below the other on a narrow one."""
    if not wide or len(parts) == 1:
        return Group(*parts)
    grid = Table.grid(expand=True, padding=(0, 3, 0, 0), pad_edge=False)
    for _ in parts:
        grid.add_column(ratio=1, overflow="fold")
    grid.add_row(*parts)
    return grid
