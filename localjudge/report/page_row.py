"""A row as the page of a report reads it: what its view shows, key by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Judgement, Outcome, Row
from localjudge.rubrics.aspect import Aspect
from localjudge.studies.calibration import IntervalsOf


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row as the page reads it.

    Attributes:
        instruction: the number of its instruction.
        text: the texts of its row; None if they were not found.
        values: what its view shows.
        characters: about how many characters its texts have.
    """

    instruction: int
    text: Row | None
    values: Sequence[Any]
    characters: int

    @classmethod
    def from_outcome(
        cls,
        outcome: RowOutcome,
        *,
        instruction: int,
        text: Row | None,
        responses: Sequence[str | None],
        intervals_of: IntervalsOf | None,
    ) -> PageRow:
        """Return the row with this outcome.

        Args:
            outcome: the outcome.
            instruction: the number of its instruction.
            text: its texts; None if they were not found.
            responses: its responses in the input's order; None for those that were not found.
            intervals_of: returns the intervals of an outcome's scores; None for a page without intervals.
        """
        first = outcome.first
        values = [
            None if text is None else responses,
            outcome.error,
            [_prompt_document(prompt, outcome.aspects) for prompt in outcome.prompts],
            first.source,
            first.columns,
            None if intervals_of is None else intervals_of(first),
            list(outcome.result_lines()),
        ]
        return cls(instruction, text, values=values, characters=_characters(responses, outcome))


def _characters(responses: Sequence[str | None], outcome: RowOutcome) -> int:
    """Return the number of characters of a row's responses and of the judge's texts on them."""
    characters = sum(len(response) for response in responses if response is not None)
    for judgement in outcome.judged:
        characters += sum(len(text) for text in judgement.texts.values())
    return characters


def _prompt_document(outcome: Outcome, aspects: Mapping[str, Aspect]) -> dict[str, Any]:
    """Return what the page shows of a prompt and its answer; what does not apply is missing."""
    document: dict[str, Any] = {}
    if outcome.swapped:
        document["swapped"] = True
    if outcome.error is not None:
        document["error"] = outcome.error
    if outcome.criterion is not None:
        document["criterion"] = outcome.criterion.model_dump(exclude={"part", "parts"})
    if not isinstance(outcome, Judgement):
        return document
    document["scores"] = _value_indices(outcome, aspects)
    if outcome.probabilities:
        document["probabilities"] = _rounded_probabilities(outcome)
    document["texts"] = outcome.texts
    if outcome.rationale_cut:
        document["rationale_cut"] = outcome.rationale_cut
    if outcome.candidate_cut:
        document["candidate_cut"] = outcome.candidate_cut
    if outcome.thoughts is not None:
        document["thoughts"] = outcome.thoughts
    return document


def _rounded_probabilities(judgement: Judgement) -> dict[str, list[float]]:
    """Return the probability of each value of each aspect, where they are known."""
    rounded = {}
    for name, probabilities in judgement.probabilities.items():
        rounded[name] = [round(probability, 4) for probability in probabilities]
    return rounded


def _value_indices(judgement: Judgement, aspects: Mapping[str, Aspect]) -> dict[str, int]:
    """Return the index of the value of each aspect among its values."""
    indices = {}
    for name, aspect in aspects.items():
        values = list(aspect.values.values())
        indices[name] = values.index(judgement.scores[name])
    return indices
