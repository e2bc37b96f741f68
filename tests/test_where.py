"""Tests of `--where`: statistics of the rows with a value in a column of the input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from scipy.stats import spearmanr
from test_compare import judged, rows_of

FEW = 300
TOPICS = ("code", "history", "maths")


def with_topics(seed: int, text: str = "an answer", system: str = "north") -> list[dict[str, Any]]:
    scores = np.random.default_rng(seed).integers(2, 6, 90).tolist()
    return [{**row, "topic": TOPICS[at % 3]} for at, row in enumerate(rows_of(scores, text, system))]


def of_topic(rows: list[dict[str, Any]]) -> list[int]:
    return [row["helpfulness"] for row in rows if row["topic"] == "code"]


def test_only_the_rows_with_the_value_count_and_every_command_says_so(tmp_path: Path, cli: Cli) -> None:
    before, after, labels = with_topics(0), with_topics(1, "another answer"), tmp_path / "labels.jsonl"
    old, new = judged(tmp_path / "old", before), judged(tmp_path / "new", after)
    people = with_topics(2)
    labels.write_text("".join(json.dumps(row) + "\n" for row in people))

    def found(*command: object, rows: str) -> Any:
        end = cli(*command, "--where", "topic=code", "--resamples", FEW, "--json")
        assert end.code == 0, end.err
        document = json.loads(end.out)
        assert f"only rows with topic=code: {rows}" in document["notices"]
        return document

    (system,) = found("rank", old, rows="30 of 90")["systems"]
    assert system["means"]["helpfulness"]["value"] == pytest.approx(np.mean(of_topic(before)))
    agreement = found("agree", old, "--labels", labels, rows="30 of 90")["aspects"]["helpfulness"]
    rho = spearmanr(of_topic(before), of_topic(people)).statistic
    assert agreement["comparisons"]["integer"]["spearman"]["value"] == pytest.approx(rho)
    change = found("compare", old, new, rows="60 of 180")["columns"]["helpfulness"]
    assert change["difference"]["value"] == pytest.approx(np.mean(of_topic(after)) - np.mean(of_topic(before)))


@pytest.mark.parametrize("where", ["topic=chess", "topics=code", "topic"])
def test_a_value_that_no_row_has_is_refused(tmp_path: Path, cli: Cli, where: str) -> None:
    end = cli("rank", judged(tmp_path / "run", with_topics(0)), "--where", where)
    assert (end.code, f"--where {where}: no row has this value" in end.err) == (2, True), end.err
