"""One judge for all callers of a process: the samples of an Inspect task, the documents of a harness, tests."""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from localjudge.errors import SettingError
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.reward import RewardEndpoint
from localjudge.judge import Judge
from localjudge.records import Judgement, Outcome
from localjudge.records.outcome_columns import from_line
from localjudge.rows.inputs import given_rows
from localjudge.rubrics.rubric import Rubric

_ROWS_OF_A_REQUEST = 1000


class SharedJudge:
    """A judge that many threads ask at once: an engine in this process, or a running `localjudge serve`.

    Rows that wait at the same time are judged in the same batches.

    Args:
        rubric: the name of an included rubric of single responses, or its file; the same as that of a server.
        model: as for `Judge`.
        server: the address of a `localjudge serve`, which has its own model; the environment's LOCALJUDGE_TOKEN
            is its token.
        settings: other settings of a `JudgeConfig` by name.

    Raises:
        UsageError: the settings, the rubric or the model cannot be used.
    """

    def __init__(
        self,
        rubric: str = "just-eval",
        model: str | None = None,
        server: str | None = None,
        **settings: Any,
    ) -> None:
        self.rubric = Rubric.load(rubric)
        advice = "; give one that judges single responses"
        self.rubric.mode.require("aspects", f"`rubric` {rubric}:", advice)
        if server is not None and (model is not None or settings):
            given = ", ".join(f"`{name}`" for name in ["model"] * (model is not None) + list(settings))
            raise SettingError("server", server, f"has its own model and settings; leave out {given}")
        self._server = server
        self._judge = None if server else Judge(model, rubric=self.rubric, **settings)
        self._lock = threading.Lock()

    @property
    def about(self) -> dict[str, Any]:
        """What a reader of the scores must know: the rubric, the judge, and a warning about it or None."""
        own = self._judge
        judge = {"server": self._server} if own is None else {"model": own.model.name, "notice": own.notice}
        return {"rubric": self.rubric.name, **judge}

    def outcomes(self, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Return the outcome of each row, in their order; wait until all are judged.

        Raises:
            EngineError: the engine failed.
            RuntimeError: the server refuses the rows, or does not answer after several tries.
            UsageError: the server judges by another rubric.
        """
        if self._server is not None:
            endpoint, size = RewardEndpoint(self._server), _ROWS_OF_A_REQUEST
            parts = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
            return [self._read(line) for part in parts for line in endpoint.judge(part)]
        with self._lock:
            service = self._service
        return [each.result() for each in service.submit(list(given_rows(rows, self.rubric.fields)))]

    def numbers(self, judgement: Judgement) -> dict[str, int]:
        """Return the score of each ordered aspect, and 1 or 0 for each label `aspect=label` of the others."""
        return {column.name: column.number(judgement) for column in self.rubric.score_columns}

    def close(self) -> None:
        """Finish the rows in flight and free the engine; the judge cannot be asked afterwards."""
        if "_service" in self.__dict__:
            self._service.__exit__()
        if self._judge is not None:
            self._judge.close()

    @cached_property
    def _service(self) -> JudgeService:
        assert self._judge is not None  # a server judges otherwise
        return JudgeService(self._judge, most_waiting=sys.maxsize).__enter__()

    def _read(self, line: Mapping[str, Any]) -> Outcome:
        try:
            return from_line(line, self.rubric.columns)
        except ValueError as error:
            advice = f"judges by another rubric than {self.rubric.name} ({error}); give its own as `rubric`"
            raise SettingError("server", self._server, advice) from None


def shared_judge(**settings: Any) -> SharedJudge:
    """Return this process's judge with these settings of a `SharedJudge`; the end of the process closes it.

    Raises:
        UsageError: as for `SharedJudge`.
    """
    return _shared_judge(json.dumps(settings, sort_keys=True))


@cache
def _shared_judge(settings: str) -> SharedJudge:
    judge = SharedJudge(**json.loads(settings))
    atexit.register(judge.close)
    return judge
