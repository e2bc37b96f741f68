"""Tests of writing to the disk: completely or not at all, in an order that survives a power failure."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import Cli, random_model, write_rows

from localjudge.airgap import unpack
from localjudge.airgap.pack_files import write_beside
from localjudge.airgap.pack_manifest import PackManifest
from localjudge.airgap.pack_parts import write_parts
from localjudge.cli import app
from localjudge.system.durable import replacing, scratch_folder, settle, write_text

Event = tuple[str, Path, tuple[int, ...]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Record flushes and renames in order: the call, the path, and the state of the file at that time."""
    seen: list[Event] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        seen.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")), _state(os.fstat(descriptor))))

    def noted_replace(source: Path, target: Path) -> None:
        state = _state(os.stat(source))
        replace(source, target)
        seen.append(("rename", Path(target).absolute(), state))

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    return seen


def _state(found: os.stat_result) -> tuple[int, ...]:
    """Return the identity of a file and the time of its last write; only the identity of a folder."""
    written = () if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
    return found.st_dev, found.st_ino, *written


def assert_durable(target: Path, events: list[Event]) -> None:
    """Assert this order: a file, or all files of a folder, flushed; the target renamed; its folder flushed."""
    target = target.resolve()
    renames = [place for place, (call, path, _) in enumerate(events) if (call, path) == ("rename", target)]
    assert renames, f"{target}: not renamed into place"
    place = renames[-1]
    flushed = [state for call, _, state in events[:place] if call == "fsync"]
    assert events[place][2] in flushed, f"{target}: renamed before its last write was flushed"
    assert events[place][2] == _state(target.stat()), f"{target}: written after it was renamed"
    for file in target.rglob("*"):
        assert _state(file.stat()) in flushed, f"{file}: not flushed before its folder was renamed"
    assert ("fsync", target.parent) in [event[:2] for event in events[place:]], f"{target}: folder not flushed"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    file = tmp_path / "labels.csv"
    rows = [f"r{n},{'ab'[n % 2]},{1 + n % 3},{1 + n % 2}" for n in range(12)]
    file.write_text("\n".join(["id,system,tact,wit", *rows]) + "\n")
    return file


def test_every_result_is_flushed_before_it_gets_its_name_and_its_folder_after(
    cli: Cli, tmp_path: Path, short_rubric: Path, labels: Path, events: list[Event]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 12)
    flags = ["--rubric", short_rubric, "--engine", "dry-run"]
    run = ("run.json", "judgements.jsonl", "summary.json")

    def durable(*names: str | Path, of: tuple[object, ...]) -> None:
        events.clear()
        end = cli(*of)
        assert end.code == 0, end.err
        for name in names:
            assert_durable(tmp_path / name, events)

    for index in (1, 2):
        out = tmp_path / f"part{index}"
        durable(
            *(out / name for name in run), of=("score", rows, "--out", out, *flags, "--shard", f"{index}/2")
        )
    durable(
        *(f"whole/{name}" for name in run),
        of=("merge", tmp_path / "part1", tmp_path / "part2", "--out", tmp_path / "whole"),
    )
    whole = tmp_path / "whole"
    durable(whole / "set-aside.jsonl", of=("score", rows, "--limit", 5, "--out", whole, *flags))
    durable(whole / "judgements.jsonl", of=("score", rows, "--out", whole, *flags))
    for form in ("jsonl", "csv"):
        durable(f"table.{form}", of=("export", whole, "--to", form, "--out", tmp_path / f"table.{form}"))
    durable(
        "imported",
        of=("import", labels, "--out", tmp_path / "imported", "--aspect", "tact", "--column", "candidate=wit",
            "--column", "instruction=id", "--column", "reference=system"),
    )  # fmt: skip
    durable("audit/rows.jsonl", of=("audit", rows, "--out", tmp_path / "audit", "--sample", 2, *flags))
    durable("mine.toml", of=("rubrics", "init", tmp_path / "mine.toml"))
    table = tmp_path / "table.npz"
    served = (
        "serve",
        "--print-vllm-flags",
        "--model",
        random_model(tmp_path / "model"),
        "--rubric",
        short_rubric,
    )
    durable(table, of=(*served, "--table", table))


def test_a_comparison_is_flushed_before_its_files_get_their_names(
    cli: Cli, tmp_path: Path, events: list[Event]
) -> None:
    pytest.importorskip("sklearn")
    page, cases = tmp_path / "page.md", tmp_path / "cases.xml"
    end = cli(
        "compare", *compared_runs(cli, tmp_path), "--markdown", page, "--junit", cases, "--margin", "tact=1"
    )
    assert end.code in (0, 3), end.err
    for file in (page, cases):
        assert_durable(file, events)


def compared_runs(cli: Cli, folder: Path) -> list[Path]:
    """Return two runs of other responses to the same instructions, with imported scores."""
    for name in ("old", "new"):
        rows = [
            {
                "id": f"{n}",
                "instruction": f"Say {n}.",
                "candidate": f"{name} {n}",
                "system": "s",
                "tact": 1 + n % 3,
            }
            for n in range(12)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        end = cli("import", folder / f"{name}.jsonl", "--aspect", "tact", "--out", folder / name)
        assert end.code == 0, end.err
    return [folder / "old", folder / "new"]


@pytest.mark.parametrize("flags", [["--markdown"], ["--junit"]])
def test_a_full_disk_leaves_the_old_file_of_a_comparison(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    pytest.importorskip("sklearn")
    runs, target = compared_runs(cli, tmp_path), tmp_path / "result"
    target.write_text("before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    end = cli("compare", *runs, *flags, target, "--margin", "tact=1")
    assert (end.code, "No space left on device" in end.err) == (1, True)
    assert target.read_text() == "before"
    assert not list(tmp_path.glob(".result*"))


def test_a_link_keeps_its_place_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "result", tmp_path / "link"
    link.symlink_to(target)
    write_text(link, "written")
    assert link.is_symlink()
    assert target.read_text() == "written"
    assert [each.name for each in target.parent.iterdir()] == ["result"]


def test_the_next_start_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "result[1]"
    script = (
        "import os, sys, pathlib, signal\nfrom localjudge.system.durable import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as scratch:\n"
        "    scratch.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, target], check=False)
    [left] = tmp_path.iterdir()
    assert left != target
    (tmp_path / ".result[1].notes.tmp").write_text("somebody's")
    with replacing(target) as own:
        own.write_text("own")
        write_text(tmp_path / "other", "does not remove a running one's")
    assert target.read_text() == "own"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".result[1].notes.tmp", "other", "result[1]"]


def outputs(command: Any, name: str = "") -> Iterator[str]:
    """Yield each flag or argument of a command that names an output: the command and its name."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from outputs(inner, f"{name} {word}".strip())
    for each in command.params:
        writes = "rite" in (each.help or "") and each.metavar in ("FILE", "DIR")
        if writes or {"--out", "--table"} & {*each.opts}:
            yield f"{name} {each.opts[0]}"


def test_each_command_that_writes_a_file_is_one_of_those_whose_files_are_durable() -> None:
    """A new one belongs into a test of this file."""
    runs = {f"{name} --out" for name in ("score", "audit", "merge", "import", "jury", "escalate")}
    files = {f"{name} --out" for name in ("export", "report", "calibrate")}
    files |= {
        "compare --markdown",
        "compare --junit",
        "escalate --rest",
        "rubrics init file",
        "serve --table",
    }
    others = {"label --out"} | {"pack --out"} | {"doctor --out"}  # appended; a folder; only looked at
    assert {*outputs(typer.main.get_command(app))} == runs | files | others


def test_a_calibration_is_flushed_before_it_gets_its_name(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path, labels: Path, events: list[Event]
) -> None:
    pytest.importorskip("sklearn")
    rows, out = write_rows(tmp_path / "a.jsonl", 12), tmp_path / "calibration.json"
    flags = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 6]
    assert cli("score", rows, "--out", tmp_path / "run", *flags).code == 0
    end = cli("calibrate", tmp_path / "run", "--labels", labels, "--out", out, "--resamples", 100)
    assert end.code == 0, end.err
    assert_durable(out, events)


def test_a_report_is_flushed_before_it_gets_its_name(
    cli: Cli, tmp_path: Path, short_rubric: Path, events: list[Event]
) -> None:
    pytest.importorskip("sklearn")
    rows, out = write_rows(tmp_path / "a.jsonl", 6), tmp_path / "report.html"
    assert (
        cli("score", rows, "--out", tmp_path / "run", "--rubric", short_rubric, "--engine", "dry-run").code == 0
    )
    assert cli("report", tmp_path / "run", "--out", out).code == 0
    assert_durable(out, events)


def test_a_models_manifest_is_flushed_before_it_gets_its_name(
    cli: Cli, tmp_path: Path, events: list[Event]
) -> None:
    folder = random_model(tmp_path / "model")
    assert cli("models", "verify", folder).code == 0
    assert_durable(folder / "localjudge-manifest.json", events)


def test_a_pack_is_flushed_with_all_its_parts_before_it_gets_its_name(
    tmp_path: Path, events: list[Event]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 60)
    parts, files = write_parts({"rows/a.jsonl": rows}, tmp_path / "scratch", 2048)
    manifest = PackManifest(
        version="1", extras=(), python="3.11", platforms=("any",), parts=tuple(parts), files=tuple(files)
    )
    write_beside(manifest.sealed(), tmp_path / "scratch")
    settle(tmp_path / "scratch", tmp_path / "pack")
    assert (tmp_path / "pack" / unpack.MANIFEST).is_file()
    assert_durable(tmp_path / "pack", events)


@pytest.mark.parametrize("write", [lambda path: path.write_text("half"), lambda path: path.mkdir()])
def test_a_result_that_cannot_be_finished_leaves_what_was_there(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    target = tmp_path / "result"
    target.write_text("before")

    def broken() -> None:
        with replacing(target) as scratch:
            write(scratch)
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        broken()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_while_the_scratch_file_is_removed_does_not_hide_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(tmp_path / "result", "written")
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "result").exists()


def test_two_that_write_the_same_file_at_once_have_a_scratch_each(tmp_path: Path) -> None:
    target = tmp_path / "result"
    with replacing(target) as one, replacing(target) as other:
        one.write_text("one")
        other.write_text("other")
    assert target.read_text() == "one", "the last to end"
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_symbolic_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(Path("elsewhere") / "target")
    with replacing(link) as scratch:
        scratch.write_text("new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert [*target.parent.iterdir()] == [target]


def test_a_scratch_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from localjudge.system.durable import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as scratch:\n"
        "    (scratch / 'copy').write_text('of texts'); os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "pack"]).returncode == -9
    [left] = tmp_path.iterdir()
    with scratch_folder(tmp_path / "pack") as scratch:
        assert [*tmp_path.iterdir()] == [scratch]
        assert scratch != left
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert [*tmp_path.iterdir()] == []
