"""Tests of `label`: people label a random sample on a page, blind, and no label is lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from preloaded import KILL
from report_page import OpenPage

from localjudge.errors import UsageError
from localjudge.labelling.label_file import LabelFile
from localjudge.labelling.sample import candidates_of_rows, chances, doubtful, draw, even
from localjudge.labelling.session import LabelSession
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import read_labels
from localjudge.records import Failure
from localjudge.rows.pairs import Pairing
from localjudge.rows.row_store import RowStore
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.row_source import RowSource
from localjudge.statistics.prediction_powered import drawn_with_chances, prediction_powered
from localjudge.statistics.resampling import studentise

PAIR = Rubric.load("pairwise")
RUBRIC = """
name = "reply"
[aspects.warmth]
description = "how warm it sounds"
scale = { lowest = 1, highest = 5 }
levels = { 1 = "cold", 5 = "as warm as a friend" }
[aspects.outcome]
choices = { A = "solved", B = "passed on" }
[aspects.polite]
boolean = true
[aspects.percent]
scale = { lowest = 0, highest = 100 }
[prompt]
template = "{$instruction} {$candidate} {$aspects} {$answer_format}"
"""


def write_rows(file: Path, instructions: int = 4, systems: str = "xy") -> Path:
    rows = [
        {
            "id": f"{n}{one}",
            "instruction": f"Question {n}?",
            "candidate": f"answer {n} {one}",
            "system": one,
        }
        for n in range(instructions)
        for one in systems
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@contextmanager
def session(
    rows: Path, out: Path, rubric: Rubric | None = None, overlap: float = 0.0, sample: int | None = None
) -> Iterator[LabelSession]:
    found = rubric or Rubric.load("no-reference")
    with RowStore() as store, LabelFile(out) as file:
        pairing = Pairing(orders=1) if rubric is PAIR else None
        source = RowSource.from_files([str(rows)], used=found.fields, pairing=pairing)
        yield LabelSession(found, candidates_of_rows(source.rows, store, sample), file, overlap)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@contextmanager
def served(
    *args: object, last: bool = False, program: Sequence[str] = (sys.executable, "-m", "localjudge")
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `localjudge label`, and yield it and the address of its page; its `last` words stay unread."""
    command = [*program, "label", *map(str, args), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("open "):
                break
        else:
            raise AssertionError("".join(said))
        if not last:
            threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield process, line.split()[1]
        finally:
            process.send_signal(KILL)


def ask(address: str, path: str, content: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the answer of a request, whose content is written as JSON if it is not bytes."""
    base, _, token = address.partition("?token=")
    given = {"authorization": f"Bearer {token}", **headers}
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    request = urllib.request.Request(base.rstrip("/") + path, body, given)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body.startswith(b"{") else {}


def test_each_instruction_is_drawn_with_its_chance() -> None:
    weights, sizes = np.array([1.0, 1.0, 2.0, 30.0, 4.0, 1.0]), np.array([2, 1, 3, 2, 1, 1])
    chance = chances(weights, sizes, 5)
    assert chance[3] == 1
    assert (chance > 0).all()
    assert chance @ sizes == pytest.approx(5)
    draws = [draw(chance, np.random.default_rng(seed)) for seed in range(4000)]
    shares = np.bincount(np.concatenate(draws), minlength=6) / 4000
    assert shares == pytest.approx(chance, abs=0.03)
    assert set(chances(weights, sizes, None)) == {1.0}


def test_a_mean_with_the_recorded_chances_is_right_and_without_them_is_not() -> None:
    random = np.random.default_rng(0)
    values = random.integers(1, 6, 300).astype(float)
    chance = chances(np.where(values < 2, 3.0, 0.5), np.ones(300, dtype=int), 60)
    weighted, plain = [], []
    for seed in range(500):
        drawn = draw(chance, np.random.default_rng(seed))[:40]  # the person stops early
        plain.append(values[drawn].mean())
        weighted.append(np.average(values[drawn], weights=1 / chance[drawn]))
    error = float(np.std(weighted)) / 500**0.5
    assert abs(float(np.mean(weighted)) - values.mean()) < 3 * error + 0.02
    assert abs(float(np.mean(plain)) - values.mean()) > 0.3


def test_rare_rows_and_doubtful_ones_get_more_weight_and_none_gets_nothing() -> None:
    weights = even(["x"] * 9 + ["y"])
    assert weights[:9].sum() == pytest.approx(weights[9])
    assert doubtful([None, 0.0, 2.0]).tolist() == [1.0, 0.5, 1.5]


def test_the_mean_of_labels_drawn_by_doubt_has_an_interval_that_holds_and_is_shorter() -> None:
    missed, widths, means = 0, [], []
    for seed in range(300):
        random = np.random.default_rng(seed)
        doubt = random.random(600) ** 3
        judge = random.uniform(1, 5, 600)
        label = judge + 3 * doubt * random.normal(size=600)
        rows = draw(chances(doubtful(doubt.tolist()), np.ones(600, dtype=int), 80), random)
        known = np.zeros(600, dtype=bool)
        known[rows] = True
        chance = chances(doubtful(doubt.tolist()), np.ones(600, dtype=int), 80)
        each, ones = np.arange(600), np.ones(600)
        found = studentise(
            drawn_with_chances(judge, known, label[known], chance[known], each, 600, ones), resamples=300
        )
        missed += not found.low[0] <= 3 <= found.high[0]
        means.append(found.value[0])
        rows = random.permutation(600)[: len(rows)]
        known[:] = False
        known[rows] = True
        plain = studentise(prediction_powered(judge, known, label[known], each, 600, ones), resamples=300)
        widths.append((found.high[0] - found.low[0]) / (plain.high[0] - plain.low[0]))
    assert missed <= 300 * 0.05 + 3 * (300 * 0.05 * 0.95) ** 0.5
    assert np.mean(means) == pytest.approx(3, abs=0.03)
    assert np.mean(widths) < 0.9


def test_two_people_share_the_rows_and_both_label_the_overlap(tmp_path: Path) -> None:
    answers = dict.fromkeys(Rubric.load("no-reference").aspects, "3")
    with session(write_rows(tmp_path / "rows.jsonl", 10), tmp_path / "l.jsonl", overlap=0.2) as people:
        while True:
            left = 0
            for name in ("Ann", "Bo"):
                row = people.next(name)
                if row is not None:
                    assert set(row) >= {"instruction", "responses"}
                    assert "system" not in json.dumps(row), "who wrote a response is not said"
                    assert people.add(name, row["key"], {"values": answers})
                    assert not people.add(name, row["key"], {"values": answers}), "a second tab"
                    left += 1
            if not left:
                break
    found = lines(tmp_path / "l.jsonl")
    by = {
        row: {line["annotator"] for line in found if line["id"] == row}
        for row in {line["id"] for line in found}
    }
    assert len(by) == 20
    assert sum(len(names) == 2 for names in by.values()) == 4, "two instructions of two rows"
    assert len(found) == 24


def test_a_response_that_several_rows_have_is_labelled_once(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    rows.write_text(rows.read_text() + rows.read_text().replace('"id": "0x"', '"id": "again"'))
    with session(rows, tmp_path / "l.jsonl") as people:
        assert len(people) == 6
    one, *_ = (json.loads(line) for line in rows.read_text().splitlines())
    rows.write_text("".join(json.dumps(one | {"id": name, "reference": name}) + "\n" for name in "ab"))
    with session(rows, tmp_path / "m.jsonl", Rubric.load("correctness")) as people:
        assert len(people) == 2, "the rubric shows the reference"
    with session(rows, tmp_path / "n.jsonl") as people:
        assert len(people) == 1, "this one does not"


def test_a_pair_is_shown_in_random_order_and_kept_in_the_inputs(tmp_path: Path) -> None:
    file, labels = tmp_path / "pairs.jsonl", tmp_path / "l.jsonl"
    rows = [
        {"id": str(n), "instruction": f"Q{n}", "reference": "", "candidate_a": "good", "candidate_b": "bad"}
        for n in range(30)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with session(file, labels, PAIR) as people:
        while (row := people.next("Ann")) is not None:
            choice = "A" if row["responses"][0] == "good" else "B"
            people.add("Ann", row["key"], {"values": {"better": choice}})
    found = lines(labels)
    assert {line["better"] for line in found} == {"a"}
    assert {line["label"]["shown_reversed"] for line in found} == {True, False}


def test_what_is_labelled_goes_into_agree_and_rank_as_it_is(tmp_path: Path, cli: Cli) -> None:
    rows, labels = write_rows(tmp_path / "rows.jsonl", 12), tmp_path / "l.jsonl"
    random = np.random.default_rng(0)
    aspects = [*Rubric.load("no-reference").aspects]
    with session(rows, labels, sample=16) as people:
        while (row := people.next("Ann")) is not None:
            people.add("Ann", row["key"], {"values": {name: str(random.integers(1, 6)) for name in aspects}})
    judged = tmp_path / "scores.jsonl"
    judged.write_text(
        "".join(
            json.dumps({**json.loads(line), **dict.fromkeys(aspects, at % 5 + 1)}) + "\n"
            for at, line in enumerate(rows.read_text().splitlines())
        )
    )
    run = tmp_path / "run"
    flags = [flag for name in aspects for flag in ("--aspect", name)]
    assert cli("import", judged, *flags, "--out", run).code == 0
    for command in ("agree", "rank"):
        end = cli(command, run, "--labels", labels, "--resamples", 100, "--json")
        assert end.code == 0, end.err
    assert len(lines(labels)) == 16


def answer(annotator: str, row: str = "k") -> dict[str, Any]:
    """Return a line of a label file."""
    said: dict[str, Any] = {
        "chance": 1.0,
        "skipped": None,
        "note": None,
        "seconds": 1.5,
        "values": {},
    }
    return {"id": "q1", "annotator": annotator, "label": {"row": row, **said}}


def test_a_line_that_a_crash_has_cut_is_moved_and_another_program_is_refused(tmp_path: Path) -> None:
    out, line = tmp_path / "l.jsonl", answer("Ann")
    with LabelFile(out) as file:
        file.add(line)
        with pytest.raises(UsageError, match="another program writes it"):
            LabelFile(out)
    cut = b'{"id": "q1", "annotator": "An'
    out.write_bytes(out.read_bytes() + cut)
    with LabelFile(out) as file:
        assert file.lines == [line]
        assert file.torn == tmp_path / "l.jsonl.torn"
        assert file.torn.read_bytes() == cut + b"\n", "nothing is lost"
        file.add(answer("Bo"))
        assert file.remove_last(lambda each: each["annotator"] == "Ann") == line
        file.add(line)
    assert [each["annotator"] for each in lines(out)] == ["Bo", "Ann"]


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": 1}\n',
        b'[{"id": "ex-01", "helpfulness.responses": [4], "note": "three weeks of labels"}]',
        b'{"id": "ex-01", "helpfulness": 4}',
        b'{"id": "ex-01", "helpfu',
        b"id,helpfulness\nex-01,4",
        b"\n",
        b"\xff\xfe\x00",
        b'{"label": {"row": "k"}, "annotator": "Ann"}\n',
        json.dumps(answer("Ann")).encode() + b"\n" + b'{"helpfulness": 4, "id": "ex-01"',
    ],
)
def test_a_file_that_is_not_of_labels_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "argilla.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"argilla.json:\d: is not a line of localjudge label"):
        LabelFile(file)
    assert file.read_bytes() == content
    assert [*tmp_path.iterdir()] == [file]


def test_the_last_label_stays_if_an_editor_leaves_out_the_end_of_its_line(tmp_path: Path) -> None:
    out = tmp_path / "l.jsonl"
    with LabelFile(out) as file:
        file.add(answer("Ann"))
        file.add(answer("Bo"))
    out.write_bytes(out.read_bytes().rstrip(b"\n"))
    with LabelFile(out) as file:
        assert file.lines == [answer("Ann"), answer("Bo")]
        file.add(answer("Cy"))
    assert lines(out) == [answer("Ann"), answer("Bo"), answer("Cy")]


@pytest.mark.parametrize("rubric", [None, PAIR])
def test_a_first_label_that_a_crash_has_cut_anywhere_is_moved(tmp_path: Path, rubric: Rubric | None) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "l.jsonl"
    if rubric is PAIR:
        rows.write_text('{"id": "q \\"1\\"", "instruction": "Why?", "candidate_a": "A", "candidate_b": "B"}\n')
    with session(rows, out, rubric) as people:
        row = people.next("Ann")
        people.add("Ann", row["key"], {"skipped": "unclear"})
    whole = out.read_bytes()
    torn = tmp_path / "l.jsonl.torn"
    for size in range(1, len(whole) - 1):
        out.write_bytes(whole[:size])
        with LabelFile(out) as file:
            assert (file.torn, file.lines) == (torn, []), whole[:size]
        assert out.read_bytes() == b""
        assert torn.read_bytes() == whole[:size] + b"\n"
        torn.unlink()


def test_each_cut_line_gets_a_file_of_its_own_and_a_file_of_the_user_stays(tmp_path: Path) -> None:
    out, mine = tmp_path / "l.jsonl", tmp_path / "l.jsonl.torn"
    mine.write_text("a file of the user")
    cuts = [b'{"id": "q1", "sys', b'{"id": "q2"']
    for cut, name in zip(cuts, ["l.jsonl.2.torn", "l.jsonl.3.torn"], strict=True):
        out.write_bytes(cut)
        with LabelFile(out) as file:
            assert file.torn == tmp_path / name
            assert file.torn.read_bytes() == cut + b"\n"
    assert mine.read_text() == "a file of the user"
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "l.jsonl", "l.jsonl.2.torn", "l.jsonl.3.torn", "l.jsonl.torn",
    ]  # fmt: skip


def test_what_a_killed_undo_has_left_is_removed_by_the_next_start(tmp_path: Path) -> None:
    out = tmp_path / "l.jsonl"
    code = (
        "import os, sys; from pathlib import Path; from localjudge.system import durable\n"
        "durable.settle = lambda scratch, target: os._exit(9)\n"
        "with durable.replacing(Path(sys.argv[1])) as scratch: scratch.write_text('half')\n"
    )
    end = subprocess.run([sys.executable, "-c", code, out])
    assert end.returncode == 9
    assert len([*tmp_path.iterdir()]) == 1
    with LabelFile(out):
        assert [*tmp_path.iterdir()] == [out]


def replaced(file: Path) -> None:
    """Put another file with the same lines in the place of a file, as an editor, git and rsync do."""
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.replace(file)


def edited(file: Path) -> None:
    file.write_text(file.read_text().replace('"note": null', '"note": "checked"'))


def shortened(file: Path) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))


@pytest.mark.parametrize("change", [replaced, edited, shortened])
@pytest.mark.parametrize("is_linked", [False, True])
def test_every_label_that_is_confirmed_is_in_the_file_although_other_programs_change_it(
    tmp_path: Path, change: Callable[[Path], None], is_linked: bool
) -> None:
    target, out = tmp_path / "shared.jsonl", tmp_path / "l.jsonl"
    if is_linked:
        out.symlink_to(target)
    answers, kept = dict.fromkeys(Rubric.load("no-reference").aspects, "3"), set[str]()
    with session(write_rows(tmp_path / "rows.jsonl", 3), out) as people:
        for number in range(6):
            if number in (2, 4):
                change(out.resolve())
                kept = {line["label"]["row"] for line in lines(out)}
            if number == 5:
                assert people.undo("Ann") is not None
                people.add("Ann", people.next("Ann")["key"], {"values": answers})
            row = people.next("Ann")
            assert people.add("Ann", row["key"], {"values": answers})
            kept.add(row["key"])
            assert {line["label"]["row"] for line in lines(out)} >= kept, number
        lost = 2 if change is shortened else 0
        said = people.message_of_changes()
        assert (f"removed {lost} answers" in said) == bool(lost)
        assert people.progress("Ann")["left"] == lost, "an answer that is not there is asked for again"
    assert out.is_symlink() == is_linked
    notes = [line["label"]["note"] for line in lines(out)]
    assert notes.count("checked") == (4 if change is edited else 0), "an undo takes back no edit"


def test_a_label_is_not_confirmed_while_its_file_is_away_or_is_another(tmp_path: Path) -> None:
    out, away = tmp_path / "l.jsonl", tmp_path / "away.jsonl"
    with LabelFile(out) as file:
        file.add(answer("Ann"))
        out.rename(away)
        for refused in (lambda: file.add(answer("Bo")), lambda: file.remove_last(lambda line: True)):
            with pytest.raises(UsageError, match="was removed or renamed; put it back"):
                refused()
        assert not out.exists()
        out.write_text("id,helpfulness\n")
        with pytest.raises(UsageError, match="1: is not a line of localjudge label"):
            file.add(answer("Bo"))
        assert out.read_text() == "id,helpfulness\n"
        other = tmp_path / "other.jsonl"
        other.write_bytes(away.read_bytes())
        with LabelFile(other):
            other.replace(out)
            with pytest.raises(UsageError, match="another program writes it"):
                file.add(answer("Bo"))
        file.add(answer("Bo"))
    assert lines(out) == [answer("Ann"), answer("Bo")]


def test_after_an_undo_that_failed_half_way_labels_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real = tmp_path / "l.jsonl", os.fsync
    with LabelFile(out) as file:
        for name in ("Ann", "Bo"):
            file.add(answer(name))

        def failing(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode) == of_folders:
                raise OSError(5, "Input/output error")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", failing)
        of_folders = False
        with pytest.raises(OSError, match="Input/output"):
            file.remove_last(lambda line: True)
        assert lines(out) == [answer("Ann"), answer("Bo")]
        of_folders = True  # the file has its place already
        assert file.remove_last(lambda line: True) == answer("Bo")
        monkeypatch.undo()
        file.add(answer("Cy"))
    assert lines(out) == [answer("Ann"), answer("Cy")]


def test_after_an_undo_without_a_free_descriptor_labels_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, most = tmp_path / "l.jsonl", resource.getrlimit(resource.RLIMIT_NOFILE)
    with LabelFile(out) as file:
        for name in ("Ann", "Bo"):
            file.add(answer(name))
        real = os.replace

        def last(scratch: Path, target: Path) -> None:
            """Rename, and leave no descriptor that is free."""
            real(scratch, target)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))

        monkeypatch.setattr(os, "replace", last)
        try:
            assert file.remove_last(lambda line: True) == answer("Bo"), "the file is renamed already"
            with pytest.raises(OSError, match="Too many open files"):
                file.add(answer("Cy"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
        file.add(answer("Cy"))
    assert lines(out) == [answer("Ann"), answer("Cy")]


def test_the_labels_of_another_rubric_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "l.jsonl"
    with session(rows, out) as people:
        answers = dict.fromkeys(Rubric.load("no-reference").aspects, "3")
        people.add("Ann", people.next("Ann")["key"], {"values": answers})
    before = out.read_bytes()
    with (
        pytest.raises(UsageError, match="line 1: has no label of response"),
        session(rows, out, Rubric.load("safety")),
    ):
        pass
    assert out.read_bytes() == before


def test_a_full_disk_loses_no_label_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "l.jsonl"
    with LabelFile(out) as file:
        file.add(answer("Ann"))

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.add(answer("Bo"))
        assert len(file.lines) == 1
    assert len(lines(out)) == 1


def test_requests_without_the_token_from_elsewhere_or_for_another_name_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "l.jsonl"
    with served(write_rows(tmp_path / "rows.jsonl"), "--rubric", "no-reference", "--out", out) as (_, address):
        assert ask(address, "/row", {"annotator": "Ann"})[0] == 200
        assert ask(address, "/row", {"annotator": "Ann"}, authorization="Bearer x")[0] == 403
        assert ask(address, "/row", {"annotator": "Ann"}, origin="http://evil.example")[0] == 403
        assert ask(address, "/row", {"annotator": "Ann"}, host="evil.example")[0] == 400
        assert ask(address, "/row", {"annotator": " "})[0] == 400
        assert ask(address, "/row", ["Ann"])[0] == 400
        status, refused = ask(address, "/label", {"annotator": "Ann", "key": "x", "values": {}})
        assert (status, "not in the sample" in refused["error"]) == (400, True)
        key = ask(address, "/row", {"annotator": "Ann"})[1]["row"]["key"]
        status, refused = ask(address, "/label", {"annotator": "Ann", "key": key, "values": {"safety": "9"}})
        assert (status, "safety: 9 is not one of 1, 2, 3, 4, 5" in refused["error"]) == (400, True)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.partition("?")[0], timeout=20)
        page = urllib.request.urlopen(address, timeout=20)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "://" not in page.read().decode()


@pytest.mark.parametrize("named", [False, True])
def test_a_request_that_is_no_answer_is_refused_with_its_reason_and_writes_nothing(
    tmp_path: Path, named: bool
) -> None:
    out, rows = tmp_path / "l.jsonl", write_rows(tmp_path / "rows.jsonl")
    flags = ("--annotator", "Ann") if named else ()
    with served(rows, "--rubric", "no-reference", "--out", out, *flags) as (_, address):
        key = ask(address, "/row", {"annotator": "Ann"})[1]["row"]["key"]
        right = dict.fromkeys(Rubric.load("no-reference").aspects, "3")
        whole = {"annotator": "Ann", "key": key, "values": right, "seconds": 1}
        deep: Any = "x"
        for _ in range(900):
            deep = [deep]
        for wrong, reason in (
            ({"values": {**right, "safety": ["3"]}}, "safety: ['3'] is not one of 1, 2, 3, 4, 5"),
            ({"values": {**right, "safety": 3}}, "safety: 3 is not one of"),
            ({"values": ["3"]}, "values: give an object"),
            ({"values": "3"}, "values: give an object"),
            ({"skipped": ["spam"]}, "skipped: give a text"),
            ({"skipped": True}, "skipped: give a text"),
            ({"note": {"a": 1}}, "note: give a text"),
            ({"note": "\ud800"}, "whole characters"),
            ({"annotator": "Ann\ud800"}, "whole characters"),
            ({"seconds": int("9" * 4000)}, "seconds: give a number from 0 to 1,000,000"),
            ({"seconds": float("inf")}, "finite numbers"),
            ({"seconds": float("nan")}, "finite numbers"),
            ({"seconds": -1}, "seconds: give a number"),
            ({"seconds": True}, "seconds: give a number"),
            ({"seconds": "3"}, "seconds: give a number"),
            ({"key": [key]}, "not in the sample"),
        ):
            status, refused = ask(address, "/label", whole | wrong)
            assert (status, reason in refused["error"]) == (400, True), (wrong, refused)
        twice = b'{"annotator": "Ann", "annotator": "Bob"}'
        for path in ("/row", "/label", "/undo"):
            status, refused = ask(address, path, twice)
            assert (status, "annotator" in refused["error"]) == (400, True)
            others: list[Any] = [[], "Ann", 1, None]
            for content in others:
                status, refused = ask(address, path, content)
                assert (status, refused["error"]) == (400, "not a JSON object"), content
            for body in (b"{", b"\xff", b'{"annotator": ' + b"[" * 100_000, b'{"annotator": 1e999}'):
                assert ask(address, path, body)[0] == 400, body[:20]
        assert ask(address, "/label", whole | {"values": {**right, "safety": deep}})[0] == 400
        assert lines(out) == []
        status, found = ask(address, "/label", whole | {"skipped": False})
        assert (status, found["labelled"], found["skipped"]) == (200, 1, 0)
    assert lines(out)[0]["safety"] == 3


def test_no_label_is_lost_or_doubled_by_a_hundred_kills_while_saving(tmp_path: Path) -> None:
    out, rows = tmp_path / "l.jsonl", write_rows(tmp_path / "rows.jsonl", 2000)
    values, random = dict.fromkeys(Rubric.load("no-reference").aspects, "3"), np.random.default_rng(0)
    saved: set[str] = set()
    with RowStore() as store:
        source = RowSource.from_files([str(rows)], used=Rubric.load("no-reference").fields)
        candidates = candidates_of_rows(source.rows, store, None)
        for kill in range(100):
            receive, send = os.pipe()
            child = os.fork()
            if child == 0:
                with LabelFile(out) as file:
                    people = LabelSession(Rubric.load("no-reference"), candidates, file)
                    os.write(send, b"begun\n")
                    while (row := people.next("Ann")) is not None:
                        people.add("Ann", row["key"], {"values": values})
                        os.write(send, row["key"].encode() + b"\n")
                os._exit(0)
            os.close(send)
            with os.fdopen(receive) as acknowledged:
                assert acknowledged.readline() == "begun\n"
                time.sleep(random.uniform(0, 0.05))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                saved |= {line.strip() for line in acknowledged if line.endswith("\n")}
            with LabelFile(out) as file:
                kept = [line["label"]["row"] for line in file.lines]
            assert saved <= set(kept), kill
            assert len(kept) == len(set(kept)), kill
    assert len(saved) > 50


def test_the_command_ends_with_what_to_do_next(tmp_path: Path) -> None:
    out, rows = tmp_path / "l.jsonl", write_rows(tmp_path / "rows.jsonl")
    with served(rows, "--rubric", "no-reference", "--out", out, last=True) as (process, address):
        assert ask(address, "/row", {"annotator": "Ann"})[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        *_, last = process.stderr.read().splitlines()
        assert process.wait(20) == 0
    assert last == f"{out}: 0 answers · score the same rows, then: localjudge agree RUN --labels {out}"


def test_a_second_ctrl_c_ends_without_a_traceback(tmp_path: Path) -> None:
    out, rows = tmp_path / "l.jsonl", write_rows(tmp_path / "rows.jsonl")
    with served(rows, "--rubric", "no-reference", "--out", out, last=True) as (process, address):
        assert ask(address, "/row", {"annotator": "Ann"})[0] == 200
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert process.wait(20) in (0, 130)


def test_the_command_goes_on_after_a_kill(tmp_path: Path) -> None:
    out, rows = tmp_path / "l.jsonl", write_rows(tmp_path / "rows.jsonl")
    given = (rows, "--rubric", "no-reference", "--out", out)
    values = dict.fromkeys(Rubric.load("no-reference").aspects, "3")
    for labelled in range(2):
        with served(*given) as (_, address):
            row = ask(address, "/row", {"annotator": "Ann"})[1]["row"]
            assert row["labelled"] == labelled
            ask(address, "/label", {"annotator": "Ann", "key": row["key"], "values": values})
    assert len(lines(out)) == 2


def test_a_person_labels_with_the_keyboard_alone(tmp_path: Path) -> None:
    rubric, out = tmp_path / "reply.toml", tmp_path / "l.jsonl"
    rubric.write_text(RUBRIC)
    rows = tmp_path / "rows.jsonl"
    hostile = (
        "<script>document.title = 'hacked'</script><img src=x onerror=alert(1)> \u202egnp.exe \x1b[31m</style>"
    )
    rows.write_text(
        "".join(json.dumps({"instruction": f"Q{n}", "candidate": hostile}) + "\n" for n in range(3))
    )
    with (
        served(rows, "--rubric", rubric, "--out", out) as (_, address),
        OpenPage(address, tmp_path, "document.activeElement.id === 'name'") as page,
    ):
        page.press(*"Ann Lee", "Enter")
        page.wait("row !== null")
        assert page.run("document.title") == "Labels: reply"
        assert page.run("document.querySelectorAll('#texts script, #texts img').length") == 0
        assert page.texts(".control") == ["U+202E", "U+001B"]
        assert "<script>" in page.texts("#texts")[0]
        page.press("4", "b", "y", *"73", "Enter")
        page.wait("$('progress').textContent.startsWith('1 labelled, 2 left')")
        page.press("2", "a", "Enter")
        assert page.texts("#said") == ["polite has no answer yet."]
        page.press("n")
        page.press(*"100", "Enter")
        page.wait("$('progress').textContent.startsWith('2 labelled, 1 left')")
        page.press("u")
        page.wait("row.before")
        assert page.run("chosen(aspects[3])") == "100", "what was answered before is shown"
        page.press("s", *"not a reply", "Enter")
        page.wait("$('progress').textContent.startsWith('1 labelled, 1 skipped, 1 left')")
        page.press("c", *"odd", "Escape")
        page.press("Enter")
    first, second = lines(out)
    given = {name: first[name] for name in ("annotator", "warmth", "outcome", "polite", "percent")}
    assert given == {"annotator": "Ann Lee", "warmth": 4, "outcome": "passed on", "polite": True, "percent": 73}
    assert first["label"]["seconds"] > 0
    assert (second["label"]["skipped"], "warmth" in second) == ("not a reply", False)


def test_the_aspect_that_the_next_key_answers_is_in_view_on_every_row(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    row = {"instruction": "Why?", "reference": "So."}
    rows.write_text("".join(json.dumps(row | {"candidate": f"Answer {n}."}) + "\n" for n in range(2)))
    with (
        served(rows, "--rubric", "six-aspects", "--annotator", "Ann", "--out", tmp_path / "l.jsonl") as (
            _,
            address,
        ),
        OpenPage(address, tmp_path, "row !== null") as page,
    ):
        assert page.run("$('save').getBoundingClientRect().bottom <= innerHeight"), "the button is in view, too"
        page.press(*"544555", "Enter")
        page.wait("$('progress').textContent.startsWith('1 labelled')")
        assert page.run("$('answer').scrollHeight > $('answer').clientHeight"), "the answers scroll"
        assert page.run("document.activeElement.getBoundingClientRect().top") > 0


@pytest.mark.parametrize("rubric", ["six-aspects", "just-eval"])
def test_each_aspect_is_described_with_its_scale_and_a_wrong_key_is_answered(
    tmp_path: Path, rubric: str
) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "l.jsonl"
    rows.write_text(json.dumps({"instruction": "Why?", "reference": "So.", "candidate": "Because."}))
    with (
        served(rows, "--rubric", rubric, "--annotator", "Ann", "--out", out) as (_, address),
        OpenPage(address, tmp_path, "row !== null") as page,
    ):
        described = [each.description for each in Rubric.load("six-aspects").aspects.values()]
        assert all(described)
        assert page.texts("fieldset > p") == described
        assert page.texts("#aspects > p") == ["1 is the lowest, 5 the highest, in each aspect"]
        assert page.texts("fieldset > small") == []
        page.press("7")
        assert page.texts("#said") == ["7 is not a key of this page: safety takes 1, 2, 3, 4, 5."]
        page.press("5")
        assert page.texts("#said") == [""]
        page.press(*"44555", "x")
        assert page.texts("#said") == ["x is not a key of this page: every aspect has an answer; Enter saves."]
        page.press("Enter")
        page.wait("$('progress').textContent.startsWith('1 labelled')")


def test_code_has_its_font_and_a_page_that_is_loaded_again_knows_the_name(tmp_path: Path) -> None:
    rows, long = tmp_path / "rows.jsonl", "x = 1\n" * 9000
    texts = [f"So:\n```python\n{long}```\nDone.", "~~~\nopen", "``` no block"]
    rows.write_text("".join(json.dumps({"instruction": "Why?", "candidate": text}) + "\n" for text in texts))
    with (
        served(rows, "--rubric", "no-reference", "--out", tmp_path / "l.jsonl") as (_, address),
        OpenPage(address, tmp_path, "document.activeElement.id === 'name'") as page,
    ):
        page.press(*"Ann", "Enter")
        page.wait("row !== null")
        for text in texts:
            page.run(f"$('texts').replaceChildren(section('Response', {json.dumps(text)}))")
            shown = page.run(
                "[...document.querySelectorAll('.text > span')].map((one) => one.textContent).join('\\n')"
            )
            assert shown == text, "nothing is lost or doubled"
            code = "\n".join(page.texts(".text > .code"))
            assert code == {texts[0]: f"```python\n{long}```", texts[1]: text}.get(text, "")
        assert page.run("getComputedStyle($('texts')).fontFamily").startswith("system-ui")
        page.run(f"$('texts').replaceChildren(section('Response', {json.dumps(texts[1])}))")
        assert "mono" in page.run("getComputedStyle(document.querySelector('.code')).fontFamily")
        page.reload()
        page.wait("row !== null")
        assert page.run("annotator") == "Ann"


@pytest.mark.parametrize(
    ("records", "mapping"),
    [
        (  # Argilla, records.to_list(flatten=True)
            [
                {
                    "id": f"{n}x", "status": "completed", "_server_id": "s", "instruction": f"Question {n}?",
                    "candidate": f"answer {n} x", "quality.responses": [n % 5 + 1, 5, 1],
                    "quality.responses.users": ["u1", "u2", "u3"][:: 1 - 2 * (n % 2)],
                    "quality.responses.status": ["submitted", "discarded", "submitted"],
                }
                for n in range(12)
            ],
            "quality.responses=quality",
        ),
        (  # Label Studio, JSON-MIN
            [
                {
                    "id": 100 + n, "annotation_id": n, "annotator": annotator, "lead_time": 3.1,
                    "instruction": f"Question {n}?", "candidate": f"answer {n} x", "rating": rating,
                }
                for n in range(12)
                for annotator, rating in ((1, n % 5 + 1), (3, 1))
            ],
            "rating=quality",
        ),
    ],
)  # fmt: skip
def test_labels_of_other_tools_are_read_with_their_annotators(
    tmp_path: Path, cli: Cli, records: list[dict[str, Any]], mapping: str
) -> None:
    rows, labels, run = write_rows(tmp_path / "rows.jsonl", 12, "x"), tmp_path / "l.json", tmp_path / "run"
    scored = tmp_path / "scored.jsonl"
    scored.write_text(
        "".join(json.dumps({**json.loads(line), "quality": 3}) + "\n" for line in rows.read_text().splitlines())
    )
    assert cli("import", scored, "--aspect", "quality", "--out", run).code == 0
    labels.write_text(json.dumps(records))
    scores = read_scores([run])
    found = read_labels([str(labels)], scores, dict([mapping.split("=")]))
    marks = found.marks["quality"]
    assert len(found.annotators) == 2
    assert sorted(marks.value.tolist()) == sorted([1.0] * 12 + [n % 5 + 1.0 for n in range(12)])


def test_skipped_rows_and_what_people_saw_are_said_with_the_agreement(tmp_path: Path, cli: Cli) -> None:
    rows, labels, run = write_rows(tmp_path / "rows.jsonl", 15, "x"), tmp_path / "l.jsonl", tmp_path / "run"
    aspects = [*Rubric.load("no-reference").aspects]
    judged = [{**json.loads(line), **dict.fromkeys(aspects, 3)} for line in rows.read_text().splitlines()]
    scored = tmp_path / "scored.jsonl"
    scored.write_text("".join(json.dumps(row) + "\n" for row in judged))
    flags = [flag for name in aspects for flag in ("--aspect", name)]
    assert cli("import", scored, *flags, "--out", run).code == 0
    with session(rows, labels) as people:
        for at in range(15):
            row = people.next("Ann")
            assert row is not None
            answer = {"skipped": "spam"} if at < 3 else {"values": dict.fromkeys(aspects, str(at % 5 + 1))}
            people.add("Ann", row["key"], answer)
    notes = " ".join(json.loads(cli("agree", run, "--labels", labels, "--json").out)["notes"])
    assert "3 of 15 rows were skipped and are left out" in notes
    assert "could move a mean or a share by up to 20%" in notes


def test_a_pair_that_was_skipped_has_no_label(tmp_path: Path, cli: Cli) -> None:
    file, labels, run = tmp_path / "pairs.jsonl", tmp_path / "l.jsonl", tmp_path / "run"
    rows = [
        {"id": str(n), "instruction": f"Q{n}", "candidate_a": f"good {n}", "candidate_b": "bad"}
        for n in range(12)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("score", file, "--rubric", "pairwise", "--out", run).code == 0
    with session(file, labels, PAIR) as people:
        for number in range(12):
            row = people.next("Ann")
            people.add("Ann", row["key"], {"values": {"better": "A"}} if number else {"skipped": "spam"})
    end = cli("agree", run, "--labels", labels, "--json")
    assert end.code == 0, end.err
    assert "1 of 12 rows were skipped and are left out" in " ".join(json.loads(end.out)["notes"])


def test_rows_that_cannot_be_read_are_left_out_and_the_first_is_named(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 1, "x")
    rows.write_text(rows.read_text() + '{"id": "broken"\n')
    with RowStore() as store:
        source = RowSource.from_files([str(rows)], used=("instruction", "candidate"))
        found = candidates_of_rows(source.rows, store, None)
        assert (len(store), len(found.unreadable)) == (1, 1)
        assert "rows.jsonl:2" in found.unreadable[0]
        with pytest.raises(UsageError, match=r"no row has texts to label: .*rows\.jsonl:2"):
            candidates_of_rows(
                [Failure(id="x", key="", source="rows.jsonl:2", error=found.unreadable[0])], store, None
            )
