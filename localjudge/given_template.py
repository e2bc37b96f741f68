"""A chat template that a user gives in place of the model's own, or none at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from localjudge.errors import SettingError

NO_TEMPLATE = "none"
"""What is given for no template; a file of this name is given as `./none`."""
NO_TEMPLATE_NOTICE = "no chat template: prompts are plain text, as for a base model (--chat-template none)"
"""What every table of a run without a chat template says."""
MOST_CHARACTERS = 1_000_000
"""The length of the longest template that is read; the longest known one has 20,000 characters."""


@dataclass(frozen=True, slots=True)
class GivenTemplate:
    """A chat template that is used in place of the model's own.

    Attributes:
        source: its source, in Jinja; None for no template, so that prompts are plain text.
        name: where it is from, for messages: a file, or `NO_TEMPLATE`.
    """

    source: str | None
    name: str = field(compare=False)

    @classmethod
    def read(cls, name: str | Path) -> Self:
        """Read the file of a template, or take `NO_TEMPLATE` for none.

        Args:
            name: the file, or `NO_TEMPLATE`.

        Raises:
            SettingError: the file cannot be read, is too long, is empty, or is not a text in UTF-8.
        """
        if str(name) == NO_TEMPLATE:
            return cls(None, NO_TEMPLATE)
        file = Path(name)
        ways_on = f"give the file of a chat template (.jinja), or {NO_TEMPLATE}"
        try:
            with file.open(encoding="utf-8") as stream:
                source = stream.read(MOST_CHARACTERS + 1)
        except UnicodeDecodeError:
            raise SettingError("chat_template", name, f"is not a text in UTF-8; {ways_on}") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise SettingError("chat_template", name, f"{reason}; {ways_on}") from None
        if len(source) > MOST_CHARACTERS:
            size = f"has more than {MOST_CHARACTERS:,} characters"
            raise SettingError("chat_template", name, f"{size}; {ways_on}")
        if not source.strip():
            raise SettingError("chat_template", name, f"is empty; {ways_on}")
        return cls(source, str(name))

    @property
    def identity(self) -> str:
        """The SHA-256 of the source, in hex; `NO_TEMPLATE` for no template."""
        if self.source is None:
            return NO_TEMPLATE
        return hashlib.sha256(self.source.encode()).hexdigest()
