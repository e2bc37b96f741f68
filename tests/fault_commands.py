"""The commands that write files, for the campaign of faults: their arguments, and what is there before.

A command runs in a folder whose `out/` it writes. `../kept/` has its inputs, which stay as they are.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conftest import SHORT_RUBRIC
from preloaded import MAIN
from small_packs import tiny_wheel

PACK_PROGRAM = Path(__file__).with_name("pack_program.py")
EXAMPLES = Path(__file__).parents[1] / "localjudge" / "rows" / "examples.jsonl"
ASPECTS = ("safety", "engagement", "clarity", "factuality", "depth", "helpfulness")
"""The aspects of the default rubric."""
OLD = b"what was here before\n"
CRITERIA = ["It answers the question.", "It is short."]
Run = Callable[[Sequence[str], Path], subprocess.CompletedProcess[str]]
"""Runs `localjudge` with arguments in a folder."""


def nothing(kept: Path, out: Path) -> None:
    """Begin with an empty folder."""


def with_old(name: str) -> Callable[[Path, Path], None]:
    """Return a preparation: a file of this name is there already."""

    def prepare(kept: Path, out: Path) -> None:
        (out / name).write_bytes(OLD)

    return prepare


def with_run(name: str) -> Callable[[Path, Path], None]:
    """Return a preparation: the folder `run` has this run already."""

    def prepare(kept: Path, out: Path) -> None:
        shutil.copytree(kept / name, out / "run")

    return prepare


@dataclass(frozen=True, slots=True)
class FaultedCommand:
    """A command that writes files.

    Attributes:
        arguments: those of the program.
        prepare: writes what is there before, into `out`.
        program: the script that is run, with its own first arguments.
        is_labelled: whether a person labels on its page until all rows have a label.
        is_written_once: whether it refuses to write over its own result.
        code: the exit code of an undisturbed run.
    """

    arguments: tuple[str, ...]
    prepare: Callable[[Path, Path], None] = nothing
    program: tuple[str, ...] = (MAIN,)
    is_labelled: bool = False
    is_written_once: bool = False
    code: int = 0


# No model is asked, and no template is rendered, which would start a process.
_DRY = ("--engine", "dry-run", "--chat-template", "none")
_SHORT = ("--rubric", "../kept/short.toml", *_DRY)
_LABELS = ("--labels", "../kept/labels.csv")
COMMANDS: Mapping[str, FaultedCommand] = {
    "score rows": FaultedCommand(("score", "../kept/rows.jsonl", "--out", "out/run", *_SHORT)),
    "score pairs": FaultedCommand(
        ("score", "../kept/rows.jsonl", "--rubric", "pairwise", "--pairs", "all", "--limit", "3")
        + ("--out", "out/run", *_DRY),
    ),
    "score checklist": FaultedCommand(
        ("score", "../kept/criteria.jsonl", "--rubric", "checklist", "--out", "out/run", *_DRY)
    ),
    "score fewer rows": FaultedCommand(
        ("score", "../kept/rows.jsonl", "--limit", "5", "--out", "out/run", *_SHORT), with_run("dry")
    ),
    "score failed rows": FaultedCommand(
        ("score", "../kept/failing.jsonl", "--retry-failed", "--out", "out/run", *_SHORT),
        with_run("dry-failing"),
        code=3,
    ),
    "merge": FaultedCommand(("merge", "../kept/part-1", "../kept/part-2", "--out", "out/whole")),
    "label": FaultedCommand(
        ("label", "../kept/criteria.jsonl", "--rubric", "../kept/short.toml", "--out", "out/labels.jsonl")
        + ("--port", "0"),
        is_labelled=True,
    ),
    "import": FaultedCommand(
        ("import", "../kept/scores.csv", "--aspect", "helpfulness", "--out", "out/run"), is_written_once=True
    ),
    "calibrate": FaultedCommand(
        ("calibrate", "../kept/first", *_LABELS, "--resamples", "100", "--out", "out/calibration.json")
    ),
    "export jsonl": FaultedCommand(
        ("export", "../kept/first", "--out", "out/table.jsonl", "--with-texts"), with_old("table.jsonl")
    ),
    "export csv": FaultedCommand(("export", "../kept/first", "--out", "out/table.csv"), with_old("table.csv")),
    "export parquet": FaultedCommand(
        ("export", "../kept/first", "--out", "out/table.parquet"), with_old("table.parquet")
    ),
    "escalate --rest": FaultedCommand(
        ("escalate", "../kept/first", *_LABELS, "--by", "helpfulness", "--within", "4", "--agreement", "0.5")
        + ("--rest", "out/rest.jsonl"),
        is_written_once=True,
    ),
    "pack": FaultedCommand(
        ("pack", "--rows", "../kept/rows.jsonl", "--part-size", "10K", "--out", "out/pack"),
        program=(str(PACK_PROGRAM), "../kept/wheels"),
        is_written_once=True,
    ),
    "audit": FaultedCommand(("audit", "../kept/rows.jsonl", "--sample", "2", "--out", "out/audit", *_SHORT)),
    "jury": FaultedCommand(
        ("jury", "../kept/first", "../kept/second", "--resamples", "100", "--out", "out/jury"),
        is_written_once=True,
    ),
    "report": FaultedCommand(("report", "../kept/first", "--out", "out/page.html"), with_old("page.html")),
    "compare": FaultedCommand(
        ("compare", "../kept/first", "../kept/second", "--resamples", "100", "--margin", "helpfulness=3")
        + ("--markdown", "out/page.md", "--junit", "out/cases.xml"),
        with_old("page.md"),
    ),
    "rubrics init": FaultedCommand(("rubrics", "init", "out/mine.toml"), is_written_once=True),
}
"""The commands by name."""


def write_kept(kept: Path, run: Run) -> None:
    """Write the inputs of all commands into a new folder.

    Raises:
        AssertionError: a command that makes one of them failed.
    """
    kept.mkdir()
    rows = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
    (kept / "short.toml").write_text(SHORT_RUBRIC)
    _write_lines(kept / "examples.jsonl", rows)
    _write_lines(kept / "rows.jsonl", rows[:8])
    _write_lines(kept / "failing.jsonl", rows[:3] + [rows[3] | {"candidate": ""}])
    _write_lines(kept / "criteria.jsonl", [row | {"criteria": CRITERIA} for row in rows[:3]])
    _write_table(kept / "labels.csv", rows, with_texts=False)
    _write_table(kept / "scores.csv", rows, with_texts=True)
    tiny_wheel(kept / "wheels", "localjudge_eval")
    tiny_wheel(kept / "wheels", "scales", module="# " + "weigh " * 3000)
    made = (
        ("score", "examples.jsonl", "--out", "first"),
        ("import", "scores.csv", "--out", "second", *_each("--aspect", ASPECTS)),
        ("score", "rows.jsonl", "--out", "dry", "--rubric", "short.toml", *_DRY),
        ("score", "failing.jsonl", "--out", "dry-failing", "--rubric", "short.toml", *_DRY),
        ("score", "rows.jsonl", "--out", "part-1", "--shard", "1/2", "--rubric", "short.toml", *_DRY),
        ("score", "rows.jsonl", "--out", "part-2", "--shard", "2/2", "--rubric", "short.toml", *_DRY),
    )
    for arguments in made:
        ended = run(arguments, kept)
        assert (kept / arguments[arguments.index("--out") + 1] / "summary.json").is_file(), ended.stderr


def _each(flag: str, values: Sequence[str]) -> list[str]:
    """Return the arguments that give a flag once for each value."""
    return [argument for value in values for argument in (flag, value)]


def _write_lines(file: Path, records: Sequence[Mapping[str, object]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def _write_table(file: Path, rows: Sequence[Mapping[str, str]], *, with_texts: bool) -> None:
    """Write a table with a score of each aspect for each row, 1 to 5."""
    texts = ["instruction", "candidate"] if with_texts else []
    with file.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "system"] + texts + list(ASPECTS))
        for number, row in enumerate(rows):
            given = [row[name] for name in ["id", "system"] + texts]
            table.writerow(given + [str(1 + number % 5)] * len(ASPECTS))
