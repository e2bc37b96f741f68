"""The options of an endpoint's address, which `serve` and `doctor` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.integrations.listener import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The values of the options."""

    host: Annotated[str, Flag("The address to listen on.", "HOST")] = "127.0.0.1"
    port: Annotated[int, Flag("The port to listen on.", "PORT")] = 8700
    token_file: Annotated[
        Path | None,
        Flag(
            "A file with the token that requests must send.  [default: the variable LOCALJUDGE_TOKEN]", "FILE"
        ),
    ] = None
    certfile: Annotated[Path | None, Flag("A TLS certificate.", "FILE")] = None
    keyfile: Annotated[Path | None, Flag("The certificate's key.", "FILE")] = None

    def listener(self) -> Listener:
        """Return the checked listener.

        Raises:
            UsageError: the options cannot be used.
        """
        from localjudge.integrations.listener import Listener

        return Listener.parse(self.host, self.port, self.token_file, self.certfile, self.keyfile)
