"""Tests of the transformers engine with real (small, random) models: every answer is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator
from small_tokenizers import TOKENIZER_NAMES, tokenizer_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from localjudge import Failure, Judge, Judgement, Rubric, UsageError
from localjudge.engines.protocol import Completion
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with random weights, large enough for confident predictions, and the bundled tokenizer."""
    return save_random_model(tmp_path_factory.mktemp("random-model"), Model.find().path / "tokenizer.json")


CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}<|end-of-text|>"
THINKING_CHAT = (
    CHAT + "{% if add_generation_prompt %}<think>{% if not enable_thinking %}</think>{% endif %}{% endif %}"
)


def save_random_model(
    folder: Path, tokenizer_file: Path, seed: int = 0, chat: str = CHAT, tokens: Sequence[str] = ()
) -> Path:
    """Save a small Llama of random weights with a chat template; `tokens` are further special tokens."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file))
    tokenizer.add_special_tokens({"eos_token": "<|end-of-text|>"})
    tokenizer.add_tokens(list(tokens), special_tokens=True)
    if "think" in chat and not tokens:
        tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = chat
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer) + 5,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def thinking_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a hybrid model with optional thinking."""
    folder = tmp_path_factory.mktemp("thinking-model")
    return save_random_model(folder, Model.find().path / "tokenizer.json", chat=THINKING_CHAT)


def rows(count: int) -> list[dict[str, str]]:
    """Return rows whose prompts have very different lengths."""
    return [
        {
            "id": str(n),
            "instruction": f"Question {n}?",
            "reference": "Yes.",
            "candidate": "word " * (n * 37 % 200),
        }
        for n in range(count)
    ]


def score(judge: Judge, count: int = 5) -> dict[str, Judgement]:
    judged = {}
    for outcome in judge.score(rows(count)):
        assert isinstance(outcome, Judgement), outcome
        judged[outcome.id] = outcome
    assert set(judged) == {str(n) for n in range(count)}
    return judged


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("max_rationale_tokens", [1, 2, 7, pytest.param(64, marks=pytest.mark.slow)])
def test_a_model_of_random_weights_always_answers(
    random_model: Path, temperature: float, max_rationale_tokens: int
) -> None:
    judge = Judge(random_model, temperature=temperature, max_rationale_tokens=max_rationale_tokens)
    for judgement in score(judge).values():
        assert judgement.output_tokens <= judge.decoding.limit
        assert set(judgement.scores.values()) <= {1, 2, 3, 4, 5}
        assert judgement.rationale


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_the_vocabulary_of_each_family_of_tokenizers_keeps_the_promise(tmp_path: Path, name: str) -> None:
    model = save_random_model(tmp_path / "model", tokenizer_file(name, tmp_path))
    judge = Judge(model, temperature=1.0, max_rationale_tokens=9)
    score(judge, count=3)


def test_an_answer_is_valid_by_a_validator_that_is_not_ours(random_model: Path) -> None:
    judge = Judge(random_model, temperature=1.0, max_rationale_tokens=20)
    validator = Draft202012Validator(judge.rubric.answer_layout.schema)
    prompts = [Prompt(n, judge.model.prompts.encode("word " * n), seed=n) for n in range(1, 6)]
    for completion in completions(judge, prompts):
        text = judge.rubric.answer_layout.opening + judge.model.vocabulary.decode(completion.tokens)
        validator.validate(json.loads(text))


def completions(judge: Judge, prompts: list[Prompt]) -> Iterator[Completion]:
    for finished in judge.engine.complete(prompts):
        yield from (each for each in finished if isinstance(each, Completion))


def test_probabilities_are_of_the_scale_and_expected_scores_are_their_mean(random_model: Path) -> None:
    for judgement in score(Judge(random_model, max_rationale_tokens=5)).values():
        assert judgement.probabilities is not None
        assert judgement.expected is not None
        for aspect, probabilities in judgement.probabilities.items():
            assert sum(probabilities) == pytest.approx(1, abs=1e-5)
            assert judgement.expected[aspect] == pytest.approx(np.dot(probabilities, range(1, 6)), abs=1e-3)
            assert judgement.scores[aspect] == 1 + int(np.argmax(probabilities)), "greedy takes the likeliest"


def test_a_seed_repeats_its_answers_and_another_does_not(random_model: Path) -> None:
    first = score(Judge(random_model, temperature=1.0, seed=1, max_rationale_tokens=9))
    again = score(Judge(random_model, temperature=1.0, seed=1, max_rationale_tokens=9))
    other = score(Judge(random_model, temperature=1.0, seed=2, max_rationale_tokens=9))
    assert first == again
    assert {i: j.rationale for i, j in first.items()} != {i: j.rationale for i, j in other.items()}


def test_what_a_row_draws_does_not_depend_on_its_neighbours(random_model: Path) -> None:
    together = score(Judge(random_model, temperature=1.0, max_rationale_tokens=9))
    alone = Judge(random_model, temperature=1.0, max_rationale_tokens=9, engine_args={"batch_size": "1"})
    assert {i: j.rationale for i, j in together.items()} == {i: j.rationale for i, j in score(alone).items()}


def test_a_nucleus_of_next_to_nothing_is_greedy(random_model: Path) -> None:
    greedy = score(Judge(random_model, max_rationale_tokens=9))
    narrow = score(Judge(random_model, temperature=1.0, top_p=1e-9, max_rationale_tokens=9))
    assert {i: j.rationale for i, j in greedy.items()} == {i: j.rationale for i, j in narrow.items()}


def test_batches_are_the_same_after_whole_batches_were_taken_away(random_model: Path) -> None:
    judge = Judge(random_model, max_rationale_tokens=5, engine_args={"batch_size": "2"})
    prompts = [Prompt(n, [7] * (20 if n % 2 else 900), seed=n) for n in range(8)]
    unbroken = [[c.tag for c in finished] for finished in judge.engine.complete(prompts)]
    rest = [prompt for prompt in prompts if prompt.tag not in unbroken[0]]
    assert [[c.tag for c in finished] for finished in judge.engine.complete(rest)] == unbroken[1:]


@pytest.mark.parametrize("highest", [5, 300], ids=["a token a score", "several tokens a score"])
def test_a_model_of_nans_fails_its_rows_instead_of_scoring_them(
    random_model: Path, tmp_path: Path, highest: int
) -> None:
    scale = {"scale": {"lowest": 1, "highest": highest}}
    document = Rubric.load().model_dump() | {"aspects": dict.fromkeys(Rubric.load().aspects, scale)}
    rubric = Rubric.model_validate(document)
    model = LlamaForCausalLM.from_pretrained(random_model)
    torch.nn.init.constant_(model.lm_head.weight, torch.nan)
    model.save_pretrained(tmp_path)
    for file in random_model.glob("*token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_bytes((random_model / "chat_template.jinja").read_bytes())
    outcomes = list(Judge(tmp_path, rubric=rubric, max_rationale_tokens=3).score(rows(2)))
    assert [outcome.status for outcome in outcomes] == ["failed", "failed"]
    assert all("not finite" in outcome.error for outcome in outcomes)  # type: ignore[union-attr]


def test_prompts_are_pulled_only_as_they_are_needed(random_model: Path) -> None:
    judge = Judge(random_model, max_rationale_tokens=1, engine_args={"batch_size": "2"})
    pulled = []

    def endless() -> Iterator[Prompt]:
        for n in range(1000):
            pulled.append(n)
            yield Prompt(n, [7] * 20, seed=n)

    next(iter(judge.engine.complete(endless())))
    assert pulled == [0, 1]


def test_a_hybrid_model_answers_at_once_unless_it_is_let_think(thinking_model: Path) -> None:
    judge = Judge(thinking_model, max_rationale_tokens=5)
    assert not judge.model.always_thinks
    assert judge.decoding.thinking_budget is None
    assert all(judgement.thoughts is None for judgement in score(judge).values())


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("budget", [0, 1, 20])
def test_thinking_ends_at_its_budget_and_the_answer_is_whole(
    thinking_model: Path, budget: int, temperature: float
) -> None:
    judge = Judge(
        thinking_model,
        max_rationale_tokens=5,
        thinking_budget=budget,
        keep_thoughts=True,
        temperature=temperature,
    )
    for judgement in score(judge).values():
        assert judgement.output_tokens <= budget + 1 + judge.decoding.limit
        assert judgement.thoughts is not None
        assert budget or not judgement.thoughts


@pytest.mark.slow
def test_thinking_that_ends_early_leaves_no_more_for_the_rationale(thinking_model: Path) -> None:
    judge = Judge(thinking_model, max_rationale_tokens=5, thinking_budget=200, temperature=5.0)
    thinking = judge.decoding.table
    thinking.next_state[thinking.thinking, 200:4000] = -1  # so that the end token is sampled sometimes
    prompts = [Prompt(n, judge.prompts.encode("word " * n), seed=n) for n in range(40)]
    lengths = []
    for completion in completions(judge, prompts):
        thoughts, answer = thinking.split(completion.tokens)
        lengths.append(len(thoughts))
        assert len(answer) <= judge.decoding.limit
    assert min(lengths) < 200, "some end early"


def test_a_model_that_always_thinks_gets_a_budget_without_being_asked(
    thinking_model: Path, tmp_path: Path
) -> None:
    for file in thinking_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    always = CHAT + "{% if add_generation_prompt %}<think>{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(always)
    judge = Judge(tmp_path, max_rationale_tokens=5)
    assert judge.model.always_thinks
    assert judge.decoding.thinking_budget == 2048


def test_a_budget_for_a_model_that_cannot_think_is_refused(random_model: Path) -> None:
    with pytest.raises(UsageError, match="has no token that ends its thinking"):
        Judge(random_model, thinking_budget=5)


def test_a_rationale_of_any_length_leaves_the_thinking_its_budget(thinking_model: Path) -> None:
    judge = Judge(thinking_model, thinking_budget=5, max_rationale_tokens=40_000)
    table = judge.decoding.table
    left = int(judge.decoding.allowances[table.entry])
    assert table.allowed(table.entry, left).sum() > 1, "it can think"
    assert table.allowed(table.entry, left - 5).sum() == 1, "it must answer"
    assert judge.decoding.max_tokens > 40_000


@pytest.fixture(scope="session")
def bfloat16_model(random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(random_model, tmp_path_factory.mktemp("bfloat16") / "model"))
    LlamaForCausalLM.from_pretrained(random_model, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("processor", "dtype"),
    [
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, "float32"),
        ({"architecture": "x86_64", "avx512_bf16": True}, "bfloat16"),
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": True}, "bfloat16"),
        ({"architecture": "aarch64", "bf16": False}, "float32"),
        ({"architecture": "aarch64", "bf16": True}, "bfloat16"),
        ({"architecture": "riscv64"}, "bfloat16"),
    ],
)
def test_bfloat16_becomes_float32_on_a_processor_without_instructions_for_it(
    bfloat16_model: Path, monkeypatch: pytest.MonkeyPatch, processor: dict[str, object], dtype: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    judge = Judge(bfloat16_model, max_rationale_tokens=3, engine_args={"device": "cpu"})
    assert judge.settings["dtype"] == dtype
    assert ("no bfloat16 instructions" in judge.engine.info.headline) == (dtype == "float32")
    score(judge, count=1)
    for asked in ("bfloat16", "float32"):
        told = Judge(bfloat16_model, engine_args={"device": "cpu", "dtype": asked})
        assert told.settings["dtype"] == asked
        assert "no bfloat16 instructions" not in told.engine.info.headline


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"batch_size": "0"}, "batch_size=0"),
        ({"batch_size": "many"}, "batch_size=many"),
        ({"dtype": "int3"}, "dtype=int3"),
        ({"gpu_memory": "1"}, "gpu_memory"),
    ],
)
def test_an_unknown_or_impossible_option_is_refused(
    random_model: Path, option: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        _ = Judge(random_model, engine_args=option).engine


class Breaking:
    """An engine that gives what a function makes of the tokens that another engine gave."""

    def __init__(self, judge: Judge, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        self._engine = judge.engine
        self._change = change
        self.info = self._engine.info
        self.statistics, self.close = self._engine.statistics, self._engine.close
        self.reset = self._engine.reset

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for finished in self._engine.complete(prompts):
            yield [Completion(each.tag, self._change(each.tokens), each.probabilities) for each in finished]


@pytest.mark.parametrize("thinking_budget", [None, 4])
@pytest.mark.parametrize("kept", [0, 1, 3, 10])
def test_an_answer_that_breaks_off_against_the_table_fails_its_row_alone(
    thinking_model: Path, thinking_budget: int | None, kept: int
) -> None:
    judge = Judge(thinking_model, engine="dry-run", thinking_budget=thinking_budget)
    judge.engine = Breaking(judge, lambda tokens: tokens[:kept])
    (outcome,) = judge.score(rows(1))
    assert isinstance(outcome, Failure)
    assert "the engine's answer is not whole: " in outcome.error
