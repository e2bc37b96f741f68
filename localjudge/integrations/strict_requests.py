"""Requests whose framing or headers can be read in two ways are refused, and their connections closed.

A proxy before the judge could read such a request in the other way, and take its end for another request. h11,
which reads the requests, refuses two lengths that differ, other transfer encodings than `chunked`, two hosts,
and a space before the colon of a header. It joins folded headers with a space, as RFC 9112 says, and ignores
trailers. What it leaves is refused here.
"""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_SINGLE = (b"authorization", b"content-type", b"content-encoding", b"origin")
"""Headers that a request has at most once, because only one of several would be read: `origin` by `label`."""


def refuse_ambiguous(app: ASGIApp) -> ASGIApp:
    """Return an application that answers an ambiguous request with status 400 and closes its connection."""

    async def strict(scope: Scope, receive: Receive, send: Send) -> None:
        problem = _problem_of(scope)
        if problem is None:
            await app(scope, receive, send)
            return
        refusal = JSONResponse({"error": problem}, status_code=400, headers={"Connection": "close"})
        await refusal(scope, receive, send)

    return strict


def _problem_of(scope: Scope) -> str | None:
    """Return in one line why a request is ambiguous; None if it is not, or if it is none of HTTP."""
    if scope["type"] != "http":
        return None
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names:
        if b"content-length" in names:
            return "the request has Content-Length and Transfer-Encoding; send one of them"
        if scope["http_version"] == "1.0":
            return "the request has Transfer-Encoding, which HTTP/1.0 does not have; send HTTP/1.1"
    for name in _SINGLE:
        if names.count(name) > 1:
            return f"the request has the header {name.decode()} twice; send it once"
    return None
