"""What each token of a model stands for, as bytes: the one thing decoding needs to know of a tokenizer.

Two families of tokenizers cover the open-weights models. Byte-level BPE (Qwen, Llama 3, Falcon, Phi-4 …)
writes every byte as one printable character; SentencePiece-like ones (Llama 2, Phi-3, Gemma …) write text
with `▁` for a space, and bytes that have no token of their own as `<0xE4>`. A token may be part of a
character in both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localjudge.errors import ModelError

_LARGEST = 2**24
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The text tokens of a model.

    Attributes:
        pieces: the bytes of each token id that stands for text. Ids that are absent (added tokens, special
            or not, and the rows that pad an embedding to a round size) can never be part of an answer.
        ends: the ids of the tokens that end an answer.
        size: the width of the model's logits; at least one more than the largest id.
    """

    pieces: Mapping[int, bytes]
    ends: frozenset[int]
    size: int

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of a complete answer; the tokens that end it are left out."""
        return b"".join(self.pieces[token] for token in tokens if token not in self.ends).decode()

    def decode_text(self, tokens: Iterable[int]) -> str:
        """The text of any tokens, those that stand for none left out and parts of characters marked."""
        return b"".join(self.pieces.get(token, b"") for token in tokens).decode(errors="replace")

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, in hex."""
        digest = hashlib.sha256(f"{self.size} {sorted(self.ends)}".encode())
        for token, piece in sorted(self.pieces.items()):
            digest.update(f"{token} {len(piece)} ".encode() + piece)
        return digest.hexdigest()


def read_vocabulary(tokenizer: Any, size: int, ends: Iterable[int]) -> Vocabulary:
    """The vocabulary of a Hugging Face tokenizer.

    Args:
        tokenizer: a fast tokenizer (it has a `backend_tokenizer`).
        size: the width of the model's logits.
        ends: the ids of the tokens that end an answer.

    Raises:
        ModelError: the tokenizer is of a kind whose tokens cannot be read as bytes, or text can become tokens
            that the model does not have.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError("the tokenizer has no tokenizer.json form; use a model that ships one")
    if size > _LARGEST:
        raise ModelError(f"config.json says vocab_size {size:,}; no model has more than {_LARGEST:,} tokens")
    layout = json.loads(backend.to_str())
    to_bytes = _piece_reader(layout)
    added = set(backend.get_added_tokens_decoder())
    ends = frozenset(ends)
    token_of: dict[bytes, int] = {}
    # Bytes come last: one that repeats a character's own token is never written by the tokenizer.
    texts = sorted(
        backend.get_vocab(with_added_tokens=False).items(), key=lambda item: (is_byte(item[0]), item[1])
    )
    for text, token in texts:
        if token not in added and token not in ends and (piece := to_bytes(text)):
            token_of.setdefault(piece, token)
    largest = max((token for _, token in texts if token not in added), default=0)
    if largest >= size:
        raise ModelError(
            f"the tokenizer's ids go to {largest:,}, and config.json says vocab_size {size:,}; they do not "
            "belong together"
        )
    pieces = {token: piece for piece, token in token_of.items()}
    return Vocabulary(pieces, frozenset(end for end in ends if 0 <= end < size), size)


def is_byte(text: str) -> bool:
    """Whether a token of this text stands for a single byte, `<0x0A>`."""
    return _BYTE_PIECE.fullmatch(text) is not None


def _piece_reader(layout: Mapping[str, Any]) -> Any:
    """How a token is written in this tokenizer, from its own decoder: a function from its text to bytes."""
    decoders = _flatten(layout.get("decoder"))
    kinds = {decoder["type"] for decoder in decoders}
    if "ByteLevel" in kinds:
        byte_of = {character: byte for byte, character in _byte_alphabet().items()}

        def from_byte_level(text: str) -> bytes | None:
            try:
                return bytes(byte_of[character] for character in text)
            except KeyError:
                return None

        return from_byte_level
    spaces = [d["replacement"] for d in decoders if d["type"] == "Metaspace"]
    spaces += [d["pattern"]["String"] for d in decoders if d["type"] == "Replace" and d["content"] == " "]
    if spaces:
        falls_back = "ByteFallback" in kinds or layout["model"].get("byte_fallback", False)

        def from_pieces(text: str) -> bytes:
            if falls_back and (byte := _BYTE_PIECE.fullmatch(text)):
                return bytes([int(byte[1], 16)])
            return text.replace(spaces[0], " ").encode()

        return from_pieces
    raise ModelError(
        f"the tokenizer decodes by {', '.join(sorted(kinds)) or 'nothing'}, which does not say what bytes "
        "a token stands for; byte-level and SentencePiece-like tokenizers do"
    )


def _flatten(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [part for inner in decoder["decoders"] for part in _flatten(inner)]
    return [decoder]


def _byte_alphabet() -> dict[int, str]:
    """The printable character that byte-level BPE writes for each byte (Radford et al. 2019)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet)
    return alphabet | {byte: chr(256 + rank) for rank, byte in enumerate(others)}
