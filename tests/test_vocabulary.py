"""Tests of the vocabulary: the bytes of each token, as the tokenizer's own decoder defines them."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from localjudge.constraint.vocabulary import read_vocabulary
from localjudge.errors import ModelError


def tokenizer_of(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def byte_level() -> Tokenizer:
    backend = Tokenizer(models.BPE({"a": 0, "Ġ": 1, "Ġa": 2, "è": 3, "</s>": 4}, [("Ġ", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>", "</s>"])
    backend.add_tokens([AddedToken("<think>")])
    return backend


def sentence_pieces() -> Tokenizer:
    pieces = ["<0x61>", "a", "▁a", "<0xE8>", "▁", "<unk>"]
    backend = Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)}, [("▁", "a")], unk_token="<unk>", byte_fallback=True
        )
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<unk>"])
    return backend


def test_byte_level_tokens_are_read_as_bytes_even_parts_of_characters() -> None:
    vocabulary = read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[5])
    assert vocabulary.pieces == {0: b"a", 1: b" ", 2: b" a", 3: b"\xe8"}


def test_sentence_pieces_are_read_with_their_spaces_and_bytes() -> None:
    vocabulary = read_vocabulary(tokenizer_of(sentence_pieces()), size=16, ends=[9])
    assert vocabulary.pieces == {1: b"a", 2: b" a", 3: b"\xe8", 4: b" "}, "the byte of 'a' repeats 'a'"


@pytest.mark.parametrize("pattern", ["▁", Regex("▁"), Regex("^▁|▁")])
def test_a_decoder_may_name_the_space_by_a_regular_expression(pattern: str | Regex) -> None:
    backend = sentence_pieces()
    backend.decoder = decoders.Sequence(
        [decoders.Replace(pattern, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    vocabulary = read_vocabulary(tokenizer_of(backend), size=16, ends=[9])
    assert vocabulary.pieces == {1: b"a", 2: b" a", 3: b"\xe8", 4: b" "}


def test_a_decoder_may_replace_more_than_spaces() -> None:
    backend = sentence_pieces()
    steps = [decoders.Replace("▁", " "), decoders.Replace("a", "é"), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps)
    pieces = read_vocabulary(tokenizer_of(backend), size=16, ends=[9]).pieces
    assert pieces[2] == " é".encode() == backend.decode([2]).encode()


def test_added_tokens_are_no_text_whether_special_or_not() -> None:
    vocabulary = read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[5])
    assert not {4, 5, 6} & set(vocabulary.pieces)


def test_end_tokens_beyond_the_logits_are_left_out() -> None:
    assert read_vocabulary(tokenizer_of(byte_level()), size=5, ends=[4, 7]).ends == {4}


def test_text_that_becomes_tokens_beyond_the_logits_is_refused() -> None:
    assert read_vocabulary(tokenizer_of(byte_level()), size=4, ends=[3]).size == 4, "added tokens are no text"
    with pytest.raises(ModelError, match=r"largest id is 3, and config\.json says vocab_size 3"):
        read_vocabulary(tokenizer_of(byte_level()), size=3, ends=[2])


def test_an_end_token_below_nought_is_left_out() -> None:
    assert read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[-1, 5]).ends == {5}


def test_decoding_joins_bytes_and_leaves_end_tokens_out() -> None:
    assert read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[5]).decode([0, 2, 1, 5]) == "a a "


def test_a_tokenizer_that_does_not_say_its_bytes_is_refused() -> None:
    backend = Tokenizer(models.WordPiece({"a": 0, "##b": 1}))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        read_vocabulary(tokenizer_of(backend), size=2, ends=[0])


def test_the_digest_follows_the_content() -> None:
    one = read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[5])
    assert one.digest == read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[5]).digest
    assert one.digest != read_vocabulary(tokenizer_of(byte_level()), size=17, ends=[5]).digest
    assert one.digest != read_vocabulary(tokenizer_of(byte_level()), size=16, ends=[4]).digest
