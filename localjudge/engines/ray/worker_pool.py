"""The workers of a cluster as the driver knows them: who is ready, who is gone, when there is no hope left."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from localjudge.engines.ray.work_queue import WorkerEvent
from localjudge.errors import EngineError, ModelError, UsageError

MOST_DEATHS = 3
"""Deaths for each worker, with no answer from any between them, after which the engine is given up."""

_log = logging.getLogger("localjudge.ray")


class WorkerPool:
    """Hears what happens to workers, and writes it to the log.

    Args:
        wanted: as many workers are to be ready before one that cannot start is taken for a replacement.
        log: where the log is, for messages.

    Attributes:
        about: what the first ready worker said of its engine; None while none was ready.
        ready: the workers that are.
        actors: the actors of all workers.
        lost: how many were ready and are gone.
    """

    def __init__(self, wanted: int, log: Path | None) -> None:
        self.about: Mapping[str, Any] | None = None
        self.ready: set[str] = set()
        self.actors: dict[str, Any] = {}
        self.lost = 0
        self._wanted = wanted
        self._log = log
        self._ever_ready = 0
        self._starts: Counter[str] = Counter()
        self._deaths = 0
        self._reason = "often the memory is too small"

    def answered(self) -> None:
        """A worker has got somewhere."""
        self._deaths = 0

    def hear(self, told: Iterable[WorkerEvent]) -> None:
        """
        Raises:
            EngineError: workers only die; or one cannot start, before as many were ready as are wanted.
            UsageError: it cannot start, and has said what it was asked for that cannot be done.
        """
        for news in told:
            self._hear(news)
        if self._deaths >= MOST_DEATHS * max(1, len(self.ready)):
            see = f"; see {self._log}" if self._log else ""
            raise EngineError(f"workers ended {self._deaths} times with no row finished: {self._reason}{see}")

    def _hear(self, news: WorkerEvent) -> None:
        where, reason = f"worker on {news.where}", news.about.get("reason", "")
        _log.info("%s: %s%s", where, news.what, reason and f": {reason}")
        if news.what == "starting":
            self.actors[news.slot] = news.actor
            self._starts[news.slot] += 1
            self._deaths += self._starts[news.slot] > 1
        elif news.what == "ready":
            self.about = self.about or news.about
            self.ready.add(news.worker)
            self._ever_ready += 1
        else:
            self.lost += news.worker in self.ready
            self.ready.discard(news.worker)
        if news.what in ("failed", "broke"):
            self._reason = f"{where}: {reason}"
        if news.what == "failed" and self._ever_ready < self._wanted:
            kinds = {kind.__name__: kind for kind in (UsageError, ModelError)}
            raise kinds.get(news.about["kind"], EngineError)(f"{where} cannot start: {reason}")
