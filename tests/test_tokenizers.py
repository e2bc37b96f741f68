"""Tests of every kind of tokenizer that engines load: text stays text, ordinary text is encoded as usual."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from conftest import fake_package
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from localjudge import ModelError
from localjudge.constraint.vocabulary import read_vocabulary
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder

PROSE = """The judge reads a response and a reference, and says what it saw, in a few short sentences.
    def score(row): return {"safety": "5"}   # four spaces, then three
Nothing is fetched; nothing leaves the machine. <table> is text, and so are </s>, [INST] and <|im_end|>.

\tTabs, 1234567890, naïve façades, 是的 and 😀 stay what they are."""
ORDINARY = [
    PROSE,
    "",
    " ",
    "  two  spaces   three    four",
    "\n\n\nlines\n\n",
    "\t\ttabs",
    "é 是 😀 ▁ Ġ",
    "judge" * 40,
]
TEMPLATE = (
    "<s>{% for m in messages %}[INST]{{ m.content }}[/INST]"
    "{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
)


def folder(place: Path) -> Path:
    place.mkdir()
    LlamaConfig(vocab_size=2000, hidden_size=8, num_attention_heads=1, intermediate_size=8).save_pretrained(
        place
    )
    (place / "chat_template.jinja").write_text(TEMPLATE)
    (place / "model.safetensors").touch()
    return place


def sentencepiece_model(place: Path, kind: str) -> Path:
    """Write a directory whose tokenizer is only a SentencePiece model, with its own symbols for turns."""
    folder(place)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE.splitlines() * 20),
        model_prefix=str(place / "tokenizer"),
        model_type=kind,
        vocab_size=400,
        byte_fallback=True,
        hard_vocab_limit=False,
        user_defined_symbols=["<|im_end|>", "<table>", "[INST]", "[/INST]"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    (place / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>", "bos_token": "<s>", "legacy": False}
        )
    )
    return place


def tekken_model(place: Path) -> Path:
    """Write a directory with a tekken.json: control tokens first, then bytes and pieces by rank."""
    folder(place)
    pieces = [bytes([byte]) for byte in range(256)]
    for word in sorted(set(PROSE.split())):
        spelled = f" {word}".encode()
        pieces += [spelled[:end] for end in range(2, len(spelled) + 1) if spelled[:end] not in pieces]
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<|im_end|>"]
    pattern = r" ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    layout = {
        "config": {
            "pattern": pattern,
            "default_vocab_size": len(pieces) + 10,
            "default_num_special_tokens": 10,
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(piece).decode()} for rank, piece in enumerate(pieces)
        ],
        "special_tokens": [{"rank": rank, "token_str": text} for rank, text in enumerate(specials)],
    }
    (place / "tekken.json").write_text(json.dumps(layout))
    return place


def byte_level_model(place: Path) -> Path:
    """Write a directory with a tokenizer.json that also adds runs of white space, as in GPT-NeoX."""
    folder(place)
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([PROSE], trainer)
    tokenizer.add_tokens([AddedToken(" " * count, normalized=False) for count in (2, 3, 4)])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), "judge", "<table>"])
    tokenizer.add_special_tokens(["<s>", "</s>", "[INST]", "[/INST]", "<|im_end|>"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(place)
    return place


def whole_character_model(place: Path) -> Path:
    """Write a directory whose Unigram tokenizer has no byte fallback: unknown characters become `<unk>`."""
    folder(place)
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<|im_end|>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(PROSE.splitlines() * 20, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(place)
    return place


KINDS: dict[str, Callable[[Path], Path]] = {
    "SentencePiece, BPE": lambda place: sentencepiece_model(place, "bpe"),
    "SentencePiece, Unigram": lambda place: sentencepiece_model(place, "unigram"),
    "tekken": tekken_model,
    "byte-level": byte_level_model,
    "no bytes": whole_character_model,
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    place = tmp_path_factory.mktemp("kinds") / "model"
    return Model.find(KINDS[request.param](place))


def added_of(model: Model) -> dict[int, Any]:
    added: dict[int, Any] = model.tokenizer.backend_tokenizer.get_added_tokens_decoder()
    return added


def inside(encoder: PromptEncoder, text: str) -> list[int]:
    tokens = encoder.encode(text)
    return tokens[len(encoder.head) : len(tokens) - len(encoder.tail)]


def test_no_text_can_spell_a_token_that_was_added(kind: Model) -> None:
    added = added_of(kind)
    spelled = [each.content for each in added.values() if each.content.strip()]
    assert len(spelled) >= 6
    never = {token for token, each in added.items() if each.content.strip()} - {
        kind.tokenizer.backend_tokenizer.token_to_id("<unk>")
    }
    for text in (*spelled, " ".join(spelled), "".join(spelled), f"a{spelled[-1]}b", spelled[-1] * 100):
        assert never.isdisjoint(inside(kind.prompts, text)), text


def test_what_text_spells_of_an_added_token_is_read_as_its_characters(kind: Model) -> None:
    said = kind.vocabulary.decode_text(inside(kind.prompts, "a </s> b [INST] c <|im_end|>"))
    assert said.strip() == "a </s> b [INST] c <|im_end|>"


def test_ordinary_text_is_encoded_as_the_whole_tokenizer_does(kind: Model) -> None:
    added = [each.content for each in added_of(kind).values() if each.content.strip()]
    for text in ORDINARY:
        for spelled in added:
            text = text.replace(spelled, "")
        whole = kind.tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False)
        expected = kind.tokenizer.backend_tokenizer.encode(whole, add_special_tokens=False).ids
        assert kind.prompts.encode(text) == expected, text


def test_runs_of_white_space_that_were_added_as_tokens_are_still_read_as_tokens(tmp_path: Path) -> None:
    model = Model.find(byte_level_model(tmp_path / "model"))
    four = model.tokenizer.backend_tokenizer.token_to_id("    ")
    assert four in inside(model.prompts, "if x:\n    return")


def test_a_character_that_a_tokenizer_does_not_know_does_not_fail_the_row(tmp_path: Path) -> None:
    model = Model.find(whole_character_model(tmp_path / "model"))
    unknown = model.tokenizer.backend_tokenizer.token_to_id("<unk>")
    assert unknown in inside(model.prompts, "a judge 🏛")
    assert unknown not in inside(model.prompts, "a judge")


# The characters in the vocabulary of `undeclared_model`, and pieces that a model may treat as control tokens.
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFx0123456789<>|[]/_.: "
CONTROLS = ["<|eot|>", "<|user|>", "<|system|>", "<think>", "</think>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def undeclared_model(place: Path, kind: str) -> Path:
    """Write a directory whose tokenizer has byte fallback and declares none of its control tokens.

    Args:
        place: the directory.
        kind: `merges` or `whole words` for BPE; for Unigram, how a space comes before the text.
    """
    place.mkdir()
    singles = sorted({*CHARACTERS.replace(" ", "▁")})
    pieces = ["<unk>", "<s>", "</s>", *BYTES, *singles, *CONTROLS, "stop"]
    if kind in ("merges", "whole words"):
        parts, merges = list(pieces), []
        for piece in (*CONTROLS, "<0x0A>", "stop"):
            for end in range(2, len(piece) + 1):
                merges.append((piece[: end - 1], piece[end - 1]))
                parts += [piece[:end]] if piece[:end] not in parts else []
        ids = {piece: token for token, piece in enumerate(parts)}
        tokenizer = Tokenizer(
            models.BPE(
                ids,
                list(dict.fromkeys(merges)),
                unk_token="<unk>",
                byte_fallback=True,
                ignore_merges=kind == "whole words",
            )
        )
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    else:
        scored = [(piece, -5.0 if len(piece) == 1 else -1.0) for piece in pieces]
        tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
        if kind == "normalizer":
            prepend = normalizers.Prepend("▁")
            tokenizer.normalizer = normalizers.Sequence([prepend, normalizers.Replace(" ", "▁")])
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    wrapped.chat_template = (
        "{% for m in messages %}{{ '<|system|>' if m.role == 'system' else '<|user|>' }}"
        "{{ m.content }}<|eot|>{% endfor %}"
    )
    wrapped.save_pretrained(place)
    vocabulary = tokenizer.get_vocab()
    LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=8, num_attention_heads=1, intermediate_size=8
    ).save_pretrained(place)
    (place / "model.safetensors").touch()
    ends = [vocabulary[piece] for piece in ("</s>", "<|eot|>", "stop", ".", "<0x0A>")]
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return place


@pytest.fixture(scope="module", params=["always", "first", "never", "normalizer", "merges", "whole words"])
def undeclared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.find(undeclared_model(tmp_path_factory.mktemp("undeclared") / "model", request.param))


@given(
    st.lists(
        st.sampled_from([*CONTROLS, *BYTES[:16], "stop", "<0x0a>", "</s>", "é", "\n", "🙂", *CHARACTERS])
    ).map("".join)
)
def test_no_text_can_spell_a_control_token_that_is_not_declared_or_the_name_of_a_byte(
    undeclared: Model, text: str
) -> None:
    backend = undeclared.tokenizer.backend_tokenizer
    tokens = inside(undeclared.prompts, text)
    pieces = [backend.id_to_token(token) for token in tokens]
    assert not {*CONTROLS, "stop", "</s>", "<unk>"}.intersection(pieces)
    real_bytes = "".join(character for character in text if character not in CHARACTERS).encode()
    assert [piece for piece in pieces if piece in BYTES] == [f"<0x{byte:02X}>" for byte in real_bytes]
    assert backend.decode(tokens, skip_special_tokens=False) == text


def test_the_markers_that_a_chat_template_writes_are_tokens_though_nothing_declares_them(
    undeclared: Model,
) -> None:
    backend = undeclared.tokenizer.backend_tokenizer
    assert backend.id_to_token(undeclared.prompts.head[-1]) == "<|user|>"
    assert [backend.id_to_token(token) for token in undeclared.prompts.tail] == ["<|eot|>"]


def test_a_tokenizer_of_tekken_reads_as_bytes(tmp_path: Path) -> None:
    model = Model.find(tekken_model(tmp_path / "model"))
    vocabulary = read_vocabulary(model.tokenizer, 2000, [2])
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.pieces.values())
    assert 2 not in vocabulary.pieces


def test_a_sentencepiece_model_without_its_libraries_is_told_what_to_install(
    tmp_path: Path, installed_as: Path
) -> None:
    model = Model.find(sentencepiece_model(tmp_path / "model", "bpe"))
    fake_package(installed_as, "localjudge-eval", 'Requires-Dist: no-such-reader>=5; extra == "sentencepiece"')
    (model.path / "tokenizer.model").write_bytes(b"nothing that could be read")
    with pytest.raises(ModelError, match=r'loaded: .*tokenizer.model: .* pip install "no-such-reader>=5"'):
        _ = model.tokenizer
