"""Tests of exports that are imported again: the new run has the numbers of the old one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, row_lines
from pair_runs import judged_pairs, write_pairs, write_responses
from scripted import scripted_comparison, scripted_judge

from localjudge import RowSource, Rubric, load_run, score_run
from localjudge.rows.pairs import Pairing

FEW = 100
FORMS = [
    pytest.param("jsonl", (), id="jsonl"),
    pytest.param("jsonl", ("--with-texts",), id="jsonl with texts"),
    pytest.param("parquet", (), id="parquet"),
    pytest.param("parquet", ("--with-texts",), id="parquet with texts"),
]


def numbers(cli: Cli, command: str, run: Path, *flags: object) -> dict[str, Any]:
    end = cli(command, run, *flags, "--json", "--resamples", FEW)
    assert end.code == 0, end.err
    found: dict[str, Any] = json.loads(end.out)
    return found


def again(cli: Cli, run: Path, rubric: object, to: str = "jsonl", flags: tuple[str, ...] = ()) -> Path:
    """Export a run and import the export; return the new run."""
    table, out = run.with_suffix(f".{to}"), run.with_name(f"{run.name}-again")
    if table.exists():
        table = run.with_name(f"{run.name}-table.{to}")
    end = cli("export", run, "--out", table, *flags)
    assert end.code == 0, end.err
    end = cli("import", table, "--rubric", rubric, "--out", out)
    assert end.code in (0, 1), end.err
    return out


@pytest.fixture
def pairs(tmp_path: Path, model: Path) -> Path:
    """Return a run of pairs of three systems with labels in their rows; the judge likes a place."""
    systems = ["left", "middle", "right"]
    rows = []
    for n in range(36):
        one, other = systems[n % 3], systems[(n + 1 + n % 2) % 3]
        rows.append({
            "id": f"p{n}", "instruction": f"Question {n // 3}?", "system_a": one, "system_b": other,
            "candidate_a": "word " * (1 + n % 7), "candidate_b": "word " * (1 + n * 5 % 11),
            "label": "a" if n % 4 else "tie", "topic": "code" if n % 2 else "prose",
        })  # fmt: skip
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = scripted_comparison(
        model, lambda first, second: 0.6 + (len(first) - len(second)) / (2.7 * (len(first) + len(second)))
    )
    score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(("to", "flags"), FORMS)
def test_an_imported_export_of_pairs_has_the_numbers_of_its_run(
    cli: Cli, pairs: Path, to: str, flags: tuple[str, ...]
) -> None:
    out = again(cli, pairs, "pairwise", to, flags)
    for command in ("rank", "agree"):
        assert numbers(cli, command, out) == numbers(cli, command, pairs)
        where = ("--where", "topic=code")
        old, new = numbers(cli, command, pairs, *where), numbers(cli, command, out, *where)
        del old["notes"], new["notes"]  # of a file of labels, the other rows are counted
        assert new == old
    assert load_run(out).notices == load_run(pairs).notices


def test_pairs_in_one_order_and_failed_pairs_are_imported(cli: Cli, tmp_path: Path, model: Path) -> None:
    one_order = judged_pairs(write_pairs(tmp_path / "rows.jsonl"), model, tmp_path / "one", Pairing(orders=1))
    both = judged_pairs(write_responses(tmp_path / "all.jsonl"), model, tmp_path / "both")
    for run, rubric in ((one_order, "rows.toml"), (both, "all.toml")):
        out = again(cli, run, tmp_path / rubric)
        old, new = row_lines(run), row_lines(out)
        for line in (*old, *new):
            del line["key_ab"], line["key_ba"]
        assert new == old


@pytest.mark.parametrize(("to", "flags"), FORMS)
def test_an_imported_export_of_scores_has_the_probabilities_of_its_run(
    cli: Cli, tmp_path: Path, model: Path, to: str, flags: tuple[str, ...]
) -> None:
    rows = [
        {
            "id": f"r{n}", "system": "ab"[n % 2], "instruction": f"Question {n // 2}?", "reference": "Yes.",
            "candidate": "word " * (1 + n * 37 % 23),
        }
        for n in range(40)
    ]  # fmt: skip
    file, run, labels = tmp_path / "rows.jsonl", tmp_path / "run", tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels.write_text("".join(
        json.dumps({name: row[name] for name in ("instruction", "reference", "candidate", "system")}
                   | {"helpfulness": 1 + n * 7 % 5}) + "\n"
        for n, row in enumerate(rows)
    ))  # fmt: skip
    judge = scripted_judge(model, lambda reference, candidate, *_: 1 + len(candidate) % 17 / 4.3)(
        Rubric.load("just-eval")
    )
    score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), run)
    out = again(cli, run, "just-eval", to, flags)
    assert numbers(cli, "rank", out) == numbers(cli, "rank", run)
    given = ("--labels", labels)
    assert numbers(cli, "agree", out, *given) == numbers(cli, "agree", run, *given)
    assert [row.expected for row in load_run(out)] == [row.expected for row in load_run(run)]


def test_an_imported_export_with_aspects_alone_keeps_their_probabilities(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(
        json.dumps({"id": f"r{n}", "system": "a", "instruction": f"Q{n}", "reference": "Yes.",
                    "candidate": "word " * n}) + "\n"
        for n in range(1, 9)
    ))  # fmt: skip
    judge = scripted_judge(model, lambda reference, candidate, *_: 1 + len(candidate) / 11)(
        Rubric.load("just-eval")
    )
    score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), tmp_path / "run")
    assert cli("export", tmp_path / "run", "--with-texts", "--out", tmp_path / "x.jsonl").code == 0
    end = cli("import", tmp_path / "x.jsonl", "--aspect", "depth", "--out", tmp_path / "out")
    assert end.code == 0, end.err
    for old, new in zip(load_run(tmp_path / "run"), load_run(tmp_path / "out"), strict=True):
        assert new.expected == {"depth": old.expected["depth"]}
        assert new.probabilities == {"depth": old.probabilities["depth"]}


def test_what_does_not_fit_an_export_is_refused_in_one_line(cli: Cli, pairs: Path, tmp_path: Path) -> None:
    for to in ("jsonl", "csv"):
        assert cli("export", pairs, "--out", tmp_path / f"x.{to}").code == 0
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    old = [json.loads(line) for line in lines]
    for line in old:
        del line["better_probabilities_ab"]
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    wrong = json.loads(lines[1])
    wrong["better_ab"] = "C"
    (tmp_path / "wrong.jsonl").write_text("\n".join((lines[0], json.dumps(wrong))))
    (tmp_path / "torn.jsonl").write_text(json.dumps(json.loads(lines[0]) | {"columns": "{"}))
    for name, flags, words in (
        ("x.jsonl", ("--aspect", "better"), "give the --rubric"),
        ("x.jsonl", ("--rubric", "just-eval"), "is a line of a pair"),
        ("x.csv", ("--rubric", "pairwise"), "as JSON lines or Parquet"),
        ("old.jsonl", ("--rubric", "pairwise"), "old.jsonl:1: no column 'better_probabilities_ab'"),
        ("torn.jsonl", ("--rubric", "pairwise"), "torn.jsonl:1: its columns are not JSON"),
        ("wrong.jsonl", ("--rubric", "pairwise"), "wrong.jsonl:2: better is not one of its values"),
    ):
        end = cli("import", tmp_path / name, *flags, "--out", tmp_path / "out")
        assert (end.code, words in end.err, len(end.err.splitlines())) == (2, True, 1), end.err
        assert not (tmp_path / "out").exists()
