"""Encode a row's text as the token ids that the model reads.

The row fills the rubric's template, and the model's chat template surrounds the result and the system prompt
before it, which is the same in all prompts. Text always remains text: everything between the chat template's
own tokens is encoded by a *text-only twin* of the tokenizer, a copy whose control tokens have names that no
text can spell. If a response contains `<|im_end|>`, `</s>` or `<0x0A>`, the model reads these characters, and
not the token.

Control tokens are the tokenizer's added tokens, the tokens that end a turn or enclose a thought, and the chat
template's markers, declared as added tokens or not. White space and single characters are always text, even if
a model ends its turn with one, because a response must be able to contain them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from localjudge.errors import ModelError, RowError
from localjudge.prompts.rendered_turns import NO_ARGS, ROW, SYSTEM, render_turns
from localjudge.prompts.tokenizer_layout import text_only_twin

# Markers that chat templates write around turns, if the vocabulary has them as one token.
_MARKER = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
# White space, and the character that SentencePiece writes for a space.
_SPACES = " \t\n\r▁"
_MISREAD = "the tokenizer reads a part of the text as a token of its own"


@dataclass(frozen=True, slots=True)
class EncodedText:
    """The token ids of a prompt.

    Attributes:
        ids: the token ids.
        beginnings: as in `Prompt`.
    """

    ids: list[int]
    beginnings: tuple[int, ...] = ()


class PromptEncoder:
    """The chat template of a model around the text of a row.

    Args:
        tokenizer: a fast Hugging Face tokenizer. Without a chat template the prompt is the texts alone, after
            the tokens that the tokenizer adds first.
        system: the system prompt; empty for none.
        thinking: whether a model with optional thinking thinks.
        template_args: further variables of the chat template.
        controls: ids of control tokens besides the added tokens, such as the tokens that end a turn.

    Attributes:
        head: token ids at the beginning of each prompt, up to the last control token before the row's text.
        before: text between the head and the row's text.
        after: text between the row's text and the tail.
        tail: token ids from the first control token after the row's text to the end of each prompt.
        system_place: where the system prompt stands, as in `RenderedTurns`.
        open_thought: the marks of the thought in which each prompt ends; None if it ends in none.

    Raises:
        ModelError: the chat template cannot be rendered, or the position of a content in it is ambiguous.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        system: str = "",
        thinking: bool = False,
        template_args: Mapping[str, Any] = NO_ARGS,
        controls: Iterable[int] = (),
    ) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError("the tokenizer has no form that the tokenizers library can read")
        layout: str = backend.to_str()
        parsed = json.loads(layout)
        self.has_template = bool(tokenizer.chat_template)
        rendered = render_turns(tokenizer, system, thinking=thinking, template_args=template_args)
        self.system_place, self.open_thought = rendered.system_place, rendered.open_thought
        around = rendered.text
        template = tokenizer.get_chat_template() if self.has_template else ""
        begin = around.index(ROW)
        end = begin + len(ROW)
        try:
            with _panics_as_errors():
                whole = backend.encode(around, add_special_tokens=not self.has_template)
        except ValueError as error:
            raise ModelError(f"the chat template cannot be encoded: {error}") from None
        added = markers(backend)
        own = added | _undeclared(backend, controls, around + template)
        # A tokenizer without bytes writes this token for an unknown character, so it is text.
        self._never = own - {_unknown(parsed, backend)}
        marks = [rank for rank, token in enumerate(whole.ids) if token in own]
        # Ids before the content end with a marker, ids after it begin with one; the plain text in
        # between is encoded in one piece with the content, because tokenizers merge across that border.
        first = max((rank + 1 for rank in marks if whole.offsets[rank][1] <= begin), default=0)
        last = min((rank for rank in marks if whole.offsets[rank][0] >= end), default=len(whole.ids))
        self.tail: list[int] = whole.ids[last:]
        self.before = around[whole.offsets[first - 1][1] if first else 0 : begin]
        self.after = around[end : whole.offsets[last][0] if last < len(whole.ids) else len(around)]
        # What follows the last marker of the tail is plain text, which an answer's opening merges with.
        plain = marks[-1] + 1 if self.tail else len(whole.ids)
        self._tail_markers = whole.ids[last:plain]
        self._tail_text = around[whole.offsets[plain - 1][1] :] if self.tail else ""

        @cache
        def twin_after(follows: str) -> Any:
            return type(backend).from_str(text_only_twin(json.loads(layout), own, follows=follows))

        def twin(rank: int) -> Any:
            """Return the text-only twin for the text that begins at the id of this rank."""
            return twin_after("nothing" if not rank else "added" if whole.ids[rank - 1] in added else "piece")

        self._twin, self._tail_twin = twin(first), twin(plain if self.tail else first)
        runs = list(_runs(around, whole.offsets, [rank for rank in marks if rank < first]))

        def head(said: str) -> list[int]:
            """Return the ids of the head with a text instead of the stand-in for the system prompt."""
            ids: list[int] = []
            for start, text, mark in runs:
                filled = text.replace(SYSTEM, said)
                ids += self._spelled(twin(start), filled) if SYSTEM in text else whole.ids[start:mark]
                ids.append(whole.ids[mark])
            return ids

        texts = [*(text for _, text, _ in runs), self.before]
        safe = not system or any(SYSTEM in text for text in texts)
        try:
            self.head = head(SYSTEM)
            safe &= self.encode(ROW) == whole.ids and self.spell(self._tail_text) == whole.ids[plain:]
        except (ValueError, ModelError):
            safe = False
        if not safe:
            raise ModelError("the chat template cannot be split safely around the content")
        try:
            self.head, self.before = head(system), self.before.replace(SYSTEM, system)
        except ValueError as error:
            raise ModelError(f"the system prompt cannot be encoded: {error}") from None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of the chat template around this text.

        Raises:
            ValueError: the tokenizer cannot read the text, or would read a part of it as a control token.
        """
        (encoded,) = self.encode_all([text])
        if isinstance(encoded, RowError):
            raise ValueError(encoded.reason)
        return encoded.ids

    def encode_all(
        self, texts: Sequence[str], beginnings: Iterable[Sequence[int]] = ()
    ) -> list[EncodedText | RowError]:
        """Return the token ids for each of several texts, encoded on all cores; or why a text has none.

        Args:
            texts: the texts.
            beginnings: for each text, the numbers of characters of the beginnings that it shares with others.
        """
        begins: Sequence[Sequence[int]] = [*beginnings] or [()] * len(texts)
        within = [self.before + text + self.after for text in texts]
        try:
            with _panics_as_errors():
                encoded = self._twin.encode_batch(within, add_special_tokens=False)
        except ValueError as error:
            if len(texts) == 1:
                return [RowError(str(error))]
            pairs = zip(texts, begins, strict=True)
            return [each for text, own in pairs for each in self.encode_all([text], [own])]  # one has no ids
        return [
            EncodedText([*self.head, *each.ids, *self.tail], self._beginnings(each, own))
            if self._never.isdisjoint(each.ids)
            else RowError(_MISREAD)
            for each, own in zip(encoded, begins, strict=True)
        ]

    def _beginnings(self, encoded: Any, characters: Sequence[int]) -> tuple[int, ...]:
        """Return the number of tokens before the one that holds the first character after each beginning."""
        ranks = (encoded.char_to_token(len(self.before) + count) for count in characters)
        return tuple(dict.fromkeys(len(self.head) + rank for rank in ranks if rank is not None))

    def without_middle(self, text: str, most: int) -> tuple[str, str, int]:
        """Return the beginning and the end of a text, and the number of tokens between them.

        Beginning and end have `most` tokens together. A text of at most `most` tokens is returned whole, as the
        beginning.

        Raises:
            ValueError: the tokenizer cannot read the text.
        """
        with _panics_as_errors():
            places: list[tuple[int, int]] = self._twin.encode(text, add_special_tokens=False).offsets
        if len(places) <= most:
            return text, "", 0
        kept = most // 2
        begin = places[most - kept - 1][1] if most else 0
        # The tokens of one character have the same place.
        end = max(begin, places[-kept][0]) if kept else len(text)
        return text[:begin], text[end:], len(places) - most

    def bound(self, text: str) -> int:
        """Return an upper bound of the number of token ids of `encode(text)`, without encoding it.

        A token covers a byte or more. A text has more tokens only if a normalizer writes out most of its
        characters; an engine that is opened for fewer tokens refuses this row alone.
        """
        size = len((self.before + text + self.after).encode(errors="surrogatepass"))
        return len(self.head) + size + 1 + len(self.tail)

    def spell(self, text: str) -> list[int]:
        """Return the token ids of text after the chat template's last marker, such as an answer.

        Raises:
            ModelError: the tokenizer cannot read the text, or would read a part of it as a control token.
        """
        try:
            return self._spelled(self._tail_twin, text)
        except ValueError as error:
            raise ModelError(f"an answer cannot be encoded: {error}") from None

    def _spelled(self, twin: Any, text: str) -> list[int]:
        with _panics_as_errors():
            ids: list[int] = twin.encode(text, add_special_tokens=False).ids
        if not self._never.isdisjoint(ids):
            raise ValueError(_MISREAD)
        return ids

    def with_opening(self, opening: str) -> Self:
        """Return an encoder whose prompts end with the opening of an answer.

        Raises:
            ModelError: the tokenizer cannot read the opening.
        """
        encoder = copy(self)
        if self.tail:
            encoder.tail = [*self._tail_markers, *self.spell(self._tail_text + opening)]
        else:
            encoder.after += opening
        return encoder

    @property
    def digest(self) -> str:
        """SHA-256 of everything around a row's text in a prompt, in hex."""
        around = json.dumps([self.head, self.before, self.after, self.tail])
        return hashlib.sha256(around.encode()).hexdigest()


def _runs(
    around: str, offsets: Sequence[tuple[int, int]], marks: Sequence[int]
) -> Iterator[tuple[int, str, int]]:
    """Yield the plain text before each marker, between the ranks of its first id and of the marker."""
    start = 0
    for mark in marks:
        yield start, around[offsets[start - 1][1] if start else 0 : offsets[mark][0]], mark
        start = mark + 1


def markers(backend: Any) -> set[int]:
    """Return the ids of the added tokens that are control tokens: all except runs of white space."""
    added = backend.get_added_tokens_decoder().items()
    return {token for token, each in added if each.special or each.content.strip(_SPACES)}


def _undeclared(backend: Any, controls: Iterable[int], template: str) -> set[int]:
    """Return the ids of control tokens that the tokenizer does not declare as added tokens.

    Args:
        backend: the tokenizer.
        controls: ids of control tokens; single characters and white space are ignored.
        template: the source of the chat template and the text that it renders.
    """

    def text_of(token: int) -> str:
        text: str = backend.decode([token], skip_special_tokens=False)
        return text.strip()

    named = {token for token in controls if len(text_of(token)) > 1}
    for marker in set(_MARKER.findall(template)):
        ids = backend.encode(marker, add_special_tokens=False).ids
        named |= {token for token in ids if text_of(token) == marker}
    return named


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Turn a panic of the tokenizers library, which derives from BaseException, or its plain Exception into a
    ValueError.

    Its regular expressions fail on some texts after a very large number of steps. The library prints the panic
    to stderr before Python receives it. It raises a plain Exception if, for instance, a tokenizer without a
    token for unknown characters reads one.
    """
    try:
        yield
    except BaseException as error:
        # The type cannot be imported.
        is_panic = (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")
        if not is_panic and type(error) is not Exception:
            raise
        raise ValueError(f"the tokenizer cannot encode the text: {' '.join(str(error).split())}") from None


def _unknown(layout: dict[str, Any], backend: Any) -> int | None:
    """Return the id of the token that represents unknown characters."""
    named = layout["model"].get("unk_token")
    unknown: int | None = layout["model"].get("unk_id") if named is None else backend.token_to_id(named)
    return unknown
