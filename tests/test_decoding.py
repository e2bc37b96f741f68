"""The rule as tensor operations is the rule as it reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.decoding import TableDecoder, TableMask
from localjudge.engines import Decoding
from localjudge.grammar import TokenTable, token_table
from localjudge.rubric import Rubric
from localjudge.vocabulary import Vocabulary

WORDS = [b"The", b" answer", b" is", b" right.", b'."', b'","', b'":"', "评".encode()]
VOCABULARY = Vocabulary(
    dict(enumerate([bytes([byte]) for byte in range(256)] + WORDS)), frozenset({256 + len(WORDS)}), 270
)
TABLE: TokenTable = token_table(Rubric.load(), VOCABULARY)
LIMIT = TABLE.limit(40)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(TABLE.distance) - 1), st.integers(0, 60)), min_size=1, max_size=9))
def test_the_mask_forbids_exactly_what_the_rule_forbids(rows: list[tuple[int, int]]) -> None:
    decoding = Decoding(TABLE, LIMIT, stretch=9)
    states = np.array([state for state, _ in rows])
    left = np.array([max(1, int(TABLE.distance[state]) + extra) for state, extra in rows])
    logits = torch.randn(len(rows), VOCABULARY.size)
    before = logits.clone()
    TableMask(decoding, torch.device("cpu")).apply(logits, states, left)
    for row, (state, rest) in enumerate(zip(states, left, strict=True)):
        allowed = torch.from_numpy(TABLE.allowed(int(state), int(rest), stretch=9))
        assert torch.equal(torch.isfinite(logits[row]), allowed)
        assert torch.equal(logits[row, allowed], before[row, allowed])


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_models_logits_still_leave_a_choice(broken: float) -> None:
    logits = torch.full((1, VOCABULARY.size), broken)
    TableMask(Decoding(TABLE, LIMIT), torch.device("cpu")).apply(
        logits, np.array([TABLE.start]), np.array([LIMIT])
    )
    allowed = torch.from_numpy(TABLE.allowed(TABLE.start, LIMIT))
    assert torch.equal(torch.isfinite(logits[0]), allowed)


def test_scores_are_kept_as_the_model_saw_them() -> None:
    decoding = Decoding(TABLE, LIMIT, temperature=5.0)
    decoder = TableDecoder(TableMask(decoding, torch.device("cpu")), rows=2)
    answer = b'{"rationale":"x","scores":{"safety":"4'
    seen = {}
    for step, byte in enumerate(answer):
        logits = torch.randn(2, VOCABULARY.size)
        seen[step] = logits.clone()
        decoder.constrain(logits)
        decoder.advance([byte, byte])
    values = seen[len(answer) - 1][:, [ord(c) for c in "12345"]].double()
    assert decoder.probabilities is not None
    np.testing.assert_allclose(decoder.probabilities[:, 0], torch.softmax(values, dim=1), rtol=1e-12)
    assert np.isnan(decoder.probabilities[:, 1:]).all(), "the other scores have not been reached"
