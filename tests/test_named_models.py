"""A server that names another model in the middle of a run, or changes its fingerprint."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from scripted_server import FAST, WHOLE, Reply, ScriptedServer, always, chat, serving

from localjudge import load_run

ENGINE = [part for name, value in FAST.items() for part in ("--engine-arg", f"{name}={value}")]
BOTH = {"names": ["tiny-1", "tiny-2"], "fingerprints": ["fp_1", "fp_2"], "fingerprint_changes": 1}
"""What a run has of a server that named both models, each with a fingerprint of its own."""


def named(model: Any, fingerprint: Any = None) -> Reply:
    """Return a whole answer of a server that names its model."""
    reply = chat(WHOLE)
    assert isinstance(reply, tuple)
    return 200, {"model": model, "system_fingerprint": fingerprint, **reply[1]}


def score(cli: Cli, server: ScriptedServer, rubric: Path, rows: Path, run: Path, *flags: str) -> str:
    given = ["--engine", "server", "--server", server.url, "--rubric", rubric, *ENGINE, *flags]
    ended = cli("score", rows, *given, "--out", run)
    assert ended.code == 0
    return ended.out + ended.err


def recorded(run: Path, what: str) -> list[Any]:
    """Return what each start of a run has recorded of its server's replies."""
    starts = json.loads((run / "run.json").read_text())["starts"]
    return [start["engine"]["details"]["model"].get(what) for start in starts]


def named_models(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())["named_models"]
    return found


def kinds_of_notices(run: Path) -> list[str]:
    return [notice.partition(":")[0] for notice in load_run(run).notices]


def score_on(
    cli: Cli, rubric: Path, rows: Path, run: Path, *, name: str, fingerprint: str, shard: str = "1/1"
) -> None:
    """Score rows on a server whose replies all have this name and this fingerprint."""
    reply = named(name, fingerprint)
    with serving(always(reply)) as server:
        server.trial = lambda body: reply
        score(cli, server, rubric, rows, run, "--shard", shard)


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
    assert summary["named_models"]["names"] == ["tiny-1", "tiny-2"]
    assert sorted(summary["named_models"]["fingerprints"]) == ["fp_0", "fp_1", "fp_2", "fp_3"]
    assert summary["named_models"]["fingerprint_changes"] == 3
    assert recorded(run, "named") == [["tiny-1", "tiny-2"]]
    assert {"several models", "several fingerprints"} <= set(kinds_of_notices(run))
    export = cli("export", run, "--out", tmp_path / "rows.csv")
    for said in (cli("show", run).out, cli("rank", run).out, (tmp_path / "rows.csv").read_text()):
        assert "tiny-1, tiny-2" in said
    assert export.code == 0


def test_a_name_and_a_fingerprint_that_change_between_two_starts_are_told_as_well(
    cli: Cli, short_rubric: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for number, count in ((1, 3), (2, 5)):
        rows = write_rows(tmp_path / "rows.jsonl", count)
        score_on(cli, short_rubric, rows, run, name=f"tiny-{number}", fingerprint=f"fp_{number}")
    assert recorded(run, "named") == [["tiny-1"], ["tiny-2"]]
    assert recorded(run, "fingerprints") == [["fp_1"], ["fp_2"]]
    assert named_models(run) == BOTH
    assert {"several models", "several fingerprints"} <= set(kinds_of_notices(run))


def test_a_merge_tells_the_names_and_fingerprints_of_the_servers_of_all_shards(
    cli: Cli, short_rubric: Path, tmp_path: Path
) -> None:
    rows, shards = write_rows(tmp_path / "rows.jsonl", 8), [tmp_path / "one", tmp_path / "two"]
    for number, shard in enumerate(shards, 1):
        name, fingerprint = f"tiny-{number}", f"fp_{number}"
        part = f"{number}/2"
        score_on(cli, short_rubric, rows, shard, name=name, fingerprint=fingerprint, shard=part)
        assert named_models(shard)["fingerprint_changes"] == 0
        assert not {"several models", "several fingerprints"} & set(kinds_of_notices(shard))
    assert cli("merge", *shards, "--out", tmp_path / "whole").code == 0
    assert named_models(tmp_path / "whole") == BOTH
    assert {"several models", "several fingerprints"} <= set(kinds_of_notices(tmp_path / "whole"))
    said = cli("show", *shards).out
    assert "tiny-1, tiny-2" in said
    assert "2 values of system_fingerprint" in said


def test_a_jury_inherits_what_the_servers_of_its_jurors_said(
    cli: Cli, short_rubric: Path, tmp_path: Path
) -> None:
    rows, jury = tmp_path / "rows.jsonl", tmp_path / "jury"
    changed, steady = tmp_path / "changed", tmp_path / "steady"
    for number, count in ((1, 3), (2, 5)):
        write_rows(rows, count)
        score_on(cli, short_rubric, rows, changed, name=f"tiny-{number}", fingerprint=f"fp_{number}")
    score_on(cli, short_rubric, rows, steady, name="tiny-1", fingerprint="fp_1")
    end = cli("jury", changed, steady, "--out", jury, "--resamples", "100")
    assert end.code == 0, end.err
    assert {"several models (changed)", "several fingerprints (changed)"} <= set(kinds_of_notices(jury))
    assert "tiny-1, tiny-2" in cli("rank", jury, "--resamples", "100").out


def test_the_fingerprints_of_a_start_are_at_most_ten_and_then_their_number_is_a_lower_bound(
    cli: Cli, short_rubric: Path, tmp_path: Path
) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 14), tmp_path / "run"
    with serving(lambda text, before: named("tiny", f"fp_{len(server.asked)}")) as server:
        score(cli, server, short_rubric, rows, run)
    assert len(named_models(run)["fingerprints"]) == 10
    assert "10 or more values of system_fingerprint" in cli("show", run).out


@pytest.mark.parametrize("name", ["gpt-tiny-0806", None, 7, "", "\ud800", ["tiny"]])
def test_one_name_whatever_it_is_is_no_notice(name: Any, cli: Cli, short_rubric: Path, tmp_path: Path) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 3), tmp_path / "run"
    with serving(always(named(name, "fp_1"))) as server:
        server.trial = lambda body: named(name, "fp_1")
        said = score(cli, server, short_rubric, rows, run)
    summary = json.loads((run / "summary.json").read_text())
    names = [name] if name == "gpt-tiny-0806" else []
    assert summary["named_models"] == {"names": names, "fingerprints": ["fp_1"], "fingerprint_changes": 0}
    assert "several models" not in said
    assert not [each for each in summary["notices"] if "fingerprint" in each]


def test_a_run_that_no_server_judged_has_no_names(
    cli: Cli, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 2), tmp_path / "run"
    given = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run"]
    assert cli("score", rows, *given, "--out", run).code == 0
    assert json.loads((run / "summary.json").read_text())["named_models"] is None
