"""Text from outside on its way to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without what could steer a terminal: control characters become visible."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else f"\\u{ord(character):04x}"
        for character in text
    )
