"""Which options of an engine are secrets, by their names, and the options without them.

An option, or a part of one that is JSON, is a secret if a word of its name says so: `hf_token`, `apiKey`,
`headers.Authorization`. So `max_num_batched_tokens` and `tokenizer` are none. Short numbers stay, because the
configuration of a model has such names (`num_key_value_heads`), and so do special tokens (`image_start_token`)
and what is counted or set for tokens (`long_prefill_token_threshold`).

In any other text, a password in a URL, a value after such a name, and what follows "Bearer" are secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localjudge.rubrics.answer import without_duplicates
from localjudge.secret_texts import HIDDEN

_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORDS = frozenset([
    "token", "key", "keys", "secret", "secrets", "password", "passwords", "passwd", "pwd",
    "passphrase", "apikey", "apikeys", "accesskey", "secretkey", "authtoken", "accesstoken",
    "credential", "credentials", "authorization", "bearer",
])  # fmt: skip
_SPECIAL_TOKENS = frozenset([
    "bos", "eos", "boi", "eoi", "boa", "eoa", "boc", "eoc", "pad", "unk", "sep", "cls", "mask",
    "begin", "start", "end", "stop", "think", "thinking", "reasoning", "image", "img", "vision",
    "audio", "video", "fake",
])  # fmt: skip
"""The words before `token` in the name of a special token, which say what it marks."""
_OF_TOKENS = frozenset([
    "threshold", "thresholds", "tree", "id", "ids", "budget", "budgets", "prob", "probs", "num",
    "count", "limit", "type",
])  # fmt: skip
"""The words after `token` in the name of what is counted or set for the tokens of a model."""
_LONGEST_NUMBER = 8
"""The digits from which a number of a secret name is a secret, too."""
_USERINFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_BEARER = re.compile(r"(?<=\bbearer )\s*\S+", re.IGNORECASE)
_NAMED = re.compile(r"""([\w.-]+)(["']?\s*[=:]\s*["']?)(?!//)([^\s&,;"']+)""")
_MASKED_IN_TEXT = re.compile(rf"""{re.escape(HIDDEN)}@|[\w.-]+["']?\s*[=:]\s*["']?{re.escape(HIDDEN)}""")


def is_secret_name(name: str) -> bool:
    """Return whether a word of a name says that its value is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    secret_words = _SECRET_WORDS.intersection(words)
    if secret_words == {"token"}:
        return not _is_of_a_tokenizer(words)
    return bool(secret_words)


def _is_of_a_tokenizer(words: list[str]) -> bool:
    """Return whether `token`, in a name of these words, is one that a model reads or writes."""
    place = words.index("token")
    before = words[:place]
    after = words[place + 1 : place + 2]
    is_special = not _SPECIAL_TOKENS.isdisjoint(before)
    is_counted = not _OF_TOKENS.isdisjoint(after)
    return is_special or is_counted


@dataclass(frozen=True, slots=True)
class MaskedOption:
    """The value of an option, as a person may see it.

    Attributes:
        shown: the value, with `HIDDEN` in place of each secret.
        secrets: the secrets in it.
    """

    shown: str
    secrets: list[str] = field(repr=False)


def masked_option(name: str, value: str) -> MaskedOption:
    """Return the value of an option as a person may see it, and the secrets in it.

    Args:
        name: the name of the option.
        value: its value: JSON, or other text.
    """
    secrets: list[str] = []
    try:
        document = json.loads(value, object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError):
        document = value
    is_secret = is_secret_name(name)
    masked = _masked(document, secrets, is_secret=is_secret)
    if not secrets:
        return MaskedOption(value, [])
    if is_secret:
        return MaskedOption(HIDDEN, list(dict.fromkeys([value, *secrets])))
    shown = masked if document is value else json.dumps(masked)
    return MaskedOption(shown, secrets)


def masked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as `run.json` records them: with `HIDDEN` in place of each secret."""
    return {name: masked_option(name, value).shown for name, value in options.items()}


def secrets_of(options: Mapping[str, str]) -> list[str]:
    """Return the secrets in options."""
    return [secret for name, value in options.items() for secret in masked_option(name, value).secrets]


def without_masked(options: Mapping[str, str]) -> dict[str, str]:
    """Return recorded options without the secrets that `masked_options` has taken out."""
    found = {}
    for name, value in options.items():
        if value == HIDDEN:
            continue
        found[name] = _without_masked_parts(value) if HIDDEN in value else value
    return found


def _masked(value: Any, secrets: list[str], *, is_secret: bool) -> Any:
    """Return a value of JSON with `HIDDEN` in place of each secret, which is added to `secrets`.

    Args:
        value: the value.
        secrets: receives the secrets.
        is_secret: whether all texts in it are secrets.
    """
    if isinstance(value, dict):
        return {
            name: _masked(each, secrets, is_secret=is_secret or is_secret_name(name))
            for name, each in value.items()
        }
    if isinstance(value, list):
        has_name = len(value) == 2 and isinstance(value[0], str) and is_secret_name(value[0])
        is_header = has_name and not is_secret
        if is_header:
            return [value[0], _masked(value[1], secrets, is_secret=True)]
        return [_masked(each, secrets, is_secret=is_secret) for each in value]
    if isinstance(value, str):
        if not is_secret:
            return _masked_text(value, secrets)
        secrets.append(value)
        _, _, after_scheme = value.partition(" ")  # of "Bearer KEY"
        if after_scheme:
            secrets.append(after_scheme)
        return HIDDEN
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_secret and is_number and len(str(value)) >= _LONGEST_NUMBER:
        secrets.append(str(value))
        return HIDDEN
    return value


def _masked_text(text: str, secrets: list[str]) -> str:
    """Return a text with `HIDDEN` in place of each secret in it, which is added to `secrets`."""

    def hide(found: re.Match[str]) -> str:
        user, _, password = found[0].partition(":")
        secrets.append(password or user)
        return HIDDEN

    def hide_named(found: re.Match[str]) -> str:
        name, sign, value = found.groups()
        if value == HIDDEN or not is_secret_name(name):
            return found[0]
        secrets.append(value)
        return f"{name}{sign}{HIDDEN}"

    def hide_bearer(found: re.Match[str]) -> str:
        secrets.append(found[0].strip())
        return HIDDEN

    text = _USERINFO.sub(hide, text)
    text = _BEARER.sub(hide_bearer, text)
    return _NAMED.sub(hide_named, text)


def _without_masked_parts(text: str) -> str:
    """Return a recorded value without its masked parts."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _MASKED_IN_TEXT.sub("", text)
    return json.dumps(_without_hidden(document))


def _without_hidden(value: Any) -> Any:
    """Return a value of JSON without its masked parts."""
    if isinstance(value, dict):
        return {name: _without_hidden(each) for name, each in value.items() if each != HIDDEN}
    if isinstance(value, list):
        return [_without_hidden(each) for each in value if each != HIDDEN and HIDDEN not in _pair(each)]
    return _MASKED_IN_TEXT.sub("", value) if isinstance(value, str) else value


def _pair(value: Any) -> list[Any]:
    """Return a name and its value in a list; an empty list for anything else."""
    return value if isinstance(value, list) and len(value) == 2 else []
