"""Build tasks from rows: encode the rubric's text, and cut or refuse what exceeds the model's context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from localjudge.errors import RowError
from localjudge.prompts.encoder import EncodedText, PromptEncoder
from localjudge.prompts.task import Task
from localjudge.records import Failure, Row
from localjudge.rows.conversation import cut_results
from localjudge.rubrics.rubric import Rubric
from localjudge.settings import OnOverflow

# Limits of a batch of rows that is encoded at once.
_ROWS_AT_ONCE, _CHARACTERS_AT_ONCE = 256, 4_000_000
# More tokens of a template after the response are worth a hint.
_MOST_BEHIND = 50


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
            own = row.characters if isinstance(row, Row) else 0
            if len(waiting) == _ROWS_AT_ONCE or (waiting and size + own > _CHARACTERS_AT_ONCE):
                yield from self._encoded(waiting)
                waiting, size = [], 0
            waiting.append(row)
            size += own
        yield from self._encoded(waiting)

    def excess(self, prompt_tokens: int) -> int:
        """Return by how many tokens a prompt of this length and its answer exceed the context."""
        return prompt_tokens + self.answer_tokens - self.context if self.context is not None else 0

    @property
    def tokens_around(self) -> tuple[int, int]:
        """Numbers of tokens of the template's text before the first field, and after the response.

        The second are computed again for each row.
        """
        first, behind = self.rubric.texts_around
        encoder = self.encoder
        assert encoder is not None
        around = len(encoder.encode(""))
        return len(encoder.encode(first)) - around + len(encoder.head), len(encoder.encode(behind)) - around

    def order_hint(self, mean: float | None = None) -> str:
        """Return one line about text of the template that could be computed once; empty if it is short.

        Args:
            mean: mean number of tokens of a prompt, if known.
        """
        (_, behind), of = self.tokens_around, "" if mean is None else f" of {mean:,.0f}"
        where = f"put them before {{${self.rubric.fields[0]}}}"
        is_long = behind > _MOST_BEHIND and not self.rubric.is_default
        return f"{behind}{of} tokens are computed again for each row; {where}" * is_long

    @property
    def room(self) -> int | None:
        """The most tokens of a prompt that fits the context with an answer; None if there is no limit."""
        return None if self.context is None else self.context - self.answer_tokens

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
        texts: dict[int, str] = {}
        cuts: dict[int, tuple[Row, int]] = {}
        found: dict[int, EncodedText | RowError | str] = {}
        for place, row in enumerate(rows):
            if isinstance(row, Row):
                if refusal := self.rubric.refusal(row):
                    found[place] = refusal
                else:
                    cuts[place] = self._with_short_results(row)
                    texts[place] = self.rubric.text(cuts[place][0])
        begin = (self.rubric.beginnings(cuts[place][0]) for place in texts)
        own = [*texts.values()]
        found |= zip(texts, own if self.encoder is None else self.encoder.encode_all(own, begin), strict=True)
        for place, row in enumerate(rows):
            if isinstance(row, Failure):
                yield Task(row)
            else:
                yield self._task_of(row, found[place], *cuts.get(place, (row, 0)))

    def _task_of(self, row: Row, encoded: EncodedText | RowError | str, shown: Row, cut: int) -> Task:
        if isinstance(encoded, RowError):
            return _failed(row, encoded)
        if isinstance(encoded, str):
            return Task(row, [], text=encoded)
        begin = encoded.beginnings
        if self.excess(len(encoded.ids)) <= 0:
            return Task(row, encoded.ids, cut, shown=shown if cut else None, beginnings=begin)
        does_not_fit = (
            f"a prompt of {len(encoded.ids)} tokens and an answer of up to {self.answer_tokens} do not fit "
            f"the context of {self.context}"
        )
        if self.on_overflow == "fail":
            return _failed(row, RowError(does_not_fit), overflows=True)
        assert self.encoder is not None  # it counted the tokens
        shortened = self._longest_that_fits(shown, self.encoder)
        if shortened is None:
            reason = f"{does_not_fit}, even with one character of its candidate"
            return _failed(row, RowError(reason), overflows=True)
        tokens, kept = shortened
        cut += sum(max(0, len(text) - kept) for text in shown.texts)
        shown = shown.cut(kept)
        return Task(row, tokens, cut, overflows=True, shown=shown, beginnings=begin)

    def _with_short_results(self, row: Row) -> tuple[Row, int]:
        """Return the row with its tool results cut, and the number of characters that are left out."""
        limit, encoder = self.max_result_tokens, self.encoder
        if encoder is None or limit is None:
            return row, 0

        def kept(content: str) -> tuple[str, str, int]:
            with suppress(ValueError):  # then the prompt cannot be encoded either
                return encoder.without_middle(content, limit)
            return content, "", 0

        return cut_results(row, self.rubric.fields, kept)

    def _longest_that_fits(self, row: Row, encoder: PromptEncoder) -> tuple[list[int], int] | None:
        """Search for the longest beginning of the candidate, of one character or more, that fits the context.

        n characters take at most 2 + log2(n) encodings; one if the rest of the prompt is too long already.

        Returns:
            the prompt's token ids and the number of characters that are kept; None if no beginning fits.
        """
        found: tuple[list[int], int] | None = None

        def is_too_long(length: int) -> bool:
            nonlocal found
            (encoded,) = encoder.encode_all([self.rubric.text(row.cut(length))])
            # A tokenizer may be unable to read the text if it ends here.
            if isinstance(encoded, RowError) or self.excess(len(encoded.ids)) > 0:
                return True
            found = encoded.ids, length
            return False

        if not is_too_long(1):
            bisect_left(range(max(map(len, row.texts))), True, lo=2, key=is_too_long)
        return found


def _failed(row: Row, error: RowError, *, overflows: bool = False) -> Task:
    return Task(row, [], error=f"{row.source}: {error.reason}", overflows=overflows)
