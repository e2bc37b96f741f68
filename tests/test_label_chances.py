"""Tests of labels of rows drawn with unequal chances: every statistic weighs each row by 1 / its chance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from test_label import lines, write_rows

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.errors import UsageError
from localjudge.labelling.label_file import LabelFile
from localjudge.labelling.sample import candidates_of_rows, candidates_of_run, chances, draw
from localjudge.labelling.session import LabelSession
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import read_labels
from localjudge.rows.row_store import RowStore
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_manifest import read_manifest
from localjudge.statistics.agreement_statistics import compare
from localjudge.statistics.exact_shares import exact_share
from localjudge.statistics.krippendorff import alpha_estimate
from localjudge.statistics.resampling import mean_estimate
from localjudge.studies.agree import agree
from localjudge.studies.calibrate import fit_map


def labelled(seed: int = 0, count: int = 60) -> tuple[Floats, Floats, Integers, Floats]:
    """Return a judge's scores, labels, instructions of two rows each, and whole weights of 1 to 3."""
    random = np.random.default_rng(seed)
    label = random.integers(1, 6, count).astype(np.float64)
    judge: Floats = np.clip(label + random.integers(-1, 2, count), 1, 5).astype(np.float64)
    group = np.arange(count) // 2
    return judge, label, group, random.integers(1, 4, len(group))[group].astype(np.float64)


def arrays(label: Floats, weight: Floats | None) -> LabelArray:
    rows = np.arange(len(label), dtype=np.int32)
    return LabelArray(rows, np.zeros_like(rows), label, weight)


def test_a_weight_of_three_counts_like_three_rows() -> None:
    judge, label, group, weight = labelled()
    times = weight.astype(int)
    weighted = compare(judge, arrays(label, weight), group, (1, 5), 50, 0)
    judge_, label_, group_ = np.repeat(judge, times), np.repeat(label, times), np.repeat(group, times)
    repeated = compare(judge_, arrays(label_, None), group_, (1, 5), 50, 0)
    for name in ("spearman", "kappa", "exact", "bias"):
        assert getattr(weighted, name).value == pytest.approx(getattr(repeated, name).value, abs=1e-12), name
    mapped, expected = fit_map(judge, label, group, 50, 0, weight), fit_map(judge_, label_, group_, 50, 0)
    assert [*mapped.x, *mapped.y] == pytest.approx([*expected.x, *expected.y])
    assert mapped.mse_calibrated == pytest.approx(expected.mse_calibrated)


def test_equal_weights_give_the_unweighted_numbers_and_intervals() -> None:
    judge, label, group, _ = labelled()
    ones = np.full(len(label), 2.5)
    one, other = (compare(judge, arrays(label, each), group, (1, 5), 200, 0) for each in (ones, None))
    for name in ("spearman", "kappa", "exact", "bias"):
        known, expected = (getattr(each, name) for each in (one, other))
        for end in ("value", "low", "high"):
            assert getattr(known, end) == pytest.approx(getattr(expected, end), abs=1e-9), (name, end)
    two = [fit_map(judge, label, group, 100, 0, each) for each in (ones, None)]
    assert two[0].gain.value == pytest.approx(two[1].gain.value)
    assert two[0].gain.low == pytest.approx(two[1].gain.low)


def test_alpha_weighs_rows_too() -> None:
    random = np.random.default_rng(3)
    truth = random.integers(1, 6, 110)
    rows = np.repeat(np.arange(110, dtype=np.int32), 3)
    people = np.tile(np.arange(3, dtype=np.int32), 110)
    value = np.clip(truth[rows] + random.integers(-1, 2, 330), 1, 5).astype(float)
    group, weight = np.arange(110), random.integers(1, 4, 110)
    of_rows = LabelArray(rows, people, value, weight[rows].astype(float))
    repeated = np.repeat(np.arange(110), weight)
    row_ = np.repeat(np.arange(len(repeated), dtype=np.int32), 3)
    value_ = value.reshape(110, 3)[repeated].ravel()
    many = LabelArray(row_, np.tile(np.arange(3, dtype=np.int32), len(repeated)), value_)
    # The correction of alpha for small samples counts labels, so the two differ by less than one label in all.
    for level in ("ordinal", "nominal"):
        one, other = alpha_estimate(of_rows, group, level), alpha_estimate(many, repeated, level)
        assert one.value == pytest.approx(other.value, abs=0.005)
        assert one.low is not None


def test_a_share_of_all_or_none_is_surer_with_even_weights() -> None:
    group, held = np.arange(40), np.ones(40, dtype=np.bool_)
    even = exact_share(held, group)
    uneven = exact_share(held, group, np.repeat([1.0, 9.0], 20))
    assert uneven.low is not None
    assert even.low is not None
    assert uneven.low < even.low
    assert mean_estimate(np.arange(40.0), group, weights=np.ones(40)) == mean_estimate(np.arange(40.0), group)


def drawn_by_score(tmp_path: Path, cli: Cli, prefer: str | None = "score") -> tuple[Path, Path]:
    """Label a third of 60 rows, of which six are bad; the judge takes a good row in four for a middling one."""
    rows, labels, run = write_rows(tmp_path / "rows.jsonl", 60, "x"), tmp_path / "l.jsonl", tmp_path / "run"
    given = [json.loads(line) for line in rows.read_text().splitlines()]
    judged = [1 if at < 6 else 3 if at % 4 == 0 else 5 for at in range(60)]
    scored = tmp_path / "scored.jsonl"
    scored.write_text(
        "".join(json.dumps({**row, "quality": one}) + "\n" for row, one in zip(given, judged, strict=True))
    )
    assert cli("import", scored, "--aspect", "quality", "--out", run).code == 0
    with RowStore() as store, LabelFile(labels) as file:
        candidates = candidates_of_run(run, store, 20, prefer)  # type: ignore[arg-type]
        people = LabelSession(read_manifest(run).rubric, candidates, file)
        while (row := people.next("Ann")) is not None:
            low = int(row["instruction"].split()[1][:-1]) < 6
            people.add("Ann", row["key"], {"values": {"quality": "1" if low else "5"}})
    return run, labels


def test_agree_calibrate_and_rank_undo_unequal_chances(tmp_path: Path, cli: Cli) -> None:
    run, labels = drawn_by_score(tmp_path, cli)
    drawn = lines(labels)
    assert {line["label"]["chance"] for line in drawn if line["quality"] == 1} == {1.0}
    assert sum(line["quality"] == 1 for line in drawn) == 6, "a tenth of the rows, and a third of the sample"
    flags = ("--labels", labels, "--resamples", 100, "--json")
    ranked = json.loads(cli("rank", run, *flags).out)
    assert ranked["systems"][0]["human"]["quality"]["value"] == pytest.approx(4.6, abs=0.05)
    assert any("with the chances in the label file" in note for note in ranked["notes"])
    agreed = json.loads(cli("agree", run, *flags).out)
    own = {line["id"]: 1 / line["label"]["chance"] for line in drawn}
    right = {f"{at}x": at < 6 or at % 4 != 0 for at in range(60)}
    exact = sum(weight * right[row] for row, weight in own.items()) / sum(own.values())
    assert agreed["aspects"]["quality"]["comparisons"]["integer"]["exact"]["value"] == pytest.approx(exact)
    assert any("unequal chances" in note for note in agreed["notes"])
    fitted = json.loads(cli("calibrate", run, *flags, "--out", tmp_path / "c.json").out)
    assert any("unequal chances" in note for note in fitted["notes"])
    assert fitted["aspects"]["quality"]["rows"] == len(drawn)


def test_only_what_no_weight_can_undo_is_refused_by_name(tmp_path: Path, cli: Cli) -> None:
    run, labels = drawn_by_score(tmp_path, cli)
    given = ("--labels", labels, "--out", tmp_path / "c.json")
    end = cli("calibrate", run, *given, "--interval", "0.8")
    assert (end.code, "an interval for the label of a new response needs equal ones" in end.err) == (2, True)
    end = cli("jury", run, run, "--labels", labels)
    assert end.code == 2


@pytest.mark.parametrize("changed", [{"saw_judge": None}, {"chance": 0}, {"chance": "half"}, {"row": 3}])
def test_a_changed_label_is_refused_with_its_place(
    tmp_path: Path, cli: Cli, changed: dict[str, object]
) -> None:
    run, labels = drawn_by_score(tmp_path, cli)
    first, *others = lines(labels)
    first["label"].update(changed)
    labels.write_text("".join(json.dumps(line) + "\n" for line in [first, *others]))
    end = cli("agree", run, "--labels", labels)
    assert (end.code, end.err.count("\n")) == (2, 1)
    assert f"{labels}:1: `label` is not as `localjudge label` writes it" in end.err


def test_the_weights_of_each_file_have_the_mean_one(tmp_path: Path, cli: Cli) -> None:
    run, labels = drawn_by_score(tmp_path, cli)
    drawn = lines(labels)
    doubled = tmp_path / "rarer.jsonl"
    for line in drawn:
        line["label"]["chance"] /= 2
    doubled.write_text("".join(json.dumps(line) + "\n" for line in drawn))
    scores = read_scores([run])
    found, expected = (
        agree(scores, read_labels([str(file)], scores, equal_chances=False), 100) for file in (doubled, labels)
    )
    assert found == replace(expected, input_notes=found.input_notes), "a common factor changes nothing"
    half = tmp_path / "half.jsonl"
    for line in drawn:
        line["label"].update(chance=0.01, prefer=None)
    half.write_text("".join(json.dumps(line) + "\n" for line in drawn[:5]))
    both = read_labels([str(half)], scores)
    assert set(both.chance.values()) == {1.0}


def test_a_larger_random_sample_contains_the_smaller_and_both_count_alike(tmp_path: Path, cli: Cli) -> None:
    ones = np.ones(50, dtype=int)
    small, large = (draw(chances(np.ones(50), ones, n), np.random.default_rng(7)) for n in (10, 30))
    assert small.tolist() == large[:10].tolist()
    rows, labels = write_rows(tmp_path / "rows.jsonl", 30, "x"), tmp_path / "l.jsonl"
    rubric = Rubric.load("correctness")
    for sample, size in ((10, 10), (20, 20)):
        with RowStore() as store, LabelFile(labels) as file:
            source = RowSource.from_files([str(rows)], used=("instruction", "candidate"))
            people = LabelSession(rubric, candidates_of_rows(source.rows, store, sample), file)
            while (row := people.next("Ann")) is not None:
                values = {name: next(iter(aspect.values)) for name, aspect in rubric.aspects.items()}
                people.add("Ann", row["key"], {"values": values})
        assert len(lines(labels)) == size
    assert len({line["label"]["chance"] for line in lines(labels)}) == 2


def test_a_file_of_another_preferred_sample_is_not_continued(tmp_path: Path, cli: Cli) -> None:
    run, labels = drawn_by_score(tmp_path, cli)
    rubric = read_manifest(run).rubric
    for sample, prefer in ((40, "score"), (20, None)):
        with RowStore() as store, LabelFile(labels) as file:
            candidates = candidates_of_run(run, store, sample, prefer)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="was begun with another sample"):
                LabelSession(rubric, candidates, file)
