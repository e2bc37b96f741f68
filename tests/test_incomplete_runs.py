"""Tests of runs that are ranked before their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli

from localjudge.judge import Judge
from localjudge.matching.judged_rows import read_scores
from localjudge.runs.pipeline import score_run
from localjudge.runs.row_source import RowSource
from localjudge.runs.stop_request import StopRequest
from localjudge.studies.rank import rank

KINDS = {"good": 9, "poor": 2}
WORDS = [f"{one}{two}" for one in ("al", "be", "ga", "de") for two in ("pha", "ta", "mma", "lta", "ron")]


def rows(count: int) -> Iterator[dict[str, str]]:
    """Yield a row of a good and one of a poor system for each instruction."""
    for number in range(count):
        reference = np.random.default_rng(number).permutation(WORDS)[:10]
        for system, kept in KINDS.items():
            candidate = " ".join([*reference[:kept], *["x"] * (10 - kept)])
            yield {
                "id": str(number),
                "system": system,
                "instruction": f"Question {number}: name words.",
                "reference": " ".join(reference),
                "candidate": candidate,
                "topic": "words",
            }


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Return a judge with the bundled model, in batches of three."""
    with Judge(model="bundled", engine_args={"batch_size": "3"}) as judge:
        yield judge


class AfterSome(StopRequest):
    """Requests a stop at a number of questions whether to stop."""

    def __init__(self, number: int) -> None:
        self.left = number

    def asked(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_incomplete_runs_get_no_intervals_and_it_says_why(tmp_path: Path, judge: Judge, cli: Cli) -> None:
    out = tmp_path / "a"
    score_run(judge, RowSource.from_rows([*rows(30)]), out, stopping=AfterSome(41))
    found = rank(read_scores([out]))
    assert "not complete" in found.without_intervals
    assert all(pair.p is None and pair.difference.low is None for pair in found.pairs)
    assert all(each.low is None for system in found.systems for each in system.means.values())
    said = cli("rank", out).out
    assert "Differences are not tested" in said
    assert "the same score command continues it" in said
    assert cli("sample-size", "--difference", 0.5, "--pilot", out).out.count("\nincomplete: ") == 1
