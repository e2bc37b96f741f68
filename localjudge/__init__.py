"""localjudge: an LLM judge that never leaves the machine.

from localjudge import Judge
for outcome in Judge("path/to/model").score(rows): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localjudge.config import JudgeConfig as JudgeConfig
    from localjudge.errors import EngineError as EngineError
    from localjudge.errors import LocalJudgeError as LocalJudgeError
    from localjudge.errors import ModelError as ModelError
    from localjudge.errors import RubricError as RubricError
    from localjudge.errors import SettingError as SettingError
    from localjudge.errors import UsageError as UsageError
    from localjudge.integrations.reward import RewardEndpoint as RewardEndpoint
    from localjudge.judge import Judge as Judge
    from localjudge.records import Failure as Failure
    from localjudge.records import Judgement as Judgement
    from localjudge.records import Response as Response
    from localjudge.records import Row as Row
    from localjudge.rows.inputs import read_rows as read_rows
    from localjudge.rubrics.rubric import Rubric as Rubric
    from localjudge.runs.pipeline import RunResult as RunResult
    from localjudge.runs.pipeline import score_run as score_run
    from localjudge.runs.recorded_run import RecordedRun as RecordedRun
    from localjudge.runs.recorded_run import load_run as load_run
    from localjudge.runs.row_source import RowSource as RowSource
    from localjudge.runs.run_observer import RunObserver as RunObserver

__version__ = "0.1.0"

_MODULES = {
    "errors": ("EngineError", "LocalJudgeError", "ModelError", "RubricError", "SettingError", "UsageError"),
    "config": ("JudgeConfig",),
    "judge": ("Judge",),
    "records": ("Failure", "Judgement", "Response", "Row"),
    "rows.inputs": ("read_rows",),
    "rubrics.rubric": ("Rubric",),
    "runs.recorded_run": ("RecordedRun", "load_run"),
    "runs.pipeline": ("RunResult", "score_run"),
    "runs.row_source": ("RowSource",),
    "runs.run_observer": ("RunObserver",),
    "integrations.reward": ("RewardEndpoint",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Names are loaded when they are first used, so that `import localjudge` costs next to nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
