"""Read the text that a server wrote: the answer, and the probabilities that its list of alternatives shows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from localjudge.config import JudgeConfig
from localjudge.engines.answer_reader import ReadAnswer
from localjudge.engines.protocol import LARGEST_LOGPROB, TextCompletion, TextDecoding, TokenChoice
from localjudge.errors import SettingError
from localjudge.prompts.thought_marks import open_thought, split_thought
from localjudge.rubrics.answer import AnswerLayout, ValueField, check_characters
from localjudge.rubrics.rubric import Rubric
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


@dataclass(frozen=True, slots=True)
class TextReader:
    """A reader of answers that are text; a server may enforce that they are complete.

    Attributes:
        rubric: the rubric.
        layout: the answer as the judge writes it.
        text_characters: the largest number of characters of each text of an answer.
    """

    rubric: Rubric
    layout: AnswerLayout
    text_characters: int

    @classmethod
    def from_config(cls, config: JudgeConfig, layout: AnswerLayout) -> Self:
        """Return the reader of a judge's answers.

        Raises:
            SettingError: a setting needs the tokenizer or the token table, which a server keeps to itself.
        """
        counted = "only the server can count the tokens of a prompt"
        if config.on_overflow != "fail":
            raise SettingError("on_overflow", config.on_overflow, f"{counted}; give fail")
        if config.max_result_tokens is not None:
            raise SettingError("max_result_tokens", config.max_result_tokens, f"{counted}; leave it out")
        if config.rubric.checks_together:
            advice = "which needs the token table; judge by checklist, one criterion a prompt"
            name = config.rubric.name
            raise SettingError("rubric", name, f"asks for all criteria in one answer, {advice}")
        return cls(config.rubric, layout, CHARACTERS_PER_TOKEN * config.max_rationale_tokens)

    def decoding(self, config: JudgeConfig) -> TextDecoding:
        """Return how a server is to decode the answers."""
        budget = config.thinking_budget
        return TextDecoding(
            turns=self.rubric.turns(self.layout),
            schema=bounded_schema(self.layout, self.text_characters),
            pattern=answer_pattern(self.layout, self.text_characters),
            max_tokens=longest_answer(self.layout, self.text_characters) + (budget or 0),
            thinks=budget is not None,
            template_args=config.template_args or {},
            is_whole=self.is_whole,
            temperature=config.temperature,
            top_p=config.top_p,
        )

    def read(self, completion: TextCompletion, criteria: int = 0) -> ReadAnswer:
        """Read a completion; a server is asked for one criterion at a time.

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
        answer = self.rubric.parse(text)
        cut = any(len(each) >= self.text_characters for each in answer.texts.values())
        found: dict[str, _Distribution] = {}
        if completion.choices:
            places = value_places(self.layout, text)
            for field in self.layout.values:
                rest = text[places[field.name][0] :] if field.name in places else ""
                if rest and (known := _distribution(completion.choices, rest, field)):
                    found[field.name] = known
        return ReadAnswer(
            answer,
            cut,
            {name: each.probabilities for name, each in found.items()},
            {name: each.mass for name, each in found.items()},
            {name: each.likeliest for name, each in found.items()},
            thoughts,
            completion.output_tokens,
        )

    def _split_thoughts(self, completion: TextCompletion) -> tuple[str, str]:
        """Return the thoughts, and the answer without white space and fences around it."""
        # A form can begin with a tag that looks like a thought.
        begins = "", completion.text
        thoughts, rest = begins if open_thought(self.layout.opening) else split_thought(completion.text)
        fenced = _FENCE.fullmatch(rest)
        return completion.thoughts or thoughts, (fenced[1] if fenced else rest).strip()

    def is_whole(self, completion: TextCompletion) -> bool:
        """Return whether a completion is a whole answer."""
        try:
            self.read(completion)
        except ValueError:
            return False
        return True


class _Distribution(NamedTuple):
    probabilities: list[float]
    mass: float
    likeliest: bool


def _distribution(choices: Sequence[TokenChoice], rest: str, field: ValueField) -> _Distribution | None:
    """Return the probability of each value, and their mass; None if the tokens do not show it.

    A token identifies a value if it begins this value alone, or if it begins with this value. The probabilities
    of these tokens are normalized to 1.

    Args:
        choices: the tokens of the completion; a token that ends the turn may follow the answer's.
        rest: the answer from this value on.
        field: the values.

    Raises:
        ValueError: the numbers in the value's place are not log-probabilities.
    """
    begin = "".join(choice.text for choice in choices).rfind(rest)
    if begin < 0:  # a character of several tokens, which stand in the list as something else
        return None
    start = 0
    for choice in choices:
        if start <= begin < start + len(choice.text):
            break
        start += len(choice.text)
    else:
        return None
    if not all(each <= LARGEST_LOGPROB for each in choice.alternatives.values()):  # NaN as well
        raise ValueError(
            f"the log-probabilities of {field.name} are not numbers up to 0; "
            "to judge without them, give `engine_args` top_logprobs=0"
        )
    before = choice.text[: begin - start]
    shares, starts = dict.fromkeys(field.values, 0.0), set[str]()
    for text, logprob in choice.alternatives.items():
        ahead = text.removeprefix(before)
        if not text.startswith(before) or not ahead:
            continue
        meant = [value for value in shares if value.startswith(ahead) or ahead.startswith(value)]
        if len(meant) > 1:
            return None
        if meant:
            shares[meant[0]] += math.exp(logprob)
            starts.add(text)
    total = sum(shares.values())
    least = min(map(math.exp, choice.alternatives.values()), default=1.0)
    missing = sum(not share for share in shares.values())
    if not total or missing * least > _UNLISTED * total:
        return None
    top = max(choice.alternatives, key=lambda text: choice.alternatives[text])
    return _Distribution([share / total for share in shares.values()], min(total, 1.0), top in starts)
