"""One judge for all callers of a process: the samples of an Inspect task, the documents of a harness, tests."""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from localjudge.integrations.judge_service import JudgeService
from localjudge.judge import Judge
from localjudge.records import Judgement, Outcome
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.rubric import Rubric


class SharedJudge:
    """A judge that many threads ask at once. Rows that wait at the same time are judged in the same batches.

    Args:
        rubric: the name of an included rubric of single responses, or its file.
        model: as for `Judge`.
        settings: other settings of a `JudgeConfig` by name.

    Raises:
        UsageError: the settings, the rubric or the model cannot be used.
    """

    def __init__(self, rubric: str = "just-eval", model: str | None = None, **settings: Any) -> None:
        self.rubric = Rubric.load(rubric)
        self.rubric.mode.require_aspects(f"`rubric` {rubric}:", "; give one that judges single responses")
        self._judge = Judge(model, rubric=self.rubric, **settings)
        self._service: JudgeService | None = None
        self._starting = threading.Lock()

    @property
    def about(self) -> dict[str, Any]:
        """What a reader of the scores must know: the rubric, the judge, and a warning about it or None.

        What only a server's answers to trials say is known when the first row is judged.
        """
        notices = self._judge.notices
        notice = "; ".join(notices) if notices else None
        return {"rubric": self.rubric.name, "model": self._judge.model.name, "notice": notice}

    def outcomes(self, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Return the outcome of each row, in their order; wait until all are judged.

        Raises:
            EngineError: the engine failed.
        """
        service = self._started_service()
        read_rows = list(rows_of_program(rows, self.rubric.fields, one_each=True))
        futures = service.submit(read_rows)
        return [future.result() for future in futures]

    def numbers(self, judgement: Judgement) -> dict[str, int]:
        """Return the score of each ordered aspect, and 1 or 0 for each label `aspect=label` of the others."""
        return {column.name: column.number(judgement) for column in self.rubric.score_columns}

    def close(self) -> None:
        """Finish the rows in flight and free the engine; the judge cannot be asked afterwards."""
        if self._service is not None:
            self._service.__exit__()
        self._judge.close()

    def _started_service(self) -> JudgeService:
        """Return the service, which the first rows start."""
        with self._starting:
            if self._service is None:
                service = JudgeService(self._judge, most_waiting=sys.maxsize)
                self._service = service.__enter__()
            return self._service


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
