"""What the replies of a server say of the model that wrote them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

LOG = logging.getLogger("localjudge.server")
"""What a person must know of a server while it is used."""
_MOST_NAMES = 10
_MOST_FINGERPRINTS = 1000
_LONGEST_NAME = 200


class ReplyingModels:
    """The names of the models in a server's replies, and how often its fingerprint was a new one.

    Args:
        server: the server, for messages.

    Attributes:
        names: the different names, in the order of their first replies; at most ten.
    """

    def __init__(self, server: str) -> None:
        self.names: list[str] = []
        self._server = server
        self._fingerprints: set[str] = set()

    def add(self, reply: Mapping[str, Any]) -> None:
        """Count a reply, and warn if it names another model than the replies before."""
        fingerprint = _text(reply.get("system_fingerprint"))
        if fingerprint is not None and len(self._fingerprints) < _MOST_FINGERPRINTS:
            self._fingerprints.add(fingerprint)
        name = _text(reply.get("model"))
        if name is None or name in self.names or len(self.names) == _MOST_NAMES:
            return
        self.names.append(name)
        if len(self.names) > 1:
            before = ", ".join(self.names[:-1])
            said = "a reply names the model %s, and those before named %s"
            LOG.warning(
                f"server %s: {said}; the judge is not the same for all rows", self._server, name, before
            )

    @property
    def fingerprint_changes(self) -> int:
        """The number of different fingerprints after the first one; at most 999."""
        return max(0, len(self._fingerprints) - 1)

    def as_details(self) -> dict[str, JsonValue]:
        """Return what `run.json` records of the names; empty if no reply has one."""
        found: dict[str, JsonValue] = {}
        if self.names:
            found["named"] = list(self.names)
        if self.fingerprint_changes:
            found["fingerprint_changes"] = self.fingerprint_changes
        return found


def _text(value: Any) -> str | None:
    """Return the beginning of a text that UTF-8 can hold; None for any other value."""
    if isinstance(value, str) and value and value.isprintable():
        return value[:_LONGEST_NAME]
    return None
