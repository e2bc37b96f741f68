"""The HTTP interface of a judge service.

    POST /v1/judge              rows → outcomes; as a stream of lines if the client accepts application/x-ndjson
    POST /v1/rewards            rows → {"rewards": [a number or null for each], "errors": [if one failed]}
    POST /v1/rewards/openrlhf   {"query": [prompt + response …], "prompts": […], "labels": […]} → rewards
    POST /v1/rewards/slime      {"prompt": …, "response": …, "label": …} → a number
    GET  /v1/rubric             the fields that the rubric reads, and the columns that can have them
    GET  /health                whether the judge is ready
    GET  /metrics               counts, as Prometheus reads them

Rows are a JSON list, or JSON lines (application/x-ndjson).
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from localjudge.errors import EngineError, ServiceBusyError
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.listener import LOOPBACK
from localjudge.integrations.served_rewards import RewardFormula, openrlhf_records, slime_record
from localjudge.judge import Judge
from localjudge.modes.row_outcome import Join, RowOutcome
from localjudge.records import Outcome
from localjudge.rows.columns import names_of
from localjudge.rows.inputs import given_rows
from localjudge.rows.pairs import Pairing

_LINES = "application/x-ndjson"
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
        failed_reward: the reward of a row that could not be judged; "null" is not given to trainers that take
            only numbers.
    """

    def __init__(
        self,
        judge: Judge,
        service: JudgeService,
        rules: AccessRules,
        formula: RewardFormula | None = None,
        failed_reward: FailedReward = None,
    ) -> None:
        self._rubric, self._service, self._rules = judge.rubric, service, rules
        self._formula, self._failed_reward = formula, failed_reward
        self._pairing = Pairing.usual(judge.rubric.fields)
        self._requests = self._refused = self._held_bytes = 0

    def asgi(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/v1/judge", self._judge, methods=["POST"]),
            Route("/v1/rewards", self._rewards, methods=["POST"]),
            Route("/v1/rewards/openrlhf", self._openrlhf, methods=["POST"]),
            Route("/v1/rewards/slime", self._slime, methods=["POST"]),
            Route("/v1/rubric", self._rubric_fields),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
        ]
        middleware = [Middleware(self._counting)]
        if self._rules.token is None:
            middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)))
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
        futures = self._submitted(_rows(await self._body(request), request))
        if _LINES in request.headers.get("accept", ""):
            return StreamingResponse(self._stream(futures), media_type=_LINES)
        rows = await self._outcomes(request, futures)
        return JSONResponse({"outcomes": [self._line(row, number) for number, row in enumerate(rows, 1)]})

    async def _stream(self, futures: Mapping[Future[Outcome], int]) -> AsyncIterator[bytes]:
        """Yield a line for each row or pair as soon as it is finished; `row` is its place in the request."""
        tasks = {asyncio.wrap_future(future): number for future, number in futures.items()}
        waiting, join = set(tasks), self._join
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if row := join.add(task.result()):
                        yield json.dumps(self._line(row, tasks[task])).encode() + b"\n"
        finally:
            for future in futures:
                future.cancel()

    @property
    def _join(self) -> Join[Any]:
        """The join of the prompts of a request, whose numbers follow those of whole rows."""
        return self._rubric.mode.join(self._rubric.aspects, self._orders)

    def _line(self, row: RowOutcome, number: int) -> dict[str, Any]:
        """Return the line of a row or a pair, and its place in the request."""
        return row.line(self._rubric.columns) | {"row": number}

    async def _rewards(self, request: Request) -> Response:
        rewards, errors = await self._rewarded(request, _rows, nullable=True)
        return JSONResponse({"rewards": rewards, **({"errors": errors} if any(errors) else {})})

    async def _openrlhf(self, request: Request) -> Response:
        rewards, _ = await self._rewarded(request, lambda body, _: openrlhf_records(_json(body)))
        return JSONResponse({"rewards": rewards, "scores": rewards, "extra_logs": {}})

    async def _slime(self, request: Request) -> Response:
        rewards, _ = await self._rewarded(request, lambda body, _: [slime_record(_json(body))])
        return JSONResponse(rewards[0])

    async def _rewarded(
        self, request: Request, read: Callable[[bytearray, Request], list[Any]], nullable: bool = False
    ) -> tuple[list[float | None], list[str | None]]:
        """Return the reward of each row, null only if it may be, and why it could not be judged, or None."""
        if self._formula is None:
            raise HTTPException(404, "rewards are not served; start localjudge serve with a reward formula")
        try:
            futures = self._submitted(read(await self._body(request), request))
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        failed = None if self._failed_reward == "null" else self._failed_reward
        rewards, errors = list[float | None](), list[str | None]()
        for outcome in await self._outcomes(request, futures):
            reward, problem = failed, outcome.error
            if problem is None:
                try:
                    reward = self._formula.reward(outcome)
                except ValueError as undefined:
                    problem = str(undefined)
            rewards.append(reward)
            errors.append(problem)
        reason = next(filter(None, errors), None)
        if reason is not None and failed is None and not (nullable and self._failed_reward):
            takes = "a number, because this trainer does not take null" if self._failed_reward else "a reward"
            raise HTTPException(422, f"{reason}; `failed_reward` of localjudge serve gives such rows {takes}")
        return rewards, errors

    @property
    def _orders(self) -> int:
        return 1 if self._pairing is None else self._pairing.orders

    def _submitted(self, records: list[Any]) -> dict[Future[Outcome], int]:
        """Return the future of each prompt with the number of its row or pair in the request, from 1."""
        rows = list(given_rows(records, self._rubric.fields))
        if self._pairing is not None:
            rows = list(self._pairing.rows(rows))
        begins = (
            place % self._orders == 0 if row.criterion is None else row.criterion.part == 1
            for place, row in enumerate(rows)
        )
        try:
            return dict(zip(self._service.submit(rows), accumulate(map(int, begins)), strict=True))
        except ServiceBusyError as error:
            raise self._busy(str(error)) from None
        except EngineError as error:
            raise HTTPException(503, str(error), _RETRY) from None

    def _busy(self, reason: str) -> HTTPException:
        self._refused += 1
        return HTTPException(429, reason, _RETRY)

    async def _outcomes(self, request: Request, futures: Iterable[Future[Outcome]]) -> list[Any]:
        """Return the outcomes of the rows or pairs, in their order.

        If the client goes away, rows that have not begun are not judged.
        """
        gathered: asyncio.Future[list[Outcome]] = asyncio.gather(*map(asyncio.wrap_future, futures))
        gone = asyncio.create_task(_disconnected(request))
        gone.add_done_callback(lambda _: gathered.cancel())
        try:
            return [*self._join.all(await gathered)]
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
        self._requests += 1
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("application/json", _LINES):  # a web page cannot send these to another origin unasked
            raise HTTPException(415, f"send the rows as application/json or {_LINES}")
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
            raise self._busy(f"the bodies of all requests have more than {together:,} bytes; send this later")
        return body

    async def _rubric_fields(self, request: Request) -> Response:
        self._rules.check(request)
        used = self._rubric.fields
        fields = {name: list(names_of(name, {}, used)) for name in ("id", *used)}
        return JSONResponse({"rubric": self._rubric.name, "fields": fields})

    async def _health(self, request: Request) -> Response:
        service = self._service
        state = "failed" if service.error is not None else "ready" if service.ready else "loading"
        return JSONResponse({"state": state}, 200 if state == "ready" else 503)

    async def _metrics(self, request: Request) -> Response:
        self._rules.check(request)
        service = self._service
        values = {
            "requests_total": self._requests,
            "requests_refused_total": self._refused,
            "rows_judged_total": service.judged,
            "rows_failed_total": service.failed,
            "rows_unfinished": service.unfinished,
            "ready": int(service.ready),
        }
        lines = [
            f"# TYPE localjudge_{name} {'counter' if name.endswith('_total') else 'gauge'}\n"
            f"localjudge_{name} {value}\n"
            for name, value in values.items()
        ]
        return PlainTextResponse("".join(lines), media_type="text/plain; version=0.0.4")


def _rows(body: bytearray, request: Request) -> list[Any]:
    """Return the records of a request.

    Raises:
        HTTPException: the body has none.
    """
    if request.headers.get("content-type", "").startswith(_LINES):
        return [_json(line) for line in body.splitlines() if line.strip()]
    found = _json(body)
    if not isinstance(found, list):
        raise HTTPException(400, "give a list of rows")
    return found


def _json(body: bytes | bytearray) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"not JSON: {error}") from None


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
