"""The order of systems whose rows are repeated or missing, and what is said about their differences."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from report_page import section

from localjudge.matching.judged_rows import read_scores
from localjudge.matching.scores import Scores
from localjudge.statistics.system_means import connected_systems, means_on_same_instructions
from localjudge.studies.imported_scores import import_scores
from localjudge.studies.rank import Ranking, rank


def ranked(scores: Scores) -> Ranking:
    return rank(scores, resamples=300)


def write(file: Path, records: Iterable[Any]) -> Path:
    file.write_text("\n".join(map(json.dumps, records)))
    return file


def test_means_on_the_same_instructions_are_those_of_the_regression_with_dummies() -> None:
    rng = np.random.default_rng(2)
    cells = rng.normal(size=(40, 4)) + rng.normal(size=(40, 1)) + np.arange(4)
    whole = means_on_same_instructions(cells)
    assert whole.value == pytest.approx(cells.mean(axis=0))
    assert whole.shares == pytest.approx((cells - cells.mean(axis=0)) / 40)
    cells[rng.random(cells.shape) < 0.4] = np.nan
    cells[:2] = np.nan  # instructions without any answer
    found = means_on_same_instructions(cells)
    group, system = np.nonzero(np.isfinite(cells))
    used = np.unique(group)
    design = np.hstack([np.eye(4)[system], np.eye(40)[:, used][group]])
    fitted, *_ = np.linalg.lstsq(design, cells[group, system], rcond=None)
    assert found.value == pytest.approx(fitted[:4] + fitted[4:].mean())
    assert found.shares.sum(axis=0) == pytest.approx(0, abs=1e-12)
    moved = np.random.default_rng(3).permutation(40)
    assert means_on_same_instructions(cells[moved]).value == pytest.approx(found.value)
    assert found.contrast(np.array([0]), np.array([3])).value == pytest.approx(fitted[0] - fitted[3])
    # Two components: the systems are compared within each, and on its instructions alone.
    apart = np.full((20, 4), np.nan)
    apart[:10, :2], apart[10:, 2:] = cells_of(10, 5), cells_of(10, 6)
    assert connected_systems(apart).tolist() == [0, 0, 1, 1]
    assert means_on_same_instructions(apart).value == pytest.approx(np.nanmean(apart, axis=0))


def cells_of(instructions: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(instructions, 2))


def uneven_rows(answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of systems whose scores are given by instruction; a list has several rows."""
    return [
        {"id": f"{n}-{name}-{c}", "system": name, "instruction": f"Question {n}?",
         "candidate": "a" * (5 + c), "wit": value}
        for name, scores in answers.items()
        for n, each in scores.items()
        for c, value in enumerate(each if isinstance(each, list) else [each])
    ]  # fmt: skip


def test_repeated_rows_and_easier_instructions_do_not_make_a_system_better(tmp_path: Path, cli: Cli) -> None:
    rng = np.random.default_rng(4)
    easy = range(20)
    level = {n: 4 if n in easy else 2 for n in range(40)}
    better = {n: level[n] + int(rng.random() < 0.7) for n in level}
    repeated = {n: [level[n]] * (6 if n in easy else 1) for n in level}
    missing = {n: level[n] for n in level if n in easy or n < 26}
    for name, worse in (("repeated", repeated), ("missing", missing)):
        file = write(tmp_path / f"{name}.jsonl", uneven_rows({"worse": worse, "better": better}))
        import_scores([str(file)], tmp_path / name, ["wit"])
        found = ranked(read_scores([tmp_path / name]))
        assert [system.name for system in found.systems] == ["better", "worse"]
        assert found.contradictions == ()
        said = " ".join(cli("rank", tmp_path / name).out.split())
        assert "better is significantly higher than worse in wit (by 0." in said
        cli("report", tmp_path / name, "--out", tmp_path / "report.html")
        sentence = "On " + said.split("On ")[1].split(").")[0] + ")."
        assert sentence in section(tmp_path / "report.html", "systems")["leads"]
        if name == "repeated":
            assert found.systems[1].means["wit"].value == pytest.approx(3)
            assert found.systems[0].same_instructions is None
        else:
            assert found.systems[0].same_instructions["wit"].value == pytest.approx(np.mean([*better.values()]))


def test_a_tested_difference_against_the_order_of_the_systems_is_named(tmp_path: Path, cli: Cli) -> None:
    # On 10 instructions a is below b; c, whom both met on 60 others, puts a above b.
    a = dict.fromkeys(range(10), 2) | {n: 5 - n % 2 for n in range(10, 70)}
    b = {n: 3 + n % 2 for n in range(10)} | dict.fromkeys(range(70, 130), 1)
    c = {n: 2 + n % 3 // 2 for n in range(10, 130)}
    file = write(tmp_path / "rows.jsonl", uneven_rows({"a": a, "b": b, "c": c}))
    import_scores([str(file)], tmp_path / "run", ["wit"])
    found = ranked(read_scores([tmp_path / "run"]))
    names = [system.name for system in found.systems]
    assert names.index("a") < names.index("b")
    (pair,) = found.contradictions
    assert (pair.first, pair.second, pair.instructions, pair.difference.value) == ("b", "a", 10, 1.5)
    said = " ".join(cli("rank", tmp_path / "run").out.split())
    assert (
        "Against the order of the systems: On 10 instructions, b is significantly higher than a in wit" in said
    )


def test_rank_begins_with_what_the_tests_say_and_prints_one_table(tmp_path: Path, cli: Cli) -> None:
    rng = np.random.default_rng(2)
    systems = {name: {n: int(rng.integers(1, 6)) for n in range(20)} for name in "abcdef"}
    given = [{**row, "tact": 1 + len(row["id"]) % 2} for row in uneven_rows(systems)]
    import_scores([str(write(tmp_path / "rows.jsonl", given))], tmp_path / "run", ["wit", "tact"])
    short, whole = (cli("rank", tmp_path / "run", "--resamples", 100, *more).out for more in ((), ("--all",)))
    assert short.startswith("No significant difference in the judge's scores (overall): ")
    assert len(short.splitlines()) <= 30 < len(whole.splitlines())
    kept, last = short.rstrip("\n").rsplit("\n", 1)
    assert last.startswith("--all also prints: aspects, ")
    assert last.endswith("differences in overall")
    assert all(line in whole for line in kept.splitlines())
    assert "Differences in overall" in whole
    assert "Differences in overall" not in short


def test_the_first_table_has_the_human_means_if_they_decide_the_order(tmp_path: Path, cli: Cli) -> None:
    rng = np.random.default_rng(3)
    scores = {name: {n: int(rng.integers(1, 6)) for n in range(20)} for name in "ab"}
    given = uneven_rows(scores)
    import_scores([str(write(tmp_path / "rows.jsonl", given))], tmp_path / "run", ["wit"])
    labels = [{"id": row["id"], "system": row["system"], "wit": int(rng.integers(1, 6))} for row in given]
    file = write(tmp_path / "labels.jsonl", labels)
    head = cli("rank", tmp_path / "run", "--labels", file, "--resamples", 100).out.partition("───")[0]
    assert " ".join(head.split()).count("significant difference in the human scores (wit)") == 2
    assert "human     ranks" in head.splitlines()[-1]


def test_means_that_differ_by_rounding_alone_are_ties(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = []
    for n in range(40):
        values = [round(float(value), 2) for value in rng.uniform(1, 5, 3)]
        for name, each in (("north", values), ("south", values[::-1])):
            row = dict(zip(("a", "b", "c"), each, strict=True))
            records.append(
                {"id": f"{n}{name}", "system": name, "instruction": f"Q{n}", "candidate": "x", **row}
            )
    import_scores([str(write(tmp_path / "rows.jsonl", records))], tmp_path / "run", ["a", "b", "c"])
    found = ranked(read_scores([tmp_path / "run"]))
    (pair,) = (pair for pair in found.pairs if pair.column == "overall")
    assert (pair.wins, pair.ties, pair.losses) == (0, 40, 0)
