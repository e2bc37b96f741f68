"""The server of a judge service, the run directory that it keeps, and its end in time."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette

from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.listener import ListenSettings
from localjudge.judge import Judge
from localjudge.records import Outcome
from localjudge.records.outcome_columns import to_bytes
from localjudge.rows.pairs import Pairing
from localjudge.runs.earlier_starts import manifest_of, recorded_run
from localjudge.runs.journal import Journal, read_journal
from localjudge.runs.ownership import Ownership
from localjudge.runs.reader import JUDGEMENTS, SUMMARY
from localjudge.runs.run_manifest import MANIFEST, RunManifest, as_json
from localjudge.runs.summary import Summary

REQUEST_SECONDS, CLOSING_SECONDS = 15, 2
"""After SIGTERM, seconds to finish requests; then seconds to refuse the others, and for the engine to end its
batch. Kubernetes kills a container after 30."""


def server_config(app: Starlette, listen: ListenSettings, **others: Any) -> uvicorn.Config:
    """Return the configuration of a quiet server with the endpoint's certificate; `others` are for uvicorn."""
    return uvicorn.Config(
        app,
        ssl_certfile=listen.certfile,
        ssl_keyfile=listen.keyfile,
        log_level="warning",
        access_log=False,
        server_header=False,
        **others,
    )


class JudgeServer(uvicorn.Server):
    """A server that ends within 20 seconds; a request that is not finished then gets a 503 and can be repeated.

    Args:
        app: the application.
        service: its service.
        listen: the certificate.
    """

    def __init__(self, app: Starlette, service: JudgeService, listen: ListenSettings) -> None:
        seconds = REQUEST_SECONDS + CLOSING_SECONDS
        super().__init__(server_config(app, listen, timeout_graceful_shutdown=seconds))
        self._service = service
        service.on_error = lambda: setattr(self, "should_exit", True)

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
        if self.service is not None and self.service.running:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(error.code or 0) if isinstance(error, SystemExit) else 130)


class KeptJudgements(AbstractContextManager["KeptJudgements"]):
    """The run directory of a service. Leaving the context writes the summary, which marks the run as complete.

    A later service with the same settings appends to the same directory.

    Args:
        folder: the directory; it is created if it does not exist.
        judge: the judge of the service, whose engine is open.

    Raises:
        RunMismatchError: the folder holds a run with other settings, or something else.
        RunLockedError: another process writes to the folder.
    """

    def __init__(self, folder: Path, judge: Judge) -> None:
        self._folder, self._judge = folder, judge
        self._columns = judge.rubric.columns
        self._ownership = Ownership(folder, lambda text: None)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._ownership)
            self._manifest = self._begun()
            with self._ownership.writing(MANIFEST) as scratch:
                scratch.write_bytes(as_json(self._manifest.as_dict()))
            self._ownership.remove(SUMMARY)
            self._summary = Summary(self._manifest)
            self._before = 0
            with self._ownership.placing(JUDGEMENTS):
                self._journal = stack.enter_context(
                    Journal(self._folder / JUDGEMENTS, self._ownership.own, self._earlier())
                )
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._open:
            self._journal.sync()
            counted = self._summary.as_dict(complete=True, planned=self._summary.rows)
            with self._ownership.writing(SUMMARY) as scratch:
                scratch.write_bytes(as_json(counted))

    def add(self, outcomes: list[Outcome]) -> None:
        """Append a line for each outcome; its `row` continues the numbers of earlier services."""
        self._ownership.check()
        numbered = [
            outcome.model_copy(update={"row": self._before + (outcome.row or 0)}) for outcome in outcomes
        ]
        self._journal.append((outcome.key, to_bytes(outcome, self._columns)) for outcome in numbered)
        for outcome in numbered:
            self._summary.add(outcome)

    def _earlier(self) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of earlier services, and count them."""
        row_of = self._manifest.join().row_of
        for piece, outcome in read_journal(self._folder / JUDGEMENTS, self._columns):
            self._summary.add(outcome)
            first, prompts = row_of(outcome)
            self._before = max(self._before, first + prompts - 1)
            yield outcome.key, piece

    def _begun(self) -> RunManifest:
        """Return the manifest with this start."""
        described = self._judge.describe() | {"shard": None}
        pairing = Pairing.usual(self._judge.rubric.fields)
        before = recorded_run(self._folder, described)
        others: dict[str, Any] = {} if pairing is None else {"pairing": pairing}
        return manifest_of(before, described, self._judge, **others)
