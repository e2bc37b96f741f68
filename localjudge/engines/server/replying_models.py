"""What the replies of a server say of the model that wrote them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

LOG = logging.getLogger("localjudge.server")
"""What a person must know of a server while it is used."""
MOST_VALUES = 10
"""The most names, and the most fingerprints, that are recorded of a start."""
_LONGEST_VALUE = 200


class ReplyingModels:
    """The names of the models in a server's replies, and the fingerprints of its configuration.

    Args:
        server: the server, for messages.

    Attributes:
        names: the different names, in the order of their first replies; at most `MOST_VALUES`.
        fingerprints: the different values of `system_fingerprint`, likewise.
    """

    def __init__(self, server: str) -> None:
        self.names: list[str] = []
        self.fingerprints: list[str] = []
        self._server = server

    def add(self, reply: Mapping[str, Any]) -> None:
        """Record what a reply says, and warn if it names another model than the replies before."""
        _add_new(self.fingerprints, reply.get("system_fingerprint"))
        is_new = _add_new(self.names, reply.get("model"))
        if is_new and len(self.names) > 1:
            before = ", ".join(self.names[:-1])
            said = "a reply names the model %s, and those before named %s"
            LOG.warning(
                f"server %s: {said}; the judge is not the same for all rows",
                self._server,
                self.names[-1],
                before,
            )

    def as_details(self) -> dict[str, JsonValue]:
        """Return what `run.json` records of the replies; empty if none has a name or a fingerprint."""
        found: dict[str, JsonValue] = {}
        if self.names:
            found["named"] = list(self.names)
        if self.fingerprints:
            found["fingerprints"] = list(self.fingerprints)
        return found


def _add_new(values: list[str], value: Any) -> bool:
    """Add a value that a reply has to the values of earlier ones; return whether it is a new one.

    Only the beginning of a text that UTF-8 can hold is added, and no value after `MOST_VALUES`.
    """
    if not isinstance(value, str) or not value or not value.isprintable():
        return False
    beginning = value[:_LONGEST_VALUE]
    if beginning in values or len(values) == MOST_VALUES:
        return False
    values.append(beginning)
    return True
