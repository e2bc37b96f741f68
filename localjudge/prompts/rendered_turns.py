"""The text of a prompt's turns as a chat template renders them, with a stand-in for each content.

A chat template is a program, and may treat contents specially. So it never gets the text of a row: it renders
the stand-ins, and what it writes between them goes around every row.

Some templates begin the turn of the assistant with less than what stands before its answers: the model is to
write the rest, such as a channel. A judge answers at once, so its prompt has that rest, too, unless the rest
opens a thought.

Some templates read a content only as a list of parts, as messages with images have them. Such a template gets
each text as a part (`reads_parts`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from localjudge.errors import ModelError
from localjudge.prompts.chat_template import Content, Message, render_template
from localjudge.prompts.thought_formats import ThoughtFormat
from localjudge.prompts.thought_marks import has_thought_mark, open_thought, own_channel

NO_ARGS: Mapping[str, Any] = MappingProxyType({})
"""No variables of a chat template."""
ROW = "stand-in-for-the-content"
"""Stand-in for the text of a row."""
SYSTEM = "stand-in-for-the-system-prompt"
"""Stand-in for the system prompt."""
_ANSWER = "stand-in-for-the-answer"
# Contents that a template might treat specially: the text around the row's content must not depend on it.
_TRICKY = (
    " stand-in\n",
    "1\n\n</think>\n[/INST]<|im_end|>",
    "<think>a</think>b",
    "/no_think",
    "{{ messages }}",
)


@dataclass(frozen=True, slots=True)
class RenderedTurns:
    """The turns of a prompt as one text.

    Attributes:
        text: the text, with `ROW` for the text of the row and `SYSTEM` for the system prompt.
        system_place: where the system prompt stands: in a turn of its own (`turn`), before the text of the turn
            of the user because the chat template has no system turn (`user`), or first because there is no chat
            template (`text`); None if there is no system prompt.
    """

    text: str
    system_place: Literal["turn", "user", "text"] | None

    @property
    def open_thought(self) -> ThoughtFormat | None:
        """The format of the thought in which the text ends; None if it ends in none."""
        return open_thought(self.text.rpartition(ROW)[2])


def render_turns(
    tokenizer: Any, system: str, *, thinking: bool, template_args: Mapping[str, Any]
) -> RenderedTurns:
    """Return the text of the system prompt, which is the same in all prompts, and of the row's turn after it.

    Args:
        tokenizer: a tokenizer; without a chat template, an empty line follows the system prompt.
        system: the system prompt; empty for none.
        thinking: whether a model with optional thinking thinks.
        template_args: further variables of the chat template.

    Raises:
        ModelError: the template cannot be rendered, changes a content, or does not put each in exactly one
            place, the row's last.
    """
    if not tokenizer.chat_template:
        return RenderedTurns(f"{SYSTEM}\n\n{ROW}", "text") if system else RenderedTurns(ROW, None)
    row_alone = _Renderer(
        tokenizer=tokenizer,
        messages=[{"role": "user", "content": ROW}],
        contents={},
        thinking=thinking,
        template_args=template_args,
    )
    if not system:
        return row_alone.rendered(None)
    contents = {SYSTEM: system}
    turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ROW}]
    in_two_turns = replace(row_alone, messages=turns, contents=contents)
    if in_two_turns.takes_system():
        return in_two_turns.rendered("turn")
    turn = {"role": "user", "content": f"{SYSTEM}\n\n{ROW}"}
    return replace(row_alone, messages=[turn], contents=contents).rendered("user")


@dataclass(frozen=True, slots=True)
class _Renderer:
    """The chat template and turns with stand-ins."""

    tokenizer: Any
    messages: list[dict[str, str]]
    contents: Mapping[str, str]
    thinking: bool
    template_args: Mapping[str, Any]

    def render(self, contents: Mapping[str, str]) -> str:
        """Return the text of a prompt with some contents instead of their stand-ins."""
        messages = [message | {"content": _replaced(message["content"], contents)} for message in self.messages]
        try:
            prompt = self._text_of(messages, add_generation_prompt=True)
        except ModelError as error:
            if not self.contents:
                raise
            raise ModelError(f"{error} (with the rubric's system prompt)") from None
        if not self.thinking:
            return self._with_begun_answer(prompt, messages)
        channel = own_channel(self.tokenizer.get_chat_template(), self.tokenizer.get_vocab())
        if channel is not None and prompt.endswith(channel.begun_after):
            return prompt + channel.opens
        return prompt

    def _text_of(self, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        return render(
            self.tokenizer,
            messages,
            add_generation_prompt=add_generation_prompt,
            thinking=self.thinking,
            template_args=self.template_args,
        )

    def _with_begun_answer(self, prompt: str, messages: list[dict[str, str]]) -> str:
        """Return a prompt with all that the template writes before an answer of the assistant.

        It is the prompt as it is if the template writes something else before answers, or a thought.

        Args:
            prompt: the text of the messages, with the beginning of the turn of the assistant.
            messages: the turns.
        """
        begun = self._before_answer(messages, role="assistant")
        if begun is None or not begun.startswith(prompt) or begun == prompt:
            return prompt
        if has_thought_mark(begun.removeprefix(prompt)):
            return prompt
        # A template that does not read the roles writes the same before any turn.
        if self._before_answer(messages, role="user") == begun:
            return prompt
        return begun

    def _before_answer(self, messages: list[dict[str, str]], role: str) -> str | None:
        """Return what stands before another turn of this role; None if the template has no such turn."""
        turns = messages + [{"role": role, "content": _ANSWER}]
        try:
            text = self._text_of(turns, add_generation_prompt=False)
        except ModelError:
            return None
        if _ANSWER not in text:
            return None
        return text.partition(_ANSWER)[0]

    def takes_system(self) -> bool:
        """Return whether the template has a turn of the system; others raise an error or leave it out."""
        try:
            return SYSTEM in self.render({ROW: ROW})
        except ModelError:
            return False

    def rendered(self, system: Literal["turn", "user"] | None) -> RenderedTurns:
        """Render the stand-ins, and check that the template treats no content specially."""
        stand_ins = {name: name for name in self.contents}
        stand_ins[ROW] = ROW
        text = self.render(stand_ins)
        shown = _split_at(stand_ins).findall(text)
        if sorted(shown) != sorted(stand_ins) or shown[-1] != ROW:
            if self.contents and text.count(ROW) == 1:
                advice = "system prompt in exactly one place before the row; judge without it"
            else:
                advice = "content in exactly one place"
            raise ModelError(f"the chat template must show the {advice}")
        for content in _TRICKY:
            contents = stand_ins | {ROW: content}
            if not _renders(text, contents, self.render(contents)):
                raise ModelError(f"the chat template changes the content {content!r}")
        contents = stand_ins | dict(self.contents)
        if not _renders(text, contents, self.render(contents)):
            raise ModelError("the chat template changes the content of the system prompt")
        return RenderedTurns(text, system)


def _split_at(stand_ins: Mapping[str, str]) -> re.Pattern[str]:
    """Return the pattern of any of the stand-ins."""
    return re.compile("|".join(re.escape(name) for name in stand_ins))


def _replaced(text: str, contents: Mapping[str, str]) -> str:
    """Return a text with contents in place of their stand-ins."""
    return _split_at(contents).sub(lambda stand_in: contents[stand_in[0]], text)


def _renders(text: str, contents: Mapping[str, str], rendered: str) -> bool:
    """Return whether a rendered text is the text with these contents.

    The template may trim a content; its own leading and trailing spaces stay in the prompt all the same.
    """
    expected = ""
    for part in re.split(f"({_split_at(contents).pattern})", text):
        if part in contents:
            forms = "|".join(re.escape(form) for form in _trimmed(contents[part]))
            expected += f"(?:{forms})"
        else:
            expected += re.escape(part)
    return re.fullmatch(expected, rendered) is not None


def _trimmed(content: str) -> Iterable[str]:
    """Return the different forms of a content; equal ones would multiply the ways to match a text."""
    return dict.fromkeys([content, content.strip(), content.lstrip(), content.rstrip()])


def render(
    tokenizer: Any,
    messages: list[dict[str, str]],
    *,
    add_generation_prompt: bool,
    thinking: bool = False,
    template_args: Mapping[str, Any] = NO_ARGS,
) -> str:
    """Return the chat template's text around messages.

    Templates of hybrid reasoning models read one of three variables to switch thinking: `enable_thinking`
    (Qwen3, GLM, SmolLM3 …), `thinking` (DeepSeek, Granite, Kimi K3 …) or `thinking_budget` (Seed-OSS), which is
    0 for none. `template_args` has others, or replaces these.

    Args:
        tokenizer: the tokenizer.
        messages: the turns, each with a role and a text as its content.
        add_generation_prompt: whether the text ends with the beginning of the turn of the assistant.
        thinking: whether a model with optional thinking thinks.
        template_args: further variables of the chat template.

    Raises:
        ModelError: the template cannot be rendered.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:  # several templates, without a default
        raise ModelError(f"the chat template cannot be rendered: {error}") from None
    fixed = dict(tokenizer.special_tokens_map)
    variables = dict(tokenizer.special_tokens_map)
    variables["add_generation_prompt"] = add_generation_prompt
    variables["enable_thinking"] = thinking
    variables["thinking"] = thinking
    if not thinking:  # without this variable, Seed-OSS thinks without a limit
        variables["thinking_budget"] = 0
    fixed.update(template_args)
    variables.update(template_args)
    if not reads_parts(template, json.dumps(fixed, sort_keys=True)):
        return render_template(template, messages, variables)
    in_parts: list[Message] = []
    for message in messages:
        in_parts.append({"role": message["role"], "content": _in_parts(message["content"])})
    return render_template(template, in_parts, variables)


@lru_cache(maxsize=64)
def reads_parts(template: str, variables: str) -> bool:
    """Return whether a template reads a content only as a list of parts: `[{"type": "text", "text": …}]`.

    This is decided once for a template, by what it renders: a text that is given as a string is lost (or an
    error), and the same text as a part is not. A template that shows strings gets strings, even if it reads
    parts as well.

    Args:
        template: the source of the chat template.
        variables: the variables that do not depend on the prompt, as JSON.
    """
    if _shows(template, ROW, variables):
        return False
    return _shows(template, _in_parts(ROW), variables)


def _shows(template: str, content: Content, variables: str) -> bool:
    """Return whether a template renders a turn of the user with this content, and shows the stand-in in it."""
    try:
        text = render_template(template, [{"role": "user", "content": content}], json.loads(variables))
    except ModelError:
        return False
    return ROW in text


def _in_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
