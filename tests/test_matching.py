"""Tests of how records are matched to judged rows: against the rows that the records were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from report_page import head

from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.judged_rows import read_judged_pairs, read_scores
from localjudge.matching.labels import read_labels
from localjudge.matching.record_identity import identities_of, label_reader
from localjudge.matching.row_index import BY_ID_ALONE, RowIndex
from localjudge.matching.run_alignment import align_runs
from localjudge.matching.system_names import SystemNames
from localjudge.records import Response, Row
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.studies.imported_scores import import_scores
from localjudge.studies.jury import compare_judges
from localjudge.studies.jury_run import write_jury
from localjudge.studies.rank import rank
from localjudge.studies.rank.preference_ranking import preferences_of, rank_pairs

READS_REFERENCE = ("instruction", "reference", "candidate")
OF_PAIRS = ("instruction", "candidate_a", "candidate_b")
Record = dict[str, Any]

some = st.sampled_from
response = st.fixed_dictionaries(
    {
        "id": some(["q0", "q1", "q2"]),
        "system": some([None, "north", "south"]),
        "instruction": some(["Why?", "How?"]),
        "reference": some([None, "So."]),
        "candidate": some(["yes", "no", ""]),
    }
)
"""A response among few, so that ids, texts and systems are often equal."""
KNOWN = [
    ("id",),
    ("id", "system"),
    ("instruction", "candidate"),
    ("id", "instruction", "candidate"),
    ("id", "system", "candidate"),
    ("id", "system", "instruction", "reference", "candidate"),
]
"""What a label record can have of its response."""


def row_of(record: Record) -> Row:
    return Row(
        instruction=record["instruction"],
        responses=(Response(record["candidate"], record["system"]),),
        reference=record["reference"],
        id=record["id"],
    )


def identity(record: Record, used: Sequence[str] = READS_REFERENCE) -> Identity:
    """Return what a line of a run whose rubric uses these fields says of a response."""
    row = replace(row_of(record), reads_reference="reference" in used)
    return Identity("line", row.id, (row.system,), row.response_digests, row.group)


def judged(rows: Sequence[Record]) -> RowIndex:
    """Return these responses as judged rows."""
    return RowIndex([identity(row) for row in rows], READS_REFERENCE, lambda: enumerate(map(row_of, rows)))


def fits(row: Record, record: Mapping[str, Any]) -> bool:
    """Return whether nothing that the record and the row both have contradicts the other."""
    has_texts = {"instruction", "candidate"} <= record.keys()
    texts = [name for name in ("instruction", "candidate", "reference") if record.get(name) is not None]
    same = all(row[name] == record[name] for name in texts)
    known = None not in (row["system"], record.get("system"))
    return (
        same and (has_texts or row["id"] == record["id"]) and not (known and row["system"] != record["system"])
    )


@settings(max_examples=400)
@given(st.lists(response, min_size=1, max_size=8), response, some(KNOWN))
def test_a_record_is_of_its_own_row_or_of_none(
    rows: list[Record], source: Record, known: tuple[str, ...]
) -> None:
    record = {name: source[name] for name in known}
    fitting = [place for place, row in enumerate(rows) if fits(row, record)]
    matching = judged(rows)
    try:
        ((own, _),) = identities_of(record, "labels:1", label_reader([record], {}, READS_REFERENCE))
        found = matching.find(own).rows
    except UsageError:
        contents = {tuple(rows[place][name] for name in ("system", *READS_REFERENCE)) for place in fitting}
        assert len(contents) > 1, "nothing had to be told apart"
        return
    assert bool(found) == bool(fitting), "a record that fits a row has it, and no other has one"
    assert set(found) <= set(fitting)
    assert len({tuple(rows[place][name] for name in ("system", *READS_REFERENCE)) for place in found}) <= 1
    notes = " ".join(matching.notes("records"))
    if not found:
        assert notes.startswith("1 of 1 records")
        assert ("another" in notes) == any(
            row["id"] == record.get("id") for row in rows
        ) or "candidate" in record
    by_id_alone = found and "candidate" not in record
    has_systems = found and None not in (record.get("system"), rows[found[0]]["system"])
    assert (BY_ID_ALONE in notes) == bool(by_id_alone and not has_systems)


def test_an_id_that_is_there_twice_leaves_no_row_with_equal_texts_alone(manifest: RunManifest) -> None:
    def rows(*ids: str) -> list[Identity]:
        record = {"system": "north", "instruction": "Why?", "reference": None, "candidate": "no"}
        return [identity({"id": name, **record}, manifest.rubric.fields) for name in ids]

    def pairs(one: list[Identity], two: list[Identity]) -> list[tuple[int, ...]]:
        return align_runs([one, two], [manifest, manifest])[0]

    assert pairs(rows("q0", "q1"), rows("q0", "q0")) == [(0, 0), (1, 1)]
    assert pairs(rows("q0", "q1"), rows("q0", "q0", "q1")) == [(0, 0), (1, 2)], "equal ids first"


@settings(max_examples=200)
@given(st.lists(response, min_size=1, max_size=6), st.lists(response, max_size=3), st.randoms())
def test_the_rows_of_two_runs_are_matched_whatever_their_order(
    manifest: RunManifest, rows: list[Record], foreign: list[Record], random: Any
) -> None:
    other = [dict(row) for row in rows if random.random() < 0.8] + foreign
    random.shuffle(other)
    used = manifest.rubric.fields
    one, two = [identity(row, used) for row in rows], [identity(row, used) for row in other]
    try:
        common, _ = align_runs([one, two], [manifest, manifest])
    except UsageError:
        return  # a row without a system stands beside rows with one; the test above says when
    for first, second in common:
        assert [rows[first][name] for name in ("instruction", "candidate")] == [
            other[second][name] for name in ("instruction", "candidate")
        ]
        systems = {rows[first]["system"], other[second]["system"]} - {None}
        assert len(systems) <= 1
    assert len({first for first, _ in common}) == len({second for _, second in common}) == len(common)
    if all(row["system"] for row in rows + other):
        content = [(row["instruction"], row["candidate"], row["system"]) for row in rows]
        theirs = [(row["instruction"], row["candidate"], row["system"]) for row in other]
        assert len(common) == sum(min(content.count(each), theirs.count(each)) for each in set(content))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> RunManifest:
    folder = tmp_path_factory.mktemp("run")
    return read_manifest(imported(folder, [{"id": "r", "instruction": "i", "candidate": "c", "wit": 3}]))


def imported(folder: Path, rows: Sequence[Record], name: str = "run", judge: str = "people") -> Path:
    """Import rows with scores as a run, and return its directory."""
    file = write(folder / f"{name}.jsonl", rows)
    import_scores([str(file)], folder / name, ["wit"], judge=judge)
    return folder / name


def write(file: Path, records: Sequence[Record]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


pair = st.fixed_dictionaries(
    {
        "id": some(["p0", "p1"]),
        "instruction": some(["Why?", "How?"]),
        "candidate_a": some(["yes", "no"]),
        "candidate_b": some(["perhaps", "always"]),
        "system_a": some(["north", "east"]),
        "system_b": some(["south", "west"]),
    }
)


@settings(max_examples=300)
@given(
    st.lists(pair, min_size=1, max_size=5),
    pair,
    st.booleans(),
    some([("texts",), ("systems",), ("texts", "systems")]),
)
def test_a_record_of_a_pair_is_of_its_own_pair_in_its_order(
    pairs: list[Record], source: Record, is_reversed: bool, known: tuple[str, ...]
) -> None:
    names = {"texts": ["instruction", "candidate_a", "candidate_b"], "systems": ["id", "system_a", "system_b"]}
    record = {name: source[name] for each in known for name in names[each]}
    swap = {"candidate_a": "candidate_b", "system_a": "system_b"}
    swap |= {other: name for name, other in swap.items()}
    if is_reversed:
        record = {swap.get(name, name): value for name, value in record.items()}
    rows = [
        Row(
            instruction=each["instruction"],
            responses=tuple(Response(each[f"candidate_{side}"], each[f"system_{side}"]) for side in "ab"),
            reads_reference=False,
        )
        for each in pairs
    ]
    identities = [
        Identity("line", each["id"], (each["system_a"], each["system_b"]), row.response_digests, row.group)
        for each, row in zip(pairs, rows, strict=True)
    ]
    matching = RowIndex(identities, OF_PAIRS, lambda: enumerate(rows), "pair")
    asked = [name for each in known for name in names[each] if name != "id" or "texts" not in known]
    fitting = {place for place, each in enumerate(pairs) if all(each[name] == source[name] for name in asked)}
    try:
        ((own, _),) = identities_of(record, "labels:1", label_reader([record], {}, OF_PAIRS))
        found = matching.find(own)
    except UsageError:
        contents = {tuple(pairs[place][name] for name in (*OF_PAIRS, *swap)) for place in fitting}
        assert len(contents) > 1
        return
    assert set(found.rows) <= fitting
    assert bool(found.rows) == bool(fitting)
    assert not found.rows or found.is_reversed == is_reversed


ROWS = [
    {
        "id": f"q{number}",
        "system": system,
        "instruction": f"Question {number}?",
        "candidate": f"{system} {number}",
        "wit": 1 + (number + len(system)) % 5,
    }
    for number in range(6)
    for system in ("north", "east")
]


def without(rows: Sequence[Record], *names: str) -> list[Record]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def labels(run: Path, *files: Path) -> tuple[list[float], tuple[str, ...], tuple[str, ...]]:
    """Return the labels of a run by its rows, the annotators, and the notes."""
    found = read_labels(list(map(str, files)), read_scores([run]))
    return found.marks["wit"].value.tolist(), found.annotators, found.notes


def test_labels_of_last_week_are_not_applied_to_this_week(tmp_path: Path) -> None:
    run = imported(tmp_path, ROWS)
    old = [{**row, "candidate": f"{row['candidate']} of last week"} for row in ROWS]
    mixed = write(tmp_path / "mixed.jsonl", [*ROWS[:3], *old[3:]])
    values, annotators, notes = labels(run, mixed)
    assert (values, annotators) == ([row["wit"] for row in ROWS[:3]], ("annotator 1",))
    assert notes == (
        "9 of 12 label records have the id of a judged row, but another text, and are not used (first: "
        f"{mixed}:4, id q1)",
        "the labels do not say how their rows were drawn; they are taken as a random sample",
    )
    with pytest.raises(UsageError, match=r"none of its 12 records matches a row .* but another text"):
        labels(run, write(tmp_path / "old.jsonl", old))


def test_labels_of_other_systems_are_not_applied_to_a_run_of_one(tmp_path: Path) -> None:
    run = imported(tmp_path, [row for row in ROWS if row["system"] == "north"])
    everyone = write(tmp_path / "all.jsonl", without(ROWS, "instruction", "candidate"))
    values, annotators, notes = labels(run, everyone)
    assert (values, annotators) == ([row["wit"] for row in ROWS[::2]], ("annotator 1",))
    assert notes[0].startswith("6 of 12 label records have another system than their row, and are not used")


def test_a_repeated_id_is_refused_with_the_column_that_tells_rows_apart(tmp_path: Path) -> None:
    run = imported(tmp_path, without(ROWS, "system"))
    bare = write(tmp_path / "bare.jsonl", without(ROWS, "system", "instruction", "candidate"))
    with pytest.raises(
        UsageError, match=r"2 judged rows have the id of this record .* add the column system, or instr"
    ):
        labels(run, bare)


FAITHFUL = """
name = "faithful"
[aspects.faithful]
choices = ["no", "yes"]
ordered = true
[prompt]
template = "{$context} {$instruction} {$reference} {$candidate} {$aspects} {$answer_format}"
"""


@pytest.mark.parametrize("differs", ["context", "reference"])
@pytest.mark.parametrize("is_moved", [False, True])
def test_rows_that_differ_in_one_text_that_the_rubric_shows_have_labels_of_their_own(
    cli: Cli, tmp_path: Path, differs: str, is_moved: bool
) -> None:
    rubric = tmp_path / "faithful.toml"
    rubric.write_text(FAITHFUL)
    rows = [
        {
            "id": f"{number}-{said}",
            "instruction": f"How high is tower {number}?",
            "candidate": f"{number} m",
            "system": "north",
            "context": "no context",
            "reference": "no reference",
            differs: f"It is {said} m high.",
        }
        for number in range(6)
        for said in (number, 900 + number)
    ]
    file = write(tmp_path / "rows.jsonl", rows)
    run = tmp_path / "run"
    assert cli("score", file, "--rubric", rubric, "--engine", "dry-run", "--out", run).code == 0
    if is_moved:
        file.rename(tmp_path / "moved.jsonl")
    right = ["no" if row["id"].split("-")[1].startswith("90") else "yes" for row in rows]
    labelled = [{**row, "faithful": label} for row, label in zip(rows, right, strict=True)][::-1]
    told = {
        "texts": without(labelled, "id"),
        "texts, and ids of another numbering": [
            {**row, "id": str(number)} for number, row in enumerate(without(labelled, "id"))
        ],
        "the id": without(labelled, differs),
        "the id and the system": without(labelled, "instruction", "candidate", "context", "reference"),
    }
    for what, records in told.items():
        found = read_labels([str(write(tmp_path / "labels.jsonl", records))], read_scores([run]))
        assert found.means("faithful")[0].tolist() == list(range(12)), what
        assert found.means("faithful")[1].tolist() == [1 + (label == "yes") for label in right], what
    bare = write(tmp_path / "bare.jsonl", without(labelled, "id", differs))
    with pytest.raises(
        UsageError, match=rf"2 judged rows have the texts of this record .* add the column {differs}, or id"
    ):
        read_labels([str(bare)], read_scores([run]))
    other = [{**row, differs: "It is lower."} for row in labelled]
    with pytest.raises(
        UsageError, match="12 of 12 label records have the id of a judged row, but another text"
    ):
        read_labels([str(write(tmp_path / "other.jsonl", other))], read_scores([run]))


def test_the_number_of_a_row_does_not_count_against_its_texts(tmp_path: Path) -> None:
    numbered = [{**row, "id": f"{number}"} for number, row in enumerate(ROWS)]
    run = imported(tmp_path, numbered)
    turned = [{**row, "id": f"{number}"} for number, row in enumerate(reversed(ROWS))]
    found = read_labels([str(write(tmp_path / "turned.jsonl", turned))], read_scores([run]))
    assert found.means("wit")[1].tolist() == [row["wit"] for row in ROWS]


def test_a_file_given_twice_and_an_annotator_named_twice_are_one(tmp_path: Path) -> None:
    run = imported(tmp_path, ROWS)
    anna = [{**row, "annotator": "anna"} for row in ROWS]
    for records, name in ((ROWS, "annotator 1"), (anna, "anna")):
        file = write(tmp_path / "labels.jsonl", records)
        copy = write(tmp_path / "copy.jsonl", records)
        values, annotators, notes = labels(run, file, copy)
        assert (len(values), annotators) == (12, (name,))
        assert notes == ("12 of 24 label records repeat labels of one row and annotator",)
    other = [{**row, "wit": 6 - row["wit"]} for row in anna]
    values, annotators, notes = labels(run, file, write(tmp_path / "other.jsonl", other))
    assert len(values) == sum(row["wit"] == 3 for row in ROWS), "labels that contradict each other do not count"
    assert "labels are not used, because their annotator gave the same row another one (first: " in notes[-1]
    advice = r"another label of wit already .* add the column annotator, or, .* equal texts, id"
    with pytest.raises(UsageError, match=advice):
        labels(run, write(tmp_path / "x.jsonl", [*ROWS, *without(other, "annotator")]))


def test_labels_without_ids_or_texts_name_their_columns(tmp_path: Path) -> None:
    run = imported(tmp_path, ROWS)
    bare = write(tmp_path / "bare.jsonl", [{"wit": 3, "note": "good"}])
    with pytest.raises(UsageError, match="its columns are note, wit"):
        labels(run, bare)


def test_the_export_of_another_judge_labels_the_same_responses(cli: Cli, tmp_path: Path) -> None:
    run = imported(tmp_path, ROWS)
    turned = [{**row, "id": f"other {number}"} for number, row in enumerate(ROWS[::-1])]
    other = imported(tmp_path, turned, "other", judge="second")
    export = tmp_path / "export.jsonl"
    assert cli("export", other, "--to", "jsonl", "--out", export).code == 0
    found = read_labels([str(export)], read_scores([run]))
    assert found.means("wit")[1].tolist() == [row["wit"] for row in ROWS]
    assert found.annotators == ("second",), "the judge is the annotator"


def test_a_jury_matches_rows_by_their_texts(tmp_path: Path) -> None:
    bare = without(ROWS, "system")
    one, two = imported(tmp_path, bare, "one"), imported(tmp_path, bare[::-1], "two")
    jury = compare_judges([one, two], resamples=100)
    assert (jury.rows, jury.aspects["wit"].unanimous) == (12, 1)
    assert write_jury([one, two], tmp_path / "jury").judged == 12
    scores = read_scores([tmp_path / "jury"])
    assert scores.integer[:, 0].tolist() == [row["wit"] for row in ROWS]
    others = imported(tmp_path, [{**row, "candidate": f"not {row['candidate']}"} for row in bare], "others")
    for refuse in (
        lambda: compare_judges([one, others], resamples=100),
        lambda: write_jury([one, others], tmp_path / "none"),
    ):
        with pytest.raises(
            UsageError, match="12 of 12 rows of others have the id of a judged row, but another text"
        ):
            refuse()
    assert not (tmp_path / "none").exists()


answer = st.tuples(some(["north", "east"]), some(["g0", "g1"]), some(["yes", "no"]))


@settings(max_examples=300)
@given(st.lists(st.lists(answer, max_size=4), min_size=2, max_size=3), st.booleans())
def test_a_name_is_one_system_unless_its_runs_differ_on_an_instruction(
    runs: list[list[tuple[str, str, str]]], same_judge: bool
) -> None:
    names = SystemNames("abc"[: len(runs)], [{"model": 0 if same_judge else run} for run in range(len(runs))])
    for run, answers in enumerate(runs):
        for system, group, text in answers:
            names.add(run, Identity("", None, (system,), (text,), group))
    found, _ = names.names()
    for system in ("north", "east"):
        own = [run for run, answers in enumerate(runs) if any(name == system for name, _, _ in answers)]
        said = {
            (run, group): {text for name, asked, text in runs[run] if (name, asked) == (system, group)}
            for run in own
            for group in ("g0", "g1")
        }
        differs = any(
            said[one, group] and said[other, group] and said[one, group] != said[other, group]
            for group in ("g0", "g1")
            for one in own
            for other in own
        )
        is_apart = len(own) > 1 and (differs or not same_judge)
        assert [found[run, system] for run in own] == [
            f"{system} · {'abc'[run]}" if is_apart else system for run in own
        ]


def test_a_system_that_answers_differently_in_two_runs_is_two_systems(tmp_path: Path) -> None:
    last = [{**row, "candidate": f"old {row['candidate']}", "wit": 5} for row in ROWS]
    runs = [imported(tmp_path, ROWS, "this"), imported(tmp_path, last, "last")]
    scores = read_scores(runs)
    assert scores.systems == ("east · last", "east · this", "north · last", "north · this")
    assert any(
        "north, east answered the same instructions differently in this, last" in each
        for each in scores.notices
    )
    assert {system.name for system in rank(scores, resamples=100).systems} == set(scores.systems)


def test_responses_that_one_judge_judged_twice_are_averaged_and_parts_are_pooled(
    cli: Cli, tmp_path: Path
) -> None:
    again = imported(tmp_path, [{**row, "wit": 6 - row["wit"]} for row in ROWS], "again")
    scores = read_scores([imported(tmp_path, ROWS), again])
    assert scores.systems == ("east", "north")
    said = "north, east gave responses that were judged in several of run, again, 6 per system"
    assert f"several runs: {said}; their scores are averaged" in scores.notices
    assert {system.means["wit"].value for system in rank(scores, resamples=100).systems} == {3}
    for command in (("agree",), ("calibrate", "--out", tmp_path / "map.json")):
        end = cli(*command, *scores.folders, "--labels", write(tmp_path / "labels.jsonl", ROWS))
        assert end.code == 2
        assert f"is in {scores.folders[0]} and in {again}; give runs" in " ".join(end.err.split())
    parts = [imported(tmp_path, part, name) for part, name in ((ROWS[:6], "first"), (ROWS[6:], "second"))]
    scores = read_scores(parts)
    assert scores.systems == ("east", "north")
    pooled = (
        "several runs: north, east answered no instruction in two of first, second; the rows count together"
    )
    assert pooled in scores.notices


def test_a_reference_that_no_rubric_reads_tells_no_instructions_apart(tmp_path: Path) -> None:
    rows = [{**row, "reference": row["system"]} for row in ROWS]
    assert read_scores([imported(tmp_path, rows)]).groups == 6


def test_two_settings_of_a_judge_are_two_judges(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [{**row, "reference": "so"} for row in ROWS[:4]])
    for name, flags in (
        ("one", ("--seed", 1)),
        ("two", ("--seed", 2)),
        ("short", ("--max-rationale-tokens", 5)),
    ):
        assert cli("score", file, "--out", tmp_path / name, *flags).code == 0
    ended = cli("rank", tmp_path / "one", tmp_path / "two", "--resamples", 100)
    assert (ended.code, "their scores are averaged" in " ".join(ended.out.split())) == (0, True), ended.err
    ended = cli("rank", tmp_path / "one", tmp_path / "short")
    assert ended.code == 2
    assert "judged with another max_rationale_tokens than" in ended.err


def test_pairs_of_last_week_are_of_other_systems(cli: Cli, tmp_path: Path) -> None:
    pairs = [
        {
            "id": f"p{number}",
            "instruction": f"Question {number}?",
            **{f"candidate_{side}": f"{system} {number}" for side, system in (("a", "north"), ("b", "east"))},
            **{f"system_{side}": system for side, system in (("a", "north"), ("b", "east"))},
        }
        for number in range(3)
    ]
    others = [{**pair, "candidate_b": "a third", "system_b": "west"} for pair in pairs]
    changed = [{**pair, "candidate_a": "new"} for pair in pairs]
    for name, rows in (("this", pairs), ("west", others), ("last", changed)):
        file = write(tmp_path / f"{name}.jsonl", rows)
        assert cli("score", file, "--rubric", "pairwise", "--out", tmp_path / name).code == 0
    read = [read_judged_pairs([tmp_path / "this", tmp_path / name]) for name in ("west", "last")]
    systems = [next(iter(preferences_of(each).values())).systems for each in read]
    assert systems[0] == ("east", "north", "west"), "the same response beside two others is one system's"
    assert systems[1] == ("east", "north · last", "north · this")
    assert "north answered the same instructions differently in this, last" in " ".join(
        rank_pairs(read[1], resamples=100).notices
    )
    page = tmp_path / "page.html"
    assert cli("report", tmp_path / "this", tmp_path / "last", "--out", page).code == 0
    assert head(page)["series"] == list(systems[1])
