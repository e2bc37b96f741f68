"""The files of a run directory by name, and the mark of a folder in which a run was begun.

Without `run.json`, a file with one of these names may be a user's. localjudge writes into such a folder only if
it has the mark. A start and a merge make it before anything else, and remove it when they leave the folder with
a `run.json`, or without any file of a run. So the folder of a start that ended early is continued by the same
command, and no foreign file is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from localjudge.errors import RunMismatchError, UsageError
from localjudge.system.durable import flush

MANIFEST = "run.json"
JUDGEMENTS = "judgements.jsonl"
SET_ASIDE = "set-aside.jsonl"
NOISE = "noise.jsonl"
SUMMARY = "summary.json"
ENGINE_LOG = "engine.log"
"""The file of a run with the output of the engine's libraries."""
FILES = (MANIFEST, JUDGEMENTS, SET_ASIDE, NOISE, SUMMARY, ENGINE_LOG)
"""All files that a run directory has; a start that continues replaces them."""
LOCK = ".lock"
"""The lock of the process that writes a run directory."""
MARK = ".localjudge-begun"
"""The mark of a folder in which a run was begun; only that it exists counts."""
_RESERVED = FILES + (LOCK, MARK)
"""The names that no other file of a run directory may have."""
_MARK_TEXT = "localjudge began a run in this folder. The same command continues it.\n"


def files_of_run(folder: Path) -> list[str]:
    """Return the names of the files in a folder that are named as those of a run."""
    return [name for name in FILES if os.path.lexists(folder / name)]


def refuse_foreign(folder: Path) -> None:
    """Check that no file in a folder that a run would replace is foreign; the folder may be missing.

    Raises:
        RunMismatchError: it has a file that is named as one of a run, but neither `run.json` nor the mark.
    """
    if os.path.exists(folder / MANIFEST) or os.path.exists(folder / MARK):
        return
    for name in FILES + (LOCK,):
        if os.path.lexists(folder / name):
            raise RunMismatchError(f"`out` {folder}: has {name} but no {MANIFEST}; choose another folder")


def mark(folder: Path) -> None:
    """Mark a folder as one in which a run is begun, unless it has a run or the mark.

    Raises:
        RunMismatchError: the folder has a foreign file with the name of one of a run.
        OSError: the mark cannot be written.
    """
    refuse_foreign(folder)
    if os.path.exists(folder / MANIFEST):
        return
    try:
        with (folder / MARK).open("x", encoding="utf-8") as stream:
            stream.write(_MARK_TEXT)
    except FileExistsError:
        return
    flush(folder / MARK)
    flush(folder)


def remove_needless_mark(folder: Path) -> None:
    """Remove the mark of a folder that has `run.json` or no file of a run, unless a process writes there."""
    if os.path.exists(folder / LOCK):
        return
    files = files_of_run(folder)
    if MANIFEST in files or not files:
        with suppress(OSError):  # of no harm in either folder
            (folder / MARK).unlink()


def refuse_inputs_inside(out: Path, inputs: Iterable[str]) -> None:
    """Check that no input is in the run directory, or is it.

    Args:
        out: the run directory; it may be missing.
        inputs: names of files; those that name no file, such as `-`, are ignored.

    Raises:
        UsageError: an input is inside, by its path or by that of the file that it links to.
    """
    for name in inputs:
        if os.path.lexists(name) and _paths_inside(name, out):
            raise UsageError(f"`out` {out}: the input {name} is in this folder; choose another folder")


def refuse_files_of_run(out: Path, names: Iterable[str]) -> None:
    """Check that no file that a command reads is named as a file of a run in its run directory, or below it.

    Other files may be there, such as the rubric of the run.

    Args:
        out: the run directory, or the folder of several; it may be missing.
        names: names of files; those that name no file, such as the name of an included rubric, are ignored.

    Raises:
        UsageError: a file is one, by its path or by that of the file that it links to.
    """
    for name in names:
        if not os.path.lexists(name):
            continue
        if any(path.name in _RESERVED for path in _paths_inside(name, out)):
            raise UsageError(f"`out` {out}: {name} is named as a file of a run there; give it another name")


def _paths_inside(name: str, folder: Path) -> list[Path]:
    """Return the path of a file, and that of the file that it links to, as far as they are in a folder."""
    folders = {Path(os.path.abspath(folder)), Path(os.path.realpath(folder))}
    paths = {Path(os.path.abspath(name)), Path(os.path.realpath(name))}
    inside = []
    for path in paths:
        if any(path.is_relative_to(folder_path) for folder_path in folders):
            inside.append(path)
    return inside
