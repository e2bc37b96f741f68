"""A scorer for Inspect (https://inspect.aisi.org.uk): one engine judges the samples of a task in batches.

    Task(dataset=…, solver=generate(), scorer=judge(rubric="six-aspects", model="Qwen/Qwen3-8B"))

Inspect finds it by its name, also to score an existing log: `inspect score LOG --scorer localjudge/judge`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import anyio
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from localjudge.integrations.shared_judge import SharedJudge, shared_judge
from localjudge.records import Judgement
from localjudge.rows.columns import CONVERSATIONS, MESSAGES, USED_FIELDS
from localjudge.rows.inspect_records import message_records

_METADATA = {"key", "scores", "expected", "probabilities", "mass", "texts", "rationale_cut"}
"""The fields of an outcome that the metadata of a score has."""
# Inspect puts the package before the name, unless it is an editable install of another distribution's name.
_NAME = "judge" if "-packages" in __file__ else "localjudge/judge"


@scorer(metrics={"*": [mean(), stderr()]}, name=_NAME)  # type: ignore[untyped-decorator]
def judge(rubric: str = "just-eval", model: str | None = None, **settings: Any) -> Scorer:
    """Return a scorer whose value has the score of each aspect, and 1 or 0 for each label without an order.

    The instruction is the sample's input, the reference its target or targets, which are alternatives, and the
    response the model's output. A rubric that shows the conversation gets all messages, with the calls of tools
    and their results. Other fields of the rubric come from the sample's metadata. A response that cannot be
    judged is unscored, with the reason. The score's metadata has the expected score, the probabilities and the
    mass of each aspect, and the rationale is its explanation.

    Args:
        rubric: the name of an included rubric of single responses, or its file.
        model: the judge: a model directory, the id of a model in the local hub cache, or None for the small
            bundled model. All scorers of a process with the same arguments share its engine.
        settings: settings of a `JudgeConfig` by name: `engine`, `max_rationale_tokens` …

    Raises:
        UsageError: the settings, the rubric or the model cannot be used.
    """
    shared = shared_judge(rubric=rubric, model=model, **settings)
    notices = _LoggedNotices()
    no_limit = anyio.CapacityLimiter(float("inf"))  # all samples wait at once, so that they share batches

    async def score(state: TaskState, target: Target) -> Score:
        judge_row = partial(shared.outcomes, [_row(state, target, judge=shared)])
        [outcome] = await anyio.to_thread.run_sync(judge_row, limiter=no_limit, abandon_on_cancel=True)
        about = shared.about
        notices.log(about["notice"])
        metadata = about | outcome.model_dump(include=_METADATA)
        response = state.output.completion
        if isinstance(outcome, Judgement):
            numbers = shared.numbers(outcome)
            return Score(value=numbers, answer=response, explanation=outcome.rationale, metadata=metadata)
        return Score.unscored(
            reason="grader_failed", answer=response, explanation=outcome.error, metadata=metadata
        )

    return score


class _LoggedNotices:
    """What a reader of the scores must know; each text is logged once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, notice: str | None) -> None:
        """Log a notice, if there is one that was not logged before."""
        if notice is None or notice in self._logged:
            return
        self._logged.add(notice)
        # Inspect prints warnings of a running task; its table shows no metadata.
        logging.getLogger(__name__).warning("localjudge: %s", notice)


def _row(state: TaskState, target: Target, judge: SharedJudge) -> dict[str, Any]:
    """Return the row of a sample."""
    fields = judge.rubric.fields
    row: dict[str, Any] = {}
    for name in fields:
        if name in state.metadata and name not in USED_FIELDS:
            row[name] = state.metadata[name]
    row["reference"] = list(target)
    row["id"] = str(state.sample_id)
    if CONVERSATIONS.isdisjoint(fields):
        row["instruction"] = state.input_text
        row["candidate"] = state.output.completion
    else:  # the last turn is the output
        row[MESSAGES] = message_records(state.messages, state.output)
    return row
