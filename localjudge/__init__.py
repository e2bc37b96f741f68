"""localjudge: an LLM judge that never leaves the machine.

from localjudge import Judge
for outcome in Judge("path/to/model").score(rows): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from localjudge.system.version import __version__ as __version__

if TYPE_CHECKING:
    from localjudge.config import JudgeConfig
    from localjudge.errors import (
        EngineError,
        LocalJudgeError,
        ModelError,
        RubricError,
        SettingError,
        UsageError,
    )
    from localjudge.integrations.reward import RewardEndpoint
    from localjudge.judge import Judge
    from localjudge.records import Failure, Judgement, Response, Row
    from localjudge.rows.inputs import read_rows
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs import RunObserver
    from localjudge.runs.pipeline import RunResult, score_run
    from localjudge.runs.reader import RecordedRun, load_run
    from localjudge.runs.row_source import RowSource

__all__ = [
    "EngineError",
    "Failure",
    "Judge",
    "JudgeConfig",
    "Judgement",
    "LocalJudgeError",
    "ModelError",
    "RecordedRun",
    "Response",
    "RewardEndpoint",
    "Row",
    "RowSource",
    "Rubric",
    "RubricError",
    "RunObserver",
    "RunResult",
    "SettingError",
    "UsageError",
    "load_run",
    "read_rows",
    "score_run",
]

_MODULES = {
    "errors": ("EngineError", "LocalJudgeError", "ModelError", "RubricError", "SettingError", "UsageError"),
    "config": ("JudgeConfig",),
    "judge": ("Judge",),
    "records": ("Failure", "Judgement", "Response", "Row"),
    "rows.inputs": ("read_rows",),
    "rubrics.rubric": ("Rubric",),
    "runs.reader": ("RecordedRun", "load_run"),
    "runs.pipeline": ("RunResult", "score_run"),
    "runs.row_source": ("RowSource",),
    "runs": ("RunObserver",),
    "integrations.reward": ("RewardEndpoint",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names are loaded when they are first used, so that `import localjudge` costs next to nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
