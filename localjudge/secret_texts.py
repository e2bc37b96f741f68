"""Secrets that this process knows, and how they are hidden in texts.

A secret is a key that is sent to a server, or the value of an option whose name says so. A server, a gateway or
a library may repeat it in an encoding of its own: plain, URL-encoded, escaped as in JSON, Python or HTML, also
mixed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

HIDDEN = "***"
"""What stands in place of a secret."""
SHORTEST = 8
"""The least characters of a secret that is hidden in texts; a shorter one could be a part of any word."""
_BACKSLASHES = r"\\\\{0,7}"
"""One backslash, or more where JSON stands in a text of JSON."""
_HTML = "&(?:amp;){0,3}"
_HTML_NAMES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}


class SecretText:
    """A secret, which is found in each of its forms, also if a text is cut in the middle of it.

    A part at the end or the beginning of the secret is hidden if it has half of its characters, and at least
    `SHORTEST`.

    Args:
        text: the secret, of at least `SHORTEST` characters.
    """

    def __init__(self, text: str) -> None:
        forms = [_forms_of(part) for part in re.findall(r"\\+|.", text, re.DOTALL)]
        half = max(SHORTEST, (len(forms) + 1) // 2)
        self._first_half = re.compile("".join(forms[:half]))
        self._second_half = [re.compile(form) for form in forms[half:]]
        self._last_half = re.compile("".join(forms[-half:]))

    def hide(self, text: str) -> str:
        """Return the text with `HIDDEN` in place of the secret."""
        for begin, end in reversed(self.places(text)):
            text = text[:begin] + HIDDEN + text[end:]
        return text

    def places(self, text: str) -> list[tuple[int, int]]:
        """Return where the secret, or a part of it, begins and ends in a text, in order."""
        places: list[tuple[int, int]] = []
        checked = 0
        first_half = self._first_half.search(text)
        while first_half is not None:
            places += self._ends_between(text, checked, first_half.start())
            end = self._end_of(text, first_half.end())
            places.append((first_half.start(), end))
            checked = end
            first_half = self._first_half.search(text, end)
        return places + self._ends_between(text, checked, len(text))

    def _end_of(self, text: str, end: int) -> int:
        """Return where the secret ends whose first half ends here, as far as it goes on."""
        for character in self._second_half:
            following = character.match(text, end)
            if following is None:
                break
            end = following.end()
        return end

    def _ends_between(self, text: str, begin: int, end: int) -> list[tuple[int, int]]:
        """Return where the last half of the secret stands without the first one."""
        return [last_half.span() for last_half in self._last_half.finditer(text, begin, end)]


def _forms_of(part: str) -> str:
    """Return a regular expression of the forms in which a character, or a run of backslashes, is written."""
    count = len(part)
    if count == 1:
        return _forms_of_character(part)
    # One repetition for all of them: several in a row would match a long run in too many ways.
    return rf"(?:{_forms_of_character(part[0])}{{{count}}}+|\\{{{count},{8 * count}}})"


def _forms_of_character(character: str) -> str:
    """Return a regular expression of the forms in which a character is written.

    Each alternative begins with a character, not with a class or a repetition, and repetitions are bounded, so
    that a search is fast in any text.
    """
    literal = re.escape(character)
    code = ord(character)
    units = character.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    octets = character.encode("utf-8", "surrogatepass").hex(" ").split()
    forms = [
        "".join(rf"{_BACKSLASHES}u{_any_case(unit)}" for unit in units),
        "".join(rf"{_BACKSLASHES}x{_any_case(octet)}" for octet in octets),
        "".join(f"%(?:25){{0,3}}{_any_case(octet)}" for octet in octets),
        f"{_HTML}#0{{0,7}}{code};",
        f"{_HTML}#[xX]0{{0,7}}{_any_case(f'{code:x}')};",
    ]
    if character in _HTML_NAMES:
        forms.append(f"{_HTML}{_HTML_NAMES[character]};")
    if not character.isalnum():
        forms.append(_BACKSLASHES + literal)
    short = json.dumps(character)[1:-1]
    if len(short) == 2:
        forms.append(_BACKSLASHES + re.escape(short[1]))
    forms.append(literal)  # last: it is the beginning of other forms of `&` and of a backslash
    return f"(?:{'|'.join(forms)})"


def _any_case(digits: str) -> str:
    """Return a regular expression of hexadecimal digits in capital or small letters."""
    forms = [digit if digit.isdigit() else f"[{digit.lower()}{digit.upper()}]" for digit in digits]
    return "".join(forms)


_known: dict[str, SecretText] = {}
"""The secrets by their texts."""


def remember_secret(text: str) -> bool:
    """Hide a secret from now on in all that this process prints, and in errors of libraries.

    Returns:
        Whether it was not hidden before, and is now: not if it is known, or shorter than `SHORTEST`.
    """
    if len(text) < SHORTEST or text in _known:
        return False
    _known[text] = SecretText(text)
    return True


def without_secrets(text: str) -> str:
    """Return the text with `HIDDEN` in place of each secret that this process knows.

    A longer secret is hidden first, because a shorter one can be a part of it.
    """
    for secret in sorted(_known, key=len, reverse=True):
        text = _known[secret].hide(text)
    return text


def hide_in_file(file: Path) -> None:
    """Overwrite each known secret in a file by as many asterisks, while others may append to it."""
    if not _known or not file.is_file():
        return
    with file.open("r+b") as stream:
        text = stream.read().decode("latin-1")  # a character for each byte, so that places are those of bytes
        for secret in list(_known.values()):
            for begin, end in secret.places(text):
                stream.seek(begin)
                stream.write(b"*" * (end - begin))
