"""Tests of reports: one file that loads nothing, contains every judgement, and shows rows only as text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines, write_rows
from report_page import data, open_in_browser

from localjudge import Judge, read_rows
from localjudge.matching.run_rows import FAILED
from localjudge.report.run_report import write_report
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan

SCRIPT = '</script><script>document.title = "taken over"</script><img src=x onerror=alert(1)>\u2028\u2029'


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write twelve rows by two systems on three instructions; one is hostile, and one cannot be judged."""
    file = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", 12)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["instruction"] = f"Question {number // 2 % 3}?"
    lines[4]["candidate"] = SCRIPT
    lines[5] |= {"system": SCRIPT, "id": SCRIPT}
    lines[7]["candidate"] = ""
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def score(rows: Path, out: Path, model: Path, rubric: Path, **settings: Any) -> Path:
    judge = Judge(model, rubric=rubric, max_rationale_tokens=3, **settings)
    with RunDirectory(out) as run, RunPlan(judge, read_rows([str(rows)])) as plan:
        run.begin(judge, plan, RowSource(inputs=[str(rows)]))
        assert run.score().failed == (1 if rubric.stem == "short" else 0)
    return out


@pytest.fixture(scope="module")
def run(rows: Path, model: Path, short_rubric: Path) -> Path:
    return score(rows, rows.parent / "run", model, short_rubric)


@pytest.fixture(scope="module")
def other(rows: Path, model: Path, short_rubric: Path) -> Path:
    """Return a second run of the same rows, with another seed."""
    return score(rows, rows.parent / "other", model, short_rubric, temperature=1.0, seed=1)


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    write_report([run], run.parent / "report.html", resamples=100)
    return run.parent / "report.html"


def test_the_page_holds_each_judgement_once_with_its_texts(page: Path, run: Path, rows: Path) -> None:
    head = json.loads(data(page, "head"))
    chunks = [json.loads(data(page, f"chunk-{number}")) for number in range(len(head["chunks"]))]
    shown = {
        (head["ids"][place], row[3]): row
        for place, row in enumerate(row for chunk in chunks for row in chunk["rows"])
    }
    lines = list(read_lines(run))
    texts = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(head["ids"]) == len(shown) == len(lines) == 12
    for line, text in zip(lines, texts, strict=True):
        responses, error, (prompt,), *_ = shown[line["id"], line["source"]]
        assert (responses, error) == ([text["candidate"]], line["error"])
        assert prompt.get("texts", {}).get("rationale") == line["rationale"]
    instructions = [tuple(instruction) for chunk in chunks for instruction in chunk["instructions"]]
    assert instructions == [(f"Question {number}?", "Yes.") for number in range(3)]
    assert [[len(chunk["instructions"]), len(chunk["rows"])] for chunk in chunks] == head["chunks"]


def test_the_numbers_of_the_page_are_those_of_the_run(page: Path, run: Path) -> None:
    head = json.loads(data(page, "head"))
    lines = {line["id"]: line for line in read_lines(run)}
    scores = np.frombuffer(data(page, "scores"), "<i2").reshape(2, -1)
    expected = np.frombuffer(data(page, "expected"), "<f4").reshape(2, -1)
    confidence = np.frombuffer(data(page, "confidence"), "<f4").reshape(2, -1)
    overall = np.frombuffer(data(page, "overall"), "<f4")
    series = np.frombuffer(data(page, "series"), "<i2")
    group = np.frombuffer(data(page, "group"), "<i4")
    length = np.frombuffer(data(page, "length"), "<i4")
    assert sorted(group) == list(group), "what belongs to one instruction stands together"
    for place, row_id in enumerate(head["ids"]):
        line = lines[row_id]
        assert head["series"][series[place]] == line["system"]
        if line["status"] == "failed":
            assert data(page, "flags")[place] == FAILED
            assert {*scores[:, place]} == {-1}
            assert np.isnan([*expected[:, place], *confidence[:, place], overall[place]]).all()
            continue
        for rank, aspect in enumerate(("tact", "wit")):
            assert head["aspects"][rank]["values"][scores[rank, place]] == str(line[aspect])
            assert expected[rank, place] == pytest.approx(line[f"{aspect}_expected"], abs=0.0006)
            given = line[f"{aspect}_probabilities"][line[aspect] - 1]
            assert confidence[rank, place] == pytest.approx(given, abs=0.0006)
        mean = (line["tact_expected"] + line["wit_expected"]) / 2
        assert overall[place] == pytest.approx(mean, abs=0.0006)
    assert min(length) == 0


def test_no_text_of_a_row_stands_in_the_file_as_itself(page: Path) -> None:
    said = page.read_text()
    assert "taken over" not in said
    assert "onerror" not in said
    assert not {"\u2028", "\u2029"} & set(said)


def test_the_page_may_run_its_own_script_alone_and_connect_to_nothing(page: Path) -> None:
    said = page.read_text()
    policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', said)[1])  # type: ignore[index]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert "unsafe" not in rules["script-src"]
    scripts = re.findall(r"<script>(.*?)</script>", said, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert set(rules["script-src"].split()) == {f"'sha256-{digest}'" for digest in digests}
    assert set(re.findall(r'\b(?:src|href)="([^#"]*)', said)) == {"data:,", ""}
    assert "innerHTML" not in scripts[0]


def test_without_its_inputs_a_run_is_reported_without_texts_and_says_so(
    cli: Cli, rows: Path, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    here, moved, out = tmp_path / "rows.jsonl", tmp_path / "moved.jsonl", tmp_path / "report.html"
    shutil.copy(rows, here)
    run = score(here, tmp_path / "run", model, short_rubric)
    here.rename(moved)
    end = cli("report", run, "--out", out)
    assert end.code == 0
    assert f"12 judgements without text: the input row was not found ({run}: {here}: No such file" in end.err
    assert json.loads(data(out, "head"))["notices"][0] in end.err
    end = cli("report", run, "--out", out, "--inputs", moved)
    assert (end.code, "without the text" in end.err) == (0, False)


def test_runs_of_the_same_systems_are_told_apart_and_stand_side_by_side(
    run: Path, other: Path, tmp_path: Path
) -> None:
    write_report([run, other], tmp_path / "report.html", resamples=100)
    head = json.loads(data(tmp_path / "report.html", "head"))
    assert {*head["series"]} >= {"a · run", "a · other", "b · run", "b · other"}
    assert len(head["snippets"]) == 3
    tables = head["sections"]["systems"]["tables"]
    by_judge = [table["rows"] for table in tables if table["caption"].startswith("Mean expected scores")]
    assert [len(rows) for rows in by_judge] == [3, 3]
    assert {row[0] for rows in by_judge for row in rows} == {*head["series"]}


def test_a_jury_is_reported_beside_its_members_with_its_texts_and_labels(
    cli: Cli, run: Path, other: Path, tmp_path: Path
) -> None:
    assert cli("jury", run, other, "--out", tmp_path / "jury").code == 0
    labels = tmp_path / "labels.jsonl"
    some = [{"id": f"r{number}", "tact": number + 1, "wit": 2} for number in range(3)]
    labels.write_text("".join(json.dumps(each) + "\n" for each in some))
    runs = [run, other, tmp_path / "jury"]
    end = cli("report", *runs, "--out", tmp_path / "report.html", "--labels", labels)
    assert end.code == 0
    assert "without the text" not in end.err
    head = json.loads(data(tmp_path / "report.html", "head"))
    assert len(head["series"]) == 9
    shown = {table["caption"]: table for table in head["sections"]["agreement"]["tables"]}
    for name in ("run", "other", "jury"):
        assert [row[0] for row in shown[f"Agreement with the labels · {name}"]["rows"]] == ["tact", "wit"]


def test_what_cannot_be_reported_ends_with_2_and_one_line(
    cli: Cli, run: Path, rows: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--out", tmp_path / "report.html"]
    six = score(rows, tmp_path / "six", model, Path("no-reference"))
    for said, arguments in {
        "not a run directory": [tmp_path, *out],
        "give runs with the same aspects and scale": [run, six, *out],
        "No such file or directory": [run, "--out", tmp_path / "none" / "report.html"],
        "none.jsonl: ": [run, *out, "--labels", tmp_path / "none.jsonl"],
    }.items():
        end = cli("report", *arguments)
        assert (end.code, said in end.err, end.err.count("\n")) == (2, True, 1), end.err
        assert not (tmp_path / "report.html").exists()
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_browser_shows_the_table_and_the_list_and_asks_for_nothing(page: Path, tmp_path: Path) -> None:
    dumped, asked = open_in_browser(page, tmp_path)
    assert asked == set()
    assert 'data-ready="yes"' in dumped
    body = re.sub(r"<script.*?</script>", "", dumped, flags=re.DOTALL)
    assert body.count('role="option"') == 12
    assert "<title>run</title>" in dumped
    assert html.escape(SCRIPT[:50], quote=False) in body
    assert "<img" not in body


def test_a_request_of_a_page_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<img src="http://127.0.0.1:9/pixel">')
    assert open_in_browser(tmp_path / "page.html", tmp_path)[1] == {"http://127.0.0.1:9/pixel"}
