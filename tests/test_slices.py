"""Tests of `--by-column`: statistics of the rows with the same value in a column of the input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from report_page import section
from scipy.stats import spearmanr
from test_compare import judged, rows_of

FEW = 300
TOPICS = ("code", "history", "maths")


def with_topics(scores: Sequence[int], text: str = "an answer", system: str = "north") -> list[dict[str, Any]]:
    return [{**row, "topic": TOPICS[at % 3]} for at, row in enumerate(rows_of(scores, text, system))]


def scores(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 5, count).tolist()


def slices(cli: Cli, *args: object) -> dict[str, Any]:
    end = cli(*args, "--by-column", "topic", "--resamples", FEW, "--json")
    assert end.code == 0, end.err
    return {row["name"]: row for row in json.loads(end.out)["slices"]["rows"]}


def test_a_change_in_one_slice_is_found_there_alone(tmp_path: Path, cli: Cli) -> None:
    before = scores(120)
    noise = np.random.default_rng(1).integers(-1, 2, 120).tolist()
    after = [score + one - (at % 3 == 2) for at, (score, one) in enumerate(zip(before, noise, strict=True))]
    old = judged(tmp_path / "old", with_topics(before))
    new = judged(tmp_path / "new", with_topics(after, "another answer"))
    found = slices(cli, "compare", old, new)
    assert {name: row["significant"] for name, row in found.items()} == {
        "code": [],
        "history": [],
        "maths": ["helpfulness fell", "overall fell"],
    }
    differences = np.subtract(after, before)
    for at, name in enumerate(TOPICS):
        assert found[name]["instructions"] == 40
        value = found[name]["estimates"]["helpfulness"]["value"]
        assert value == pytest.approx(differences[at::3].mean())
    alone = json.loads(cli("compare", old, new, "--resamples", FEW, "--json").out)["columns"]["helpfulness"]
    ends = found["maths"]["estimates"]["helpfulness"]
    assert ends["high"] - ends["low"] > alone["difference"]["high"] - alone["difference"]["low"]


def test_systems_are_ranked_in_each_slice(tmp_path: Path, cli: Cli) -> None:
    good, bad = (
        [5 - at % 2 for at in range(90)],
        [2 + at % 2 if at % 3 == 0 else 5 - at % 2 for at in range(90)],
    )
    rows = with_topics(good) + with_topics(bad, "a bad answer", "south")
    found = slices(cli, "rank", judged(tmp_path / "run", rows), "--by", "helpfulness")
    assert [found[name]["significant"] for name in TOPICS] == [["north > south"], [], []]
    assert found["code"]["estimates"]["south"]["value"] == pytest.approx(np.mean(bad[::3]))


def test_the_agreement_of_a_slice_is_that_of_its_rows_with_wider_intervals(tmp_path: Path, cli: Cli) -> None:
    given, labels = scores(90), scores(90, 1)
    run = judged(tmp_path / "run", with_topics(given))
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(labels)))
    found = slices(cli, "agree", run, "--labels", file)
    for at, name in enumerate(TOPICS):
        rho = spearmanr(given[at::3], labels[at::3]).statistic
        assert found[name]["estimates"]["helpfulness"]["value"] == pytest.approx(rho)
    only = judged(tmp_path / "only", [row for row in with_topics(given) if row["topic"] == "code"])
    alone = slices(cli, "agree", only, "--labels", file)["code"]["estimates"]["helpfulness"]
    among = found["code"]["estimates"]["helpfulness"]
    assert among["low"] < alone["low"] < alone["high"] < among["high"]


def test_equal_slices_are_called_different_in_at_most_one_of_twenty_runs() -> None:
    from localjudge.statistics.resampling import studentise
    from localjudge.statistics.system_means import column_means

    random, alarms = np.random.default_rng(2), 0
    for seed in range(200):
        changes = np.full((60, 6), np.nan)
        changes[np.arange(60), np.arange(60) % 6] = random.integers(-1, 2, 60)
        alarms += bool((studentise(column_means(changes), -4, 4, True, 300, seed).adjusted() < 0.05).any())
    assert alarms <= 16, "200 runs with 6 slices; 10 are expected at most"


def test_a_column_that_the_prompt_used_is_read_again_from_the_inputs(tmp_path: Path, cli: Cli) -> None:
    rubric = tmp_path / "topical.toml"
    rubric.write_text(
        'name = "topical"\n[aspects.wit]\nscale = { lowest = 1, highest = 5 }\n'
        '[answer]\nrationale_place = "none"\n[prompt]\n'
        'template = "{$topic}: {$instruction} {$candidate} {$aspects} {$answer_format}"\n'
    )
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in with_topics(scores(12))))
    judge = ("--engine", "dry-run", "--rubric", rubric)
    assert cli("score", file, *judge, "--out", tmp_path / "run").code == 0
    found = slices(cli, "rank", tmp_path / "run", "--allow-dry-run")
    assert {name: row["instructions"] for name, row in found.items()} == dict.fromkeys(TOPICS, 4)
    file.unlink()
    end = cli("rank", tmp_path / "run", "--allow-dry-run", "--by-column", "topic")
    assert (end.code, "no row has this column" in end.err) == (2, True)


def test_the_system_is_a_column_everywhere(tmp_path: Path, cli: Cli) -> None:
    given = {"south": scores(30), "north": scores(30, 1)}
    rows = [row for name, each in given.items() for row in with_topics(each, f"answer of {name}", name)]
    run, labels = judged(tmp_path / "run", rows), tmp_path / "labels.jsonl"
    labels.write_text(
        "".join(json.dumps({**row, "helpfulness": at % 5 + 1}) + "\n" for at, row in enumerate(rows))
    )
    for args in (("rank", run), ("agree", run, "--labels", labels)):
        end = cli(*args, "--by-column", "system", "--resamples", FEW, "--json")
        assert end.code == 0, end.err
        found = {row["name"]: row for row in json.loads(end.out)["slices"]["rows"]}
        assert {name: row["instructions"] for name, row in found.items()} == {"north": 30, "south": 30}
    ranked = json.loads(cli("rank", run, "--by", "helpfulness", "--by-column", "system", "--json").out)[
        "slices"
    ]
    means = {row["name"]: row["estimates"][row["name"]]["value"] for row in ranked["rows"]}
    assert means == {name: pytest.approx(np.mean(each)) for name, each in given.items()}
    page = tmp_path / "page.html"
    assert cli("report", run, "--by-column", "system", "--out", page).code == 0
    table = section(page, "slices")["tables"][0]
    assert [row[0] for row in table["rows"]] == ["north", "south"]


def test_a_text_that_the_prompt_reads_is_a_column(tmp_path: Path, cli: Cli) -> None:
    rows = [{**row, "gold": f"label {at % 2}"} for at, row in enumerate(rows_of(scores(20)))]
    file, how = tmp_path / "rows.jsonl", ("--engine", "dry-run", "--column", "reference=gold")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("score", file, *how, "--out", tmp_path / "run").code == 0
    end = cli("rank", tmp_path / "run", "--allow-dry-run", "--by-column", "gold", "--json")
    assert [row["name"] for row in json.loads(end.out)["slices"]["rows"]] == ["label 0", "label 1"]


def test_a_column_that_tells_rows_apart_is_no_slice(tmp_path: Path, cli: Cli) -> None:
    rows = [{**row, "number": at} for at, row in enumerate(rows_of(scores(60)))]
    end = cli("rank", judged(tmp_path / "run", rows), "--by-column", "number")
    assert (end.code, "has 60 values; give one with at most 50" in end.err) == (2, True)


def test_the_report_has_the_slices_of_the_changes_the_systems_and_the_labels(tmp_path: Path, cli: Cli) -> None:
    before, page = scores(90), tmp_path / "page.html"
    old = judged(tmp_path / "old", with_topics(before))
    new = judged(
        tmp_path / "new", with_topics([score - 1 - at // 3 % 2 for at, score in enumerate(before)], "other")
    )
    assert cli("report", old, new, "--by-column", "topic", "--out", page).code == 0
    changed = next(table for table in section(page, "changes")["tables"] if "By topic" in table["caption"])
    assert [(row[0], row[1], row[-1]) for row in changed["rows"]] == [
        (name, 30, "helpfulness fell, overall fell") for name in TOPICS
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in with_topics(before)))
    assert cli("report", old, "--labels", labels, "--by-column", "topic", "--out", page).code == 0
    shown = section(page, "slices")
    assert "adjusted for 3 slices" in shown["notes"][0]
    ranked, agreed = shown["tables"]
    for table, args in ((ranked, ("rank", old)), (agreed, ("agree", old, "--labels", labels))):
        own = slices(cli, *args)
        for row in table["rows"]:
            assert row[1] == own[row[0]]["instructions"]
            names = [column["name"] for column in table["columns"][2:-1]]
            assert names == [*own[row[0]]["estimates"]]
            for value, estimate in zip(row[2:-1], own[row[0]]["estimates"].values(), strict=True):
                assert (value or {}).get("value") == estimate["value"]
