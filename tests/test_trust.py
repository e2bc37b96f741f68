"""Tests of agreement, ranking, juries and calibration: each statistic against an independent computation."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines, write_rows
from report_page import section
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from localjudge import Failure, Judge, UsageError
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import Labels, parse_mapping, read_labels
from localjudge.matching.scores import Scores
from localjudge.records.keys import word_overlap
from localjudge.records.outcome_columns import AnswerColumns, from_line
from localjudge.rows.inputs import read_rows
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_plan import RunPlan
from localjudge.statistics import UNDEFINED, Estimate, agreement_statistics
from localjudge.statistics.prediction_powered import power_tuning, prediction_powered
from localjudge.statistics.resampling import Contributions, averages, studentise
from localjudge.studies.agree import AspectAgreement, agree
from localjudge.studies.calibrate import fit
from localjudge.studies.calibration import Calibration
from localjudge.studies.imported_scores import import_scores
from localjudge.studies.jury import compare_judges
from localjudge.studies.jury_run import median, write_jury
from localjudge.studies.rank import rank

EXACT: dict[str, Any] = {"rel": 1e-9, "abs": 1e-9}
FEW = 200
"""Number of resamples in tests that do not test the interval itself."""


def write(file: Path, records: Iterable[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def rows(
    score: Sequence[Any], human: Sequence[Any], systems: str = "ab", aspect: str = "wit"
) -> list[dict[str, Any]]:
    """Return one row for each score; the systems alternate over the instructions, and `human` is the label."""
    return [
        {
            "id": f"r{number}",
            "system": systems[number % len(systems)],
            "instruction": f"Question {number // len(systems)}?",
            "reference": "Yes, it is so.",
            "candidate": "It is so. " * (1 + number * 37 % 11),
            "scores": {aspect: value},
            "human": label,
        }
        for number, (value, label) in enumerate(zip(score, human, strict=True))
    ]


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Return an imported run, and the file of its rows and labels."""

    def make(*given: Any, name: str = "run", **also: Any) -> tuple[Path, Path]:
        file = write(tmp_path / f"{name}.jsonl", rows(*given, **also))
        import_scores([str(file)], tmp_path / name, ["wit"])
        return tmp_path / name, file

    return make


def compared(run: Path, labels: Path, column: str = "human", resamples: int = FEW) -> AspectAgreement:
    scores = read_scores([run])
    known = read_labels([str(labels)], scores, {column: "wit"})
    return agree(scores, known, resamples=resamples).aspects["wit"]


def noisy(count: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Return human scores, and scores of a judge that are correlated with them."""
    rng = np.random.default_rng(seed)
    human = rng.integers(1, 6, count)
    return np.clip(human + rng.integers(-2, 3, count), 1, 5).tolist(), human.tolist()


def test_weighted_statistics_are_those_of_the_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    whole, human = (np.array(column, dtype=float) for column in noisy(40))
    weights = rng.multinomial(40, np.full(40, 1 / 40), size=20).astype(float)
    for x in (whole, whole + rng.random(40) * (rng.random(40) < 0.5)):
        for drawn, found in zip(weights, agreement_statistics.spearman(x, human, weights), strict=True):
            again = np.repeat(x, drawn.astype(int)), np.repeat(human, drawn.astype(int))
            assert found == pytest.approx(stats.spearmanr(*again).statistic, **EXACT)
    for drawn, kappa in zip(weights, agreement_statistics.kappa(whole, human, weights), strict=True):
        again = np.repeat(whole, drawn.astype(int)), np.repeat(human, drawn.astype(int))
        direct = cohen_kappa_score(*again, labels=range(1, 6), weights="quadratic")
        assert kappa == pytest.approx(direct, **EXACT)


def textbook(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Compute the statistics by their definitions, in plain loops."""

    def correlation(a: Sequence[float], b: Sequence[float]) -> float:
        ma, mb = math.fsum(a) / len(a), math.fsum(b) / len(b)
        shared = math.fsum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True))
        return shared / math.sqrt(math.fsum((p - ma) ** 2 for p in a) * math.fsum((q - mb) ** 2 for q in b))

    def ranks(a: Sequence[float]) -> list[float]:
        return [sum(q < p for q in a) + (sum(q == p for q in a) + 1) / 2 for p in a]

    off = [p - q for p, q in zip(x, y, strict=True)]
    chance = math.fsum((p - q) ** 2 for p in x for q in y) / len(x) ** 2
    return {
        "spearman": correlation(ranks(x), ranks(y)),
        "pearson": correlation(x, y),
        "mae": math.fsum(abs(d) for d in off) / len(off),
        "kappa": 1 - math.fsum(d * d for d in off) / len(off) / chance,
        "exact": sum(d == 0 for d in off) / len(off),
        "within_one": sum(abs(d) <= 1 for d in off) / len(off),
        "bias": math.fsum(off) / len(off),
    }


def values(comparison: Any) -> dict[str, float | None]:
    return {name: getattr(comparison, name).value for name in textbook([1, 2], [1, 2])}


def textbook_alpha(units: Sequence[Sequence[float]]) -> float:
    """Compute Krippendorff's ordinal alpha from pairs within and across units (Krippendorff 2011)."""
    units = [unit for unit in units if len(unit) > 1]
    everything = [value for unit in units for value in unit]
    counts = {value: everything.count(value) for value in sorted(set(everything))}

    def distance(a: float, b: float) -> float:
        low, high = min(a, b), max(a, b)
        between = sum(count for value, count in counts.items() if low <= value <= high)
        return float((between - (counts[a] + counts[b]) / 2) ** 2)

    seen = math.fsum(distance(a, b) / (len(unit) - 1) for unit in units for a, b in permutations(unit, 2))
    chance = math.fsum(distance(a, b) for a, b in permutations(everything, 2)) / (len(everything) - 1)
    return 1 - seen / chance


def test_agreement_is_what_its_definitions_give(judged: Callable[..., tuple[Path, Path]]) -> None:
    score, human = noisy(60)
    found = compared(*judged(score, human))
    assert (found.rows, found.instructions, found.annotators) == (60, 30, 1)
    assert values(found.comparisons["integer"]) == pytest.approx(textbook(score, human), **EXACT)
    lengths = [len(row["candidate"]) for row in rows(score, human)]
    expected = textbook(lengths, human)
    alone = found.comparisons["length"]
    assert alone.spearman.value == pytest.approx(expected["spearman"], **EXACT)
    assert alone.kappa == alone.bias == UNDEFINED


@pytest.fixture(params=["generated", "real"])
def three_ratings(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return rows of 21 instructions, each rated three times by raters who mostly agree."""
    if request.param == "real":
        folder: Path = request.getfixturevalue("shared")
        return folder / "data" / "prometheus_vicuna.jsonl"
    random = np.random.default_rng(4)
    quality = np.repeat(random.normal(3, 0.7, 21), 4) + random.normal(0, 0.7, 84)
    ratings = np.clip(np.round(quality[:, None] + random.normal(0, 0.5, (84, 3))), 1, 5).astype(int).tolist()
    return write(
        tmp_path / "ratings.jsonl",
        (
            row | {"all_scores": three}
            for row, three in zip(rows([1] * 84, [1] * 84, "abcd"), ratings, strict=True)
        ),
    )


def test_agreement_with_repeated_labels(three_ratings: Path, tmp_path: Path) -> None:
    file = three_ratings
    import_scores([str(file)], tmp_path / "run", ["wit"], judge="gpt-4", mapping={"all_scores.0": "wit"})
    scores = read_scores([tmp_path / "run"])
    three = [json.loads(line)["all_scores"] for line in file.read_text().splitlines()]
    labels = read_labels([str(file)], scores, {"all_scores.1": "wit", "all_scores.2": "wit"})
    found = agree(scores, labels, resamples=FEW).aspects["wit"]
    first = [float(each[0]) for each in three]
    with_mean = textbook(first, [(each[1] + each[2]) / 2 for each in three])
    with_each = textbook(first * 2, [float(each[place]) for place in (1, 2) for each in three])
    for name, value in values(found.comparisons["integer"]).items():
        target = with_mean if name in ("spearman", "pearson") else with_each
        assert value == pytest.approx(target[name], **EXACT)
    both = [[float(each[1]), float(each[2])] for each in three]
    assert found.alpha.value == pytest.approx(textbook_alpha(both), **EXACT)
    assert found.instructions == 21 < found.rows


@pytest.mark.parametrize(
    ("score", "human", "left"),
    [
        ([3] * 12, [1, 2, 3, 4, 5, 3] * 2, {"exact", "within_one", "mae", "bias", "kappa"}),
        ([1, 2, 3, 4, 5, 3] * 2, [4] * 12, {"exact", "within_one", "mae", "bias", "kappa"}),
        ([4] * 12, [4] * 12, {"exact", "within_one", "mae", "bias"}),
        ([3] + [None] * 11, [4] * 12, set()),
        ([1, 2, 3, 4, 5, 3] * 2, [0, 70, 20, 100, 50, 10] * 2, {"spearman", "pearson"}),
    ],
    ids=["constant scores", "constant labels", "all equal", "one row", "labels of another scale"],
)
def test_what_cannot_be_computed_is_undefined(
    judged: Callable[..., tuple[Path, Path]], score: list[Any], human: list[Any], left: set[str]
) -> None:
    found = compared(*judged(score, human)).comparisons["integer"]
    assert {name for name, value in values(found).items() if value is not None} == left
    for name in values(found):
        estimate = getattr(found, name)
        assert all(
            math.isfinite(end) for end in (estimate.value, estimate.low, estimate.high) if end is not None
        )


def test_intervals_hold_their_estimate_and_want_five_instructions(
    judged: Callable[..., tuple[Path, Path]],
) -> None:
    score, human = noisy(60)
    for name, value in values(compared(*judged(score, human)).comparisons["integer"]).items():
        assert value is not None, name
    many = compared(*judged(score, human, name="many")).comparisons["integer"]
    few = compared(*judged(score[:8], human[:8], name="few")).comparisons["integer"]
    for name in values(many):
        estimate = getattr(many, name)
        assert estimate.low < estimate.value < estimate.high
        assert getattr(few, name).low is None
    assert few.bias.value is not None


def test_labels_are_found_by_id_by_text_and_by_annotator(
    judged: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    score, human = noisy(20)
    run, _ = judged(score, human)
    scores = read_scores([run])
    written = rows(score, human)
    by_text = write(
        tmp_path / "text.jsonl",
        ({"prompt": row["instruction"], "response": row["candidate"], "wit": row["human"]} for row in written),
    )
    rows_by_id = [{"id": row["id"], "rater": who, "wit": row["human"]} for row in written for who in "xy"]
    with (tmp_path / "id.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, ["id", "rater", "wit"])
        table.writeheader()
        table.writerows([*rows_by_id, {"id": "r0", "rater": "z", "wit": "N/A"}, {"id": "gone", "wit": 1}])
    listed = write(tmp_path / "list.jsonl", ({"id": r["id"], "wit": [r["human"], None, 3]} for r in written))
    for file, annotators, count in (
        (by_text, ("annotator 1",), 20),
        (tmp_path / "id.csv", ("x", "y"), 40),
        (listed, ("annotator 1", "annotator 3"), 40),
    ):
        labels = read_labels([str(file)], scores)
        assert labels.annotators == annotators
        assert len(labels.marks["wit"].value) == count
    assert read_labels([str(by_text)], scores).means("wit")[1].tolist() == human
    no_row, by_id = read_labels([str(tmp_path / "id.csv")], scores).notes
    assert no_row == "1 of 42 label records match no judged row"
    assert by_id == (
        "41 of 42 label records are matched by id alone; nothing shows that these labels are of these responses"
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": "r0", "wit": "good"}, r"labels.jsonl:1: 'wit' holds 'good', which is not a number"),
        ({"id": "nobody", "wit": 3}, "none of its 1 records matches a row"),
        ({"id": "r0", "humour": 3}, "no label of wit; its columns are humour, id; map a column with `mapping`"),
        ("[1, 2]", r"labels.jsonl:1: not a JSON object"),
        ({"id": "r0", "wit": 1e308}, r"labels.jsonl:1: 'wit' holds '1e\+308'; a label is a number of at most"),
        ({"id": "r0", "wit": float("-inf")}, r"labels.jsonl:1: 'wit' holds '-inf'; a label is a number of at"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(
    judged: Callable[..., tuple[Path, Path]], tmp_path: Path, record: Any, message: str
) -> None:
    run, _ = judged(*noisy(4))
    file = tmp_path / "labels.jsonl"
    file.write_text(record if isinstance(record, str) else json.dumps(record))
    with pytest.raises(UsageError, match=message):
        read_labels([str(file)], read_scores([run]))


def test_codes_of_labels_are_read_as_what_they_are_stated_to_mean(
    judged: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    run, _ = judged(*noisy(4))
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps({"id": f"r{n}", "mark": "xyz"[n % 3]}) + "\n" for n in range(4)))
    mapping = parse_mapping(["wit=mark:x=3,y=1,z=none"], ["wit", "tact"])
    labels = read_labels([str(file)], read_scores([run]), mapping).marks["wit"]
    assert dict(zip(labels.row.tolist(), labels.value.tolist(), strict=True)) == {0: 3, 1: 1, 3: 3}
    with pytest.raises(
        UsageError, match=r"jsonl:3: 'mark' holds 'z', which is not a label of wit; its labels are x, y"
    ):
        read_labels([str(file)], read_scores([run]), parse_mapping(["wit=mark:x=3,y=1"], ["wit"]))


@pytest.mark.parametrize("given", ["human=wit", "wit", "wit=", "=human", "wit=a=b"])
def test_a_label_column_stands_after_the_aspect_that_it_holds(given: str) -> None:
    assert parse_mapping(["wit=human"], ["wit"]) == {"human": "wit"}
    with pytest.raises(UsageError, match="write OURS=THEIRS, where OURS is one of wit"):
        parse_mapping([given], ["wit"])


def test_an_id_of_several_systems_needs_the_system(tmp_path: Path) -> None:
    same = [{**row, "id": "q"} for row in rows([1, 5], [1, 5])]
    file = write(tmp_path / "rows.jsonl", same)
    import_scores([str(file)], tmp_path / "run", ["wit"])
    scores = read_scores([tmp_path / "run"])
    labels = read_labels([str(file)], scores, {"human": "wit"})
    assert labels.means("wit")[1].tolist() == [1, 5]
    bare = write(tmp_path / "bare.jsonl", [{"id": "q", "wit": 3}])
    with pytest.raises(
        UsageError, match=r"2 judged rows have the id of this record \(q\); add the column system"
    ):
        read_labels([str(bare)], scores)


def test_a_judged_run_knows_its_instructions_and_texts(model: Path, short_rubric: Path, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", 12)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, ({**record, "instruction": f"Question {n // 2}?"} for n, record in enumerate(records)))
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=2)
    with RunDirectory(tmp_path / "run") as run, RunPlan(judge, read_rows([str(file)])) as plan:
        run.begin(judge, plan, RowSource(inputs=[str(file)]))
        run.score()
    scores = read_scores([tmp_path / "run"])
    assert (scores.groups, scores.systems, scores.failed) == (6, ("a", "b"), 0)
    assert scores.best == "expected"
    lines = list(read_lines(tmp_path / "run"))
    assert scores.column("wit", "integer").tolist() == [line["wit"] for line in lines]
    assert scores.column("wit", "expected").tolist() == [line["wit_expected"] for line in lines]
    file.unlink()
    scores, sources = read_scores([tmp_path / "run"]), [f"{file}:{n}" for n in range(1, len(records) + 1)]
    assert [identity.where for identity in scores.identities] == sources
    assert scores.length is not None
    assert scores.length.tolist() == [len(record["candidate"]) for record in records]
    overlaps = [word_overlap(record["candidate"], record["reference"]) for record in records]
    assert scores.overlap is not None
    assert scores.overlap.tolist() == overlaps


def test_the_overlap_counts_words_as_often_as_they_occur() -> None:
    assert word_overlap("the cat, the hat", "The cat") == pytest.approx(2 * 2 / (4 + 2))
    assert word_overlap("", "a") == word_overlap("b", "a") == 0


def ranked(scores: Scores, **also: Any) -> Any:
    return rank(scores, resamples=FEW, **also)


def test_means_differences_and_wins_are_those_of_the_rows(judged: Callable[..., tuple[Path, Path]]) -> None:
    score, human = noisy(90)
    run, _ = judged(score, human, systems="abc")
    found = ranked(read_scores([run]))
    table = np.array(score, dtype=float).reshape(-1, 3)
    assert [system.name for system in found.systems] == [
        "abc"[place] for place in np.argsort(-table.mean(axis=0), kind="stable")
    ]
    for system in found.systems:
        own = table[:, "abc".index(system.name)]
        assert system.means["wit"].value == pytest.approx(own.mean(), **EXACT)
        assert (system.rows, system.instructions) == (30, 30)
    for pair in found.pairs:
        between = table[:, "abc".index(pair.first)] - table[:, "abc".index(pair.second)]
        assert pair.difference.value == pytest.approx(between.mean(), **EXACT)
        assert (pair.wins, pair.losses, pair.ties) == tuple(
            int(many.sum()) for many in (between > 0, between < 0, between == 0)
        )


@pytest.fixture(params=["generated", "real"])
def six_systems(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a run of six systems on eleven instructions; the rows of one system have no reference."""
    if request.param == "real":
        folder: Path = request.getfixturevalue("shared")
        return folder / "data" / "topicalchat_usr.jsonl"
    random = np.random.default_rng(5)
    names = ("understandability", "naturalness", "coherence", "engagingness", "groundedness", "overall")
    records = [
        {
            "id": f"row-{number}-{system}",
            "system": system,
            "instruction": f"Question {number}?",
            "reference": None if system == "Original Ground Truth" else "Yes, it is so.",
            "candidate": "It is so. " * (1 + number),
            "scores": {name: float(random.integers(3, 16)) / 3 for name in names},
        }
        for number in range(11)
        for system in ("Original Ground Truth", "aster", "birch", "cedar", "dogwood", "elder")
    ]
    return write(tmp_path / "systems.jsonl", records)


def test_six_systems_have_the_means_and_differences_of_their_columns(six_systems: Path, tmp_path: Path) -> None:
    file = six_systems
    names = ("understandability", "naturalness", "coherence", "engagingness", "groundedness", "overall")
    aspects = (*names[:5], "liking")
    import_scores([str(file)], tmp_path / "run", aspects, judge="people", mapping={"scores.overall": "liking"})
    records = [json.loads(line) for line in file.read_text().splitlines()]
    found = ranked(read_scores([tmp_path / "run"]))
    assert len(found.systems) == 6
    own: dict[str, dict[str, list[float]]] = {}
    for record in records:
        of = own.setdefault(record["system"], {})
        of[record["id"].split("-")[1]] = [record["scores"][name] for name in names]
    for system in found.systems:
        table = list(own[system.name].values())
        for place, aspect in enumerate(aspects):
            expected = math.fsum(row[place] for row in table) / len(table)
            assert system.means[aspect].value == pytest.approx(expected, **EXACT)
        overall = math.fsum(map(math.fsum, table)) / len(table) / 6
        assert system.means["overall"].value == pytest.approx(overall, **EXACT)
    generated = [pair for pair in found.pairs if "Original Ground Truth" not in (pair.first, pair.second)]
    for pair in generated:
        place = (*aspects, "overall").index(pair.column)
        between = [
            (math.fsum(first) / 6 if place == 6 else first[place])
            - (math.fsum(second) / 6 if place == 6 else second[place])
            for first, second in zip(own[pair.first].values(), own[pair.second].values(), strict=True)
        ]
        assert pair.instructions == 11
        assert pair.difference.value == pytest.approx(math.fsum(between) / 11, **EXACT)
        test = stats.ttest_1samp(between, 0) if len(set(between)) > 1 else None
        if test is not None and test.pvalue < 1e-6:
            assert pair.p is not None
            assert pair.p < 0.05
    apart = [
        pair
        for pair in found.pairs
        if pair.column == "overall" and "Original Ground Truth" in (pair.first, pair.second)
    ]
    # The rows of this system have no reference, but no rubric of imported scores reads one.
    assert {pair.instructions for pair in apart} == {11}


def test_length_is_held_equal_by_the_regression_with_a_dummy_for_each_instruction_and_system(
    judged: Callable[..., tuple[Path, Path]],
) -> None:
    run, file = judged(*noisy(90), systems="abc")
    scores = read_scores([run])
    found = ranked(scores)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    length = np.array([math.log1p(len(record["candidate"])) for record in records])
    score = scores.column("wit", "integer")
    system = np.eye(3)[scores.system]
    design = np.column_stack([length, system, np.eye(30)[scores.group][:, 1:]])
    slope = np.linalg.lstsq(design, score, rcond=None)[0][0]
    for each in found.systems:
        mine = scores.system == scores.systems.index(each.name)
        assert each.length_held is not None
        expected = score[mine].mean() - slope * (length[mine].mean() - length.mean())
        assert each.length_held["wit"].value == pytest.approx(expected, **EXACT)
        assert each.length == pytest.approx(np.expm1(length[mine]).mean())


@pytest.mark.parametrize("noise", [1, 400], ids=["collinear", "one long response"])
def test_no_mean_is_at_equal_length_where_length_cannot_be_told_from_the_system(
    tmp_path: Path, noise: int
) -> None:
    random = np.random.default_rng(0)
    rows = [
        {"system": name, "instruction": f"Question {n}?", "candidate": "x" * characters, "wit": 1 + n % 5}
        for n in range(30)
        for name, size in (("short", 100), ("long", 100 if noise > 1 else 300))
        for characters in (
            size + int(random.integers(0, 3)) + 4000 * (noise > 1 and n == 7 and name == "long"),
        )
    ]
    import_scores([str(write(tmp_path / "rows.jsonl", rows))], tmp_path / "run", ["wit"])
    held = [each.length_held for each in ranked(read_scores([tmp_path / "run"])).systems]
    assert all(each is None or each["wit"].value is None for each in held)


def test_a_mean_at_equal_length_stays_within_the_scale(tmp_path: Path) -> None:
    both = [
        {"system": name, "instruction": f"Question {n}?", "candidate": "x" * length, "wit": wit}
        for n in range(20)
        for name, length, wit in (("short", 10, 3), ("long", 20 * 2 ** (n // 2), 1 + (n > 9)))
    ]
    import_scores([str(write(tmp_path / "both.jsonl", both))], tmp_path / "run", ["wit"], (1, 3))
    (short,) = [each for each in ranked(read_scores([tmp_path / "run"])).systems if each.name == "short"]
    assert short.length_held is not None
    assert short.length_held["wit"].value == short.length_held["wit"].high == 3


def test_systems_are_told_apart_where_they_differ_and_only_there(
    judged: Callable[..., tuple[Path, Path]],
) -> None:
    rng = np.random.default_rng(3)
    level = rng.integers(1, 4, 80)
    table = np.column_stack([level, level, level + rng.integers(0, 3, 80)])
    run, _ = judged(table.ravel().tolist(), [3] * 240, systems="abc")
    found = ranked(read_scores([run]))
    assert found.groups["wit"] == (("c",), ("a", "b"))
    assert [(system.name, system.ranks["wit"]) for system in found.systems] == [
        ("c", (1, 1)), ("a", (2, 3)), ("b", (2, 3)),
    ]  # fmt: skip
    same = next(pair for pair in found.pairs if {pair.first, pair.second} == {"a", "b"})
    assert (same.difference, same.p) == (Estimate(0.0), None)
    other = next(pair for pair in found.pairs if {pair.first, pair.second} == {"a", "c"})
    assert other.p is not None
    assert other.p < 0.05
    assert other.difference.high is not None
    assert other.difference.high < 0


def test_an_untested_difference_of_scores_has_its_sign_test_in_json(
    judged: Callable[..., tuple[Path, Path]], cli: Cli
) -> None:
    level = np.tile([1, 2], 15)
    run, _ = judged(np.column_stack([level, level + 1]).ravel().tolist(), [3] * 60, systems="ab")
    (pair,) = json.loads(cli("rank", run, "--json").out)["pairs"]
    assert (pair["p"], pair["wins"], pair["losses"]) == (None, 0, 30)
    assert pair["sign_p"] == pytest.approx(2 * 0.5**30)


def test_a_difference_that_is_the_same_everywhere_is_not_tested_and_nothing_else_is_said_of_it(
    judged: Callable[..., tuple[Path, Path]], cli: Cli, tmp_path: Path
) -> None:
    level = np.tile([1, 2], 10)
    run, _ = judged(np.column_stack([level, level + 1]).ravel().tolist(), [3] * 40, systems="ab")
    found = ranked(read_scores([run]))
    assert found.groups["wit"] == (("b",), ("a",))
    assert found.untested["wit"] == (("a", "b", "it is the same on all instructions"),)
    assert cli("report", run, "--out", tmp_path / "report.html").code == 0
    notes = " ".join(section(tmp_path / "report.html", "systems")["leads"])
    for said in (" ".join(cli("rank", run).out.split()), notes):
        assert "No significant difference" not in said
        reason = "because it is the same on all instructions; b is higher on 20 and lower on 0"
        start = "On 20 instructions, b and a have an untested difference in means (b minus a: 1.00), "
        assert f"{start}{reason} (exact sign test p < .001)." in said
        assert said.count("the same on all instructions") == 1


def test_systems_without_a_common_instruction_are_not_said_to_be_alike(tmp_path: Path) -> None:
    apart = [{**row, "instruction": f"{row['system']}: {row['instruction']}"} for row in rows(*noisy(40))]
    import_scores([str(write(tmp_path / "apart.jsonl", apart))], tmp_path / "apart", ["wit"])
    found = ranked(read_scores([tmp_path / "apart"]))
    assert {len(group) for group in found.groups["wit"]} == {1}
    assert found.untested["wit"] == (("a", "b", "no instruction has both"),)


def test_rank_prints_the_differences_with_their_intervals_and_says_in_a_sentence_what_they_mean(
    judged: Callable[..., tuple[Path, Path]], cli: Cli
) -> None:
    near, _ = judged([3, 3, 2, 4, 4, 3, 3, 4, 5, 4, 2, 3], [None] * 12, name="near")
    out = cli("rank", near, "--all").out
    assert "Differences in wit, with 95 % intervals" in out
    (pair,) = json.loads(cli("rank", near, "--json").out)["pairs"]
    value, low, high = (-pair["difference"][end] for end in ("value", "high", "low"))
    said = " ".join(out.split())
    assert f"b minus a {value:.2f} {pair['p']:.2f}".replace(" 0.", " .").replace(" .", " 0.", 1) in said
    assert (
        "On 6 instructions, b and a have no significant difference in wit "
        f"(b minus a: {value:.2f}, 95 % interval {low:.2f} to {high:.2f}, p = {pair['p']:.2f})."
    ).replace("p = 0", "p = ") in said

    apart, _ = judged([5, 1, 4, 1, 5, 2] * 8, [None] * 48, name="apart")
    said = " ".join(cli("rank", apart).out.split())
    assert "On 24 instructions, a is significantly higher than b in wit (by 3.33, " in said
    assert ", p < .001)." in said


def test_rank_prints_the_differences_of_neighbours_if_the_systems_are_many(
    judged: Callable[..., tuple[Path, Path]], cli: Cli
) -> None:
    def differences(systems: str) -> int:
        scores = [1 + (n * 7 + n // len(systems)) % 5 for n in range(6 * len(systems))]
        run, _ = judged(scores, [None] * len(scores), name=systems, systems=systems)
        return cli("rank", run, "--all", "--resamples", 100).out.split("Differences in")[1].count(" minus ")

    assert (differences("abcdef"), differences("abcdefg")) == (15, 6)


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.35])
def test_an_interval_excludes_0_exactly_if_the_adjusted_p_is_below_5_percent(shift: float) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((60, 12)) + shift
    found = studentise(averages(values, np.arange(60), 60), symmetric=True, resamples=999)
    together, adjusted = found.simultaneous(), found.adjusted()
    assert (((together.low > 0) | (together.high < 0)) == (adjusted < 0.05)).all()
    assert (together.high - together.low > found.high - found.low).all()
    for k in range(12):
        reached = (np.abs(found.null_t).max(axis=1) >= abs(found.value[k] / found.error[k])).sum()
        assert adjusted[k] == pytest.approx((1 + reached) / 1000, **EXACT)
    one = studentise(averages(values[:, :1], np.arange(60), 60), symmetric=True, resamples=999)
    assert one.simultaneous().low[0] == pytest.approx(one.low[0], abs=0.01)


def test_runs_of_two_judges_are_not_ranked_together(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", rows(*noisy(8)))
    for judge in ("one", "two"):
        import_scores([str(file)], tmp_path / judge, ["wit"], judge=judge)
    with pytest.raises(UsageError, match="another model than"):
        rank(read_scores([tmp_path / "one", tmp_path / "two"]))


def test_prediction_powered_means_are_those_of_the_paper() -> None:
    rng = np.random.default_rng(2)
    human = rng.integers(1, 6, 300).astype(float)
    judge = 0.5 * human + rng.standard_normal(300)
    known = np.arange(300) < 60
    rows_ = np.arange(300, dtype=np.int32)
    found = prediction_powered(judge, known, human[known], rows_, 300)
    y, f, g = human[:60].tolist(), judge[:60].tolist(), judge[60:].tolist()
    my, mf = math.fsum(y) / 60, math.fsum(f) / 60
    every = f + g
    m = math.fsum(every) / 300
    spread = math.fsum((v - m) ** 2 for v in every) / 299
    shared = math.fsum((a - my) * (b - mf) for a, b in zip(y, f, strict=True)) / 60
    tuning = shared / ((1 + 60 / 240) * spread)
    mean = tuning * math.fsum(g) / 240 + math.fsum(a - tuning * b for a, b in zip(y, f, strict=True)) / 60
    variance = np.var(np.array(y) - tuning * np.array(f)) / 60 + tuning**2 * np.var(g) / 240
    assert power_tuning(np.array(f), np.array(g), np.array(y)) == pytest.approx(tuning, **EXACT)
    assert found.value[0] == pytest.approx(mean, **EXACT)
    assert (found.shares**2).sum() >= variance * (1 - 1e-9)
    assert (found.shares**2).sum() == pytest.approx(variance, rel=0.1)
    all_known = prediction_powered(judge[:60], np.ones(60, dtype=bool), human[:60], rows_[:60], 60)
    assert all_known.value[0] == pytest.approx(my, **EXACT)


def test_a_few_labels_move_the_means_to_the_human_score(judged: Callable[..., tuple[Path, Path]]) -> None:
    _, human = noisy(400)
    kind = [min(5, value + 1) for value in human]
    run, file = judged(kind, [label if n % 8 < 2 else None for n, label in enumerate(human)])
    scores = read_scores([run])
    labels = read_labels([str(file)], scores, {"human": "wit"})
    found = ranked(scores, labels=labels)
    assert found.basis == "human"
    for system in found.systems:
        truth = np.mean(human["ab".index(system.name) :: 2])
        assert system.human is not None
        mean = system.human["wit"]
        assert mean.low is not None
        assert mean.high is not None
        assert mean.low < truth < mean.high
        judged_mean = system.means["wit"]
        assert judged_mean.low is not None
        assert judged_mean.low > truth


def test_aspects_without_labels_are_ranked_by_the_judge(tmp_path: Path, cli: Cli) -> None:
    score, human = noisy(40)
    both = [{**row, "scores": {"wit": n, "tact": n}} for row, n in zip(rows(score, human), score, strict=True)]
    file = write(tmp_path / "rows.jsonl", both)
    import_scores([str(file)], tmp_path / "run", ["wit", "tact"])
    ended = cli(
        "rank", tmp_path / "run", "--labels", file, "--map", "wit=human", "--map", "tact=gone", "--json"
    )
    found = json.loads(ended.out)
    assert found["basis"] == "judge"
    assert "no labels of tact, overall: their ranks follow from the judge's scores" in found["notes"]
    for system in found["systems"]:
        assert system["human"]["wit"]["low"] is not None
        assert Estimate(**system["human"]["tact"]) == Estimate(**system["human"]["overall"]) == UNDEFINED


def test_an_interval_depends_on_its_seed_alone_and_a_constant_has_none() -> None:
    column = np.array(noisy(60)[0], dtype=float)[:, None]
    group = np.repeat(np.arange(30), 2)
    once, again = (studentise(averages(column, group, 30), 1, 5, seed=4).estimates() for _ in range(2))
    assert once == again != studentise(averages(column, group, 30), 1, 5, seed=5).estimates()
    constant = studentise(averages(np.full((60, 1), 4.0), group, 30)).estimates()
    assert constant == [Estimate(4.0)]
    nothing = Contributions(np.array([np.nan]), np.zeros((30, 1)), np.zeros(1))
    assert studentise(nothing).estimates() == [UNDEFINED]


@pytest.fixture
def jurors(tmp_path: Path) -> list[Path]:
    """Return the runs of three judges of the same rows; the scores of the third are reversed."""
    score, human = noisy(60)
    rng = np.random.default_rng(9)
    near = np.clip(np.array(score) + rng.integers(0, 2, 60), 1, 5)
    for name, own in (("first", score), ("second", near.tolist()), ("third", [6 - value for value in score])):
        import_scores(
            [str(write(tmp_path / f"{name}.jsonl", rows(own, human)))], tmp_path / name, ["wit"], judge=name
        )
    return [tmp_path / name for name in ("first", "second", "third")]


def test_a_jury_names_the_odd_one(jurors: list[Path]) -> None:
    found = compare_judges(jurors, resamples=FEW)
    assert found.outlier == "third"
    table = np.array([[line["wit"] for line in read_lines(juror)] for juror in jurors])
    aspect = found.aspects["wit"]
    assert aspect.level == "ordinal"
    assert aspect.alpha.value == pytest.approx(textbook_alpha(table.T.astype(float).tolist()), **EXACT)
    assert aspect.split == np.mean(np.ptp(table, axis=0) >= 2)
    third = found.jurors[2]
    rest = table[:2].mean(axis=0)
    assert third.bias["wit"] == pytest.approx((table[2] - rest).mean(), **EXACT)
    assert compare_judges(jurors[:2], resamples=FEW).outlier is None


def test_the_jurys_scores_are_a_run_that_the_other_commands_read(
    jurors: list[Path], tmp_path: Path, cli: Cli
) -> None:
    out = tmp_path / "jury"
    assert cli("jury", *jurors, "--out", out, "--resamples", FEW).code == 0
    lines = list(read_lines(out))
    each = [list(read_lines(juror)) for juror in jurors]
    for line, *own in zip(lines, *each, strict=True):
        given = [one["wit"] for one in own]
        assert from_line(line, AnswerColumns({"wit": int})).status == "judged"
        assert line["wit"] == median(given)
        assert line["wit_expected"] == pytest.approx(np.mean(given))
        assert line["columns"]["jury"] == {
            name: {"wit": value} for name, value in zip(("first", "second", "third"), given, strict=True)
        }
    assert read_scores([out]).group.tolist() == read_scores([jurors[0]]).group.tolist()
    assert "jury" in json.loads((out / "run.json").read_text())
    labels = tmp_path / "first.jsonl"
    for command in (
        ("show", out), ("rank", out), ("agree", out, "--labels", labels, "--map", "wit=human"),
    ):  # fmt: skip
        ended = cli(*command)
        assert (ended.code, ended.err) == (0, "")
    again = cli("jury", *jurors, "--out", out, "--resamples", FEW)
    assert (again.code, "is not empty" in again.err) == (2, True)


def test_a_run_that_no_judge_has_made_cannot_be_repeated(jurors: list[Path], cli: Cli) -> None:
    end = cli("audit", "--check", "repeat", jurors[0])
    assert (end.code, "has scores of a jury or imported scores" in end.err) == (2, True)


def test_a_row_that_one_juror_failed_is_a_failure_of_the_jury(tmp_path: Path) -> None:
    score, human = noisy(10)
    for name, own in (("one", score), ("two", [None, *score[1:]])):
        import_scores(
            [str(write(tmp_path / f"{name}.jsonl", rows(own, human)))], tmp_path / name, ["wit"], judge=name
        )
    both = [tmp_path / "one", tmp_path / "two"]
    summary = write_jury(both, tmp_path / "jury")
    assert (summary.judged, summary.failed) == (9, 1)
    first = from_line(next(read_lines(tmp_path / "jury")), AnswerColumns({"wit": int}))
    assert isinstance(first, Failure)
    assert first.error.startswith("juror two failed:")
    found = compare_judges(both, resamples=FEW)
    assert (found.rows, found.not_shared) == (9, 1)


def test_a_jury_judges_the_same_rows(tmp_path: Path) -> None:
    score, human = noisy(6)
    import_scores([str(write(tmp_path / "one.jsonl", rows(score, human)))], tmp_path / "one", ["wit"])
    other = [{**row, "instruction": "Another?"} for row in rows(score, human)]
    import_scores([str(write(tmp_path / "two.jsonl", other))], tmp_path / "two", ["wit"])
    with pytest.raises(UsageError, match="6 of 6 rows of two have the id of a judged row, but another text"):
        compare_judges([tmp_path / "one", tmp_path / "two"])
    import_scores(
        [str(write(tmp_path / "three.jsonl", rows(score, human)))], tmp_path / "three", ["wit"], (1, 9)
    )
    for refuse in (lambda runs: compare_judges(runs), lambda runs: write_jury(runs, tmp_path / "jury")):
        with pytest.raises(UsageError, match=r"judged on wit \(1 to 9\), but"):
            refuse([tmp_path / "one", tmp_path / "three"])
    with pytest.raises(UsageError, match="needs at least two runs"):
        compare_judges([tmp_path / "one"])


def test_a_median_is_a_score() -> None:
    assert [median(given) for given in ([1, 5, 4], [1, 2], [1, 3, 5, 5], [1, 1, 3, 5])] == [4, 1, 3, 3]


def pooled(label: Sequence[float]) -> list[float]:
    """Compute isotonic regression by pooling adjacent violators (Barlow et al. 1972)."""
    blocks: list[list[float]] = []
    for value in label:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) >= np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [float(np.mean(block)) for block in blocks for _ in block]


def calibrated(run: Path, file: Path) -> tuple[Scores, Labels, Calibration]:
    scores = read_scores([run])
    labels = read_labels([str(file)], scores, {"human": "wit"})
    return scores, labels, fit(scores, labels, resamples=FEW)


def test_a_calibration_is_the_nearest_map_that_never_falls(judged: Callable[..., tuple[Path, Path]]) -> None:
    score, human = noisy(200)
    squeezed = [3 + (value - 3) / 4 + n / 1000 for n, value in enumerate(score)]
    scores, _, found = calibrated(*judged(squeezed, human))
    order = np.argsort(squeezed, kind="stable")
    expected = pooled([float(human[place]) for place in order])
    mapped = found.apply("wit", scores.column("wit", "expected"))
    assert mapped[order].tolist() == pytest.approx(expected, **EXACT)
    aspect = found.aspects["wit"]
    assert aspect.gain.low is not None
    assert aspect.gain.low > 0
    assert aspect.mse_as_judged is not None
    assert aspect.mse_calibrated is not None
    assert aspect.mse_as_judged > aspect.mse_calibrated


def test_a_calibration_that_gains_nothing_says_so(judged: Callable[..., tuple[Path, Path]], cli: Cli) -> None:
    rng = np.random.default_rng(0)
    run, file = judged(rng.integers(3, 5, 60).tolist(), rng.integers(3, 5, 60).tolist())
    ended = cli("calibrate", run, "--labels", file, "--map", "wit=human", "--out", run / "map.json")
    assert ended.code == 0
    found = Calibration.load(run / "map.json").aspects["wit"]
    assert not found.has_gain
    assert found.has_gain != ("No gain is shown for wit" in ended.out)
    warned = (
        f"{run / 'map.json'}: will have no map that --calibration applies, because no gain is shown for wit"
    )
    assert warned in " ".join(ended.err.split())
    flat, file = judged([3] * 10, [1, 2] * 5, name="flat")
    with pytest.raises(UsageError, match="nothing to fit"):
        calibrated(flat, file)


def test_a_calibration_changes_reports_and_no_stored_score(
    judged: Callable[..., tuple[Path, Path]], tmp_path: Path, cli: Cli
) -> None:
    score, human = noisy(80)
    run, file = judged([max(1, value - 1) for value in score], human)
    labels = ("--labels", file, "--map", "wit=human")
    before = (run / "judgements.jsonl").read_bytes()
    assert cli("calibrate", run, *labels, "--out", tmp_path / "map.json").code == 0
    ended = cli("rank", run, *labels, "--calibration", tmp_path / "map.json", "--json")
    assert "fitted on labels of 80 of these 80 labelled rows" in ended.out
    plain, mapped = (
        json.loads(cli("rank", run, "--json", *more).out)["systems"][0]["means"]["wit"]["value"]
        for more in ((), ("--calibration", tmp_path / "map.json"))
    )
    assert mapped > plain
    assert (run / "judgements.jsonl").read_bytes() == before
    import_scores([str(file)], tmp_path / "other", ["wit"], judge="another")
    refused = cli("rank", tmp_path / "other", "--calibration", tmp_path / "map.json")
    assert (refused.code, "fitted for elsewhere" in refused.err) == (2, True)
    (tmp_path / "map.json").write_text('{"format": 1}')
    ended = cli("rank", run, "--calibration", tmp_path / "map.json")
    assert (ended.code, "make it again with localjudge calibrate" in ended.err) == (2, True)


@pytest.fixture
def mapped(tmp_path: Path, cli: Cli) -> tuple[Path, Path, Path]:
    """Return a run with four aspects, its labels, and its calibration: two aspects with a gain, one without."""
    score, human = noisy(120)
    low = [max(1, value - 2) for value in score]
    near = np.clip(np.array(score) + np.random.default_rng(4).integers(-1, 2, 120), 1, 5).tolist()
    given = [
        {**row, "scores": {"wit": a, "tact": a, "depth": row["scores"]["wit"], "clarity": a}}
        for row, a in zip(rows(score, human), low, strict=True)
    ]
    import_scores(
        [str(write(tmp_path / "rows.jsonl", given))], tmp_path / "run", ["wit", "tact", "depth", "clarity"]
    )
    labels = [
        {"id": row["id"], "wit": a, "tact": a, "depth": b} for row, a, b in zip(given, human, near, strict=True)
    ]
    known = write(tmp_path / "labels.jsonl", labels)
    ended = cli("calibrate", tmp_path / "run", "--labels", known, "--out", tmp_path / "map.json")
    assert "No gain is shown for depth:" in ended.out
    return tmp_path / "run", known, tmp_path / "map.json"


def test_calibrated_scores_say_so_and_stand_beside_no_others(mapped: tuple[Path, Path, Path], cli: Cli) -> None:
    run, _, calibration = mapped
    found = json.loads(cli("rank", run, "--calibration", calibration, "--json").out)
    assert (found["of"], found["columns"]) == ("calibrated", ["wit", "tact", "overall"])
    assert found["notices"] == ["calibrated: wit, tact; left out: clarity (no map), depth (no gain is shown)"]
    for system in found["systems"]:
        means = {name: mean["value"] for name, mean in system["means"].items()}
        assert means["overall"] == pytest.approx((means["wit"] + means["tact"]) / 2, **EXACT)
    ended = cli("rank", run, "--calibration", calibration)
    assert ended.out.startswith("calibrated: wit, tact; left out: clarity")
    assert "\nMean calibrated scores, each instruction with the same weight · calibrated\n" in ended.out
    assert not re.search("depth|clarity", ended.out.partition("Mean calibrated")[2])
    assert json.loads(cli("rank", run, "--json").out)["of"] == "integer"


def test_labels_that_a_map_was_fitted_on_are_counted_and_without_a_map_nothing_is_ranked(
    mapped: tuple[Path, Path, Path], cli: Cli, tmp_path: Path
) -> None:
    run, labels, calibration = mapped
    flags = ("--calibration", calibration, "--json")
    ranked = json.loads(cli("rank", run, "--labels", labels, *flags).out)
    fitted = "; fitted on labels of 120 of these 120 labelled rows"
    assert ranked["notices"][0].partition(fitted)[::2] == (
        json.loads(cli("rank", run, *flags).out)["notices"][0],
        ", so the scores fit these labels better than new ones; the calibration file has its gain on unseen "
        "instructions",
    )
    document = json.loads(calibration.read_text())
    document["aspects"] = {"depth": document["aspects"]["depth"]}
    calibration.write_text(json.dumps(document))
    ended = cli("rank", run, *flags)
    assert (ended.code, ended.out) == (2, "")
    assert "--calibration: no aspect is left to calibrate: wit, tact, clarity (no map), depth" in ended.err


def test_a_report_of_calibrated_scores_covers_the_calibrated_aspects_and_says_so(
    mapped: tuple[Path, Path, Path], cli: Cli, tmp_path: Path
) -> None:
    run, labels, calibration = mapped
    page = tmp_path / "report.html"
    ended = cli("report", run, "--labels", labels, "--calibration", calibration, "--out", page)
    assert ended.code == 0
    assert ended.err.startswith("calibrated: wit, tact; left out: clarity (no map)")
    packed = re.search(r'id="data-head">([^<]*)<', page.read_text())
    assert packed
    head = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    main, aspects, *_ = head["sections"]["systems"]["tables"]
    assert "Mean calibrated scores" in main["caption"]
    names = [column["name"] for table in (main, aspects) for column in table["columns"]]
    assert [name for name in names if name in ("overall", "wit", "tact", "clarity", "depth")] == [
        "overall",
        "wit",
        "tact",
    ]


def test_a_calibration_keeps_the_notices_of_the_run_that_it_was_fitted_on(
    mapped: tuple[Path, Path, Path], cli: Cli
) -> None:
    run, labels, calibration = mapped
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "inherited_notices": ["dry run (one): no model"]}))
    assert cli("calibrate", run, "--labels", labels, "--out", calibration).out.startswith("dry run (one): ")
    (run / "run.json").write_text(json.dumps(about))
    (notice,) = json.loads(cli("rank", run, "--calibration", calibration, "--json").out)["notices"]
    assert notice.endswith("; fitted on scores with notices (dry run (one))")


def test_scores_made_elsewhere_become_a_run(tmp_path: Path, cli: Cli) -> None:
    file = write(tmp_path / "rows.jsonl", rows([1.5, 4, None, 5], [1] * 4))
    made = cli("import", file, "--out", tmp_path / "run", "--aspect", "wit", "--judge", "people")
    assert (made.code, "3 judged, 1 failed" in made.err) == (0, True)
    lines = list(read_lines(tmp_path / "run"))
    assert [line["wit"] for line in lines] == [2, 4, None, 5]
    assert [line["wit_expected"] for line in lines] == [1.5, 4, None, 5]
    assert lines[2]["error"].endswith("rows.jsonl:3: no score of wit")
    for bad, message in (
        (("--aspect", "wit", "--scale", "5"), "write LOWEST-HIGHEST"),
        (("--aspect", "wit", "--scale", "1-4"), "wit is 5, outside the scale 1 to 4"),
        (("--aspect", "Wit"), "is not a column name"),
        (("--aspect", "tact"), "no row has a score of tact"),
    ):
        ended = cli("import", file, "--out", tmp_path / "bad", *bad)
        assert (ended.code, message in ended.err) == (2, True)
    assert not list(tmp_path.glob("bad*"))


def test_json_has_no_number_where_nothing_is_defined(
    judged: Callable[..., tuple[Path, Path]], cli: Cli
) -> None:
    run, file = judged([4] * 12, [4] * 12)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for command in (
        ("agree", run, "--labels", file, "--map", "wit=human"),
        ("rank", run, "--labels", file, "--map", "wit=human"),
        ("rank", run),
    ):
        json.loads(cli(*command, "--json").out, parse_constant=refuse)
        ended = cli(*command, "--all")
        assert ended.code == 0
        assert "nan" not in ended.out.lower().replace("finance", "")


def test_agree_begins_with_a_verdict_and_what_is_missing_for_it(
    judged: Callable[..., tuple[Path, Path]], cli: Cli
) -> None:
    _, human = noisy(120)
    score = [label if at % 5 else 6 - label for at, label in enumerate(human)]

    def said(name: str, scores: list[int], labels: list[int], *more: str) -> str:
        run, file = judged(scores, labels, name=name)
        out = cli("agree", run, "--labels", file, "--map", "wit=human", "--resamples", 100, *more).out
        return " ".join(out.split())

    verdict = r"This judge orders responses as people do in \S+ \(\S+ to \S+\) of the pairs, [a-z ]+ in \S+: "
    assert re.match(verdict + r"it is better by 0\.\d\d \(", said("good", score, human))
    assert re.match(verdict + r"it is worse by 0\.\d\d \(", said("backwards", score, [6 - at for at in human]))
    assert "over chance" in said("whole", score, human, "--all")
    perfect = said("perfect", [1, 5] * 30, [1, 5] * 30)
    assert "it is better by" in perfect
    assert "Nothing shows" not in perfect, "its share over chance is the same on all instructions, but not 0"
    few = said("few", [1, 2, 4, 5, 3, 2], [1, 3, 4, 5, 2, 2])
    assert "which is better is unknown (" in few
    assert "because the difference has no interval: it depends on fewer than 8 instructions" in few
    none = said("none", [1, 2, 4], [1, 3, 4])
    assert none.startswith("Over all rows, this judge has a rank correlation with the labels of 1.00")
    assert "which is better is unknown" in none
    constant = said("constant", [3] * 20, [1, 2, 3, 4] * 5)
    assert "Nothing shows that this judge reads the responses" in constant


def test_tables_fit_a_terminal_and_show_text_as_text(tmp_path: Path, cli: Cli) -> None:
    score, human = noisy(40)
    names = ("safety", "engagement", "clarity", "factuality", "depth", "helpfulness")
    wide = [
        {
            **row,
            "system": f"[red]a\x1b[31m{row['system']}",
            "scores": dict.fromkeys(names, row["scores"]["wit"]),
        }
        for row in rows(score, human)
    ]
    file = write(tmp_path / "rows.jsonl", wide)
    aspects = [word for name in names for word in ("--aspect", name)]
    assert cli("import", file, "--out", tmp_path / "run", *aspects).code == 0
    for command in (("rank",), ("agree", "--labels", file, "--map", "depth=human")):
        ended = cli(command[0], tmp_path / "run", *command[1:], "--all")
        assert ended.code == 0
        assert "\x1b" not in ended.out
        assert max(map(len, ended.out.splitlines())) <= 120
    assert "[red]a" in cli("rank", tmp_path / "run").out
