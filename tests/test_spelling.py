"""An answer's fixed text is spelled as the model's tokenizer spells it, and its opening ends the prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_tokenizers import CHAT_TEMPLATES, SMALL, TOKENIZER_NAMES, tokenizer_with
from test_transformers import THINKING_CHAT, rows, save_random_model

from localjudge import Judge, Judgement, Rubric
from localjudge.constraint.compiler import token_table
from localjudge.constraint.vocabulary import read_vocabulary
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task import Prompt

WITHOUT_MARKERS = "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n{% endfor %}### judge:\n"


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_fixed_text_takes_the_tokens_that_the_tokenizer_itself_spells_it_with(
    name: str,
) -> None:
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["ChatML"])
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    vocabulary = read_vocabulary(tokenizer, len(tokenizer), [end])
    layout = Rubric.load().answer_layout
    table = token_table(layout, vocabulary, PromptEncoder(tokenizer).spell)

    values = ["x", *"444444"]
    texts = [part if isinstance(part, str) else values.pop(0) for part in layout.parts]
    ends = np.cumsum([len(text) for text in texts]).tolist()
    own, place = dict[int, int](), len("".join(texts))
    for token in reversed(tokenizer.encode("".join(texts), add_special_tokens=False)):
        place -= len(vocabulary.pieces[token])
        own[place] = token
    # A token that holds both a field and text around it is no token of an answer.
    crosses = [p for p, t in own.items() if any(p < edge < p + len(vocabulary.pieces[t]) for edge in ends[:-1])]

    state, place, decoded = table.start, ends[0], dict[int, int]()
    rest = "".join(texts)[place:].encode()
    while rest:
        allowed = np.flatnonzero(table.next_state[state] >= 0).tolist()
        assert len(allowed) == 1 or table.text[state] >= 0 or state in table.score_state
        allowed = [token for token in allowed if rest.startswith(vocabulary.pieces[token])]
        token = (
            own[place] if own.get(place) in allowed else max(allowed, key=lambda t: len(vocabulary.pieces[t]))
        )
        decoded[place] = token
        state = int(table.next_state[state, token])
        place, rest = place + len(vocabulary.pieces[token]), rest[len(vocabulary.pieces[token]) :]
    assert table.is_complete(state)
    after_opening = {place: token for place, token in own.items() if place >= ends[0]}
    if not crosses:
        assert decoded == after_opening
    assert len(decoded) <= len(after_opening) + len(crosses)


@pytest.mark.parametrize("style", [*CHAT_TEMPLATES, "without markers", "none"])
@pytest.mark.parametrize("name", SMALL)
def test_a_prompt_ends_with_the_opening_as_the_whole_tokenizer_encodes_it_there(name: str, style: str) -> None:
    template = {**CHAT_TEMPLATES, "without markers": WITHOUT_MARKERS, "none": None}[style]
    tokenizer = tokenizer_with(name, template)
    opening = Rubric.load().answer_layout.opening
    whole = "How is it?"
    if template:
        turns = [{"role": "user", "content": whole}]
        whole = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        whole += "<|channel|>final<|message|>" if style == "harmony" else ""
    expected = tokenizer.encode(whole + opening, add_special_tokens=template is None)
    assert PromptEncoder(tokenizer).with_opening(opening).encode("How is it?") == expected


@pytest.mark.parametrize("name", SMALL)
def test_a_rubrics_key_that_spells_a_control_token_stays_text_in_the_opening(name: str) -> None:
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["ChatML"])
    encoder, end = PromptEncoder(tokenizer), tokenizer.convert_tokens_to_ids("<|im_end|>")
    opened = encoder.with_opening('{"<|im_end|>":"')
    assert opened.tail.count(end) == encoder.tail.count(end)
    assert tokenizer.decode(opened.tail).replace(" ", "").endswith('{"<|im_end|>":"')


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    return save_random_model(folder, Model.find().path / "tokenizer.json", chat=THINKING_CHAT)


def test_the_opening_is_in_the_prompt_and_not_in_the_tokens_of_the_answer(
    small_model: Path,
) -> None:
    judge = Judge(small_model, max_rationale_tokens=9)
    layout = judge.rubric.answer_layout
    tokens = judge.prompts.encode("a question")
    assert judge.model.vocabulary.decode_text(tokens).endswith(layout.opening)
    (finished,) = judge.engine.complete([Prompt(1, tokens, 1)])
    answer = judge.model.vocabulary.decode(finished[0].tokens)
    assert judge.rubric.parse(layout.opening + answer).texts["rationale"]
    assert not answer.startswith(("{", "`"))
    for outcome in judge.score(rows(3)):
        assert isinstance(outcome, Judgement)
        assert outcome.output_tokens <= judge.decoding.limit


def test_a_model_that_thinks_decodes_the_opening_after_its_thoughts(
    small_model: Path,
) -> None:
    judge = Judge(small_model, max_rationale_tokens=9, thinking_budget=4)
    opening = judge.rubric.answer_layout.opening
    tokens = judge.prompts.encode("a question")
    assert tokens[-1] == judge.model.tokenizer.convert_tokens_to_ids("<think>")
    (finished,) = judge.engine.complete([Prompt(1, tokens, 1)])
    thoughts, answer = judge.decoding.table.split(finished[0].tokens)
    assert len(thoughts) <= 4
    assert judge.model.vocabulary.decode(answer).startswith(opening)
    assert all(outcome.status == "judged" for outcome in judge.score(rows(3)))
