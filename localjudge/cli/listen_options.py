"""The options of an endpoint's address, which `serve` and `doctor` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from localjudge.integrations.listener import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The values of the options."""

    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(metavar="PORT", help="The port to listen on.")] = 8700
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the token that requests must send; the variable LOCALJUDGE_TOKEN has one, too.",
        ),
    ] = None
    certfile: Annotated[Path | None, typer.Option(metavar="FILE", help="A TLS certificate.")] = None
    keyfile: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.")] = None

    def listener(self) -> Listener:
        """Return the checked listener.

        Raises:
            UsageError: the options cannot be used.
        """
        from localjudge.integrations.listener import Listener

        return Listener.parse(self.host, self.port, self.token_file, self.certfile, self.keyfile)
