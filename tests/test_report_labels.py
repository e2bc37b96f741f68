"""Tests of a report with human labels of an aspect without an order."""

from __future__ import annotations

from pathlib import Path

from conftest import Cli
from report_page import section
from test_nominal import GRADES, label_file, make_run, some_grades


def test_the_agreement_on_labels_has_a_table_and_its_details(tmp_path: Path, cli: Cli) -> None:
    human, judged, _ = some_grades(60)
    run = make_run(tmp_path / "run", [{"grade": one} for one in judged])
    labels = label_file(tmp_path / "labels.jsonl", "grade", human)
    out = tmp_path / "report.html"
    ended = cli("report", run, "--labels", labels, "--out", out)
    assert ended.code == 0, ended.err
    tables = {table["caption"]: table for table in section(out, "agreement")["tables"]}
    whole, labels_of_people, details = tables
    assert whole == "Agreement with the labels, aspects without an order"
    assert labels_of_people == "grade: each label of people"
    assert details.startswith("grade · 60 rows")
    assert tables[whole]["rows"][0][0] == "grade"
    human_means = next(table for table in section(out, "systems")["tables"] if "human" in table["caption"])
    assert {column["name"] for column in human_means["columns"][1:]} == {f"grade={label}" for label in GRADES}
