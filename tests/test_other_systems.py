"""Tests of systems that lack what Linux has: files of the kernel, renames of open files, UTF-8 as the encoding.

The programs run in processes of their own, where a module `sitecustomize` removes what the system lacks, so
that the real code meets a real absence.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from preloaded import Preloaded

WITHOUT_LINUX = """
import builtins, io, os
from contextlib import suppress

with suppress(ImportError):
    import psutil  # its build for Linux needs what is removed

del os.sched_getaffinity
ordinary_stream = io.open

def open_without_proc(file, *others, **named):
    if str(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", file)
    return ordinary_stream(file, *others, **named)

io.open = builtins.open = open_without_proc
"""
WITHOUT_OPEN_RENAMES = """
import os

ordinary_replace = os.replace

def replace_closed(source, target, **named):
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.path.samefile(f"/proc/self/fd/{descriptor}", source):
                raise PermissionError(13, "The process cannot access the file", source)
        except FileNotFoundError:
            pass
    return ordinary_replace(source, target, **named)

os.replace = replace_closed
"""


ON_WINDOWS = """
import sys

sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"))
import localjudge.cli

sys.platform = "win32"
localjudge.cli.main()
"""


def python(
    *args: object, lacking: str = "", folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, after these lines; characters of any encoding are replaced."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(lacking, encoding="utf-8")
    path = os.pathsep.join([str(folder / "site"), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, *map(str, args)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | variables,
    )


def program(*args: object, **how: Any) -> subprocess.CompletedProcess[str]:
    return python("-m", "localjudge", *args, **how)


@pytest.mark.slow
def test_without_the_files_of_the_linux_kernel_as_on_macos_the_bundled_judge_judges(
    cli: Cli, tmp_path: Path
) -> None:
    end = program("score", "examples", "--limit", 3, "--out", "run", lacking=WITHOUT_LINUX, folder=tmp_path)
    assert end.returncode == 0, end.stderr
    assert cli("score", "examples", "--limit", 3, "--out", tmp_path / "here").code == 0
    here, there = ((tmp_path / run / "judgements.jsonl").read_bytes() for run in ("here", "run"))
    assert here == there
    end = program("doctor", "--model", "bundled", lacking=WITHOUT_LINUX, folder=tmp_path)
    assert (end.returncode, "Traceback" in end.stderr) == (0, False), end.stdout + end.stderr


def test_windows_is_refused_in_one_line(tmp_path: Path) -> None:
    end = python("-c", ON_WINDOWS, folder=tmp_path)
    assert (end.returncode, end.stderr.splitlines()) == (
        2,
        ["localjudge: this program runs on Linux and macOS; on Windows, use it in WSL"],
    )


def test_a_system_that_cannot_rename_open_files_is_named_before_anything_is_judged(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    score = ("score", rows, "--out", "run", "--engine", "dry-run")
    end = program(*score, lacking=WITHOUT_OPEN_RENAMES, folder=tmp_path)
    assert (end.returncode, end.stderr.splitlines()[-1].endswith("; choose another folder")) == (2, True)
    assert not (tmp_path / "run").exists()


def warned(stderr: str) -> list[str]:
    """Return the lines in which Python says that the package opened a file without an encoding."""
    return [line for line in stderr.splitlines() if "EncodingWarning" in line and "/localjudge/" in line]


@pytest.mark.slow
def test_no_file_depends_on_the_encoding_of_the_system_and_a_console_shows_what_it_can(
    tmp_path: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "zeilen-ä.jsonl", 4, instruction="Wie heißt 東京 hier?", Straße="Łódź")
    rubric = tmp_path / "maßstab.toml"
    rubric.write_text(short_rubric.read_text() + 'system = "Urteile gerecht: 公正に."\n', encoding="utf-8")
    flags = ("--engine", "dry-run", "--rubric", rubric)
    system = {
        "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp1252",
        "PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "always::EncodingWarning",
    }  # fmt: skip
    commands: list[tuple[str | Path, ...]] = [
        ("score", rows, "--out", "läufe/ganz", *flags),
        ("show", "läufe/ganz"), ("show", "läufe/ganz", "--id", "r1"),
        ("prompt", rows, "--rubric", rubric), ("rubrics", "check", rubric), ("models", "list"), ("--help",),
        ("export", "läufe/ganz", "--to", "csv", "--with-texts", "--out", "tabelle-ß.csv"),
        ("report", "läufe/ganz", "--out", "bericht.html"), ("doctor", "--model", "bundled"),
        ("models", "plan", "bundled"),
    ]  # fmt: skip
    imports = tmp_path / "imports"
    with imports.open("wb") as stderr, Preloaded(os.environ | system, stderr) as preloaded:
        for command in commands:
            end = subprocess.run(
                [*preloaded.localjudge, *command], cwd=tmp_path, env=os.environ | system, capture_output=True
            )
            said = end.stderr.decode("cp1252", "replace")
            assert (end.returncode, "Traceback" in said) == (0, False), (command, said)
            assert not warned(said), command
    assert not warned(imports.read_text("cp1252", "replace")), "as a module was imported"
    judged = (tmp_path / "läufe" / "ganz" / "judgements.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["columns"] for line in judged.splitlines()] == [{"Straße": "Łódź"}] * 4
    assert "東京" in (tmp_path / "tabelle-ß.csv").read_text(encoding="utf-8")
