"""A judge whose scores come from a function; its answers pass through the token table of a real vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from localjudge import Judge, Rubric
from localjudge.engines.protocol import Completion, EngineInfo
from localjudge.prompts.task import Prompt

Distributions = Callable[[str], list[list[float]]]
"""A function that returns the probabilities of each aspect's values from the text of a prompt."""

Opinion = Callable[[str, str, str, int, int], float]
"""A function that returns the mean score of an aspect, 1 to 5, from the reference, the candidate, the aspect's
name, its place in the answer, and the number of earlier prompts."""

Taste = Callable[[str, str], float]
"""A function that returns the probability that the response shown first is better than the other one."""

_PARTS = re.compile(
    r"## Refereence \n```\n(.*?)\n```\n \n## Candidate Response\n```\n(.*?)\n```\n\n# Eval", re.DOTALL
)
_PAIR = re.compile(r"Response A:\n```\n(.*?)\n```\n\nResponse B:\n```\n(.*?)\n```\n\n", re.DOTALL)


_CHECK = re.compile(
    r"Response to check:\n```\n(.*?)\n```\n.*Criteri(?:on|a)\b[^\n]*:\n```\n(.*?)\n```", re.DOTALL
)


class ScriptedEngine:
    """An engine whose scores come from a function; an answer has the most probable values."""

    info = EngineInfo(
        name="scripted",
        dtype="none",
        device="none",
        versions={},
        applies_table=True,
        headline="engine scripted",
    )

    def __init__(self, judge: Judge, distributions: Distributions) -> None:
        self._judge, self._distributions = judge, distributions
        self._table = judge.decoding.table
        self._pieces = judge.model.vocabulary.pieces
        self._answers: dict[tuple[str, ...], tuple[int, ...]] = {}

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for prompt in prompts:
            if prompt is None:  # no further row waits; those that were refused get their outcomes
                yield []
                continue
            said = b"".join(self._pieces.get(token, b"") for token in prompt.tokens).decode()
            shares = self._distributions(said)
            fields = self._judge.rubric.answer_layout.values
            values = tuple(
                [*field.values][int(np.argmax(own))] for field, own in zip(fields, shares, strict=True)
            )
            probabilities = np.zeros((len(shares), max(map(len, shares))))
            for own, row in zip(shares, probabilities, strict=True):
                row[: len(own)] = own
            yield [Completion(prompt.tag, self._tokens(values), probabilities)]

    def _tokens(self, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the tokens of an answer after its opening; each is the longest that the table allows."""
        if values not in self._answers:
            layout = self._judge.rubric.answer_layout
            texts = {text.name: "Seen." for text in layout.texts}
            written = layout.write(
                texts | dict(zip((field.name for field in layout.values), values, strict=True))
            )
            left, tokens = written.removeprefix(layout.opening).encode(), list[int]()
            state = self._table.entry
            while left:
                allowed = [
                    token
                    for token in np.flatnonzero(self._table.next_state[state] >= 0).tolist()
                    if token in self._pieces and left.startswith(self._pieces[token])
                ]
                tokens.append(max(allowed, key=lambda token: len(self._pieces[token])))
                state = int(self._table.next_state[state, tokens[-1]])
                left = left[len(self._pieces[tokens[-1]]) :]
            if not layout.parts[-1]:  # the token that ends an answer ends its last field
                allowed = np.flatnonzero(self._table.next_state[state] >= 0).tolist()
                tokens.append(next(token for token in allowed if token not in self._pieces))
            self._answers[values] = tuple(tokens)
        return self._answers[values]

    def reset(self, at_once: int | None = None) -> None:
        pass

    def close(self) -> None:
        pass

    def statistics(self) -> Mapping[str, Any]:
        return {}


def scripted_judge(model: Path, opinion: Opinion) -> Callable[[Rubric], Judge]:
    """Return a function that creates a judge with this opinion from a rubric with the default prompt."""

    def make(rubric: Rubric) -> Judge:
        judge, met = Judge(model, rubric=rubric, max_rationale_tokens=8), count()

        def distributions(said: str) -> list[list[float]]:
            before = next(met)
            reference, candidate = _PARTS.search(said).groups()  # type: ignore[union-attr]
            means = [
                min(5.0, max(1.0, opinion(reference, candidate, aspect, place, before)))
                for place, aspect in enumerate(rubric.aspects)
            ]
            return [[max(0.0, 1 - abs(mean - value)) for value in range(1, 6)] for mean in means]

        judge.engine = ScriptedEngine(judge, distributions)
        return judge

    return make


def scripted_comparison(model: Path, taste: Taste, rubric: str = "pairwise") -> Judge:
    """Return a judge with this taste in each aspect of a rubric with the labels A, tie and B.

    Probabilities from 0.45 to 0.55 are a tie.
    """
    judge = Judge(model, rubric=rubric, max_rationale_tokens=8)

    def distributions(said: str) -> list[list[float]]:
        first = taste(*_PAIR.search(said).groups())  # type: ignore[union-attr]
        tie = 0.9 if 0.45 < first < 0.55 else 0.0
        return [[(1 - tie) * first, tie, (1 - tie) * (1 - first)]] * len(judge.rubric.aspects)

    judge.engine = ScriptedEngine(judge, distributions)
    return judge


def scripted_checks(model: Path, met: Taste, rubric: str | Path = "checklist") -> Judge:
    """Return a judge that finds a criterion met in a response with the probability that `met` returns.

    Args:
        model: the directory of a model, for its tokenizer.
        met: a function of the response and the criterion.
        rubric: a rubric with the template of `checklist`, whose values are not met, any between, and met.
    """
    judge = Judge(model, rubric=rubric, max_rationale_tokens=8)
    ((_, aspect),) = judge.rubric.aspects.items()

    def distributions(said: str) -> list[list[float]]:
        share = met(*_CHECK.search(said).groups())  # type: ignore[union-attr]
        between = [0.0] * (len(aspect.values) - 2)
        return [[1 - share, *between, share] if share != 0.5 or not between else [0.0, 1.0, 0.0]]

    judge.engine = ScriptedEngine(judge, distributions)
    return judge
