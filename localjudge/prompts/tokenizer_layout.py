"""What the JSON of a tokenizer says of texts: a twin for text alone, and an upper bound of the tokens of text.

The text-only twin is a copy of the tokenizer whose control tokens have names that no text can spell.

The bound follows from the size of a text alone: no text is encoded for it. A token covers at least one byte of
the text that the tokenizer's model gets. So the bound counts bytes, and what the steps before the model
(normalizers, pre-tokenizers) may add to them. A tokenizer with a step that is not known here has no bound.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from localjudge.constraint.vocabulary import is_byte

# Splits text that spells the name of a byte, such as `<0x0A>`, after its first character.
_INSIDE_BYTE_NAMES = {
    "type": "Split",
    "pattern": {"Regex": "<(?=0x[0-9A-Fa-f]{2}>)"},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
# The settings with which a normalizer or a pre-tokenizer adds no space before a text.
_NO_PREFIX = {"prepend_scheme": "never", "prepend": "", "add_prefix_space": False}


def text_only_twin(layout: dict[str, Any], own: set[int], *, follows: str) -> str:
    """Return the JSON of a tokenizer for text alone.

    Args:
        layout: the JSON of a `tokenizers.Tokenizer`; it is changed in place.
        own: the ids of its control tokens.
        follows: what precedes the text, which decides whether the tokenizer adds a space before it: nothing
            (`nothing`), an added token (`added`) or a token of the vocabulary (`piece`).
    """
    # Post-processing would add markers around the text.
    layout.update(truncation=None, padding=None, post_processor=None)
    secret = secrets.token_hex(16)
    pieces = _pieces(layout["model"])
    names = {piece: f"{secret}:{token}" for token, piece in pieces.items() if token in own}
    for each in layout["added_tokens"]:
        if each["id"] in own:
            names[each["content"]] = f"{secret}:{each['id']}"
            each.update(
                content=names[each["content"]], lstrip=False, rstrip=False, single_word=False, normalized=False
            )
    _rename(layout["model"], names)
    for part in (*parts(layout.get("normalizer")), *parts(layout.get("pre_tokenizer"))):
        if part.get("prepend_scheme") == "first" and follows != "nothing":
            part["prepend_scheme"] = "never"
        if follows == "piece":
            part.update({name: value for name, value in _NO_PREFIX.items() if name in part})
    # Byte tokens keep their names, because the tokenizer finds them by name. Text that spells one is split.
    if any(map(is_byte, pieces.values())):
        split = [*parts(layout.get("pre_tokenizer")), _INSIDE_BYTE_NAMES]
        layout["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": split}
    return json.dumps(layout)


def _pieces(model: dict[str, Any]) -> dict[int, str]:
    """Return the pieces of a tokenizer's model by id."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return {token: piece for piece, token in vocabulary.items()}
    return {token: piece for token, (piece, _) in enumerate(vocabulary)}


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Rename pieces of a tokenizer's model, and remove the merges that create or use them."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): token for piece, token in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if names.keys().isdisjoint((*pair, "".join(pair)))]


def parts(component: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Return the parts of a normalizer or a pre-tokenizer; a sequence gives each of its parts."""
    if component is None:
        return
    if component["type"] == "Sequence":
        for inner in component.get("pretokenizers", component.get("normalizers", ())):
            yield from parts(inner)
    else:
        yield component


# The most bytes that a normalizer makes of one byte beyond ASCII (https://unicode.org/faq/normalization, and
# twice for a letter whose other case takes more bytes). ASCII text does not grow.
_GROWTH = {"NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Lowercase": 2, "Strip": 1, "StripAccents": 1}
# Pre-tokenizers that only split the text.
_SPLITTERS = {
    "BertPreTokenizer",
    "CharDelimiterSplit",
    "Digits",
    "Punctuation",
    "Split",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
}


@dataclass(frozen=True, slots=True)
class TokenBound:
    """Upper bound of the tokens of a text.

    Attributes:
        ascii: the most tokens for each byte.
        beyond: the most tokens for each byte of a character beyond ASCII.
    """

    ascii: int
    beyond: int

    @classmethod
    def from_tokenizer(cls, layout: dict[str, Any]) -> Self | None:
        """Return the bound of a tokenizer without post-processing, from its JSON; None if there is none."""
        model = layout["model"]
        vocabulary = model["vocab"]
        pieces = vocabulary if isinstance(vocabulary, dict) else {piece for piece, _ in vocabulary}
        if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            return None
        growth, adds_prefix = 1, False
        for part in parts(layout.get("normalizer")):
            match part["type"]:
                case "Prepend":
                    adds_prefix |= bool(part["prepend"])
                    known = part["prepend"] in ("", "▁") and "▁" in pieces
                case "Replace":
                    known = part["pattern"] == {"String": " "} and part["content"] == "▁" and "▁" in pieces
                case name:
                    known = name in _GROWTH
                    growth *= _GROWTH.get(name, 1)
            if not known:
                return None
        for part in parts(layout.get("pre_tokenizer")):
            match part["type"]:
                case "ByteLevel":
                    adds_prefix |= part["add_prefix_space"]
                    known = not model.get("byte_fallback")
                case "Metaspace":
                    adds_prefix |= part.get("prepend_scheme") != "never"
                    known = part["replacement"] in pieces
                case name:
                    known = name in _SPLITTERS
            if not known:
                return None
        # A prefix may come before each piece into which an earlier step has split the text, and none is empty.
        prefixed = 2 if adds_prefix else 1
        return cls(prefixed, prefixed * growth)

    def tokens(self, text: str) -> int:
        """Return an upper bound of the number of tokens of this text."""
        size = len(text.encode(errors="surrogatepass"))
        # A character of n bytes, n > 1, adds n - 1 to this difference, which is at least n / 2.
        beyond = min(size, 2 * (size - len(text)))
        return self.ascii * (size - beyond) + self.beyond * beyond + self.ascii
