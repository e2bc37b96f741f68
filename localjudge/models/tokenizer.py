"""The tokenizer of a model directory: its `tokenizer.json`, as the file is.

transformers 5 builds a tokenizer anew as the class that `tokenizer_config.json` names, with that class's own
pre-tokenizer and decoder instead of the file's. If a byte-level model names LlamaTokenizerFast, its prompts
lose all spaces. So the named class decides nothing here, except in a directory without the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError, in_one_line
from localjudge.models.configuration import read_document
from localjudge.prompts.encoder import PromptEncoder
from localjudge.system.requirements import installed

TOKENIZER_FILE = "tokenizer.json"
_CORRECTED_TYPES = ("mistral", "mistral3", "voxtral", "ministral", "pixtral")
"""The types of models for which transformers corrects the rule that splits text, if it is asked to."""


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a model, a fast tokenizer of transformers.

    Its special tokens, its chat template and further added tokens come from the files beside `tokenizer.json`.
    What that file may have been saved with for training is switched off: a fixed length, and random merges.

    Any error of the libraries is passed on.
    """
    from transformers import PreTrainedTokenizerFast

    file = folder / TOKENIZER_FILE
    if not file.is_file():
        return _built_by_transformers(folder)
    # Transformers leaves the file as it is for this class alone.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(
        folder, tokenizer_file=str(file), local_files_only=True, trust_remote_code=False
    )
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = False  # True would read the chat template's markers as characters
    if getattr(backend.model, "dropout", None) is not None:
        backend.model.dropout = None
    if not tokenizer.special_tokens_map:  # no file declares any
        with suppress(Exception):  # the library cannot build each class from each file
            _add_special_tokens_of_class(tokenizer, folder)
    return tokenizer


def _add_special_tokens_of_class(tokenizer: Any, folder: Path) -> None:
    """Add the special tokens of the class that `tokenizer_config.json` names, if the vocabulary has them."""
    special_tokens = _built_by_transformers(folder).special_tokens_map
    token_to_id = tokenizer.backend_tokenizer.token_to_id
    in_vocabulary = {name: text for name, text in special_tokens.items() if token_to_id(text) is not None}
    tokenizer.add_special_tokens(in_vocabulary)


def tokenization_warning(
    folder: Path, tokenizer: Any, *, prompts: PromptEncoder, controls: Iterable[int], texts: Sequence[str]
) -> str | None:
    """Return in words that transformers would encode some of these texts differently; None if it would not.

    Args:
        folder: the model's directory.
        tokenizer: its tokenizer.
        prompts: the encoder of its prompts.
        controls: as for `PromptEncoder`.
        texts: the texts of rows.
    """
    if not (folder / TOKENIZER_FILE).is_file():
        return None
    library = f"transformers {installed('transformers')}"
    config = read_document(folder / "config.json", f"model {folder}")
    settings = {}
    if config.get("model_type") in _CORRECTED_TYPES:
        settings["fix_mistral_regex"] = True
    try:
        other = _built_by_transformers(folder, **settings)
        other.chat_template = tokenizer.chat_template  # another one may be given
    except Exception as error:  # files from strangers can make the library raise anything
        return f"prompts are encoded by {TOKENIZER_FILE}; {library} cannot build its own: {in_one_line(error)}"
    if _rules(other) == _rules(tokenizer):
        return None
    different = _count_different(prompts, other, controls=controls, texts=texts)
    if different == 0:
        return None
    count = f"{different} of {len(texts)} prompts"
    if getattr(other.backend_tokenizer, "fix_mistral_regex", False):
        return (
            f"{TOKENIZER_FILE} splits text by a rule that its makers have corrected, which changes {count}; "
            'for the corrected rule, set "fix_mistral_regex": true in tokenizer_config.json'
        )
    return (
        f"prompts are encoded by {TOKENIZER_FILE}; {library} would encode {count} differently, as "
        f"{type(other).__name__}, and so may other programs"
    )


def _count_different(
    prompts: PromptEncoder, other: Any, *, controls: Iterable[int], texts: Sequence[str]
) -> int:
    """Return how many texts another tokenizer encodes differently; all if it cannot encode prompts."""
    try:
        other_prompts = PromptEncoder(other, controls=controls).encode_all(texts)
        pairs = zip(prompts.encode_all(texts), other_prompts, strict=True)
        return sum(prompt != other_prompt for prompt, other_prompt in pairs)
    except ModelError:
        return len(texts)


def _built_by_transformers(folder: Path, **settings: Any) -> Any:
    """Return the tokenizer that transformers builds as the class that `tokenizer_config.json` names."""
    from transformers import AutoTokenizer

    # If mistral-common is installed, it would read a tekken.json, and its tokenizer has no text-only twin.
    return AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, mistral_format=False, **settings
    )


def _rules(tokenizer: Any) -> dict[str, Any] | None:
    """Return the parts that decide the token ids of a text; None for one without the tokenizers library."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    layout = json.loads(backend.to_str())
    return {name: layout[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
