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
from localjudge.prompts.prompt import Prompt

Opinion = Callable[[str, str, str, int, int], float]
"""A function that returns the mean score of an aspect, 1 to 5, from the reference, the candidate, the aspect's
name, its place in the answer, and the number of earlier prompts."""

_PARTS = re.compile(
    r"## Refereence \n```\n(.*?)\n```\n \n## Candidate Response\n```\n(.*?)\n```\n\n# Eval", re.DOTALL
)


class ScriptedEngine:
    """An engine for prompts of the default rubric; an opinion is the mean of its score probabilities."""

    info = EngineInfo(
        name="scripted",
        dtype="none",
        device="none",
        versions={},
        applies_table=True,
        headline="engine scripted",
    )

    def __init__(self, judge: Judge, opinion: Opinion) -> None:
        self._table = judge.decoding.table
        self._pieces = judge.model.vocabulary.pieces
        self._rubric = judge.rubric
        self._opinion = opinion
        self._met = count()
        self._answers: dict[tuple[str, ...], tuple[int, ...]] = {}

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for prompt in filter(None, prompts):
            met = next(self._met)
            said = b"".join(self._pieces.get(token, b"") for token in prompt.tokens).decode()
            reference, candidate = _PARTS.search(said).groups()  # type: ignore[union-attr]
            means = [
                min(5.0, max(1.0, self._opinion(reference, candidate, aspect, place, met)))
                for place, aspect in enumerate(self._rubric.aspects)
            ]
            probabilities = np.array(
                [[max(0.0, 1 - abs(mean - value)) for value in range(1, 6)] for mean in means]
            )
            scores = tuple(int(row.argmax()) + 1 for row in probabilities)
            yield [Completion(prompt.tag, self._tokens(tuple(map(str, scores))), probabilities)]

    def _tokens(self, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the tokens of an answer after its opening; each is the longest that the table allows."""
        if values not in self._answers:
            layout = self._rubric.answer_layout
            given = {text.name: "Seen." for text in layout.texts}
            given |= dict(zip(self._rubric.aspects, values, strict=True))
            answer = layout.write(given).removeprefix(layout.opening)
            left, state, tokens = answer.encode(), self._table.entry, []
            while left:
                allowed = [
                    token
                    for token in np.flatnonzero(self._table.next_state[state] >= 0).tolist()
                    if token in self._pieces and left.startswith(self._pieces[token])
                ]
                tokens.append(max(allowed, key=lambda token: len(self._pieces[token])))
                state, left = (
                    int(self._table.next_state[state, tokens[-1]]),
                    left[len(self._pieces[tokens[-1]]) :],
                )
            self._answers[values] = tuple(tokens)
        return self._answers[values]

    def close(self) -> None:
        pass

    def statistics(self) -> Mapping[str, Any]:
        return {}


def scripted_judge(model: Path, opinion: Opinion) -> Callable[[Rubric], Judge]:
    """Return a function that creates a judge with this opinion from a rubric."""

    def make(rubric: Rubric) -> Judge:
        judge = Judge(model, rubric=rubric, max_rationale_tokens=8)
        judge.engine = ScriptedEngine(judge, opinion)
        return judge

    return make
