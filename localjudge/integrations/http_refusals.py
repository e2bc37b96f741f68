"""The refusals of a judge service: their status, and whether the request should be repeated."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_RETRY = {"Retry-After": "5"}
"""The header of a refusal after which the same request may succeed; in seconds."""


def busy(reason: str) -> HTTPException:
    """Return the refusal of a request for which there is no room now; clients repeat it."""
    return HTTPException(429, reason, headers=_RETRY)


def unavailable(reason: str) -> HTTPException:
    """Return the refusal of a request that the judge cannot answer now; clients repeat it."""
    return HTTPException(503, reason, headers=_RETRY)


def stopping() -> HTTPException:
    """Return the refusal of a request that the end of the server interrupts; clients repeat it."""
    return unavailable("the judge is stopping; send the rows again")


def client_gone() -> HTTPException:
    """Return the refusal of a request whose client went away, so that nobody reads it."""
    return HTTPException(499, "the client went away")


async def refusal_as_json(request: Request, error: Exception) -> Response:
    """Answer a request with its refusal."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)
