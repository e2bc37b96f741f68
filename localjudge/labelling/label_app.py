"""The page for labels and its interface, for requests of this session's address alone.

GET  /?token=T      the page; it fetches nothing from elsewhere
POST /row           {annotator} → the next row
POST /label         {annotator, key, values or skipped, …} → the next row, after the answer is on disk
POST /undo          {annotator} → the row of the label that was removed
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from localjudge.errors import UsageError
from localjudge.integrations.listener import LOOPBACK
from localjudge.integrations.strict_requests import refuse_ambiguous
from localjudge.labelling.session import LabelSession
from localjudge.rubrics.answer import RepeatedKeyError, without_duplicates
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric

_MOST_BYTES = 1_000_000
"""The size of the largest body of a request."""
_NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class LabelApp:
    """The routes of the page.

    Args:
        session: the people and their rows.
        token: what every request must have.
        title: the heading of the page.
        annotator: the only person; None if the page asks for a name.
        is_local: whether requests must be for a name of this machine.
    """

    def __init__(
        self, session: LabelSession, token: str, title: str, annotator: str | None, is_local: bool
    ) -> None:
        self._session = session
        self._token = token
        self._is_local = is_local
        self._annotator = annotator
        self._head = {"title": title, "annotator": annotator} | _described(session.rubric)

    def asgi(self) -> Starlette:
        """Return the application."""
        middleware = [Middleware(refuse_ambiguous)]
        if self._is_local:
            middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)))
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/row", self._row, methods=["POST"]),
                Route("/label", self._label, methods=["POST"]),
                Route("/undo", self._undo, methods=["POST"]),
            ],
            middleware=middleware,
            exception_handlers={HTTPException: _refusal},
        )

    async def _page(self, request: Request) -> Response:
        self._check(request.query_params.get("token", ""))
        nonce = secrets.token_urlsafe(16)
        folder = files("localjudge.labelling")
        page = folder.joinpath("page.html").read_text(encoding="utf-8")
        # `<` in the data could end the script element.
        parts = {
            "NONCE": nonce,
            "STYLE": folder.joinpath("page.css").read_text(encoding="utf-8"),
            "SCRIPT": folder.joinpath("page.js").read_text(encoding="utf-8"),
            "HEAD": json.dumps(self._head).replace("<", "\\u003c"),
        }
        for name, text in parts.items():
            page = page.replace(f"{{{{{name}}}}}", text)
        policy = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; {_NOTHING_ELSE}"
        return HTMLResponse(
            page,
            headers={
                "content-security-policy": policy,
                "referrer-policy": "no-referrer",
                "cache-control": "no-store",
                "x-content-type-options": "nosniff",
            },
        )

    async def _row(self, request: Request) -> Response:
        content = await self._content_of(request)
        return self._next(self._annotator_in(content))

    async def _label(self, request: Request) -> Response:
        answer = await self._content_of(request)
        annotator = self._annotator_in(answer)
        with _refusing("not saved", "free space, then answer again"):
            is_new = self._session.add(annotator, str(answer.get("key")), answer)
        if is_new:
            return self._next(annotator)
        return self._next(annotator, message="You had answered this row already.")

    async def _undo(self, request: Request) -> Response:
        content = await self._content_of(request)
        annotator = self._annotator_in(content)
        with _refusing("not removed", "reload the page, then undo again"):
            row = self._session.undo(annotator)
        if row is None:
            return self._next(annotator)
        return _json({"row": row})

    def _next(self, annotator: str, message: str = "") -> Response:
        """Return a person's next row and progress, with a message if there is one."""
        document: dict[str, Any] = {"row": self._session.next(annotator)}
        document.update(self._session.progress(annotator))
        changes = self._session.message_of_changes()
        document["said"] = message or changes
        return _json(document)

    async def _content_of(self, request: Request) -> Mapping[str, Any]:
        """Return the content of a request that may be answered.

        Raises:
            HTTPException: the request has no valid token, comes from another page, or has no JSON object.
        """
        self._check(request.headers.get("authorization", "").removeprefix("Bearer "))
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            raise HTTPException(403, "a page of another origin cannot send labels")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise HTTPException(413, "too long")
        try:
            content = json.loads(body, object_pairs_hook=without_duplicates)
            # What cannot be written as UTF-8 JSON: half a surrogate pair, infinity.
            json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
        except RepeatedKeyError as error:  # which of the two is meant is not known
            raise HTTPException(400, f"the body {error}; give each key once") from None
        except (ValueError, RecursionError):
            raise HTTPException(400, "not JSON of finite numbers and whole characters, or too deep") from None
        if not isinstance(content, dict):
            raise HTTPException(400, "not a JSON object")
        return content

    def _annotator_in(self, content: Mapping[str, Any]) -> str:
        """Return the person of a request: the only one of the page, or the one that the request names."""
        name = self._annotator or content.get("annotator")
        if not isinstance(name, str) or not name.strip():
            raise HTTPException(400, "no annotator: give a name")
        return name.strip()

    def _check(self, token: str) -> None:
        """Refuse a request without the token of the page."""
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise HTTPException(403, "no valid token: open the address that localjudge label printed")


@contextmanager
def _refusing(what: str, then: str) -> Iterator[None]:
    """Answer with the reason why something could not be done, and with what to do.

    Args:
        what: what was not done.
        then: what to do if the disk has failed.
    """
    try:
        yield
    except UsageError as error:
        raise HTTPException(400, f"{what}: {error}") from None
    except OSError as error:
        raise HTTPException(507, f"{what}: {error.strerror}; {then}") from None


def _described(rubric: Rubric) -> dict[str, Any]:
    """Return what the page says of the aspects: each value with its text and its meaning."""
    aspects = rubric.aspects
    if aspects == Rubric.load().aspects:
        # The template of the default rubric describes its aspects for the judge alone, in words of its own.
        aspects = Rubric.load("six-aspects").aspects
    return {
        "pair": rubric.mode.pairs is not None,
        "aspects": [_described_aspect(name, aspect) for name, aspect in aspects.items()],
    }


def _described_aspect(name: str, aspect: Aspect) -> dict[str, Any]:
    """Return what the page says of an aspect."""
    values: list[dict[str, str]] = []
    for text, value in aspect.values.items():
        label = value if isinstance(value, str) else text
        values.append({"text": text, "label": label, "means": aspect.levels.get(text, "")})
    return {"name": name, "description": aspect.description, "values": values}


def _json(document: Mapping[str, Any], status: int = 200) -> Response:
    content = json.dumps(document)  # ASCII: a text can have half of a surrogate pair
    return Response(content, status, {"cache-control": "no-store"}, "application/json")


def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code)
