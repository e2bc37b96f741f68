"""Read what an engine completed: the answer, the probabilities of its values, and what was cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from operator import mul
from typing import NamedTuple, Self

import numpy as np

from localjudge.config import JudgeConfig
from localjudge.constraint.compiler import after_thinking, closing_margin_for, token_table
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.engines.protocol import Completion, Decoding
from localjudge.errors import ModelError, SettingError
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.rubrics.answer import Answer
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric

DEFAULT_BUDGET = 2048
"""The thinking budget of a model that cannot answer without thinking, if none is given."""


class Distribution(NamedTuple):
    """The probabilities of an aspect's values.

    Attributes:
        shares: the probability of each value, in the rubric's order.
        mass: their sum in the model's own distribution, before the constraint; from a server that lists only
            some tokens, a lower bound; NaN if it is not known.
        likeliest: whether the model's likeliest token was one of the values'; False if it is not known.
    """

    shares: Sequence[float]
    mass: float = nan
    likeliest: bool = False


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer as it was read.

    Attributes:
        answer: its values.
        rationale_cut: whether the limit, and not the model, ended a text.
        distributions: the distribution of each aspect for which it is known.
        thoughts: the text before the answer; empty without any.
        output_tokens: number of tokens, thoughts included.
    """

    answer: Answer
    rationale_cut: bool
    distributions: Mapping[str, Distribution]
    thoughts: str
    output_tokens: int

    def expected(self, aspects: Mapping[str, Aspect]) -> dict[str, float]:
        """Return the mean number of each ordered aspect whose distribution is known."""
        means = {}
        for name, distribution in self.distributions.items():
            numbers = aspects[name].numbers
            if numbers is not None:
                means[name] = round(sum(map(mul, distribution.shares, numbers.values())), 4)
        return means


@dataclass(frozen=True, slots=True)
class TableReader:
    """A reader of answers that the token table enforced.

    Attributes:
        rubric: the rubric.
        vocabulary: the model's vocabulary.
        decoding: how the answers were decoded.
        opens: whether the opening of an answer stands in the prompt already.
        thought_end: the text that ends a thought, if the model writes it as text.
    """

    rubric: Rubric
    vocabulary: Vocabulary
    decoding: Decoding
    opens: bool
    thought_end: str = ""

    @classmethod
    def from_config(cls, config: JudgeConfig, model: Model) -> tuple[Self, PromptEncoder]:
        """Return the reader of a judge's answers, and the encoder of the prompts that they go on.

        Raises:
            SettingError: the model cannot think, or only without a limit, or the answer cannot follow thoughts.
            ModelError: its tokenizer cannot spell a prompt or an answer.
        """
        vocabulary = model.vocabulary
        layout = config.rubric.answer_layout
        budget = config.thinking_budget
        if budget is None and model.always_thinks:
            budget = DEFAULT_BUDGET
        thinks = budget is not None
        # A model that thinks first decodes the opening after its thoughts.
        opens = not thinks
        prompts = _prompt_encoder(model, config.rubric.system, thinks=thinks)
        try:
            encoder = prompts.with_opening(layout.opening if opens else "")
            table = token_table(layout, vocabulary, prompts.spell, decodes_opening=not opens)
        except ModelError as error:
            raise ModelError(f"model {model.name}: {error}") from None
        thought_end = ""
        if thinks:
            try:
                thought = model.thought_tokens
                table = after_thinking(table, vocabulary, thought.opens, thought.ends, thought.then)
            except ModelError as error:
                raise SettingError("thinking_budget", budget, f"model {model.name} {error}") from None
            if isinstance(thought.ends, bytes):
                thought_end = thought.ends.decode()
        if max(encoder.head + encoder.tail, default=0) >= vocabulary.size:
            raise ModelError(
                f"model {model.name}: its chat template uses tokens that the model does not have; "
                "its tokenizer and its weights do not belong together"
            )
        decoding = Decoding(
            table,
            text_tokens=config.max_rationale_tokens,
            closing_margin=closing_margin_for(config.max_rationale_tokens),
            temperature=config.temperature,
            top_p=config.top_p,
            thinking_budget=budget,
        )
        return cls(config.rubric, vocabulary, decoding, opens, thought_end), encoder

    def read(self, completion: Completion) -> ReadAnswer:
        """Read a completion.

        Raises:
            ValueError, LookupError: it is not whole, which the table excludes.
        """
        thought_tokens, answer_tokens = self.decoding.table.split(completion.tokens)
        text = self.vocabulary.decode(answer_tokens)
        if self.opens:
            text = self.rubric.answer_layout.opening + text
        return ReadAnswer(
            answer=self.rubric.parse(text),
            rationale_cut=self._was_cut(answer_tokens),
            distributions=self._distributions(completion),
            thoughts=self._thoughts(completion.tokens, thought_tokens, answer_tokens),
            output_tokens=len(completion.tokens),
        )

    def _was_cut(self, answer_tokens: Sequence[int]) -> bool:
        """Return whether the limit, and not the model, ended a text."""
        decoding = self.decoding
        return decoding.table.was_cut(answer_tokens, decoding.text_tokens, decoding.closing_margin)

    def _distributions(self, completion: Completion) -> dict[str, Distribution]:
        """Return the distribution of each aspect for which the engine knows it."""
        distributions: dict[str, Distribution] = {}
        if completion.probabilities is None:
            return distributions
        for number, field in enumerate(self.rubric.answer_layout.values):
            probabilities = completion.probabilities[number]
            if np.isnan(probabilities).any():
                continue
            shares = probabilities[: len(field.values)].tolist()
            if completion.mass is None or completion.likeliest is None:
                distributions[field.name] = Distribution(shares)
                continue
            mass = float(completion.mass[number])
            likeliest = bool(completion.likeliest[number])
            distributions[field.name] = Distribution(shares, mass, likeliest)
        return distributions

    def _thoughts(
        self, tokens: Sequence[int], thought_tokens: Sequence[int], answer_tokens: Sequence[int]
    ) -> str:
        """Return the text of the thoughts, without what ends them.

        Args:
            tokens: all tokens of a completion.
            thought_tokens: those of the thoughts, as `TokenTable.split` returns them.
            answer_tokens: those of the answer.
        """
        if not self.thought_end:
            return self.vocabulary.decode_text(thought_tokens)
        # The end is several tokens, and perhaps a part of one.
        before_answer = tokens[: len(tokens) - len(answer_tokens)]
        return self.vocabulary.decode_text(before_answer).rpartition(self.thought_end)[0]


def _prompt_encoder(model: Model, system: str | None, *, thinks: bool) -> PromptEncoder:
    """Return the encoder of a model's prompts.

    Args:
        model: the model.
        system: the text of a system message that stands before each prompt, if any.
        thinks: whether the model thinks before it answers.
    """
    if system:
        return model.prompts_after(system, thinking=thinks)
    if thinks:
        return model.thinking_prompts
    return model.prompts
