"""Tests of beginnings that prompts share: where they are computed once, and what says where they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from test_generation import ALL_KEYS_AND_VALUES, OTHER_CACHES, save_model

from localjudge.models.capacity import shared_beginnings
from localjudge.models.dimensions import read_dimensions
from localjudge.runs.run_manifest import read_manifest

LAYERS = ("mistral", "gemma2", "gemma3_text", "qwen3_next")
"""The types of `OTHER_CACHES` whose layers have windows or states."""


def scored(cli: Cli, folder: Path, model: Path, rubric: Path) -> tuple[str, str, dict[str, Any]]:
    """Judge rows; return what a person reads, what the engine says of beginnings, and its counts."""
    rows = write_rows(folder / "rows.jsonl", 6)
    end = cli(
        "score", rows, "--out", folder / "run", "--model", model, "--rubric", rubric,
        "--max-rationale-tokens", 2, "--engine-arg", "batch_size=2",
    )  # fmt: skip
    assert end.code == 0, end.err
    engine = read_manifest(folder / "run").last_start.engine
    assert engine is not None
    counts = json.loads((folder / "run" / "summary.json").read_text())["engine"]
    return end.err, str(engine.details["shared_beginnings"]), counts


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ALL_KEYS_AND_VALUES)
def test_a_run_that_kept_beginnings_says_nothing(
    cli: Cli, tmp_path: Path, short_rubric: Path, architecture: str
) -> None:
    model = save_model(tmp_path / "model", architecture, ALL_KEYS_AND_VALUES[architecture])
    said, kept, counts = scored(cli, tmp_path, model, short_rubric)
    assert kept == "kept"
    assert counts["cached_prompt_tokens"] > 0
    assert "beginnings" not in said
    assert shared_beginnings(read_dimensions(model, "tiny")) == ""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", OTHER_CACHES)
def test_a_run_that_computed_each_prompt_whole_says_so_with_its_tokens(
    cli: Cli, tmp_path: Path, short_rubric: Path, architecture: str
) -> None:
    model = save_model(tmp_path / "model", architecture, OTHER_CACHES[architecture])
    said, why, counts = scored(cli, tmp_path, model, short_rubric)
    assert why != "kept"
    assert counts["cached_prompt_tokens"] == 0
    assert f"0 of {counts['prompt_tokens']:,} prompt tokens reused" in " ".join(said.split())
    assert why in " ".join(said.split())


@pytest.mark.parametrize("architecture", LAYERS)
def test_a_plan_says_that_beginnings_do_not_help_a_model_with_windows_or_states(
    cli: Cli, tmp_path: Path, architecture: str
) -> None:
    model = save_model(tmp_path / "model", architecture, OTHER_CACHES[architecture])
    found = json.loads(cli("models", "plan", model, "--json").out)
    assert found["shared_beginnings"] in found["notes"]
    end = cli("models", "plan", model)
    layers = {"qwen3_next": "1 of 2 layers", "gemma2": "1 of 2 layers"}.get(architecture, "2 of 2 layers")
    assert layers in end.out
    assert ("state" in found["shared_beginnings"]) == (architecture == "qwen3_next")


def test_a_plan_of_a_model_that_sees_all_tokens_says_nothing_of_beginnings(cli: Cli) -> None:
    found = json.loads(cli("models", "plan", "qwen3-8b", "--json").out)
    assert found["shared_beginnings"] == ""
    assert not [note for note in found["notes"] if "beginnings" in note]
