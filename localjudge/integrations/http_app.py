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
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localjudge.errors import EngineError, ServiceBusyError
from localjudge.integrations.http_refusals import busy, client_gone, refusal_as_json, stopping, unavailable
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.listener import LOOPBACK
from localjudge.integrations.request_bodies import RequestBodies
from localjudge.integrations.served_rewards import RewardFormula
from localjudge.integrations.strict_requests import refuse_ambiguous
from localjudge.judge import Judge
from localjudge.modes import prompt_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Outcome, Row
from localjudge.rows.columns import names_of
from localjudge.rows.pairs import Pairing
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.answer import RepeatedKeyError, without_duplicates

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
        authorization = request.headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(authorization, f"Bearer {self.token}".encode()):
            raise HTTPException(401, "no valid token: send Authorization: Bearer TOKEN")


@dataclass(frozen=True, slots=True)
class _RowReward:
    """The answer to a row whose reward is asked for.

    Attributes:
        reward: its reward; of a row without one, the reward of failed rows.
        error: why it has no reward of its own; None if it has one.
    """

    reward: float | None
    error: str | None


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
        self._judge = judge
        self._rubric = judge.rubric
        self._service = service
        self._rules = rules
        self._formula = formula
        self._failed_reward = failed_reward
        self._pairing = Pairing.usual(judge.rubric.fields)
        self._bodies = RequestBodies(rules.most_bytes)

    def asgi(self) -> Starlette:
        """Return the application."""
        middleware = [Middleware(refuse_ambiguous)]
        if self._rules.token is None:
            middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)))
        middleware.append(Middleware(self._bodies.released_at_end))
        return Starlette(
            routes=[
                Route("/v1/judge", self._answer_outcomes, methods=["POST"]),
                Route("/v1/rewards", self._answer_rewards, methods=["POST"]),
                Route("/v1/rubric", self._answer_rubric),
                Route("/health", self._answer_health),
            ],
            middleware=middleware,
            exception_handlers={HTTPException: refusal_as_json},
        )

    async def _answer_outcomes(self, request: Request) -> Response:
        columns = self._rubric.columns
        lines: list[dict[str, Any]] = []
        for number, row in enumerate(await self._judged_rows(request), 1):
            line = row.line(columns)
            line["row"] = number
            lines.append(line)
        return self._with_notices({"outcomes": lines})

    async def _answer_rewards(self, request: Request) -> Response:
        formula = self._formula
        if formula is None:
            raise HTTPException(404, "rewards are not served; start localjudge serve with a reward formula")
        rows = [self._reward_of(row, formula) for row in await self._judged_rows(request)]
        document: dict[str, Any] = {"rewards": [row.reward for row in rows]}
        first_error = next((row.error for row in rows if row.error is not None), None)
        if first_error is not None:
            if self._failed_reward is None:
                advice = "`failed_reward` of localjudge serve gives such rows a reward"
                raise HTTPException(422, f"{first_error}; {advice}")
            document["errors"] = [row.error for row in rows]
        return self._with_notices(document)

    def _reward_of(self, row: RowOutcome, formula: RewardFormula) -> _RowReward:
        """Return the reward of a row, or the one of failed rows with the reason."""
        failed_reward = None if self._failed_reward == "null" else self._failed_reward
        if row.error is not None:
            return _RowReward(failed_reward, row.error)
        try:
            return _RowReward(formula.reward(row), None)
        except ValueError as error:  # not defined for this row
            return _RowReward(failed_reward, str(error))

    async def _answer_rubric(self, request: Request) -> Response:
        self._rules.check(request)
        used = self._rubric.fields
        fields = {name: list(names_of(name, {}, used=used)) for name in ("id", *used)}
        return self._with_notices({"rubric": self._rubric.name, "fields": fields})

    async def _answer_health(self, request: Request) -> Response:
        if self._service.error is not None:
            state = "failed"
        elif self._service.ready:
            state = "ready"
        else:
            state = "loading"
        return JSONResponse({"state": state}, status_code=200 if state == "ready" else 503)

    def _with_notices(self, document: dict[str, Any]) -> Response:
        """Return an answer, with what a reader of the scores must know of the judge."""
        notices = self._judge.notices
        if notices:
            document["notices"] = notices
        return JSONResponse(document)

    async def _judged_rows(self, request: Request) -> list[RowOutcome]:
        """Return the outcomes of the rows or pairs of a request, in their order.

        If the client goes away, rows that have not begun are not judged.
        """
        records = await self._records(request)
        read_rows = partial(rows_of_program, records, one_each=True)
        prompts = list(prompt_rows(read_rows, self._rubric.fields, pairing=self._pairing))
        futures = self._submit(prompts)
        outcomes = await _outcomes(futures, request)
        orders = 1 if self._pairing is None else self._pairing.orders
        # A request has all prompts of its rows, so the service numbers prompts row by row, as `join` needs.
        join = self._rubric.mode.join(self._rubric.aspects, orders)
        return list(join.all(outcomes))

    async def _records(self, request: Request) -> list[Any]:
        """Return the records of a request that may ask.

        Raises:
            HTTPException: it may not ask, or its body is not a list in JSON, or is too large.
        """
        self._rules.check(request)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":  # a web page cannot send it to another origin unasked
            raise HTTPException(415, "send the rows as application/json")
        body = await self._bodies.read(request)
        try:
            records = json.loads(body, object_pairs_hook=without_duplicates)
        except RepeatedKeyError as error:  # which of the two is meant is not known
            raise HTTPException(400, f"the body {error}; give each key once") from None
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"not JSON: {error}") from None
        if not isinstance(records, list):
            raise HTTPException(400, "give a list of rows")
        return records

    def _submit(self, prompts: Sequence[Row | Failure]) -> list[Future[Outcome]]:
        """Give prompts to the service, and return the future outcome of each.

        Raises:
            HTTPException: the service has no room, or cannot judge.
        """
        try:
            return self._service.submit(prompts)
        except ServiceBusyError as error:
            raise busy(str(error)) from None
        except EngineError as error:
            raise unavailable(str(error)) from None


async def _outcomes(futures: list[Future[Outcome]], request: Request) -> list[Outcome]:
    """Wait for the outcomes of a request's prompts; cancel those that have not begun if its client goes away.

    Raises:
        HTTPException: the client went away, the server stops, or the engine failed.
    """
    all_outcomes: asyncio.Future[list[Outcome]] = asyncio.gather(*map(asyncio.wrap_future, futures))
    disconnection = asyncio.create_task(_disconnected(request))
    disconnection.add_done_callback(lambda _: all_outcomes.cancel())
    try:
        return await all_outcomes
    except asyncio.CancelledError:
        if disconnection.done():
            raise client_gone() from None
        raise stopping() from None
    except EngineError as error:
        raise unavailable(str(error)) from None
    finally:
        disconnection.cancel()
        for future in futures:
            future.cancel()


async def _disconnected(request: Request) -> None:
    """Return when the client goes away."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
