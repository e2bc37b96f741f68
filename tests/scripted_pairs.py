"""Judges that compare two responses by a function; their answers pass through the table of a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from scripted import ScriptedEngine

from localjudge import Judge, Rubric
from localjudge.engines.protocol import Completion
from localjudge.prompts.prompt import Prompt

PairOpinion = Callable[[str, str, str], float]
"""A function that returns the probability that the first response is better, where a tie counts half, from the
instruction, the response shown first and the one shown second."""

_PARTS = re.compile(
    r"Instruction:\n```\n(.*?)\n```\n.*?Response A:\n```\n(.*)\n```\n\n"
    r"Response B:\n```\n(.*)\n```\n\n(?=[^`]*\Z)",
    re.DOTALL,
)


def always_first(instruction: str, first: str, second: str) -> float:
    return 1.0


def prefers_longer(instruction: str, first: str, second: str) -> float:
    return 0.5 if len(first) == len(second) else float(len(first) > len(second))


class PairEngine(ScriptedEngine):
    """An engine for prompts of the included rubrics that compare two responses."""

    def __init__(self, judge: Judge, opinion: PairOpinion) -> None:
        super().__init__(judge, lambda *_: 0.0)
        self._compare = opinion

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for prompt in filter(None, prompts):
            said = b"".join(self._pieces.get(token, b"") for token in prompt.tokens).decode()
            found = _PARTS.search(said)
            assert found is not None, said
            first_wins = self._compare(*found.groups())
            probabilities, values = [], []
            for aspect in self._rubric.aspects.values():
                numbers = np.array([*(aspect.numbers or {}).values()])
                shares = np.maximum(0.0, 1 - np.abs(numbers - (2 * first_wins - 1) * numbers[0]))
                probabilities.append(shares)
                values.append([*aspect.values][int(shares.argmax())])
            yield [Completion(prompt.tag, self._tokens(tuple(values)), np.array(probabilities))]


def judge_of_pairs(model: Path, opinion: PairOpinion) -> Callable[[Rubric], Judge]:
    """Return a function that creates a judge with this opinion from a rubric."""

    def make(rubric: Rubric) -> Judge:
        judge = Judge(model, rubric=rubric, max_rationale_tokens=8)
        judge.engine = PairEngine(judge, opinion)
        return judge

    return make
