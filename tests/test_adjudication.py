"""Tests of `label --adjudicate`: differing labels are settled blind, and used where one value is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from report_page import OpenPage
from test_label import PAIR, RUBRIC, ask, lines, served, session, write_rows

from localjudge.errors import UsageError
from localjudge.labelling.label_file import LabelFile
from localjudge.labelling.sample import candidates_of_rows
from localjudge.labelling.session import LabelSession
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import Labels, read_labels
from localjudge.rows.pairs import Pairing
from localjudge.rows.row_store import RowStore
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.row_source import RowSource

ASPECTS = [*Rubric.load("no-reference").aspects]
FIRST, OTHERS = ASPECTS[0], ASPECTS[1:]


@contextmanager
def adjudication(rows: Path, out: Path, rubric: Rubric | None = None) -> Iterator[LabelSession]:
    found = rubric or Rubric.load("no-reference")
    with RowStore() as store, LabelFile(out) as file:
        pairing = Pairing(orders=1) if rubric is PAIR else None
        source = RowSource.from_files([str(rows)], used=found.fields, pairing=pairing)
        yield LabelSession(found, candidates_of_rows(source.rows, store, None), file, adjudicate=True)


def two_people(tmp_path: Path, count: int = 10) -> tuple[Path, Path]:
    """Label rows by two people, who differ by one in the first aspect of the odd rows."""
    rows, labels = write_rows(tmp_path / "rows.jsonl", count, "x"), tmp_path / "l.jsonl"
    with session(rows, labels, overlap=1.0) as people:
        for name in ("Ann", "Bo"):
            while (row := people.next(name)) is not None:
                is_odd = int(row["instruction"].split()[1][:-1]) % 2
                values = {FIRST: "4" if is_odd and name == "Bo" else "3", **dict.fromkeys(OTHERS, "2")}
                people.add(name, row["key"], {"values": values, "note": f"by {name}"})
    return rows, labels


def imported(rows: Path, tmp_path: Path, cli: Cli, score: int = 5) -> Path:
    judged, run = tmp_path / "scores.jsonl", tmp_path / "run"
    records = [json.loads(line) | dict.fromkeys(ASPECTS, score) for line in rows.read_text().splitlines()]
    judged.write_text("".join(json.dumps(record) + "\n" for record in records))
    flags = [flag for name in ASPECTS for flag in ("--aspect", name)]
    assert cli("import", judged, *flags, "--out", run).code == 0
    return run


def test_only_what_differs_is_asked_and_the_labels_come_after_the_answer(tmp_path: Path) -> None:
    rows, out = two_people(tmp_path)
    with adjudication(rows, out) as people:
        assert len(people) == 5
        row = people.next("Cy")
        assert row is not None
        assert (row["asked"], row["left"]) == ([FIRST], 5)
        assert "Ann" not in json.dumps(row)
        assert people.add("Cy", row["key"], {"values": {FIRST: "5"}})
        assert not people.add("Cy", row["key"], {"values": {FIRST: "1"}}), "a second tab"
        assert people.settled("Cy", row["key"]) == [
            {"annotator": "Cy", "note": None, "values": {FIRST: "5"}},
            {"annotator": "Ann", "note": "by Ann", "values": {FIRST: "3"}},
            {"annotator": "Bo", "note": "by Bo", "values": {FIRST: "4"}},
        ]
    line = lines(out)[-1]
    assert (line["annotator"], line[FIRST]) == ("Cy", 5)
    assert not set(OTHERS) & set(line)
    assert line["label"]["adjudicates"] == [{"annotator": "Ann", FIRST: 3}, {"annotator": "Bo", FIRST: 4}]
    assert not line["label"]["saw_labels"]


def test_an_answer_that_is_changed_after_the_labels_were_seen_says_so(tmp_path: Path) -> None:
    rows, out = two_people(tmp_path)
    with adjudication(rows, out) as people:
        first = people.next("Cy")
        assert first is not None
        people.add("Cy", first["key"], {"values": {FIRST: "5"}})
        people.settled("Cy", first["key"])
        again = people.undo("Cy")
        assert again is not None
        assert (again["key"], again["before"]["values"]) == (first["key"], {FIRST: "5"})
        people.add("Cy", first["key"], {"values": {FIRST: "4"}})
        second = people.next("Cy")
        assert second is not None
        people.add("Cy", second["key"], {"skipped": "cannot tell"})
        assert people.settled("Cy", second["key"]) == [], "a skipped row shows no labels"
    *_, changed, skipped = lines(out)
    assert (changed[FIRST], changed["label"]["saw_labels"]) == (4, True)
    assert (skipped["label"]["skipped"], skipped["label"]["saw_labels"]) == ("cannot tell", False)


def test_labelling_and_adjudication_of_one_file_do_not_touch_each_other(tmp_path: Path) -> None:
    rows, out = two_people(tmp_path)
    with adjudication(rows, out) as people:
        row = people.next("Ann")
        assert row is not None, "an annotator may take the second look, and the file says so"
        people.add("Ann", row["key"], {"values": {FIRST: "5"}})
        assert people.undo("Bo") is None, "a label is not undone here"
    with session(rows, out, overlap=1.0) as people:
        assert people.next("Ann") is None
        assert people.progress("Ann")["labelled"] == 10
        undone = people.undo("Ann")
        assert undone is not None
        assert undone["before"]["values"][OTHERS[0]] == "2", "the label, not the adjudication"
    assert sum("adjudicates" in line["label"] for line in lines(out)) == 1


def test_where_nobody_differs_there_is_nothing_to_adjudicate(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    with (
        pytest.raises(UsageError, match="`adjudicate`: the annotators of no row differ"),
        adjudication(rows, tmp_path / "l.jsonl"),
    ):
        pass


def test_a_pair_is_settled_in_the_order_of_the_input_whatever_order_was_seen(tmp_path: Path) -> None:
    file, out = tmp_path / "pairs.jsonl", tmp_path / "l.jsonl"
    rows = [
        {"id": str(n), "instruction": f"Q{n}", "reference": "", "candidate_a": "good", "candidate_b": "bad"}
        for n in range(12)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with session(file, out, PAIR, overlap=1.0) as people:
        for name, liked in (("Ann", "good"), ("Bo", "bad")):
            while (row := people.next(name)) is not None:
                choice = "A" if row["responses"][0] == liked else "B"
                people.add(name, row["key"], {"values": {"better": choice}})
    with adjudication(file, out, PAIR) as people:
        while (row := people.next("Cy")) is not None:
            choice = "AB"[row["responses"].index("good")]
            people.add("Cy", row["key"], {"values": {"better": choice}})
            own, ann, bo = people.settled("Cy", row["key"])
            assert own["values"] == ann["values"] == {"better": f"{choice} is better"}
            assert bo["values"] == {"better": f"{'BA'['AB'.index(choice)]} is better"}
    settled = [line for line in lines(out) if "adjudicates" in line["label"]]
    assert {line["better"] for line in settled} == {"a"}
    assert {line["label"]["shown_reversed"] for line in settled} == {True, False}


def test_the_settled_value_counts_alone_and_alpha_keeps_the_labels_before(tmp_path: Path, cli: Cli) -> None:
    rows, out = two_people(tmp_path, 12)
    run = imported(rows, tmp_path, cli)

    def found() -> tuple[Labels, dict[str, Any], dict[str, Any]]:
        agreed = cli("agree", run, "--labels", out, "--resamples", 100, "--json")
        ranked = cli("rank", run, "--labels", out, "--resamples", 100, "--json")
        assert (agreed.code, ranked.code) == (0, 0), agreed.err + ranked.err
        return read_labels([str(out)], read_scores([run])), json.loads(agreed.out), json.loads(ranked.out)

    before, agreed, ranked = found()
    with adjudication(rows, out) as people:
        while (row := people.next("Cy")) is not None:
            people.add("Cy", row["key"], {"values": {FIRST: "5"}})
    after, agreed_, ranked_ = found()
    assert sorted(before.means(FIRST)[1].tolist()) == [3.0] * 6 + [3.5] * 6
    assert sorted(after.means(FIRST)[1].tolist()) == [3.0] * 6 + [5.0] * 6
    assert after.means(OTHERS[0])[1].tolist() == before.means(OTHERS[0])[1].tolist()
    one, other = (each["aspects"][FIRST] for each in (agreed, agreed_))
    assert one["alpha_ordinal"] == other["alpha_ordinal"]
    assert one["annotators"] == other["annotators"] == 2
    assert one["comparisons"]["integer"]["exact"]["value"] == 0
    assert other["comparisons"]["integer"]["exact"]["value"] == pytest.approx(6 / 18), (
        "six settled, twelve labels"
    )
    assert any("settled by adjudication in 6 cases" in note for note in agreed_["notes"])
    human, human_ = (each["systems"][0]["human"][FIRST]["value"] for each in (ranked, ranked_))
    assert (human, human_) == (pytest.approx(3.25), pytest.approx(4.0))


def test_a_person_adjudicates_with_the_keyboard_alone_and_a_kill_loses_nothing(tmp_path: Path) -> None:
    rubric, out = tmp_path / "reply.toml", tmp_path / "l.jsonl"
    rubric.write_text(RUBRIC)
    rows = write_rows(tmp_path / "rows.jsonl", 3, "x")
    given = (rows, "--rubric", rubric, "--out", out, "--overlap", "1")
    with served(*given) as (_, address):
        for name, outcome, percent in (("Ann", "A", "40"), ("Bo", "B", "60")):
            for _ in range(3):
                row = ask(address, "/row", {"annotator": name})[1]["row"]
                values = {"warmth": "3", "outcome": outcome, "polite": "yes", "percent": percent}
                ask(address, "/label", {"annotator": name, "key": row["key"], "values": values, "note": "odd"})
    with (
        served(*given, "--adjudicate", "--annotator", "Cy") as (process, address),
        OpenPage(address, tmp_path, "row !== null") as page,
    ):
        assert page.run("[...document.querySelectorAll('fieldset')].map((one) => one.hidden).join()") == (
            "true,false,true,false"
        )
        assert "Adjudication" in page.texts("#about")[0]
        assert page.texts("#found td") == [], "no label is in the page before the answer"
        page.press("b", *"55", "Enter")
        page.wait("!$('found').hidden")
        assert page.texts("#found tbody th") == ["Cy (adjudication)", "Ann", "Bo"]
        assert page.texts("#found td") == ["passed on", "55", "solved", "40", "passed on", "60"]
        assert "Ann: odd" in page.texts("#d-found")[0]
        page.press("u")
        page.wait("row.before && $('found').hidden")
        page.press("a", *"41")
        assert page.run("chosen(asked[1])") == "41", "a number that is typed replaces the one before"
        page.press("Enter")
        page.wait("!$('found').hidden")
        process.kill()
    with (
        served(*given, "--adjudicate", "--annotator", "Cy") as (_, address),
        OpenPage(address, tmp_path / "again", "row !== null") as page,
    ):
        assert page.texts("#progress")[0].startswith("1 settled, 2 left")
    settled = lines(out)[-1]
    assert (settled["outcome"], settled["percent"]) == ("solved", 41)
    assert settled["label"]["saw_labels"]
