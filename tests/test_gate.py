"""Tests of the gate of `compare`, by its command: each number is computed again from the raw rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import Cli
from scipy.stats import binomtest
from scripted import scripted_checks, scripted_comparison
from test_compare import judged

from localjudge import RowSource, score_run
from localjudge.rows.pairs import Pairing
from localjudge.statistics.exact_shares import fewest_to_exclude, kish_number, share_below

FEW = 200
INSTRUCTIONS = 24
RESPONSES = {
    "one response": lambda instruction: 1,
    "four responses": lambda instruction: 4,
    "one to four responses": lambda instruction: 1 + instruction % 4,
}
LOSSES = ("failed", "absent", "no response")
"""How NEW loses a row: it has no score, it is not there, or its response is null."""
SYSTEMS = (("s",), ("c", "a", "b"))

Record = dict[str, Any]


def rows(responses: str, systems: Sequence[str], text: str, seed: int) -> list[Record]:
    """Return rows of each system with random scores; the ids of two systems are the same."""
    random = np.random.default_rng(seed)
    return [
        {
            "id": f"{instruction}-{response}",
            "instruction": f"question {instruction}",
            "candidate": f"{text} {instruction} {response} {system}",
            "system": system,
            "help": int(random.integers(3, 6)),
        }
        for instruction in range(INSTRUCTIONS)
        for response in range(RESPONSES[responses](instruction))
        for system in systems
    ]


def with_loss(given: Sequence[Record], how: str, every: int = 3) -> Iterator[Record]:
    """Yield the rows, of which each third one loses its score."""
    for at, row in enumerate(given):
        if at % every == 0 and how == "absent":
            continue
        lost = {"help": None} if how == "failed" else {"candidate": None}
        yield row | (lost if at % every == 0 else {})


def compared(cli: Cli, *args: object, code: int | None = None) -> dict[str, Any]:
    end = cli("compare", *args, "--resamples", FEW, "--json")
    assert end.code in ((0, 3) if code is None else (code,)), end.err + end.out
    assert "Infinity" not in end.out, "which is not JSON"
    document: dict[str, Any] = json.loads(end.out)
    return document


def test_fewer_than_five_instructions_pass_no_condition(tmp_path: Path, cli: Cli) -> None:
    before = [row | {"help": 5} for row in rows("one response", "s", "old", 0)][:4]
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", [before[0] | {"help": 1}, *before[1:]], aspects=["help"])
    asked = ("--margin", "help=1.5", "--max-fell", "help=0.3", "--max-failed", "0.2")
    found = compared(cli, old, new, *asked, code=3)["gate"]
    assert [(each["change"], each["bound"], each["room"]) for each in found] == [
        (-1, None, None),
        (0.25, None, None),
        (0, None, None),
    ]
    assert "too few (4 instructions); a gate needs 5" in cli("compare", old, new, *asked).out


def change(old: Sequence[Record], new: Sequence[Record], system: str) -> float:
    """Return the mean change of a system, where each row of OLD without a score in NEW has the lowest one."""
    score = {row["id"]: row["help"] for row in new if row["system"] == system and row["candidate"]}
    changes = defaultdict(list)
    for row in old:
        if row["system"] == system and row["help"] is not None and row["candidate"]:
            now = score.get(row["id"])
            changes[row["instruction"]].append((1 if now is None else now) - row["help"])
    return float(np.mean([np.mean(each) for each in changes.values()]))


@pytest.mark.parametrize("systems", SYSTEMS, ids=len)
@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("responses", RESPONSES)
def test_each_row_that_has_no_score_in_new_counts_as_the_lowest_score(
    tmp_path: Path, cli: Cli, responses: str, how: str, systems: Sequence[str]
) -> None:
    before = rows(responses, systems, "old", 0)
    after = list(with_loss(rows(responses, systems[::-1], "new", 1)[::-1], how))
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", after, aspects=["help"])
    found = compared(cli, old, new, "--margin", "help=2.5")
    gate = {each["system"]: each for each in found["gate"]}
    assert gate.keys() == set(systems)
    for system in systems:
        assert gate[system]["change"] == pytest.approx(change(before, after, system))
    there = {(row["id"], row["system"]) for row in after if row["candidate"] and row["help"]}
    lost = {(row["id"], row["system"]) for row in before} - there
    assert {(row["id"], row["system"]) for row in found["missing"]} == lost
    assert sum(each["lost"] for each in found["gate"]) == len(lost)
    reason = {"failed": "no score of help", "absent": "not in new", "no response": "no value at"}[how]
    assert all(reason in row["reason"] for row in found["missing"])
    said = " ".join(cli("compare", old, new).out.split())
    assert f"{len(lost)} of {len(before)} rows of old have no score in new" in said
    assert reason in said
    assert "all responses are the same" not in said


def test_a_gate_that_would_pass_fails_if_three_rows_of_four_have_no_score(tmp_path: Path, cli: Cli) -> None:
    whole = [row | {"help": 4} for row in rows("four responses", "s", "same", 0)]
    some = [row | ({} if row["id"].endswith("0") else {"help": None}) for row in whole]
    old, same, new = (
        judged(tmp_path / name, given, aspects=["help"])
        for name, given in {"old": whole, "same": whole, "new": some}.items()
    )
    assert cli("compare", old, same, "--margin", "help=1").code == 0
    cases, page = tmp_path / "cases.xml", tmp_path / "page.md"
    end = cli("compare", old, new, "--margin", "help=1", "--junit", cases, "--markdown", page)
    assert end.code == 3
    failure = ElementTree.parse(cases).getroot()[0].find("failure")
    assert failure is not None
    for said in (end.out, page.read_text(), failure.text):
        assert "72 of 96 rows of old have no score in new" in " ".join(str(said).split())
        assert "no score of help" in str(said)


@pytest.mark.parametrize("systems", SYSTEMS, ids=len)
def test_a_gate_on_rows_finds_the_collapse_that_a_mean_hides(
    tmp_path: Path, cli: Cli, systems: Sequence[str]
) -> None:
    before = [row | {"help": 4} for row in rows("four responses", systems, "old", 0)]
    falls = range(0, len(before), 8)
    after = [row | {"help": 2 if at in falls else 5} for at, row in enumerate(before)]
    lost = [row | ({"help": None} if at in falls else {}) for at, row in enumerate(before)]
    old, worse, failed, same = (
        judged(tmp_path / name, given, aspects=["help"])
        for name, given in {"old": before, "worse": after, "failed": lost, "same": before}.items()
    )
    asked = ("--margin", "help=2", "--max-fell", "help=0.35", "--max-failed", "0.13")
    for new, passes in ((worse, [True, True, True]), (failed, [True, True, False]), (same, [True] * 3)):
        gate = compared(cli, old, new, *asked)["gate"]
        assert [each["passes"] for each in gate if each["system"] == systems[0]] == passes
        for each in gate[len(systems) :] if new != same else ():
            own = [at in falls for at, row in enumerate(before) if row["system"] == each["system"]]
            is_failure = not each["column"]
            assert each["change"] == pytest.approx(np.mean(own) * (new == failed or not is_failure))
            assert each["bound"] > each["change"]
    assert not all(each["passes"] for each in compared(cli, old, worse, "--max-fell", "help=0.13")["gate"])
    said = " ".join(cli("compare", old, failed, *asked).out.split())
    assert "less than 0.13 of the rows have no score" in said
    end = cli("compare", old, worse, "--max-failed", "2")
    assert (end.code, "--max-failed 2: must be a share between 0 and 1" in end.err) == (2, True)


@pytest.mark.parametrize("how", LOSSES)
def test_a_row_without_a_score_collapsed_wherever_it_was(tmp_path: Path, cli: Cli, how: str) -> None:
    before = [row | {"help": 2} for row in rows("one to four responses", "s", "old", 0)]
    old = judged(tmp_path / "old", before, aspects=["help"])
    bounds = []
    for name, every in {"few": 20, "many": 2}.items():
        new = judged(tmp_path / name, list(with_loss(before, how, every)), aspects=["help"])
        [gate] = compared(cli, old, new, "--max-fell", "help=0.3")["gate"]
        assert gate["change"] == pytest.approx(-(-len(before) // every) / len(before))
        assert gate["condition"] == "s: less than 0.3 of the rows fell in help by 2 or more, or have no score"
        bounds.append(gate["bound"])
    assert bounds[0] < 0.3 < bounds[1]


@pytest.mark.parametrize("most", [0.02, 0.05, 0.1, 0.3])
def test_the_bound_of_a_share_never_falls_when_one_more_row_fails(most: float) -> None:
    random = np.random.default_rng(0)
    for count in (fewest_to_exclude(most) - 1, fewest_to_exclude(most)):
        is_enough = count == fewest_to_exclude(most)
        assert (share_below(0, count) < most) == is_enough
    for _ in range(50):
        sizes = random.integers(1, 21, size=random.integers(5, 40))
        number = kish_number(np.repeat(np.arange(len(sizes)), sizes))
        assert 1 <= number <= len(sizes)
        bounds = [share_below(failed / sizes.sum(), number) for failed in range(sizes.sum() + 1)]
        assert bounds == sorted(bounds)


@pytest.mark.parametrize("option", ["--max-failed", "--max-fell"])
def test_a_share_that_passes_passes_with_one_failure_fewer(tmp_path: Path, cli: Cli, option: str) -> None:
    sizes = [10 if at % 4 == 0 else 1 for at in range(60)]
    before = [
        {"id": f"{at}-{place}", "instruction": f"q{at}", "candidate": f"old {at} {place}", "help": 4}
        for at, size in enumerate(sizes)
        for place in range(size)
    ]
    old = judged(tmp_path / "old", before, aspects=["help"])
    rooms = []
    for lost in (set(), {"1-0"}, {"1-0", "2-0"}, {"0-0", "1-0", "2-0"}):
        after = [row | ({"help": None} if row["id"] in lost else {}) for row in before]
        new = judged(tmp_path / f"lost-{len(lost)}", after, aspects=["help"])
        asked = "help=0.1" if option == "--max-fell" else "0.1"
        [gate] = compared(cli, old, new, option, asked)["gate"]
        assert gate["fewest"] == 29
        assert "60 instructions, which weigh as 25 with equal numbers of rows" in gate["reason"]
        rooms.append(gate["room"])
    assert rooms == sorted(rooms, reverse=True)
    assert len(set(rooms)) == len(rooms)


def test_a_failed_margin_says_how_often_an_unchanged_system_passes(tmp_path: Path, cli: Cli) -> None:
    old, new = (
        judged(tmp_path / name, rows("one response", "s", name, seed), aspects=["help"])
        for name, seed in {"old": 0, "new": 1}.items()
    )
    [gate] = compared(cli, old, new, "--margin", "help=0.3")["gate"]
    assert (gate["passes"], gate["chance"] < 0.1, gate["needed"] > 100) == (False, True, True)
    said = f"this much scatter would pass in {gate['chance']:.0%} of such comparisons"
    assert said in gate["reason"]
    [rise] = compared(cli, old, new, "--improve", "help")["gate"]
    assert rise["chance"] is None, "an unchanged system must not pass"


def test_rows_that_failed_in_old_are_named_and_compared_with_nothing(tmp_path: Path, cli: Cli) -> None:
    after = [row | {"help": 3} for row in rows("four responses", "s", "new", 1)]
    fails: dict[str, Record] = {"5-1": {"help": None}, "6-2": {"candidate": None}}
    before = [row | {"help": 3} | fails.get(row["id"], {}) for row in rows("four responses", "s", "old", 0)]
    after = [row | ({"help": 1} if row["id"] in ("5-1", "6-2") else {}) for row in after]
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", after, aspects=["help"])
    found = compared(cli, old, new, "--margin", "help=0.5")
    assert {row["id"]: row["reason"] for row in found["failed"]} == {
        "5-1": "no score of help",
        "6-2": "no candidate: no value at 'candidate'",
    }
    assert found["gate"][0]["change"] == 0
    said = " ".join(cli("compare", old, new).out.split())
    assert "2 rows of old failed, so nothing is compared with them" in said
    assert all(name in said for name in ("5-1", "6-2"))


def test_a_row_that_fails_in_both_runs_changes_nothing(tmp_path: Path, cli: Cli) -> None:
    given = [
        row | {"help": None if row["id"].endswith("-1") else 4}
        for row in rows("four responses", "s", "same", 0)
    ]
    old, new = (judged(tmp_path / name, given, aspects=["help"]) for name in ("old", "new"))
    found = compared(cli, old, new, "--margin", "help=1")
    assert (found["missing"], found["gate"][0]["change"]) == ([], 0)
    assert len(found["failed"]) == INSTRUCTIONS


def test_a_row_of_new_that_belongs_to_no_row_of_old_counts_in_nothing(tmp_path: Path, cli: Cli) -> None:
    before = [row | {"help": 4} for row in rows("one response", "s", "old", 0)]
    further = [row | {"help": 5} for row in rows("four responses", "s", "new", 0)]
    failed = [row | {"help": None if row["id"].endswith("-3") else row["help"]} for row in further]
    after = [row | {"help": 3} if row["id"].endswith("-0") else row for row in failed]
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", after, aspects=["help"])
    found = compared(cli, old, new, "--margin", "help=2.5", "--max-fell", "help=0.7", "--max-failed", "0.7")
    assert [each["change"] for each in found["gate"]] == [-1, 0, 0]
    assert (found["only_new"], len(found["unmatched"])) == (2 * INSTRUCTIONS, INSTRUCTIONS)
    said = " ".join(cli("compare", old, new).out.split())
    assert "48 rows of new with a score belong to no row of old, so they count in nothing" in said
    assert "24 rows of new failed and belong to no row of old, so they count in nothing" in said


@pytest.mark.parametrize("twice", ["old", "new"])
@pytest.mark.parametrize("has_ids", [True, False])
def test_a_gate_asks_for_ids_where_rows_of_one_id_or_none_are_not_as_many_in_both_runs(
    tmp_path: Path, cli: Cli, twice: str, has_ids: bool
) -> None:
    once = [row | {"help": 4} for row in rows("one response", "s", "same", 0)]
    if not has_ids:
        once = [{name: value for name, value in row.items() if name != "id"} for row in once]
    given = {"old": once, "new": once} | {twice: [row for row in once for _ in range(2)]}
    for name in ("old", "new"):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in given[name]))
        assert cli("import", file, "--aspect", "help", "--out", tmp_path / name).code == 0
    end = cli("compare", tmp_path / "old", tmp_path / "new", "--margin", "help=1")
    assert (end.code, "on 24 instructions" in end.err, "unique ids" in end.err) == (2, True, True)
    assert cli("compare", tmp_path / "old", tmp_path / "new").code == 0, "without a gate it is said"


def test_rows_without_ids_belong_together_by_their_order_whether_they_have_a_score_or_not(
    tmp_path: Path, cli: Cli
) -> None:
    """The row that failed in OLD is left out in both runs, also if it has a score in NEW."""
    for name, of_failed in {"old": None, "same": None, "read": 1}.items():
        given = [
            {"instruction": f"q{at}", "candidate": f"{text} {at}", "help": score}
            for at in range(12)
            for text, score in (("failed", of_failed), ("good", 4))
        ]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in given))
        assert cli("import", file, "--aspect", "help", "--out", tmp_path / name).code in (0, 1)
    for name in ("same", "read"):
        found = compared(cli, tmp_path / "old", tmp_path / name, "--margin", "help=2", "--max-failed", "0.3")
        assert [(each["change"], each["passes"]) for each in found["gate"]] == [(0, True), (0, True)]
        assert (len(found["failed"]), found["missing"]) == (12, [])


def test_ids_that_are_only_places_match_nothing_and_other_ids_are_never_overruled(
    tmp_path: Path, cli: Cli
) -> None:
    before = [row | {"help": 4} for row in rows("one response", "s", "old", 0)]
    renamed = [row | {"id": f"new {row['id']}"} for row in before]
    old, new = (
        judged(tmp_path / name, given, aspects=["help"])
        for name, given in {"old": before, "new": renamed}.items()
    )
    end = cli("compare", old, new, "--margin", "help=1")
    assert (end.code, "--by-order" in end.err) == (2, True)
    assert compared(cli, old, new, "--margin", "help=1", "--by-order")["gate"][0]["passes"]
    assert "rows are matched by their order" in cli("compare", old, new).out


def test_a_failed_row_counts_for_another_judge_too(tmp_path: Path, cli: Cli) -> None:
    before = [row | {"help": 4} for row in rows("four responses", "ab", "same", 0)]
    fails = {(row["id"], "b") for row in before if row["id"].endswith("-1")}
    after = [row | ({"help": None} if (row["id"], row["system"]) in fails else {}) for row in before]
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", after[::-1], "another judge", aspects=["help"])
    found = compared(cli, old, new, "--margin", "help=1")
    assert found["differs"] == "judge"
    gate = {each["system"]: each["change"] for each in found["gate"]}
    assert gate == {"a": 0, "b": pytest.approx(-3 / 4)}
    lost = {(row["system"], row["reason"]) for row in found["missing"]}
    assert lost == {("b", "failed in new: no score of help")}


def test_one_of_twelve_systems_that_falls_fails_the_gate_and_is_named(tmp_path: Path, cli: Cli) -> None:
    systems = [f"s{number:02}" for number in range(12)][::-1]
    random = np.random.default_rng(3)

    def run(name: str, drop: int) -> tuple[Path, list[Record]]:
        given = rows("four responses", systems, name, 0)
        for row in given:
            row["help"] = int(random.integers(4, 6)) - drop * (row["system"] == "s03")
        return judged(tmp_path / name, given, aspects=["help"]), given

    (old, before), (new, after) = run("old", 0), run("new", 1)
    cases = tmp_path / "cases.xml"
    found = compared(cli, old, new, "--margin", "help=0.7", "--junit", cases, code=3)
    assert {each["system"] for each in found["gate"] if not each["passes"]} == {"s03"}
    for each in found["gate"]:
        assert each["change"] == pytest.approx(change(before, after, each["system"]))
    suite = ElementTree.parse(cases).getroot()
    names = {case.get("name"): case.find("failure") is not None for case in suite}
    assert names == {f"{system}: help fell by less than 0.7": system == "s03" for system in systems}
    out = cli("compare", old, new, "--margin", "help=0.7", "--resamples", FEW).out
    said = " ".join(out.split())
    assert "Gate: FAILED, 1 of 12 conditions" in said
    assert "s03: help fell by less than 0.7: change" in said
    every = " ".join(cli("compare", old, new, "--margin", "help=0.7", "--resamples", FEW, "--all").out.split())
    assert "95 % confidence leaves, for one condition alone" in every
    assert "Of single systems, with intervals and p adjusted for all: s03: help fell" in every
    assert cli("compare", old, new, "--margin", "help=0.7", "--system", "s04", "--system", "s05").code == 0
    only = compared(cli, old, new, "--margin", "help=0.7", "--system", "s03", code=3)
    difference = only["columns"]["help"]["difference"]
    assert difference["value"] == pytest.approx(change(before, after, "s03"))
    assert difference.keys() == {"value", "low", "high"}, "no reason why there is no interval"
    end = cli("compare", old, new, "--system", "s3")
    assert (end.code, "--system s3: no row is of this system" in end.err) == (2, True)
    by = compared(cli, old, new)["by_system"]["rows"]
    assert {row["name"]: row["significant"] for row in by} == {
        system: ["help fell"] if system == "s03" else [] for system in systems
    }


def test_a_system_that_is_not_in_new_fails_the_gate(tmp_path: Path, cli: Cli) -> None:
    before = [row | {"help": 4} for row in rows("one response", "ab", "same", 0)]
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", [row for row in before if row["system"] == "a"], aspects=["help"])
    # With one system in NEW and two in OLD, names decide.
    gate = compared(cli, old, new, "--margin", "help=1.5", code=3)["gate"]
    assert {each["system"]: each["change"] for each in gate} == {"a": 0, "b": -3}


@pytest.mark.parametrize(("given", "twice"), [(("help=0.2", "help=3"), True), (("help=0_3",), False)])
def test_a_margin_that_is_given_twice_or_is_no_number_is_refused(
    tmp_path: Path, cli: Cli, given: Sequence[str], twice: bool
) -> None:
    old, new = (
        judged(tmp_path / name, rows("one response", "s", name, 0), aspects=["help"]) for name in ("old", "new")
    )
    end = cli("compare", old, new, *(part for each in given for part in ("--margin", each)))
    said = "help has 0.2 already" if twice else "--margin help=0_3: write COLUMN=DROP"
    assert (end.code, said in end.err) == (2, True), end.err


@pytest.mark.parametrize("fall", [1, 0.25])
def test_a_fall_that_is_the_same_everywhere_is_not_no_change(tmp_path: Path, cli: Cli, fall: float) -> None:
    before = [row | {"help": 4.5} for row in rows("one response", "s", "old", 0)]
    old = judged(tmp_path / "old", before, aspects=["help"])
    new = judged(tmp_path / "new", [row | {"help": 4.5 - fall} for row in before], aspects=["help"])
    found = compared(cli, old, new)["columns"]["help"]
    assert (found["difference"]["low"], found["p"]) == (None, None)
    assert (found["fell"], found["rose"]) == (INSTRUCTIONS, 0)
    p = binomtest(0, INSTRUCTIONS).pvalue
    assert found["sign_p"] == pytest.approx(p)
    assert found["difference"]["why"] == "it is the same on all instructions"
    out = cli("compare", old, new).out
    assert "No significant change" not in out
    said = f"help fell on {INSTRUCTIONS} of {INSTRUCTIONS} (exact sign test: p < .001)"
    assert said in " ".join(out.split())
    assert f"help -{fall:.2f}" in out


def test_the_reason_for_a_missing_interval_is_the_true_one(tmp_path: Path, cli: Cli) -> None:
    def why(name: str, changes: Sequence[float]) -> tuple[str, str]:
        given = [
            {"instruction": f"q{at}", "candidate": f"{name} {at}", "help": 5} for at, _ in enumerate(changes)
        ]
        after = [row | {"help": 5 + by} for row, by in zip(given, changes, strict=True)]
        runs = [
            judged(tmp_path / f"{name}-{which}", each, aspects=["help"])
            for which, each in {"old": given, "new": after}.items()
        ]
        found = compared(cli, *runs)["columns"]["help"]
        assert found["difference"]["low"] is None
        assert (found["rose"], found["fell"]) == (0, int(np.sum(np.array(changes) < 0)))
        return found["difference"]["why"], " ".join(cli("compare", *runs).out.split())

    reason, said = why("few", [0, -1, -2, -1])
    assert reason == "it depends on fewer than 5 instructions"
    assert reason in said
    reason, said = why("equal", [-1] * 30)
    assert reason == "it is the same on all instructions"
    reason, said = why("rare", [-1] + [0] * 400)
    assert reason.startswith("it varies on so few instructions")
    assert "help fell on 1 of 401 (" in said
    assert "On 401 instructions" in said
    assert "No significant change" not in said


WORDS = ("worse", "middle", "better")


def better_words(first: str, second: str) -> float:
    """A judge that prefers the response with the better word."""
    one, other = (next(at for at, word in enumerate(WORDS) if word in text) for text in (first, second))
    return 0.98 if one > other else 0.02 if one < other else 0.5


@pytest.fixture
def pair_run(tmp_path: Path, model: Path) -> Callable[..., Path]:
    """Return a function that judges pairs of responses of systems by a word of each."""

    def make(name: str, quality: Mapping[str, str], baseline: str | None, count: int = 8) -> Path:
        given = [
            {
                "id": f"{system}{at}",
                "instruction": f"Question {at}?",
                "system": system,
                "candidate": None if word == "null" else f"{word} {at}",
            }
            for at in range(count)
            for system, word in quality.items()
        ]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in given))
        pairing = Pairing(forms=True, baseline=baseline)
        judge = scripted_comparison(model, better_words)
        source = RowSource.from_files([str(file)], used=judge.rubric.fields, pairing=pairing)
        score_run(judge, source, tmp_path / name)
        return tmp_path / name

    return make


@pytest.mark.parametrize(("candidate", "baseline"), [("zeta", "alpha"), ("aaa", "mid")])
def test_the_gate_of_pairs_is_about_the_system_that_is_not_the_baseline(
    pair_run: Callable[..., Path], cli: Cli, tmp_path: Path, candidate: str, baseline: str
) -> None:
    old = pair_run("old", {baseline: "middle", candidate: "better"}, baseline)
    new = pair_run("new", {candidate: "worse", baseline: "middle"}, baseline)
    cases, page = tmp_path / "cases.xml", tmp_path / "page.md"
    wanted = ("--margin", "better=0.3", "--improve", "better", "--junit", cases, "--markdown", page)
    found = compared(cli, old, new, *wanted, code=3)
    whose = f"{candidate} over {baseline}"
    assert [(each["system"], each["passes"]) for each in found["gate"]] == [(whose, False)] * 2
    assert found["gate"][0]["change"] == pytest.approx(-0.96)
    names = [case.get("name") for case in ElementTree.parse(cases).getroot()]
    assert names == [f"{whose}: better fell by less than 0.3", f"{whose}: better rose"]
    for said in (page.read_text(), cli("compare", old, new).out):
        assert "better fell on 8 of 8 (exact sign test" in " ".join(said.split())
        assert f"On 8 instructions, 8 pairs of {whose}" in " ".join(said.split())
    back = compared(cli, new, old, "--margin", "better=0.3", "--improve", "better")["gate"]
    assert [each["passes"] for each in back] == [True, True]
    of_baseline = compared(cli, old, new, "--margin", "better=0.3", "--system", baseline)
    assert of_baseline["gate"][0]["change"] == pytest.approx(0.96)
    assert of_baseline["gate"][0]["system"] == f"{baseline} over {candidate}"


def test_a_gate_of_pairs_is_refused_where_two_systems_are_possible(
    pair_run: Callable[..., Path], cli: Cli
) -> None:
    old, new = (pair_run(name, {"x": "middle", "y": "better"}, None) for name in ("old", "new"))
    end = cli("compare", old, new, "--margin", "better=0.3")
    assert (end.code, "(x, y); name it with --system" in end.err) == (2, True), end.err
    assert "x over y" in cli("compare", old, new).out, "without a gate, the numbers say whose they are"
    gate = compared(cli, old, new, "--margin", "better=0.3", "--system", "y")["gate"]
    assert [each["system"] for each in gate] == ["y over x"]


def test_each_system_of_pairs_has_its_own_condition_and_its_lost_pairs(
    pair_run: Callable[..., Path], cli: Cli
) -> None:
    old = pair_run("old", {"m": "middle", "a": "better", "z": "better"}, "m")
    new = pair_run("new", {"z": "null", "a": "better", "m": "middle"}, "m")
    found = compared(cli, old, new, "--margin", "better=0.9", code=3)
    gate = {each["system"]: each for each in found["gate"]}
    assert gate["a over m"]["change"] == 0
    assert (gate["z over m"]["change"], gate["z over m"]["lost"]) == (pytest.approx(-0.98), 8)
    assert {row["reason"] for row in found["missing"]} == {
        "failed in new: no candidate: no value at 'candidate'"
    }
    everyone = {"a": "better", "m": "middle", "z": "worse"}
    whole = [pair_run(f"all-{name}", everyone, None) for name in ("old", "new")]
    gate = compared(cli, *whole, "--margin", "better=0.9", "--system", "m")["gate"]
    assert [(each["system"], each["instructions"]) for each in gate] == [("m over 2 others", 8)]


def test_pairs_that_name_no_systems_have_no_gate(model: Path, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"instruction": "Q?", "candidate_a": "better", "candidate_b": "worse"}
    file.write_text("".join(json.dumps(row | {"instruction": f"Q{at}?"}) + "\n" for at in range(6)))
    judge = scripted_comparison(model, better_words)
    for name in ("old", "new"):
        score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), tmp_path / name)
    end = cli("compare", tmp_path / "old", tmp_path / "new", "--margin", "better=0.3")
    assert (end.code, "the pairs name no systems" in end.err) == (2, True), end.err


def test_rows_with_criteria_have_a_gate_on_their_score(model: Path, tmp_path: Path, cli: Cli) -> None:
    asked = [{"criterion": "names red", "points": 2}, {"criterion": "names a fault", "points": -1}]

    def run(name: str, text: str, lost: int | None) -> Path:
        given = [
            {
                "id": f"{at}",
                "instruction": f"Question {at}?",
                "candidate": None if at == lost else text,
                "system": system,
                "criteria": asked,
            }
            for at in range(8)
            for system in "ba"
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
        with scripted_checks(model, lambda response, each: float(each.split()[-1] in response)) as judge:
            source = RowSource.from_files([str(tmp_path / f"{name}.jsonl")], used=judge.rubric.fields)
            score_run(judge, source, tmp_path / name)
        return tmp_path / name

    old, new = run("old", "red", None), run("new", "red, a fault", 3)
    found = compared(cli, old, new, "--margin", "score=1.4")
    assert found["columns"]["score"]["difference"]["value"] == pytest.approx(-0.5)
    lowest = -0.5  # the score of a row that meets only the fault
    for each in found["gate"]:
        assert each["change"] == pytest.approx((7 * 0.5 + lowest) / 8 - 1)
    assert {(row["id"], row["system"]) for row in found["missing"]} == {("3", "a"), ("3", "b")}
    assert "score fell on 7 of 7" in cli("compare", old, new).out


@pytest.mark.parametrize("has_negative_points", [False, True])
def test_a_checklist_collapses_by_half_of_its_score_whatever_points_a_row_has(
    model: Path, tmp_path: Path, cli: Cli, has_negative_points: bool
) -> None:
    def run(name: str, text: str) -> Path:
        given = []
        for at in range(12):
            asked = [{"criterion": "names red", "points": 2}]
            if has_negative_points and at == 0:
                asked.append({"criterion": "names a fault", "points": -1})
            given.append(
                {"id": f"{at}", "instruction": f"Question {at}?", "candidate": text, "criteria": asked}
            )
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
        with scripted_checks(
            model, lambda response, each: 0.9 if each.split()[-1] in response else 0.3
        ) as judge:
            source = RowSource.from_files([str(tmp_path / f"{name}.jsonl")], used=judge.rubric.fields)
            score_run(judge, source, tmp_path / name)
        return tmp_path / name

    old, new = run("old", "red"), run("new", "blue")
    [gate] = compared(cli, old, new, "--max-fell", "score=0.5")["gate"]
    assert (gate["change"], gate["passes"]) == (1, False)
    assert gate["condition"] == "less than 0.5 of the rows fell in score by 0.5 or more, or have no score"


def test_missing_rows_are_said_first_and_the_common_rows_can_be_compared_alone(
    tmp_path: Path, cli: Cli
) -> None:
    before = [row | {"help": 4} for row in rows("four responses", ("a", "b"), "old", 0)]
    gone = {row["id"] for row in before if int(row["id"].partition("-")[0]) < 20}
    after = [row for row in before if row["system"] == "a" or row["id"] not in gone]
    old, new = (
        judged(tmp_path / name, given, aspects=["help"])
        for name, given in {"old": before, "new": after}.items()
    )
    end = cli("compare", old, new, "--resamples", FEW)
    said = " ".join(end.out.split())
    assert "Missing in new: 80 of 96 rows of b of old. Judge them, or" in said
    assert said.index("Missing in new") < said.index("Nothing changed")
    found = compared(cli, old, new)
    # Of b, 20 instructions fall from 4 to 1; an instruction has the mean of both systems.
    assert found["imputed"]["help"] == pytest.approx(-3 * 20 / 24 / 2)
    common = compared(cli, old, new, "--common")
    assert (common["imputed"], common["columns"]["help"]["difference"]["value"]) == ({}, 0)
    lines = cli("compare", old, new, "--common", "--resamples", FEW).out.splitlines()
    assert sum(line.startswith("Of the common rows alone") for line in lines) == 2, "the change, and on what"
    end = cli("compare", old, new, "--common", "--margin", "help=1")
    assert (end.code, "--common" in end.err, "--where" in end.err) == (2, True, True)


def test_the_chance_of_a_margin_is_not_computed_from_scores_that_are_not_there(
    tmp_path: Path, cli: Cli
) -> None:
    before = [row | {"help": 4} for row in rows("one response", "s", "old", 0)]
    old = judged(tmp_path / "old", before, aspects=["help"])
    same = judged(tmp_path / "same", before, aspects=["help"])
    lost = judged(tmp_path / "lost", [before[0] | {"help": None}, *before[1:]], aspects=["help"])
    [whole] = compared(cli, old, same, "--margin", "help=1")["gate"]
    [partial] = compared(cli, old, lost, "--margin", "help=1")["gate"]
    assert (whole["chance"], whole["needed"]) == (1, whole["fewest"])
    assert (partial["chance"], partial["needed"]) == (None, None)
    assert (partial["measured"], partial["change"]) == (0, pytest.approx(-3 / INSTRUCTIONS))


def test_a_rise_that_the_table_calls_significant_passes_the_gate(tmp_path: Path, cli: Cli) -> None:
    random = np.random.default_rng(2)
    before = rows("one to four responses", "s", "old", 0)
    passed = []
    for number in range(8):
        after = [row | {"help": min(5, row["help"] + int(random.random() < number / 12))} for row in before]
        old = judged(tmp_path / f"old{number}", before, aspects=["help"])
        new = judged(tmp_path / f"new{number}", after, aspects=["help"])
        found = compared(cli, old, new, "--improve", "help")
        change, [gate] = found["columns"]["help"], found["gate"]
        if change["p"] is not None and change["p"] < 0.05:
            assert gate["passes"]
        passed.append(gate["passes"])
    assert passed[0] is False
    assert passed[-1] is True


def test_lost_rows_of_a_system_that_only_new_names_are_said_and_instructions_are_counted_once(
    tmp_path: Path, cli: Cli
) -> None:
    before = [row | {"help": 4} for row in rows("one response", "s", "old", 0)]
    unnamed = [{name: value for name, value in row.items() if name != "system"} for row in before]
    old = judged(tmp_path / "old", unnamed, aspects=["help"])
    new = judged(tmp_path / "new", [before[0] | {"help": None}, *before[3:]], aspects=["help"])
    said = " ".join(cli("compare", old, new).out.split())
    assert "Missing in new: 2 of 24 rows of s of old" in said
    assert "No score in new: 1 of 24 rows of s of old" in said
    both = [row | {"id": "same"} for row in rows("four responses", ("a", "b"), "old", 0)]
    fewer = [row for at, row in enumerate(both) if at % 8 < 6]
    runs = (judged(tmp_path / name, given, aspects=["help"]) for name, given in {"x": both, "y": fewer}.items())
    assert "y: on 24 instructions it has another number" in cli("compare", *runs, "--margin", "help=1").err
