"""The order in which a judge yields outcomes: that of the rows, or the one in which they are finished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localjudge import Failure, Judge, Judgement, UsageError
from localjudge import judge as judge_module
from localjudge.errors import EngineError
from localjudge.judge import Order
from localjudge.records import Outcome

OPTIONS = {"dtype": "float32", "batch_size": "4"}


@pytest.fixture
def judge(model: Path, short_rubric: Path) -> Iterator[Judge]:
    with Judge(model, rubric=short_rubric, max_rationale_tokens=3, engine_args=OPTIONS) as opened:
        yield opened


def rows(count: int) -> list[dict[str, Any]]:
    """Return rows of very different lengths; each seventh has no candidate, so its failure is ready at once."""
    return [
        {"id": f"r{n}", "instruction": f"Question {n}?", "reference": "Yes."}
        | ({} if n % 7 == 6 else {"candidate": "word " * (1 + n * 37 % 90)})
        for n in range(count)
    ]


def test_outcomes_come_in_the_order_of_their_rows(judge: Judge) -> None:
    given = rows(40)
    outcomes = list(judge.score(given))
    assert [outcome.id for outcome in outcomes] == [row["id"] for row in given]
    assert [outcome.row for outcome in outcomes] == list(range(1, 41))
    for row, outcome in zip(given, outcomes, strict=True):
        assert (outcome.status == "judged") == ("candidate" in row)


def test_a_stream_may_ask_for_outcomes_as_they_are_finished(judge: Judge) -> None:
    finished = list(judge.score(iter(rows(40)), order="finished"))
    assert [outcome.row for outcome in finished] != list(range(1, 41)), "the failures were ready first"
    assert isinstance(finished[0], Failure)
    assert sorted(finished, key=lambda outcome: outcome.row or 0) == list(judge.score(rows(40)))
    with pytest.raises(UsageError, match=r"^`order` sorted: give rows or finished$"):
        judge.score(rows(1), order="sorted")  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1, 6])
def test_few_outcomes_wait_for_an_earlier_row(judge: Judge, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The first row is the only one of its length, so its batch is not full before the end of the rows."""
    given = [{**rows(1)[0], "id": "long", "candidate": "word " * 700}, *rows(40)]
    complete, finished = judge.engine.complete, list[int]()

    def counted(prompts: Any) -> Iterator[Any]:
        for batch in complete(prompts):
            finished.extend(each.tag for each in batch)
            yield batch

    monkeypatch.setattr(judge.engine, "complete", counted)
    monkeypatch.setattr(judge_module, "_MOST_EARLY", most)
    outcomes = judge.score(given)
    first = next(outcomes)
    assert (first.id, first.status) == ("long", "judged")
    assert len(finished) <= most + 2 * 4, "the rest of the rows waits"
    assert [outcome.id for outcome in outcomes] == [row["id"] for row in given[1:]]
    assert len(finished) == 36


@pytest.mark.parametrize("order", ["rows", "finished"])
def test_an_engine_that_fails_loses_no_outcome(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    complete = judge.engine.complete

    def broken(prompts: Any) -> Iterator[Any]:
        for number, batch in enumerate(complete(prompts)):
            if number == 2:
                raise EngineError("no memory")
            yield batch

    monkeypatch.setattr(judge.engine, "complete", broken)
    found: list[Outcome] = []
    with pytest.raises(EngineError, match="no memory"):
        found.extend(judge.score(rows(40), order))  # `extend` keeps what came before the error
    judged = [outcome for outcome in found if isinstance(outcome, Judgement)]
    assert len(judged) == 8, "both batches"
    if order == "rows":
        assert [outcome.row for outcome in found] == sorted(outcome.row or 0 for outcome in found)


def test_pairs_come_in_their_order_and_their_verdicts_do_not_depend_on_it(model: Path) -> None:
    pairs = [
        {"id": f"p{n}", "instruction": "Q?", "candidate_a": "word " * (n * 37 % 90), "candidate_b": "b"}
        for n in range(12)
    ]
    pairs[5].pop("candidate_b")
    with Judge(model, rubric="pairwise", max_rationale_tokens=3, engine_args=OPTIONS) as judge:
        found = list(judge.compare(pairs))
        finished = {pair.id: pair for pair in judge.compare(pairs, order="finished")}
    assert [pair.id for pair in found] == [pair["id"] for pair in pairs]
    assert {pair.id: pair for pair in found} == finished


def test_rows_with_criteria_come_in_their_order(model: Path) -> None:
    given = [
        {
            "id": f"r{n}",
            "instruction": "Q?",
            "candidate": "word " * (n * 37 % 90),
            "criteria": ["a"] * (1 + n % 3),
        }
        for n in range(9)
    ]
    with Judge(model, rubric="checklist", max_rationale_tokens=3, engine_args=OPTIONS) as judge:
        assert [outcome.id for outcome in judge.check(given)] == [row["id"] for row in given]
