"""Build tasks from rows: encode the rubric's text, and cut or refuse what exceeds the model's context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from localjudge.errors import RowError
from localjudge.prompts.encoder import EncodedText, PromptEncoder
from localjudge.prompts.task import Task
from localjudge.records import Failure, Row
from localjudge.rows.conversation import cut_results
from localjudge.rubrics.rubric import Rubric
from localjudge.settings import OnOverflow

_ROWS_AT_ONCE = 256
"""The most rows that are encoded at once."""
_CHARACTERS_AT_ONCE = 4_000_000
"""The most characters of several rows that are encoded at once."""
_MOST_BEHIND = 50
"""More tokens of a template after the response are worth a hint."""


@dataclass(frozen=True, slots=True)
class TaskBuilder:
    """A builder of tasks from rows.

    Attributes:
        rubric: fills its template with the row.
        encoder: puts the model's chat template around the text and encodes both; None if only a server has the
            tokenizer: a task then has the text.
        context: largest number of tokens of a prompt and its answer; None if there is no limit.
        answer_tokens: largest number of tokens of an answer, including its thoughts.
        on_overflow: what happens to a row that does not fit the context. Of two candidates, both are cut to the
            same length.
        max_result_tokens: the most tokens of a tool's result in a conversation; longer ones lose their middle.
            None if there is no limit.
    """

    rubric: Rubric
    encoder: PromptEncoder | None
    context: int | None
    answer_tokens: int
    on_overflow: OnOverflow = "fail"
    max_result_tokens: int | None = None

    def tasks(self, rows: Iterable[Row | Failure]) -> Iterator[Task]:
        """Yield the task of each row, in order; rows are encoded in batches."""
        waiting: list[Row | Failure] = []
        size = 0
        for row in rows:
            characters = row.characters if isinstance(row, Row) else 0
            is_full = len(waiting) == _ROWS_AT_ONCE or size + characters > _CHARACTERS_AT_ONCE
            if waiting and is_full:
                yield from self._encoded(waiting)
                waiting = []
                size = 0
            waiting.append(row)
            size += characters
        yield from self._encoded(waiting)

    def excess(self, prompt_tokens: int) -> int:
        """Return by how many tokens a prompt of this length and its answer exceed the context."""
        if self.context is None:
            return 0
        return prompt_tokens + self.answer_tokens - self.context

    @property
    def tokens_around(self) -> tuple[int, int]:
        """Numbers of tokens of the template's text before the first field, and after the response.

        The second are computed again for each row.
        """
        encoder = self.encoder
        assert encoder is not None
        text_before, text_behind = self.rubric.texts_around
        empty = len(encoder.encode(""))
        before = len(encoder.encode(text_before)) - empty
        behind = len(encoder.encode(text_behind)) - empty
        return len(encoder.head) + before, behind

    def order_hint(self, mean: float | None = None) -> str:
        """Return one line about text of the template that could be computed once; empty if it is short.

        Args:
            mean: mean number of tokens of a prompt, if known.
        """
        _, behind = self.tokens_around
        if behind <= _MOST_BEHIND or self.rubric.is_default:
            return ""
        tokens = f"{behind}" if mean is None else f"{behind} of {mean:,.0f}"
        first_field = self.rubric.fields[0]
        return f"{tokens} tokens are computed again for each row; put them before {{${first_field}}}"

    @property
    def room(self) -> int | None:
        """The most tokens of a prompt that fits the context with an answer; None if there is no limit."""
        if self.context is None:
            return None
        return self.context - self.answer_tokens

    def bound(self, row: Row) -> int | None:
        """Return an upper bound of the number of prompt tokens of a row; None if none is known."""
        if self.encoder is None:
            return None
        if self.rubric.refusal(row):
            return 0
        return self.encoder.bound(self.rubric.text(row))

    def encoded(self, row: Row) -> list[int]:
        """Return the token ids of the prompt of a whole row.

        Raises:
            ValueError: the rubric cannot judge it, or the tokenizer cannot read it.
        """
        assert self.encoder is not None
        return self.encoder.encode(self.rubric.text(row))

    def task(self, row: Row) -> Task:
        """Return the task of one row."""
        (task,) = self.tasks([row])
        return task

    def _encoded(self, rows: list[Row | Failure]) -> Iterator[Task]:
        """Yield the task of each of a batch of rows, whose prompts are encoded together."""
        prepared = [self._prepared(row) for row in rows]
        prompts = self._prompts([entry for entry in prepared if isinstance(entry, _ShownRow)])
        for entry in prepared:
            if isinstance(entry, Task):
                yield entry
            else:
                yield self._task_of(entry, next(prompts))

    def _prepared(self, row: Row | Failure) -> Task | _ShownRow:
        """Return a row as the judge sees it; or its task, if it has no prompt."""
        if isinstance(row, Failure):
            return Task(row)
        refusal = self.rubric.refusal(row)
        if refusal is not None:
            return _failed(row, refusal)
        return self._with_short_results(row)

    def _prompts(self, rows: Sequence[_ShownRow]) -> Iterator[EncodedText | RowError | str]:
        """Yield the prompt of each row: token ids, why it has none, or the text if only a server encodes it."""
        texts = [self.rubric.text(row.shown) for row in rows]
        if self.encoder is None:
            yield from texts
        else:
            beginnings = [self.rubric.beginnings(row.shown) for row in rows]
            yield from self.encoder.encode_all(texts, beginnings)

    def _task_of(self, row: _ShownRow, encoded: EncodedText | RowError | str) -> Task:
        """Return the task of a row with this prompt."""
        if isinstance(encoded, RowError):
            return _failed(row.whole, encoded)
        if isinstance(encoded, str):
            return Task(row.whole, [], text=encoded)
        if self.excess(len(encoded.ids)) <= 0:
            return Task(
                row.whole,
                encoded.ids,
                row.cut,
                shown=row.shown if row.cut else None,
                beginnings=encoded.beginnings,
            )
        does_not_fit = (
            f"a prompt of {len(encoded.ids)} tokens and an answer of up to {self.answer_tokens} do not fit "
            f"the context of {self.context}"
        )
        if self.on_overflow == "fail":
            return _failed(row.whole, RowError(does_not_fit), overflows=True)
        assert self.encoder is not None  # it counted the tokens
        cut = self._longest_that_fits(row.shown, self.encoder)
        if cut is None:
            reason = f"{does_not_fit}, even with one character of its candidate"
            return _failed(row.whole, RowError(reason), overflows=True)
        left_out = sum(max(0, len(text) - cut.characters) for text in row.shown.texts)
        return Task(
            row.whole,
            cut.ids,
            row.cut + left_out,
            overflows=True,
            shown=row.shown.cut(cut.characters),
            beginnings=encoded.beginnings,
        )

    def _with_short_results(self, row: Row) -> _ShownRow:
        """Return the row with its tool results cut."""
        limit = self.max_result_tokens
        encoder = self.encoder
        if encoder is None or limit is None:
            return _ShownRow(row, row, cut=0)

        def kept(content: str) -> tuple[str, str, int]:
            with suppress(ValueError):  # then the prompt cannot be encoded either
                return encoder.without_middle(content, limit)
            return content, "", 0

        shown, cut = cut_results(row, self.rubric.fields, kept)
        return _ShownRow(row, shown, cut)

    def _longest_that_fits(self, row: Row, encoder: PromptEncoder) -> _CutPrompt | None:
        """Search for the longest beginning of the candidate, of one character or more, that fits the context.

        n characters take at most 2 + log2(n) encodings; one if the rest of the prompt is too long already.

        Returns:
            the prompt with this beginning; None if none fits.
        """
        longest = self._cut_prompt(row, 1, encoder)
        if longest is None:
            return None
        lowest = 2
        highest = max(len(text) for text in row.texts)
        while lowest < highest:
            length = (lowest + highest) // 2
            prompt = self._cut_prompt(row, length, encoder)
            if prompt is None:
                highest = length
            else:
                longest = prompt
                lowest = length + 1
        return longest

    def _cut_prompt(self, row: Row, length: int, encoder: PromptEncoder) -> _CutPrompt | None:
        """Return the prompt with this many characters of each candidate; None if it does not fit the context.

        A tokenizer may be unable to read the text if it ends there.
        """
        (encoded,) = encoder.encode_all([self.rubric.text(row.cut(length))])
        if isinstance(encoded, RowError) or self.excess(len(encoded.ids)) > 0:
            return None
        return _CutPrompt(encoded.ids, length)


@dataclass(frozen=True, slots=True)
class _ShownRow:
    """A row, as it is and as the judge sees it.

    Attributes:
        whole: the row as it is.
        shown: the row with its tool results cut.
        cut: number of characters of tool results that are left out.
    """

    whole: Row
    shown: Row
    cut: int


@dataclass(frozen=True, slots=True)
class _CutPrompt:
    """The token ids of a prompt, and the number of characters that it has of each candidate."""

    ids: list[int]
    characters: int


def _failed(row: Row, error: RowError, *, overflows: bool = False) -> Task:
    return Task(row, [], error=f"{row.source}: {error.reason}", overflows=overflows)
