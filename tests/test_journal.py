"""The journal and its index: every line found again by its key, whatever happened in between."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from localjudge.run.journal import Index, Journal, read_journal


def line(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, **more}


def test_what_is_appended_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "j.jsonl"
    with Journal(file) as journal:
        journal.append([line("a", text="ü\u2028"), line("b")])
        journal.append([])
        journal.append([line("c")])
    seen: list[dict[str, Any]] = []

    def note(each: dict[str, Any]) -> bool:
        seen.append(each)
        return True

    with Journal(file, note) as journal:
        assert len(journal) == 3
        assert seen == list(read_journal(file)) == [line("a", text="ü\u2028"), line("b"), line("c")]
        journal.append([line("a", text="later")])
        index = journal.index()
    offset = index.use("a")
    assert offset is not None
    assert b"later" in file.read_bytes()[offset:], "of several lines with one key, the last"
    assert [file.read_bytes()[offset:].splitlines()[0] for offset in index.unused()] == [
        b'{"key": "b"}', b'{"key": "c"}',
    ]  # fmt: skip


@given(st.lists(st.integers(0, 30).map(str)), st.sets(st.integers(0, 40).map(str)))
def test_an_index_is_a_dictionary_of_last_places(keys: list[str], asked: set[str]) -> None:
    import hashlib

    digests = b"".join(hashlib.blake2b(key.encode(), digest_size=16).digest() for key in keys)
    index, last = Index(digests, array("q", range(len(keys)))), dict(zip(keys, range(len(keys)), strict=True))
    assert {key: index.use(key) for key in asked} == {key: last.get(key) for key in asked}
    assert all((key in index) == (key in last) for key in asked)
    assert list(index.unused()) == sorted(place for key, place in last.items() if key not in asked)
