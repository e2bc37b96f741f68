"""What can go wrong, as one tree.

* LocalJudgeError
    * UsageError: a flag, a rubric or an input that cannot be used as given (exit code 2)
        * SettingError: a setting of the judge with a value that it cannot have
        * RubricError: a rubric file that cannot be read or does not hold together
        * ModelError: a model directory that cannot be found or cannot judge
        * RunMismatchError: a run directory that belongs to a different run
        * RunLockedError: a run directory that another process is writing
    * EngineError: the engine broke in the middle of a run (exit code 1)
    * RunBrokenError: the run directory was taken away or taken over, or its disk is full (exit code 1)

A single row that cannot be judged is not an exception: it ends as a `Failure`.
"""

from __future__ import annotations


class LocalJudgeError(Exception):
    """The root of the tree. Its message says what, where, and what to do."""

    exit_code = 1


class UsageError(LocalJudgeError):
    """Something was asked for that cannot be done as asked."""

    exit_code = 2


class SettingError(UsageError):
    """A setting of the judge has a value that it cannot have.

    Args:
        name: the setting's name, such as `top_p`; the command line shows it as `--top-p`.
        value: the value that was given.
        advice: what to give instead.
    """

    def __init__(self, name: str, value: object, advice: str) -> None:
        super().__init__(f"{name} {value}: {advice}")
        self.name, self.value, self.advice = name, value, advice


class RubricError(UsageError):
    """A rubric that cannot be used."""


class ModelError(UsageError):
    """A model that cannot be found, loaded, or made to answer."""


class RunMismatchError(UsageError):
    """A run directory that holds a different run."""


class RunLockedError(UsageError):
    """A run directory that another process is writing."""


class EngineError(LocalJudgeError):
    """The engine broke while judging."""


class RunBrokenError(LocalJudgeError):
    """A run directory that this process cannot write any more."""
