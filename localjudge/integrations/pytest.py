"""A plugin for pytest: `assert judged(rows).mean("helpfulness") >= 3`, with one engine for the session.

pytest finds it by its entry point. `judge_settings` in a conftest.py names the judge:

    @pytest.fixture(scope="session")
    def judge_settings():
        return {"model": "Qwen/Qwen3-8B", "rubric": "no-reference"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.integrations.judge_service import SharedJudge
    from localjudge.records import Judgement, Outcome

_SHOWN, _WIDTH = 5, 100
_NOTICES = pytest.StashKey[list[str]]()


class Mean(float):
    """The mean of a score, with the rows from which it was computed.

    Attributes:
        name: the aspect, or the label as `aspect=label`.
        scored: the score of each row with its judgement and the beginning of its response.
    """

    name: str
    scored: list[tuple[int, Judgement, str]]


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
        known = [column.name for column in self.judge.rubric.score_columns]
        if name not in known:
            raise KeyError(f"{name}: the rubric has {', '.join(known)}")
        texts = [*zip(self.outcomes, map(_beginning, self.rows), strict=True)]
        judged = [(each, text) for each, text in texts if each.status == "judged"]
        failed = [
            printable(f"  {f'{each.id}  ' * (each.id != each.source)}{each.error}") + f"\n    {text}"
            for each, text in texts
            if each.status == "failed"
        ]
        if failed or not judged:
            said = f"{len(failed)} of {len(self.outcomes)} rows could not be judged, so {name} has no mean:"
            pytest.fail("\n".join([said, *failed[:_SHOWN]]), pytrace=False)
        scored = [(self.judge.numbers(each)[name], each, text) for each, text in judged]
        mean = Mean(sum(score for score, *_ in scored) / len(scored))
        mean.name, mean.scored = name, scored
        return mean


@pytest.fixture(scope="session")
def judge_settings() -> dict[str, Any]:
    """Return the settings of the judge, as for `SharedJudge`; a project overrides this fixture."""
    return {}


@pytest.fixture(scope="session")
def judged(
    judge_settings: dict[str, Any], pytestconfig: pytest.Config
) -> Iterator[Callable[[Iterable[Any]], JudgedRows]]:
    """Judge rows, dicts as for `Judge.score`; the engine is loaded at the first rows of the session."""
    from localjudge.integrations.judge_service import SharedJudge

    judge = SharedJudge(**judge_settings)

    def judge_rows(rows: Iterable[Any]) -> JudgedRows:
        given = rows if isinstance(rows, Sequence) else [*rows]
        return JudgedRows(judge.outcomes(given), judge, given)

    yield judge_rows
    notice = judge.about["notice"]
    if notice is not None:
        pytestconfig.stash.setdefault(_NOTICES, []).append(notice)
    judge.close()


def _beginning(row: Any) -> str:
    """Return the beginning of the response in a row, or of the row if it names the response otherwise."""
    return _one_line(str(row.get("candidate") or row))


def _one_line(text: str) -> str:
    """Return the beginning of a text on one line, without characters that control a terminal."""
    return printable(" ".join(text.split())[:_WIDTH])


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show the lowest rows of a mean that an assertion compares."""
    if not isinstance(left, Mean):
        return None
    lowest = sorted(left.scored, key=lambda each: each[0])[:_SHOWN]
    return [
        f"mean {left.name} {left:.4g} of {len(left.scored)} rows {op} {right!r}",
        "lowest rows:",
        *(
            line
            for score, each, text in lowest
            for line in (f"  {score}  {printable(each.id)}  {text}", f"    {_one_line(each.rationale)}")
        ),
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what a reader of the scores must know about the judge."""
    for notice in config.stash.get(_NOTICES, []):
        terminalreporter.write_line(f"localjudge: {notice}")
