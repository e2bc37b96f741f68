"""Runs of pairs by a small model with random weights, for tests of what reads such runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from localjudge import JudgeConfig, RowSource, Rubric, load_run, score_run
from localjudge.modes.pair import PairDetails, PairOutcome
from localjudge.modes.pair_preference import OrderEffect
from localjudge.rows.pairs import Pairing
from localjudge.runs.summary import read_summary

RUBRIC = """
name = "two-aspects"
[aspects.better]
preference = ["A", "tie", "B"]
[aspects.depth]
preference = ["A much better", "A better", "B better", "B much better"]
[prompt]
template = "Q: {$instruction} A: {$candidate_a} B: {$candidate_b} {$aspects} {$answer_format}"
"""
"""A preference with probabilities, and one without: two of its labels begin alike, and it has no tie."""


def write_responses(file: Path, systems: str = "xyz", instructions: int = 3) -> Path:
    """Write a response of each system, a letter, to each instruction; the last system lacks the last one."""
    rows = [
        {
            "id": f"{n}{system}",
            "system": system,
            "instruction": f"Question {n}?",
            "candidate": f"word {system} " * n,
        }
        for n in range(1, instructions + 1)
        for system in systems
        if (n, system) != (instructions, systems[-1])
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_pairs(file: Path, count: int = 4, **columns: Any) -> Path:
    """Write rows of two responses without systems; the last one lacks its second response."""
    rows: list[dict[str, Any]] = [
        {
            "id": f"p{n}",
            "instruction": f"Question {n}?",
            "candidate_a": "yes " * n,
            "candidate_b": "no",
            **columns,
        }
        for n in range(1, count + 1)
    ]
    rows[-1]["candidate_b"] = None
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def judged_pairs(file: Path, model: Path, folder: Path, pairing: Pairing | None = None) -> Path:
    """Judge the pairs of a file, and return the run directory; by default the pairs of all its systems."""
    rubric = file.with_suffix(".toml")
    rubric.write_text(RUBRIC)
    config = JudgeConfig.from_settings(
        model=str(model), rubric=Rubric.load(str(rubric)), max_rationale_tokens=3
    )
    source = RowSource.from_files(
        [str(file)], used=config.rubric.fields, pairing=pairing or Pairing(forms=True)
    )
    score_run(config, source, folder)
    return folder


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of a file of a run."""
    return [json.loads(line) for line in (folder / name).read_bytes().splitlines()]


def order_effect(folder: Path, aspect: str) -> OrderEffect:
    """Return the counts of a run's pairs in an aspect."""
    details = read_summary(folder).signs.details
    assert isinstance(details, PairDetails)
    return details.aspects[aspect]


def read_pairs(folder: Path) -> Iterator[PairOutcome]:
    """Yield the outcome of each pair of a run that has a line for every order."""
    return cast("Iterator[PairOutcome]", iter(load_run(folder).pairs))
