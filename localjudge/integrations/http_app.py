"""The HTTP interface of a judge service.

POST /v1/judge      a JSON list of rows → {"outcomes": […]}
POST /v1/rewards    a JSON list of rows → {"rewards": [a number or null for each], "errors": [if one failed]}
GET  /v1/rubric     the fields that the rubric reads, and the columns that can have them
GET  /health        whether the judge is ready

The answers of the first three have "notices", what a reader of the scores must know of the judge, if there are
any.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from localjudge.errors import EngineError, ServiceBusyError
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.listener import LOOPBACK
from localjudge.integrations.served_rewards import RewardFormula
from localjudge.integrations.strict_requests import refuse_ambiguous
from localjudge.judge import Judge
from localjudge.modes import prompt_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Outcome
from localjudge.rows.columns import names_of
from localjudge.rows.pairs import Pairing
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.answer import RepeatedKeyError, without_duplicates

_RETRY = {"Retry-After": "5"}
_BODIES_AT_ONCE = 2
"""The bodies of all requests together may have as many times the bytes of the largest one."""
FailedReward = float | Literal["null"] | None
"""The reward of a row that could not be judged; None answers such a request with an error."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may ask, and how much.

    Attributes:
        token: the bearer token that a request needs. None for none; then a request must name this machine,
            because a web page could send requests through a host name of its own (DNS rebinding).
        most_bytes: the largest body of a request; those of all unfinished requests have at most twice as many.
    """

    token: str | None = None
    most_bytes: int = 64_000_000

    def check(self, request: Request) -> None:
        """Refuse a request without the token."""
        if self.token is None:
            return
        given = request.headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise HTTPException(401, "no valid token: send Authorization: Bearer TOKEN")


class JudgeApp:
    """The routes of a service.

    Args:
        judge: the judge of the service.
        service: the service, whose context is entered.
        rules: who may ask, and how much.
        formula: the reward of a judgement; None if rewards are not served.
        failed_reward: the reward of a row that could not be judged.
    """

    def __init__(
        self,
        judge: Judge,
        service: JudgeService,
        rules: AccessRules,
        formula: RewardFormula | None = None,
        failed_reward: FailedReward = None,
    ) -> None:
        self._judge_of_rows, self._rubric, self._service, self._rules = judge, judge.rubric, service, rules
        self._formula, self._failed_reward = formula, failed_reward
        self._pairing = Pairing.usual(judge.rubric.fields)
        self._held_bytes = 0

    def asgi(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/v1/judge", self._judge, methods=["POST"]),
            Route("/v1/rewards", self._rewards, methods=["POST"]),
            Route("/v1/rubric", self._rubric_fields),
            Route("/health", self._health),
        ]
        middleware = [Middleware(refuse_ambiguous)]
        if self._rules.token is None:
            middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)))
        middleware.append(Middleware(self._counting))
        return Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _refusal})

    def _counting(self, app: ASGIApp) -> ASGIApp:
        """Return the application; the bytes that it holds for a request are free when that is answered."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            scope["held"] = held = [0]
            try:
                await app(scope, receive, send)
            finally:
                self._held_bytes -= held[0]

        return counted

    async def _judge(self, request: Request) -> Response:
        columns = self._rubric.columns
        rows = enumerate(await self._outcomes(request), 1)
        return self._answer({"outcomes": [row.line(columns) | {"row": number} for number, row in rows]})

    def _answer(self, document: dict[str, Any]) -> Response:
        """Return an answer, with what a reader of the scores must know of the judge."""
        notices = self._judge_of_rows.notices
        return JSONResponse(document | {"notices": notices} if notices else document)

    async def _rewards(self, request: Request) -> Response:
        if self._formula is None:
            raise HTTPException(404, "rewards are not served; start localjudge serve with a reward formula")
        failed = None if self._failed_reward == "null" else self._failed_reward
        rewards, errors = list[float | None](), list[str | None]()
        for outcome in await self._outcomes(request):
            reward, problem = failed, outcome.error
            if problem is None:
                try:
                    reward = self._formula.reward(outcome)
                except ValueError as undefined:
                    problem = str(undefined)
            rewards.append(reward)
            errors.append(problem)
        reason = next(filter(None, errors), None)
        if reason is not None and self._failed_reward is None:
            raise HTTPException(422, f"{reason}; `failed_reward` of localjudge serve gives such rows a reward")
        document: dict[str, Any] = {"rewards": rewards}
        if reason is not None:
            document["errors"] = errors
        return self._answer(document)

    async def _outcomes(self, request: Request) -> list[RowOutcome]:
        """Return the outcomes of the rows or pairs of a request, in their order.

        If the client goes away, rows that have not begun are not judged.
        """
        read = partial(rows_of_program, _records(await self._body(request)), one_each=True)
        rows = list(prompt_rows(read, self._rubric.fields, self._pairing))
        orders = 1 if self._pairing is None else self._pairing.orders
        try:
            futures = self._service.submit(rows)
        except ServiceBusyError as error:
            raise HTTPException(429, str(error), _RETRY) from None
        except EngineError as error:
            raise HTTPException(503, str(error), _RETRY) from None
        gathered: asyncio.Future[list[Outcome]] = asyncio.gather(*map(asyncio.wrap_future, futures))
        gone = asyncio.create_task(_disconnected(request))
        gone.add_done_callback(lambda _: gathered.cancel())
        try:
            # The numbers of the rows of a request follow those of whole rows.
            return [*self._rubric.mode.join(self._rubric.aspects, orders).all(await gathered)]
        except asyncio.CancelledError:
            raise _client_gone() if gone.done() else _stopping() from None
        except EngineError as error:
            raise HTTPException(503, str(error), _RETRY) from None
        finally:
            gone.cancel()
            for future in futures:
                future.cancel()

    async def _body(self, request: Request) -> bytearray:
        """Return the body of a request that may ask."""
        self._rules.check(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # a web page cannot send it to another origin unasked
            raise HTTPException(415, "send the rows as application/json")
        most = self._rules.most_bytes
        too_large = HTTPException(413, f"the body is larger than {most:,} bytes; send fewer rows at a time")
        length = int(request.headers.get("content-length", "0") or 0)
        body, received, together = bytearray(), 0, _BODIES_AT_ONCE * most
        if length > most:
            raise too_large
        held, holds = request.scope["held"], self._held_bytes + length <= together
        try:
            async for piece in request.stream():
                received += len(piece)
                if received > most:
                    raise too_large
                if holds := holds and self._held_bytes + len(piece) <= together:
                    body += piece
                    held[0] += len(piece)
                    self._held_bytes += len(piece)
        except ClientDisconnect:
            raise _client_gone() from None
        except asyncio.CancelledError:
            raise _stopping() from None
        if not holds:  # the rest was read, because a client that still sends would not see the answer
            busy = f"the bodies of all requests have more than {together:,} bytes; send this later"
            raise HTTPException(429, busy, _RETRY)
        return body

    async def _rubric_fields(self, request: Request) -> Response:
        self._rules.check(request)
        used = self._rubric.fields
        fields = {name: list(names_of(name, {}, used)) for name in ("id", *used)}
        return self._answer({"rubric": self._rubric.name, "fields": fields})

    async def _health(self, request: Request) -> Response:
        service = self._service
        state = "failed" if service.error is not None else "ready" if service.ready else "loading"
        return JSONResponse({"state": state}, 200 if state == "ready" else 503)


def _records(body: bytearray) -> list[Any]:
    """Return the records of a request.

    Raises:
        HTTPException: the body has none.
    """
    try:
        found = json.loads(body, object_pairs_hook=without_duplicates)
    except RepeatedKeyError as error:  # which of the two is meant is not known
        raise HTTPException(400, f"the body {error}; give each key once") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"not JSON: {error}") from None
    if not isinstance(found, list):
        raise HTTPException(400, "give a list of rows")
    return found


def _client_gone() -> HTTPException:
    return HTTPException(499, "the client went away")


def _stopping() -> HTTPException:
    """Return the refusal of a request that the end of the server interrupts; clients repeat it."""
    return HTTPException(503, "the judge is stopping; send the rows again", _RETRY)


async def _disconnected(request: Request) -> None:
    """Return when the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=dict(error.headers or {}))
