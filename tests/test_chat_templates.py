"""Tests of the chat template of a model: none, a given one, one that reads parts, one that names thoughts."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Ended, write_rows
from report_page import head
from scripted_server import ROWS, WHOLE, always, chat, judge_on, serving
from small_tokenizers import CHAT_TEMPLATES, SMALL, tokenizer_with
from test_served_table import digest_of, table_serving, tokens_of
from test_transformers import save_random_model

from localjudge import Judge, Judgement, ModelError, Rubric, UsageError
from localjudge.config import JudgeConfig
from localjudge.errors import SettingError
from localjudge.given_template import NO_TEMPLATE_NOTICE, GivenTemplate
from localjudge.integrations.shared_judge import SharedJudge
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.rendered_turns import reads_parts
from localjudge.prompts.thought_formats import FORMATS
from localjudge.prompts.thought_marks import marks_of, names_thoughts, open_thought, split_thought
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest

TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}<|start|>judge: "
WAYS_ON = ("--chat-template, or", "--chat-template none")


@pytest.fixture(scope="session")
def bare_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose tokenizer has no chat template."""
    folder = tmp_path_factory.mktemp("bare") / "model"
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").unlink()
    return folder


@pytest.fixture
def template(tmp_path: Path) -> Path:
    file = tmp_path / "own.jinja"
    file.write_text(TEMPLATE)
    return file


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", 4)


def flags(model: Path, rubric: Path) -> tuple[object, ...]:
    return "--model", model, "--rubric", rubric, "--engine", "transformers", "--max-rationale-tokens", 3


def assert_names_the_ways_on(end: Ended, model: Path) -> None:
    assert end.code == 2
    assert end.out == ""
    said = end.err.splitlines()[-1]
    assert str(model) in said
    assert all(way in said for way in WAYS_ON), said


@pytest.mark.parametrize(
    "command",
    [
        ("score", "ROWS", "--out", "OUT"),
        ("score", "ROWS", "--out", "OUT", "--engine", "dry-run"),
        ("prompt", "ROWS", "--tokens"),
        ("rubrics", "check", "just-eval"),
        ("serve", "--print-vllm-flags", "--table", "OUT"),
    ],
)
def test_every_command_that_judges_refuses_a_model_without_a_template(
    cli: Cli, bare_model: Path, tmp_path: Path, rows: Path, command: tuple[str, ...]
) -> None:
    named = {"ROWS": rows, "OUT": tmp_path / "out"}
    end = cli(*(named.get(word, word) for word in command), "--model", bare_model)
    assert_names_the_ways_on(end, bare_model)


def test_python_and_the_integrations_refuse_it_too(bare_model: Path) -> None:
    with pytest.raises(ModelError, match="`chat_template` none"):
        Judge(bare_model)
    with pytest.raises(ModelError, match="`chat_template` none"):
        SharedJudge("no-reference", str(bare_model))


def test_verify_and_doctor_call_it_wrong_until_a_way_is_chosen(
    cli: Cli, bare_model: Path, tmp_path: Path, template: Path
) -> None:
    for command in (("models", "verify", bare_model, "--no-manifest"), ("doctor", "--model", bare_model)):
        refused = cli(*command)
        assert refused.code != 0
        (said,) = [line for line in refused.out.splitlines() if "no chat template" in line]
        assert "wrong" in said
        assert "--chat-template FILE" in said
        assert "--chat-template none" in said
        for given in ("none", template):
            chosen = cli(*command, "--chat-template", given)
            assert chosen.code == 0, chosen.out
            assert "wrong" not in chosen.out
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% broken")
    end = cli("models", "verify", bare_model, "--no-manifest", "--chat-template", broken)
    assert end.code == 2
    assert str(broken) in end.out


def test_a_given_template_makes_the_prompts_of_a_model_that_has_it(
    bare_model: Path, template: Path, tmp_path: Path
) -> None:
    with_it = tmp_path / "model"
    shutil.copytree(bare_model, with_it)
    shutil.copy(template, with_it / "chat_template.jinja")
    given, own = Judge(bare_model, chat_template=template), Judge(with_it)
    assert given.prompts.encode("x") == own.prompts.encode("x")
    assert given.model.end_tokens == own.model.end_tokens
    assert given.known_settings["chat_template"] == hashlib.sha256(TEMPLATE.encode()).hexdigest()
    assert own.known_settings["chat_template"] is None
    assert given.known_settings["prompt_frame"] == own.known_settings["prompt_frame"]


def test_a_given_template_replaces_the_models_own(model: Path, template: Path) -> None:
    judge = Judge(model, chat_template=str(template))
    assert judge.model.tokenizer.decode(judge.model.prompts.encode("x")).endswith("judge: ")


def test_without_a_template_the_prompt_is_the_text_alone(bare_model: Path) -> None:
    judge = Judge(bare_model, chat_template="none")
    backend = judge.model.tokenizer.backend_tokenizer
    assert judge.model.prompts.encode("x y") == backend.encode("x y").ids
    assert judge.known_settings["chat_template"] == "none"


def test_a_run_without_a_template_is_continued_and_every_table_says_so(
    cli: Cli, bare_model: Path, tmp_path: Path, rows: Path, short_rubric: Path
) -> None:
    out = tmp_path / "run"
    command = ("score", rows, "--out", out, *flags(bare_model, short_rubric))
    first = cli(*command, "--limit", 2, "--chat-template", "none")
    assert first.code == 0, first.err
    assert NO_TEMPLATE_NOTICE in first.err
    assert cli(*command, "--chat-template", "none").code == 0
    lines = (out / "judgements.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == 4
    assert NO_TEMPLATE_NOTICE in read_notices(out)
    for reader in (("show", out), ("rank", out, "--resamples", 100)):
        assert NO_TEMPLATE_NOTICE in cli(*reader).out
    page = tmp_path / "page.html"
    assert cli("report", out, "--out", page).code == 0
    assert NO_TEMPLATE_NOTICE in head(page)["notices"]
    table = tmp_path / "table.jsonl"
    assert cli("export", out, "--out", table).code == 0
    assert all(NO_TEMPLATE_NOTICE in json.loads(line)["notice"] for line in table.read_text().splitlines())


def test_programs_that_ask_a_judge_without_a_template_are_told(bare_model: Path) -> None:
    judge = SharedJudge("no-reference", str(bare_model), chat_template="none")
    assert NO_TEMPLATE_NOTICE in judge.about["notice"]


def test_a_run_is_repeated_from_its_own_record_of_the_template(
    cli: Cli, bare_model: Path, tmp_path: Path, rows: Path, short_rubric: Path, template: Path
) -> None:
    out = tmp_path / "run"
    command = ("score", rows, "--out", out, *flags(bare_model, short_rubric), "--chat-template", template)
    assert cli(*command).code == 0
    recorded = json.loads((out / "run.json").read_text())
    assert recorded["given_template"] == TEMPLATE
    assert recorded["settings"]["chat_template"] == hashlib.sha256(TEMPLATE.encode()).hexdigest()
    assert cli(*command).code == 0, "the same file continues the run"
    moved = template.rename(tmp_path / "moved.jinja")
    assert cli(*command[:-1], moved).code == 0, "so does its text under another name"
    moved.unlink()
    repeated = cli("audit", out, "--check", "repeat", "--json")
    assert repeated.code == 0, repeated.err
    assert json.loads(repeated.out)["noise"]["changed_rows"] == 0


def test_another_template_is_another_run_and_another_judge(
    cli: Cli, model: Path, tmp_path: Path, rows: Path, short_rubric: Path, template: Path
) -> None:
    out, own = tmp_path / "run", tmp_path / "own"
    command = ("score", rows, *flags(model, short_rubric))
    assert cli(*command, "--out", out, "--chat-template", template).code == 0
    assert cli(*command, "--out", own).code == 0
    template.write_text(TEMPLATE + "!")
    for given in (("--chat-template", template), ("--chat-template", "none"), ()):
        end = cli(*command, "--out", out, *given)
        assert end.code == 2
        assert "chat_template" in end.err
    judges = [read_manifest(each).judge for each in (out, own)]
    assert [name for name in judges[0] if judges[0][name] != judges[1][name]] == ["chat_template"]
    assert "prompt_frame" not in judges[0], "the model's own template is no part of it"


def test_an_edited_template_in_a_run_is_found(
    cli: Cli, model: Path, tmp_path: Path, rows: Path, short_rubric: Path, template: Path
) -> None:
    out = tmp_path / "run"
    command = ("score", rows, *flags(model, short_rubric), "--out", out, "--chat-template", template)
    assert cli(*command).code == 0
    file = out / "run.json"
    file.write_text(file.read_text().replace("judge: ", "oracle: "))
    end = cli("show", out)
    assert end.code == 2
    assert str(file) in end.err


@pytest.mark.parametrize(
    "content",
    [None, b"", b" \n", b"\xff\xfe", b"{% broken", b"{{ messages[0].nothing }}", b"x" * 1_000_001],
    ids=["missing", "empty", "blank", "not UTF-8", "not Jinja", "without the content", "too large"],
)
def test_a_file_that_is_no_template_is_one_line(
    cli: Cli, model: Path, tmp_path: Path, rows: Path, content: bytes | None
) -> None:
    file = tmp_path / "given.jinja"
    if content is not None:
        file.write_bytes(content)
    end = cli("score", rows, "--model", model, "--out", tmp_path / "run", "--chat-template", file)
    assert end.code == 2
    assert end.err.count("\n") == 1, end.err
    assert f"--chat-template {file}" in end.err
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_folder_and_another_value_are_no_template(tmp_path: Path) -> None:
    for given in (tmp_path, 5):
        with pytest.raises(SettingError, match="`chat_template`"):
            JudgeConfig.from_settings(chat_template=given)


def test_a_file_named_none_is_given_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "none").write_text(TEMPLATE)
    assert GivenTemplate.read(tmp_path / "none").source == TEMPLATE
    assert GivenTemplate.read("none").source is None


def test_a_text_server_refuses_a_template_before_it_is_asked(short_rubric: Path, template: Path) -> None:
    with serving(always(chat(WHOLE))) as server:
        for given in ("none", template):
            with pytest.raises(UsageError, match=r"`chat_template` .*: the server applies its own"):
                judge_on(server, short_rubric, chat_template=given)
        assert not server.bodies


def test_a_table_server_gets_the_prompts_of_a_given_template(
    bare_model: Path, short_rubric: Path, template: Path
) -> None:
    with table_serving(lambda: tokens_of(judge), lambda: digest_of(judge)) as server:
        options = {"server": server.url, "server_kind": "table"}
        judge = Judge(
            bare_model, rubric=short_rubric, engine="server", engine_args=options, chat_template=template,
            max_rationale_tokens=4,
        )  # fmt: skip
        with judge:
            assert all(isinstance(each, Judgement) for each in judge.score(ROWS))
        sent = judge.model.tokenizer.decode(server.bodies[-1]["prompt"])
    assert sent.startswith("<|start|>user: ")
    assert "<|start|>judge: " in sent


PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EITHER = PARTS.replace(
    "{% for part in m.content %}",
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}",
).replace("{% endfor %}<|im_end|>", "{% endfor %}{% endif %}<|im_end|>")
STRICT = PARTS.replace(
    "{% endif %}{% endfor %}", "{% else %}{{ raise_exception('no text') }}{% endif %}{% endfor %}"
)


def in_parts(turns: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [turn | {"content": [{"type": "text", "text": turn["content"]}]} for turn in turns]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("system", ["", "You judge."])
@pytest.mark.parametrize("source", [PARTS, STRICT], ids=["loses strings", "refuses strings"])
def test_a_template_that_reads_parts_gets_parts(name: str, system: str, source: str) -> None:
    tokenizer = tokenizer_with(name, source)
    encoder = PromptEncoder(tokenizer, system=system)
    assert encoder.system_place == ("turn" if system else None)
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": "The text."})
    whole = tokenizer.apply_chat_template(in_parts(turns), tokenize=False, add_generation_prompt=True)
    assert (
        encoder.encode("The text.") == tokenizer.backend_tokenizer.encode(whole, add_special_tokens=False).ids
    )


def test_a_template_that_shows_strings_gets_strings() -> None:
    assert not reads_parts(EITHER, "{}")
    assert not reads_parts(CHAT_TEMPLATES["ChatML"], "{}")
    assert not reads_parts("no content", "{}")
    assert reads_parts(PARTS, "{}")
    assert reads_parts("{{ messages[0].content[0].text }}", "{}")


def test_the_end_of_a_turn_is_found_in_a_template_that_reads_parts(tmp_path: Path) -> None:
    source = PARTS.replace("<|im_end|>", "<|end-of-text|>")
    folder = save_random_model(tmp_path, Model.find().path / "tokenizer.json", chat=source)
    judge = Judge(folder, max_rationale_tokens=3)
    token = judge.model.tokenizer.convert_tokens_to_ids("<|end-of-text|>")
    assert token in judge.model._end_of_turn()
    (outcome,) = judge.score([{"instruction": "Q?", "reference": "Yes.", "candidate": "Yes."}])
    assert isinstance(outcome, Judgement)


def test_contents_that_such_a_template_changes_are_still_refused() -> None:
    twice = PARTS.replace("{{ part.text }}", "{{ part.text }}{{ part.text }}")
    changed = PARTS.replace("{{ part.text }}", "{{ part.text | upper }}")
    for source in (twice, changed):
        with pytest.raises(ModelError, match="chat template"):
            PromptEncoder(tokenizer_with("byte-level BPE", source))


UNTOLD = (
    CHAT_TEMPLATES["ChatML"]
    .replace("{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}", "")
    .replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}")
)


def judge_of(folder: Path, source: str, **settings: Any) -> Judge:
    folder.mkdir()
    save_random_model(folder, Model.find().path / "tokenizer.json", chat=source)
    return Judge(folder, max_rationale_tokens=5, **settings)


def test_a_model_that_was_trained_to_think_without_a_switch_is_named_and_let(
    tmp_path: Path, cli: Cli, rows: Path
) -> None:
    judge = judge_of(tmp_path / "untold", UNTOLD)
    assert judge.thinking_notice is not None
    assert "<think>" in judge.thinking_notice
    assert "`thinking_budget`" in judge.thinking_notice
    end = cli("score", rows, "--model", judge.model.path, "--out", tmp_path / "run", "--engine", "dry-run")
    assert end.err.count("--thinking-budget lets it think") == 1
    thinking = Judge(judge.model.path, max_rationale_tokens=5, thinking_budget=8, keep_thoughts=True)
    assert thinking.thinking_notice is None
    (outcome,) = thinking.score([{"instruction": "Q?", "reference": "Yes.", "candidate": "Yes."}])
    assert isinstance(outcome, Judgement)
    assert outcome.thoughts


@pytest.mark.parametrize(
    "source",
    [
        CHAT_TEMPLATES["ChatML"],  # it has a switch
        UNTOLD + "{% if add_generation_prompt %}<think>{% endif %}",  # it opens a thought
        UNTOLD.replace(".split('</think>')[-1]", ""),  # it names none
        UNTOLD.replace("m.content.split('</think>')[-1]", "m['reasoning_content'] or m.content"),
    ],
    ids=["switch", "opened", "none", "a variable"],
)  # fmt: skip
def test_no_other_model_is_called_so(tmp_path: Path, source: str) -> None:
    judge = judge_of(tmp_path / "model", source)
    assert judge.model.untold_thoughts is None
    assert "trained" not in (judge.thinking_notice or "")


def test_the_vocabulary_does_not_say_that_a_model_thinks(model: Path) -> None:
    judge = Judge(model)
    assert "<think>" in judge.model.tokenizer.get_vocab()
    assert judge.thinking_notice is None


def test_a_source_names_thoughts_by_their_marks_and_not_by_its_variables() -> None:
    assert names_thoughts("{{ m.content.split('</think>')[-1] }}")
    assert names_thoughts("{{ '[REASON]' + m.reasoning + '[/REASON]' }}")
    assert not names_thoughts("{{ message['reasoning_content'] }}{{ ['think'] }}")
    assert not names_thoughts("[REASONING_EFFORT]{{ effort }}[/REASONING_EFFORT]")
    assert not names_thoughts("{% if thinking %}{% endif %}")


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.models)
def test_each_known_format_has_a_source_and_is_recognized(known: Any) -> None:
    assert known.source
    assert known.models
    assert (found := open_thought(f"assistant\n{known.opens}")) is not None
    assert found is known
    assert open_thought(f"{known.opens}Hm.{known.ends}{known.then}") is None
    assert split_thought(f"{known.opens}Hm.{known.ends}{known.then}{{}}") == ("Hm.", "{}")
    by_marks = marks_of([known.ends], "")
    assert (by_marks is None) == known.is_channel, "the end of a channel is no mark of a thought"


KIMI = (
    "{% macro tag(kind, name) %}<|{{ kind }}|>{{ name }}<|sep|>{% endmacro %}"
    "{% for m in messages %}{{ tag('open', 'message role=\"' ~ m.role ~ '\"') }}"
    "{% if m.role == 'assistant' %}"
    "{% if thinking %}{{ tag('open', 'think') }}{{ tag('close', 'think') }}{% endif %}"
    "{{ tag('open', 'response') }}{{ m.content }}{{ tag('close', 'response') }}"
    "{% else %}{{ m.content }}{% endif %}{{ tag('close', 'message') }}<|end_of_msg|>{% endfor %}"
    "{% if add_generation_prompt %}{{ tag('open', 'message role=\"assistant\"') }}"
    "{{ tag('open', 'think' if thinking else 'response') }}{% endif %}"
)
MUSE = (
    "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %} to=user{% endif %}<|message|>"
    "{{ m.content }}{% if m.recipient %}<|eom|>{% else %}<|eot|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
SEED = (
    "{% if thinking_budget is defined and thinking_budget == 0 %}<seed:bos>system\nAnswer at once.<seed:eos>"
    "{% endif %}{% for m in messages %}<seed:bos>{{ m.role }}\n{{ m.content }}<seed:eos>{% endfor %}"
    "{% if add_generation_prompt %}<seed:bos>assistant\n"
    "{% if thinking_budget is defined and thinking_budget == 0 %}<seed:think>\n"
    "<seed:cot_budget_reflect>The budget is 0.</seed:cot_budget_reflect>\n</seed:think>{% endif %}{% endif %}"
)
STYLES = {
    "Kimi K3": (KIMI, ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"]),
    "Muse Glimmer": (MUSE, ["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"]),
    "Seed-OSS": (SEED, ["<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>"]),
}
ENDINGS = {
    "Kimi K3": ("<|open|>response<|sep|>", "<|open|>think<|sep|>"),
    "Muse Glimmer": ("<|start|>assistant to=user<|message|>", "<|start|>assistant to=self<|message|>"),
    "Seed-OSS": ("</seed:cot_budget_reflect>\n</seed:think>", "<seed:bos>assistant\n"),
}
BETWEEN = {
    "Kimi K3": "<|close|>think<|sep|><|open|>response<|sep|>",
    "Muse Glimmer": "<|eom|><|start|>assistant to=user<|message|>",
    "Seed-OSS": "</seed:think>",
}


@pytest.fixture(scope="module", params=STYLES)
def styled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return the name of a style of thoughts, and a small model with its tokens and a template in its style."""
    name = request.param
    source, tokens = STYLES[name]
    folder = tmp_path_factory.mktemp("styled")
    return name, save_random_model(folder, Model.find().path / "tokenizer.json", chat=source, tokens=tokens)


def test_a_prompt_in_each_style_ends_as_thoughts_are_on_or_off(styled: tuple[str, Path]) -> None:
    name, folder = styled
    for thinking, ending in zip((False, True), ENDINGS[name], strict=True):
        budget = 5 if thinking else None
        judge = Judge(folder, max_rationale_tokens=5, thinking_budget=budget)
        tokenizer = judge.model.tokenizer
        encoder = judge.model.thinking_prompts if thinking else judge.model.prompts
        text = tokenizer.decode(encoder.encode("The text."))
        assert text.endswith(ending)
        switches: dict[str, Any] = {"thinking": thinking} | ({} if thinking else {"thinking_budget": 0})
        own = tokenizer.apply_chat_template(
            [{"role": "user", "content": "The text."}], tokenize=False, add_generation_prompt=True, **switches
        )
        assert text.startswith(own)
        assert judge.thinking_notice is None


def test_a_thought_in_each_style_ends_in_its_words_and_the_answer_is_whole(styled: tuple[str, Path]) -> None:
    name, folder = styled
    rows = [{"instruction": f"Q{n}?", "reference": "Yes.", "candidate": "word " * n} for n in range(1, 4)]
    with Judge(folder, max_rationale_tokens=5, thinking_budget=6, keep_thoughts=True) as judge:
        outcomes = list(judge.score(rows))
        assert all(isinstance(each, Judgement) for each in outcomes), outcomes
        assert all("think" not in (each.thoughts or "") for each in outcomes if isinstance(each, Judgement))
        thought = judge.model.thought_tokens
        ends, then = thought.ends, thought.then
        assert isinstance(ends, int)
        assert judge.model.tokenizer.decode([ends, *then]).replace(" ", "") == BETWEEN[name].replace(" ", "")
        assert ends not in judge.model.end_tokens


def test_the_shipped_rubrics_do_not_depend_on_a_given_template(bare_model: Path) -> None:
    judge = Judge(bare_model, rubric=Rubric.load("no-reference"), chat_template="none")
    assert judge.template_notice == NO_TEMPLATE_NOTICE
    assert Judge(rubric="no-reference").template_notice is None
