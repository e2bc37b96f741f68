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
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
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
        self.has_template = bool(tokenizer.chat_template)
        rendered = render_turns(tokenizer, system, thinking=thinking, template_args=template_args)
        self.system_place = rendered.system_place
        self.open_thought = rendered.open_thought
        text = rendered.text
        template = tokenizer.get_chat_template() if self.has_template else ""
        added = markers(backend)
        control = added | _undeclared(backend, controls, text + template)
        # A tokenizer without bytes writes this token for an unknown character, so it is text.
        self._never = control - {_unknown(json.loads(layout), backend)}
        prompt = _TokenizedPrompt.from_text(
            backend, text, control=control, add_special_tokens=not self.has_template
        )

        # Ids before the row's text end with a marker, ids after it begin with one. The plain text in between is
        # encoded in one piece with the row's text, because tokenizers merge across that border.
        begin = text.index(ROW)
        end = begin + len(ROW)
        first = prompt.rank_after_markers(begin)
        last = prompt.rank_of_marker(end)
        self.before = text[prompt.end_before(first) : begin]
        self.after = text[end : prompt.begin_of(last)]
        self.tail: list[int] = prompt.ids[last:]
        # What follows the last marker of the tail is plain text, which an answer's opening merges with.
        plain = prompt.markers[-1] + 1 if self.tail else len(prompt.ids)
        self._tail_markers = prompt.ids[last:plain]
        self._tail_text = text[prompt.end_before(plain) :] if self.tail else ""

        twins = _Twins(backend, layout, control)
        self._twin = twins.at(prompt, first, added)
        self._tail_twin = twins.at(prompt, plain if self.tail else first, added)
        runs = prompt.runs_before(first)
        texts = [run.text for run in runs] + [self.before]
        shows_system = any(SYSTEM in shown for shown in texts)

        def head(system_text: str) -> list[int]:
            """Return the ids of the head with a text in place of the stand-in for the system prompt."""
            ids: list[int] = []
            for run in runs:
                if SYSTEM in run.text:
                    twin = twins.at(prompt, run.first, added)
                    ids += self._spelled(twin, run.text.replace(SYSTEM, system_text))
                else:
                    ids += prompt.ids[run.first : run.marker]
                ids.append(prompt.ids[run.marker])
            return ids

        try:
            self.head = head(SYSTEM)
            is_safe = self.encode(ROW) == prompt.ids and self.spell(self._tail_text) == prompt.ids[plain:]
        except (ValueError, ModelError):
            is_safe = False
        if not is_safe or (system and not shows_system):
            raise ModelError("the chat template cannot be split safely around the content")
        try:
            self.head = head(system)
        except ValueError as error:
            raise ModelError(f"the system prompt cannot be encoded: {error}") from None
        self.before = self.before.replace(SYSTEM, system)

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
        prefixes: list[Sequence[int]] = list(beginnings)
        if not prefixes:
            prefixes = [()] * len(texts)
        with_plain_text = [self.before + text + self.after for text in texts]
        try:
            with _panics_as_errors():
                encoded = self._twin.encode_batch(with_plain_text, add_special_tokens=False)
        except ValueError as error:
            if len(texts) == 1:
                return [RowError(str(error))]
            one_by_one: list[EncodedText | RowError] = []  # so that only the one that cannot be read has no ids
            for text, lengths in zip(texts, prefixes, strict=True):
                one_by_one += self.encode_all([text], [lengths])
            return one_by_one
        return [self._whole(ids, lengths) for ids, lengths in zip(encoded, prefixes, strict=True)]

    def _whole(self, encoded: Any, prefix_lengths: Sequence[int]) -> EncodedText | RowError:
        """Return the ids of a prompt from those of a row's text; or why it has none.

        Args:
            encoded: the encoding of the row's text with the plain text around it.
            prefix_lengths: as for `_beginnings`.
        """
        if not self._never.isdisjoint(encoded.ids):
            return RowError(_MISREAD)
        return EncodedText(self.head + encoded.ids + self.tail, self._beginnings(encoded, prefix_lengths))

    def _beginnings(self, encoded: Any, prefix_lengths: Sequence[int]) -> tuple[int, ...]:
        """Return the number of tokens before the one that holds the first character after each prefix.

        Args:
            encoded: the encoding of a row's text.
            prefix_lengths: the lengths of prefixes of the row's text, in characters.
        """
        beginnings: dict[int, None] = {}  # each once, in their order
        for length in prefix_lengths:
            rank = encoded.char_to_token(len(self.before) + length)
            if rank is not None:
                beginnings[len(self.head) + rank] = None
        return tuple(beginnings)

    def without_middle(self, text: str, most: int) -> tuple[str, str, int]:
        """Return the beginning and the end of a text, and the number of tokens between them.

        Beginning and end have `most` tokens together. A text of at most `most` tokens is returned whole, as the
        beginning.

        Raises:
            ValueError: the tokenizer cannot read the text.
        """
        with _panics_as_errors():
            offsets: list[tuple[int, int]] = self._twin.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= most:
            return text, "", 0
        last = most // 2  # tokens of the end
        first = most - last  # tokens of the beginning
        begin = offsets[first - 1][1] if first else 0
        end = len(text)
        if last:
            end = max(begin, offsets[-last][0])  # the tokens of one character have the same offsets
        return text[:begin], text[end:], len(offsets) - most

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
            encoder.tail = self._tail_markers + self.spell(self._tail_text + opening)
        else:
            encoder.after += opening
        return encoder

    @property
    def digest(self) -> str:
        """SHA-256 of everything around a row's text in a prompt, in hex."""
        around = json.dumps([self.head, self.before, self.after, self.tail])
        return hashlib.sha256(around.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _PlainRun:
    """Plain text before a control token.

    Attributes:
        text: the text.
        first: the rank of its first id in the prompt.
        marker: the rank of the control token after it.
    """

    text: str
    first: int
    marker: int


@dataclass(frozen=True, slots=True)
class _TokenizedPrompt:
    """A rendered prompt as token ids, each with a rank from 0.

    Attributes:
        text: the prompt.
        ids: its token ids.
        offsets: for each id, the begin and the end of its text, in characters.
        markers: the ranks of the control tokens.
    """

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    markers: list[int]

    @classmethod
    def from_text(cls, backend: Any, text: str, *, control: Set[int], add_special_tokens: bool) -> Self:
        """Encode a prompt.

        Args:
            backend: the tokenizer.
            text: the prompt.
            control: the ids of the control tokens.
            add_special_tokens: whether the tokenizer adds tokens around the text.

        Raises:
            ModelError: the tokenizer cannot encode it.
        """
        try:
            with _panics_as_errors():
                encoded = backend.encode(text, add_special_tokens=add_special_tokens)
        except ValueError as error:
            raise ModelError(f"the chat template cannot be encoded: {error}") from None
        marker_ranks = [rank for rank, token in enumerate(encoded.ids) if token in control]
        return cls(text, encoded.ids, encoded.offsets, marker_ranks)

    def end_before(self, rank: int) -> int:
        """Return where the text of the id before this rank ends; 0 before the first id."""
        return self.offsets[rank - 1][1] if rank else 0

    def begin_of(self, rank: int) -> int:
        """Return where the text of the id of this rank begins; the end of the prompt after the last id."""
        return self.offsets[rank][0] if rank < len(self.ids) else len(self.text)

    def rank_after_markers(self, character: int) -> int:
        """Return the rank after the last control token that ends before a character; 0 without one."""
        ranks = [rank + 1 for rank in self.markers if self.offsets[rank][1] <= character]
        return max(ranks, default=0)

    def rank_of_marker(self, character: int) -> int:
        """Return the rank of the first control token that begins at a character or later.

        Without one, return the number of ids.
        """
        ranks = [rank for rank in self.markers if self.offsets[rank][0] >= character]
        return min(ranks, default=len(self.ids))

    def runs_before(self, rank: int) -> list[_PlainRun]:
        """Return the plain text before each control token of a lower rank."""
        runs: list[_PlainRun] = []
        first = 0
        for marker in self.markers:
            if marker >= rank:
                break
            text = self.text[self.end_before(first) : self.begin_of(marker)]
            runs.append(_PlainRun(text, first, marker))
            first = marker + 1
        return runs


class _Twins:
    """The text-only twins of a tokenizer, by what precedes the text that they encode.

    Args:
        backend: the tokenizer.
        layout: its JSON.
        control: the ids of its control tokens.
    """

    def __init__(self, backend: Any, layout: str, control: set[int]) -> None:
        self._backend = backend
        self._layout = layout
        self._control = control
        self._twins: dict[str, Any] = {}

    def at(self, prompt: _TokenizedPrompt, rank: int, added: Set[int]) -> Any:
        """Return the twin for the text that begins at the id of this rank; `added` has the added tokens."""
        if rank == 0:
            return self._after("nothing")
        if prompt.ids[rank - 1] in added:
            return self._after("added")
        return self._after("piece")

    def _after(self, follows: str) -> Any:
        if follows not in self._twins:
            layout = text_only_twin(json.loads(self._layout), self._control, follows=follows)
            self._twins[follows] = type(self._backend).from_str(layout)
        return self._twins[follows]


def markers(backend: Any) -> set[int]:
    """Return the ids of the added tokens that are control tokens: all except runs of white space."""
    control: set[int] = set()
    for token, added in backend.get_added_tokens_decoder().items():
        if added.special or added.content.strip(_SPACES):
            control.add(token)
    return control


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
        name = f"{type(error).__module__}.{type(error).__name__}"
        is_panic = name == "pyo3_runtime.PanicException"
        if not is_panic and type(error) is not Exception:
            raise
        raise ValueError(f"the tokenizer cannot encode the text: {' '.join(str(error).split())}") from None


def _unknown(layout: dict[str, Any], backend: Any) -> int | None:
    """Return the id of the token that represents unknown characters."""
    model = layout["model"]
    unknown: int | None = model.get("unk_id")
    if model.get("unk_token") is not None:
        unknown = backend.token_to_id(model["unk_token"])
    return unknown
