"""Tests of how long a job takes: prompts are counted before a run, and its speed is measured."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Cli, write_rows

from localjudge import Judge, Row, read_rows
from localjudge.runs.run_plan import RunPlan


def test_the_plan_counts_the_tokens_that_the_prompt_before_has_too(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [
        {"instruction": f"Question {n // 4}?", "reference": "Yes. " * 40, "candidate": f"{n} " * n}
        for n in range(12)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]))
    judge = Judge(model, engine="dry-run")
    with RunPlan(judge, read_rows([str(file)])) as plan:
        tasks = plan.encode()
        tasks.finish()
    found = [row for row in read_rows([str(file)]) if isinstance(row, Row)]
    prompts = [judge.task_builder.task(row).tokens for row in found[:12]]
    shared = 0
    for before, prompt in pairwise(prompts):
        same = next(n for n in range(len(prompt)) if before[: n + 1] != prompt[: n + 1])
        shared += same // 16 * 16
    assert (tasks.prompts, tasks.tokens) == (12, sum(map(len, prompts))), "a duplicate row is judged once"
    assert tasks.shared_tokens == shared > 0.2 * tasks.tokens


def test_a_run_ends_with_its_speed_and_the_time_of_all_rows(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 40)
    flags = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 4]
    end = cli("score", rows, "--out", tmp_path / "some", *flags, "--limit", 4)
    (said,) = [line for line in end.err.splitlines() if "rows/s on this machine" in line]
    rate, time, unit = (said.split()[n] for n in (0, -2, -1))
    seconds = float(time) * {"seconds": 1, "minutes": 60}[unit]
    assert "; all 40 rows of the input take about" in said
    assert float(rate) * seconds == pytest.approx(40, rel=0.02), "both have three digits"
    end = cli("score", rows, "--out", tmp_path / "all", *flags)
    assert "rows/s on this machine" in end.err
    assert "of the input take about" not in end.err
    end = cli("score", rows, "--out", tmp_path / "all", *flags)
    assert "rows/s" not in end.err, "nothing was judged"
    end = cli("score", rows, "--out", tmp_path / "dry", *flags, "--engine", "dry-run")
    assert "rows/s on this machine" not in end.err, "no model ran"
