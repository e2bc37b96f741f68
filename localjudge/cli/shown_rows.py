"""The rows of a run on a terminal, each to read.

A row has its texts, each prompt's answer, and what was made of them; a wide terminal shows two responses, and
the answers to both orders of a pair, side by side.
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

from localjudge.system.quantities import bars
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.modes.row_outcome import RowOutcome
    from localjudge.records import Judgement, Outcome, Row
    from localjudge.rubrics.aspect import Aspect

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
        mass_is_lower_bound: whether the masses are sums over the few tokens that a server lists.
    """

    row: RowOutcome
    aspects: Mapping[str, Aspect]
    text: Row | None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    mass_is_lower_bound: bool = False

    @property
    def title(self) -> str:
        """The id of the row, its system and its line in the input."""
        row = self.row
        parts = [row.id]
        if len(row.systems) == 1 and row.first.system:
            parts.append(row.first.system)
        source = row.first.source
        source_as_id = row.id.replace(" vs ", " and ")  # a row without an id has its source as one
        if source and source != source_as_id:
            parts.append(source)
        return " · ".join(part for part in parts if part)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        row = self.row
        side_by_side = options.max_width >= _SIDE_BY_SIDE and len(row.systems) > 1
        if self.text is not None:
            yield from _input_blocks(self.text)
            yield _beside(self._response_blocks(self.text), side_by_side)
        answers = [Group(*self._answer(prompt)) for prompt in row.prompts]
        yield _beside(answers, side_by_side)
        result_lines = list(row.result_lines())
        if result_lines:
            yield Styled("\n".join(result_lines) + "\n", style="bold")

    def _response_blocks(self, text: Row) -> list[_Block]:
        """Return the responses below their names, in the input's order."""
        responses = text.texts_in_input_order(self.row.first.swapped)
        named_responses = zip(self.row.response_names, responses, strict=False)
        return [_Block(name, response or "") for name, response in named_responses]

    def _answer(self, prompt: Outcome) -> Iterator[RenderableType]:
        """Yield the judge's answer to one prompt."""
        from localjudge.records import Failure

        heading = self.row.heading(prompt)
        if heading:
            yield Styled(printable(heading), style="bold")
        if isinstance(prompt, Failure):
            if prompt.failed_answer is not None:
                yield _Block("failed answer", prompt.failed_answer)
            yield Styled(f"failed: {printable(prompt.error)}\n")
            return
        for name, rationale in prompt.texts.items():
            yield _Block(name.replace("_", " "), rationale)
        if prompt.rationale_cut:
            yield Styled("[a rationale was cut at its limit]")
        unseen = prompt.candidate_cut
        if unseen:
            yield Styled(f"[the judge did not see {unseen:,} characters of the candidate or its conversation]")
        yield from self._scores(prompt)
        yield ""

    def _scores(self, judgement: Judgement) -> Iterator[RenderableType]:
        """Yield a line for each score, with its numbers."""
        from localjudge.rubrics.answer import shown

        scores = {name: shown(score) for name, score in judgement.scores.items()}
        name_width = max([14] + [len(name) for name in scores])
        score_width = max([3] + [len(score) for score in scores.values()])
        for name, score in scores.items():
            parts = [f"{name:<{name_width}} {score:>{score_width}}"]
            parts.extend(self._numbers(judgement, name))
            yield Padding(Styled("   ".join(parts)), (0, 0, 0, 2), expand=False)

    def _numbers(self, judgement: Judgement, name: str) -> Iterator[str]:
        """Yield the expected value, interval and probabilities of a score, and a low sum of these."""
        from localjudge.rubrics.answer import shown

        aspect = self.aspects[name]
        probabilities = judgement.probabilities.get(name)
        has_labels = aspect.numbers is None or aspect.boolean or aspect.preference is not None
        if name in judgement.expected and not has_labels:
            yield f"expected {judgement.expected[name]:.2f}"
        if name in self.intervals:
            low, high = self.intervals[name]
            yield f"[{low:g}, {high:g}]"
        if probabilities:
            by_value = dict(zip(aspect.values.values(), probabilities, strict=False))
            if has_labels:
                yield " · ".join(f"{shown(value)} {share:.2f}" for value, share in by_value.items())
            elif len(probabilities) <= _MOST_BARS:
                yield bars(probabilities)
            likeliest = max(by_value, key=by_value.__getitem__)
            if by_value[likeliest] > by_value.get(judgement.scores[name], 1):
                yield f"likeliest {shown(likeliest)}"
        mass_is_low = not judgement.likeliest.get(name, True)
        if mass_is_low:
            bound = "at least" if self.mass_is_lower_bound else "only"
            yield f"{bound} {judgement.mass[name]:.0%} of the probability on valid answers"


def _input_blocks(text: Row) -> Iterator[_Block]:
    """Yield what was answered, each text below its heading."""
    for name, field_text in text.fields.items():
        yield _Block(name, field_text)
    if text.instruction or not text.fields:
        yield _Block("instruction", text.instruction)
    if text.reference is not None:
        yield _Block("reference", text.reference)


@dataclass(frozen=True, slots=True)
class _Block:
    """A heading and a text below it, wrapped; a very long text is cut, and says so."""

    heading: str
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        text = self.text
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]} … {len(text) - _LONGEST:,} more characters"
        lines = printable(text).splitlines() or ["(empty)"]
        width = min(_WIDEST, options.max_width) - 2
        wrapped = [fill(line, width=width, break_on_hyphens=False) for line in lines]
        yield Styled(self.heading, style="bold")
        yield Styled(indent("\n".join(wrapped), "  "))
        yield ""


def _beside(parts: Sequence[RenderableType], side_by_side: bool) -> RenderableType:
    """Return the parts side by side on a wide terminal, and one below the other on a narrow one."""
    if not side_by_side or len(parts) == 1:
        return Group(*parts)
    grid = Table.grid(expand=True, padding=(0, 3, 0, 0), pad_edge=False)
    for _ in parts:
        grid.add_column(ratio=1, overflow="fold")
    grid.add_row(*parts)
    return grid
