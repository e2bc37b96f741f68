"""What the commands that listen for requests share: the address, and how a signal ends them."""

from __future__ import annotations

import signal
import socket
import sys

from localjudge.integrations.listener import ListenSettings


def accept_connections(listen: ListenSettings, bound: socket.socket) -> str:
    """Accept connections on a bound socket, and return the address to open."""
    bound.listen()
    port = bound.getsockname()[1]
    return f"http://{listen.host}:{port}"


def end_on(*signals: signal.Signals) -> None:
    """Leave every context when one of these signals ends the program; those that are ignored stay so."""
    for number in signals:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
