"""A plugin for pytest: `assert judged(rows).mean("helpfulness") >= 3`, with one engine for the session.

pytest finds it by its entry point. `judge_settings` in a conftest.py names the judge:

    @pytest.fixture(scope="session")
    def judge_settings():
        return {"model": "Qwen/Qwen3-8B", "rubric": "no-reference"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pytest

from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.integrations.shared_judge import SharedJudge
    from localjudge.records import Failure, Judgement, Outcome

_MOST_ROWS_SHOWN = 5
"""How many rows the message of a test that failed shows."""
_MOST_CHARACTERS = 100
"""How much of a text it shows."""
_NOTICES = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row of a mean.

    Attributes:
        score: its score.
        judgement: its judgement.
        beginning: the beginning of its response.
    """

    score: int
    judgement: Judgement
    beginning: str


class Mean(float):
    """The mean of a score, with the rows from which it was computed.

    Attributes:
        name: the aspect, or the label as `aspect=label`.
        rows: the rows.
    """

    name: str
    rows: Sequence[ScoredRow]

    @classmethod
    def of_rows(cls, name: str, rows: Sequence[ScoredRow]) -> Self:
        """Return the mean score of rows."""
        mean = cls(sum(row.score for row in rows) / len(rows))
        mean.name = name
        mean.rows = rows
        return mean


@dataclass(frozen=True)
class JudgedRows:
    """Judged rows.

    Attributes:
        outcomes: the outcome of each row, in their order.
        judge: the judge that judged them.
        rows: the rows as they were given.
    """

    outcomes: list[Outcome]
    judge: SharedJudge
    rows: Sequence[Any]

    def mean(self, name: str) -> Mean:
        """Return the mean score of an aspect, or the share of a label that is named `aspect=label`.

        The test fails if a row could not be judged, because its score is not known, or if there is no row.

        Raises:
            KeyError: the rubric has no such aspect or label; the message names those that it has.
        """
        names = [column.name for column in self.judge.rubric.score_columns]
        if name not in names:
            raise KeyError(f"{name}: the rubric has {', '.join(names)}")
        scored_rows: list[ScoredRow] = []
        failures: list[str] = []
        for outcome, row in zip(self.outcomes, self.rows, strict=True):
            beginning = _beginning(row)
            if outcome.status == "judged":
                score = self.judge.numbers(outcome)[name]
                scored_rows.append(ScoredRow(score, outcome, beginning=beginning))
            else:
                failures.append(f"  {_failure_in_words(outcome)}\n    {beginning}")
        if failures or not scored_rows:
            heading = (
                f"{len(failures)} of {len(self.outcomes)} rows could not be judged, so {name} has no mean:"
            )
            pytest.fail("\n".join([heading] + failures[:_MOST_ROWS_SHOWN]), pytrace=False)
        return Mean.of_rows(name, scored_rows)


@pytest.fixture(scope="session")
def judge_settings() -> dict[str, Any]:
    """Return the settings of the judge, as for `SharedJudge`; a project overrides this fixture."""
    return {}


@pytest.fixture(scope="session")
def judged(
    judge_settings: dict[str, Any], pytestconfig: pytest.Config
) -> Iterator[Callable[[Iterable[Any]], JudgedRows]]:
    """Judge rows, dicts as for `Judge.score`; the engine is loaded at the first rows of the session."""
    from localjudge.integrations.shared_judge import SharedJudge

    judge = SharedJudge(**judge_settings)

    def judge_rows(rows: Iterable[Any]) -> JudgedRows:
        all_rows = rows if isinstance(rows, Sequence) else list(rows)
        return JudgedRows(judge.outcomes(all_rows), judge, rows=all_rows)

    yield judge_rows
    notice = judge.about["notice"]
    if notice is not None:
        pytestconfig.stash.setdefault(_NOTICES, []).append(notice)
    judge.close()


def _beginning(row: Any) -> str:
    """Return the beginning of the response in a row, or of the row if it names the response otherwise."""
    response = row.get("candidate")
    return _one_line(str(response) if response else str(row))


def _one_line(text: str) -> str:
    """Return the beginning of a text on one line, without characters that control a terminal."""
    line = " ".join(text.split())
    return printable(line[:_MOST_CHARACTERS])


def _failure_in_words(failure: Failure) -> str:
    """Return the reason of a failure after the id of its row, if it has one of its own."""
    if failure.id == failure.source:
        return printable(failure.error)
    return printable(f"{failure.id}  {failure.error}")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show the lowest rows of a mean that an assertion compares."""
    if not isinstance(left, Mean):
        return None
    lines = [f"mean {left.name} {left:.4g} of {len(left.rows)} rows {op} {right!r}", "lowest rows:"]
    from_lowest = sorted(left.rows, key=lambda row: row.score)
    for row in from_lowest[:_MOST_ROWS_SHOWN]:
        lines.append(f"  {row.score}  {printable(row.judgement.id)}  {row.beginning}")
        lines.append(f"    {_one_line(row.judgement.rationale)}")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what a reader of the scores must know about the judge."""
    for notice in config.stash.get(_NOTICES, []):
        terminalreporter.write_line(f"localjudge: {notice}")
