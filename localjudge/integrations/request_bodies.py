"""The bodies of requests: the size of each is limited, and so is the size of all that are held at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from localjudge.integrations.http_refusals import busy, client_gone, stopping

_BODIES_AT_ONCE = 2
"""The bodies of all requests together may have as many times the bytes of the largest one."""


@dataclass(slots=True)
class _HeldBody:
    """The body of one request.

    Attributes:
        bytes: how many of its bytes are counted as held.
    """

    bytes: int = 0


class RequestBodies:
    """The bodies of all requests that are not answered yet.

    Args:
        most_bytes: the largest body; all of them together have at most twice as many bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._most_held_bytes = _BODIES_AT_ONCE * most_bytes
        self._held_bytes = 0

    def released_at_end(self, app: ASGIApp) -> ASGIApp:
        """Return the application; the body of a request is no longer counted when that is answered."""

        async def releasing(scope: Scope, receive: Receive, send: Send) -> None:
            held = _HeldBody()
            scope["held_body"] = held
            try:
                await app(scope, receive, send)
            finally:
                self._held_bytes -= held.bytes

        return releasing

    async def read(self, request: Request) -> bytearray:
        """Return the body of a request.

        Raises:
            HTTPException: the body is too large, there is no room for it now, or the client or this server ends
                before it is read.
        """
        content_length = int(request.headers.get("content-length", "0") or 0)
        self._check_size(content_length)
        has_room = self._has_room_for(content_length)
        held: _HeldBody = request.scope["held_body"]
        body = bytearray()
        received_bytes = 0
        try:
            async for chunk in request.stream():
                received_bytes += len(chunk)
                self._check_size(received_bytes)
                has_room = has_room and self._has_room_for(len(chunk))
                # Without room, the rest is read and dropped: a client that still sends would see no answer.
                if has_room:
                    body += chunk
                    held.bytes += len(chunk)
                    self._held_bytes += len(chunk)
        except ClientDisconnect:
            raise client_gone() from None
        except asyncio.CancelledError:
            raise stopping() from None
        if not has_room:
            raise busy(
                f"the bodies of all requests have more than {self._most_held_bytes:,} bytes; send this later"
            )
        return body

    def _check_size(self, size: int) -> None:
        """Refuse a body of this many bytes if it is too large."""
        if size > self._most_bytes:
            reason = f"the body is larger than {self._most_bytes:,} bytes; send fewer rows at a time"
            raise HTTPException(413, reason)

    def _has_room_for(self, size: int) -> bool:
        return self._held_bytes + size <= self._most_held_bytes
