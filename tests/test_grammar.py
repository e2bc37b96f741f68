"""The token table keeps its promise: every answer is whole, within its limit, and free in its scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import AnswerLayout
from localjudge.rubrics.rubric import Rubric

WORDS = [
    "The",
    " answer",
    " is",
    " right.",
    " wrong",
    "!",
    "。",
    "…",
    "评估",
    "🙂",
    '\\"',
    "\\n",
    " 4",
    '4"',
    '"4',
]


def rubric_of(aspects: list[str], lowest: int, highest: int, keys: dict[str, str] | None = None) -> Rubric:
    return Rubric.model_validate(
        {
            "name": "generated",
            "aspects": aspects,
            "scale": {"lowest": lowest, "highest": highest},
            "answer": {"aspects": keys or {}},
            "prompt": {"template": "{$instruction} {$candidate}"},
        }
    )


def vocabulary_of(pieces: list[bytes], ends: int = 1, padding: int = 3) -> Vocabulary:
    """These pieces and every single byte, then the tokens that end an answer, then padding rows."""
    texts = [bytes([byte]) for byte in range(256)] + pieces
    first_end = len(texts)
    ends_at = frozenset(range(first_end, first_end + ends))
    return Vocabulary(dict(enumerate(texts)), ends_at, first_end + ends + padding)


def values_of(rubric: Rubric) -> list[int]:
    """The values of the scale that all aspects share."""
    return [int(value) for value in next(iter(rubric.aspects.values())).values]


Encode = Callable[[str], list[int]]


def byte_by_byte(text: str) -> list[int]:
    """A tokenizer without merges, for `vocabulary_of`."""
    return list(text.encode())


def at_random(vocabulary: Vocabulary, seed: int) -> Encode:
    """A tokenizer that splits a text in any way that its vocabulary can, always in the same."""

    def encode(text: str) -> list[int]:
        random, rest, tokens = Random(seed), text.encode(), []
        while rest:
            tokens.append(
                random.choice([t for t, piece in vocabulary.pieces.items() if rest.startswith(piece)])
            )
            rest = rest[len(vocabulary.pieces[tokens[-1]]) :]
        return tokens

    return encode


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    aspects = draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=4, unique=True)
    )
    lowest = draw(st.integers(0, 9))
    highest = lowest + draw(st.integers(1, 12))
    words = st.text(st.characters(exclude_categories=["C"], exclude_characters='"\\'), min_size=1, max_size=6)
    keys = draw(st.lists(words, min_size=len(aspects), max_size=len(aspects), unique=True))
    try:
        return rubric_of(aspects, lowest, highest, dict(zip(aspects, keys, strict=True)))
    except ValueError:  # an aspect drew the name of another column
        assume(False)
        raise


@st.composite
def vocabularies(draw: st.DrawFn, layout: AnswerLayout) -> Vocabulary:
    """Tokens cut out of answers of this layout, at any place, some of them twice, some of them foreign."""
    values = [*layout.values[0].values]
    answer = written(layout, "Good. 评", values[-1]).encode()
    cuts = st.tuples(st.integers(0, len(answer) - 1), st.integers(2, 9))
    pieces = [answer[begin : begin + length] for begin, length in draw(st.lists(cuts, max_size=40))]
    pieces += [word.encode() for word in draw(st.lists(st.sampled_from(WORDS)))]
    pieces += [value.encode() for value in draw(st.lists(st.sampled_from(values)))]
    return vocabulary_of(pieces, ends=draw(st.integers(1, 3)))


@st.composite
def encoders(draw: st.DrawFn, vocabulary: Vocabulary) -> Encode | None:
    return draw(st.none() | st.just(byte_by_byte) | st.integers(0, 99).map(lambda n: at_random(vocabulary, n)))


def written(layout: AnswerLayout, rationale: str, score: str) -> str:
    """An answer with the same score for every aspect."""
    values = {"rationale": rationale}
    return "".join(part if isinstance(part, str) else values.get(part.name, score) for part in layout.parts)


def answer_at_random(table: TokenTable, limit: int, closing_margin: int, random: Random) -> list[int]:
    """An answer of a model that does its worst: it never closes its rationale unless it has to."""
    state, tokens = table.start, []
    for left in range(limit, 0, -1):
        allowed = np.flatnonzero(table.allowed(state, left, closing_margin))
        assert len(allowed), "some token is always allowed"
        lingering = allowed[table.text[table.next_state[state, allowed]] >= 0]
        tokens.append(int(random.choice(lingering if len(lingering) else allowed)))
        state = int(table.next_state[state, tokens[-1]])
        if table.is_complete(state):
            return tokens
    raise AssertionError("the answer is complete within its limit")


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_every_answer_is_whole_within_any_limit_that_can_hold_one(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    vocabulary = data.draw(vocabularies(layout))
    decodes_opening = data.draw(st.booleans())
    encode = data.draw(encoders(vocabulary))
    table = token_table(layout, vocabulary, encode, decodes_opening=decodes_opening)
    validator = Draft202012Validator(layout.schema)
    random = Random(data.draw(st.integers(0, 2**32)))
    for rationale_tokens in (1, 2, data.draw(st.integers(3, 60))):
        limit, closing_margin = table.limit(rationale_tokens), closing_margin_for(rationale_tokens)
        tokens = answer_at_random(table, limit, closing_margin, random)
        text = ("" if decodes_opening else layout.opening) + vocabulary.decode(tokens)
        assert len(tokens) <= limit
        answer = rubric.parse(text)
        validator.validate(json.loads(text.removeprefix("```json\n")))
        assert set(answer.scores) == set(rubric.aspects)


def test_a_sentence_that_ends_at_the_limit_closes_even_if_another_word_would_close_sooner() -> None:
    rubric = rubric_of(["a"], 0, 1, {"a": "key"})
    vocabulary = vocabulary_of([b'word","scores":{"key":"'])
    table = token_table(rubric.answer_layout, vocabulary)
    closing_margin = closing_margin_for(52)
    for limit in range(table.limit(1), table.limit(60)):
        for seed in range(5):
            assert len(answer_at_random(table, limit, closing_margin, Random(seed))) <= limit


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_a_vocabulary_that_cannot_give_every_score_is_refused_by_the_score(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    digit = data.draw(st.sampled_from(sorted({*"".join(map(str, values_of(rubric)))})))
    # No token has the digit, but the rubric's own words may: they are spelled around it.
    whole = vocabulary_of([f'"{key}"'.encode() for key in rubric.answer.keys_of(rubric.aspects).values()])
    pieces = {token: piece for token, piece in whole.pieces.items() if piece != digit.encode()}
    with pytest.raises(ModelError, match=r"cannot spell") as refusal:
        token_table(rubric.answer_layout, Vocabulary(pieces, whole.ends, whole.size))
    assert digit in str(refusal.value)


@settings(max_examples=60)
@given(st.data())
def test_a_limit_never_forbids_a_score(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    vocabulary = data.draw(vocabularies(layout))
    table = token_table(layout, vocabulary, data.draw(encoders(vocabulary)), decodes_opening=True)
    for state in table.score_state:
        tightest = table.allowed(int(state), int(table.distance[state]))
        assert (tightest == table.allowed(int(state), UNREACHABLE)).all()
    for value in values_of(rubric):
        spell(table, vocabulary, written(layout, "x", str(value)).encode())


def spell(table: TokenTable, vocabulary: Vocabulary, text: bytes) -> None:
    """Some tokens spell this text, from the start to a complete answer."""
    reached: dict[int, set[int]] = {0: {table.start}}
    for begin in range(len(text)):
        for token, piece in vocabulary.pieces.items():
            if text.startswith(piece, begin):
                for state in reached.get(begin, ()):
                    if (after := int(table.next_state[state, token])) >= 0:
                        reached.setdefault(begin + len(piece), set()).add(after)
    assert any(table.is_complete(state) for state in reached.get(len(text), ())), text


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_one_token_decides_a_score_and_each_score_has_one(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    vocabulary = data.draw(vocabularies(layout))
    table = token_table(layout, vocabulary, data.draw(encoders(vocabulary)))
    own = set(vocabulary.pieces.values()) >= {str(v).encode() for v in values_of(rubric)}
    assert table.first_token_decides.all() or not own
    if not own:
        return
    for aspect, state in enumerate(table.score_state):
        allowed = np.flatnonzero(table.allowed(int(state), UNREACHABLE))
        assert [int(vocabulary.pieces[t]) for t in table.score_token[aspect]] == list(values_of(rubric))
        assert sorted(allowed) == sorted(table.score_token[aspect])
        for token in allowed:
            after = table.allowed(int(table.next_state[state, token]), UNREACHABLE)
            assert not any(vocabulary.pieces[t][:1].isdigit() for t in np.flatnonzero(after))


@settings(max_examples=60)
@given(st.data())
def test_each_state_of_fixed_text_allows_one_token(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    vocabulary = data.draw(vocabularies(layout))
    table = token_table(layout, vocabulary, data.draw(encoders(vocabulary)), decodes_opening=True)
    allowed = [np.flatnonzero(table.allowed(state, UNREACHABLE)) for state in range(len(table.distance))]
    picking = {int(state) for state in table.score_state}
    while (
        more := {
            int(table.next_state[state, token])
            for state in picking
            for token in allowed[state]
            if vocabulary.pieces[token].isdigit()
            and any(vocabulary.pieces[t].isdigit() for t in allowed[table.next_state[state, token]])
        }
        - picking
    ):
        picking |= more  # a score of several tokens
    for state in np.flatnonzero((table.text < 0) & (table.distance > 0)).tolist():
        assert state in picking or len(allowed[state]) == 1


@settings(max_examples=60)
@given(st.data())
def test_fixed_text_is_spelled_with_the_tokenizers_own_tokens_where_they_keep_to_it(
    data: st.DataObject,
) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    vocabulary = data.draw(vocabularies(layout))
    encode = at_random(vocabulary, data.draw(st.integers(0, 99)))
    table = token_table(layout, vocabulary, encode, decodes_opening=True)
    own, place = dict[int, int](), 0
    for token in encode(written(layout, "x", next(iter(layout.values[0].values)))):
        own[place] = token
        place += len(vocabulary.pieces[token])
    state, place = table.start, 0
    for part in layout.parts:
        if not isinstance(part, str):
            value = b"x" if part.name == "rationale" else next(iter(layout.values[0].values)).encode()
            state, place = int(table.next_state[state, ord(value)]), place + len(value)
            continue
        end = place + len(part.encode())
        while place < end:
            allowed = np.flatnonzero(table.next_state[state] >= 0).tolist()
            kept = own.get(place, -1)
            if place + len(vocabulary.pieces.get(kept, b"")) > end:
                kept = -1
            token = kept if kept in allowed else ord('"') if table.text[state] >= 0 else allowed[0]
            assert token == kept or kept < 0
            state, place = int(table.next_state[state, token]), place + len(vocabulary.pieces[token])


@pytest.fixture
def just_eval() -> tuple[Rubric, Vocabulary, TokenTable]:
    rubric, vocabulary = Rubric.load(), vocabulary_of([word.encode() for word in WORDS], ends=2)
    return rubric, vocabulary, token_table(rubric.answer_layout, vocabulary, byte_by_byte, decodes_opening=True)


def test_tokens_that_are_no_text_are_never_allowed(just_eval: tuple[Rubric, Vocabulary, TokenTable]) -> None:
    _, vocabulary, table = just_eval
    padding = range(vocabulary.size - 3, vocabulary.size)
    assert (table.next_state[:, list(padding)] < 0).all()


def test_only_end_tokens_follow_a_complete_answer(just_eval: tuple[Rubric, Vocabulary, TokenTable]) -> None:
    _, vocabulary, table = just_eval
    for state in np.flatnonzero(table.distance == 0):
        assert set(np.flatnonzero(table.allowed(int(state), 1))) == vocabulary.ends
    for state in np.flatnonzero(table.distance > 0):
        assert not table.allowed(int(state), UNREACHABLE)[list(vocabulary.ends)].any()


def test_an_answer_holds_no_white_space_outside_strings(
    just_eval: tuple[Rubric, Vocabulary, TokenTable],
) -> None:
    _, vocabulary, table = just_eval
    tokens = answer_at_random(table, table.limit(9), 0, Random(0))
    text = vocabulary.decode(tokens)
    assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def test_characters_may_be_written_byte_by_byte(just_eval: tuple[Rubric, Vocabulary, TokenTable]) -> None:
    rubric, vocabulary, table = just_eval
    scores = dict.fromkeys(rubric.aspects, "5")
    text = json.dumps({"rationale": "评🙂", "scores": scores}, ensure_ascii=False, separators=(",", ":"))
    tokens = list(text.encode())
    assert table.is_complete(table.states(tokens)[-1])
    assert rubric.parse(vocabulary.decode(tokens)).texts["rationale"] == "评🙂"


def test_half_a_character_cannot_be_left_behind(just_eval: tuple[Rubric, Vocabulary, TokenTable]) -> None:
    _, _, table = just_eval
    start = [*b'{"rationale":"', 0xE8]
    with pytest.raises(ValueError, match="not allowed"):
        table.states([*start, ord('"')])


def test_an_empty_rationale_is_not_an_answer(just_eval: tuple[Rubric, Vocabulary, TokenTable]) -> None:
    _, _, table = just_eval
    with pytest.raises(ValueError, match="not allowed"):
        table.states(list(b'{"rationale":""'))


def test_near_its_limit_a_rationale_closes_where_a_sentence_ended(
    just_eval: tuple[Rubric, Vocabulary, TokenTable],
) -> None:
    _, vocabulary, table = just_eval
    prefix = [*b'{"rationale":"', *b"Good."]
    state = table.states(prefix)[-1]
    closing = int(table.distance[state])
    far, near = (
        table.allowed(state, closing + 12, closing_margin=8),
        table.allowed(state, closing + 8, closing_margin=8),
    )
    assert far[ord("x")]
    assert {vocabulary.pieces[token] for token in np.flatnonzero(near)} == {b'"'}
    assert table.allowed(table.states(prefix[:-1])[-1], closing + 8, closing_margin=8)[ord("x")]


def test_a_cut_rationale_is_told_from_one_that_the_model_ended(
    just_eval: tuple[Rubric, Vocabulary, TokenTable],
) -> None:
    rubric, _, table = just_eval
    scores = dict.fromkeys(rubric.aspects, "5")
    answer = list(json.dumps({"rationale": "Good", "scores": scores}, separators=(",", ":")).encode())
    assert table.was_cut(answer, text_tokens=len("Good"))
    assert not table.was_cut(answer, text_tokens=len("Good") + 2)


def test_a_limit_that_holds_no_answer_is_refused_with_the_smallest_that_does(
    just_eval: tuple[Rubric, Vocabulary, TokenTable],
) -> None:
    _, _, table = just_eval
    with pytest.raises(ValueError, match=rf"smallest that works is 1 \({table.smallest_limit} tokens in all\)"):
        table.limit(0)


def test_a_vocabulary_that_cannot_spell_an_answer_is_refused() -> None:
    letters = {token: bytes([byte]) for token, byte in enumerate(b"abc")}
    with pytest.raises(ModelError, match="cannot spell"):
        token_table(Rubric.load().answer_layout, Vocabulary(letters, frozenset({3}), 4))


def test_a_table_in_a_file_is_the_one_that_was_written(tmp_path: Path) -> None:
    table = token_table(Rubric.load().answer_layout, vocabulary_of([b"The"]))
    table.save(tmp_path / "table.npz")
    assert_equal(table, TokenTable.load(tmp_path / "table.npz"))


def assert_equal(one: TokenTable, other: TokenTable) -> None:
    assert one.start == other.start
    for name in ("next_state", "distance", "text", "sentence_end", "text_start", "score_state", "value_token"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
