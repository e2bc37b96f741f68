"""The outcome of one row to read on a terminal: its texts, each prompt's answer, and what was made of them.

A wide terminal shows two responses, and the answers to both orders of a pair, side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill, indent
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import Aspect
from localjudge.system.quantities import bars
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.runs.reread_texts import RowTexts

_LONGEST = 4000
"""Largest number of characters of a text that is printed."""
_WIDEST = 100
"""Largest width of a text in characters."""
_MOST_BARS = 20
_SIDE_BY_SIDE = 100
"""Least width of a terminal, in characters, that shows two texts side by side."""


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
    """

    row: RowOutcome
    aspects: Mapping[str, Aspect]
    text: RowTexts | None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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
            responses = self.text.responses(row.first.swapped)
            names = zip(row.response_names, responses, strict=False)
            yield _beside([_Block(name, said or "") for name, said in names], wide)
        yield _beside([Group(*self._answer(prompt)) for prompt in row.of_prompts], wide)
        if lines := [*row.result_lines()]:
            yield Styled("\n".join(lines) + "\n", style="bold")

    def _answer(self, prompt: Outcome) -> Iterator[RenderableType]:
        """Yield the judge's answer to one prompt."""
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
        if not all(prompt.likeliest.values()):
            yield Styled("  * the model's likeliest token began no value")
        yield ""

    def _numbers(self, judgement: Judgement, name: str) -> Iterator[str]:
        """Yield what is known of a score: its expected value, interval, probabilities and their mass."""
        aspect, shares = self.aspects[name], judgement.probabilities.get(name)
        has_labels = aspect.numbers is None or aspect.preference is not None
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
        if name in judgement.mass:
            yield f"mass {judgement.mass[name]:.2f}" + " *" * (not judgement.likeliest[name])


def _given(text: RowTexts) -> Iterator[tuple[str, str]]:
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
