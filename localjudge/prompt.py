"""From a row to the token ids that the model reads.

The rubric's template is filled with the row, the model's chat template goes around it, and the row's text can
never become anything but text: everything between the chat template's own tokens is encoded by a *text-only
twin* of the tokenizer, the same tokenizer without its added tokens. A response that contains `<|im_end|>`,
`</s>` or `<think>` is read by the model as those characters, and not as the token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from localjudge.errors import ModelError

_STAND_IN = "stand-in-for-the-content"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an engine completes: token ids, and a tag and a seed that are the row's own."""

    tag: int
    tokens: list[int]
    seed: int


class Halt(Exception):  # noqa: N818 (no error)
    """Raised by an iterator of prompts: nothing more is to be begun, and what is begun is to be finished."""


def until_halt(prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    """The prompts, with a halt as their end: for engines whose answers do not hang on what comes together."""
    try:
        yield from prompts
    except Halt:
        return


class PromptEncoder:
    """The chat template of a model around the text of a row.

    Args:
        tokenizer: a fast Hugging Face tokenizer. Without a chat template the text stands alone, after
            whatever tokens the tokenizer puts first.
        thinking: whether a model that can think or not is to think.

    Raises:
        ModelError: the chat template cannot be rendered, or the place of the content in it is not certain.
    """

    def __init__(self, tokenizer: Any, *, thinking: bool = False) -> None:
        backend = tokenizer.backend_tokenizer
        self._added = set(backend.get_added_tokens_decoder())
        self.has_template = bool(tokenizer.chat_template)
        if self.has_template:
            turns = [{"role": "user", "content": _STAND_IN}]
            around = render(tokenizer, turns, add_generation_prompt=True, thinking=thinking)
        else:
            around = _STAND_IN
        if around.count(_STAND_IN) != 1:
            raise ModelError("the model's chat template does not put the content in exactly one place")
        begin = around.index(_STAND_IN)
        end = begin + len(_STAND_IN)
        whole = backend.encode(around, add_special_tokens=not self.has_template)
        marks = [rank for rank, token in enumerate(whole.ids) if token in self._added]
        # Ids before the content end with an added token, ids after it begin with one; the plain text in
        # between is encoded in one piece with the content, because tokenizers merge across that border.
        first = max((rank + 1 for rank in marks if whole.offsets[rank][1] <= begin), default=0)
        last = min((rank for rank in marks if whole.offsets[rank][0] >= end), default=len(whole.ids))
        self.head: list[int] = whole.ids[:first]
        self.tail: list[int] = whole.ids[last:]
        self.before = around[whole.offsets[first - 1][1] if first else 0 : begin]
        self.after = around[end : whole.offsets[last][0] if last < len(whole.ids) else len(around)]
        self._twin = text_only_twin(backend, inner=first > 0)
        if self.encode(_STAND_IN) != whole.ids:
            raise ModelError("the model's chat template cannot be split safely around the content")

    def encode(self, text: str) -> list[int]:
        """Token ids of the chat template around this text.

        Raises:
            ValueError: the tokenizer would read a part of the text as one of its added tokens.
        """
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for several texts at once, on all cores.

        Raises:
            ValueError: as `encode`, for one of them.
        """
        within = [self.before + text + self.after for text in texts]
        encoded = self._twin.encode_batch_fast(within, add_special_tokens=False)
        if not all(self._added.isdisjoint(each.ids) for each in encoded):
            raise ValueError("the tokenizer reads a part of the text as a token of its own")
        return [[*self.head, *each.ids, *self.tail] for each in encoded]

    @property
    def digest(self) -> str:
        """SHA-256 of what the chat template puts around a text, in hex."""
        around = json.dumps([self.head, self.before, self.after, self.tail])
        return hashlib.sha256(around.encode()).hexdigest()


def render(
    tokenizer: Any, messages: list[dict[str, str]], *, add_generation_prompt: bool, thinking: bool = False
) -> str:
    """The chat template's text around messages.

    Hybrid reasoning models are asked whether to think by the names that their templates know: `enable_thinking`
    (Qwen3, GLM, SmolLM3 …) and `thinking` (DeepSeek, Granite …).

    Raises:
        ModelError: the template cannot be rendered.
    """
    try:
        text = tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=thinking,
            thinking=thinking,
        )
    except Exception as error:  # a template is a program of the model's: it may raise anything
        raise ModelError(f"the model's chat template cannot be rendered: {error}") from None
    return str(text)


def text_only_twin(backend: Any, *, inner: bool) -> Any:
    """The same tokenizer, for text alone: no added tokens.

    Args:
        backend: a `tokenizers.Tokenizer`.
        inner: the text follows a token, so a space that belongs only at the very start is not put.
    """
    layout = json.loads(backend.to_str())
    layout.update(added_tokens=[], truncation=None, padding=None)
    # Byte fallback and post-processing may name tokens by their text; only the model's own pieces remain.
    layout["post_processor"] = None
    if inner:
        for part in _parts(layout.get("pre_tokenizer")):
            if part["type"] == "Metaspace" and part.get("prepend_scheme") == "first":
                part["prepend_scheme"] = "never"
    return type(backend).from_str(json.dumps(layout))


def _parts(component: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if component is None:
        return
    if component["type"] == "Sequence":
        for inner in component["pretokenizers"]:
            yield from _parts(inner)
    else:
        yield component
