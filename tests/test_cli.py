"""Tests of the command line: exit codes, one clear line for each mistake, and no terminal control sequences."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import Cli, read_lines, write_rows
from preloaded import Preloaded

from localjudge.cli import app
from localjudge.config import JudgeConfig
from localjudge.models.catalogue import BUNDLED_NOTICE
from localjudge.rows.inputs import Inputs

ESCAPE = "\x1b[31m"
OVERRIDE = "\u202e"


@pytest.fixture
def flags(model: Path, short_rubric: Path) -> list[str]:
    return ["--model", str(model), "--rubric", str(short_rubric), "--max-rationale-tokens", "3"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", 3)


@pytest.fixture
def finished(cli: Cli, tmp_path: Path, flags: list[str]) -> Path:
    """Return a run with a failure; its texts contain terminal control sequences."""
    file = write_rows(tmp_path / "hostile.jsonl", 2, system=f"[/b]{ESCAPE}{OVERRIDE}")
    bad = [{"id": f"bad{ESCAPE}", "instruction": "a", f"odd{ESCAPE}": 1}, {"id": "r2", "instruction": "a"}]
    with file.open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in bad)
    assert cli("score", file, "--out", tmp_path / "finished", *flags).code == 3
    return tmp_path / "finished"


def test_every_row_judged_ends_with_0_a_table_on_stdout_and_the_rest_on_stderr(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str]
) -> None:
    end = cli("score", rows, "--out", tmp_path / "out", *flags)
    assert end.code == 0
    assert end.out.splitlines()[0] == "Mean expected scores of all rows"
    assert end.out.split()[6:10] == ["system", "tact", "wit", "n"], "no column of failures where there is none"
    assert "3 judged, 0 failed" in end.err
    assert "rows/s" in end.err
    assert "rows/s" not in end.out
    again = cli("score", rows, "--out", tmp_path / "out", *flags)
    assert (again.code, again.out) == (0, end.out)
    assert "continuing: 3 rows are done already, 0 are to do" in again.err


def test_show_and_rank_print_the_same_means(cli: Cli, tmp_path: Path, rows: Path, flags: list[str]) -> None:
    assert cli("score", rows, "--out", tmp_path / "out", *flags).code == 0
    lines = [line for line in read_lines(tmp_path / "out") if line["system"] == "a"]

    def mean(name: str) -> str:
        return f"{sum(line[name] for line in lines) / len(lines):.2f}"

    means = [mean("tact_expected"), mean("wit_expected")]
    assert means != [mean("tact"), mean("wit")]
    assert f"a {' '.join(means)}" in " ".join(cli("show", tmp_path / "out").out.split())
    systems = json.loads(cli("rank", tmp_path / "out", "--json", "--resamples", "100").out)["systems"]
    ranked = next(system["means"] for system in systems if system["name"] == "a")
    assert [f"{ranked[name]['value']:.2f}" for name in ("tact", "wit")] == means


def test_a_run_with_failures_ends_with_3_and_their_reasons(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str]
) -> None:
    rows.write_bytes(rows.read_bytes() + b"{\n{\n")
    end = cli("score", rows, "--out", tmp_path / "out", *flags)
    assert end.code == 3
    assert "3 judged, 2 failed" in end.err
    assert "2 failed: not JSON" in end.err


def test_rows_may_come_from_standard_input(cli: Cli, tmp_path: Path, rows: Path, flags: list[str]) -> None:
    end = cli("score", "-", "--out", tmp_path / "out", *flags, "--limit", 2, stdin=rows.read_bytes())
    assert (end.code, "2 judged" in end.err) == (0, True)


@pytest.mark.parametrize("pairs", [(), ("--rubric", "pairwise", "--pairs", "all")])
def test_a_limit_names_the_systems_that_it_leaves_out(
    cli: Cli, tmp_path: Path, flags: list[str], pairs: tuple[str, ...]
) -> None:
    rows = [
        {"instruction": f"q{n}", "reference": "r", "candidate": f"{n} {s}", "system": s}
        for s in "abc"
        for n in "123"
    ]
    many = [{**rows[0], "system": f"s{n}"} for n in range(1_014)]
    files = {
        "by system": rows,
        "by instruction": sorted(rows, key=lambda row: row["instruction"]),
        "many": many,
    }

    def said(name: str, limit: int) -> str:
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in files[name]))
        end = cli("score", file, "--out", tmp_path / f"{name} {limit}", *flags, *pairs, "--limit", limit)
        assert end.code == 0, end.err
        return " ".join(end.err.split())

    if pairs:
        assert "--limit 1: only later pairs are of c; to compare all systems" in said("by system", 1)
        assert "--limit 3:" not in said("by system", 3)
        return
    assert "--limit 2: only later rows are of b, c; to" in said("by system", 2)
    assert "--limit 1: only later rows are of s1, s2, s3," in (line := said("many", 1))
    assert "s12 and 1,001 more; to" in line
    assert "--limit 4: only later rows are of c; to" in said("by system", 4)
    assert "--limit 7:" not in said("by system", 7)
    assert "--limit 3:" not in said("by instruction", 3)


def test_the_bundled_model_judges_the_examples_and_says_what_its_scores_mean(cli: Cli, tmp_path: Path) -> None:
    end = cli("score", "examples", "--out", tmp_path / "out", "--limit", 3, "--max-rationale-tokens", 4)
    assert end.code == 0
    assert BUNDLED_NOTICE in end.err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["notice"] == BUNDLED_NOTICE
    for shown in (end, cli("show", tmp_path / "out"), cli("rank", tmp_path / "out")):
        assert shown.out.startswith("bundled model: it only compares words with the reference;")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "code", "said"),
    [
        (100, 2, "--out "),
        (8_000, 1, "--out "),
        (24_000, 1, "[Errno 27] File too large; free some space, and the same command continues"),
    ],
)
def test_a_disk_that_is_or_becomes_full_ends_with_one_line(
    preloaded: Preloaded, tmp_path: Path, flags: list[str], room: int, code: int, said: str
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 40)
    program = preloaded.script(Path(__file__).with_name("limited_program.py"))
    score: list[str | Path] = [*program, str(room), "score", rows, "--out", tmp_path / "out", *flags]
    end = subprocess.run(score, capture_output=True, text=True)
    assert end.returncode == code
    assert end.stderr.splitlines()[-1].startswith(f"localjudge: {said}")
    assert "File too large" in end.stderr
    assert "Traceback" not in end.stderr


# The arguments of `localjudge`, a part of its output on stderr, and its exit code. ROWS, OUT, MODEL and
# RUBRIC are replaced by valid paths; the files are created below.
WRONG: dict[str, tuple[str, str]] = {
    "no such command": ("judge", "No such command 'judge'"),
    "no input": ("score --out OUT", "Missing argument"),
    "no --out": ("score ROWS", "Missing option '--out'"),
    "no such flag": ("score ROWS --out OUT --speed 9", "No such option"),
    "no such file": ("score none.jsonl --out OUT", "none.jsonl: No such file"),
    "a long name": ("score " + "n" * 300 + " --out OUT", "n" * 300 + ": File name too long"),
    "no match": ("score *.none --out OUT", "*.none: No such file or directory"),
    "a folder": ("score . --out OUT", ".: is a folder; name its files"),
    "unknown kind": ("score rows.xlsx --out OUT", "rows.xlsx: unknown format; use .jsonl"),
    "empty input": ("score empty.jsonl --out OUT --model MODEL --rubric RUBRIC", "empty.jsonl: holds no rows"),
    "stdin twice": ("score - - --out OUT", "stdin can be read only once"),
    "bad column": ("score ROWS --out OUT --column score=x", "--column score=x: write FIELD=COLUMN"),
    "no such rubric": (
        "score ROWS --out OUT --rubric strict",
        "rubric strict: no such file, and no included rubric",
    ),
    "broken rubric": ("score ROWS --out OUT --rubric rows.xlsx", "rubric rows.xlsx: not TOML"),
    "no such model": ("score ROWS --out OUT --model ./none", "model ./none: no such directory"),
    "a GGUF file": (
        "score ROWS --out OUT --model x.gguf",
        "model x.gguf: a GGUF file is judged through a server that runs it, such as llama.cpp or Ollama, with "
        "--engine server",
    ),
    "model not cached": ("score ROWS --out OUT --model some/one", "not in the local cache"),
    "model without config": ("score ROWS --out OUT --model empty", "has no config.json"),
    "model of pickles": ("score ROWS --out OUT --model pickled", "only pickled weights, which can run code"),
    "broken config": ("score ROWS --out OUT --model broken", "model broken: "),
    "no such engine": ("score ROWS --out OUT --engine fast --model MODEL", "--engine fast: give auto, vllm"),
    "engine option": ("score ROWS --out OUT --engine-arg speed=9 --model MODEL", "--engine-arg speed: "),
    "engine option form": ("score ROWS --out OUT --engine-arg speed", "--engine-arg speed: write KEY=VALUE"),
    "batch of none": ("score ROWS --out OUT --engine-arg batch_size=0 --model MODEL", "number, 1 or more"),
    "batch of words": ("score ROWS --out OUT --engine-arg batch_size=x --model MODEL", "give a whole number"),
    "dtype": (
        "score ROWS --out OUT --engine-arg dtype=int3 --model MODEL",
        "--engine-arg dtype=int3: give auto",
    ),
    "limit of none": ("score ROWS --out OUT --limit 0", "Invalid value for '--limit'"),
    "limit of words": ("score ROWS --out OUT --limit all", "Invalid value for '--limit'"),
    "no rationale": (
        "score ROWS --out OUT --max-rationale-tokens 0 --model MODEL",
        "smallest that works is 1",
    ),
    "cold": ("score ROWS --out OUT --temperature -1", "--temperature -1.0: give 0 or more"),
    "no temperature": ("score ROWS --out OUT --temperature nan", "--temperature nan: give 0 or more"),
    "no mass": ("score ROWS --out OUT --top-p 0", "--top-p 0.0: give a share above 0"),
    "seed": ("score ROWS --out OUT --seed x", "Invalid value for '--seed'"),
    "out is a file": (
        "score ROWS --out rows.xlsx --model MODEL --rubric RUBRIC",
        "--out rows.xlsx: is a file; give a folder",
    ),
    "pairs of rows of systems": (
        "score ROWS --rubric pairwise --out OUT",
        "or compare the systems of these rows: score --pairs all",
    ),
    "out is in use": (
        "score ROWS --out used --model MODEL --rubric RUBRIC",
        "has judgements.jsonl but no run.json",
    ),
    "prompt: no file": ("prompt none.jsonl", "none.jsonl: No such file"),
    "prompt: no rubric": ("prompt ROWS --rubric none", "rubric none: no such file"),
    "prompt: no model": ("prompt ROWS --tokens --model ./none", "model ./none: no such directory"),
    "show: no run": ("show empty", "it has no run.json; if a start was stopped before"),
    "show: a file": ("show rows.jsonl", "is a file; give the run directory, such as "),
    "show: no folder": ("show nowhere", "nowhere: not a run directory"),
    "show: a damaged run": ("show damaged", "run.json: not a manifest of run format 11"),
    "rank: a damaged run": ("rank damaged", "run.json: not a manifest of run format 11"),
    "report onto a device": ("report damaged --out pipe", "--out pipe: is not a file"),
    "export onto a device": ("export damaged --to csv --out pipe", "--out pipe: is not a file"),
    "export onto a folder": ("export damaged --to csv --out empty", "--out empty: is not a file"),
    "calibrate onto a device": (
        "calibrate damaged --labels ROWS --out pipe",
        "--out pipe: is not a file",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_use_ends_with_2_and_one_clear_line(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: Path,
    model: Path,
    short_rubric: Path,
    wrong: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "pickled", "broken", "used", "damaged"):
        Path(folder).mkdir()
    os.mkfifo("pipe")
    parts = {"format": 11, "settings": 1, "rubric": 2, "model": 3, "starts": 4, "shard": None}
    Path("damaged/run.json").write_text(json.dumps(parts))
    for file in ("rows.xlsx", "pickled/config.json", "broken/config.json", "broken/model.safetensors"):
        Path(file).write_text("not what it seems")
    for file in ("empty.jsonl", "pickled/model.bin", "used/judgements.jsonl"):
        Path(file).touch()
    names: dict[str, Any] = {"ROWS": rows.name, "OUT": "out", "MODEL": model, "RUBRIC": short_rubric}
    args, words = WRONG[wrong]
    end = cli(*(names.get(arg, arg) for arg in args.split()))
    assert end.code == 2
    assert words in " ".join(end.err.replace("│", " ").split())
    said = [line for line in end.err.splitlines() if line.startswith(("localjudge: ", "Error: "))]
    assert len(said) == 1, end.err
    assert not Path("out").exists(), "a start that fails leaves nothing behind"


# An error besides the missing model, and a part of the message. HELD is a folder that contains a run.
WRONG_BEFORE_THE_MODEL = {
    "--temperature -1": "--temperature -1.0: give 0 or more",
    "--max-rationale-tokens 0": "--max-rationale-tokens 0: the smallest that works is 1",
    "--thinking-budget -1": "--thinking-budget -1: give 0 or more",
    "--on-overflow wrap": "--on-overflow wrap: give fail",
    "--engine fast": "--engine fast: give auto, vllm",
    "--engine dry-run --engine-arg rate=fast": "--engine-arg rate=fast: give rows per second",
    "--engine transformers --engine-arg speed=9": "--engine-arg speed: the transformers engine knows",
    "--engine transformers --engine-arg batch-size=0": "--engine-arg batch_size=0: give a whole number",
    "--rubric none": "rubric none: no such file",
    "--column candidate": "--column candidate: write FIELD=COLUMN",
    "--out ROWS": "--out ROWS: is a file",
    "--out ROWS/below": "is a file",
    "--out HELD": "--out HELD: holds another run; it differs in rubric: ",
    "--out HELD --rubric SHORT --seed 1": "max_rationale_tokens: 3 there, 256 now; seed: 0 there, 1 now",
}


@pytest.mark.parametrize("wrong", WRONG_BEFORE_THE_MODEL)
@pytest.mark.parametrize("command", ["score", "audit"])
def test_what_can_be_known_without_the_model_is_said_before_it_is_looked_for(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str], short_rubric: Path, command: str, wrong: str
) -> None:
    if "HELD" in wrong:
        if command == "audit":
            pytest.skip("an audit's folder is not a run's")
        assert cli("score", rows, "--out", tmp_path / "held", *flags).code == 0
    names = {"ROWS": str(rows), "HELD": str(tmp_path / "held"), "SHORT": str(short_rubric)}

    def filled(text: str) -> str:
        for name, path in names.items():
            text = text.replace(name, path)
        return text

    before = sorted(tmp_path.rglob("*"))
    out = [] if "--out" in wrong else ["--out", tmp_path / "out"]
    end = cli(command, rows, "--model", "./none", *out, *filled(wrong).split())
    assert (end.code, filled(WRONG_BEFORE_THE_MODEL[wrong]) in end.err, end.err.count("\n")) == (2, True, 1), (
        end.err
    )
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left behind"


def test_a_different_setting_in_the_same_folder_ends_with_2_and_names_it(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str]
) -> None:
    assert cli("score", rows, "--out", tmp_path / "out", *flags).code == 0
    end = cli("score", rows, "--out", tmp_path / "out", *flags, "--temperature", 0.5)
    assert end.code == 2
    assert "holds another run; it differs in temperature: 0.0 there, 0.5 now" in end.err


def commands(group: Any, *path: str) -> dict[tuple[str, ...], Any]:
    """Return all commands and groups of commands, by their names on the command line."""
    found = {path: group}
    for name, command in getattr(group, "commands", {}).items():
        found |= commands(command, *path, name)
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    end = cli(*path, "--help")
    assert end.code == 0
    assert end.out.startswith(f"Usage: {' '.join(['localjudge', *path])} ")
    assert all(len(line) <= 80 for line in end.out.splitlines())
    assert not re.search(r"<\w|[a-z,]\.\.\.$", end.out, re.MULTILINE), "a Python type, or a text that was cut"
    assert f"\n\nExample:\n  localjudge {' '.join(path)}" in end.out
    for parameter in COMMANDS[path].params:
        assert parameter.help, parameter.name
        assert parameter.metavar or getattr(parameter, "is_flag", False), parameter.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_example_is_one_that_its_command_accepts(path: tuple[str, ...]) -> None:
    for example in COMMANDS[path].epilog.splitlines():
        program, *words = shlex.split(example)
        assert program == "localjudge"
        command, context = COMMANDS[()], None
        while hasattr(command, "commands"):
            name, *words = words
            context = typer.Context(command, parent=context)
            command = command.commands[name]
        command.make_context(name, words, parent=context)


def test_every_setting_of_a_judge_is_a_flag_of_score_with_the_same_default() -> None:
    flags = {parameter.name: parameter.default for parameter in COMMANDS["score",].params}
    del flags["rubric"], flags["engine_args"]  # flags give its name, and options one by one
    settings = {name: field.default for name, field in JudgeConfig.model_fields.items()}
    del settings["rubric"], settings["engine_args"]
    assert {name: flags[name] for name in settings} == settings


def test_audit_takes_every_flag_that_decides_how_score_judges() -> None:
    score, audit = ({each.name for each in COMMANDS[name,].params} for name in ("score", "audit"))
    assert score - audit == {
        "system_from", "limit", "shard", "retry_failed", "orders", "noise_rows",
    }  # fmt: skip


@pytest.mark.slow
def test_the_examples_work_one_after_another(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    those = ("score", "prompt", "show", "export", "rank", "doctor", "models", "rubrics")
    for path in sorted(COMMANDS, key=lambda path: path != ("score",)):
        if path and path[0] in those:
            end = cli(*shlex.split(COMMANDS[path].epilog)[1:])
            assert end.code == 0 or (path[-1] in ("rubrics", "init") and "exists already" in end.err), end.err


def test_the_help_lists_the_commands_in_groups_with_whole_descriptions(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = cli("--help").out
    groups = {
        heading: re.findall(r"^  ([\w-]+) ", block, re.MULTILINE)
        for heading, block in re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", said, re.MULTILINE)
    }
    assert [*groups] == [
        "Options", "Every day", "Statistics and people", "Judge otherwise", "Rubrics and models",
        "Other tools and machines", "Learn", "Example",
    ]  # fmt: skip
    assert groups["Every day"] == ["score", "show", "compare", "report"], "what most people need stands first"
    assert (
        " ".join(said.split()).count("Merge the shards of a run into one run, in the order of the input.") == 1
    )


def test_the_options_of_commands_that_judge_stand_under_headings(cli: Cli) -> None:
    sections = {}
    for command in ("score", "audit", "serve"):
        heading = ""
        for line in cli(command, "--help").out.splitlines():
            heading = line.rstrip(":") if line[:1].strip() else heading
            if found := re.match(r"  (?:-h, )?(--[a-z-]+)", line):
                sections[command, found[1]] = heading
    assert {
        name
        for (command, name), heading in sections.items()
        if (command, heading) == ("score", "Other options")
    } == {"--help"}
    for name, heading in {
        "--model": "Model", "--rubric": "Rubric and prompt", "--column": "Rows", "--temperature": "Answers",
        "--engine-arg": "Engine", "--server": "Model server", "--ray": "Ray cluster", "--out": "Run",
    }.items():  # fmt: skip
        assert {sections.get((command, name), heading) for command in ("score", "audit", "serve")} == {heading}
    assert "\nOptions:\n" in cli("show", "--help").out
    of_files = {
        name for (command, name), heading in sections.items() if (command, heading) == ("audit", "Rows")
    }
    assert {"--column", "--shape", "--rows", "--join", "--on", "--max-row-bytes"} < of_files
    assert of_files.isdisjoint(name for command, name in sections if command == "serve"), "rows come over HTTP"


def test_a_shell_can_complete_commands(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LOCALJUDGE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "localjudge ru")
    monkeypatch.setenv("COMP_CWORD", "1")
    end = cli()
    assert (end.code, end.out.split(), end.err) == (0, ["rubrics"], "")


@pytest.mark.parametrize("command", ["models", "rubrics"])
def test_a_group_lists_and_alone_explains_itself(cli: Cli, command: str) -> None:
    end, listed = cli(command, "list"), cli(command, "list", "--json")
    assert (end.code, listed.code) == (0, 0)
    assert json.loads(listed.out)[0]["name"] in end.out
    assert f"Usage: localjudge {command} " in cli(command).out + cli(command).err


def test_show_prints_the_table_that_the_run_ended_with(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str]
) -> None:
    ran = cli("score", rows, "--out", tmp_path / "out", *flags)
    shown = cli("show", tmp_path / "out")
    assert (shown.code, shown.out) == (0, ran.out)


def test_show_prints_single_judgements_with_their_texts_and_scores(cli: Cli, finished: Path) -> None:
    end = cli("show", finished, "--id", "r0", "--id", "r1")
    assert end.code == 0
    assert [end.out.count(word) for word in ("r0 · ", "r1 · ", "tact ", "wit ", "expected ")] == [1, 1, 2, 2, 4]
    for heading, said in (("instruction", "Question 0?"), ("reference", "Yes."), ("candidate", "word")):
        assert f"\n{heading}\n  {said}\n" in end.out
    assert end.out.count("\nrationale\n  ") == 2


def test_show_finds_a_row_by_its_line_and_prints_its_place_once(cli: Cli, tmp_path: Path, model: Path) -> None:
    rubric = tmp_path / "r.toml"
    rubric.write_text(
        'name = "r"\n[aspects.wit]\nscale = { lowest = 1, highest = 3 }\n'
        "[aspects.answers_the_question_politely]\nscale = { lowest = 10, highest = 12 }\n"
        '[prompt]\ntemplate = "{$instruction} {$candidate} {$aspects} {$answer_format}"\n'
    )
    rows = tmp_path / "answers.csv"
    rows.write_text("instruction,candidate,system\nOne?,1,a\nTwo?,2,a\n")
    run = tmp_path / "run"
    assert cli("score", rows, "--out", run, "--model", model, "--rubric", rubric).code == 0

    end = cli("show", run, "--id", "3")
    assert end.code == 0
    assert end.out.splitlines()[0] == f"{rows}:3 · a"
    assert end.err == f"--id 3: is not an id; it is the line of {rows}:3\n"
    wit, polite = (line for line in end.out.splitlines() if line.startswith(("  wit", "  answers_")))
    assert wit.index("   expected") == polite.index("   expected")
    assert cli("show", run, "--id", f"{rows}:3").err == ""
    assert cli("show", run, "--id", "4").code == 2


def test_show_lists_rows_a_line_each(cli: Cli, tmp_path: Path, flags: list[str]) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 6)
    with rows.open("a") as stream:
        stream.write(json.dumps({"id": "r6\n", "system": "b", "instruction": "a"}) + "\n")
    run = tmp_path / "out"
    assert cli("score", rows, "--out", run, *flags).code == 3
    lines = {line["id"]: line for line in map(json.loads, (run / "judgements.jsonl").read_text().splitlines())}

    def shown(*options: object) -> list[list[str]]:
        end = cli("show", run, *options)
        assert end.code == 0, end.err
        heading, *listed = [line.split() for line in end.out.splitlines()]
        key = ["wit_expected"] * ("--sort" in options)
        texts = [] if "--failed" in options else ["candidate", "instruction"]
        assert heading == ["id", "system", *key, "tact", "wit", *texts]
        return listed

    listed = shown("--system", "a")
    assert [row[:5] for row in listed] == [
        [name, "a", str(lines[name]["tact"]), str(lines[name]["wit"]), "word"] for name in ("r0", "r2", "r4")
    ]
    assert [row[-2:] for row in listed] == [["Question", f"{number}?"] for number in (0, 2, 4)]
    assert [len(" ".join(row[4:-2])) for row in listed] == [4, 40, 40], "the beginning of a long text"
    assert [row[0] for row in shown("--system", "b", "--limit", 2)] == ["r1", "r3"]
    (failure,) = shown("--failed")
    assert failure[:3] == ["r6\\n", "b", "failed:"]
    assert shown("--failed", "--system", "a") == []
    lowest = sorted((name for name in lines if name < "r6"), key=lambda name: lines[name]["wit_expected"])
    assert [(row[0], row[2]) for row in shown("--sort", "wit")] == [
        (name, f"{lines[name]['wit_expected']:.2f}") for name in lowest
    ]
    assert [row[0] for row in shown("--sort", "wit", "--limit", 2)] == lowest[:2]
    assert [row[0] for row in shown("--sort", "wit", "--descending", "--limit", 1)] == lowest[-1:]
    assert cli("show", run, "--limit", 2).err == "2 of 7 rows\n"
    rows.unlink()
    moved = cli("show", run, "--limit", 1)
    assert moved.out.split() == [
        "id",
        "system",
        "tact",
        "wit",
        *(str(lines["r0"][key]) for key in ("id", "system", "tact", "wit")),
    ]
    assert "the texts of the rows are missing: " in moved.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--system", "c"], "--system c: RUN has no row of this system; its systems are "),
        (["--sort", "charm"], "--sort charm: the aspects of RUN are tact, wit"),
        (["--sort", "wit", "--failed"], "--failed --sort: failures have no scores to sort by"),
        (["--id", "r0", "--failed"], "--id shows single judgements"),
        (["--descending"], "--descending: give the aspect with --sort ASPECT"),
    ],
)
def test_show_refuses_what_cannot_be_listed(cli: Cli, finished: Path, options: list[str], said: str) -> None:
    end = cli("show", finished, *options)
    assert (end.code, end.out, end.err.count("\n")) == (2, "", 1)
    assert end.err.startswith(f"localjudge: {said.replace('RUN', str(finished))}")


def test_a_list_of_rows_keeps_the_notices_of_its_run(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str]
) -> None:
    assert cli("score", rows, "--out", tmp_path / "out", *flags, "--engine", "dry-run").code == 0
    end = cli("show", tmp_path / "out", "--limit", 1)
    assert end.out.startswith("dry run: no model was asked")


def test_show_wraps_long_texts_to_the_terminal_and_cuts_very_long_ones(
    cli: Cli, tmp_path: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    reference = "So it is.\n    code\n" + "very " * 900
    rows = write_rows(tmp_path / "rows.jsonl", 1, reference=reference)
    assert cli("score", rows, "--out", tmp_path / "out", *flags).code == 0
    end = cli("show", tmp_path / "out", "--id", "r0")
    assert "\n  So it is.\n      code\n  very" in end.out
    assert f"{len(reference) - 4000} more characters" in end.out
    assert max(map(len, end.out.splitlines()[1:])) <= 60


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_show_does_without_texts_that_are_not_what_was_judged(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str], what: str
) -> None:
    cli("score", rows, "--out", tmp_path / "out", *flags)
    if what == "gone":
        rows.unlink()
    else:
        write_rows(rows, 3, reference="No.")
    end = cli("show", tmp_path / "out", "--id", "r1")
    assert (end.code, "\ninstruction\n" in end.out, "\nrationale\n" in end.out) == (0, False, True)
    assert (f"{rows}: No such file" in end.err) == (what == "gone")


def test_show_tells_why_a_row_failed_and_that_another_is_not_there(cli: Cli, finished: Path) -> None:
    assert "failed: " in cli("show", finished, "--id", "r2").out
    end = cli("show", finished, "--id", "r0", "--id", "r9")
    assert end.code == 2
    assert "r0 · " in end.out
    assert end.err == f"localjudge: {finished}: no row with the id r9; its ids are such as r0\n"


def test_show_leaves_out_a_torn_line_and_refuses_one_that_is_not_of_a_run(cli: Cli, finished: Path) -> None:
    with (finished / "judgements.jsonl").open("ab") as stream:
        stream.write(b'{"id": "to')
    assert cli("show", finished).code == 0
    with (finished / "judgements.jsonl").open("ab") as stream:
        stream.write(b"rn\n")
    end = cli("show", finished)
    assert (end.code, "judgements.jsonl:5: not a line of a run" in end.err) == (2, True)


def test_what_rows_say_cannot_steer_the_terminal(
    cli: Cli, finished: Path, tmp_path: Path, flags: list[str]
) -> None:
    file = finished / "judgements.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["rationale"] = f"Good{ESCAPE} {OVERRIDE}\x07"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    hostile = tmp_path / "hostile.jsonl"
    ends = [
        cli("show", finished),
        cli("show", finished, "--id", "r0"),
        cli("show", finished, "--limit", 4),
        cli("show", finished, "--id", f"bad{ESCAPE}"),
        cli("score", hostile, "--out", tmp_path / "again", *flags),
        cli("prompt", hostile, *flags[2:4]),
    ]
    for end in ends:
        shown = end.out + end.err
        if end is ends[-1]:  # a pipe gets every byte of a prompt, but ids are escaped
            shown = "\n".join(line for line in end.out.splitlines() if line.startswith("--- ")) + end.err
        assert not {"\x1b", OVERRIDE, "\x07"} & set(shown)
        assert "\\u001b" in shown
    assert "Good\\u001b[31m \\u202e\\u0007" in ends[1].out
    assert "[/b]" in ends[0].out


def test_prompt_goes_on_past_a_bad_row_and_ends_with_3(cli: Cli, rows: Path, short_rubric: Path) -> None:
    rows.write_bytes(b"{\n" + rows.read_bytes())
    end = cli("prompt", rows, "--rubric", short_rubric)
    assert end.code == 3
    assert end.out.splitlines()[1] == "Q: Question 0? R: Yes. A: word  Tact, wit: 1-3"
    assert f"\n{rows}:1: not JSON" in end.err


@pytest.mark.parametrize("command", ["score", "audit", "prompt"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "rows.jsonl: holds no rows"),
        (
            '{"instruction": "a", "response": "b"}',
            "rows.jsonl: no reference, no column 'respons' for the candidate",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_refused_before_the_model_is_looked_for(
    cli: Cli, tmp_path: Path, command: str, content: str, words: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    flags = [
        "--column",
        "candidate=respons",
        *(["--tokens"] if command == "prompt" else ["--out", tmp_path / "out"]),
    ]
    end = cli(command, tmp_path / "rows.jsonl", "--model", tmp_path / "none", *flags)
    assert (end.code, end.out, end.err.count("\n"), words in end.err) == (2, "", 1, True)


def test_a_run_names_the_inputs_without_rows_and_the_ids_that_are_not_unique(
    cli: Cli, tmp_path: Path, rows: Path, flags: list[str]
) -> None:
    (tmp_path / "empty.jsonl").touch()
    again = write_rows(tmp_path / "again.jsonl", 4)
    end = cli("score", rows, tmp_path / "empty.jsonl", again, "--out", tmp_path / "out", *flags)
    assert end.code == 0
    assert f"{tmp_path}/empty.jsonl: holds no rows" in end.err
    which = f"such as the id 'r0' and the system 'a' at {again}:1"
    assert end.err.count(f"3 of 7 rows have the id and the system of an earlier row, {which}") == 1
    by_file = ["--system-from", "filename", "--out", tmp_path / "by-file"]
    assert "of an earlier row" not in cli("score", rows, again, *by_file, *flags).err


@pytest.mark.parametrize("command", ["score", "audit", "prompt"])
def test_the_largest_row_can_be_set(cli: Cli, tmp_path: Path, rows: Path, model: Path, command: str) -> None:
    flags = [] if command == "prompt" else ["--engine", "dry-run", "--model", model, "--out", tmp_path / "out"]
    end = cli(command, rows, "--max-row-bytes", 10, *flags)
    assert end.code == 2
    assert "the row is larger than 10 bytes; allow larger" in end.err
    assert (
        cli(command, rows, "--max-row-bytes", 9999, *flags[:-1], *([tmp_path / "new"] if flags else [])).code
        == 0
    )


def test_rows_above_the_default_limit_are_found_again_by_the_limit_of_their_run(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "long.jsonl", 2)
    flags = ["--engine", "dry-run", "--model", model, "--rubric", short_rubric, "--max-row-bytes", 10**6]
    assert cli("score", rows, "--out", tmp_path / "out", *flags).code == 0
    defaults = Inputs.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "max_row_bytes", 10)
    assert cli("export", tmp_path / "out", "--to", "csv", "--out", tmp_path / "t.csv", "--with-texts").code == 0


def test_an_input_whose_name_is_not_utf8_is_judged_and_found_again(
    cli: Cli, tmp_path: Path, flags: list[str]
) -> None:
    try:
        rows = write_rows(tmp_path / os.fsdecode(b"\xff.jsonl"), 3)
    except OSError:
        pytest.skip("this file system takes no such name")
    out = tmp_path / "out"
    assert cli("score", rows, "--out", out, *flags, "--engine", "dry-run").code == 0
    assert json.loads((out / "run.json").read_bytes())["starts"][0]["inputs"] == [str(rows)]
    assert cli("export", out, "--to", "csv", "--out", tmp_path / "t.csv", "--with-texts").code == 0


def test_a_closed_standard_input_is_one_line() -> None:
    program = [sys.executable, "-m", "localjudge", "prompt", "-"]
    end = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *program], capture_output=True, text=True, check=False)
    assert (end.returncode, end.stderr) == (
        2,
        "localjudge: -: stdin is closed; pipe rows into it or name a file\n",
    )
