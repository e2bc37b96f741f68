"""The outcome of a prompt: the judgement that its answers contain, or the reason why they contain none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localjudge.config import JudgeConfig
from localjudge.engines.answer_reader import ReadAnswer, averaged
from localjudge.engines.protocol import Completion, TextCompletion
from localjudge.prompts.task import Task
from localjudge.records import Failure, Judgement, Outcome, Row


def prompt_outcome(
    task: Task,
    key: str,
    completions: Sequence[Completion | TextCompletion],
    read: Callable[[Any, int], ReadAnswer],
    config: JudgeConfig,
) -> Outcome:
    """Return the outcome of a prompt.

    Args:
        task: the task of the prompt, whose row can be judged.
        key: the key of the outcome.
        completions: the answers of the engine, one for each sample.
        read: reads an answer to a prompt of a number of criteria.
        config: the settings of the judge.
    """
    row, found = task.row, list[ReadAnswer]()
    assert isinstance(row, Row)  # only a row has a prompt
    aspects = config.rubric.aspects_for(len(row.criteria))
    identity = row.identity | {"key": key, "prompt_tokens": len(task.tokens)}
    for completion in completions:
        if isinstance(completion, TextCompletion):
            identity["prompt_tokens"] = completion.prompt_tokens
        if completion.error is not None:
            return Failure(**identity, error=f"{row.source}: {completion.error}")
        try:
            found.append(read(completion, len(row.criteria)).joined(aspects))
        except (ValueError, LookupError) as error:
            # The table excludes this case; an engine that does not apply the table is reported here.
            said = _printable(completion.text) if isinstance(completion, TextCompletion) else None
            reason = f"{row.source}: the engine's answer is not whole: {_printable(str(error))}"
            return Failure(**identity, error=reason, failed_answer=said)
    whole, spread = averaged(found, aspects)
    scores = whole.answer.scores
    probabilities = {name: [round(each, 6) for each in row] for name, row in whole.probabilities.items()}
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
        mass={name: round(each, 6) for name, each in whole.mass.items()},
        likeliest=dict(whole.likeliest),
        spread=spread,
        rationale_cut=whole.rationale_cut,
        candidate_cut=task.candidate_cut,
        thoughts=whole.thoughts if config.keep_thoughts else None,
        output_tokens=whole.output_tokens,
    )


def _printable(text: str) -> str:
    """Return a text that UTF-8 can hold: half of a surrogate pair becomes its escape sequence."""
    return text.encode("utf-8", "backslashreplace").decode()
