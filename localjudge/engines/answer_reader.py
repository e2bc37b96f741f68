"""Read what an engine completed: the answer, the probabilities of its values, and what was cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, Self

import numpy as np

from localjudge.config import JudgeConfig
from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.thinking import after_thinking
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.engines.protocol import (
    Completion,
    Decoding,
)
from localjudge.errors import ModelError, SettingError
from localjudge.models.model import Model
from localjudge.prompts.task_builder import Opening
from localjudge.rubrics.answer import Answer, AnswerLayout
from localjudge.rubrics.aspect import Aspect, scores_of, written_aspects
from localjudge.rubrics.rubric import Rubric
from localjudge.system.durable import cache_folder

DEFAULT_BUDGET = 2048
"""The thinking budget of a model that cannot answer without thinking, if none is given."""


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
        thought_end: the text that ends a thought, if the model writes it as text.
    """

    rubric: Rubric
    layouts: Sequence[AnswerLayout]
    vocabulary: Vocabulary
    decoding: Decoding
    opens: bool
    thought_end: str = ""

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
        vocabulary, budget = model.vocabulary, config.thinking_budget
        if budget is None and model.always_thinks:
            budget = DEFAULT_BUDGET
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
        thought_end = ""
        if budget is not None:
            try:
                opens_thought, ends, then = model.thought_tokens
                table = after_thinking(table, vocabulary, opens_thought, ends, then)
            except ModelError as error:
                raise SettingError("thinking_budget", budget, f"model {model.name} {error}") from None
            thought_end = "" if isinstance(ends, int) else ends.decode()
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
        return cls(config.rubric, layouts, vocabulary, decoding, opens, thought_end), openings

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
        if self.thought_end:  # several tokens, and perhaps a part of one
            before = completion.tokens[: len(completion.tokens) - len(tokens)]
            thought = self.vocabulary.decode_text(before).rpartition(self.thought_end)[0]
        return ReadAnswer(answer, cut, probabilities, mass, likeliest, thought, len(completion.tokens))
