"""Answers of every kind of aspect, with the rationale in every place: whole, readable, free in their values."""

from __future__ import annotations

import json
from random import Random
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from test_grammar import byte_by_byte, spell, vocabulary_of

from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.rubrics.answer_keys import RationalePlace
from localjudge.rubrics.rubric import Rubric

PIECES = [b"Good", b" answer", b".", b"!", b'."', b'","', b'":"', b"10", b"not", b" attempted", b"yes", b"AB"]

labels = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters='"\\{}'), min_size=1, max_size=6
)


@st.composite
def aspects(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["scale", "choices", "labels", "boolean"]))
    if kind == "boolean":
        return {"boolean": True}
    if kind == "scale":
        lowest = draw(st.integers(-12, 20))
        return {"scale": {"lowest": lowest, "highest": lowest + draw(st.integers(1, 110))}}
    names = draw(st.lists(labels, min_size=2, max_size=5, unique_by=str.casefold))
    if kind == "labels":
        return {"choices": names, "ordered": draw(st.booleans())}
    return {"choices": dict(zip("ABCDE", names, strict=False))}


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    some = draw(st.lists(aspects(), min_size=1, max_size=3))
    return Rubric.model_validate(
        {
            "name": "generated",
            "aspects": dict(zip(("first", "second", "third"), some, strict=False)),
            "answer": {
                "rationale_place": draw(st.sampled_from(get_args(RationalePlace))),
                "scores": draw(st.sampled_from(["scores", ""])),
            },
            "prompt": {"template": "{$instruction} {$candidate} {$aspects} {$answer_format}"},
        }
    )


def table_of(rubric: Rubric, *, decodes_opening: bool = False) -> tuple[TokenTable, Vocabulary]:
    vocabulary = vocabulary_of(PIECES)
    table = token_table(rubric.answer_layout, vocabulary, byte_by_byte, decodes_opening=decodes_opening)
    return table, vocabulary


def longest_answer(
    table: TokenTable, text_tokens: int, margin: int, random: Random
) -> tuple[list[int], list[int]]:
    """Return the answer of a model that never closes a text unless it has to, and the tokens of each text."""
    allowances, state, tokens = table.allowances(text_tokens), table.start, list[int]()
    left, lengths = int(allowances[state]), [0] * len(table.text_start)
    while not table.is_complete(state):
        allowed = np.flatnonzero(table.allowed(state, left, margin))
        assert len(allowed), "some token is always allowed"
        after = table.next_state[state, allowed]
        stays = allowed[(table.text[after] >= 0) & (table.text[after] == table.text[state])]
        tokens.append(int(random.choice(stays if len(stays) else allowed)))
        following = int(table.next_state[state, tokens[-1]])
        if len(stays):
            lengths[table.text[state]] += 1
        left = int(allowances[following]) if allowances[following] and following != state else left - 1
        state = following
    return tokens, lengths


@pytest.mark.slow
@settings(max_examples=80)
@given(st.data())
def test_every_answer_is_whole_and_each_text_has_its_own_tokens(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    table, vocabulary = table_of(rubric)
    validator = Draft202012Validator(layout.schema)
    random = Random(data.draw(st.integers(0, 2**32)))
    for text_tokens in (1, data.draw(st.integers(2, 40))):
        tokens, lengths = longest_answer(table, text_tokens, closing_margin_for(text_tokens), random)
        assert len(tokens) <= table.limit(text_tokens)
        text = layout.opening + vocabulary.decode(tokens)
        answer = rubric.parse(text)
        validator.validate(json.loads(text))
        assert answer.scores.keys() == rubric.aspects.keys()
        assert tuple(answer.texts) == rubric.columns.texts
        margin = closing_margin_for(text_tokens)
        assert all(text_tokens - 2 - margin <= length <= text_tokens for length in lengths)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_every_value_can_be_written_and_is_read_back(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    table, vocabulary = table_of(rubric, decodes_opening=True)
    texts = {text.name: 'Say "no".\n' for text in layout.texts}
    for round_ in range(max(len(field.values) for field in layout.values)):
        written = {field.name: [*field.values][round_ % len(field.values)] for field in layout.values}
        answer = layout.write(texts | written)
        spell(table, vocabulary, answer.encode())
        read = rubric.parse(answer)
        assert read.texts == texts
        assert read.scores == {field.name: field.values[written[field.name]] for field in layout.values}
        for name, score in read.scores.items():
            assert type(score) is rubric.aspects[name].kind


@settings(max_examples=60)
@given(st.data())
def test_probabilities_of_the_first_tokens_are_those_of_the_values(data: st.DataObject) -> None:
    """Against an enumeration of all ways to write a value, for a model with random logits in each state."""
    rubric = data.draw(rubrics())
    table, _ = table_of(rubric)
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    logits = generator.normal(size=table.next_state.shape)

    def ways(state: int, end: int) -> dict[tuple[int, ...], float]:
        allowed = np.flatnonzero(table.allowed(state, UNREACHABLE))
        weights = np.exp(logits[state, allowed])
        found: dict[tuple[int, ...], float] = {}
        for token, share in zip(allowed.tolist(), weights / weights.sum(), strict=True):
            after = int(table.next_state[state, token])
            rest = {(): 1.0} if table.distance[after] <= end else ways(after, end)
            found |= {(token, *more): share * other for more, other in rest.items()}
        return found

    for aspect, state in enumerate(table.score_state.tolist()):
        field = rubric.answer_layout.values[aspect]
        tokens = table.score_token[aspect, : len(field.values)]
        assert table.first_token_decides[aspect] == (len(set(tokens.tolist())) == len(tokens))
        if table.first_token_decides[aspect]:
            ends = [int(table.distance[table.next_state[state, token]]) for token in tokens]
            shares = ways(state, min(ends))
            measured = np.exp(logits[state, tokens]) / np.exp(logits[state, tokens]).sum()
            for token, share in zip(tokens.tolist(), measured, strict=True):
                enumerated = sum(each for way, each in shares.items() if way[0] == token)
                assert enumerated == pytest.approx(share)


def test_a_value_that_begins_another_one_is_no_prefix_of_it() -> None:
    """ "5" and "50" have tokens of their own here, but "1" and "12" begin with the same one."""
    rubric = Rubric.model_validate(
        {
            "name": "prefixes",
            "aspects": {
                "known": {"choices": ["5", "50"]},
                "unknown": {"choices": ["1", "12"]},
            },
            "answer": {"rationale_place": "none"},
            "prompt": {"template": "{$instruction} {$candidate} {$aspects}"},
        }
    )
    vocabulary = vocabulary_of([b"50"])
    table = token_table(rubric.answer_layout, vocabulary, byte_by_byte, decodes_opening=True)
    assert table.first_token_decides.tolist() == [True, False]
    for values in ({"known": "5", "unknown": "12"}, {"known": "50", "unknown": "1"}):
        spell(table, vocabulary, rubric.answer_layout.write(values).encode())


def test_an_answer_without_a_rationale_is_a_few_tokens() -> None:
    rubric = Rubric.model_validate(
        {
            "name": "short",
            "aspects": {"grade": {"choices": {"A": "right", "B": "wrong"}}},
            "answer": {"rationale_place": "none", "scores": ""},
            "prompt": {"template": "{$instruction} {$candidate} {$aspects}"},
        }
    )
    table = token_table(rubric.answer_layout, vocabulary_of([b'"}']), decodes_opening=False)
    assert table.limit(100) == 2
    assert not table.was_cut([ord("A"), 256], 100)
