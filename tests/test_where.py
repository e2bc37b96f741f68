"""Tests of `--where`: statistics of the rows with a value in a column of the input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import Cli, random_model
from pair_runs import judged_pairs, write_responses
from scipy.stats import spearmanr
from test_compare import judged, rows_of, scores

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
    change = found("compare", old, new, rows="30 of 90")["columns"]["helpfulness"]
    assert change["difference"]["value"] == pytest.approx(np.mean(of_topic(after)) - np.mean(of_topic(before)))


def test_compare_chooses_rows_of_old_and_finds_theirs_in_new_whatever_its_columns(
    tmp_path: Path, cli: Cli
) -> None:
    rows = rows_of(scores(60, seed=1))
    rows += [{**row, "candidate": f"again {row['candidate']}", "helpfulness": 1} for row in rows]
    marked = [{**row, "topic": "code" if at < 60 else "history"} for at, row in enumerate(rows)]
    failing = [{**row, "helpfulness": None} if at >= 60 else row for at, row in enumerate(rows)]
    further = {"instruction": "another", "candidate": "a", "system": "north", "helpfulness": 3, "clarity": 3}
    old = judged(tmp_path / "old", marked)
    for number, after in enumerate(
        (rows, failing, [{**row, "topic": "other"} for row in rows], [*rows, further])
    ):
        junit = tmp_path / f"{number}.xml"
        gate = ("--margin", "helpfulness=0.2", "--max-failed", "0.2", "--junit", junit)
        end = cli(
            "compare", old, judged(tmp_path / f"new{number}", after), "--where", "topic=code", *gate, "--json"
        )
        assert end.code == 0, end.out + end.err
        found = json.loads(end.out)
        change = found["columns"]["helpfulness"]
        assert (found["rows"], found["missing"], found["unmatched"]) == (60, [], []), number
        assert (change["difference"]["value"], found["notices"][0]) == (
            0,
            "only rows with topic=code: 60 of 120",
        )
        assert ElementTree.parse(junit).getroot().attrib["name"].endswith(" --where topic=code")


@pytest.mark.parametrize("systems", [1, 3])
@pytest.mark.parametrize("judge", ["a judge", "another judge"])
@pytest.mark.parametrize("lost", [{"helpfulness": None}, {"candidate": None}, None])
def test_a_gate_fails_if_new_lost_the_score_of_every_row_that_counts(
    tmp_path: Path, cli: Cli, lost: dict[str, Any] | None, judge: str, systems: int
) -> None:
    before = [{**row, "system": f"s{at % systems}"} for at, row in enumerate(with_topics(0))]
    after = [
        row if row["topic"] != "code" else {**row, **(lost or {})}
        for row in before
        if lost or row["topic"] != "code"
    ]
    runs = judged(tmp_path / "old", before), judged(tmp_path / "new", after, judge)
    asked = ("--where", "topic=code", "--margin", "helpfulness=0.2", "--max-failed", "0.5")
    end = cli("compare", *runs, *asked, "--json", "--resamples", FEW)
    found = json.loads(end.out)
    assert (end.code, len(found["missing"]), found["columns"]) == (3, 30, {}), end.err
    drops = [gate["change"] * gate["lost"] for gate in found["gate"] if gate["column"]]
    assert sum(drops) == pytest.approx(sum(1 - score for score in of_topic(before)))
    assert {gate["change"] for gate in found["gate"] if not gate["column"]} == {1.0}
    said = " ".join(cli("compare", *runs, *asked, "--resamples", FEW).out.split())
    assert "No row has a score in both runs." in said
    assert cli("compare", *runs, *asked[:2]).code == 2, "without a gate, nothing is left to say"


def test_a_gate_on_rows_that_have_no_score_in_old_is_refused(tmp_path: Path, cli: Cli) -> None:
    after = with_topics(0)
    before = [{**row, "helpfulness": None} if row["topic"] == "code" else row for row in after]
    runs = judged(tmp_path / "old", before), judged(tmp_path / "new", after)
    for gate in ((), ("--margin", "helpfulness=0.2"), ("--max-failed", "0.5")):
        end = cli("compare", *runs, "--where", "topic=code", *gate)
        assert (end.code, end.out) == (2, "")
        assert "old: has no row with a score to compare" in end.err


def test_a_gate_for_a_named_system_without_a_score_in_old_is_refused(tmp_path: Path, cli: Cli) -> None:
    after = [{**row, "system": f"s{at % 2}"} for at, row in enumerate(with_topics(0))]
    before = [{**row, "helpfulness": None} if row["system"] == "s1" else row for row in after]
    runs = judged(tmp_path / "old", before), judged(tmp_path / "new", after)
    gate = ("--margin", "helpfulness=2", "--resamples", FEW)
    assert cli("compare", *runs, *gate, "--system", "s0").code == 0
    end = cli("compare", *runs, *gate, "--system", "s0", "--system", "s1")
    assert (end.code, "--system s1: has no row with a score in old" in end.err) == (2, True)


def test_a_selection_that_failed_in_new_is_refused_with_the_number_of_its_rows(
    tmp_path: Path, cli: Cli
) -> None:
    before = with_topics(0)
    after = [{**row, "helpfulness": None} if row["topic"] == "code" else row for row in before]
    runs = judged(tmp_path / "old", before), judged(tmp_path / "new", after)
    end = cli("compare", *runs, "--where", "topic=code")
    assert (end.code, "30 of 30 failed in new: no score of helpfulness" in end.err) == (2, True), end.err


def test_labels_of_other_rows_match_no_row_that_counts(tmp_path: Path, cli: Cli) -> None:
    run, labels = judged(tmp_path / "run", with_topics(0)), tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in with_topics(2)))
    for command in ("agree", "rank"):
        end = cli(command, run, "--labels", labels, "--where", "topic=code", "--resamples", FEW, "--json")
        assert "60 of 90 label records match no judged row that counts" in end.out, end.err


def test_a_system_chooses_the_pairs_of_which_it_wrote_either_response(tmp_path: Path, cli: Cli) -> None:
    rows = write_responses(tmp_path / "rows.jsonl")
    run = judged_pairs(rows, random_model(tmp_path / "model"), tmp_path / "run")
    for where, pairs in (("system=x", 5), ("system=y", 5), ("system_b=y", 3)):
        end = cli("rank", run, "--where", where, "--resamples", FEW, "--json")
        assert f"only rows with {where}: {pairs} of 7" in json.loads(end.out)["notices"], end.out


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("topic=chess", "no row has this value; its values are code, history, maths"),
        ("short=True", "no row has this value; its values are false, true"),
        ("topics=code", "no row has this column; a run keeps what its prompt does not use: "),
        ("nosuch=null", "no row has this column; a run keeps what its prompt does not use: "),
        ("candidate=an answer 0", "no row has this column; a run keeps what its prompt does not use: "),
        ("topic", "write COLUMN=VALUE, such as topic=code"),
        ("", "write COLUMN=VALUE, such as topic=code"),
        ("=code", "write COLUMN=VALUE, such as topic=code"),
    ],
)
def test_a_value_that_no_row_has_is_refused_with_those_that_rows_have(
    tmp_path: Path, cli: Cli, where: str, problem: str
) -> None:
    rows = [{**row, "short": at < 9} for at, row in enumerate(with_topics(0))]
    end = cli("rank", judged(tmp_path / "run", rows), "--where", where)
    said = " ".join(end.err.split())
    assert (end.code, f"--where {where}: {problem}" in said) == (2, True), end.err
    assert ("short, system, topic" in said) is ("column;" in problem)
