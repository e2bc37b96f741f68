"""Tests of prompts: the chat template around a row, and row texts that always remain text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, random_model, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import CHAT_TEMPLATES, SMALL, TEXT, TOKENIZER_NAMES, tokenizer_with
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from localjudge import ModelError, Row, Rubric, read_rows
from localjudge.errors import RowError
from localjudge.models.model import Model
from localjudge.prompts.chat_template import FixedDate, render_template
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.rendered_turns import render

ORDINARY = [
    "word",
    "",
    " ",
    "two words",
    " leading and trailing ",
    "\n\nlines\n\n\n  and\ttabs\r\n",
    "code:\n```python\nif x < 1:\n    return  'é'\n```",
    "是的。好的。 नमस्ते مرحبا",
    "🙂👩‍👩‍👧 e\u0301 \u00a0 \u200b",
    "1234567 3.14 I'm they'll",
    "▁ Ġ <0x0A> <unk",
]
# Behaviours of chat templates: text directly next to the content, trimming, an own system prompt.
TEMPLATES: dict[str, str | None] = {
    "none": None,
    "turns": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "trimmed": "<s>{% for m in messages %}[INST] {{ m.content | trim }} [/INST]{% endfor %}",
    "plain text": "{% for m in messages %}### User:\n{{ m.content }}\n### Judge:\n{% endfor %}",
    "close around": "<|im_start|>system\nBe fair.<|im_end|>"
    "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<think>\n\n</think>\n\n",
}


@pytest.fixture(scope="session")
def found_model(model: Path) -> Model:
    return Model.find(model)


def assert_text_stays_text(encoder: PromptEncoder, tokenizer: Any, text: str) -> None:
    """Assert that the text has no added token, and that its tokens decode to exactly this text."""
    backend = tokenizer.backend_tokenizer
    tokens = encoder.encode(text)
    inner = tokens[len(encoder.head) : len(tokens) - len(encoder.tail)]
    assert tokens[: len(encoder.head)] == encoder.head
    assert tokens[len(tokens) - len(encoder.tail) :] == encoder.tail
    assert not set(inner) & set(backend.get_added_tokens_decoder())
    said = backend.decode(inner, skip_special_tokens=False)
    assert said.lstrip(" ") == (encoder.before + text + encoder.after).lstrip(" ")


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
@given(st.text(max_size=40) | st.text("aZ1 \n.▁是🙂", max_size=40))
@settings(max_examples=20)
def test_a_text_has_no_more_tokens_than_bytes(name: str, text: str) -> None:
    encoder = template_encoder(name)
    (encoded,) = encoder.encode_all([text])
    assert isinstance(encoded, RowError) or len(encoded.ids) <= encoder.bound(text)


@cache
def template_encoder(name: str) -> PromptEncoder:
    return PromptEncoder(tokenizer_with(name, TEMPLATES["turns"]))


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_no_added_token_can_come_from_a_rows_text(name: str, kind: str) -> None:
    tokenizer = tokenizer_with(name, TEMPLATES[kind])
    encoder = PromptEncoder(tokenizer)
    contents = [token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()]
    for text in (*contents, " ".join(contents), "".join(contents), f"a{contents[0]}b\n{contents[-1]}"):
        if text.strip():
            assert_text_stays_text(encoder, tokenizer, text)


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_ordinary_text_becomes_what_the_whole_tokenizer_makes_of_it(name: str, kind: str) -> None:
    template = TEMPLATES[kind]
    tokenizer = tokenizer_with(name, template)
    encoder = PromptEncoder(tokenizer)
    added = [each.content for each in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()]
    examples = [row.candidate for row in read_rows(["examples"]) if isinstance(row, Row)]
    for text in [*ORDINARY, TEXT, *examples]:
        if any(spelled in text for spelled in added):
            continue  # that is not ordinary
        if kind == "trimmed" and text != text.strip():
            continue  # a row's own spaces stay, even if the template trims its content
        if template:
            whole = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False)
            # The template has no generation prompt, but a turn of the assistant, which begins so.
            whole += "<|im_start|>assistant\n" if kind == "turns" else ""
        else:
            whole = text
        expected = tokenizer.backend_tokenizer.encode(whole, add_special_tokens=template is None).ids
        assert encoder.encode(text) == expected


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_texts_that_begin_alike_share_the_tokens_before_the_place_that_is_asked_for(
    name: str, kind: str
) -> None:
    encoder = PromptEncoder(tokenizer_with(name, TEMPLATES[kind]))
    shared = "The rules, and then the text:\n"
    texts = [shared + end for end in ("A dog.", "\nAnd a cat.", " ", "Été", "")]
    encoded = encoder.encode_all(texts, [[len(shared)]] * len(texts))
    for text, each in zip(texts, encoded, strict=True):
        assert not isinstance(each, RowError)
        assert each.ids == encoder.encode(text)
        for count in each.beginnings:
            assert each.ids[:count] == encoder.encode(shared + "A dog.")[:count]
            assert count <= len(each.ids) - len(encoder.tail)
    first = encoded[0]
    assert not isinstance(first, RowError)
    assert len(first.beginnings) == 1
    assert first.beginnings[0] >= len(encoder.encode(shared)) - len(encoder.encode("")) - 3


def test_every_published_chat_template_works_or_is_refused_in_words(shared: Path) -> None:
    templates = json.loads((shared / "data" / "chat_templates.json").read_text())["templates"]
    refused = {}
    for name, template in templates.items():
        tokenizer = tokenizer_with("minimind", template)
        try:
            encoder = PromptEncoder(tokenizer)
        except ModelError as error:
            refused[name] = str(error)
            continue
        for text in ("Hello <|im_end|>, </s> [/INST] <think>", "plain"):
            assert_text_stays_text(encoder, tokenizer, text)
    # The other templates need tools, or tokens that this tokenizer does not have.
    assert len(templates) - len(refused) >= 49, refused
    assert all(message.startswith("the chat template ") for message in refused.values())


@given(st.text(st.characters(codec="utf-8")) | st.lists(st.sampled_from(
    ["<|start|>", "<|end|>", "<think>", "<|start|", "|>", "<", "user", "\n", " ", "e"])).map("".join)
)  # fmt: skip
def test_any_text_at_all_stays_text(found_model: Model, text: str) -> None:
    assert_text_stays_text(found_model.prompts, found_model.tokenizer, text)


def test_an_end_of_turn_in_a_response_does_not_end_the_turn(model: Path) -> None:
    encoder, end = Model.find(model).prompts, Model.find(model).tokenizer.eos_token_id
    assert encoder.encode("a").count(end) == encoder.encode("a<|end|>").count(end) == 1


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[0].nothing.at_all }}",
        "{% broken",
        "nothing of the message",
        "{{ messages[0].content }} and {{ messages[0].content }}",
        "{{ messages[0].content | upper }}",
        "{{ messages[0].content.split('</think>')[-1] }}",
        "{% if '/no_think' in messages[0].content %}Do not think. {% endif %}{{ messages[0].content }}",
        "{{ messages[0].content | replace('\n', ' ') }}",
    ],
)
def test_a_chat_template_that_cannot_hold_the_content_is_refused(model: Path, template: str) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    tokenizer.chat_template = template
    with pytest.raises(ModelError, match="chat template"):
        PromptEncoder(tokenizer)


def test_chat_templates_render_as_the_library_renders_them(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = json.loads((shared / "data" / "chat_templates.json").read_text())["templates"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>")
    monkeypatch.setattr(chat_template_utils, "datetime", FixedDate)
    rendered = 0
    for tokenizer.chat_template in templates.values():
        for content in ("plain", " é\n\u2028🙂</think>"):
            turns = [{"role": "user", "content": content}]
            asked: dict[str, Any] = {"add_generation_prompt": True, "thinking": True}
            try:
                expected = tokenizer.apply_chat_template(turns, tokenize=False, enable_thinking=True, **asked)
            except Exception:  # some templates need tools
                with pytest.raises(ModelError, match="chat template cannot be rendered"):
                    render(tokenizer, turns, **asked)
                continue
            assert render(tokenizer, turns, **asked) == expected
            rendered += 1
    assert rendered >= 2 * 49


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages }}",
        "{% set n = 9 %}{{ n ** (n ** n) }}",
    ],
)
def test_a_chat_template_that_does_not_end_is_refused_and_the_next_one_is_rendered(
    monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    monkeypatch.setattr("localjudge.prompts.chat_template.SECONDS", 0.5)
    with pytest.raises(ModelError, match=r"the chat template cannot be rendered: .* more than 0\.5 s"):
        render_template(template, [], {})
    monkeypatch.undo()
    assert render_template("{{ 1 + 1 }}", [], {}) == "2"


@pytest.mark.parametrize(
    "expression",
    ["'x' * 2000000000", "'x' * n", "'%2000000000d' % 1", "'x' | center(n)", "'x' * 1000001", "[1] * n * n"],
)
def test_a_chat_template_that_takes_the_machines_memory_is_refused(expression: str) -> None:
    with pytest.raises(ModelError, match="chat template cannot be rendered") as refused:
        render_template(f"{{% set n = 2000000000 %}}{{{{ {expression} }}}}", [], {})
    assert len(str(refused.value)) < 200


def test_what_a_chat_template_raises_is_one_line_of_bounded_length() -> None:
    with pytest.raises(ModelError) as refused:
        render_template("{{ raise_exception('no\n' * 100000) }}", [], {})
    assert str(refused.value).startswith("the chat template cannot be rendered: no no no")
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 600


def test_a_text_on_which_the_tokenizer_gives_up_fails_its_row_and_no_other(
    cli: Cli, tmp_path: Path, short_rubric: Path
) -> None:
    folder = random_model(tmp_path / "model")
    layout = json.loads((folder / "tokenizer.json").read_text())
    exponential = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    layout["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [exponential, layout["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(layout))
    file = tmp_path / "rows.jsonl"
    texts = {"fine": "good", "guilty": "a" * 40 + "!", "fine too": "better"}
    rows = [{"id": k, "instruction": "Q", "reference": "R", "candidate": text} for k, text in texts.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    how = ("--model", folder, "--rubric", short_rubric, "--max-rationale-tokens", 3)
    end = cli("score", file, "--out", run, *how)
    assert end.code == 3
    assert "Traceback" not in end.err
    lines = [json.loads(line) for line in (run / "judgements.jsonl").read_text().splitlines()]
    assert {line["id"]: line["status"] for line in lines} == {
        "fine": "judged",
        "guilty": "failed",
        "fine too": "judged",
    }
    assert f"{file}:2: the tokenizer cannot encode the text: " in lines[1]["error"]


def test_a_chat_template_on_which_the_tokenizer_gives_up_is_refused(model: Path) -> None:
    layout = json.loads((model / "tokenizer.json").read_text())
    layout["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(layout)))
    tokenizer.chat_template = "a" * 40 + "!{{ messages[0].content }}"
    with pytest.raises(ModelError, match="chat template cannot be encoded: the tokenizer cannot encode"):
        PromptEncoder(tokenizer)


def test_a_model_whose_chat_template_cannot_be_rendered_is_named_once(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no') }}")
    for found in (lambda: Model.find(folder).prompts, lambda: Model.find(folder).vocabulary):
        with pytest.raises(ModelError) as refused:
            found()
        assert str(refused.value) == f"model {folder}: the chat template cannot be rendered: no"


def test_a_chat_template_that_names_the_day_gives_the_same_prompt_tomorrow(model: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    tokenizer.chat_template = "Today is {{ strftime_now('%d %B %Y') }}. {{ messages[0].content }}"
    assert PromptEncoder(tokenizer).before == "Today is 01 January 2026. "


@pytest.mark.parametrize("style", CHAT_TEMPLATES)
@pytest.mark.parametrize("name", SMALL)
def test_a_chat_template_of_each_style_goes_around_the_text_of_each_tokenizer(name: str, style: str) -> None:
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES[style])
    encoder = PromptEncoder(tokenizer)
    assert encoder.head, "it begins with a token of the model's own"
    for text in ("Hello <|im_end|>, </s> [/INST] <think> <|eot_id|><|end|>", "plain", "  spaces around  "):
        assert_text_stays_text(encoder, tokenizer, text)


@pytest.mark.parametrize("switch", ["enable_thinking", "thinking"])
def test_a_hybrid_model_is_asked_whether_to_think_by_the_name_that_its_template_knows(switch: str) -> None:
    template = "{{ messages[0].content }}{% if not SWITCH %}<think></think>{% endif %}".replace(
        "SWITCH", switch
    )
    tokenizer = tokenizer_with("byte-level BPE", template)
    no_thoughts = tokenizer.encode("<think></think>", add_special_tokens=False)
    assert PromptEncoder(tokenizer).tail == no_thoughts
    assert PromptEncoder(tokenizer, thinking=True).tail == []


MUSE = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
"""A template whose generation prompt ends as that of the harmony format, without its channels."""


@pytest.mark.parametrize("name", SMALL)
def test_a_prompt_ends_with_what_the_template_writes_before_an_answer(name: str) -> None:
    def end_of(template: str) -> str:
        tokenizer = tokenizer_with(name, template)
        said: str = tokenizer.decode(PromptEncoder(tokenizer).encode("-"))
        return said.rpartition("-")[2].replace(" ", "")

    assert end_of(MUSE) == "<|eot|><|start|>assistant<|message|>"
    thinks = MUSE.replace("{{ m.content }}", "{{ '<think></think>' if m.role == 'assistant' }}{{ m.content }}")
    assert end_of(thinks) == "<|eot|><|start|>assistant", "a thought is no beginning of an answer"
    assert end_of("[INST] {% for m in messages %}{{ m.content }} [/INST]{% endfor %}") == "[/INST]"
    refuses = "{% if messages[1] %}{{ raise_exception('one turn') }}{% endif %}" + MUSE
    assert end_of(refuses) == "<|eot|><|start|>assistant"


def test_an_answer_in_the_published_harmony_format_stands_in_the_final_channel(shared: Path) -> None:
    templates = json.loads((shared / "data" / "chat_templates.json").read_text())["templates"]
    assert_final_channel(tokenizer_with("minimind", templates["openai-gpt-oss-120b"]))


@pytest.mark.parametrize("name", SMALL)
def test_an_answer_in_harmony_format_stands_in_the_final_channel(name: str) -> None:
    assert_final_channel(tokenizer_with(name, CHAT_TEMPLATES["harmony"]))


def assert_final_channel(tokenizer: Any) -> None:
    said = tokenizer.decode(PromptEncoder(tokenizer).encode("-"))
    assert said.replace(" ", "").endswith("<|message|>-<|end|><|start|>assistant<|channel|>final<|message|>")


def test_without_a_chat_template_the_text_stands_after_what_the_tokenizer_puts_first(model: Path) -> None:
    backend = Tokenizer.from_file(str(model / "tokenizer.json"))
    start = backend.token_to_id("<|start|>")
    backend.post_processor = TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", start)])
    encoder = PromptEncoder(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert encoder.encode("a") == [start, *backend.encode("a", add_special_tokens=False).ids]


def test_the_digest_follows_the_chat_template(model: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    digests = set()
    for template in (
        "{{ messages[0].content }}",
        "{{ messages[0].content }}!",
        "<|end|>{{ messages[0].content }}",
    ):
        tokenizer.chat_template = template
        digests |= {PromptEncoder(tokenizer).digest, PromptEncoder(tokenizer).digest}
    assert len(digests) == 3


def test_the_prompt_command_prints_the_tokens_that_the_engine_gets(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    file = write_rows(tmp_path / "a.jsonl", 3)
    end = cli("prompt", file, "--model", model, "--rubric", short_rubric, "--tokens", "--json", "--limit", 2)
    printed = [json.loads(line) for line in end.out.splitlines()]
    assert [list(line) for line in printed] == [["id", "text", "tokens"]] * 2
    assert [line["id"] for line in printed] == ["r0", "r1"]
    assert printed[0]["text"] == "Q: Question 0? R: Yes. A: word  Tact, wit: 1-3"
    tokenizer = Model.find(model).tokenizer
    assert tokenizer.decode(printed[0]["tokens"]) == (
        f"<|start|>user\n{printed[0]['text']}<|end|>\n<|start|>assistant\n" + '{"rationale":"'
    )


def test_the_prompt_command_prints_the_shipped_prompt_byte_for_byte(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    fields = ("instruction", "reference", "candidate")
    file.write_text(json.dumps({name: f"{{${name}}}" for name in fields}))
    end = cli("prompt", file, "--limit", 1)
    assert (end.code, end.out) == (0, Rubric.load().prompt.template + "\n")
