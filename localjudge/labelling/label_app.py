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
from localjudge.rubrics.rubric import Rubric

_MOST_BYTES = 1_000_000
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
        self._session, self._token, self._is_local = session, token, is_local
        self._head = {"title": title, "annotator": annotator, **_described(session.rubric)}

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
        annotator, _ = await self._asked(request)
        return self._next(annotator)

    async def _label(self, request: Request) -> Response:
        annotator, asked = await self._asked(request)
        with _refusing("not saved", "free space, then answer again"):
            is_new = self._session.add(annotator, str(asked.get("key")), asked)
        return self._next(annotator, "" if is_new else "You had answered this row already.")

    async def _undo(self, request: Request) -> Response:
        annotator, _ = await self._asked(request)
        with _refusing("not removed", "reload the page, then undo again"):
            row = self._session.undo(annotator)
        return self._next(annotator) if row is None else _json({"row": row})

    def _next(self, annotator: str, said: str = "") -> Response:
        row, changed = self._session.next(annotator), self._session.said_of_changes()
        return _json({"row": row, **self._session.progress(annotator), "said": said or changed})

    async def _asked(self, request: Request) -> tuple[str, Mapping[str, Any]]:
        """Return the person and the content of a request that may be answered."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        self._check(given)
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            raise HTTPException(403, "a page of another origin cannot send labels")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise HTTPException(413, "too long")
        try:
            asked = json.loads(body, object_pairs_hook=without_duplicates)
            # What cannot be written as UTF-8 JSON: half a surrogate pair, infinity.
            json.dumps(asked, ensure_ascii=False, allow_nan=False).encode()
        except RepeatedKeyError as error:  # which of the two is meant is not known
            raise HTTPException(400, f"the body {error}; give each key once") from None
        except (ValueError, RecursionError):
            raise HTTPException(400, "not JSON of finite numbers and whole characters, or too deep") from None
        if not isinstance(asked, dict):
            raise HTTPException(400, "not a JSON object")
        name = self._head["annotator"] or asked.get("annotator")
        if not isinstance(name, str) or not name.strip():
            raise HTTPException(400, "no annotator: give a name")
        return name.strip(), asked

    def _check(self, given: str) -> None:
        if not hmac.compare_digest(given.encode(), self._token.encode()):
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
    # The template of the default rubric describes its aspects for the judge alone, in words of its own.
    is_default = rubric.aspects == Rubric.load().aspects
    described = Rubric.load("six-aspects").aspects if is_default else rubric.aspects
    return {
        "pair": rubric.mode.pairs is not None,
        "aspects": [
            {
                "name": name,
                "description": aspect.description,
                "values": [
                    {
                        "text": text,
                        "label": text if isinstance(value, bool | int) else value,
                        "means": aspect.levels.get(text, ""),
                    }
                    for text, value in aspect.values.items()
                ],
            }
            for name, aspect in described.items()
        ],
    }


def _json(document: Mapping[str, Any], status: int = 200) -> Response:
    content = json.dumps(document)  # ASCII: a text can have half of a surrogate pair
    return Response(content, status, {"cache-control": "no-store"}, "application/json")


def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code)
