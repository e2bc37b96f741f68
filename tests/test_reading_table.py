"""The view of a reading: `localjudge prompt FILE --reading`."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Cli


def test_the_reading_of_a_file_is_shown_whole_and_no_prompt_is(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    record = {"question": "Capital of Peru?", "said": json.dumps(["Lima."]), "model": "north", "note": "x"}
    file.write_text(json.dumps(record) + "\n" + json.dumps({"question": "Q?"}) + "\n")
    flags = ("--column", "candidate=said", "--encoded", "said", "--rubric", "no-reference")
    end = cli("prompt", file, *flags, "--reading")
    rows = {line.split()[0]: line.split()[1:] for line in end.out.splitlines() if line.strip()}
    assert end.code == 0
    assert rows["instruction"][:2] == ["question", "text"]
    assert rows["candidate"] == ["said[*]", "text,", "JSON,", "each", "of", "a", "list", "Lima."]
    assert rows["system"] == ["model", "text", "north"]
    assert "1 of its first 2 records" in end.out
    assert "in no field: note" in end.out
    assert "Candidate Response" not in end.out


def test_files_with_equal_readings_are_shown_once(cli: Cli, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps({"question": "Q?", "response": "A."}) + "\n")
    (tmp_path / "c.jsonl").write_text(json.dumps({"prompt": "Q?", "output": "A."}) + "\n")
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    out = cli("prompt", *files, "--rubric", "no-reference", "--reading").out
    assert out.count("candidate ") == 2
    assert f"{files[0]}, {files[1]} ·" in " ".join(out.split())
