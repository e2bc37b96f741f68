"""Tests of reports of pairs: the systems side by side, the effect of the order, and each pair to read."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from conftest import Cli, row_lines
from pair_runs import judged_pairs, order_effect, write_pairs, write_responses
from report_page import OpenPage, data, head, held_rows, open_in_browser, section

from localjudge.report.run_report import write_report
from localjudge.rows.pairs import Pairing

SCRIPT = '</script><script>document.title = "taken over"</script><img src=x onerror=alert(1)>\u2028'
SYSTEM = SCRIPT + "\u202e"
"""A name that would also reverse the text after it."""


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of pairs of three systems on six instructions; a response and a system are hostile."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = write_responses(folder / "rows.jsonl", instructions=6)
    changed = [json.loads(line) for line in rows.read_text().splitlines()]
    for row in changed:
        row["system"] = SYSTEM if row["system"] == "z" else row["system"]
    changed[0]["candidate"] = SCRIPT
    rows.write_text("".join(json.dumps(row) + "\n" for row in changed))
    return judged_pairs(rows, model, folder / "run")


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    write_report([run], run.parent / "report.html", resamples=100)
    return run.parent / "report.html"


@pytest.fixture(scope="module")
def nameless(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of four pairs without systems, judged in one order; the last pair cannot be judged."""
    folder = tmp_path_factory.mktemp("nameless")
    return judged_pairs(write_pairs(folder / "rows.jsonl"), model, folder / "run", Pairing(orders=1))


def test_the_page_holds_each_pair_with_both_responses_and_both_answers(page: Path, run: Path) -> None:
    about, rows = head(page), held_rows(page)
    pairs = {pair["id"]: pair for pair in row_lines(run)}
    assert len(about["ids"]) == len(rows) == len(pairs) == 16
    labels = {aspect["name"]: aspect["labels"] for aspect in about["aspects"]}
    for pair_id, (responses, error, orders, source, *_) in zip(about["ids"], rows, strict=True):
        pair = pairs[pair_id]
        assert (error, source, len(responses)) == (None, pair["source"], 2)
        assert responses[1].startswith(f"word {'z' if pair['system_b'] == SYSTEM else pair['system_b']} ")
        for order, suffix in zip(orders, ("_ab", "_ba"), strict=True):
            for name in ("better", "depth"):
                assert labels[name][order["scores"][name]] == pair[name + suffix]
            assert order["texts"]["rationale"] == pair["rationale" + suffix]


def test_the_numbers_of_the_page_are_those_of_the_pairs(page: Path, run: Path) -> None:
    about, pairs = head(page), {pair["id"]: pair for pair in row_lines(run)}
    series, opponent = np.frombuffer(data(page, "series"), "<i2").reshape(2, -1)
    scores = np.frombuffer(data(page, "scores"), "<i2").reshape(2, -1)
    preference = np.frombuffer(data(page, "expected"), "<f4").reshape(2, -1)
    agree = np.frombuffer(data(page, "agree"), "<f4").reshape(2, -1)
    for place, pair_id in enumerate(about["ids"]):
        pair = pairs[pair_id]
        labels = [about["series"][index] for index in (series[place], opponent[place])]
        assert labels == [pair["system_a"], pair["system_b"]]
        for rank, name in enumerate(("better", "depth")):
            assert about["aspects"][rank]["values"][scores[rank, place]] == (pair[name] or "undecided")
            assert preference[rank, place] == pytest.approx(pair[f"{name}_preference"], abs=1e-6)
            assert bool(agree[rank, place]) is pair[f"{name}_orders_agree"]


def test_the_page_has_the_tables_of_rank_with_the_win_rate_of_each_two_systems(page: Path, run: Path) -> None:
    tables = {table["caption"]: table for table in section(page, "systems")["tables"]}
    main, *_ = tables
    assert (main, [table["folded"] for table in tables.values()][:3]) == (
        "Preferences in better",
        [False, False, True],
    )
    systems = tables[main]
    assert [column["name"] for column in systems["columns"]][:4] == [
        "system",
        "strength (log-odds)",
        "possible ranks",
        "win rate",
    ]
    for row in systems["rows"]:
        assert row[1]["low"] <= row[1]["value"] <= row[1]["high"]
        assert row[3]["low"] <= row[3]["value"] <= row[3]["high"]
    assert {row[0]: row[6] for row in systems["rows"]} == {"x": 11, "y": 11, SYSTEM: 10}
    names = [row[0] for row in systems["rows"]]
    won: dict[tuple[str, str], list[float]] = {}
    for pair in row_lines(run):
        a, b, value = pair["system_a"], pair["system_b"], pair["better_preference"]
        won.setdefault((a, b), []).append(value)
        won.setdefault((b, a), []).append(1 - value)
    (rates,) = (table for caption, table in tables.items() if caption.startswith("Win rates in better"))
    for name, (_, *cells) in zip(names, rates["rows"], strict=True):
        for other, cell in zip(names, cells, strict=True):
            if name == other:
                assert cell == ""
                continue
            known = won[name, other]
            assert cell["value"] == pytest.approx(sum(known) / len(known))


def test_the_page_says_how_much_the_order_matters(page: Path, run: Path) -> None:
    leads = section(page, "systems")["leads"]
    counts = order_effect(run, "better")
    said = next(lead for lead in leads if lead.startswith("better "))
    other = counts.decided - counts.same_response
    assert f" {counts.same_response} of " in said
    assert f" pairs have the same winner in both orders · in {other}, each" in said
    assert "wins in {} of {} orders that name".format(*counts.shown_first) in said


def test_pairs_without_systems_have_no_table_of_systems_and_a_failed_pair_has_its_reason(
    cli: Cli, nameless: Path, tmp_path: Path
) -> None:
    end = cli("report", nameless, "--out", tmp_path / "report.html")
    assert (end.code, "1 pair failed; the tables exclude failed pairs." in end.err) == (0, True)
    shown = section(tmp_path / "report.html", "systems")
    assert shown["tables"] == []
    assert not any("undecided" in lead for lead in shown["leads"]), "no pair is undecided"
    first = fmean(pair["depth_preference"] for pair in row_lines(nameless) if not pair["error"])
    assert f"the input's first response is better: {first:.2f}" in shown["leads"][1]
    *_, failed = held_rows(tmp_path / "report.html")
    assert failed[1]


def test_no_text_of_a_pair_stands_in_the_file_as_itself(page: Path) -> None:
    said = page.read_text()
    assert "taken over" not in said
    assert "onerror" not in said
    assert "\u2028" not in said


def test_a_calibration_is_refused_for_pairs_in_one_line(cli: Cli, run: Path, tmp_path: Path) -> None:
    end = cli("report", run, "--out", tmp_path / "report.html", "--calibration", run / "run.json")
    assert (end.code, end.err.count("\n")) == (2, 1)
    assert "--calibration: is for runs with one judgement for each response" in end.err


def test_labels_of_pairs_have_their_agreement_on_the_page(cli: Cli, nameless: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    given = row_lines(nameless)
    records = ({"id": pair["id"], "label": "a", "annotators": ["a", "a", "tie"]} for pair in given)
    labels.write_text("".join(json.dumps(record) + "\n" for record in records))
    page = tmp_path / "report.html"
    end = cli("report", nameless, "--out", page, "--labels", labels, "--map", "depth=annotators")
    assert end.code == 0, end.err
    agreement = section(page, "agreement")
    tables = {table["caption"]: table["rows"] for table in agreement["tables"]}
    whole, details = tables
    assert (whole, details) == ("Agreement with the labels", "depth · 3 pairs, 3 instructions, 3 annotators")
    assert tables[whole][0][:2] == ["depth", 3]
    assert [row[0] for row in tables[details]] == ["input order", "the longer response", "the first response"]
    assert tables[details][2][1]["value"] == 1
    assert "Labels: a 3, tie 0, b 0." in agreement["tables"][1]["notes"][0]
    assert "pairs that could not be judged, and are left out: 1" in agreement["notes"]


def test_a_browser_shows_the_pairs_and_asks_for_nothing(page: Path, tmp_path: Path) -> None:
    dumped, asked = open_in_browser(page, tmp_path)
    assert asked == set()
    assert 'data-ready="yes"' in dumped
    body = re.sub(r"<script.*?</script>", "", dumped, flags=re.DOTALL)
    assert 'aria-setsize="16"' in body
    cells = [cell for each in section(page, "systems")["tables"] for row in each["rows"] for cell in row]
    estimates = [cell for cell in cells if isinstance(cell, dict)]
    bars = [cell for cell in estimates if cell["low"] is not None]
    assert body.count('class="bar"') == len(bars) > 0
    assert body.count('class="mark hollow"') == len(estimates) - len(bars), (
        "without an interval, a hollow point"
    )
    assert "<title>run</title>" in dumped
    assert html.escape(SCRIPT[:50], quote=False) in body
    assert "<img" not in body
    assert "\u202e" not in body
    assert "alert(1)&gt;\u2028\\u202e" in body, "the mark is shown, as on a terminal"


@pytest.fixture(scope="module")
def opened(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenPage]:
    with OpenPage(page, tmp_path_factory.mktemp("browser")) as opened:
        # The list then has room for a line for each pair.
        opened.run("document.getElementById('reader').style.height = '1500px'")
        yield opened


def test_the_bars_of_all_win_rates_of_a_table_have_one_axis_and_the_page_says_its_ends(
    opened: OpenPage, page: Path
) -> None:
    rows = section(page, "systems")["tables"][0]["rows"]
    rates = [row[place] for row in rows for place in (3, 4, 5)]
    low, high = min(rate["low"] for rate in rates), max(rate["high"] for rate in rates)
    said = opened.texts(".axes")[0]
    assert said.startswith("The line below a value runs from -")
    assert said.endswith(f" in strength (log-odds); from {low:.2f} to {high:.2f} in the other columns.")
    for number, row in enumerate(rows, 1):
        for place in (3, 4, 5):
            bar = f"#systems-body tbody tr:nth-child({number}) > :nth-child({place + 1}) .bar"
            left = opened.run(f"document.querySelector({bar!r}).style.left")
            assert float(left.rstrip("%")) == pytest.approx(
                100 * (row[place]["low"] - low) / (high - low), abs=1e-3
            )


def shown_ids(opened: OpenPage) -> set[str]:
    """Return the ids of the pairs in the list, which shows all that are left by its filters."""
    return {said.removeprefix(" · ") for said in opened.texts("#list .who .muted") if said.startswith(" · ")}


def test_the_filters_find_the_pairs_of_two_systems_with_a_winner(opened: OpenPage, run: Path) -> None:
    opened.run("document.getElementById('reset').click()")
    opened.select("by-series", "x")
    opened.select("by-opponent", "y")
    opened.select("by-score", "y")
    pairs = row_lines(run)
    wanted = {
        pair["id"]
        for pair in pairs
        if {pair["system_a"], pair["system_b"]} == {"x", "y"}
        and pair["better"] == "ab"[pair["system_b"] == "y"]
    }
    assert shown_ids(opened) == wanted
    assert opened.texts("#status") == [
        f"{len(wanted)} of 16 pairs"
        if wanted
        else "No pair matches. Clear a filter, or search for fewer words."
    ]


def test_the_filter_of_orders_that_differ_finds_them(opened: OpenPage, run: Path) -> None:
    opened.run("document.getElementById('reset').click()")
    opened.select("by-state", "orders differ")
    assert shown_ids(opened) == {
        pair["id"]
        for pair in row_lines(run)
        if not (pair["better_orders_agree"] and pair["depth_orders_agree"])
    }


def test_a_pair_is_read_side_by_side_and_on_a_phone_one_below_the_other(opened: OpenPage) -> None:
    opened.run("document.getElementById('reset').click()")
    opened.run("document.querySelector('#list .line').click()")
    opened.run("new Promise((done) => setTimeout(done, 300))")
    cards = (
        "[...document.querySelectorAll('#detail .cards.pair .card')].map((card) => card.getClientRects()[0].{})"
    )
    titles = opened.texts("#detail .cards.pair h4")
    assert titles[:2] == ["a · x", "b · y"]
    assert titles[2:] == ["Shown first: a · x", "Shown first: b · y"]
    tops = opened.run(cards.format("top"))
    assert (tops[0] == tops[1], tops[2] == tops[3], tops[0] < tops[2]) == (True, True, True)
    opened._call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    opened.run("new Promise((done) => setTimeout(done, 300))")
    tops, lefts = opened.run(cards.format("top")), opened.run(cards.format("left"))
    assert tops == sorted(set(tops))
    assert len(set(lefts)) == 1
    opened._call("Emulation.clearDeviceMetricsOverride")
