"""Each included rubric judges real rows: other people's responses, with the columns that the rubric needs."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines

from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.rubric_file import shipped_rubrics

pytestmark = pytest.mark.slow

ROWS = 6
# For each rubric a file of real rows, and the columns of it that go by another name.
REAL: dict[str, tuple[str, list[str]]] = {
    "agent": ("topicalchat_usr.jsonl", []),
    "checklist": ("prometheus_vicuna.jsonl", ["--column", "criterion=criteria"]),
    "conversation": ("topicalchat_usr.jsonl", []),
    "correctness": ("qa_eval.jsonl", []),
    "criteria": ("prometheus_vicuna.jsonl", []),
    "groundedness": ("qa_eval.jsonl", ["--column", "context=reference"]),
    "just-eval": ("justeval_multi_gpt4turbo.jsonl", []),
    "just-eval-first": ("justeval_multi_gpt4turbo.jsonl", []),
    "no-reference": ("alpacaeval_outputs.jsonl", []),
    "pairwise": ("pairwise_llmbar.jsonl", []),
    "pairwise-aspects": ("pairwise_llmbar.jsonl", []),
    "pairwise-reference": ("pairwise_pandalm.jsonl", []),
    "safety": ("xstest.jsonl", []),
    "six-aspects": ("justeval_multi_gpt4turbo.jsonl", []),
}


def real_rows(shared: Path, name: str, tmp_path: Path) -> Path:
    """Write the first rows of the rubric's file; a conversation becomes messages, a criterion a list."""
    file = tmp_path / "rows.jsonl"
    with (shared / "data" / REAL[name][0]).open() as stream, file.open("w") as rows:
        for row in map(json.loads, islice(stream, ROWS)):
            if name in ("agent", "conversation"):
                row = messages_of(row)
            if name == "checklist":
                row["criteria"] = [row["rubric"]]
            rows.write(json.dumps(row) + "\n")
    return file


def messages_of(row: dict[str, Any]) -> dict[str, Any]:
    turns = [line for line in row["instruction"].split("\n")[1:] if line.strip()]
    said = [{"role": ("user", "assistant")[place % 2], "content": turn} for place, turn in enumerate(turns)]
    if said[-1]["role"] == "assistant":
        said = said[1:]
    return {"id": row["id"], "messages": [*said, {"role": "assistant", "content": row["candidate"]}]}


def test_every_included_rubric_has_real_rows() -> None:
    assert sorted(REAL) == shipped_rubrics()


@pytest.mark.parametrize("name", REAL)
def test_an_included_rubric_judges_real_rows(
    cli: Cli, model: Path, shared: Path, tmp_path: Path, name: str
) -> None:
    rows = real_rows(shared, name, tmp_path)
    judge = ["--rubric", name, "--model", model, "--max-rationale-tokens", 3, *REAL[name][1]]
    judge += ["--on-overflow", "truncate-candidate"]
    end = cli("score", rows, "--out", tmp_path / "run", *judge)
    assert end.code == 0, end.err
    lines = list(read_lines(tmp_path / "run"))
    assert len(lines) == ROWS * len(Rubric.load(name).mode.responses)
    for aspect, kind in Rubric.load(name).aspects.items():
        for line in lines:
            values, shares = line[aspect], line[f"{aspect}_probabilities"]
            if not isinstance(values, list):
                values, shares = [values], [shares]
            assert all(value in kind.values.values() for value in values)
            assert [sum(each) for each in shares] == pytest.approx([1] * len(values), abs=1e-4)
