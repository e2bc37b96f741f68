"""The filter in the real lm-evaluation-harness, whose own command runs a task without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_guide import BLOCK, PAGES

from localjudge import Judge
from localjudge.records import Judgement

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.slow

TASK = next(code for *_, name, code in BLOCK.findall(PAGES["harnesses"].read_text()) if name == "capitals.yaml")
QUESTIONS = [
    {"question": "What is the capital of Peru?", "gold": "Lima."},
    {"question": "Laugh.", "gold": "lol"},
    {"question": "A question without a reference", "gold": None},
]


def harness(folder: Path, task: str) -> subprocess.CompletedProcess[str]:
    (folder / "capitals.yaml").write_text(task)
    (folder / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in QUESTIONS))
    program = str(Path(sys.executable).with_name("lm_eval"))
    where = ["--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples"]
    return subprocess.run(
        [program, "run", "--model", "dummy", "--tasks", "capitals", *where],
        cwd=folder, capture_output=True, text=True,
        env=os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")},
    )  # fmt: skip


def test_a_task_is_scored_by_the_filter_that_its_yaml_names(tmp_path: Path) -> None:
    ended = harness(tmp_path, TASK)
    assert ended.returncode == 0, ended.stderr[-3000:]
    [results] = (tmp_path / "out").rglob("results_*.json")
    [samples] = (tmp_path / "out").rglob("samples_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    outcomes: list[dict[str, Any]] = [json.loads(line["filtered_resps"][0][0]) for line in lines]

    rows = [
        {"instruction": each["question"], "reference": each["gold"], "candidate": line["resps"][0][0]}
        for each, line in zip(QUESTIONS, lines, strict=True)
    ]
    alone = list(Judge("bundled").score(rows))
    judged = {outcome.row: outcome.scores for outcome in alone if isinstance(outcome, Judgement)}
    assert [each["scores"] for each in outcomes] == [judged.get(row) for row in (1, 2, 3)]
    assert "no reference" in outcomes[2]["outcome"]["error"]
    assert outcomes[0]["notice"].startswith("These scores come from the small bundled model")

    found = json.loads(results.read_text())["results"]["capitals"]
    assert found["helpfulness,judged"] == (judged[1]["helpfulness"] + judged[2]["helpfulness"]) / 2
    assert found["not_judged,judged"] == pytest.approx(1 / 3)


def test_a_column_that_the_documents_lack_is_named(tmp_path: Path) -> None:
    ended = harness(tmp_path, TASK.replace("reference: gold", "reference: golden"))
    assert "`columns` reference: the documents have no golden" in ended.stderr
