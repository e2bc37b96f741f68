"""Tests of the folder of a run: a start that ends early is continued, and no foreign file is replaced."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows

from localjudge import Judge, UsageError, load_run, read_rows
from localjudge.errors import RunMismatchError
from localjudge.runs.journal import read_journal
from localjudge.runs.ownership import Ownership
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import FILES, LOCK, MARK, refuse_inputs_inside
from localjudge.runs.run_plan import RunPlan
from localjudge.studies.jury_run import write_jury


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def flags(short_rubric: Path) -> list[str]:
    return ["--rubric", str(short_rubric), "--engine", "dry-run"]


@pytest.mark.parametrize("name", [*FILES[1:], LOCK])
@pytest.mark.parametrize("command", ["score", "audit", "merge"])
def test_a_foreign_file_with_the_name_of_one_of_a_run_is_refused_and_stays(
    cli: Cli, tmp_path: Path, flags: list[str], name: str, command: str
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 4), tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("precious")
    given: list[object] = [command, rows, "--out", out, *flags]
    if command == "merge":
        for index in (1, 2):
            shard = ["--shard", f"{index}/2", "--out", tmp_path / f"part-{index}"]
            assert cli("score", rows, *shard, *flags).code == 0
        given = [command, tmp_path / "part-1", tmp_path / "part-2", "--out", out]
    end = cli(*given)
    assert (end.code, f"--out {out}: has {name} but no run.json" in end.err) == (2, True), end.err
    assert contents(out) == {name: b"precious"}


def test_an_audit_refuses_a_foreign_file_in_a_folder_of_its_runs_before_it_writes(
    cli: Cli, tmp_path: Path
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 4), tmp_path / "audit"
    flags = ["--rubric", "six-aspects", "--engine", "dry-run"]
    for folder, check in (("again", []), ("own", ["--check", "aspects"])):
        (out / folder).mkdir(parents=True)
        (out / folder / "summary.json").write_text("precious")
        end = cli("audit", rows, "--out", out, *check, *flags)
        assert (end.code, f"{out / folder}: has summary.json" in end.err) == (2, True), end.err
        assert contents(out) == {f"{folder}/summary.json": b"precious"}
        (out / folder / "summary.json").unlink()


def test_a_link_that_leads_nowhere_is_a_foreign_file(cli: Cli, tmp_path: Path, flags: list[str]) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 2), tmp_path / "mine"
    out.mkdir()
    (out / "summary.json").symlink_to(tmp_path / "elsewhere")
    assert cli("score", rows, "--out", out, *flags).code == 2
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["rows.jsonl", "summary.json", "deep/rows.jsonl"])
def test_an_input_inside_the_folder_is_refused_whatever_path_leads_to_it(
    cli: Cli, tmp_path: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out = tmp_path / "runs" / "first"
    rows = out / name
    rows.parent.mkdir(parents=True)
    written = write_rows(tmp_path / "a.jsonl", 2)
    rows.write_bytes(written.read_bytes())
    (tmp_path / "link-to-folder").symlink_to(out)
    (tmp_path / "link.jsonl").symlink_to(rows)
    (out / "outwards.jsonl").symlink_to(written)
    monkeypatch.chdir(tmp_path / "runs")
    before = contents(out)
    for given, to in (
        (rows, out),
        (f"first/{name}", out),
        (f"../runs/first/../first/{name}", "first"),
        (tmp_path / "link.jsonl", out),
        (rows, tmp_path / "link-to-folder"),
        (out / "outwards.jsonl", out),
    ):
        for command in ("score", "audit"):
            end = cli(command, given, "--out", to, *flags)
            assert (end.code, f"--out {to}: the input {given}" in end.err) == (2, True), end.err
    assert contents(out) == before


def test_the_file_that_rows_are_joined_with_is_an_input(cli: Cli, tmp_path: Path, flags: list[str]) -> None:
    out, answers = tmp_path / "out", tmp_path / "answers.jsonl"
    out.mkdir()
    (out / "questions.jsonl").write_text('{"id": "q", "instruction": "Why?", "reference": "So."}\n')
    answers.write_text('{"id": "q", "candidate": "So."}\n')
    joined = ["--join", out / "questions.jsonl", "--on", "id"]
    end = cli("score", answers, *joined, "--out", out, *flags)
    assert (end.code, f"the input {out / 'questions.jsonl'}" in end.err) == (2, True), end.err
    assert cli("score", answers, *joined, "--out", tmp_path / "elsewhere", *flags).code == 0


def reading(option: str, file: Path, short_rubric: Path) -> list[object]:
    """Return the flags of a command that reads this file, which is written, by one of its options."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if option == "--rubric":
        file.write_bytes(short_rubric.read_bytes())
        return ["--rubric", file]
    if option == "--chat-template":
        file.write_text("{{ messages[0]['content'] }}")
        return ["--rubric", short_rubric, "--chat-template", file]
    file.write_text('{"system_a": "x", "system_b": "y"}\n')
    return ["--rubric", "pairwise", "--pairs", file]


def rows_of_two_systems(file: Path) -> Path:
    texts = {"id": "1", "instruction": "Say 1.", "reference": "1"}
    rows = [{**texts, "system": system, "candidate": f"It is {system}."} for system in "xy"]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(
    ("option", "name"),
    [("--rubric", "summary.json"), ("--chat-template", "engine.log"), ("--pairs", "set-aside.jsonl")],
)
@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_that_a_start_reads_is_not_replaced_by_one_of_its_run(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path, option: str, name: str, is_link: bool
) -> None:
    rows, run = rows_of_two_systems(tmp_path / "rows.jsonl"), tmp_path / "runs" / "first"
    common = ["--model", model, "--engine", "dry-run"]
    elsewhere = reading(option, tmp_path / name, short_rubric)
    assert cli("score", rows, "--out", run, *common, *elsewhere).code == 0
    *flags, file = reading(option, run / name, short_rubric)
    if is_link:
        file = tmp_path / f"link-to-{name}"
        file.symlink_to(run / name)
    before = contents(run)
    for command, out in (("score", run), ("audit", run), ("audit", run.parent)):
        end = cli(command, rows, "--out", out, *common, *flags, file)
        assert (end.code, f"--out {out}: {file} is named" in end.err) == (2, True), end.err
        assert contents(run) == before


def test_a_rubric_beside_the_files_of_its_run_is_read(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows, run = write_rows(tmp_path / "rows.jsonl", 2), tmp_path / "run"
    flags = reading("--rubric", run / "rubric.toml", short_rubric)
    command = ["score", rows, "--out", run, "--model", model, "--engine", "dry-run", *flags]
    for _ in ("a new run", "a run that is there"):
        assert cli(*command).code == 0
        assert (run / "rubric.toml").read_bytes() == short_rubric.read_bytes()


def test_inputs_beside_or_around_the_folder_and_those_of_no_file_are_none_inside_it(tmp_path: Path) -> None:
    (tmp_path / "run-1.jsonl").touch()
    refuse_inputs_inside(tmp_path / "run-1", [str(tmp_path), str(tmp_path / "run-1.jsonl"), "-", "examples"])


def test_the_mark_is_there_until_the_run_is_left(tmp_path: Path, short_rubric: Path) -> None:
    judge, out = Judge(engine="dry-run", rubric=short_rubric), tmp_path / "out"
    rows = str(write_rows(tmp_path / "a.jsonl", 3))
    with RunDirectory(out) as run, RunPlan(judge, read_rows([rows])) as plan:
        assert (out / MARK).is_file()
        run.begin(judge, plan)
        run.score()
        assert (out / MARK).is_file()
    assert sorted(contents(out)) == ["judgements.jsonl", "run.json", "summary.json"]
    with RunDirectory(out):
        assert not (out / MARK).exists(), "a run that is there needs none"
    with Ownership(tmp_path / "empty", print):
        assert (tmp_path / "empty" / MARK).is_file()
    assert not (tmp_path / "empty").exists()


class Fault:
    """An error or a stop at a file operation below a folder; the number selects the operation, from 1."""

    def __init__(self, place: int, folder: Path, *, stopped: bool) -> None:
        self.place, self.folder, self.stopped, self.count = place, str(folder), stopped, 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("open", "mkdir", "replace", "rename", "link", "unlink", "remove", "rmdir", "fsync"):
            patch.setattr(os, name, partial(self.call, getattr(os, name)))

    def call(self, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{given[0]}") if type(given[0]) is int else str(given[0])
        self.count += path.startswith(self.folder)
        if self.count != self.place or not path.startswith(self.folder):
            return real(*given, **named)
        if not self.stopped:
            raise OSError(errno.EIO, "Input/output error")
        real(*given, **named)
        raise KeyboardInterrupt


def go(out: Path, judge: Judge, rows: Path) -> None:
    with RunPlan(judge, read_rows([str(rows)])) as plan, RunDirectory(out) as run:
        run.begin(judge, plan)
        run.score()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_a_start_that_ends_at_any_file_operation_before_its_first_line_is_continued(
    tmp_path: Path, short_rubric: Path, stopped: bool
) -> None:
    rows, judge = write_rows(tmp_path / "a.jsonl", 2), Judge(engine="dry-run", rubric=short_rubric)
    go(tmp_path / "whole", judge, rows)
    whole = contents(tmp_path / "whole")
    for place in range(1, 1000):
        out = tmp_path / f"out-{place}"
        fault = Fault(place, out, stopped=stopped)
        with pytest.MonkeyPatch.context() as patch:
            fault.install(patch)
            with (
                suppress(OSError, UsageError, KeyboardInterrupt),
                RunPlan(judge, read_rows([str(rows)])) as plan,
                RunDirectory(out) as run,
            ):
                run.begin(judge, plan)
                raise KeyboardInterrupt
        go(out, judge, rows)
        assert load_run(out).complete, place
        assert contents(out).keys() == whole.keys(), place
        assert contents(out)["judgements.jsonl"] == whole["judgements.jsonl"], place
        if fault.count < place:
            break
    assert place > 10


def test_a_folder_that_was_made_for_a_run_and_has_a_foreign_file_since_then_is_not_emptied(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    with RunDirectory(out):
        (out / "notes.txt").write_text("mine")
    assert contents(out) == {"notes.txt": b"mine"}


def test_a_run_that_is_complete_keeps_nothing_but_its_files(cli: Cli, tmp_path: Path, flags: list[str]) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 3), tmp_path / "out"
    assert cli("score", rows, "--out", out, *flags).code == 0
    (out / MARK).write_text("left by a power cut")
    assert cli("score", rows, "--out", out, *flags).code == 0
    assert not (out / MARK).exists()
    (out / "summary.json").unlink()
    assert cli("score", rows, "--out", out, *flags).code == 0, "a run without a mark is continued"


def table(file: Path) -> Path:
    """Write rows with a score and a label of 12 instructions."""
    rows = [
        {"id": f"{n}", "instruction": f"Say {n}.", "candidate": f"It is {n}.", "tact": 1 + n % 3, "system": "s"}
        for n in range(12)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("command", ["report", "calibrate", "compare --markdown", "compare --junit", "export"])
def test_a_file_that_a_command_reads_is_not_replaced_by_its_output(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    pytest.importorskip("sklearn")
    rows, labels, run = table(tmp_path / "rows.jsonl"), table(tmp_path / "labels.jsonl"), tmp_path / "run"
    assert cli("import", rows, "--aspect", "tact", "--out", run).code == 0
    (tmp_path / "link.jsonl").symlink_to(labels)
    name, _, flag = command.partition(" ")
    runs = [run, run] if name == "compare" else [run]
    flag = flag or "--out"
    given: list[object] = [name, *runs]
    if name != "export":
        given += ["--labels", labels]
    if name == "compare":
        given += ["--max-failed", "1"]
    targets = [rows] if name == "export" else [rows, labels, tmp_path / "link.jsonl"]
    before = contents(tmp_path)
    for target in targets:
        to = ["--to", "jsonl"] if name == "export" else []
        end = cli(*given, flag, target, *to)
        assert (end.code, str(target) in end.err) == (2, True), end.err
        assert contents(tmp_path) == before


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_run_is_no_output(cli: Cli, tmp_path: Path, flags: list[str], name: str) -> None:
    rows, run = write_rows(tmp_path / "a.jsonl", 3), tmp_path / "run"
    assert cli("score", rows, "--out", run, *flags).code == 0
    before = contents(run)
    end = cli("export", run, "--out", run / name, "--to", "jsonl")
    assert (end.code, f"--out {run / name}" in end.err) == (2, True), end.err
    assert contents(run) == before


def escalated(cli: Cli, folder: Path, rest: Path) -> list[object]:
    """Return the command that writes the rows that are passed on of a run of the examples."""
    assert cli("score", "examples", "--out", folder / "small").code == 0
    lines = (folder / "small" / "judgements.jsonl").read_text().splitlines()
    labelled = [json.loads(line) for line in lines]
    labels = folder / "people.csv"
    values = [f"{line['id']},{line['system']},{place % 5 + 1}\n" for place, line in enumerate(labelled)]
    labels.write_text("id,system,helpfulness\n" + "".join(values))
    which = ["--by", "helpfulness", "--within", "4", "--agreement", "0.5"]
    return ["escalate", folder / "small", "--labels", labels, *which, "--rest", rest]


def after_rename_of(target: Path, *, stopped: bool) -> Callable[..., None]:
    """Return a function for `os.fsync` or `os.replace` that fails or is stopped right after a rename."""
    real: Callable[..., None] = os.replace if stopped else os.fsync

    def flushed(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if is_folder and target.exists() and os.path.samestat(os.fstat(descriptor), target.parent.stat()):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    def renamed(source: Path, to: Path) -> None:
        real(source, to)
        if Path(to) == target:
            raise KeyboardInterrupt

    return renamed if stopped else flushed


@pytest.mark.parametrize("command", ["import", "rubrics", "jury", "escalate", "export", "report", "calibrate"])
@pytest.mark.parametrize("stopped", [False, True])
def test_an_error_after_the_last_rename_says_that_the_result_is_whole(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, stopped: bool
) -> None:
    pytest.importorskip("sklearn")
    rows, labels = table(tmp_path / "rows.jsonl"), table(tmp_path / "labels.jsonl")
    assert cli("import", rows, "--aspect", "tact", "--out", tmp_path / "run").code == 0
    run = tmp_path / "run"
    target = tmp_path / "new" / {"rubrics": "mine.toml", "escalate": "rest.jsonl"}.get(command, "result")
    target.parent.mkdir()
    given: dict[str, list[object]] = {
        "import": [rows, "--aspect", "tact", "--out", target],
        "rubrics": ["init", target],
        "jury": [run, run, "--out", target, "--resamples", "100"],
        "escalate": escalated(cli, tmp_path, target)[1:] if command == "escalate" else [],
        "export": [run, "--to", "jsonl", "--out", target],
        "report": [run, "--out", target],
        "calibrate": [run, "--labels", labels, "--out", target],
    }
    if command == "jury":
        other = tmp_path / "other"
        assert cli("import", rows, "--aspect", "tact", "--judge", "other", "--out", other).code == 0
        given["jury"][1] = other
    function = "replace" if stopped else "fsync"
    monkeypatch.setattr(os, function, after_rename_of(target, stopped=stopped))
    end = cli(command, *given[command])
    monkeypatch.undo()
    last = end.err.splitlines()[-1]
    assert end.code == (130 if stopped else end.code), end.err
    assert end.code != 0
    assert str(target) in last
    assert "whole" in last
    assert "Traceback" not in end.err
    assert target.exists()
    if target.is_dir():
        assert load_run(target).complete
    assert [file.name for file in target.parent.iterdir()] == [target.name]


def test_the_rows_of_an_earlier_start_are_taken_and_others_stay(cli: Cli, tmp_path: Path) -> None:
    rest = tmp_path / "rest.jsonl"
    command = escalated(cli, tmp_path, rest)
    assert cli(*command).code == 0
    written = rest.read_bytes()
    assert cli(*command).code == 0
    assert rest.read_bytes() == written
    rest.write_text("mine\n")
    assert cli(*command).code == 2
    assert rest.read_text() == "mine\n"


def two_runs(cli: Cli, folder: Path) -> list[Path]:
    """Write runs of two judges over the rows of `table`."""
    rows = table(folder / "rows.jsonl")
    runs = [folder / "first", folder / "second"]
    for run in runs:
        assert cli("import", rows, "--aspect", "tact", "--judge", run.name, "--out", run).code == 0
    return runs


def renewing(run: Path) -> Callable[..., Any]:
    """Return a reader of journals that renews `run.json` before it reads, as a start does."""

    def read_after_renewal(*arguments: Any) -> Any:
        (run / "run.json").write_bytes((run / "run.json").read_bytes() + b"\n")
        return read_journal(*arguments)

    return read_after_renewal


@pytest.mark.parametrize("name", ["show", "export", "rank", "agree", "calibrate", "jury", "compare", "report"])
def test_a_run_that_its_score_command_changes_meanwhile_is_refused_by_what_reads_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("sklearn")
    runs, labels, out = two_runs(cli, tmp_path), table(tmp_path / "labels.jsonl"), tmp_path / "new.jsonl"
    given: list[object] = [name, *(runs if name in ("jury", "compare") else runs[:1])]
    if name in ("agree", "calibrate"):
        given += ["--labels", labels]
    if name in ("export", "calibrate", "report"):
        given += ["--out", out]
    assert cli(*given).code == 0, "a run that nothing changes"
    out.write_text("the result of an earlier command")
    monkeypatch.setattr("localjudge.runs.reader.read_journal", renewing(runs[0]))
    end = cli(*given)
    assert (end.code, f"{runs[0]}: its score command has changed it" in end.err) == (2, True), end.err
    assert out.read_text() == "the result of an earlier command"
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".tmp")] == []


def test_a_pilot_that_changes_while_it_is_read_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, run = tmp_path / "rows.jsonl", tmp_path / "run"
    both = [
        {
            "id": f"{n}",
            "instruction": f"Say {n}.",
            "candidate": f"It is {n}.",
            "tact": 1 + n % size,
            "system": name,
        }
        for n in range(12)
        for size, name in ((3, "north"), (2, "south"))
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in both))
    assert cli("import", rows, "--aspect", "tact", "--out", run).code == 0
    command: list[object] = ["sample-size", "--difference", "0.5", "--pilot", run]
    assert cli(*command).code == 0, "a run that nothing changes"
    monkeypatch.setattr("localjudge.runs.reader.read_journal", renewing(run))
    end = cli(*command)
    assert (end.code, f"{run}: its score command has changed it" in end.err) == (2, True), end.err


def test_a_run_that_changes_while_it_is_read_is_not_labelled(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, labels = two_runs(cli, tmp_path)[0], tmp_path / "labels.jsonl"
    monkeypatch.setattr("localjudge.runs.reader.read_journal", renewing(run))
    end = cli("label", run, "--out", labels)
    assert (end.code, f"{run}: its score command has changed it" in end.err) == (2, True), end.err
    assert not labels.exists()


def test_a_jury_is_not_written_if_a_juror_changes_while_it_is_written_and_the_same_command_writes_it_later(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, out = two_runs(cli, tmp_path), tmp_path / "jury"
    command: list[object] = ["jury", *runs, "--out", out, "--resamples", "100"]

    def write_meanwhile(folders: list[Path], to: Path) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr("localjudge.runs.reader.read_journal", renewing(runs[0]))
            return write_jury(folders, to)

    with monkeypatch.context() as patched:
        patched.setattr("localjudge.studies.jury_run.write_jury", write_meanwhile)
        end = cli(*command)
    assert (end.code, f"{runs[0]}: its score command has changed it" in end.err) == (2, True), end.err
    assert not out.exists()
    assert cli(*command).code == 0
    assert load_run(out).complete


def test_a_folder_with_a_foreign_file_is_refused_in_python_too(tmp_path: Path) -> None:
    (tmp_path / "noise.jsonl").write_text("mine")
    with pytest.raises(RunMismatchError, match=r"has noise\.jsonl but no run\.json"), RunDirectory(tmp_path):
        pass
    assert contents(tmp_path) == {"noise.jsonl": b"mine"}
