"""Tests of thoughts before an answer: how a chat template opens one, and how it ends in any words."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, write_rows
from scripted_server import ROWS, WHOLE, always, chat, judge_on, serving
from small_tokenizers import CHAT_TEMPLATES, TOKENIZER_NAMES, tokenizer_with
from test_transformers import CHAT, rows, save_random_model
from transformers import PreTrainedTokenizerFast

from localjudge import Judge, Judgement, UsageError
from localjudge.config import JudgeConfig
from localjudge.constraint.compiler import after_thinking
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task import Prompt
from localjudge.prompts.thought_marks import marks_of, open_thought, split_thought
from localjudge.records import Failure

OPENED = CHAT + "{% if add_generation_prompt %}[|assistant|]<thought>\n{% endif %}"
SWITCHED = (
    CHAT + "{% if add_generation_prompt %}Effort: {{ effort }}. <thought>\n"
    "{% if level == 0 %}</thought>{% endif %}{% endif %}"
)


@pytest.mark.parametrize(
    ("ending", "opens", "ends"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>", "</think>"),
        ("<|im_start|>assistant\n<think>\nOkay, ", "<think>", "</think>"),
        ("[|assistant|]<thought>\n", "<thought>", "</thought>"),
        ("<seed:bos>assistant\n<seed:think>", "<seed:think>", "</seed:think>"),
        ("[/INST][THINK]", "[THINK]", "[/THINK]"),
        ("<|CHATBOT_TOKEN|><|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|assistant_start|><|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"),
        ("<|turn>model\n<|channel>thought\n", "<|channel>thought\n", "<channel|>"),
        ("assistant\n<|begin_of_thought|>\n\n", "<|begin_of_thought|>", "<|end_of_thought|>"),
        ("assistant◁think▷", "◁think▷", "◁/think▷"),
        ("\nHere are my reasoning steps:\n", "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
        ("<|begin|>assistant<|think|>", "<|think|>", ""),
        ("<think>one</think>\n<think>", "<think>", "</think>"),
    ],
)  # fmt: skip
def test_an_open_thought_is_recognised_in_the_words_of_each_family(ending: str, opens: str, ends: str) -> None:
    marks = open_thought(f"<|im_end|>\n{ending}")
    assert marks is not None
    assert (marks.opens, marks.ends) == (opens, ends)


@pytest.mark.parametrize(
    "ending",
    [
        "<|im_start|>assistant\n",
        "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<|assistant|></think>",
        "/nothink<|assistant|>\n<think></think>",
        "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>",
        "<|turn>model\n<|channel>thought\n<channel|>",
        "<|start|>assistant<|channel|>final<|message|>",
        "[REASONING_EFFORT]low[/REASONING_EFFORT][/INST]",
        "<reasoning_effort>18</reasoning_effort>assistant\n",
        "<|end_of_thought|>",
    ],
)
def test_a_thought_that_is_closed_or_absent_is_not_open(ending: str) -> None:
    assert open_thought(ending) is None


def test_the_marks_of_a_model_are_those_of_its_vocabulary_before_those_of_its_template() -> None:
    template = "{{ content.split('</think>')[-1] }}"
    assert marks_of([], "{{ content }}") is None
    assert marks_of(["<think>"], "{{ content }}") is None, "nothing ends it"
    assert (found := marks_of([], template)) is not None
    assert found.ends == "</think>"
    assert (found := marks_of(["<|begin_of_thought|>", "<|end_of_thought|>"], template)) is not None
    assert found.ends == "<|end_of_thought|>"
    assert (found := marks_of(["</think>", "<|inner_suffix|>"], "<|inner_suffix|>")) is not None
    assert found.ends == "<|inner_suffix|>", "the one that the template writes"


def test_a_thought_that_does_not_end_leaves_no_answer() -> None:
    assert split_thought(" <thought>Hm.</thought>\n{}") == ("Hm.", "\n{}")
    assert split_thought("<think>Hm, {}") == ("Hm, {}", "")
    assert split_thought('{"rationale": "<think>"}') == ("", '{"rationale": "<think>"}')


PIECES = [bytes([byte]) for byte in b"<>/think ab\n{"] + [
    b"</", b"think", b"</think", b">\n\n", b">{", b"a<", b"</think>", b"b</think>", b"k></", b"</think>a",
    b"<<", b"nk>",
]  # fmt: skip
TEXTS = Vocabulary(dict(enumerate(dict.fromkeys(PIECES))), frozenset({99}), 100)


def answering() -> TokenTable:
    """Return the table of an answer of one token, 98, which ends with the token 99."""
    after = np.full((3, 100), -1, np.int16)
    after[0, 98], after[1, 99] = 1, 2
    none = np.zeros(3, np.bool_)
    return TokenTable(
        after, np.array([2, 1, 0], np.int16), np.full(3, -1, np.int16), none, none, np.empty(0, np.int16),
        np.empty(0, np.int16), np.empty((0, 1, 1), np.int32), 0,
    )  # fmt: skip


@pytest.mark.parametrize("mark", [b"</think>", b"aabaab", b"[/THINK]"])
def test_a_mark_of_several_tokens_ends_a_thought_however_it_is_written(mark: bytes) -> None:
    pieces = {**TEXTS.pieces, 50: mark[:3], 51: mark[2:], 52: mark[-1:] + b" \n", 53: mark[:2] + mark[:2]}
    pieces |= {60 + place: bytes([byte]) for place, byte in enumerate(mark)}
    vocabulary = Vocabulary(pieces, frozenset({99}), 100)
    table = after_thinking(answering(), vocabulary, [], mark)
    draw, often = random.Random(0), [*pieces, *[token for token in pieces if token >= 50] * 6]
    ended = 0
    for _ in range(3000):
        tokens = [next(token for token, piece in pieces.items() if piece == b" ")]
        state, text = int(table.next_state[table.entry, tokens[0]]), b" "
        while state != table.start and len(tokens) < 12:
            token = draw.choice(often)
            written = text + pieces[token]
            after = int(table.next_state[state, token])
            _, complete, rest = written.partition(mark)
            assert (after == table.start) == bool(complete and not rest.strip())
            assert (after < 0) == bool(rest.strip()), "only white space may follow in the same token"
            if after >= 0:
                state, text = after, written
                tokens.append(token)
        ended += state == table.start
        if state == table.start:
            assert table.split([*tokens, 98, 99]) == (tokens[:-1], [98, 99])
    assert ended > 100


@pytest.mark.parametrize("budget", [0, 1, 2, 7])
def test_within_any_budget_a_thought_can_end_and_the_answer_is_whole(budget: int) -> None:
    table = after_thinking(answering(), TEXTS, [], b"</think>")
    draw = random.Random(budget)
    for _ in range(500):
        state, allowances = table.entry, table.allowances(1, budget)
        left, tokens = int(allowances[state]), list[int]()
        while not table.is_complete(state):
            token = draw.choice(np.flatnonzero(table.allowed(state, left)).tolist())
            after, left = int(table.next_state[state, token]), left - 1
            tokens.append(token)
            if allowances[after] and after != state:
                left = int(allowances[after])
            state = after
        _, answer = table.split(tokens)
        assert answer == [98, 99]
        assert len(tokens) <= budget + int(table.distance[table.entry])


def test_what_stands_between_a_thought_and_the_answer_is_fixed() -> None:
    table = after_thinking(answering(), TEXTS, [], 97, [90, 91, 90])
    assert table.split([3, 4, 97, 90, 91, 90, 98, 99]) == ([3, 4], [98, 99])
    path = [table.entry]
    for token in (97, 90, 91, 90):
        path.append(int(table.next_state[path[-1], token]))
    assert path[-1] == table.start
    assert [int(each) for each in table.distance[path]] == [6, 5, 4, 3, 2], "each takes one token"
    assert [int((table.next_state[each] >= 0).sum()) for each in path[1:4]] == [1, 1, 1]


def test_a_mark_that_the_vocabulary_cannot_spell_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot spell the text '</dénken>'"):
        after_thinking(answering(), TEXTS, [], "</dénken>".encode())


@pytest.fixture(scope="module")
def opened_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose chat template opens a thought in words that are no tokens of it."""
    folder = tmp_path_factory.mktemp("opened")
    return save_random_model(folder, Model.find().path / "tokenizer.json", chat=OPENED)


def test_a_template_that_opens_a_thought_lets_the_model_think_and_says_so(
    opened_model: Path, tmp_path: Path, cli: Cli
) -> None:
    judge = Judge(opened_model, max_rationale_tokens=5)
    assert judge.decoding.thinking_budget == 2048
    assert judge.thinking_notice is not None
    assert judge.model.tokenizer.decode(judge.prompts.encode("x")).endswith("[|assistant|]<thought>\n")
    file = write_rows(tmp_path / "rows.jsonl", 2)
    end = cli("score", file, "--model", opened_model, "--out", tmp_path / "run", "--engine", "dry-run")
    notice = (
        "opens a thought (<thought>): the model thinks for up to 2048 tokens before each answer; --thinking"
    )
    assert end.err.count(notice) == 1
    assert Judge(opened_model, thinking_budget=0).thinking_notice is None


@pytest.mark.parametrize("temperature", [0.0, 2.0])
@pytest.mark.parametrize("budget", [0, 1, 20])
def test_a_thought_in_words_ends_at_its_budget_and_the_answer_is_whole(
    opened_model: Path, budget: int, temperature: float
) -> None:
    judge = Judge(
        opened_model,
        max_rationale_tokens=5,
        thinking_budget=budget,
        keep_thoughts=True,
        temperature=temperature,
    )
    for judgement in judge.score(rows(4)):
        assert isinstance(judgement, Judgement), judgement
        assert judgement.output_tokens <= judge.decoding.max_tokens
        assert judgement.thoughts is not None
        assert "</thought>" not in judgement.thoughts
        assert bool(judgement.thoughts) == bool(budget)
    assert judge.no_thoughts_notice is None, "it thought, or was not let think"


def test_a_thought_whose_end_is_not_known_is_named(tmp_path: Path) -> None:
    chat = CHAT + "{% if add_generation_prompt %}<|think|>{% endif %}"
    judge = Judge(save_random_model(tmp_path, Model.find().path / "tokenizer.json", chat=chat))
    assert judge.decoding.thinking_budget is None
    assert judge.thinking_notice is not None
    assert "(<|think|>) whose end is not known" in judge.thinking_notice


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_a_model_of_the_harmony_format_thinks_in_a_channel_of_its_own(name: str) -> None:
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["harmony"])
    tokenizer.add_tokens(["<|channel|>"], special_tokens=True)
    ends = [
        tokenizer.decode(PromptEncoder(tokenizer, thinking=thinks).encode("x"))
        .rpartition("assistant")[2]
        .replace(" ", "")
        for thinks in (False, True)
    ]
    assert ends == ["<|channel|>final<|message|>", "<|channel|>analysis<|message|>"]
    assert (marks := PromptEncoder(tokenizer, thinking=True).open_thought) is not None
    assert marks.then == "<|start|>assistant<|channel|>final<|message|>"
    assert PromptEncoder(tokenizer).open_thought is None


@pytest.fixture(scope="module")
def harmony_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model of the harmony format, whose last turn ends with a token of its own, as gpt-oss's does."""
    last = "{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}"
    chat = CHAT_TEMPLATES["harmony"].replace("<|end|>{% endfor %}", last)
    folder = tmp_path_factory.mktemp("harmony")
    save_random_model(folder, Model.find().path / "tokenizer.json", chat=chat)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["<|start|>", "<|end|>", "<|message|>", "<|channel|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("budget", [0, 6])
def test_after_its_thought_a_harmony_model_answers_in_the_final_channel(
    harmony_model: Path, budget: int
) -> None:
    judge = Judge(harmony_model, max_rationale_tokens=5, thinking_budget=budget, keep_thoughts=True)
    decode = judge.model.tokenizer.decode
    assert decode(judge.prompts.encode("x")).endswith("<|start|>assistant<|channel|>analysis<|message|>")
    ((completion,),) = judge.engine.complete([Prompt(0, judge.prompts.encode("x"), 0)])
    thought, answer = judge.decoding.table.split(completion.tokens)
    between = completion.tokens[len(thought) : len(completion.tokens) - len(answer)]
    assert decode(between) == "<|end|><|start|>assistant<|channel|>final<|message|>"
    assert len(thought) <= budget
    assert len(completion.tokens) <= judge.decoding.max_tokens
    read = judge._read(completion)
    assert bool(read.thoughts) == bool(thought)
    assert "final" not in read.thoughts


@pytest.fixture(scope="module")
def switched_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose chat template reads two variables of its own."""
    folder = tmp_path_factory.mktemp("switched")
    return save_random_model(folder, Model.find().path / "tokenizer.json", chat=SWITCHED)


def test_variables_of_the_template_reach_the_prompt_and_the_key(switched_model: Path) -> None:
    plain, low = Judge(switched_model), Judge(switched_model, template_args={"effort": "low", "level": 0})
    assert "Effort: low. <thought>" in low.model.tokenizer.decode(low.prompts.encode("x"))
    assert low.decoding.thinking_budget is None, "the template closes its thought"
    assert plain.decoding.thinking_budget == 2048
    assert plain.known_settings["template_args"] is None
    assert low.known_settings["template_args"] == {"effort": "low", "level": 0}


def test_the_command_line_reads_variables_as_json_or_text(
    switched_model: Path, tmp_path: Path, cli: Cli
) -> None:
    file = write_rows(tmp_path / "rows.jsonl", 2)
    given = ["--template-arg", "effort=low", "--template-arg", "level=0"]
    common = ["score", file, "--model", switched_model, "--out", tmp_path / "run", "--engine", "dry-run"]
    assert cli(*common, *given).code == 0
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["settings"]["template_args"] == {"effort": "low", "level": 0}
    assert cli(*common, *given).code == 0, "the same command continues the run"
    end = cli(*common)
    assert end.code == 2
    assert "template_args: {'effort': 'low', 'level': 0} there, None now" in end.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("effort", "--template-arg effort: write NAME=VALUE"),
        ("=low", "--template-arg =low: write NAME=VALUE"),
        ("messages=[]", "--template-arg messages=[]: is not a variable that a judge may set"),
        ("a-b=1", "--template-arg a-b=1: is not a variable that a judge may set"),
        ("enable_thinking=False", "--template-arg enable_thinking=False: give true, false, null, a number"),
        ("enable_thinking=true", "--template-arg enable_thinking=true: give --thinking-budget"),
        ("level=NaN", "give true, false, null, a number or other text"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_refused(given: str, said: str, tmp_path: Path, cli: Cli) -> None:
    end = cli("score", "examples", "--out", tmp_path / "run", "--template-arg", given)
    assert end.code == 2
    assert said in end.err
    assert end.err.count("\n") == 1


def test_a_variable_that_contradicts_the_thinking_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="enable_thinking=false: contradicts `thinking_budget`"):
        JudgeConfig.from_settings(template_args={"enable_thinking": False}, thinking_budget=5)
    config = JudgeConfig.from_settings(template_args={"enable_thinking": False})
    assert config.replace(seed=1).template_args == {"enable_thinking": False}


Sent = dict[str, Any]


@pytest.mark.parametrize(
    ("version_path", "given", "sent"),
    [
        (None, {}, {}),
        (None, {"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}),
        (
            None,
            {"reasoning_effort": "low"},
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "low"}},
        ),
        (
            "/version",
            {"custom": 1},
            {"chat_template_kwargs": {"enable_thinking": False, "thinking": False, "custom": 1}},
        ),
        ("/api/version", {"enable_thinking": False}, {"reasoning_effort": "none"}),
        ("/api/version", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ("/api/version", {}, {}),
    ],
)
def test_a_server_gets_the_variables_in_the_fields_that_it_reads(
    short_rubric: Path, version_path: str | None, given: Sent, sent: Sent
) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.version, server.version_path = ("0.32.0", version_path) if version_path else (None, "/version")
        with judge_on(server, short_rubric, template_args=given) as judge:
            assert [outcome.status for outcome in judge.score(ROWS[:1])] == ["judged"]
        fields = {"reasoning_effort", "chat_template_kwargs"}
        found = [{name: each[name] for name in fields & each.keys()} for each in server.bodies]
        assert len(found) > 1, "the trials and the row"
        assert all(each == sent for each in found)


def test_a_variable_that_ollama_cannot_read_is_refused(short_rubric: Path) -> None:
    with serving(always(chat(WHOLE))) as server:
        server.version, server.version_path = "0.40.1", "/api/version"
        judge = judge_on(server, short_rubric, template_args={"custom": 1})
        with pytest.raises(
            UsageError, match="`template_args` custom: Ollama's models read only enable_thinking"
        ):
            list(judge.score(ROWS[:1]))


@pytest.mark.parametrize(
    ("message", "finish", "said"),
    [
        ({"content": "", "reasoning_content": "Hm."}, "length", "at the limit of its tokens, after thoughts"),
        ({"content": None, "reasoning": "Hm."}, "stop", "it has no answer, after thoughts"),
        ({"content": "<think>Hm, {} and"}, "length", "cut off at the limit of its tokens, after thoughts"),
        ({"content": "[THINK]Hm."}, "stop", "it has no answer, after thoughts"),
        ({"content": '{"rationale":"Se'}, "length", "it is cut off at the limit of its tokens"),
    ],
)  # fmt: skip
def test_thoughts_that_leave_no_room_for_the_answer_are_named(
    short_rubric: Path, message: dict[str, Any], finish: str, said: str
) -> None:
    reply = chat("", message=message, finish_reason=finish)
    with serving(always(reply)) as server, judge_on(server, short_rubric) as judge:
        (outcome,) = judge.score(ROWS[:1])
    assert isinstance(outcome, Failure)
    assert said in outcome.error
    assert ("`template_args` enable_thinking=false" in outcome.error) == ("thoughts" in said)


def test_a_form_that_begins_with_such_a_tag_is_not_a_thought(tmp_path: Path) -> None:
    rubric = tmp_path / "form.toml"
    rubric.write_text(
        'name = "tags"\naspects = ["score"]\nscale = { lowest = 1, highest = 5 }\n'
        '[answer]\nform = "<reasoning>{rationale}</reasoning><score>{score}</score>"\n'
        '[prompt]\ntemplate = "Q: {$instruction} A: {$candidate} score 1-5 {$answer_format}"\n'
    )
    reply = chat("<reasoning>Fine.</reasoning><score>4</score>")
    with serving(always(reply)) as server, judge_on(server, rubric) as judge:
        (outcome,) = judge.score(ROWS[:1])
    assert isinstance(outcome, Judgement), outcome
    assert (outcome.rationale, outcome.scores) == ("Fine.", {"score": 4})


def test_a_budget_without_a_thought_is_named_at_the_end(short_rubric: Path, tmp_path: Path, cli: Cli) -> None:
    file = write_rows(tmp_path / "rows.jsonl", 3)
    with serving(always(chat(WHOLE))) as server:
        common = ["--engine", "server", "--server", server.url, "--rubric", short_rubric]
        budget = ["--thinking-budget", 200]
        without = cli("score", file, *common, "--out", tmp_path / "without")
        silent = cli("score", file, *common, *budget, "--out", tmp_path / "silent")
        server.script = always(chat("", message={"content": WHOLE, "reasoning_content": "Hm."}))
        thinking = cli("score", file, *common, *budget, "--out", tmp_path / "thinking")
    assert silent.err.count("no thoughts: --thinking-budget is 200, and none of 3 answers has a thought") == 1
    assert "no thoughts" not in without.err + thinking.err
