"""What the tests of a real model share: the example rows, an exact engine, and what a whole judgement is."""

from __future__ import annotations

from itertools import islice

import pytest

from localjudge import Judgement, Row, Rubric, read_rows
from localjudge.records import Outcome
from localjudge.rows.inputs import find_inputs

FLOAT32 = {"dtype": "float32"}
"""Engine arguments with which both engines compute the same."""


def example_rows(count: int) -> list[Row]:
    """The first of the rows that ship."""
    rows = (row for row in read_rows(find_inputs(["examples"])) if isinstance(row, Row))
    return list(islice(rows, count))


def assert_whole(outcome: Outcome, rubric: Rubric) -> Judgement:
    """A judgement with a rationale, scores on the scale, and probabilities whose highest is the score's."""
    assert isinstance(outcome, Judgement), outcome
    assert outcome.rationale
    assert [*outcome.scores] == [*rubric.aspects]
    assert outcome.probabilities.keys() == outcome.scores.keys()
    for aspect, probabilities in outcome.probabilities.items():
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert (
            max(probabilities)
            == probabilities[[*rubric.aspects[aspect].values.values()].index(outcome.scores[aspect])]
        )
    return outcome
