"""The address and the token of an endpoint, checked before a model is loaded."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from localjudge.errors import SettingError
from localjudge.settings import Flag

TOKEN = "LOCALJUDGE_TOKEN"
"""The environment variable with the token that requests must send."""
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
"""The names of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """Where an endpoint listens; each setting has a flag of its name. Port 0 is any that is free."""

    host: Annotated[str, Flag("The address to listen on.", "HOST")] = "127.0.0.1"
    port: Annotated[int, Flag("The port to listen on.", "PORT")] = 8700
    token_file: Annotated[
        Path | None,
        Flag(
            "A file with the token that requests must send.  [default: the variable LOCALJUDGE_TOKEN]", "FILE"
        ),
    ] = None

    def checked_token(self) -> str | None:
        """Read the token, from a file or the variable `LOCALJUDGE_TOKEN`, and check the address.

        Raises:
            SettingError: the file cannot be read, or other machines could ask without a token.
        """
        token = _token(self.token_file)
        if self.host not in LOOPBACK and token is None:
            advice = f"other machines could use this judge; give `token_file` FILE, or set {TOKEN}"
            raise SettingError("host", self.host, advice)
        return token

    def bind(self) -> socket.socket:
        """Return a socket with this address.

        Raises:
            SettingError: the address is taken, or not one of this machine.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.host, self.port))
        except (OSError, OverflowError) as error:
            bound.close()
            reason = str(error)
            if isinstance(error, OSError) and error.strerror:
                reason = error.strerror
            advice = f"port {self.port}: {reason}; give an address of this machine and a free port"
            raise SettingError("host", self.host, advice) from None
        return bound


def _token(file: Path | None) -> str | None:
    """Return the token of a file, or without one that of the environment; None if there is none.

    Raises:
        SettingError: the file cannot be read, or is empty.
    """
    if file is None:
        token = os.environ.get(TOKEN, "")
        return token if token else None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("token_file", file, f"cannot be read: {error}") from None
    if not token:
        raise SettingError("token_file", file, "is empty; write a token into it")
    return token
