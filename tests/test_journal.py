"""Tests of the journal and its index: every line is found by its key after any interruption."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.errors import RunBrokenError, RunMismatchError
from localjudge.records import Failure
from localjudge.records.outcome_columns import AnswerColumns, from_bytes, to_bytes
from localjudge.runs.journal import Journal, read_journal
from localjudge.runs.key_index import KeyIndex, key_digest
from localjudge.system.durable import LineStore

NONE = AnswerColumns({}, ())


def failed(key: str, error: str = "e") -> Failure:
    return Failure(id="", key=key, error=error, row=1)


def line(key: str, error: str = "e") -> tuple[str, bytes]:
    return key, to_bytes(failed(key, error), NONE)


def journal_of(file: Path, *lines: tuple[str, bytes]) -> Journal:
    return Journal(file, file.parent, (each for each in lines))


def test_what_is_appended_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "j.jsonl"
    with journal_of(file, line("a", error="ü\u2028"), line("b")) as journal:
        journal.append([])
        journal.append([line("c")])
    whole = [failed("a", error="ü\u2028"), failed("b"), failed("c")]
    assert [each for _, each in read_journal(file, NONE)] == whole
    pieces = ((each.key, piece) for piece, each in read_journal(file, NONE))
    with Journal(file, tmp_path, pieces) as journal:
        assert len(journal) == 3
        journal.append([line("a", error="later")])
        index = journal.index()
        found = {key: index.get(key) for key in "abcd"}
        assert found.pop("d") is None
        assert [from_bytes(journal.line_at(place or 0), NONE) for place in found.values()] == [
            failed("a", error="later"), *whole[1:],
        ], "of several lines with one key, the last"  # fmt: skip
    assert [each for _, each in read_journal(file, NONE)] == [*whole, failed("a", error="later")]


def test_a_file_with_the_same_inode_number_on_another_device_is_not_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "j.jsonl"
    with journal_of(file, line("a")) as journal:
        there = list(file.stat())
        there[stat.ST_DEV] += 1
        monkeypatch.setattr(os, "stat", lambda path: os.stat_result(there))
        with pytest.raises(RunBrokenError, match="another localjudge has taken this run over"):
            journal.append([line("b")])


def test_what_a_former_owner_appends_is_not_in_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "j.jsonl"
    with journal_of(file, line("a")) as former, journal_of(file, line("a")) as journal:
        journal.append([line("b")])
        with pytest.raises(RunBrokenError, match="another localjudge has taken this run over"):
            former.append([line("c")])
        former._stream.write(line("d")[1])  # as if suspended right after its check
        journal.append([line("e")])
        assert [each.key for _, each in read_journal(file, NONE)] == ["a", "b", "e"]


def test_a_journal_that_cannot_be_begun_leaves_the_one_before_as_it_was(tmp_path: Path) -> None:
    def broken_off() -> Iterator[tuple[str, bytes]]:
        yield line("b")
        raise KeyError

    file = tmp_path / "j.jsonl"
    journal_of(file, line("a")).__exit__()
    with pytest.raises(KeyError):
        Journal(file, tmp_path, broken_off())
    assert [each.key for _, each in read_journal(file, NONE)] == ["a"]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\n",
        b"{}\n",
        b"[1]\n",
        b"null\n",
        b"\0" * 50 + b"\n",
        b'{"key": "a"}\n',
        b"\xff\n",
        b"[" * 9**5 + b"\n",
    ],
)
def test_a_damaged_line_is_named_by_its_place(tmp_path: Path, damaged: bytes) -> None:
    file = tmp_path / "j.jsonl"
    file.write_bytes(line("a")[1] + damaged + line("b")[1])
    with pytest.raises(RunMismatchError, match=r"j.jsonl:2: not a line of a run, or damaged; delete this line"):
        list(read_journal(file, NONE))


@given(st.lists(st.tuples(st.binary(), st.integers(0, 99)), max_size=30))
@settings(max_examples=50)
def test_a_stored_line_is_found_again_whatever_it_holds_and_whenever_it_is_read(
    steps: list[tuple[bytes, int]],
) -> None:
    lines: list[bytes] = []
    with LineStore.scratch() as store:
        for line, read in steps:
            store.append(line)
            lines.append(line)
            assert store[read % len(lines)] == lines[read % len(lines)]
        assert [store[place] for place in range(len(store))] == lines
        assert store.size == sum(map(len, lines))


@given(st.lists(st.integers(0, 30).map(str)), st.sets(st.integers(0, 40).map(str)))
def test_an_index_is_a_dictionary_of_last_places(keys: list[str], asked: set[str]) -> None:
    def index_of(keys: Iterable[str]) -> KeyIndex:
        return KeyIndex(b"".join(map(key_digest, keys)))

    index, last = index_of(keys), dict(zip(keys, range(len(keys)), strict=True))
    assert {key: index.get(key) for key in asked} == {key: last.get(key) for key in asked}
    assert all((key in index) == (key in last) for key in asked)
    assert index.count_in(index_of(asked)) == sum(key in asked for key in keys)
