"""Tests that a model's `tokenizer.json` encodes its prompts, whatever the files beside it say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, random_model, write_rows
from small_tokenizers import REAL, SMALL, TEXT, tokenizer_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers import decoders as token_decoders
from transformers import AutoTokenizer, LlamaConfig, MistralConfig, PretrainedConfig

from localjudge.models.model import Model
from localjudge.records import Row
from localjudge.rows.inputs import read_rows
from localjudge.runs.reader import read_notices

# Classes whose rules transformers would apply instead of the file's; it cannot build each from each vocabulary.
CLASSES = (
    "LlamaTokenizerFast", "LlamaTokenizer", "CodeLlamaTokenizerFast", "GemmaTokenizerFast", "GPT2TokenizerFast",
    "GPTNeoXTokenizerFast", "Qwen2TokenizerFast", "CohereTokenizerFast", "T5TokenizerFast",
)  # fmt: skip
SPACES = "  two  spaces,\n\n    four; 1234567 naïve café 是的 🙂 it's\t\tdone"


def directory(
    place: Path, file: Path, template: str, config: PretrainedConfig | None = None, **settings: Any
) -> Path:
    """Write a model directory without weights around a tokenizer.json; settings are those beside it."""
    place.mkdir()
    shutil.copy(file, place / "tokenizer.json")
    own = Tokenizer.from_file(str(file))
    small = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8}
    config = config or LlamaConfig(vocab_size=own.get_vocab_size() + 64, **small)
    config.eos_token_id = max(own.get_added_tokens_decoder())
    config.save_pretrained(place)
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    (place / "chat_template.jinja").write_text(template)
    (place / "model.safetensors").touch()
    return place


def around(tokenizer: Tokenizer) -> tuple[str, str, str]:
    """Return a chat template between two added tokens of a tokenizer, and these tokens."""
    added = [each for _, each in sorted(tokenizer.get_added_tokens_decoder().items()) if each.content.strip()]
    opens, closes = (each.content for each in (added[0], added[-1]))
    return f"{opens}{{{{ messages[0].content }}}}{closes}", opens, closes


def texts(tokenizer: Tokenizer) -> list[str]:
    """Return texts that spell no added token of a tokenizer."""
    examples = (row.candidate for row in read_rows(["examples"]) if isinstance(row, Row))
    added = [each.content for each in tokenizer.get_added_tokens_decoder().values() if each.content.strip()]
    return [text for text in (TEXT, SPACES, *examples) if not any(each in text for each in added)]


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in REAL)])
def test_the_class_that_tokenizer_config_names_changes_no_token(name: str, tmp_path: Path) -> None:
    assert_file_encodes(tokenizer_file(name, tmp_path), tmp_path)


@pytest.mark.real_model
def test_the_class_that_tokenizer_config_names_changes_no_token_of_a_real_model(
    real_model: Path, tmp_path: Path
) -> None:
    assert_file_encodes(real_model / "tokenizer.json", tmp_path)


def rules(tokenizer: Tokenizer) -> list[Any]:
    """Return what decides the ids of a text, and the bytes of tokens."""
    layout = json.loads(tokenizer.to_str())
    added = {token: each.content for token, each in tokenizer.get_added_tokens_decoder().items()}
    return [added, *(layout[name] for name in ("normalizer", "pre_tokenizer", "model", "decoder"))]


def assert_file_encodes(file: Path, scratch: Path) -> None:
    """Assert that each class leaves the file's rules, its ids of texts and markers, and the bytes of tokens."""
    own = Tokenizer.from_file(str(file))
    template, opens, closes = around(own)
    for kind in CLASSES:
        named = {"tokenizer_class": kind, "eos_token": closes}
        model = Model.find(directory(scratch / kind, file, template, **named))
        assert rules(model.tokenizer.backend_tokenizer) == rules(own), kind
        assert model.tokenizer.special_tokens_map == {"eos_token": closes}
    ordinary = texts(own)
    expected = own.encode_batch([f"{opens}{text}{closes}" for text in ordinary], add_special_tokens=False)
    assert [model.prompts.encode(text) for text in ordinary] == [each.ids for each in expected]
    first, last = own.token_to_id(opens), own.token_to_id(closes)
    spelled = model.prompts.encode(f"a{opens}b{closes}c")
    assert [token for token in spelled if token in (first, last)] == [spelled[0], spelled[-1]] == [first, last]
    said = model.vocabulary.decode_text(own.encode(SPACES, add_special_tokens=False).ids)
    assert said.lstrip(" ") == SPACES.lstrip(" ")


SAVED_FOR_TRAINING: dict[str, Callable[[dict[str, Any]], None]] = {
    "truncation": lambda layout: layout.update(
        truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    ),
    "fixed padding": lambda layout: layout.update(
        padding={
            "strategy": {"Fixed": 512},
            "direction": "Left",
            "pad_to_multiple_of": 8,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        }
    ),
    "random merges": lambda layout: layout["model"].update(dropout=0.9),
    "no pre-tokenizer in its sequence": lambda layout: layout.update(
        pre_tokenizer={"type": "Sequence", "pretokenizers": [layout["pre_tokenizer"]]},
        normalizer={"type": "Sequence", "normalizers": []},
    ),
}


@pytest.mark.parametrize("what", SAVED_FOR_TRAINING)
def test_what_a_tokenizer_was_saved_with_for_training_is_switched_off(what: str, tmp_path: Path) -> None:
    file = tokenizer_file("byte-level BPE", tmp_path)
    own = Tokenizer.from_file(str(file))
    template, *_ = around(own)
    plain = Model.find(directory(tmp_path / "plain", file, template))
    layout = json.loads(file.read_text())
    SAVED_FOR_TRAINING[what](layout)
    file.write_text(json.dumps(layout))
    saved = Model.find(directory(tmp_path / "saved", file, template))
    for text in texts(own):
        assert saved.prompts.encode(text) == plain.prompts.encode(text)
    assert saved.vocabulary.pieces == plain.vocabulary.pieces


def test_a_pre_tokenizer_of_no_parts_splits_nothing(tmp_path: Path) -> None:
    own = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "<s>": 3}, [("a", "b")]))
    own.pre_tokenizer = pre_tokenizers.Sequence([])
    own.decoder = token_decoders.Replace(Regex("▁"), " ")
    own.add_special_tokens(["<s>"])
    own.save(str(tmp_path / "tokenizer.json"))
    model = Model.find(
        directory(tmp_path / "model", tmp_path / "tokenizer.json", "<s>{{ messages[0].content }}<s>")
    )
    assert model.prompts.encode("abb") == [3, 2, 1, 3]


def test_special_tokens_are_not_split_though_tokenizer_config_says_so(tmp_path: Path) -> None:
    file = tokenizer_file("byte-level BPE", tmp_path)
    own = Tokenizer.from_file(str(file))
    template, opens, _ = around(own)
    model = Model.find(directory(tmp_path / "model", file, template, split_special_tokens=True))
    assert model.prompts.head == [own.token_to_id(opens)]


def test_special_tokens_that_no_file_declares_are_those_of_the_class_if_the_file_has_them(
    tmp_path: Path,
) -> None:
    file = tokenizer_file("SentencePiece BPE", tmp_path)
    template = "{{ bos_token }}<|user|>{{ messages[0].content }}{{ cls_token }}<|end|>"
    model = Model.find(directory(tmp_path / "model", file, template, tokenizer_class="LlamaTokenizerFast"))
    own = Tokenizer.from_file(str(file))
    assert model.prompts.head == [own.token_to_id("<s>"), own.token_to_id("<|user|>")]
    assert model.tokenizer.eos_token_id == own.token_to_id("</s>")
    assert rules(model.tokenizer.backend_tokenizer) == rules(own)
    byte_level = tokenizer_file("byte-level BPE", tmp_path)
    template, *_ = around(Tokenizer.from_file(str(byte_level)))
    other = directory(tmp_path / "other", byte_level, template, tokenizer_class="LlamaTokenizerFast")
    assert Model.find(other).tokenizer.special_tokens_map == {}


def test_a_token_that_only_tokenizer_config_declares_is_added(tmp_path: Path) -> None:
    file = tokenizer_file("byte-level BPE", tmp_path)
    size = Tokenizer.from_file(str(file)).get_vocab_size()
    declared = {str(size): {"content": "<|late|>", "special": True}}
    settings = {
        "added_tokens_decoder": declared,
        "eos_token": "<|im_end|>",
        "tokenizer_class": "LlamaTokenizer",
    }
    model = Model.find(directory(tmp_path / "model", file, "<|late|>{{ messages[0].content }}", **settings))
    assert model.prompts.head == [size]
    assert size not in model.prompts.encode("<|late|>")[1:]


def reads_the_file(folder: Path) -> bool:
    """Return whether transformers itself encodes as `tokenizer.json` says; 5.24 does more often."""
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids: list[int] = AutoTokenizer.from_pretrained(folder).encode("a b", add_special_tokens=False)
    return ids == file.encode("a b", add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("LlamaTokenizerFast", " prompts differently, as LlamaTokenizer, and so may other programs"),
        ("T5TokenizerFast", "cannot build its own: "),
        ("PreTrainedTokenizerFast", None),
    ],
)
def test_a_model_that_other_programs_encode_differently_is_said_so(
    cli: Cli, tmp_path: Path, short_rubric: Path, kind: str, said: str | None
) -> None:
    folder = random_model(tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": kind}))
    run = tmp_path / "run"
    how = ("--model", folder, "--rubric", short_rubric, "--max-rationale-tokens", 3)
    end = cli("score", write_rows(tmp_path / "rows.jsonl", 3), "--out", run, *how)
    assert end.code == 0
    if kind == "LlamaTokenizerFast" and reads_the_file(folder):
        said = None
    notices = [notice for notice in read_notices(run) if notice.startswith("tokenizer: ")]
    verified = [line for line in cli("models", "verify", folder).out.splitlines() if "transformers 5" in line]
    assert len(notices) == len(verified) == (said is not None)
    assert said is None or (said in notices[0] and said in verified[0] and said in end.err)


def test_only_rows_that_other_programs_encode_differently_are_counted(tmp_path: Path) -> None:
    file = tokenizer_file("byte-level BPE", tmp_path)
    template, _, closes = around(Tokenizer.from_file(str(file)))
    settings = {"tokenizer_class": "LlamaTokenizer", "eos_token": closes}
    model = Model.find(directory(tmp_path / "model", file, template, **settings))
    assert model.tokenization_warning(["nospace", "e", "a"]) is None
    said = None if reads_the_file(model.path) else "2 of 3 prompts"
    assert str(said) in str(model.tokenization_warning(["a b", "e", " a"]))


@pytest.mark.slow
def test_a_rule_that_its_makers_corrected_is_said_without_a_log_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")
    file = tmp_path / "tokenizer.json"
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    pieces = [*sorted(alphabet), "pH", *(f"filler{number}" for number in range(100_000))]
    own = Tokenizer(models.BPE({piece: rank for rank, piece in enumerate(pieces)}, [("p", "H")]))
    words = pre_tokenizers.Split(Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s+"), "isolated")
    own.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    own.decoder = token_decoders.ByteLevel()
    own.add_special_tokens(["<s>", "</s>"])
    own.save(str(file))
    config = MistralConfig(vocab_size=100_400, hidden_size=8, num_attention_heads=1, num_key_value_heads=1)
    template, settings = "<s>{{ messages[0].content }}</s>", {"eos_token": "</s>"}

    def made(name: str, **more: Any) -> Model:
        place = directory(tmp_path / name, file, template, config, **settings, **more)
        written = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(written | {"transformers_version": "4.57.1"}))
        return Model.find(place)

    model, rows = made("as it is"), ["the pH of water", "water"]
    said = model.tokenization_warning(rows)
    assert said == (
        "tokenizer.json splits text by a rule that its makers have corrected, which changes 1 of 2 prompts; "
        'for the corrected rule, set "fix_mistral_regex": true in tokenizer_config.json'
    )
    corrected = made("corrected", fix_mistral_regex=True)
    assert corrected.tokenization_warning(rows) is None
    assert [
        one.encode(rows[0]) == two.encode(rows[0]) for one, two in [(model.prompts, corrected.prompts)]
    ] == [False]
    assert model.prompts.encode(rows[1]) == corrected.prompts.encode(rows[1])
