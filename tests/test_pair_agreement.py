"""Tests of agreement on pairs: statistics against independent computations, and labels in usual layouts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, row_lines
from scipy.stats import binomtest
from scripted import Taste, scripted_comparison
from sklearn.metrics import cohen_kappa_score, roc_auc_score
from test_input_formats import save_dataset

from localjudge import UsageError
from localjudge.matching.judged_rows import JudgedPairs, read_judged_pairs, read_scores
from localjudge.matching.labels import read_labels
from localjudge.report.pair_agreement_tables import pair_agreement_notes
from localjudge.runs.pipeline import score_run
from localjudge.runs.row_source import RowSource
from localjudge.statistics import agreement_statistics
from localjudge.statistics.krippendorff import alpha
from localjudge.studies.jury import compare_judges
from localjudge.studies.jury_run import write_jury
from localjudge.studies.pair_agreement import LabelledPairs, PairAgreement, agree_on_pairs

FEW = 200
EXACT: dict[str, Any] = {"rel": 1e-9, "abs": 1e-9}
Records = list[dict[str, Any]]


def write(file: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def labelled_pairs(labels: Sequence[Any], **columns: Any) -> Records:
    """Return a pair for each label; the first response is the longer one in three of five."""
    return [
        {
            "id": f"p{n}",
            "instruction": f"Question {n}?",
            "candidate_a": f"{n} " + "word " * (1 + n % 5),
            "candidate_b": f"{n} word word" + " too" * (n % 2),
            "label": label,
            **columns,
        }
        for n, label in enumerate(labels)
    ]


Run = Callable[..., Path]


@pytest.fixture
def judged(tmp_path: Path, model: Path) -> Run:
    """Return a run of pairs by a judge with this taste."""

    def make(taste: Taste, records: Records, rubric: str = "pairwise", name: str = "run") -> Path:
        file = write(tmp_path / f"{name}.jsonl", records)
        judge = scripted_comparison(model, taste, rubric)
        score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), tmp_path / name)
        return tmp_path / name

    return make


def agreement(run: Path, *files: Path, **mapping: str) -> PairAgreement:
    pairs = read_judged_pairs([run])
    return agree_on_pairs(pairs, read_labels([*map(str, files)], pairs, mapping), FEW)


def always_first(first: str, second: str) -> float:
    return 1.0


def longer(first: str, second: str) -> float:
    return 0.5 if len(first) == len(second) else float(len(first) > len(second))


def values(found: LabelledPairs, name: str) -> list[float | None]:
    each = found.comparisons[name]
    return [each.accuracy.value, each.without_ties.value, each.kappa.value, each.auc.value]


def marked(first: str, second: str) -> float:
    """The taste of a judge that prefers a response with the word `right`."""
    return 0.5 + (("right" in first) - ("right" in second)) / 2


def marked_pairs(labels: str) -> Records:
    pairs = labelled_pairs([{"a": "a", "b": "b", "t": "tie"}[label] for label in labels])
    for pair in pairs:
        if pair["label"] != "tie":
            pair[f"candidate_{pair['label']}"] += " right"
    return pairs


def test_a_judge_that_knows_the_labels_agrees_wholly_in_every_order(judged: Run) -> None:
    found = agreement(judged(marked, marked_pairs("aabtabbbat"))).aspects["better"]
    for name in ("both orders", "input order", "reverse order"):
        assert values(found, name) == [1, 1, 1, 1]
    assert found.labels == {"a": 4, "tie": 2, "b": 4}
    assert found.consistency.value == 1
    assert (found.pairs, found.instructions, found.annotators) == (10, 10, 1)
    assert found.alpha.value is None


def test_a_judge_that_always_prefers_the_first_place_is_right_in_half_of_the_pairs(judged: Run) -> None:
    found = agreement(judged(always_first, marked_pairs("aaabaaab"))).aspects["better"]
    assert values(found, "both orders") == [0.5, None, 0, 0.5]
    assert found.comparisons["both orders"].decided == 0
    assert values(found, "input order") == values(found, "first wins") == [0.75, 0.75, 0, 0.75]
    assert values(found, "reverse order")[0] == 0.25
    assert found.consistency.value == 0


def test_the_shares_of_decided_pairs_have_exact_intervals(judged: Run) -> None:
    pairs = marked_pairs("ab" * 9)
    for pair in pairs[3:]:  # nothing but the place decides these
        pair["candidate_a"] = pair["candidate_b"] = "same"
    found = agreement(judged(lambda a, b: 0.9 if a == b else marked(a, b), pairs)).aspects["better"]
    exact = binomtest(3, 18).proportion_ci()
    assert dataclasses.astuple(found.consistency)[:3] == pytest.approx((3 / 18, exact.low, exact.high), **EXACT)
    right = found.comparisons["input order"].without_ties
    assert (right.low, right.high) == pytest.approx(tuple(binomtest(10, 18).proportion_ci()), **EXACT)
    assert found.comparisons["both orders"].without_ties.low is None, "three pairs are too few"


def test_a_judge_that_prefers_the_longer_response_is_the_baseline_of_the_longer_one(judged: Run) -> None:
    found = agreement(judged(longer, labelled_pairs("abbaabababbaab"))).aspects["better"]
    assert values(found, "both orders")[:3] == values(found, "longer wins")[:3]
    assert found.comparisons["longer wins"].accuracy.low is not None


def test_the_verdict_of_both_orders_is_right_where_the_place_decides_none(judged: Run) -> None:
    def leans(first: str, second: str) -> float:
        return min(1.0, 0.35 + 0.6 * marked(first, second))  # the better one wins with 0.95, and loses never

    found = agreement(judged(leans, marked_pairs("aabbabab"))).aspects["better"]
    assert values(found, "both orders")[0] == 1
    assert values(found, "input order")[0] == pytest.approx(1)
    wrong = agreement(judged(lambda a, b: 0.6 + 0.3 * marked(a, b), marked_pairs("aabbabab"), name="2"))
    found = wrong.aspects["better"]
    assert (values(found, "both orders")[0], values(found, "input order")[0]) == (0.5, 0.5), "all are ties"
    assert found.consistency.value == 0


@pytest.fixture
def noisy(judged: Run) -> JudgedPairs:
    """Pairs with random verdicts, several of one instruction."""
    records = labelled_pairs("a" * 60)
    for n, record in enumerate(records):
        record["instruction"] = f"Question {n // 3}?"
    return read_judged_pairs([judged(longer, records)])


def test_the_statistics_are_those_of_their_definitions(noisy: JudgedPairs, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    preference = rng.random((60, 3)).round(1)
    preference[:, 0] = preference[:, 1:].mean(axis=1)
    result = np.where(np.abs(preference - 0.5) < 0.1, 0.5, preference > 0.5)
    verdicts = replace(noisy.aspects["better"], preference=preference, result=result)
    pairs = replace(noisy, aspects={"better": verdicts})
    labels = rng.choice(["a", "tie", "b"], 60, p=[0.5, 0.2, 0.3])
    file = write(tmp_path / "labels.jsonl", ({"id": f"p{n}", "label": label} for n, label in enumerate(labels)))
    found = agree_on_pairs(pairs, read_labels([str(file)], pairs), resamples=FEW).aspects["better"]
    human = np.array([{"a": 1.0, "tie": 0.5, "b": 0.0}[label] for label in labels])
    for place, name in enumerate(("both orders", "input order", "reverse order")):
        given, own = found.comparisons[name], result[:, place]
        credit = [1.0 if x == y else 0.5 if 0.5 in (x, y) else 0.0 for x, y in zip(own, human, strict=True)]
        assert given.accuracy.value == pytest.approx(sum(credit) / 60, **EXACT)
        decided = [(x, y) for x, y in zip(own, human, strict=True) if 0.5 not in (x, y)]
        assert given.decided == len(decided)
        assert given.without_ties.value == pytest.approx(
            sum(x == y for x, y in decided) / len(decided), **EXACT
        )
        assert given.kappa.value == pytest.approx(
            cohen_kappa_score((own * 2).astype(int), (human * 2).astype(int)), **EXACT
        )
        liked, shares = human != 0.5, preference[:, place]
        both = np.r_[shares[liked], 1 - shares[liked]], np.r_[human[liked], 1 - human[liked]]
        assert given.auc.value == pytest.approx(roc_auc_score(both[1], both[0].round(9)), **EXACT)
        for estimate in (given.accuracy, given.without_ties, given.kappa, given.auc):
            assert estimate.low is not None
            assert estimate.low < (estimate.value or 0) < (estimate.high or 0)
    assert found.instructions == 20


def test_pairs_drawn_with_unequal_chances_have_the_weight_of_their_inverse(
    noisy: JudgedPairs, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    labels, chance = rng.choice(["a", "tie", "b"], 60), rng.choice([0.2, 0.5, 1.0], 60)

    def found(name: str, chances: Iterable[float]) -> LabelledPairs:
        own = {"skipped": None, "saw_judge": False}
        records = [
            {"id": f"p{n}", "annotator": "Ann", "label": own | {"row": str(n), "chance": one}, "better": label}
            for n, (label, one) in enumerate(zip(labels.tolist(), chances, strict=True))
        ]
        file = write(tmp_path / name, records)
        known = read_labels([str(file)], noisy, equal_chances=False)
        return agree_on_pairs(noisy, known, resamples=FEW).aspects["better"]

    uneven, even = found("uneven.jsonl", chance.tolist()), found("even.jsonl", [0.3] * 60)
    result = noisy.aspects["better"].result[:, 0]
    human = np.array([{"a": 1.0, "tie": 0.5, "b": 0.0}[label] for label in labels])
    credit = 1 - np.abs(human - result)
    accuracies = [next(iter(each.comparisons.values())).accuracy.value for each in (uneven, even)]
    assert accuracies == pytest.approx([np.average(credit, weights=1 / chance), credit.mean()], **EXACT)
    for comparison in uneven.comparisons.values():
        assert comparison.kappa.value is not None
    with pytest.raises(UsageError, match="unequal chances"):
        read_labels([str(tmp_path / "uneven.jsonl")], noisy)


def test_the_auc_of_weighted_rows_is_that_of_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 40).astype(float), rng.integers(0, 2, 40).astype(float)
    weights = rng.multinomial(40, np.full(40, 1 / 40), size=20).astype(float)
    for drawn, found in zip(weights, agreement_statistics.auc(x, y, weights), strict=True):
        again = np.repeat(y, drawn.astype(int)), np.repeat(x, drawn.astype(int))
        assert found == pytest.approx(roc_auc_score(*again), **EXACT)
    assert np.isnan(agreement_statistics.auc(x, np.ones(40), weights)).all()


@pytest.mark.parametrize(
    ("first", "tie", "second"),
    [
        ("a", "tie", "b"),
        ("A", "Tie", "B"),
        (1, "tie", 2),
        ("1", "tie", "2"),
        (1.0, 1.5, 2.0),
        (1.02, 1.5, 1.97),
        ("A>B", "A=B", "B>A"),
        ("A>>B", "B=A", "A<<B"),
        ("[[A>B]]", "[[A=B]]", "[[B>A]]"),
        ("model_a", "tie (bothbad)", "model_b"),
        ("response_A", "same", "response_B"),
        ("llama", "tie", "mistral"),
    ],
)
def test_a_label_is_understood_in_its_usual_spellings(
    judged: Run, tmp_path: Path, first: Any, tie: Any, second: Any
) -> None:
    given = labelled_pairs([first, tie, second, None, "N/A"], system_a="Llama", system_b="Mistral")
    run = judged(longer, given)
    assert agreement(run).aspects["better"].labels == {"a": 1, "tie": 1, "b": 1}


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (
            ["a", "left?"],
            "'label' holds 'left?', which is not a label; labels are a, b, tie, 1, 2, A>B, A=B, or",
        ),
        ([True, False], "'label' holds 'True', which is not a label"),
        (
            [0, 1, 1, 0],
            "'label' has the numbers 0, 1, and 0 can be a tie or the first response; say what they are: "
            "`mapping` better=label:0=tie,1=a,2=b or `mapping` better=label:0=a,1=b,2=tie",
        ),
        ([None, ""], "no label of better; its columns are"),
    ],
)
def test_a_value_that_is_no_label_is_refused_in_one_line(
    judged: Run, labels: Sequence[Any], reason: str
) -> None:
    with pytest.raises(UsageError) as refused:
        agreement(judged(longer, labelled_pairs(labels)))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_labels_are_found_by_id_by_texts_in_either_order_and_by_systems(judged: Run, tmp_path: Path) -> None:
    given = labelled_pairs("aab", system_a="x", system_b="y")
    run = judged(longer, given)
    texts = [
        {"prompt": pair["instruction"], "response_a": pair["candidate_b"], "response_b": pair["candidate_a"]}
        for pair in given
    ]
    flipped = [{**each, "label": label} for each, label in zip(texts, "bba", strict=True)]
    by_system = [{"id": f"p{n}", "winner": name} for n, name in enumerate("xxy")]
    reversed_systems = [
        {"id": f"p{n}", "model_a": "y", "model_b": "x", "label": label} for n, label in enumerate("bba")
    ]
    other = [{"id": "unknown", "label": "a"}]
    for n, records in enumerate((flipped, by_system, reversed_systems, given)):
        found = agreement(run, write(tmp_path / f"labels{n}.jsonl", [*records, *other]))
        assert found.aspects["better"].labels == {"a": 2, "tie": 0, "b": 1}
        assert pair_agreement_notes(found)[0] == "1 of 4 label records match no judged pair"
        assert len(pair_agreement_notes(found)) == 1 + (records is by_system), (
            "by id alone, if only the winner is named"
        )
    with pytest.raises(UsageError, match="none of its 1 records matches a pair"):
        agreement(run, write(tmp_path / "none.jsonl", other))


def test_without_the_inputs_the_labels_are_those_that_the_run_kept(
    cli: Cli, judged: Run, tmp_path: Path
) -> None:
    run = judged(marked, marked_pairs("aabt"))
    moved = (tmp_path / "run.jsonl").rename(tmp_path / "moved.jsonl")
    found = agreement(run).aspects["better"]
    assert (found.labels, values(found, "both orders")[0]) == ({"a": 2, "tie": 1, "b": 1}, 1)
    assert "longer wins" in found.comparisons, "a line has the lengths"
    end = cli("agree", run, "--inputs", moved, "--json", "--resamples", FEW)
    comparisons = json.loads(end.out)["aspects"]["better"]["comparisons"]
    assert (comparisons["both orders"]["accuracy"]["value"], "longer wins" in comparisons) == (1, True)


def test_pairs_with_the_same_id_are_told_apart_by_texts_or_systems(judged: Run, tmp_path: Path) -> None:
    given = [pair | {"id": "same", "system_a": f"s{n}"} for n, pair in enumerate(labelled_pairs("aab"))]
    run = judged(longer, [pair | {"system_b": "base"} for pair in given])
    with pytest.raises(
        UsageError,
        match=r"3 judged pairs have the id of this record \(same\); add the column system_a",
    ):
        agreement(run, write(tmp_path / "ids.jsonl", [{"id": "same", "label": "a"}]))
    named = {"id": "same", "system_a": "s2", "system_b": "base", "label": "b"}
    assert agreement(run, write(tmp_path / "s.jsonl", [named])).aspects["better"].labels["b"] == 1
    assert agreement(run).aspects["better"].labels == {"a": 2, "tie": 0, "b": 1}


def test_the_verdicts_of_another_judge_are_labels_too(judged: Run, tmp_path: Path) -> None:
    pairs = marked_pairs("aabb")
    run, other = judged(marked, pairs), judged(always_first, pairs, name="other")
    found = agreement(run, write(tmp_path / "other.jsonl", row_lines(other))).aspects["better"]
    assert found.labels == {"a": 0, "tie": 4, "b": 0}


def test_several_annotators_have_an_agreement_of_their_own(judged: Run) -> None:
    votes: list[list[Any]] = [[1, 1, 2], [2, 2, 2], ["tie", 1, 2], [1, 1, 1], [2, 2, "tie"], ["tie"] * 3]
    given = labelled_pairs("abtabt")
    for pair, own in zip(given, votes, strict=True):
        pair["annotators"] = own
    found = agreement(judged(longer, given)).aspects["better"]
    assert (found.annotators, found.labels) == (3, {"a": 2, "tie": 2, "b": 2})
    counts = np.array([[own.count(1), own.count("tie"), own.count(2)] for own in votes], dtype=float)
    assert found.alpha.value == pytest.approx(alpha(counts, np.arange(3.0), "nominal"), **EXACT)
    records = [
        {"id": f"p{n}", "rater": name, "label": vote}
        for n, own in enumerate(votes)
        for name, vote in zip(("ann", "bob", "cy"), own, strict=True)
    ]
    one_a_line = agreement(judged(longer, given), write(judged(longer, given).parent / "l.jsonl", records))
    assert one_a_line.aspects["better"] == found


def named_pairs(pairs: Sequence[str], winners: Sequence[str]) -> Records:
    """Return pairs of the systems with these letters as names; `winner` has the label."""
    given = labelled_pairs([None] * len(pairs))
    for record, systems, winner in zip(given, pairs, winners, strict=True):
        record |= {"system_a": systems[0], "system_b": systems[1], "winner": winner}
    return given


def test_a_label_that_is_another_response_by_place_than_by_system_is_refused(judged: Run) -> None:
    run = judged(longer, named_pairs(["AB", "BA", "AB"], "AAB"))
    with pytest.raises(UsageError) as refused:
        agreement(run)
    for part in ("run.jsonl:2", "'winner'", "better=winner:A=a,B=b", "better=winner@system"):
        assert part in str(refused.value)
    assert agreement(run, **{"winner:A=a,B=b": "better"}).aspects["better"].labels == {"a": 2, "tie": 0, "b": 1}
    assert agreement(run, **{"winner@system": "better"}).aspects["better"].labels == {"a": 1, "tie": 0, "b": 2}


def test_labels_that_mean_the_same_by_place_and_by_system_are_read(judged: Run) -> None:
    run = judged(longer, named_pairs(["AB", "AB", "AB"], ["A", "B", "C"]))
    assert agreement(run).aspects["better"].labels == {"a": 1, "tie": 1, "b": 1}


def test_the_name_of_a_third_system_is_no_tie(judged: Run) -> None:
    run = judged(longer, named_pairs(["AB", "AC", "BC", "CA"], ["A", "C", "tie", "C"]))
    with pytest.raises(UsageError, match=r"run\.jsonl:2: 'winner' holds 'C'"):
        agreement(run)
    assert agreement(run, **{"winner@system": "better"}).aspects["better"].labels == {"a": 2, "tie": 1, "b": 1}


def test_a_comparison_of_systems_is_read_by_their_names(judged: Run) -> None:
    run = judged(longer, named_pairs(["AB", "BA", "BA"], ["A>B", "A>B", "A=B"]))
    with pytest.raises(UsageError, match=r"run\.jsonl:2: 'winner' holds 'A>B'"):
        agreement(run)
    assert agreement(run, **{"winner@system": "better"}).aspects["better"].labels == {"a": 1, "tie": 1, "b": 1}


def test_a_name_that_is_no_system_of_its_row_is_refused(judged: Run) -> None:
    run = judged(longer, named_pairs(["AB", "AC"], "AB"))
    with pytest.raises(UsageError, match=r"run\.jsonl:2: 'winner' holds 'B', which is neither 'A' nor 'C'"):
        agreement(run, **{"winner@system": "better"})


def test_the_verdicts_of_an_export_are_of_places_whatever_the_systems_are_called(
    judged: Run, tmp_path: Path
) -> None:
    pairs = named_pairs(["BA", "AB"], "AB")
    run, other = judged(longer, pairs), judged(always_first, pairs, name="other")
    found = agreement(run, write(tmp_path / "lines.jsonl", row_lines(other))).aspects["better"]
    assert found.labels == {"a": 0, "tie": 2, "b": 0}


def test_names_of_annotators_are_no_labels(judged: Run) -> None:
    found = agreement(judged(longer, labelled_pairs("ab", annotators=["ann", "bob"])))
    assert found.aspects["better"].labels == {"a": 1, "tie": 0, "b": 1}


def test_pairs_with_a_value_in_a_column_are_compared_by_themselves(judged: Run, cli: Cli) -> None:
    given = marked_pairs("aaaabbbb")
    for n, pair in enumerate(given):
        pair |= {"subset": "easy" if n % 2 else "hard", "length": n < 6}
        if n % 2 == 0:
            pair["label"] = {"a": "b", "b": "a"}[pair["label"]]
    run = judged(marked, given)
    assert values(agreement(run).aspects["better"], "both orders")[0] == 0.5
    for where, pairs, accuracy in (("subset=easy", 4, 1), ("subset=hard", 4, 0), ("length=true", 6, 0.5)):
        end = cli("agree", run, "--where", where, "--json", "--resamples", FEW)
        assert end.code == 0, end.err
        found = json.loads(end.out)
        assert f"only rows with {where}: {pairs} of 8" in found["notices"]
        better = found["aspects"]["better"]
        assert (better["pairs"], better["comparisons"]["both orders"]["accuracy"]["value"]) == (pairs, accuracy)


def test_a_label_of_several_aspects_is_mapped_to_one(judged: Run) -> None:
    run = judged(marked, marked_pairs("aabb"), "pairwise-aspects")
    with pytest.raises(UsageError, match="map a column with `mapping` safety=THEIRS"):
        agreement(run)
    found = agreement(run, label="helpfulness")
    assert [*found.aspects] == ["helpfulness"]
    assert values(found.aspects["helpfulness"], "both orders")[0] == 1


def test_the_longer_response_is_known_without_the_texts(judged: Run, tmp_path: Path) -> None:
    given = labelled_pairs("aab")
    run, labels = judged(longer, given), write(tmp_path / "labels.jsonl", given)
    before = agreement(run, labels)
    (tmp_path / "run.jsonl").unlink()
    found = agreement(run, labels)
    assert (found, pair_agreement_notes(found)) == (before, [])
    assert "longer wins" in found.aspects["better"].comparisons


FLAGS = ("--engine", "dry-run", "--rubric", "pairwise")
QUESTIONS = [
    ("What is it?", "It is a cat.", "It is."),
    ("Who?", "Me.", "It was you, I think."),
    ("Why?", "So.", "No."),
]


def layout(name: str) -> Records:
    """Return rows in the layout of a data set of pairs; the first response is better in two of three."""
    if name == "LLMBar":
        return [
            {"input": question, "output_1": one, "output_2": two, "label": label}
            for (question, one, two), label in zip(QUESTIONS, (1, 2, 1), strict=True)
        ]
    if name == "JudgeBench":
        return [
            {
                "pair_id": f"id-{n}", "original_id": f"{n}", "source": "maths", "question": question,
                "response_model": "small", "response_A": one, "response_B": two, "label": label,
            }
            for n, (question, one, two) in enumerate(QUESTIONS)
            for label in [("A>B", "B>A", "A>B")[n]]
        ]  # fmt: skip
    return [
        {
            "prompt": question, "chosen": one, "chosen_model": "large", "rejected": two,
            "rejected_model": "small", "subset": "chat" if n else "code", "id": 30 + n,
        }
        for n, (question, one, two) in enumerate(QUESTIONS)
    ]  # fmt: skip


@pytest.mark.parametrize("stored", ["lines.jsonl", "array.json", "saved"])
@pytest.mark.parametrize(
    ("name", "first", "longer_wins"),
    [("LLMBar", 2 / 3, 5 / 6), ("JudgeBench", 2 / 3, 5 / 6), ("RewardBench", 1, 0.5)],
)
def test_data_sets_of_pairs_are_read_as_they_come(
    cli: Cli, tmp_path: Path, name: str, stored: str, first: float, longer_wins: float
) -> None:
    rows, place = layout(name), tmp_path / stored
    if stored == "saved":
        save_dataset(place, rows)
    elif stored == "array.json":
        place.write_text(json.dumps(rows))
    else:
        write(place, rows)
    run = tmp_path / "run"
    end = cli("score", place, *FLAGS, "--out", run)
    assert end.code == 0, end.err
    for labels in ((), ("--labels", place)):
        end = cli("agree", run, *labels, "--allow-dry-run", "--json", "--resamples", FEW)
        assert end.code == 0, end.err
        found = json.loads(end.out)
        better = found["aspects"]["better"]
        assert (better["pairs"], better["comparisons"]["first wins"]["accuracy"]["value"]) == (
            3,
            pytest.approx(first),
        )
        assert better["comparisons"]["longer wins"]["accuracy"]["value"] == pytest.approx(longer_wins)


def test_the_tables_fit_80_columns_and_name_every_row(cli: Cli, judged: Run) -> None:
    given = marked_pairs("aabbabtb")
    for n, pair in enumerate(given):
        pair |= {"subset": f"a-long-name-of-a-subset-{n % 2}", "annotators": [1, 2, "tie"]}
    end = cli("agree", judged(marked, given), "--all", "--resamples", FEW)
    assert end.code == 0, end.err
    names = ["both orders", "input order", "reverse order", "the longer response", "the first response"]
    names += [
        "Both orders name the same response in 1.00",
        "Krippendorff's nominal alpha",
    ]
    assert [name for name in names if name not in end.out] == []
    assert max(len(line) for line in end.out.splitlines() if "─" in line) <= 80


def test_a_pair_that_could_not_be_judged_is_left_out_and_counted(judged: Run) -> None:
    given = marked_pairs("aab")
    given[1]["candidate_b"] = "long " * 5000
    found = agreement(judged(marked, given))
    assert pair_agreement_notes(found) == [
        "1 of 3 label records match no judged pair",
        "pairs that could not be judged, and are left out: 1",
    ]
    assert found.aspects["better"].pairs == 2


def test_one_order_has_no_consistency(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.jsonl", labelled_pairs("aabb"))
    assert cli("score", file, *FLAGS, "--orders", "one", "--out", tmp_path / "run").code == 0
    found = agreement(tmp_path / "run").aspects["better"]
    assert [*found.comparisons] == ["input order", "longer wins", "first wins"]
    assert found.consistency.value is None


def test_commands_for_single_responses_refuse_runs_of_pairs_in_one_line(
    cli: Cli, tmp_path: Path, short_rubric: Path
) -> None:
    file = write(tmp_path / "pairs.jsonl", labelled_pairs("aabb"))
    run = tmp_path / "run"
    assert cli("score", file, *FLAGS, "--out", run).code == 0
    dry = "--allow-dry-run"
    for command, words in (
        (("jury", run, run, dry), "compares two responses; give runs that judge one"),
        (("calibrate", run, dry, "--labels", file, "--out", tmp_path / "map.json"), "give runs that judge one"),
        (("import", file, "--rubric", "pairwise", "--out", tmp_path / "in"), "--rubric pairwise: compares two"),
    ):
        end = cli(*command)
        assert (end.code, words in end.err, len(end.err.splitlines())) == (2, True, 1), end.err
    refused: tuple[Callable[[], object], ...] = (
        lambda: compare_judges([run, run]),
        lambda: write_jury([run, run], tmp_path / "jury"),
        lambda: read_scores([run]),
    )
    for call in refused:
        with pytest.raises(UsageError, match="compares two responses; give runs that judge one"):
            call()
    single = write(
        tmp_path / "rows.jsonl", [{"id": "r", "instruction": "A?", "reference": "B.", "candidate": "C."}]
    )
    judge = ("--engine", "dry-run", "--rubric", short_rubric)
    assert cli("score", single, *judge, "--out", tmp_path / "single").code == 0
    for flags, words in (((), "--labels is missing"),):
        end = cli("agree", tmp_path / "single", dry, *flags)
        assert (end.code, words in end.err) == (2, True)
