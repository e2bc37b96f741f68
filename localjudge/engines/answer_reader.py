"""Read what an engine completed: the answer, the probabilities of its values, and what was cut.

The outcome of a prompt is the judgement that its answers contain, or the reason why they contain none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from operator import mul
from typing import Any, NamedTuple, Self

import numpy as np

from localjudge.config import JudgeConfig
from localjudge.constraint.compiler import after_thinking, closing_margin_for, token_table
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.engines.protocol import Completion, Decoding, TextCompletion
from localjudge.errors import ModelError, SettingError
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task import Task
from localjudge.records import Failure, Judgement, Outcome, Row
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
        known: the distribution of each aspect, as far as it is known.
        thoughts: the text before the answer; empty without any.
        output_tokens: number of tokens, thoughts included.
    """

    answer: Answer
    rationale_cut: bool
    known: Mapping[str, Distribution]
    thoughts: str
    output_tokens: int

    def expected(self, aspects: Mapping[str, Aspect]) -> dict[str, float]:
        """Return the mean number of each ordered aspect whose distribution is known."""
        scales = {name: aspects[name].numbers for name in self.known}
        return {
            name: round(sum(map(mul, self.known[name].shares, scale.values())), 4)
            for name, scale in scales.items()
            if scale is not None
        }


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
        vocabulary, budget, layout = model.vocabulary, config.thinking_budget, config.rubric.answer_layout
        if budget is None and model.always_thinks:
            budget = DEFAULT_BUDGET
        prompts = model.prompts if budget is None else model.thinking_prompts
        if system := config.rubric.system:
            prompts = model.prompts_after(system, thinking=budget is not None)
        # A model that thinks first decodes the opening after its thoughts.
        opens = budget is None
        try:
            encoder = prompts.with_opening(layout.opening if opens else "")
            table = token_table(layout, vocabulary, prompts.spell, decodes_opening=not opens)
        except ModelError as error:
            raise ModelError(f"model {model.name}: {error}") from None
        thought_end = ""
        if budget is not None:
            try:
                thought = model.thought_tokens
                table = after_thinking(table, vocabulary, thought.opens, thought.ends, thought.then)
            except ModelError as error:
                raise SettingError("thinking_budget", budget, f"model {model.name} {error}") from None
            thought_end = "" if isinstance(thought.ends, int) else thought.ends.decode()
        if max(encoder.head + encoder.tail, default=0) >= vocabulary.size:
            raise ModelError(
                f"model {model.name}: its chat template uses tokens that the model does not have; "
                "its tokenizer and its weights do not belong together"
            )
        text_tokens = config.max_rationale_tokens
        margin = closing_margin_for(text_tokens)
        decoding = Decoding(
            table, text_tokens, margin, config.temperature, config.top_p, thinking_budget=budget
        )
        return cls(config.rubric, vocabulary, decoding, opens, thought_end), encoder

    def read(self, completion: Completion) -> ReadAnswer:
        """Read a completion.

        Raises:
            ValueError, LookupError: it is not whole, which the table excludes.
        """
        table, layout = self.decoding.table, self.rubric.answer_layout
        thoughts, tokens = table.split(completion.tokens)
        said = layout.opening * self.opens + self.vocabulary.decode(tokens)
        answer = self.rubric.parse(said)
        cut = table.was_cut(tokens, self.decoding.text_tokens, self.decoding.closing_margin)
        known: dict[str, Distribution] = {}
        for place, field in enumerate(layout.values):
            if completion.probabilities is None or np.isnan(completion.probabilities[place]).any():
                continue
            shares = completion.probabilities[place, : len(field.values)].tolist()
            known[field.name] = Distribution(shares)
            if completion.mass is not None and completion.likeliest is not None:
                mass, likeliest = float(completion.mass[place]), bool(completion.likeliest[place])
                known[field.name] = Distribution(shares, mass, likeliest)
        thought = self.vocabulary.decode_text(thoughts)
        if self.thought_end:  # several tokens, and perhaps a part of one
            before = completion.tokens[: len(completion.tokens) - len(tokens)]
            thought = self.vocabulary.decode_text(before).rpartition(self.thought_end)[0]
        return ReadAnswer(answer, cut, known, thought, len(completion.tokens))


def prompt_outcome(
    task: Task,
    key: str,
    completion: Completion | TextCompletion,
    read: Callable[[Any], ReadAnswer],
    config: JudgeConfig,
) -> Outcome:
    """Return the outcome of a prompt.

    Args:
        task: the task of the prompt, whose row can be judged.
        key: the key of the outcome.
        completion: the answer of the engine.
        read: reads an answer.
        config: the settings of the judge.
    """
    row, aspects = task.row, config.rubric.aspects
    assert isinstance(row, Row)  # only a row has a prompt
    by_text = completion if isinstance(completion, TextCompletion) else None
    prompt_tokens = by_text.prompt_tokens if by_text else len(task.tokens)
    identity = row.identity | {"key": key, "prompt_tokens": prompt_tokens}
    if completion.error is not None:
        instead = _printable(by_text.text) if by_text and by_text.text else None
        return Failure(**identity, error=f"{row.source}: {completion.error}", failed_answer=instead)
    try:
        whole = read(completion)
    except (ValueError, LookupError) as error:
        # The table excludes this case; an engine that does not apply the table is reported here.
        reason = f"{row.source}: the engine's answer is not whole: {_printable(str(error))}"
        return Failure(**identity, error=reason, failed_answer=_printable(by_text.text) if by_text else None)
    scores = whole.answer.scores
    probabilities = {name: [round(each, 6) for each in known.shares] for name, known in whole.known.items()}
    return Judgement(
        **identity,
        texts=whole.answer.texts,
        scores=scores,
        not_likeliest=[
            name
            for name, shares in probabilities.items()
            if shares[[*aspects[name].values.values()].index(scores[name])] < max(shares)
        ],
        expected=whole.expected(aspects),
        probabilities=probabilities,
        mass={name: round(known.mass, 6) for name, known in whole.known.items() if not isnan(known.mass)},
        likeliest={name: known.likeliest for name, known in whole.known.items() if not isnan(known.mass)},
        rationale_cut=whole.rationale_cut,
        candidate_cut=task.candidate_cut,
        thoughts=whole.thoughts if config.keep_thoughts else None,
        output_tokens=whole.output_tokens,
    )


def _printable(text: str) -> str:
    """Return a text that UTF-8 can hold: half of a surrogate pair becomes its escape sequence."""
    return text.encode("utf-8", "backslashreplace").decode()
