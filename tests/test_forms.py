"""Answers in a form of their own, such as `Feedback: {rationale} [RESULT] {score}`: whole, unambiguous."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import Cli, random_model, write_rows
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_tokenizers import CHAT_TEMPLATES, SMALL, TOKENIZER_NAMES, tokenizer_with
from test_grammar import byte_by_byte, encoders, spell, vocabulary_of
from test_transformers import THINKING_CHAT, save_random_model
from test_typed_answers import aspects, longest_answer

from localjudge import Judge, JudgeConfig, RowSource, Rubric, load_run, score_run
from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.vocabulary import Vocabulary, read_vocabulary
from localjudge.errors import ModelError, RubricError
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task import Prompt
from localjudge.rubrics.answer import FreeText

PROMETHEUS = "Feedback: {rationale} [RESULT] {score}"
LINES = "{rationale}\nScore: {score}"
ONE = "{$instruction} {$candidate} {$aspects} {$answer_format}"
PAIR = ONE.replace("{$candidate}", "{$candidate_a} {$candidate_b}")
FIVE = {"scale": {"lowest": 1, "highest": 5}}
PIECES = [b"Good", b" answer", b".", b".\n", b"\n\n", b" [", b"[R", b"RESULT", b"] ", b"[RESULT]", b"10", b" 5"]


def rubric_of(form: str, **aspects: Any) -> Rubric:
    compares = any("preference" in aspect for aspect in aspects.values())
    return Rubric.model_validate(
        {
            "name": "form",
            "aspects": aspects or {"score": FIVE},
            "answer": {"form": form},
            "prompt": {"template": PAIR if compares else ONE},
        }
    )


def table_of(rubric: Rubric, *, decodes_opening: bool = False) -> tuple[TokenTable, Vocabulary]:
    vocabulary = vocabulary_of(PIECES, ends=2)
    table = token_table(rubric.answer_layout, vocabulary, byte_by_byte, decodes_opening=decodes_opening)
    return table, vocabulary


literals = st.text(st.sampled_from(" \n[]:.aA1é评Score"), max_size=8) | st.sampled_from([" [RESULT] ", "\nA: "])


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    some = dict(zip(("first", "second"), draw(st.lists(aspects(), min_size=1, max_size=2)), strict=False))
    texts = ("rationale", "advice")[: draw(st.integers(0, 2))]
    form = draw(literals)
    for name in draw(st.permutations([*some, *texts])):
        form += f"{{{name}}}{draw(literals)}"
    try:
        return rubric_of(form, **some)
    except ValueError:  # an ambiguous form
        assume(False)
        raise


@st.composite
def vocabularies(draw: st.DrawFn, rubric: Rubric) -> Vocabulary:
    """Tokens cut out of an answer at any place, and words."""
    layout = rubric.answer_layout
    values = {field.name: [*field.values][-1] for field in layout.values}
    answer = layout.write(values | {text.name: "Good.评" for text in layout.texts}).encode()
    cuts = st.tuples(st.integers(0, len(answer) - 1), st.integers(2, 9))
    pieces = [answer[begin : begin + length] for begin, length in draw(st.lists(cuts, max_size=40))]
    return vocabulary_of([*pieces, *draw(st.lists(st.sampled_from(PIECES)))], ends=draw(st.integers(1, 3)))


def assert_whole(rubric: Rubric, text: str) -> None:
    """The answer can be read, each text ends before the text that closes it, and nothing is lost."""
    layout, answer = rubric.answer_layout, rubric.parse(text)
    written = {
        field.name: next(text for text, value in field.values.items() if value == answer.scores[field.name])
        for field in layout.values
    }
    assert layout.write(answer.texts | written) == text
    for field, closing in zip(layout.parts[1::2], layout.parts[2::2], strict=True):
        if not isinstance(field, str) and field.name in answer.texts:
            assert answer.texts[field.name]
            assert not closing or closing not in answer.texts[field.name]
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", answer.texts[field.name])
    assert answer.scores.keys() == rubric.aspects.keys()
    assert tuple(answer.texts) == rubric.columns.texts[: len(answer.texts)]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_every_answer_is_whole_and_each_text_has_its_own_tokens(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    vocabulary = data.draw(vocabularies(rubric))
    decodes_opening = data.draw(st.booleans())
    encode = data.draw(encoders(vocabulary))
    table = token_table(rubric.answer_layout, vocabulary, encode, decodes_opening=decodes_opening)
    random = Random(data.draw(st.integers(0, 2**32)))
    for text_tokens in (1, data.draw(st.integers(2, 40))):
        margin = closing_margin_for(text_tokens)
        tokens, lengths = longest_answer(table, text_tokens, margin, random)
        assert len(tokens) <= table.limit(text_tokens)
        assert table.whole([*tokens, *vocabulary.ends]) == tokens
        opening = "" if decodes_opening else rubric.answer_layout.opening
        assert_whole(rubric, opening + vocabulary.decode(tokens))
        assert all(text_tokens - 12 - margin <= length for length in lengths)
        table.was_cut(tokens, text_tokens, margin)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_an_answer_of_random_tokens_is_whole(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    vocabulary = data.draw(vocabularies(rubric))
    table = token_table(rubric.answer_layout, vocabulary, data.draw(encoders(vocabulary)))
    random, margin = Random(data.draw(st.integers(0, 2**32))), closing_margin_for(30)
    allowances, state, tokens = table.allowances(30), table.start, list[int]()
    left = int(allowances[state])
    while not table.is_complete(state):
        tokens.append(int(random.choice(np.flatnonzero(table.allowed(state, left, margin)))))
        state, before = int(table.next_state[state, tokens[-1]]), state
        left = int(allowances[state]) if allowances[state] and state != before else left - 1
    assert_whole(rubric, rubric.answer_layout.opening + vocabulary.decode(tokens))


def written_by(table: TokenTable, vocabulary: Vocabulary, answer: str, *, ends: bool) -> None:
    """Some tokens spell the answer, with the token that ends an answer where the form ends with a field."""
    end = min(vocabulary.ends)
    with_end = Vocabulary({**vocabulary.pieces, end: b"\0"}, vocabulary.ends, vocabulary.size)
    spell(table, with_end, answer.encode() + b"\0" * ends)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_every_value_can_be_written_and_is_read_back(data: st.DataObject) -> None:
    rubric = data.draw(rubrics())
    layout = rubric.answer_layout
    table, vocabulary = table_of(rubric, decodes_opening=True)
    text = '"No"\t\\{}<🙂'
    # A text ends where the literal text after it first occurs.
    after = [
        end for field, end in pairwise(layout.parts) if isinstance(field, FreeText) and isinstance(end, str)
    ]
    assume(all((text + end).find(end) == len(text) for end in filter(None, after)))
    texts = {field.name: text for field in layout.texts}
    for number in range(max(len(field.values) for field in layout.values)):
        written = {field.name: [*field.values][number % len(field.values)] for field in layout.values}
        answer = layout.write(texts | written)
        written_by(table, vocabulary, answer, ends=not layout.parts[-1])
        read = rubric.parse(answer)
        assert read.texts == texts
        assert read.scores == {field.name: field.values[written[field.name]] for field in layout.values}


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
@pytest.mark.parametrize("form", [PROMETHEUS, LINES])
def test_each_family_of_tokenizers_keeps_the_promise(name: str, form: str) -> None:
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["ChatML"])
    vocabulary = read_vocabulary(tokenizer, len(tokenizer), [tokenizer.convert_tokens_to_ids("<|im_end|>")])
    rubric = rubric_of(form)
    table = token_table(rubric.answer_layout, vocabulary, PromptEncoder(tokenizer).spell)
    for seed in range(3):
        tokens, _ = longest_answer(table, 20, 5, Random(seed))
        assert_whole(rubric, rubric.answer_layout.opening + vocabulary.decode(tokens))


def forms_of_the_guide() -> list[str]:
    """Return the forms that the guide has ready for published judges."""
    text = (files("localjudge") / "cli" / "guide" / "rubrics.md").read_text("utf-8")
    return [tomllib.loads(line)["form"] for line in text.splitlines() if line.startswith("form = ")]


@pytest.mark.parametrize("name", [*SMALL])
@pytest.mark.parametrize("form", forms_of_the_guide())
def test_the_forms_of_published_judges_are_whole_and_can_be_read_in_one_way(name: str, form: str) -> None:
    if "{better}" in form:
        rubric = rubric_of(form, better={"preference": {"A": "A", "C": "tie", "B": "B"}})
    else:
        rubric = rubric_of(form, score={"scale": {"lowest": 1, "highest": 10}})
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["ChatML"])
    vocabulary = read_vocabulary(tokenizer, len(tokenizer), [tokenizer.convert_tokens_to_ids("<|im_end|>")])
    layout = rubric.answer_layout
    table = token_table(layout, vocabulary, PromptEncoder(tokenizer).spell)
    for seed in range(3):
        tokens, _ = longest_answer(table, 20, 5, Random(seed))
        assert_whole(rubric, layout.opening + vocabulary.decode(tokens))
    texts = {text.name: "It is good. It says [[why]] and <how>." for text in layout.texts}
    for value in layout.values[0].values:
        assert_whole(rubric, layout.write(texts | {field.name: value for field in layout.values}))


@pytest.mark.parametrize(
    ("written", "may"),
    [
        (" Good.", True),
        (" See [1], [RESULT and\n\n[RESULT]: a.", True),
        ("  [RESULT ", True),
        ("  [RESULT]", False),
        (" ", False),
        (" a\tb", True),
        (" a\rb", False),
        (" a\x7fb", False),
        (" a\x9fb", False),
        (" 评 [RESULT] 4 🙂", False),
    ],
)
def test_a_text_may_begin_what_closes_it_and_never_holds_it(written: str, may: bool) -> None:
    table, vocabulary = table_of(rubric_of(PROMETHEUS))
    answer = f"{written} [RESULT] 5"
    if may:
        written_by(table, vocabulary, answer, ends=True)
        assert rubric_of(PROMETHEUS).parse(f"Feedback:{answer}").texts == {"rationale": written[1:]}
    else:
        with pytest.raises(AssertionError):
            written_by(table, vocabulary, answer, ends=True)


def test_half_a_character_cannot_be_left_behind() -> None:
    table, vocabulary = table_of(rubric_of("{rationale}{score}".replace("}{", "}\n{")))
    with pytest.raises(ValueError, match="not allowed"):
        table.states([*"评".encode()[:2], ord("\n")])
    table, vocabulary = table_of(rubric_of("{score} {rationale}"))
    with pytest.raises(ValueError, match="not allowed"):
        table.states([ord("5"), ord(" "), *"评".encode()[:2], min(vocabulary.ends)])


def test_a_value_at_the_end_is_ended_by_the_token_that_ends_an_answer() -> None:
    grades = {"choices": ["5", "50", "A"]}
    table, vocabulary = table_of(rubric_of("{grade}", grade=grades))
    assert table.is_complete(table.states([ord("5"), min(vocabulary.ends)])[-1]), "one token ends it for all"
    for end in vocabulary.ends:
        assert table.is_complete(table.states([*b"50", end])[-1])
        assert not table.was_cut([ord("A"), end], 1)
    assert table.smallest_limit == 3
    assert not table.is_complete(table.states([ord("5")])[-1])
    with pytest.raises(ValueError, match="ends too early"):
        table.was_cut([ord("5")], 1)


def test_a_model_without_a_token_that_ends_an_answer_is_refused() -> None:
    endless = Vocabulary(vocabulary_of([]).pieces, frozenset(), 256)
    with pytest.raises(ModelError, match="no token that ends an answer"):
        token_table(rubric_of("{score}").answer_layout, endless)
    assert token_table(rubric_of("{score}.").answer_layout, endless).smallest_limit == 2


def test_near_its_limit_a_text_closes_where_a_sentence_ended() -> None:
    table, vocabulary = table_of(rubric_of(PROMETHEUS))
    state = table.states(list(b" Good."))[-1]
    left = int(table.distance[state])
    near, far = table.allowed(state, left + 7, 8), table.allowed(state, left + 20, 8)
    assert far[ord("x")]
    assert {vocabulary.pieces[token] for token in np.flatnonzero(near)} == {b" ", b" ["}
    # What begins as the literal text after the sentence must end as it.
    state = int(table.next_state[state, ord(" ")])
    near = table.allowed(state, left + 6, 8)
    assert {vocabulary.pieces[token] for token in np.flatnonzero(near)} == {b"[", b"[R", b"[RESULT]"}
    assert table.allowed(state, left + 20, 8)[ord("x")]
    inside = table.states(list(b" Good"))[-1]
    assert table.allowed(inside, left + 8, 8)[ord("x")]


def test_a_cut_text_is_told_from_one_that_the_model_ended() -> None:
    table, vocabulary = table_of(rubric_of(PROMETHEUS))
    answer = [*b" Good [RESULT] 5", min(vocabulary.ends)]
    path = table.states(answer)
    closes = int(np.flatnonzero(table.closing[path])[0]) - 1
    # The tokens of the text and the shortest spelling of what closes it.
    text_tokens = closes + int(table.distance[path[closes]]) - int(table.distance[table.text_start[0]]) + 1
    assert table.was_cut(answer, text_tokens)
    assert not table.was_cut(answer, text_tokens + 1)
    last = table_of(rubric_of("{score}: {rationale}"))[0]
    answer = [*b"5: Good", min(vocabulary.ends)]
    assert last.was_cut(answer, len(" Good"))
    assert not last.was_cut(answer, len(" Good") + 1)


TWO = {"a": {"choices": ["A", "B"]}, "b": FIVE}


def test_a_value_holds_the_space_before_it_if_that_keeps_the_values_apart() -> None:
    grades = {"choices": ["A", "B"]}
    rubric = rubric_of("Verdict: {grade}", grade=grades)
    assert rubric.answer_layout.opening == "Verdict:"
    with_space = vocabulary_of([b" A", b" B"])
    table = token_table(rubric.answer_layout, with_space, byte_by_byte)
    assert [with_space.pieces[token] for token in table.score_token[0]] == [b" A", b" B"]
    assert np.flatnonzero(table.next_state[table.start] >= 0).tolist() == table.score_token[0].tolist()
    vocabulary = vocabulary_of([b" A"])
    table = token_table(rubric.answer_layout, vocabulary, byte_by_byte)
    assert table.score_token[0].tolist() == [*b"AB"]
    assert np.flatnonzero(table.next_state[table.start] >= 0).tolist() == [ord(" ")]
    assert table.first_token_decides.all()


@pytest.mark.parametrize(
    ("form", "kinds", "said"),
    [
        ("{rationale} {why}{score}", {}, "a field follows after {why}; write text between them"),
        ("{rationale}{why} {score}", {}, "a field follows after {rationale}; write text between them"),
        ("{a}{b}", TWO, "a field follows after {a}; write text between them"),
        (
            "{score}0",
            {"score": {"scale": {"lowest": 1, "highest": 10}}},
            "'0' after {score} could also continue the value",
        ),
        ("{a} b", {"a": {"choices": ["A", "A or B"]}}, "' b' after {a} could also continue the value 'A or B'"),
        ("{rationale} {a}", TWO, "{b} occurs 0 times; write it once"),
        ("{score} and {score}", {}, "{score} occurs 2 times"),
        ("{why} {score} {why}", {}, "{why} occurs 2 times"),
        ("{score} {Why}", {}, "'{Why}' is not {name}; write {{ for a brace"),
        ("{score} }", {}, "'}' is not {name}"),
        ("{score}\r\n{why}", {}, "'\\r' is a control character"),
        ("{score} {candidate}", {}, "'candidate' is the name of another column"),
        ("{score} {score_expected}", {}, "'score_expected' is the name of another column"),
        ("{why}" + "-" * 41 + "{score}", {}, "the text after {why} takes more than 40 bytes"),
        ("-" * 1001 + "{score}", {}, "its fixed text takes 1001 bytes, more than 1000"),
    ],
)
def test_a_form_that_cannot_be_read_in_one_way_is_refused(form: str, kinds: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"answer.form: {said}")):
        rubric_of(form, **kinds)


def test_braces_are_doubled_and_names_become_columns() -> None:
    rubric = rubric_of("{{{why}}} {score}\n{{score_rationale}}: {score_rationale}")
    assert rubric.columns.texts == ("why", "score_rationale")
    answer = rubric.parse("{Good.} 4\n{score_rationale}: Clear.\nShort.")
    assert answer.texts == {"why": "Good.", "score_rationale": "Clear.\nShort."}
    assert answer.scores == {"score": 4}


@pytest.mark.parametrize(
    "text",
    [
        "Feedback: Good [RESULT] 6",
        "Feedback: Good [RESULT] 4 ",
        "Feedback:Good [RESULT] 4",
        "Feedback:  [RESULT] 4",
        "Feedback: Good",
        "Good [RESULT] 4",
        "",
    ],
)
def test_another_text_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="not an answer to the rubric form: "):
        rubric_of(PROMETHEUS).parse(text)


def test_the_prompt_shows_the_form_and_ends_with_its_opening() -> None:
    rubric = rubric_of("Feedback: {first_thoughts} [RESULT] {score}")
    assert rubric._template.endswith("Feedback: [your first thoughts] [RESULT] [1-5]")
    # The space belongs to the first word, as a tokenizer writes it.
    assert rubric.answer_layout.opening == "Feedback:"
    assert rubric_of(LINES).answer_layout.opening == ""


def test_settings_of_answers_in_json_are_refused_with_a_form(tmp_path: Path) -> None:
    file = written(tmp_path / "form.toml", PROMETHEUS)
    with pytest.raises(RubricError, match=r"`rationale` after: the form of its answer says where texts stand"):
        Rubric.load(file, rationale="after")
    written(file, PROMETHEUS, 'scores = ""')
    with pytest.raises(RubricError, match=r"answer\.form: scores is for answers in JSON; remove one"):
        Rubric.load(file)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("random"))


ROWS = [{"instruction": "Add.", "candidate": f"{n} and {n}"} for n in range(6)]


@pytest.mark.parametrize("engine", ["transformers", "dry-run"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "form", [PROMETHEUS, LINES, "{score}", "[{score}] {first}\n{second}", "{score} of 5\n"]
)
def test_a_judge_with_a_form_judges_every_row(small: Path, engine: str, temperature: float, form: str) -> None:
    rubric = rubric_of(form)
    judge = Judge(small, rubric=rubric, engine=engine, temperature=temperature, max_rationale_tokens=12)
    for outcome in judge.score(ROWS):
        assert outcome.status == "judged", outcome
        assert outcome.output_tokens <= judge.decoding.limit
        assert_whole(
            rubric, rubric.answer_layout.write(outcome.texts | {"score": str(outcome.scores["score"])})
        )
        assert sum(outcome.probabilities["score"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("form", [PROMETHEUS, LINES, "{score}"])
def test_a_model_that_thinks_writes_the_whole_form_after_its_thoughts(tmp_path: Path, form: str) -> None:
    folder = save_random_model(tmp_path, Model.find().path / "tokenizer.json", chat=THINKING_CHAT)
    rubric = rubric_of(form)
    judge = Judge(folder, rubric=rubric, max_rationale_tokens=9, thinking_budget=4, keep_thoughts=True)
    (finished,) = judge.engine.complete([Prompt(1, judge.prompts.encode("a question"), 1)])
    thoughts, answer = judge.decoding.table.split(finished[0].tokens)
    assert len(thoughts) <= 4
    assert_whole(rubric, judge.model.vocabulary.decode(answer))
    assert all(outcome.status == "judged" for outcome in judge.score(ROWS))


def test_texts_of_a_form_are_columns_of_a_run(small: Path, tmp_path: Path, cli: Cli) -> None:
    rubric = rubric_of("{b}/{a}: {praise}\n{advice}", **TWO)
    config = JudgeConfig.from_settings(model=str(small), rubric=rubric, max_rationale_tokens=6)
    assert score_run(config, RowSource.from_rows(ROWS), tmp_path / "run").complete
    table = load_run(tmp_path / "run").to_pandas()
    assert {"praise", "advice", "a", "b", "b_expected", "a_probabilities"} <= {*table.columns}
    assert table["praise"].str.len().min() > 0
    assert cli("show", tmp_path / "run").code == 0


def written(file: Path, form: str, *answer: str, template: str = "{$candidate} {$answer_format}") -> Path:
    """A rubric file of a score from 1 to 5 and a grade."""
    lines = [
        'name = "f"',
        "aspects.score = { scale = { lowest = 1, highest = 5 } }",
        *['aspects.grade = { choices = ["good", "bad"] }'] * ("{grade}" in form),
        f'answer.form = "{form}"',
        *(f"answer.{each}" for each in answer),
        f'prompt.template = "{template}"',
    ]
    file.write_text("\n".join(lines))
    return file


def test_a_rubric_with_a_form_is_checked(small: Path, tmp_path: Path, cli: Cli) -> None:
    file = written(tmp_path / "one.toml", PROMETHEUS)
    end = cli("rubrics", "check", file, "--model", small)
    assert (end.code, end.err) == (0, "")
    assert "answer           Feedback: [your rationale] [RESULT] [1-5]\n" in end.out
    assert "probabilities    of every aspect\n" in end.out
    assert cli("prompt", write_rows(tmp_path / "rows.jsonl", 2), "--rubric", file).code == 0
    end = cli("rubrics", "check", written(tmp_path / "two.toml", "{grade} {score}"), "--model", small)
    assert end.code == 1, "nothing says which value is which"
    assert "the template never mentions score, grade, so" in end.out
    template = "{$candidate} {$aspects}\\n{$answer_format}"
    file = written(tmp_path / "two.toml", "{grade} {score}", template=template)
    assert cli("rubrics", "check", file, "--model", small).code == 0
