"""Tests of terminal output: no control sequences from inputs, any encoding, closed streams."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from preloaded import Preloaded
from rich.table import Table
from rich.text import Text

from localjudge.cli.console import Console
from localjudge.system.durable import cache_folder
from localjudge.system.quantities import duration, file_size, memory_size
from localjudge.system.terminal import guarded_streams, printable

TITLE, RED, CLEAR = "\x1b]0;PWN\x07", "\x1b[31mRED", "\x9b2J"
# Any text that is possible as an argument of a process and as a file name.
NAMES = st.lists(
    st.sampled_from(
        [TITLE, RED, CLEAR, "\x1b", "\r", "\n", "\x08", "\x7f", "\u202e", "\u200b", "\udcff", "[/b]", "ä"]
    )
    | st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=3),
    min_size=1,
    max_size=5,
).map(lambda parts: "n" + "".join(parts))


def test_sizes_and_times_are_written_with_the_unit_that_suits_them() -> None:
    assert [file_size(count) for count in (0, 999, 1000, 2_500_000, 3e9, 4e12)] == [
        "0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 GB", "4000.0 GB",
    ]  # fmt: skip
    assert [memory_size(count) for count in (0, 2**19, 2**30, 1500 * 2**30)] == [
        "0.0 MiB", "0.5 MiB", "1.0 GiB", "1,500.0 GiB",
    ]  # fmt: skip
    assert [duration(seconds) for seconds in (0.4, 9.6, 59.7, 3723)] == ["0:00", "0:10", "1:00", "1:02:03"]


def steering(text: str) -> set[str]:
    """Return the control and format characters of a text, except line ends and tabs."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}


Program = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def program(preloaded: Preloaded) -> Program:
    """Run `localjudge` in a process of its own."""

    def run(*args: object, check: bool = False, **options: Any) -> subprocess.CompletedProcess[bytes]:
        settings: dict[str, Any] = {"capture_output": True} | options
        return subprocess.run([*preloaded.localjudge, *map(str, args)], check=check, **settings)

    return run


@pytest.fixture(scope="module")
def run(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of two systems; one of them is hostile."""
    folder = tmp_path_factory.mktemp("finished")
    row = {"instruction": "Q", "reference": "R", "candidate": "C"}
    lines = [json.dumps(row | {"system": system, "id": f"i{TITLE}"}) for system in (f"s{TITLE}{RED}", "b")]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    program("score", folder / "rows.jsonl", "--out", folder / "run", "--engine", "dry-run", check=True)
    return folder / "run"


def hostile_models(model: Path, folder: Path, name: str) -> list[Path]:
    """Write models whose template, type or weights contain this name."""
    models = []
    for kind in ("template", "type", "dtype", name.replace("\udcff", "")[:40]):
        copy = folder / kind
        shutil.copytree(model, copy)
        models.append(copy)
    template = f"{{{{ raise_exception({json.dumps(name)}) }}}}"
    (models[0] / "chat_template.jinja").write_text(template, "utf-8", "replace")
    config = json.loads((model / "config.json").read_text())
    (models[1] / "config.json").write_text(json.dumps(config | {"model_type": name}))
    header = json.dumps({name: {"dtype": name, "shape": [1], "data_offsets": [0, 4]}}).encode()
    (models[2] / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    return models


def test_no_name_from_outside_steers_the_terminal(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path, model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    told = 0

    @settings(max_examples=2, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(NAMES)
    @example(f"n{TITLE}{RED}{CLEAR}\nlocaljudge: all is well")
    def said(name: str) -> None:
        nonlocal told
        score = ("score", rows, "--out", tmp_path / "out")
        manifest = json.loads((run / "run.json").read_text())
        manifest["model"]["name"] = name
        manifest["settings"]["model"] = "0" * 64
        other = tmp_path / "other"
        shutil.copytree(run, other)
        (other / "run.json").write_text(json.dumps(manifest))
        (tmp_path / "models").mkdir()
        models = hostile_models(model, tmp_path / "models", name)
        short = ("--engine", "dry-run", "--max-rationale-tokens", 1)
        commands: list[tuple[object, ...]] = [
            (name,), ("score", f"--{name}"), (*score, "--limit", name), (*score, f"--{name}", 1),
            ("score", name, "--out", "out"), ("score", f"{name}.xlsx", "--out", "out"),
            (*score, "--column", name), (*score, "--column", f"candidate={name}"), (*score, "--rubric", name),
            (*score, "--model", name), (*score, "--engine", name), (*score, "--engine-arg", name),
            (*score, "--shard", name), (*score, "--ray", name), (*score, "--on-overflow", name),
            ("score", rows, "--out", other, *short[:2]), ("score", rows, "--out", rows / name),
            ("prompt", name), ("show", name), ("show", run), ("show", run, "--id", name), ("show", other),
            ("export", run, "--to", name, "--out", "x"), ("export", name, "--to", "csv", "--out", "x"),
            ("merge", name, "--out", "x"), ("rank", name), ("rank", run), ("agree", run, "--labels", name),
            ("jury", run, name), ("calibrate", run, "--labels", name, "--out", "x"),
            ("import", name, "--aspect", name, "--out", "x"), ("report", run, "--out", rows / name),
            ("audit", name, "--out", "x"), ("audit", rows, "--out", "x", "--threshold", name),
            ("audit", "--check", "repeat", name), ("models", name), ("models", "plan", name),
            ("models", "verify", name), ("pack", "--out", rows / name),
            ("pack", "--out", "x", "--part-size", name),
            *((*score, "--model", folder, *short) for folder in models),
            *(("models", "verify", folder) for folder in models),
            *(("models", "plan", folder, "--json") for folder in models),
        ]  # fmt: skip
        for command in commands:
            end = cli(*command)
            assert not steering(end.out + end.err), command
            assert "Traceback" not in end.err, (command, end.err)
            told += "\\u" in end.err
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.rmtree(other)
        shutil.rmtree(tmp_path / "models")

    said()
    assert told > 30, "the names were shown, not left out"


def test_an_error_is_one_line_whatever_it_names(cli: Cli) -> None:
    end = cli("show", "a\nlocaljudge: all is well")
    assert end.err == "localjudge: a localjudge: all is well: not a run directory: it has no run.json\n"


def test_warnings_and_what_libraries_print_pass_the_filter_too() -> None:
    code = (
        "import sys, warnings\nfrom localjudge.system.terminal import guarded_streams\n"
        "with guarded_streams():\n"
        f"    warnings.warn({RED!r})\n"
        f"    sys.stdout.writelines([{TITLE!r}])\n"
        f"    print({CLEAR!r}, file=sys.stderr)\n"
    )
    end = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not steering(end.stdout + end.stderr)
    assert end.stdout == "\\u001b]0;PWN\\u0007"
    assert "\\u001b[31mRED" in end.stderr
    assert "\\u009b2J" in end.stderr


def test_a_terminal_gets_the_colours_of_the_program_and_no_others(preloaded: Preloaded, run: Path) -> None:
    ours, theirs = os.openpty()
    command = [*preloaded.localjudge, "rank", str(run), "--allow-dry-run"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            shown = b""
            with suppress(OSError):  # the line end of a terminal
                while piece := terminal.read(4096):
                    shown += piece
    text = shown.decode()
    assert process.returncode == 0, text
    assert "\x1b[1m" in text, "a title is bold"
    live = r"\r?\x1b\[[12]?[AK]"  # of the line with the progress
    assert not steering(re.sub(rf"\x1b\[[0-9;]*m|{live}", "", text).replace("\r\n", "\n"))


def test_a_terminal_shows_how_long_a_step_takes_while_libraries_write_to_the_log(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from localjudge.cli.progress import Progress
from localjudge.engines.engine_log import output_to
from localjudge.system.terminal import guarded_streams

with guarded_streams(), Progress().step("loading the engine") as report, output_to(Path("engine.log")):
    report(7)
    print("from a library")
    sys.stdin.read()
"""
    ours, theirs = os.openpty()
    command, terminal_size = [sys.executable, "-c", program], {"TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | terminal_size,
    ) as process:
        os.close(theirs)
        assert process.stdin
        with open(ours, "rb", buffering=0) as terminal:
            shown = b""
            while b"elapsed 0:01" not in shown:
                shown += terminal.read(4096)
            process.stdin.close()
            with suppress(OSError):
                while terminal.read(4096):
                    pass
    assert process.returncode == 0
    assert "loading the engine · 7 rows · elapsed 0:01 · " in shown.decode()
    assert (tmp_path / "engine.log").read_text() == "from a library\n"
    quiet = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert (quiet.stdout, quiet.stderr) == (b"", b"")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_every_encoding_holds_what_is_printed(
    program: Program, run: Path, tmp_path: Path, encoding: str
) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "é→中", "instruction": "é→中", "reference": "R", "candidate": "C"}))
    scored = ["score", rows, "--out", tmp_path / "out", "--engine", "dry-run"]
    commands: list[list[Any]] = [
        ["show", run], ["show", run, "--id", f"i{TITLE}"], ["models", "list"], ["--help"], ["show", "→"],
        ["prompt", rows], *([scored] if encoding == "ascii" else []),
    ]  # fmt: skip
    for command in commands:
        end = program(*command, env=environment)
        assert end.returncode in (0, 2), (command, end.stderr)
        assert b"Traceback" not in end.stderr
        assert not steering((end.stdout + end.stderr).decode(encoding)), command
    told = json.loads(program("prompt", rows, "--json", env=environment, check=True).stdout.decode(encoding))
    assert told["id"] == "é→中", "JSON keeps every character"


def test_bars_and_signs_have_ascii_in_their_place(run: Path) -> None:
    show, environment = [sys.executable, "-m", "localjudge", "show"], {"PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(
        [*show, run, "--id", f"i{TITLE}"], env=os.environ | environment, capture_output=True, check=True
    ).stdout.decode()
    assert re.search(r"expected \d\.\d\d   [1-8-]{5}", shown)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_ends_no_command_with_a_traceback(run: Path, tmp_path: Path, closed: str) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    score = f"score {rows} --out {tmp_path / 'out'} --engine dry-run"
    for command, code in (
        (f"show {run}", 0), (f"prompt {rows}", 0), ("prompt -", 2),
        ("show nothing", 2), ("--help", 0),
        *([(score, 0)] if closed == "<&- >&- 2>&-" else []),
    ):  # fmt: skip
        line = f"{sys.executable} -m localjudge {command} {closed}"
        end = subprocess.run(line, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (end.returncode, "Traceback" in end.stderr) == (code, False), (line, end.stderr)


def test_output_that_cannot_be_written_is_said_in_one_line(program: Program, run: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        end = program("show", run, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        assert (end.returncode, end.stderr.count(b"\n")) == (1, 1), end.stderr
        assert b"No space left on device" in end.stderr
        assert program("show", "none", capture_output=False, stdout=full, stderr=full).returncode == 2


def test_a_reader_that_has_read_enough_ends_the_program_with_one_line(program: Program, run: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    end = program("show", run, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (end.returncode, end.stderr.count(b"\n")) == (1, 1), end.stderr
    assert b"the reader of the output closed it before its end" in end.stderr


def test_a_run_whose_progress_nobody_reads_judges_every_row(program: Program, tmp_path: Path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl", 3), tmp_path / "out"
    reading, writing = os.pipe()
    os.close(reading)
    end = program(
        "score", rows, "--out", out, "--engine", "dry-run", capture_output=False, stdout=writing, stderr=writing
    )
    os.close(writing)
    assert end.returncode == 1
    assert len((out / "judgements.jsonl").read_text().splitlines()) == 3
    assert (out / "summary.json").exists()


@pytest.mark.parametrize(
    ("limit", "said"),
    [("-n 8", b"ulimit -n"), ("-v 250000", b"too little memory")],
)
def test_a_process_that_may_use_too_little_says_of_what_in_one_line(
    program: Program, tmp_path: Path, limit: str, said: bytes
) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl", 3), tmp_path / "out"
    score = f"{sys.executable} -m localjudge score {rows} --out {out} --engine dry-run --quiet"
    end = subprocess.run(["bash", "-c", f"ulimit {limit}; {score}"], capture_output=True)
    assert end.returncode == 1
    assert end.stderr.count(b"\n") == 1, end.stderr
    assert said in end.stderr
    assert program("score", rows, "--out", out, "--engine", "dry-run").returncode == 0


def test_a_cache_that_cannot_be_written_stops_no_run(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCALJUDGE_CACHE", str(tmp_path / "file"))
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    end = cli("score", rows, "--out", tmp_path / "out", "--max-rationale-tokens", 1)
    assert end.code == 0, end.err


def test_a_user_without_a_home_has_no_cache_and_no_traceback(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME", "LOCALJUDGE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    end = cli("score", rows, "--out", tmp_path / "out", "--engine", "dry-run")
    assert end.code == 0, end.err
    assert "Traceback" not in cli("doctor").err
    assert not cache_folder().parent.is_dir()
    for name in ("~/model", "~nobody-of-this-name/model"):
        end = cli("score", rows, "--out", tmp_path / "out2", "--model", name)
        assert end.err.splitlines()[-1].startswith(f"localjudge: model {name}: no such directory")


def test_json_stays_json_whatever_is_made_visible() -> None:
    hostile = {"a": f"{TITLE}{CLEAR}\u202e\U000e0041\x7f é中\n\t\r"}
    shown = printable(json.dumps(hostile, ensure_ascii=False))
    assert not steering(shown)
    assert json.loads(shown) == hostile


def test_a_style_stays_on_its_words_and_markup_is_text(capfd: pytest.CaptureFixture[str]) -> None:
    with guarded_streams():
        console = Console()
        console._color_system, console._force_terminal = None, None
        table = Table()
        table.add_column("[red]x[/red]")
        table.add_row(f"[/b]:smile:{RED}")
        console.print(table)
        text = console.render_str("plain")
        assert text.plain == "plain"
        safe = next(iter(console.render(Text.assemble("\x1b", ("bold", "bold")))))
        assert safe.text.startswith("\\u001b")
    out = capfd.readouterr().out
    assert "[red]x[/red]" in out
    assert "[/b]:smile:\\u001b[31mRED" in out
