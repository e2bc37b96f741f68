"""Tests of the gate of `rank`, plain thresholds for each system's mean, and of the rows that have no score."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from scipy.stats import ttest_1samp
from scripted import scripted_checks
from test_compare import judged
from test_gate import pair_run as pair_run

from localjudge import RowSource, score_run

FEW = 200


def rows(lost: Mapping[str, int], count: int = 40, responses: int = 2) -> list[dict[str, Any]]:
    """Return rows of two systems with random scores, of which each has lost the first ones."""
    random = np.random.default_rng(0)
    return [
        {
            "id": f"{at}-{place}-{system}",
            "instruction": f"q{at}",
            "candidate": f"a{at} {place} {system}",
            "system": system,
            "help": None if responses * at + place < lost.get(system, 0) else int(random.integers(3, 6)),
        }
        for at in range(count)
        for place in range(1 + at % responses)
        for system in ("north", "south")
    ]


def means(given: list[dict[str, Any]], system: str, lost_score: float | None) -> list[float]:
    """Return the mean of a system on each instruction."""
    of_instruction: dict[str, list[float]] = {}
    for row in given:
        score = lost_score if row["help"] is None else row["help"]
        if row["system"] == system and score is not None:
            of_instruction.setdefault(row["instruction"], []).append(score)
    return [float(np.mean(each)) for each in of_instruction.values()]


def test_a_mean_passes_a_plain_threshold_and_its_line_says_how_uncertain_it_is(
    tmp_path: Path, cli: Cli
) -> None:
    given = rows({})
    run = judged(tmp_path / "run", given, aspects=["help"])
    for least, code in ((3.0, 0), (4.9, 3)):
        end = cli("rank", run, "--min", f"help={least}", "--resamples", FEW, "--json")
        assert end.code == code, end.err
        gate = {each["system"]: each for each in json.loads(end.out)["gate"]}
        for system in ("north", "south"):
            values = means(given, system, None)
            low, high = ttest_1samp(values, 0).confidence_interval(0.95)
            assert gate[system]["change"] == pytest.approx(np.mean(values))
            assert gate[system]["half_width"] == pytest.approx((high - low) / 2)
            assert gate[system]["passes"] == (np.mean(values) >= least)
    said = " ".join(cli("rank", run, "--min", "help=3", "--resamples", FEW).out.split())
    assert "without confidence: 40 instructions, ±" in said
    assert "Gate: passed" in said


def test_a_row_without_a_score_fails_a_threshold_unless_it_is_said_how_many_may_be_lost(
    tmp_path: Path, cli: Cli
) -> None:
    given = rows({"south": 3})
    run = judged(tmp_path / "run", given, aspects=["help"])
    end = cli("rank", run, "--min", "help=2", "--resamples", FEW, "--json")
    gate = {each["system"]: each for each in json.loads(end.out)["gate"]}
    assert (end.code, gate["north"]["passes"], gate["south"]["passes"]) == (3, True, False)
    assert gate["south"]["lost"] == 2, "the first instruction has one response"
    end = cli("rank", run, "--min", "help=2", "--max-failed", "0.2", "--resamples", FEW, "--json")
    assert end.code == 0, end.out
    [south, *_] = [each for each in json.loads(end.out)["gate"] if each["system"] == "south" and each["column"]]
    assert south["change"] == pytest.approx(np.mean(means(given, "south", 1.0)))
    assert south["measured"] == pytest.approx(np.mean(means(given, "south", None)))


def test_a_threshold_never_passes_when_one_more_row_is_lost_or_lower(tmp_path: Path, cli: Cli) -> None:
    given = rows({})
    rooms = []
    changes: list[dict[str, Any]] = [{}, {"help": 1}, {"help": None}, {"candidate": None}]
    for number, change in enumerate(changes):
        # The other instructions have the lowest score, so that one that is lost whole would raise the mean.
        low = [row | {"help": 1} if row["instruction"] != "q3" else row for row in given]
        changed = [row | change if row["id"] == "3-1-south" else row for row in low]
        run = judged(tmp_path / f"run{number}", changed, aspects=["help"])
        flags = ("--min", "help=3.5", "--max-failed", "0.2", "--resamples", FEW, "--json")
        gate = json.loads(cli("rank", run, *flags).out)["gate"]
        rooms.append([each["room"] for each in gate if each["system"] == "south"])
    for before, after in pairwise(rooms):
        assert all(worse <= better + 1e-9 for better, worse in zip(before, after, strict=True))


def test_a_system_that_lost_every_row_is_named_and_fails(tmp_path: Path, cli: Cli) -> None:
    run = judged(tmp_path / "run", rows({"south": 1000}), aspects=["help"])
    end = cli("rank", run, "--resamples", FEW)
    assert "south has no score: all of its 60 failed, so it is not ranked" in end.out
    end = cli("rank", run, "--min", "help=1", "--max-failed", "0.9", "--resamples", FEW, "--json")
    assert end.code == 3
    assert {each["system"]: each["passes"] for each in json.loads(end.out)["gate"] if not each["column"]} == {
        "north": True,
        "south": False,
    }


def test_failures_are_counted_by_system_with_the_means_that_they_could_hide(tmp_path: Path, cli: Cli) -> None:
    given = rows({"south": 12})
    run = judged(tmp_path / "run", given, aspects=["help"])
    [lost] = json.loads(cli("rank", run, "--resamples", FEW, "--json").out)["lost"]
    assert (lost["system"], lost["lost"], lost["rows"]) == ("south", 9, 60)
    assert lost["if_lowest"] == pytest.approx(np.mean(means(given, "south", 1.0)))
    assert lost["if_highest"] == pytest.approx(np.mean(means(given, "south", 5.0)))
    assert "9 of 60 of south (mean " in " ".join(cli("rank", run, "--resamples", FEW).out.split())


def test_of_pairs_the_mean_is_the_win_rate_and_a_failed_pair_counts_as_lost(
    pair_run: Callable[..., Path], cli: Cli
) -> None:
    run = pair_run("run", {"a": "better", "m": "middle", "z": "null"}, None)
    end = cli("rank", run, "--min", "better=0.4", "--resamples", FEW, "--json")
    document = json.loads(end.out)
    gate = {each["system"]: each for each in document["gate"]}
    assert gate["a"]["measured"] == pytest.approx(0.98)
    assert gate["a"]["lost"] == 8, "the pairs with z"
    assert (gate["z"]["measured"], gate["z"]["passes"], end.code) == (None, False, 3)
    found = {system["name"]: system["win_rate"]["value"] for system in document["aspects"]["better"]["systems"]}
    assert gate["a"]["measured"] == pytest.approx(found["a"])


def test_a_row_without_positive_points_of_a_tag_is_not_lost(model: Path, tmp_path: Path, cli: Cli) -> None:
    given = [
        {
            "id": f"{at}",
            "instruction": f"Question {at}?",
            "candidate": "red",
            "system": "s",
            "criteria": [
                {"criterion": "names red", "points": 2, "tags": ["colour" if at % 2 else "other"]},
                {"criterion": "names a fault", "points": -1, "tags": ["colour"]},
            ],
        }
        for at in range(12)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in given))
    with scripted_checks(model, lambda response, each: float(each.split()[-1] in response)) as judge:
        source = RowSource.from_files([str(file)], used=judge.rubric.fields)
        score_run(judge, source, tmp_path / "run")
    end = cli("rank", tmp_path / "run", "--by", "colour", "--min", "colour=0.5", "--resamples", FEW, "--json")
    document = json.loads(end.out)
    assert (end.code, document["lost"], document["gate"][0]["lost"]) == (0, [], 0)
