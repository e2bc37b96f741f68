"""Tests of constrained decoding: the tensor operations agree with the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.constraint.compiler import token_table
from localjudge.constraint.masking import DeviceTable, HostTable
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import ValuePaths
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.rubrics.rubric import Rubric

WORDS = [b"The", b" answer", b" is", b" right.", b'."', b'","', b'":"', "评".encode()]
VOCABULARY = Vocabulary(
    dict(enumerate([bytes([byte]) for byte in range(256)] + WORDS)), frozenset({256 + len(WORDS)}), 270
)
TABLE: TokenTable = token_table(
    Rubric.load().answer_layout, VOCABULARY, lambda text: list(text.encode()), decodes_opening=True
)
LIMIT = TABLE.limit(40)
SAFETY = ValuePaths(TABLE).column[0]
"""Where the table's probabilities of the first score are kept."""


CPU = torch.device("cpu")

standings = st.lists(
    st.tuples(st.integers(0, len(TABLE.distance) - 1), st.integers(0, 60)), min_size=1, max_size=9
)


@settings(max_examples=50)
@given(standings)
def test_both_tables_forbid_exactly_what_the_rule_forbids(rows: list[tuple[int, int]]) -> None:
    states = np.array([state for state, _ in rows])
    left = np.array([max(1, int(TABLE.distance[state]) + extra) for state, extra in rows])
    slots = np.arange(len(rows))
    logits = torch.randn(len(rows), VOCABULARY.size)
    on_host, on_device = logits.clone(), logits.clone()
    HostTable(TABLE, 9, CPU, len(rows)).constrain(on_host, states, left, slots)
    DeviceTable(TABLE, 9, CPU, len(rows)).constrain(on_device, *map(torch.from_numpy, (states, left, slots)))
    assert torch.equal(on_host, on_device)
    for row, (state, rest) in enumerate(zip(states, left, strict=True)):
        allowed = torch.from_numpy(TABLE.allowed(int(state), int(rest), closing_margin=9))
        assert torch.equal(torch.isfinite(on_host[row]), allowed)
        assert torch.equal(on_host[row, allowed], logits[row, allowed])


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("written", ["", '{"rationale":"x'], ids=["at the start", "in a text"])
def test_a_broken_models_logits_still_leave_an_allowed_choice(broken: float, written: str) -> None:
    state = TABLE.states(written.encode())[-1]
    rows = np.array([state]), np.array([LIMIT]), np.array([0])
    on_host, on_device = torch.full((2, 1, VOCABULARY.size), broken)
    HostTable(TABLE, 0, CPU, 1).constrain(on_host, *rows)
    DeviceTable(TABLE, 0, CPU, 1).constrain(on_device, *map(torch.from_numpy, rows))
    allowed = torch.from_numpy(TABLE.allowed(state, LIMIT))
    for logits in (on_host[0], on_device[0]):
        assert allowed[logits.argmax()]
        assert torch.equal(torch.isfinite(logits), allowed)


def test_scores_are_kept_as_the_model_saw_them_and_the_last_time_counts() -> None:
    table = HostTable(TABLE, 0, CPU, slots=2)
    state = TABLE.states(b'{"rationale":"x","scores":{"safety":"')[-1]
    seen = torch.randn(3, VOCABULARY.size)
    for logits in seen[:2]:
        table.constrain(logits[None].clone(), np.array([state]), np.array([99]), np.array([1]))
    kept = table.scores.take([0, 1])
    values = seen[1, [ord(character) for character in "12345"]].double()
    np.testing.assert_allclose(kept[1, SAFETY][:-3], torch.softmax(values, dim=0), rtol=1e-12)
    assert np.isnan(np.delete(kept[1], SAFETY)).all(), "the other scores have not been reached"
    assert np.isnan(kept[0]).all(), "nothing was written elsewhere"
    assert np.isnan(table.scores.take([1])).all(), "what was taken is gone"


@pytest.mark.parametrize("favourite", ["3", "x"])
def test_the_mass_is_the_share_that_the_values_had_before_the_mask(favourite: str) -> None:
    state = TABLE.states(b'{"rationale":"x","scores":{"safety":"')[-1]
    logits = torch.randn(2, VOCABULARY.size)
    logits[1, ord(favourite)] = 9
    states, left, slots = np.array([TABLE.start, state]), np.array([LIMIT, 99]), np.array([0, 1])
    on_host, on_device = HostTable(TABLE, 0, CPU, slots=2), DeviceTable(TABLE, 0, CPU, slots=2)
    on_host.constrain(logits.clone(), states, left, slots)
    on_device.constrain(logits.clone(), *map(torch.from_numpy, (states, left, slots)))
    mass = torch.softmax(logits[1].double(), dim=0)[[ord(character) for character in "12345"]].sum()
    for table in (on_host, on_device):
        kept = table.scores.take([1])[0, SAFETY]
        assert kept[-2] == pytest.approx(float(mass), rel=1e-5)
        assert kept[-1] == (favourite == "3")


def test_a_broken_logit_of_another_token_leaves_the_probabilities_as_they_are() -> None:
    state = TABLE.states(b'{"rationale":"x","scores":{"safety":"')[-1]
    for broken in (torch.nan, torch.inf, -torch.inf):
        table, logits = HostTable(TABLE, 0, CPU, slots=1), torch.randn(1, VOCABULARY.size)
        logits[0, ord("x")] = broken
        table.constrain(logits, np.array([state]), np.array([99]), np.array([0]))
        kept = table.scores.take([0])[0, SAFETY]
        assert kept[:-2].sum() == pytest.approx(1)
        assert 0 <= kept[-2] <= 1


def test_a_device_table_walks_as_the_table_does() -> None:
    table = DeviceTable(TABLE, 0, CPU, slots=1)
    answer = b'{"rationale":"x","scores":{"safety":"4'
    state = torch.tensor([TABLE.start])
    for token in answer:
        state = table.advance(state, torch.tensor([token]))
    assert state.item() == TABLE.states(answer)[-1]
    assert table.advance(state, torch.tensor([ord("x")])).item() == state.item(), "it stays where it cannot go"
