"""The bytes that each token of a model represents: all that constrained decoding needs from a tokenizer.

Two families of tokenizers cover the open-weights models. Byte-level BPE (Qwen, Llama 3, Falcon, Phi-4 …)
writes every byte as one printable character. SentencePiece-like tokenizers (Llama 2, Phi-3, Gemma …) write a
space as `▁`, and a byte without a token of its own as `<0xE4>`. In both, a token may be part of a character.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localjudge.errors import ModelError

_LARGEST = 2**24
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The text tokens of a model.

    Attributes:
        pieces: the bytes of each token id that represents text. Absent ids (added tokens, special or not, and
            the rows that pad the embedding) can never be part of an answer.
        ends: the ids of the tokens that end an answer.
        size: the width of the model's logits; greater than the largest id.
    """

    pieces: Mapping[int, bytes]
    ends: frozenset[int]
    size: int

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of a complete answer, without the tokens that end it."""
        return b"".join(self.pieces[token] for token in tokens if token not in self.ends).decode()

    def decode_text(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; skip tokens without text and mark incomplete characters."""
        return b"".join(self.pieces.get(token, b"") for token in tokens).decode(errors="replace")

    @property
    def digest(self) -> str:
        """SHA-256 of the whole vocabulary, in hex."""
        digest = hashlib.sha256(f"{self.size} {sorted(self.ends)}".encode())
        for token, piece in sorted(self.pieces.items()):
            digest.update(f"{token} {len(piece)} ".encode() + piece)
        return digest.hexdigest()


def read_vocabulary(tokenizer: Any, size: int, ends: Iterable[int]) -> Vocabulary:
    """Return the vocabulary of a Hugging Face tokenizer.

    Args:
        tokenizer: a fast tokenizer (it has a `backend_tokenizer`).
        size: the width of the model's logits.
        ends: the ids of the tokens that end an answer.

    Raises:
        ModelError: the tokens of this kind of tokenizer cannot be read as bytes, or the tokenizer produces ids
            that the model does not have.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError("the tokenizer has no tokenizer.json form; use a model that includes one")
    if size > _LARGEST:
        raise ModelError(f"config.json says vocab_size {size:,}; no model has more than {_LARGEST:,} tokens")
    layout = json.loads(backend.to_str())
    to_bytes = _piece_reader(layout)
    added = set(backend.get_added_tokens_decoder())
    ends = frozenset(ends)
    token_of: dict[bytes, int] = {}
    # Bytes come last: the tokenizer never writes a byte token that repeats a character's own token.
    vocabulary = backend.get_vocab(with_added_tokens=False).items()
    largest = 0
    for text, token in sorted(vocabulary, key=lambda item: (is_byte(item[0]), item[1])):
        if token in added:
            continue
        largest = max(largest, token)
        piece = to_bytes(text)
        if piece and token not in ends:
            token_of.setdefault(piece, token)
    if largest >= size:
        raise ModelError(
            f"the tokenizer's largest id is {largest:,}, and config.json says vocab_size {size:,}; they do not "
            "belong together: copy the tokenizer and config.json of one model"
        )
    pieces = {token: piece for piece, token in token_of.items()}
    return Vocabulary(pieces, frozenset(end for end in ends if 0 <= end < size), size)


def is_byte(text: str) -> bool:
    """Return whether a token of this text represents a single byte, such as `<0x0A>`."""
    return _BYTE_PIECE.fullmatch(text) is not None


def _piece_reader(layout: Mapping[str, Any]) -> Any:
    """Return the function that turns a token's text into bytes, as the tokenizer's decoder defines it."""
    decoders = _flatten(layout.get("decoder"))
    kinds = {decoder["type"] for decoder in decoders}
    if "ByteLevel" in kinds:
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}

        def from_byte_level(text: str) -> bytes | None:
            try:
                return bytes(byte_of[character] for character in text)
            except KeyError:
                return None

        return from_byte_level
    written = [decoder for decoder in decoders if decoder["type"] in ("Metaspace", "Replace")]
    if any(decoder.get("content", " ") == " " for decoder in written):
        steps = [_replacement(decoder) for decoder in written]
        falls_back = "ByteFallback" in kinds or layout["model"].get("byte_fallback", False)

        def from_pieces(text: str) -> bytes:
            byte = _BYTE_PIECE.fullmatch(text)
            if falls_back and byte is not None:
                return bytes([int(byte[1], 16)])
            for step in steps:
                text = step(text)
            return text.encode()

        return from_pieces
    raise ModelError(
        f"the tokenizer decodes by {', '.join(sorted(kinds)) or 'nothing'}, which does not define "
        "the bytes of a token; use a model with a byte-level or SentencePiece-like tokenizer"
    )


def _replacement(decoder: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function of a decoder that replaces a pattern in the text of a token."""
    if decoder["type"] == "Metaspace":
        return lambda text: text.replace(decoder["replacement"], " ")
    pattern = decoder["pattern"]
    content = decoder["content"]
    if "String" in pattern:
        return lambda text: text.replace(pattern["String"], content)
    from tokenizers import Regex
    from tokenizers.decoders import Replace

    replace = Replace(Regex(pattern["Regex"]), content)
    return lambda text: str(replace.decode([text]))


def _flatten(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    parts: list[Mapping[str, Any]] = []
    for inner in decoder["decoders"]:
        parts += _flatten(inner)
    return parts
