"""The text-only twin of a tokenizer: a copy whose control tokens have names that no text can spell."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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


def text_only_twin(layout: dict[str, Any], control: set[int], *, follows: str) -> str:
    """Return the JSON of a tokenizer for text alone.

    Args:
        layout: the JSON of a `tokenizers.Tokenizer`; it is changed in place.
        control: the ids of its control tokens.
        follows: what precedes the text, which decides whether the tokenizer adds a space before it: nothing
            (`nothing`), an added token (`added`) or a token of the vocabulary (`piece`).
    """
    # Post-processing would add markers around the text.
    layout.update(truncation=None, padding=None, post_processor=None)
    secret = secrets.token_hex(16)
    pieces = _pieces(layout["model"])
    names = {piece: f"{secret}:{token}" for token, piece in pieces.items() if token in control}
    for added in layout["added_tokens"]:
        if added["id"] in control:
            name = f"{secret}:{added['id']}"
            names[added["content"]] = name
            added.update(content=name, lstrip=False, rstrip=False, single_word=False, normalized=False)
    _rename(layout["model"], names)
    for part in list(parts(layout.get("normalizer"))) + list(parts(layout.get("pre_tokenizer"))):
        _set_prefix(part, follows)
    # Byte tokens keep their names, because the tokenizer finds them by name. Text that spells one is split.
    if any(is_byte(piece) for piece in pieces.values()):
        pre_tokenizers = list(parts(layout.get("pre_tokenizer")))
        pre_tokenizers.append(_INSIDE_BYTE_NAMES)
        layout["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": pre_tokenizers}
    return json.dumps(layout)


def _set_prefix(part: dict[str, Any], follows: str) -> None:
    """Set whether a part of a tokenizer adds a space before a text, by what precedes the text."""
    if part.get("prepend_scheme") == "first" and follows != "nothing":
        part["prepend_scheme"] = "never"
    if follows == "piece":
        for name, value in _NO_PREFIX.items():
            if name in part:
                part[name] = value


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
        model["merges"] = [pair for pair in pairs if not _concerns(pair, names)]


def _concerns(pair: Sequence[str], names: Mapping[str, str]) -> bool:
    """Return whether a merge uses or creates a renamed piece."""
    first, second = pair
    return first in names or second in names or first + second in names


def parts(component: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Return the parts of a normalizer or a pre-tokenizer; a sequence gives each of its parts."""
    if component is None:
        return
    if component["type"] == "Sequence":
        for inner in component.get("pretokenizers", component.get("normalizers", ())):
            yield from parts(inner)
    else:
        yield component
