"""The outcome of a prompt: the judgement that its answer contains, or the reason why it contains none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any

from localjudge.config import JudgeConfig
from localjudge.engines.answer_reader import ReadAnswer
from localjudge.engines.protocol import Completion, TextCompletion
from localjudge.prompts.task import Task
from localjudge.records import Failure, Judgement, Outcome, Row
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect


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
    row = task.row
    assert isinstance(row, Row)  # only a row has a prompt
    if isinstance(completion, TextCompletion):
        text = completion.text
        prompt_tokens = completion.prompt_tokens
    else:
        text = None
        prompt_tokens = len(task.tokens)
    identity = row.identity | {"key": key, "prompt_tokens": prompt_tokens}
    if completion.error is not None:
        return Failure(
            **identity,
            error=f"{row.source}: {completion.error}",
            failed_answer=_printable(text) if text else None,
        )
    try:
        answer = read(completion)
    except (ValueError, LookupError) as error:
        # The table excludes this case; an engine that does not apply the table is reported here.
        return Failure(
            **identity,
            error=f"{row.source}: the engine's answer is not whole: {_printable(str(error))}",
            failed_answer=None if text is None else _printable(text),
        )
    aspects = config.rubric.aspects
    scores = answer.answer.scores
    probabilities = {
        name: [round(share, 6) for share in distribution.shares]
        for name, distribution in answer.distributions.items()
    }
    with_mass = {
        name: distribution
        for name, distribution in answer.distributions.items()
        if not isnan(distribution.mass)
    }
    return Judgement(
        **identity,
        texts=answer.answer.texts,
        scores=scores,
        not_likeliest=_not_likeliest(scores, probabilities, aspects),
        expected=answer.expected(aspects),
        probabilities=probabilities,
        mass={name: round(distribution.mass, 6) for name, distribution in with_mass.items()},
        likeliest={name: distribution.likeliest for name, distribution in with_mass.items()},
        rationale_cut=answer.rationale_cut,
        candidate_cut=task.candidate_cut,
        thoughts=answer.thoughts if config.keep_thoughts else None,
        output_tokens=answer.output_tokens,
    )


def _not_likeliest(
    scores: Mapping[str, Value],
    probabilities: Mapping[str, Sequence[float]],
    aspects: Mapping[str, Aspect],
) -> list[str]:
    """Return the aspects whose value in the answer has a smaller probability than another one."""
    names = []
    for name, shares in probabilities.items():
        values = list(aspects[name].values.values())
        if shares[values.index(scores[name])] < max(shares):
            names.append(name)
    return names


def _printable(text: str) -> str:
    """Return a text that UTF-8 can hold: half of a surrogate pair becomes its escape sequence."""
    return text.encode("utf-8", "backslashreplace").decode()
