"""The address of a server: by default on this machine, another host only by name."""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from localjudge.errors import UsageError

_SOCKET = "unix:"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server.

    Attributes:
        base: the URL of its API without a slash at the end, such as `http://127.0.0.1:8000/v1`.
        socket: the Unix socket; None for a host.
    """

    base: str
    socket: str | None = None

    @classmethod
    def parse(cls, text: str, allowed: Collection[str] = ()) -> Self:
        """Read the URL of a server; a URL without a path gets `/v1`.

        Args:
            text: a URL of http or https, or `unix:/path/of/socket`.
            allowed: the names of other hosts than this machine to which rows may go.

        Raises:
            UsageError: it is no such URL, or a host that is not allowed.
        """
        if text.startswith(_SOCKET):
            path = text.removeprefix(_SOCKET)
            path = "/" + path.lstrip("/") if path.startswith("//") else path
            if not Path(path).is_absolute():
                raise UsageError(f"--server {text}: give the whole path, such as unix:/run/judge.sock")
            return cls("http://localhost/v1", path)
        try:
            url = urlsplit(text)
            _ = url.port
        except ValueError as error:
            raise UsageError(f"--server {text}: {error}; give a URL such as http://127.0.0.1:8000") from None
        host = url.hostname
        if url.scheme not in ("http", "https") or not host:
            raise UsageError(
                f"--server {text}: give a URL such as http://127.0.0.1:8000, or unix:/run/judge.sock"
            )
        if url.username is not None or url.query or url.fragment:
            raise UsageError(
                f"--server {_bare(url)}: give the URL without a name, a password or a query; a key goes "
                "into the variable LOCALJUDGE_SERVER_KEY"
            )
        if host not in {name.lower() for name in allowed} and not _is_this_machine(host):
            raise UsageError(
                f"--server {text}: {host} is not this machine, and rows stay on it; to send them to that host, "
                f"name it: --allow-host {host}"
            )
        return cls(f"{url.scheme}://{url.netloc}{url.path.rstrip('/') or '/v1'}")

    @property
    def root(self) -> str:
        """The URL of the server without the path of its API."""
        return self.base.removesuffix("/v1")

    def __str__(self) -> str:
        return f"{_SOCKET}{self.socket}" if self.socket else self.base


def _bare(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def _is_this_machine(host: str) -> bool:
    """Return whether a host is a loopback address, or the name `localhost` for one."""
    if host != "localhost":
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ip_address(str(address[4][0])).is_loopback for address in found)
