"""The server of a judge service, and its end in time."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette

from localjudge.integrations.judge_service import JudgeService

REQUEST_SECONDS = 15
"""Seconds after SIGTERM to finish requests; Kubernetes kills a container after 30."""
CLOSING_SECONDS = 2
"""Seconds after these to refuse the requests that are not finished, and for the engine to end its batch."""


def server_config(app: Starlette, **options: Any) -> uvicorn.Config:
    """Return the configuration of a quiet server, with further options of uvicorn.

    Requests are read by h11 on every machine, whatever else is installed (`strict_requests`). The applications
    do nothing at their start and end (`lifespan`): of an end that they were not told of, after a second Ctrl-C,
    the server would print a traceback.
    """
    return uvicorn.Config(
        app,
        http="h11",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        **options,
    )


class JudgeServer(uvicorn.Server):
    """A server that ends within 20 seconds; a request that is not finished then gets a 503 and can be repeated.

    Args:
        app: the application.
        service: its service.
    """

    def __init__(self, app: Starlette, service: JudgeService) -> None:
        seconds = REQUEST_SECONDS + CLOSING_SECONDS
        super().__init__(server_config(app, timeout_graceful_shutdown=seconds))
        self._service = service
        service.on_error = self._exit

    def _exit(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end the others."""
        asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._service.abandon)
        await super().shutdown(sockets)


class EndInBatch:
    """Ends the process after all else is closed, if the engine is in the middle of a batch.

    Attributes:
        service: the service, as soon as there is one.
    """

    def __init__(self) -> None:
        self.service: JudgeService | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.service is None or not self.service.running:
            return
        exit_code = 130
        if isinstance(error, SystemExit):
            exit_code = int(error.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
