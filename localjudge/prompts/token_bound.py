"""Upper bound of the tokens of a text, from its size alone: no text is encoded for it.

A token covers at least one byte of the text that the tokenizer's model gets. So the bound counts bytes, and
what the steps before the model (normalizers, pre-tokenizers) may add to them. There is no bound for a tokenizer
with a step that is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from localjudge.prompts.text_only import parts

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
