"""Which options of an engine are secrets, by their names, and the options without them.

An option, or a part of one that is JSON, is a secret if a word of its name says so: `hf_token`, `apiKey`,
`headers.Authorization`. So `max_num_batched_tokens` and `tokenizer` are none. Short numbers stay, because the
configuration of a model has such names (`num_key_value_heads`), and so do special tokens (`image_start_token`)
and what is counted or set for tokens (`long_prefill_token_threshold`).

In a list, the value after such a name is a secret (`["--api-key", "sk-…"]`). In any other text, a password in a
URL, a value after such a name, and what follows "Bearer", "Basic" or "token" are secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from localjudge.rubrics.answer import without_duplicates
from localjudge.secret_texts import HIDDEN

_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORDS = frozenset([
    "token", "key", "keys", "secret", "secrets", "password", "passwords", "passwd", "pwd",
    "passphrase", "apikey", "apikeys", "accesskey", "secretkey", "authtoken", "accesstoken",
    "credential", "credentials", "auth", "authentication", "authorization", "bearer", "jwt",
    "cookie", "cookies", "signature", "sig",
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
_SCHEME = r"(?:\b(?:bearer|basic|token)\s+)"
"""What stands before the secret in a header."""
_COOKIE = re.compile(r"""(?<=\bcookie:)(\s*)([^\r\n"']+)""", re.IGNORECASE)
_NAME_AND_SIGN = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[=:]\s*["']?(?!//)""")
_FLAG = re.compile(r"""(?<![\w.-])(--?[a-z][\w.-]*)\s+["']?(?!--)""", re.IGNORECASE)
_NAMED_VALUE = re.compile(rf"""(?<=")[^"]+|(?<=')[^']+|{_SCHEME}*[^\s&,;"']+""", re.IGNORECASE)
_AFTER_SCHEME = re.compile(rf"""({_SCHEME}+["']?)(?!--)([^\s=:*"'][^\s"']*)""", re.IGNORECASE)
_NAME_IN_LIST = re.compile(r"[\w.-]+:?")
_PARTS_OF_ATTENTION = ("key", "keys")
_HIDDEN = re.escape(HIDDEN)
_MASKED_IN_TEXT = re.compile(
    rf"""{_HIDDEN}@|(?<![\w.-])[\w.-]+["']?\s*[=:]\s*(["']?){_HIDDEN}\1"""
    rf"""|(?<![\w.-])--?[\w.-]+\s+(["']?){_HIDDEN}\2|{_SCHEME}+(["']?){_HIDDEN}\3""",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether a word of a name says that its value is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    secret_words = _SECRET_WORDS.intersection(words)
    if secret_words == {"token"}:
        return not _is_of_a_tokenizer(words)
    return bool(secret_words)


def _is_of_a_tokenizer(words: list[str]) -> bool:
    """Return whether `token`, in a name of these words, is one that a model reads or writes."""
    position = words.index("token")
    before = words[:position]
    after = words[position + 1 : position + 2]
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
    secrets: list[str] = []
    for name, value in options.items():
        secrets.extend(masked_option(name, value).secrets)
    return secrets


def without_masked(options: Mapping[str, str]) -> dict[str, str]:
    """Return recorded options without the secrets that `masked_options` has taken out."""
    left = {}
    for name, value in options.items():
        if value == HIDDEN:
            continue
        left[name] = _without_masked_parts(value) if HIDDEN in value else value
    return left


def _masked(value: Any, secrets: list[str], *, is_secret: bool) -> Any:
    """Return a value of JSON with `HIDDEN` in place of each secret, which is added to `secrets`.

    Args:
        value: the value.
        secrets: receives the secrets.
        is_secret: whether all texts in it are secrets.
    """
    if isinstance(value, dict):
        return {
            name: _masked(member, secrets, is_secret=is_secret or is_secret_name(name))
            for name, member in value.items()
        }
    if isinstance(value, list):
        return _masked_list(value, secrets, is_secret=is_secret)
    if isinstance(value, str):
        if not is_secret:
            return _masked_text(value, secrets)
        _add(value, secrets)
        return HIDDEN
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_secret and is_number and len(str(value)) >= _LONGEST_NUMBER:
        secrets.append(str(value))
        return HIDDEN
    return value


def _masked_list(values: list[Any], secrets: list[str], *, is_secret: bool) -> list[Any]:
    """Return a list of JSON with `HIDDEN` in place of each secret, which is added to `secrets`.

    A value after the name of a secret is one, too.
    """
    shown = []
    follows_name = False
    for value in values:
        shown.append(_masked(value, secrets, is_secret=is_secret or follows_name))
        follows_name = not follows_name and _names_the_next(value, values)
    return shown


def _names_the_next(value: Any, values: list[Any]) -> bool:
    """Return whether a value of a list says that the next one is a secret.

    In a list of more than two, "key" alone says nothing: ["query", "key", "value"] are parts of a model.
    """
    if not isinstance(value, str) or not _NAME_IN_LIST.fullmatch(value):
        return False
    if len(values) > 2 and value in _PARTS_OF_ATTENTION:
        return False
    return is_secret_name(value)


def _masked_text(text: str, secrets: list[str]) -> str:
    """Return a text with `HIDDEN` in place of each secret in it, which is added to `secrets`."""

    def hide_password(userinfo: re.Match[str]) -> str:
        user, _, password = userinfo[0].partition(":")
        secrets.append(password or user)
        return HIDDEN

    def hide_second(match: re.Match[str]) -> str:
        before, secret = match.groups()
        secrets.append(secret)
        return f"{before}{HIDDEN}"

    text = _USERINFO.sub(hide_password, text)
    text = _COOKIE.sub(hide_second, text)
    text = _masked_values(text, _NAME_AND_SIGN, secrets)
    text = _masked_values(text, _FLAG, secrets)
    return _AFTER_SCHEME.sub(hide_second, text)


def _masked_values(text: str, names: re.Pattern[str], secrets: list[str]) -> str:
    """Return a text with `HIDDEN` in place of each value that follows the name of a secret.

    Args:
        text: the text.
        names: finds a name, as its group, with all that stands before the value.
        secrets: receives the secrets.
    """
    shown = ""
    end = 0
    for named in names.finditer(text):
        if named.start() < end or not is_secret_name(named[1]):
            continue
        value = _NAMED_VALUE.match(text, named.end())
        if value is None or value[0] == HIDDEN:
            continue
        _add(value[0], secrets)
        shown += text[end : named.end()] + HIDDEN
        end = value.end()
    return shown + text[end:]


def _add(secret: str, secrets: list[str]) -> None:
    """Add a secret, and the part of it after "Bearer" or another word."""
    secrets.append(secret)
    _, _, after_scheme = secret.partition(" ")
    if after_scheme:
        secrets.append(after_scheme)


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
        return {name: _without_hidden(member) for name, member in value.items() if member != HIDDEN}
    if isinstance(value, list):
        return _list_without_hidden(value)
    if isinstance(value, str):
        return _MASKED_IN_TEXT.sub("", value)
    return value


def _list_without_hidden(values: list[Any]) -> list[Any]:
    """Return a list of JSON without its masked values, and without the names of these."""
    left = []
    for value, following in zip_longest(values, values[1:]):
        is_name = following == HIDDEN and _names_the_next(value, values)
        if value != HIDDEN and not is_name and HIDDEN not in _pair(value):
            left.append(_without_hidden(value))
    return left


def _pair(value: Any) -> list[Any]:
    """Return a name and its value in a list; an empty list for anything else."""
    return value if isinstance(value, list) and len(value) == 2 else []
