"""A server that names another model in the middle of a run, or changes its fingerprint."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from scripted_server import FAST, WHOLE, Reply, ScriptedServer, always, chat, serving

ENGINE = [part for name, value in FAST.items() for part in ("--engine-arg", f"{name}={value}")]


def named(model: Any, fingerprint: Any = None) -> Reply:
    """Return a whole answer of a server that names its model."""
    reply = chat(WHOLE)
    assert isinstance(reply, tuple)
    return 200, {"model": model, "system_fingerprint": fingerprint, **reply[1]}


def score(cli: Cli, server: ScriptedServer, rubric: Path, rows: Path, run: Path) -> str:
    given = ["--engine", "server", "--server", server.url, "--rubric", rubric, *ENGINE]
    ended = cli("score", rows, *given, "--out", run)
    assert ended.code == 0
    return ended.out + ended.err


def recorded(run: Path) -> list[Any]:
    starts = json.loads((run / "run.json").read_text())["starts"]
    return [start["engine"]["details"]["model"].get("named") for start in starts]


def test_a_second_name_is_a_warning_at_once_and_stands_in_the_summary_and_in_every_table(
    cli: Cli, short_rubric: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 12), tmp_path / "run"

    def script(text: str, before: int) -> Reply:
        asked = len(server.asked)
        return named("tiny-2" if asked > 6 else "tiny-1", f"fp_{asked % 4}")

    with serving(script) as server, caplog.at_level(logging.WARNING):
        server.trial = lambda body: named("tiny-1", "fp_0")
        score(cli, server, short_rubric, rows, run)
    warnings = [each.getMessage() for each in caplog.records if each.name == "localjudge.server"]
    assert len([each for each in warnings if "tiny-1" in each and "tiny-2" in each]) == 1
    summary = json.loads((run / "summary.json").read_text())
    assert summary["named_models"] == {"names": ["tiny-1", "tiny-2"], "fingerprint_changes": 3}
    assert recorded(run) == [["tiny-1", "tiny-2"]]
    kinds = [each.partition(":")[0] for each in summary["notices"]]
    assert {"several models", "changed fingerprint"} <= set(kinds)
    export = cli("export", run, "--out", tmp_path / "rows.csv")
    for said in (cli("show", run).out, cli("rank", run).out, (tmp_path / "rows.csv").read_text()):
        assert "tiny-1, tiny-2" in said
    assert export.code == 0


def test_a_name_that_changes_between_two_starts_is_told_as_well(
    cli: Cli, short_rubric: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for name, count in (("tiny-1", 3), ("tiny-2", 5)):
        rows = write_rows(tmp_path / "rows.jsonl", count)
        with serving(always(named(name))) as server:
            server.trial = lambda body, name=name: named(name)  # type: ignore[misc]
            score(cli, server, short_rubric, rows, run)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["named_models"]["names"] == ["tiny-1", "tiny-2"]
    assert recorded(run) == [["tiny-1"], ["tiny-2"]]


@pytest.mark.parametrize("name", ["gpt-tiny-0806", None, 7, "", "\ud800", ["tiny"]])
def test_one_name_whatever_it_is_is_no_notice(name: Any, cli: Cli, short_rubric: Path, tmp_path: Path) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 3), tmp_path / "run"
    with serving(always(named(name, "fp_1"))) as server:
        server.trial = lambda body: named(name, "fp_1")
        said = score(cli, server, short_rubric, rows, run)
    summary = json.loads((run / "summary.json").read_text())
    names = [name] if name == "gpt-tiny-0806" else []
    assert summary["named_models"] == {"names": names, "fingerprint_changes": 0}
    assert "several models" not in said
    assert not [each for each in summary["notices"] if "fingerprint" in each]


def test_a_run_that_no_server_judged_has_no_names(
    cli: Cli, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 2), tmp_path / "run"
    given = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    assert cli("score", rows, *given, "--out", run).code == 0
    assert json.loads((run / "summary.json").read_text())["named_models"] is None
