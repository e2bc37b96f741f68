"""localjudge: an LLM judge that never leaves the machine.

from localjudge import Judge
for outcome in Judge("path/to/model").score(rows): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localjudge.errors import EngineError, LocalJudgeError, ModelError, RubricError, UsageError
    from localjudge.judge import Judge
    from localjudge.records import Failure, Judgement, Row
    from localjudge.rows.inputs import read_rows
    from localjudge.rubrics.rubric import Rubric

    __version__: str

__all__ = [
    "EngineError",
    "Failure",
    "Judge",
    "Judgement",
    "LocalJudgeError",
    "ModelError",
    "Row",
    "Rubric",
    "RubricError",
    "UsageError",
    "read_rows",
]

_MODULES = {
    "errors": ("EngineError", "LocalJudgeError", "ModelError", "RubricError", "UsageError"),
    "judge": ("Judge",),
    "records": ("Failure", "Judgement", "Row"),
    "rows.inputs": ("read_rows",),
    "rubrics.rubric": ("Rubric",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names are loaded when they are first used, so that `import localjudge` costs next to nothing."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
