"""Read what an engine completed: the answer, the probabilities of its values, and what was cut."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, NamedTuple, Self

import numpy as np

from localjudge.config import JudgeConfig
from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.engines.protocol import (
    LARGEST_LOGPROB,
    Completion,
    Decoding,
    TextCompletion,
    TextDecoding,
    TokenChoice,
)
from localjudge.errors import ModelError, SettingError
from localjudge.models.model import Model
from localjudge.prompts.task_builder import Opening
from localjudge.rubrics.answer import Answer, AnswerLayout, ValueField, check_characters
from localjudge.rubrics.aspect import Aspect, scores_of, written_aspects
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.written_values import (
    CHARACTERS_PER_TOKEN,
    answer_pattern,
    bounded_schema,
    longest_answer,
    value_places,
)
from localjudge.system.cache import cache_folder

_THOUGHTS = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)
_FENCE = re.compile(r"\s*```(?:json)?\n(.*)\n```\s*", re.DOTALL)
# The largest share of the probability that the values outside a server's list of alternatives may have.
_UNLISTED = 0.001


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer as it was read.

    Attributes:
        answer: its values.
        rationale_cut: whether the limit, and not the model, ended a text.
        probabilities: the probability of each value of an aspect, in the rubric's order; an aspect whose
            distribution is not known is missing.
        mass: their sum in the model's own distribution, before the constraint; from a server that lists only
            some tokens, a lower bound.
        likeliest: whether the model's likeliest token was one of the values'.
        thoughts: the text before the answer; empty without any.
        output_tokens: number of tokens, thoughts included.
    """

    answer: Answer
    rationale_cut: bool
    probabilities: Mapping[str, Sequence[float]]
    mass: Mapping[str, float]
    likeliest: Mapping[str, bool]
    thoughts: str
    output_tokens: int

    def joined(self, aspects: Mapping[str, Aspect]) -> ReadAnswer:
        """Return the answer with a preference in place of the scores of two responses.

        Its probabilities treat the two scores as independent, although the model gave those of the second score
        after it had written the first one.
        """
        both = {name: [*written_aspects({name: each})] for name, each in aspects.items() if each.each}
        if not both:
            return self
        texts, scores = dict(self.answer.texts), dict(self.answer.scores)
        probabilities: dict[str, Any] = dict(self.probabilities)
        mass: dict[str, Any] = dict(self.mass)
        likeliest: dict[str, Any] = dict(self.likeliest)
        for name, sides in both.items():
            one, other = (int(scores.pop(side)) for side in sides)
            texts[scores_of(name)] = f"{one} and {other}"
            scores[name] = "A" if one > other else "B" if one < other else "tie"
            shares, masses, picks = (
                [known.pop(side) for side in sides if side in known]
                for known in (probabilities, mass, likeliest)
            )
            if len(shares) == 2:
                joint = np.outer(shares[0], shares[1])
                better, worse = np.tril(joint, -1).sum(), np.triu(joint, 1).sum()
                probabilities[name] = [float(better), float(joint.trace()), float(worse)]
            if len(masses) == 2:
                mass[name], likeliest[name] = masses[0] * masses[1], all(picks)
        answer = Answer(texts, {name: scores[name] for name in aspects})
        return replace(self, answer=answer, probabilities=probabilities, mass=mass, likeliest=likeliest)

    def expected(self, aspects: Mapping[str, Aspect]) -> dict[str, float]:
        """Return the mean number of each ordered aspect whose distribution is known."""
        scales = {name: aspects[name].numbers for name in self.probabilities}
        return {
            name: round(sum(map(mul, self.probabilities[name], scale.values())), 4)
            for name, scale in scales.items()
            if scale is not None
        }


def averaged(
    samples: Sequence[ReadAnswer], aspects: Mapping[str, Aspect]
) -> tuple[ReadAnswer, dict[str, float]]:
    """Return the mean of several answers to a prompt, and how far they are apart.

    Args:
        samples: the answers.
        aspects: the aspects.

    Returns:
        the answer whose expected scores lie nearest to the means, with the mean probabilities and masses and
        the tokens of all; and the standard deviation of each expected score between the answers, if there are
        several.
    """
    if len(samples) == 1:
        return samples[0], {}
    every = [each.expected(aspects) for each in samples]
    known = [name for name in aspects if all(name in each for each in every)]
    columns = np.array([[each[name] for name in known] for each in every])
    nearest = samples[int(np.abs(columns - columns.mean(axis=0)).sum(axis=1).argmin())]

    def mean(name: str) -> dict[str, Any]:
        parts = [getattr(each, name) for each in samples]
        shared = [aspect for aspect in aspects if all(aspect in part for part in parts)]
        return {aspect: np.mean([part[aspect] for part in parts], axis=0).tolist() for aspect in shared}

    read = replace(
        nearest,
        probabilities=mean("probabilities"),
        mass=mean("mass"),
        likeliest={aspect: share > 0.5 for aspect, share in mean("likeliest").items()},
        output_tokens=sum(each.output_tokens for each in samples),
    )
    spread = columns.std(axis=0, ddof=1).round(4).tolist()
    return read, dict(zip(known, spread, strict=True))


@dataclass(frozen=True, slots=True)
class TableReader:
    """A reader of answers that the token table enforced.

    Attributes:
        rubric: the rubric.
        layouts: the answer as the judge writes it to a prompt of 1, 2 … criteria, or to any prompt.
        vocabulary: the model's vocabulary.
        decoding: how the answers were decoded.
        opens: whether the opening of an answer stands in the prompt already.
    """

    rubric: Rubric
    layouts: Sequence[AnswerLayout]
    vocabulary: Vocabulary
    decoding: Decoding
    opens: bool

    @classmethod
    def from_config(
        cls, config: JudgeConfig, layouts: Sequence[AnswerLayout], model: Model
    ) -> tuple[Self, list[Opening]]:
        """Return the reader of a judge's answers, and for each layout the opening that its answers go on.

        Raises:
            SettingError: the model cannot think, or only without a limit, or the answer cannot follow thoughts.
            ModelError: its tokenizer cannot spell a prompt or an answer.
        """
        *shorter, layout = layouts
        vocabulary, budget = model.vocabulary, _thinking_budget(config.thinking_budget, model)
        if budget is not None and config.rubric.checks_together:
            advice = "which no model that thinks first gives here; judge by checklist, one criterion a prompt"
            reason = f"the rubric {config.rubric.name} asks for all criteria in one answer, {advice}"
            raise SettingError("thinking_budget", budget, reason)
        prompts = model.prompts if budget is None else model.thinking_prompts
        if turns := config.rubric.turns(layout):
            prompts = model.prompts_after(turns, thinking=budget is not None)
        # A model that thinks first decodes the opening after its thoughts.
        opens = budget is None
        try:
            encoders = [prompts.with_opening(each.opening if opens else "") for each in layouts]
            table = token_table(
                layout,
                vocabulary,
                prompts.spell,
                decodes_opening=not opens,
                shorter=shorter[::-1],
                cache=cache_folder(),
            )
        except ModelError as error:
            raise ModelError(f"model {model.name}: {error}") from None
        if budget is not None and model.thinking_tokens is not None:
            table = table.after_thinking(vocabulary, *model.thinking_tokens)
        if max(encoders[-1].head + encoders[-1].tail, default=0) >= vocabulary.size:
            raise ModelError(
                f"model {model.name}: its chat template uses tokens that the model does not have; "
                "its tokenizer and its weights do not belong together"
            )
        text_tokens = config.max_rationale_tokens
        margin = closing_margin_for(text_tokens)
        decoding = Decoding(
            table, text_tokens, margin, config.temperature, config.top_p, thinking_budget=budget
        )
        starts = table.starts.tolist() or [None]
        openings = [
            Opening(encoder, decoding.beginning(start).max_tokens, start)
            for encoder, start in zip(encoders, starts, strict=True)
        ]
        return cls(config.rubric, layouts, vocabulary, decoding, opens), openings

    def read(self, completion: Completion, criteria: int = 0) -> ReadAnswer:
        """Read a completion.

        Args:
            completion: the completion.
            criteria: the number of criteria of its prompt.

        Raises:
            ValueError, LookupError: it is not whole, which the table excludes.
        """
        table, layout = self.decoding.table, self.layouts[-1]
        if table.starts.size:
            table, layout = table.beginning(int(table.starts[criteria - 1])), self.layouts[criteria - 1]
        thoughts, tokens = table.split(completion.tokens)
        said = layout.opening * self.opens + self.vocabulary.decode(tokens)
        answer = self.rubric.parse(said, criteria)
        cut = table.was_cut(tokens, self.decoding.text_tokens, self.decoding.closing_margin)
        probabilities: dict[str, list[float]] = {}
        mass: dict[str, float] = {}
        likeliest: dict[str, bool] = {}
        for place, field in enumerate(layout.values):
            if completion.probabilities is None or np.isnan(completion.probabilities[place]).any():
                continue
            probabilities[field.name] = completion.probabilities[place, : len(field.values)].tolist()
            if completion.mass is not None and completion.likeliest is not None:
                mass[field.name] = float(completion.mass[place])
                likeliest[field.name] = bool(completion.likeliest[place])
        thought = self.vocabulary.decode_text(thoughts)
        return ReadAnswer(answer, cut, probabilities, mass, likeliest, thought, len(completion.tokens))


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
            SettingError: the rubric asks for all criteria in one answer, which a server cannot enforce.
        """
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
            is_whole=self.is_whole,
            temperature=config.temperature,
            top_p=config.top_p,
        )

    def read(self, completion: TextCompletion, criteria: int = 0) -> ReadAnswer:
        """Read a completion; a server is asked for one criterion at a time.

        Raises:
            ValueError: it is not a whole answer; the message gives the reason.
        """
        if not completion.finished:
            raise ValueError("it is cut off at the limit of its tokens")
        check_characters(completion.thoughts + completion.text, "it")
        thoughts, text = _split_thoughts(completion.text)
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
            completion.thoughts or thoughts,
            completion.output_tokens,
        )

    def is_whole(self, completion: TextCompletion) -> bool:
        """Return whether a completion is a whole answer."""
        try:
            self.read(completion)
        except ValueError:
            return False
        return True


def _thinking_budget(budget: int | None, model: Model) -> int | None:
    if budget is None:
        return 2048 if model.always_thinks else None
    if model.thinking_tokens is None:
        raise SettingError("thinking_budget", budget, f"model {model.name} has no token that ends its thinking")
    return budget


def _split_thoughts(text: str) -> tuple[str, str]:
    """Return the thoughts before an answer, and the answer without white space and fences around it."""
    thoughts = _THOUGHTS.match(text)
    rest = text[thoughts.end() :] if thoughts else text
    fenced = _FENCE.fullmatch(rest)
    return thoughts[1] if thoughts else "", (fenced[1] if fenced else rest).strip()


class _Distribution(NamedTuple):
    probabilities: list[float]
    mass: float
    likeliest: bool


def _distribution(choices: Sequence[TokenChoice], rest: str, field: ValueField) -> _Distribution | None:
    """Return the probability of each value, and their mass; None if the tokens do not show it.

    A token tells the values apart if it goes on as exactly one of them does. The probabilities of these tokens
    are normalized to 1.

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
