"""Read the text that a server wrote: the answer, and the probabilities that its list of alternatives shows."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from localjudge.config import JudgeConfig
from localjudge.engines.answer_reader import Distribution, ReadAnswer
from localjudge.engines.protocol import (
    SMALLEST_LOGPROB,
    TextCompletion,
    TokenChoice,
    are_logprobs,
)
from localjudge.errors import SettingError
from localjudge.prompts.thought_marks import open_thought, split_thought
from localjudge.rubrics.answer import AnswerLayout, ValueField, check_characters
from localjudge.rubrics.aspect import answer_format
from localjudge.rubrics.written_values import (
    CHARACTERS_PER_TOKEN,
    answer_pattern,
    bounded_schema,
    longest_answer,
    value_places,
)

_FENCE = re.compile(r"\s*```(?:json)?\n(.*)\n```\s*", re.DOTALL)
_SWITCH = (
    "switch them off with `template_args` enable_thinking=false or reasoning_effort=low, or leave room for "
    "them with `thinking_budget`"
)
# The largest share of the probability that the values outside a server's list of alternatives may have.
_UNLISTED = 0.001


@dataclass(frozen=True)
class TextReader:
    """A reader of answers that are text; a server may enforce that they are complete.

    Attributes:
        config: the settings of the judge.

    Raises:
        SettingError: a setting needs the tokenizer or the token table, which a server keeps to itself.
    """

    config: JudgeConfig

    def __post_init__(self) -> None:
        config, counted = self.config, "only the server can count the tokens of a prompt"
        if config.on_overflow != "fail":
            raise SettingError("on_overflow", config.on_overflow, f"{counted}; give fail")
        if config.max_result_tokens is not None:
            raise SettingError("max_result_tokens", config.max_result_tokens, f"{counted}; leave it out")

    @property
    def layout(self) -> AnswerLayout:
        """The answer as the judge writes it."""
        return self.config.rubric.answer_layout

    @property
    def text_characters(self) -> int:
        """The largest number of characters of each text of an answer."""
        return CHARACTERS_PER_TOKEN * self.config.max_rationale_tokens

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens in total, with thoughts."""
        return longest_answer(self.layout, self.text_characters) + (self.config.thinking_budget or 0)

    @cached_property
    def schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of an answer, whose texts are bounded; None if it is not JSON."""
        return bounded_schema(self.layout, self.text_characters)

    @cached_property
    def form_in_words(self) -> str:
        """What a prompt says of the form of the answer if nothing enforces it; empty if it has it already.

        Of an answer in JSON, one sentence stays in any case, because some servers write JSON only if the prompt
        has this word; the form follows unless the rubric shows it by `{$answer_format}`. A form of the rubric's
        own, on which a judge may be trained, follows unless all its literal text stands in the rubric's prompt.
        """
        rubric = self.config.rubric
        form = f"with the placeholders in [] filled in:\n{answer_format(self.layout, rubric.aspects)}"
        if self.schema is not None:
            sentence = "Answer with one JSON object and no other text; write each score in it as a string."
            return sentence if rubric.shows_answer_format else f"{sentence} It has this form, {form}"
        literal = [part.strip() for part in self.layout.parts if isinstance(part, str)]
        if rubric.shows_answer_format or all(text in rubric.prompt.text for text in literal):
            return ""
        return f"Answer in this form and with no other text, {form}"

    @cached_property
    def pattern(self) -> str:
        """Regular expression of an answer."""
        return answer_pattern(self.layout, self.text_characters)

    def read(self, completion: TextCompletion) -> ReadAnswer:
        """Read a completion.

        Raises:
            ValueError: it is not a whole answer; the message gives the reason.
        """
        thoughts, text = self._split_thoughts(completion)
        after = f", after thoughts; {_SWITCH}" if thoughts.strip() else ""
        if not completion.finished:
            raise ValueError(f"it is cut off at the limit of its tokens{after}")
        if after and not text:
            raise ValueError(f"it has no answer{after}")
        check_characters(completion.thoughts + completion.text, "it")
        answer = self.config.rubric.parse(text)
        cut = any(len(each) >= self.text_characters for each in answer.texts.values())
        known: dict[str, Distribution] = {}
        if completion.choices:
            places = value_places(self.layout, text)
            for field in self.layout.values:
                rest = text[places[field.name][0] :] if field.name in places else ""
                if rest and (found := _distribution(completion, rest, field)):
                    known[field.name] = found
        return ReadAnswer(answer, cut, known, thoughts, completion.output_tokens)

    def _split_thoughts(self, completion: TextCompletion) -> tuple[str, str]:
        """Return the thoughts, and the answer without white space and fences around it."""
        # A form can begin with a tag that looks like a thought.
        begins = "", completion.text
        thoughts, rest = begins if open_thought(self.layout.opening) else split_thought(completion.text)
        fenced = _FENCE.fullmatch(rest)
        return completion.thoughts or thoughts, (fenced[1] if fenced else rest).strip()


def _distribution(completion: TextCompletion, rest: str, field: ValueField) -> Distribution | None:
    """Return the probability of each value, and their mass; None if the tokens do not show it.

    A text shows a value if it begins this value alone, or if it is this value and the beginning of what follows
    it. The probabilities of all tokens with such a text are normalized to 1. A value that another one continues
    has no probability: the text of its token is the beginning of both.

    Args:
        completion: the completion; a token that ends the turn may follow the answer's.
        rest: the answer from this value on.
        field: the values.

    Raises:
        ValueError: the numbers in the value's place are not log-probabilities.
    """
    place = _place(completion.choices, rest)
    if place is None or any(
        one != other and other.startswith(one) for one in field.values for other in field.values
    ):
        return None
    choice, before = place
    chances = _chances(choice, field.name)
    written = next((value for value in field.values if rest.startswith(value)), "")
    closing = rest[len(written) :]
    shares, by_text, open_share = dict.fromkeys(field.values, 0.0), defaultdict[str, float](float), 0.0
    starts = set[str]()
    for text, chance in chances:
        by_text[text] += chance
        ahead = text.removeprefix(before)
        if not text.startswith(before) or not ahead:
            continue
        begun = [value for value in shares if value.startswith(ahead)]
        meant = begun or [
            value for value in shares if ahead.startswith(value) and _closes(ahead[len(value) :], closing)
        ]
        if len(meant) == 1:
            shares[meant[0]] += chance
            starts.add(text)
        elif meant:
            open_share += chance
    total = sum(shares.values())
    unlisted = min((chance for text, chance in chances if text != choice.text), default=1.0)
    open_share += unlisted * sum(not share for share in shares.values())
    if not total or open_share > _UNLISTED * total:
        return None
    top = max(by_text, key=lambda text: by_text[text])
    masked = any(logprob is not None and logprob < SMALLEST_LOGPROB for _, logprob in choice.alternatives)
    normalized = [share / total for share in shares.values()]
    if masked or completion.masked:
        return Distribution(normalized)
    return Distribution(normalized, min(total, 1.0), top in starts)


def _chances(choice: TokenChoice, name: str) -> list[tuple[str, float]]:
    """Return the text and the probability of each listed token; none if one is missing.

    Raises:
        ValueError: the numbers are not log-probabilities.
    """
    listed = [(text, logprob) for text, logprob in choice.alternatives if logprob is not None]
    if not are_logprobs([logprob for _, logprob in listed]):
        raise ValueError(
            f"the log-probabilities of {name} are not numbers up to 0, or add up to more than 1; "
            "to judge without them, give `engine_args` top_logprobs=0"
        )
    is_complete = len(listed) == len(choice.alternatives)
    return [(text, math.exp(logprob)) for text, logprob in listed] if is_complete else []


def _place(choices: Sequence[TokenChoice], rest: str) -> tuple[TokenChoice, str] | None:
    """Return the token with the beginning of a value, and what it holds before; None if the tokens lack it.

    Args:
        choices: the tokens of a completion.
        rest: the answer from this value on.
    """
    begin = "".join(choice.text for choice in choices).rfind(rest)
    if begin < 0:  # a character of several tokens, which stand in the list as something else
        return None
    found, end, after = None, 0, 0
    for choice in choices:
        start, end = end, end + len(choice.text)
        if start <= begin < end:
            found = choice, choice.text[: begin - start]
        after += start >= begin + len(rest) and bool(choice.text.strip().strip("`"))
    return found if after <= 1 else None  # otherwise the list continues after this answer


def _closes(text: str, closing: str) -> bool:
    """Return whether a text after a value is the beginning of what follows it, apart from white space.

    Args:
        text: the text.
        closing: what follows the value in the answer; empty at the answer's end.
    """
    if text[0] != closing[:1]:
        return not closing and text.isspace()
    text, closing = "".join(text.split()), "".join(closing.split())
    return text.startswith(closing) or closing.startswith(text)
